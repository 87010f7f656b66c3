"""attempts.py: the state of an attempt survives a full disk and is never half read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from autoresearch import attempts, files, paths
from autoresearch.attempts import State
from tests.runs import root_only, tmpfs


@pytest.fixture
def where(hostile: Path) -> paths.Campaign:
    """A campaign with a directory for its states."""
    found = paths.Campaign(str(hostile), str(hostile), "c")
    os.makedirs(found.state)
    return found


def state(experiment: str = "y", attempt: int = 1, **more: Any) -> State:
    """Return the state of an attempt."""
    fields: dict[str, Any] = {
        "smoke": False,
        "phase": "reserved",
        "branch": f"p/{experiment}",
        "commit": "c" * 40,
        "parent_commit": "p" * 40,
        "parent": "baseline",
        "description": 'é "x" \u2028\n',
        "argv": ["python", "it's"],
        "tree": "",
        "overrides": [],
        "lines_delta": None,
        "cap_s": 12.5,
        "reserved_at": float(attempt),
        "client": "",
        "lock": f"{experiment}.lock",
    }
    return State(experiment=experiment, attempt=attempt, **{**fields, **more})


def test_a_state_comes_back(where: paths.Campaign) -> None:
    made = state(notes=["a"], links={"TMPDIR": "/t"}, row=["1", "2"])
    attempts.create(where, made)
    assert attempts.read(attempts.path(where, "y")) == made
    changed = attempts.update(where, made._replace(phase="launched", row=[], notes=[]))
    assert attempts.read(attempts.path(where, "y")) == changed
    attempts.remove(where, made)
    attempts.remove(where, made)
    assert attempts.read(attempts.path(where, "y")) is None


def test_a_shorter_state_leaves_nothing_of_a_longer_one(where: paths.Campaign) -> None:
    made = state(notes=["x" * 40_000])
    attempts.create(where, made)
    attempts.update(where, made._replace(notes=[]))
    found = attempts.read(attempts.path(where, "y"))
    assert found is not None
    assert found.notes == []


def test_a_write_that_was_cut_leaves_the_state_before_it(where: paths.Campaign) -> None:
    """A kill or a power cut may stop an update at any page, and a reader may look in the middle of it."""
    made = state(notes=["x" * 9000])
    attempts.create(where, made)
    file = Path(attempts.path(where, "y"))
    for phase in ("launched", "ended", "concluded"):
        before, old = file.read_bytes(), attempts.read(str(file))
        made = attempts.update(where, made._replace(phase=phase))
        after = file.read_bytes()
        for cut in range(0, len(after), 512):
            file.write_bytes(after[:cut] + before[cut:])
            assert attempts.read(str(file)) in (old, made)
        file.write_bytes(after)
        assert attempts.read(str(file)) == made


def test_a_state_that_outgrows_its_slot(where: paths.Campaign) -> None:
    made = state()
    attempts.create(where, made)
    made = attempts.update(where, made._replace(row=["x" * 50_000]))
    assert attempts.read(attempts.path(where, "y")) == made
    made = attempts.update(where, made._replace(phase="ended"))
    assert attempts.read(attempts.path(where, "y")) == made


def test_all_attempts_in_the_order_of_their_reservation(where: paths.Campaign) -> None:
    assert attempts.every(paths.Campaign("/none", "/none", "c")) == []
    for one in (state("b", 3), state("a", 1), state("c", 2, smoke=True)):
        attempts.create(where, one)
    files.replace(where.started, b"{}")
    Path(where.state, "broken.json").write_text('{"experiment": "x"')
    Path(where.state, "other.json").write_text('{"unknown": 1}')
    assert [one.id for one in attempts.every(where)] == ["a", "c.smoke-2", "b.3"]


def test_an_experiment_may_be_called_started(where: paths.Campaign) -> None:
    files.replace(where.started, b"{}")
    attempts.create(where, state("started"))
    assert [one.experiment for one in attempts.every(where)] == ["started"]
    attempts.remove(where, state("started"))
    assert Path(where.started).read_bytes() == b"{}"


def test_whoever_holds_the_lock_supervises(where: paths.Campaign) -> None:
    made = state()
    assert not attempts.is_supervised(where, made)
    with files.locked(attempts.lock_file(where, made)):
        assert attempts.is_supervised(where, made)
    assert not attempts.is_supervised(where, made)


@root_only
def test_a_full_disk_still_takes_the_finished_row(hostile: Path) -> None:
    with tmpfs(hostile / "disk", "size=96k") as disk:
        where = paths.Campaign(str(disk), str(disk), "c")
        os.makedirs(where.state)
        made = state()
        attempts.create(where, made)
        with pytest.raises(OSError, match="No space"):
            (disk / "fill").write_bytes(b"x" * 200_000)
        row = ["x" * 100] * 32
        attempts.update(where, made._replace(phase="concluded", row=row))
        found = attempts.read(attempts.path(where, "y"))
        assert found is not None
        assert found.row == row
