"""The log of a RayJob whose machine shares no volume with us: forwarded, reattached, never doubled, never shorter."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoresearch import metrics
from autoresearch.launchers import _k8s_engine, _k8s_log
from autoresearch.launchers.nrl_k8s import NrlK8s
from tests.kubernetes import Fake
from tests.launching import Run, wait_until

pytest_plugins = ("tests.kubernetes_fixtures",)
LIVES = {"rayClusterName": "camp-idea-raycluster-x7k2p", "jobId": "camp-idea-9q8w7"}
RUNNING = {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING", **LIVES}
DONE = {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", **LIVES}


class Driver:
    """The driver of a RayJob that only the double shows: what it prints, how its status is."""

    def __init__(self, fake: Fake) -> None:
        self.home, self.text = fake.home, ""
        self.job = fake.job(["true"])
        self.home_of("driver-log").touch()
        self.status(RUNNING)
        self.sizes: list[int] = []

    def home_of(self, name: str) -> Path:
        return self.home / name

    def status(self, status: dict[str, str]) -> None:
        new = self.home_of("status.new")
        new.write_text(json.dumps(status))
        new.rename(self.home_of("status"))

    def say(self, text: str) -> None:
        self.text += text
        with open(self.home_of("driver-log"), "a") as file:
            file.write(text)

    def here(self) -> str:
        """What has been brought; it may never be less than before."""
        data = Path(self.job.log_path).read_bytes() if os.path.exists(self.job.log_path) else b""
        assert len(data) >= max(self.sizes, default=0), "the log became shorter"
        self.sizes.append(len(data))
        return data.decode()

    def wait_for(self, text: str) -> None:
        """The last end of a line only comes with what follows: it may belong to nrl-k8s's own last words."""
        wait_until(lambda: self.here().rstrip("\n") == text.rstrip("\n"))

    def forwards(self) -> list[list[int]]:
        path = self.home_of("forwards")
        return [[int(pid) for pid in line.split()] for line in path.read_text().splitlines()] if path.exists() else []

    def living(self) -> list[int]:
        return [pid for pids in self.forwards() for pid in pids if _lives(pid)]


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def driver(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    monkeypatch.setattr(_k8s_engine, "QUIET_S", 0.0)
    monkeypatch.setattr(_k8s_engine, "REATTACH_S", 0.2)
    monkeypatch.setattr(_k8s_log, "STUCK_S", 10.0)
    made = Driver(fake)
    yield made
    assert made.living() == [], "a forward is left"


def test_a_lost_connection_doubles_and_loses_nothing(launcher: NrlK8s, driver: Driver) -> None:
    driver.home_of("cut").write_text("31")
    driver.say("Generating responses\nval_bpb 1.25 (s")
    run = Run(launcher, driver.job)
    wait_until(lambda: len(driver.forwards()) >= 2)
    driver.say("tep 10)\n" + "é" * 5000 + "\nval_bpb 1.125 (step 20)")
    driver.wait_for(driver.text)
    driver.say("\nlast words\n")
    driver.status(DONE)
    outcome = run.result()
    assert (outcome.end_cause, outcome.reason) == ("ok", "teardown seen")
    assert driver.here() == driver.text
    where = metrics.Where(driver.job.log_path, "", "", "", "")
    assert metrics.read(metrics.Spec("val_bpb", "min"), where).value == 1.125


@pytest.mark.parametrize("whom", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(-1, marks=pytest.mark.slow)])
def test_a_killed_forward_is_replaced(launcher: NrlK8s, driver: Driver, whom: int) -> None:
    driver.say("one\n")
    run = Run(launcher, driver.job)
    driver.wait_for("one\n")
    pids = driver.forwards()[-1]
    for pid in pids if whom < 0 else pids[whom : whom + 1]:
        os.kill(pid, signal.SIGKILL)
    if whom == 1:  # its kubectl: nrl-k8s notices by its connection
        os.kill(pids[0], signal.SIGTERM)
    wait_until(lambda: len(driver.forwards()) >= 2)
    driver.say("two\n")
    driver.wait_for("one\ntwo\n")
    assert not any(map(_lives, pids))
    driver.status(DONE)
    assert run.result().end_cause == "ok"
    assert driver.here() == driver.text


@pytest.mark.slow
def test_nothing_is_lost_while_the_cluster_is_away(launcher: NrlK8s, driver: Driver) -> None:
    driver.say("before\n")
    run = Run(launcher, driver.job)
    driver.wait_for("before\n")
    driver.home_of("down").touch()
    wait_until(lambda: any(said.startswith("away") for said in run.recorder.said))
    driver.say("meanwhile\n")
    wait_until(lambda: driver.living() == [])
    assert driver.here() == "before\n"
    driver.home_of("down").unlink()
    driver.wait_for("before\nmeanwhile\n")
    driver.home_of("down").touch()  # it ends while nobody can see it
    driver.say("after\n")
    driver.status(DONE)
    time.sleep(0.5)
    driver.home_of("down").unlink()
    assert run.result().end_cause == "ok"
    assert driver.here() == driver.text


@pytest.mark.slow
def test_a_connection_that_is_lost_at_the_very_end(launcher: NrlK8s, driver: Driver) -> None:
    driver.say("x\n" * 1000)
    run = Run(launcher, driver.job)
    driver.wait_for(driver.text)
    driver.say("y\n" * 1000)
    driver.home_of("cut").write_text("2500")  # for the attachment that is to bring the rest
    driver.status(DONE)
    assert run.result().end_cause == "ok"
    assert driver.here() == driver.text


