"""The line that says where a run is while it goes on."""

from __future__ import annotations

from pathlib import Path

from autoresearch import progress
from tests.campaigns import approved, state


def test_a_program_that_measures_is_not_run_meanwhile(repo: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    opened = approved(repo, tmp_path / "scratch", metric=f"command:touch '{ran}'")
    assert "ar/c/y" in progress.line(opened, state())
    assert not ran.exists()
