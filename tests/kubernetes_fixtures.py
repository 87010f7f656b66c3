"""Fixtures of the launcher tests for Kubernetes; a module of its own because pytest loads it as a plugin."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoresearch.launchers._waiting import Limits
from autoresearch.launchers.nrl_k8s import NrlK8s
from tests.kubernetes import Fake
from tests.launching import ENGINES

DOUBLE = ENGINES / "kubernetes_double.py"


@pytest.fixture
def fake(hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    home = tmp_path / "double"
    (home / "bin").mkdir(parents=True)
    for name in ("kubectl", "nrl-k8s"):
        path = home / "bin" / name
        path.write_text(f'#!/bin/sh\nexec {sys.executable} -I {DOUBLE} {shlex.quote(str(home))} {name} "$@"\n')
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{home / 'bin'}:{os.environ['PATH']}")
    yield Fake(hostile, home)
    unknown = home / "unknown"
    assert not unknown.exists(), unknown.read_text()
    left = [name for name in ("rayjob", "dra", "pod") if (home / name).exists() and (home / name).read_text()]
    assert left == [], "something is left in the cluster"


@pytest.fixture
def launcher() -> NrlK8s:
    return NrlK8s(Limits(gone_s=3.0, away_s=20.0, last_poll_s=0.5))