@pytest.mark.slow
def test_a_log_that_begins_anew_is_kept_beside_the_old_one(launcher: NrlK8s, driver: Driver) -> None:
    driver.say("first driver\n")
    run = Run(launcher, driver.job)
    driver.wait_for("first driver\n")
    os.kill(driver.forwards()[-1][0], signal.SIGKILL)
    driver.home_of("driver-log").write_text("first attempt of another\n")
    expected = f"first driver\n{_k8s_log.DIFFERS.decode()}first attempt of another\n"
    driver.wait_for(expected)
    driver.status(DONE)
    assert run.result().end_cause == "ok"
    assert driver.here() == expected


def test_a_stop_leaves_no_forward(launcher: NrlK8s, driver: Driver) -> None:
    driver.say("one\n")
    run = Run(launcher, driver.job)
    driver.wait_for("one\n")
    run.recorder.stop()
    assert run.result().end_cause == "stopped"
    assert driver.here() == "one\n"  # said by the stop


def test_a_killed_supervisor_leaves_no_forward_and_doubles_nothing(launcher: NrlK8s, driver: Driver) -> None:
    driver.say("one\n")
    supervisor = multiprocessing.get_context("fork").Process(target=lambda: Run(launcher, driver.job).result(100))
    supervisor.start()
    driver.wait_for("one\n")
    assert supervisor.pid is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    supervisor.join()
    again = Run(launcher, driver.job)
    driver.say("two\n")  # nobody listens to the old one
    driver.wait_for("one\ntwo\n")
    wait_until(lambda: not _lives(driver.forwards()[0][0]))
    os.kill(driver.forwards()[0][1], signal.SIGKILL)  # the double's child, which a real nrl-k8s ends by itself
    driver.status(DONE)
    assert again.result().end_cause == "ok"
    assert driver.here() == driver.text


def blocks(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    while data:
        size = sizes.pop() if sizes else len(data)
        yield data[:size]
        data = data[size:]


@settings(max_examples=60)
@given(
    st.binary(max_size=300),
    st.lists(st.tuples(st.integers(0, 300), st.lists(st.integers(1, 40), max_size=20)), max_size=6),
)
def test_however_often_it_is_told_the_log_is_what_was_told(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, tellings: list[tuple[int, list[int]]]
) -> None:
    path = tmp_path_factory.mktemp("log") / "run.log"
    for length, sizes in [*tellings, (300, [])]:
        before = path.read_bytes() if path.exists() else b""
        _k8s_log.grow(str(path), blocks(text[:length], sizes))
        assert path.read_bytes().startswith(before)
    assert path.read_bytes() == text


def test_another_telling_is_compared_with_the_newest(tmp_path: Path) -> None:
    path = str(tmp_path / "run.log")
    for telling in (b"a" * 100, b"a" * 70 + b"b" * 70, b"a" * 70 + b"b" * 90, b"a" * 20):
        _k8s_log.grow(path, blocks(telling, [30, 30, 30, 30]))
    assert Path(path).read_bytes() == b"a" * 100 + _k8s_log.DIFFERS + b"a" * 70 + b"b" * 90


@pytest.mark.parametrize(
    ("pieces", "brought", "trouble"),
    [
        ([b"a\n", b"\n[tail err", b"or: it is gone]\n"], b"a\n", "it is gone"),
        ([b"a\n[ta", b"il of a list]\n"], b"a\n[tail of a list]\n", ""),
        ([b"a\n[tail error: x]\n" + b"b" * 9000], b"a\n[tail error: x]\n" + b"b" * 9000, ""),
        ([b"\n"], b"\n", ""),
        ([b"\n[tail error: Cannot connect to host\n127.0.0.1]\n"], b"", "Cannot connect to host\n127.0.0.1"),
    ],
)
def test_words_of_nrl_k8s_are_no_part_of_the_log(
    tmp_path: Path, pieces: list[bytes], brought: bytes, trouble: str
) -> None:
    forward = _k8s_log.Forward(str(tmp_path / "run.log"), {})
    reader, writer = os.pipe()
    told: list[bytes] = []
    thread = threading.Thread(target=lambda: told.extend(forward._told(reader)))
    thread.start()
    for piece in pieces:
        os.write(writer, piece)
        time.sleep(0.02)
    os.close(writer)
    thread.join()
    os.close(reader)
    assert (b"".join(told), forward.trouble) == (brought, trouble)


@pytest.mark.slow
def test_a_big_log_is_brought_in_little_memory(tmp_path: Path) -> None:
    code = "import sys\nfor n in range(400):\n sys.stdout.write(f'{n} ' + 'x' * (1 << 20) + '\\n')"
    import sys
    from resource import RUSAGE_SELF, getrusage

    forward = _k8s_log.Forward(str(tmp_path / "run.log"), dict(os.environ))
    forward.attach([sys.executable, "-c", code])
    assert forward.wait()
    before = getrusage(RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    forward.attach([sys.executable, "-c", code + "\nprint('more')"])
    assert forward.wait()
    took = time.monotonic() - began
    assert getrusage(RUSAGE_SELF).ru_maxrss - before < 16 << 10
    assert os.path.getsize(tmp_path / "run.log") == forward.brought // 2 + 3
    assert took < 60, took
