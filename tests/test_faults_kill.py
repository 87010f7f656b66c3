"""kill -9 of anything at any moment: one row for every launch that began, and nothing left behind."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from autoresearch import processes
from tests.faults import Lab, ended, idea, kill_all, train_repo

pytestmark = pytest.mark.slow
KILLS = 12


def victims(lab: Lab, draw: random.Random, group: int) -> str:
    """Kill -9 something of a launch that goes on; returns what."""
    kind = draw.choice(["group", "ours", "everything", "one", "one", "half"])
    if kind == "group":
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            pass
        return kind
    for _ in range(2 if kind == "everything" else 1):  # what was forked meanwhile
        lines = lab.processes()
        found = [p for line in lines if (p := processes.identify(int(line.partition(":")[0])))]
        if kind == "ours":
            trainings = {line.partition(":")[0] for line in lines if "train.py" in line and "bin/" not in line}
            found = [p for p in found if str(p.pid) not in trainings]
        draw.shuffle(found)
        kill_all(found[: {"one": 1, "half": (len(found) + 1) // 2}.get(kind, len(found))])
    return kind


@pytest.mark.parametrize("seed", range(5))
def test_killed_at_a_random_moment(make_repo: Callable[..., Path], tmp_path: Path, hermetic: Path, seed: int) -> None:
    """After each kill a reader or the next verb brings all back; the stop rule holds to the last."""
    draw = random.Random(seed)
    lab = Lab(
        train_repo(make_repo), tmp_path / "s", hermetic, stop=f"{KILLS - 2} experiments", SLOTS=draw.choice(["", "2"])
    )
    lab.ok("baseline")
    told = []
    for n in range(KILLS):
        names = [f"e{k}" for k in range(99) if f"e{k}" not in {row.experiment for row in lab.rows()}]
        words = draw.choice(["", "sleep=0.2", "sleep=0.2", "sleep=20", "family=1 sleep=0.1", "exit=1", "value=0.6"])
        launched = lab.spawn("experiment", make=draw.random() < 0.5, **idea(names[0], words))
        time.sleep(draw.choice([0.1, 0.3, 0.6]) * draw.random())
        told.append((n, words, victims(lab, draw, launched.pid)))
        if words == "sleep=20":
            time.sleep(0.3)
            victims(lab, random.Random(2), launched.pid)
            if lab.processes():
                lab.call("stop", NAME=names[0])
        ended(launched)
        how = draw.choice(["status", "wait", "baseline", "start"])
        done = lab.call(how, **({"NAME": names[0]} if how in ("wait", "start") else {}))
        assert done.returncode in (0, 3, 4), (told, done)
        if how == "start" and not done.returncode:
            lab.ok("release", NAME=names[0])
        rows = lab.check()
        if len({row.experiment for row in rows}) >= KILLS - 2:
            break
    while lab.idea(f"last{len(lab.rows())}").returncode != 3:
        assert len(lab.rows()) < 2 * KILLS, told
    assert len({row.experiment for row in lab.check()}) == KILLS - 2, told
