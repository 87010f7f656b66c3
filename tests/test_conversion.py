"""The turn to convert a model's weights: its first run is alone until its log shows that set-up was passed."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest

from autoresearch.errors import TryAgain
from autoresearch.plan import Plan
from autoresearch.running import conversion


@pytest.fixture
def caches(hostile: Path) -> str:
    """A shared cache root that does not exist yet."""
    return str(hostile / "cache")


@pytest.fixture
def plan(hostile: Path) -> Plan:
    """A plan of a NeMo-RL checkout that trains a model."""
    (hostile / "repo" / "nemo_rl").mkdir(parents=True)
    return Plan(campaign="c", repository=str(hostile / "repo"), model="org/model")


def take(plan: Plan, caches: str, *, stop: bool = False, said: list[str] | None = None) -> conversion.Turn:
    """Take a turn; `stop`: somebody asks the waiting to end at once."""
    words: list[str] = [] if said is None else said
    return conversion.take(plan, caches, say=words.append, stop=lambda: stop)


def test_a_second_run_waits_for_the_first_and_says_so(plan: Plan, caches: str) -> None:
    first = take(plan, caches)
    assert first.fd >= 0
    said: list[str] = []
    with pytest.raises(TryAgain):
        take(plan, caches, stop=True, said=said)
    assert len(said) == 1
    assert "org/model" in said[0]
    first.over(12.5)


def test_once_set_up_was_passed_nobody_waits(plan: Plan, caches: str) -> None:
    take(plan, caches).over(12.5)
    assert take(plan, caches).fd == -1


def test_a_run_that_failed_in_its_set_up_leaves_the_turn_to_the_next(plan: Plan, caches: str) -> None:
    take(plan, caches).over(0.0)
    second = take(plan, caches)
    assert second.fd >= 0
    second.over(0.0)


def test_a_waiting_run_goes_on_when_the_first_ends(plan: Plan, caches: str) -> None:
    first = take(plan, caches)
    got: list[conversion.Turn] = []
    waiting = threading.Thread(target=lambda: got.append(take(plan, caches)))
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    first.over(3.0)
    waiting.join(20)
    assert [turn.fd for turn in got] == [-1]


def test_another_model_does_not_wait(plan: Plan, caches: str) -> None:
    first = take(plan, caches)
    other = take(plan._replace(model="org/other"), caches)
    assert other.fd >= 0
    other.over(0.0)
    first.over(0.0)


def test_only_a_nemo_rl_model_needs_a_turn(plan: Plan, caches: str, hostile: Path) -> None:
    (hostile / "plain").mkdir()
    assert take(plan._replace(model=""), caches).fd == -1
    assert take(plan._replace(repository=str(hostile / "plain")), caches).fd == -1
    assert not os.path.exists(caches)


def test_a_killed_holder_keeps_nobody_waiting(plan: Plan, caches: str) -> None:
    pid = os.fork()
    if pid == 0:
        take(plan, caches)
        os.kill(os.getpid(), 9)
    os.waitpid(pid, 0)
    turn = take(plan, caches, stop=True)
    with pytest.raises(BlockingIOError), open(f"{turn.marker}.lock", "rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    turn.over(0.0)
