"""One local run at a time, unless told otherwise."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autoresearch.errors import Refused, TryAgain, Usage
from autoresearch.running import devices, processes
from tests.runs import root_only, until


@pytest.fixture
def take(tmp_path: Path) -> Iterator[Callable[..., devices.Lease]]:
    """`acquire` without waiting, in a directory of this test."""
    leases = []

    def acquire(**more: Any) -> devices.Lease:
        lease = devices.acquire(**{"who": "me c/x", "wait_s": 0, "directory": str(tmp_path / "d"), **more})
        leases.append(lease)
        return lease

    yield acquire
    for lease in leases:
        try:
            lease.release()
        except OSError:
            pass  # released by the test


def test_the_whole_machine_is_held_by_one(take: Callable[..., devices.Lease]) -> None:
    lease = take(who="ann c/one")
    for more in ({}, {"gpus": "0"}, {"slots": "2"}):
        with pytest.raises(TryAgain, match="machine is held by ann c/one"):
            take(**more)
    lease.release()
    take()


def test_gpus_are_held_one_by_one(take: Callable[..., devices.Lease]) -> None:
    first = take(gpus="0,1", who="ann c/one")
    second = take(gpus="2")
    with pytest.raises(TryAgain, match="gpu-1 is held by ann c/one"):
        take(gpus="1, 3")
    take(gpus="3")  # not held after the failure
    with pytest.raises(TryAgain, match="machine is held"):
        take()
    assert first.neighbours() == ["me c/x", "me c/x"]  # gpu-2 and gpu-3
    assert "ann c/one" in second.neighbours()


def test_slots_are_counted(take: Callable[..., devices.Lease]) -> None:
    first = take(slots="2", who="a")
    assert first.neighbours() == []
    second = take(slots="2", who="b")
    with pytest.raises(TryAgain, match="all 2 slots are taken"):
        take(slots="2")
    assert (first.neighbours(), second.neighbours()) == (["b"], ["a"])
    first.release()
    assert take(slots="2").names == ("slot-0",)


def test_waiting_is_bounded_and_told(take: Callable[..., devices.Lease]) -> None:
    lease = take(who="ann c/one")
    said: list[str] = []
    started = time.monotonic()
    with pytest.raises(TryAgain, match="WAIT"):
        take(wait_s=0.3, say=said.append)
    assert time.monotonic() - started >= 0.3
    assert said == ["waiting for the device: machine is held by ann c/one"]
    with pytest.raises(TryAgain, match="request to stop"):
        take(wait_s=None, stop=lambda: True)
    lease.release()


def test_a_device_comes_free_when_its_holder_dies(take: Callable[..., devices.Lease], tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        devices.acquire(who="child", directory=str(tmp_path / "d"))
        (tmp_path / "held").touch()
        time.sleep(60)
        os._exit(0)
    until((tmp_path / "held").exists)
    with pytest.raises(TryAgain, match="child"):
        take()
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    take()


@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        ({}, {}),
        ({}, {"gpus": "0"}),
        ({"gpus": "0"}, {}),
        ({"gpus": "0"}, {"gpus": "0"}),
        ({"slots": "1"}, {"slots": "1"}),
    ],
)
def test_leftovers_keep_a_device_busy(
    take: Callable[..., devices.Lease], held: dict[str, str], wanted: dict[str, str]
) -> None:
    mark = processes.new_mark()
    lease = take(mark=mark.text(), who="ann c/one", **held)
    child = subprocess.Popen(["sleep", "60"], preexec_fn=lambda: processes.wear(mark))
    for fd in lease.fds:  # as after kill -9: nothing is written
        os.close(fd)
    with pytest.raises(TryAgain, match=f"ann c/one has left processes behind .pid {child.pid}"):
        take(**wanted)
    if held == {"gpus": "0"}:
        take(gpus="1").release()
    child.kill()
    child.wait()
    take(**wanted)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[1]", b'{"mark": 3}', b'{"mark": "zz@x", "who": "\\u001b[31m"}', b"\xff" * 9000]
)
def test_what_others_write_into_a_lock_file_does_no_harm(
    take: Callable[..., devices.Lease], tmp_path: Path, text: bytes
) -> None:
    take().release()
    (tmp_path / "d" / "machine").write_bytes(text)
    lease = take(who="a\nb\x1b[31m" + "é" * 3000)
    with pytest.raises(TryAgain) as caught:
        take()
    assert "\x1b" not in str(caught.value)
    assert "\n" not in str(caught.value)
    lease.release()


def test_links_in_the_lock_directory_are_not_followed(take: Callable[..., devices.Lease], tmp_path: Path) -> None:
    take().release()
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "d" / "machine").unlink()
    (tmp_path / "d" / "machine").symlink_to(victim)
    with pytest.raises(Refused, match="machine"):
        take()
    assert victim.read_text() == "precious"


def test_a_directory_that_is_none(take: Callable[..., devices.Lease], tmp_path: Path) -> None:
    (tmp_path / "d").symlink_to(tmp_path)
    with pytest.raises(Refused, match="not a directory"):
        take()


@pytest.mark.parametrize(
    ("gpus", "slots"), [("0;1", ""), ("../x", ""), ("a b", ""), ("", "0"), ("", "-1"), ("", "x"), ("٣", "")]
)
def test_nonsense(take: Callable[..., devices.Lease], gpus: str, slots: str) -> None:
    with pytest.raises(Usage):
        take(gpus=gpus, slots=slots)


def test_names_of_gpus() -> None:
    assert devices.wanted("1, 0,1", "") == (["gpu-0", "gpu-1"], 0)
    assert devices.wanted("GPU-8a-b", "3") == (["gpu-GPU-8a-b"], 3)


@root_only
def test_another_user_meets_the_same_locks() -> None:
    where = f"/tmp/d{os.getpid()}"
    try:
        lease = devices.acquire(who="root c/x", wait_s=0, directory=where)
        assert _as_nobody(where) == b"machine is held by root c/x"
        lease.release()
        assert _as_nobody(where) == b"taken"
        devices.acquire(who="root", wait_s=0, directory=where).release()
    finally:
        shutil.rmtree(where)


def _as_nobody(where: str) -> bytes | None:
    def attempt() -> bytes:
        os.setgid(65534)
        os.setuid(65534)
        try:
            devices.acquire(who="nobody", wait_s=0, directory=where)
        except TryAgain as error:
            return error.why.encode()
        return b"taken"

    return processes.bounded(attempt, 10)


def test_a_foreign_ray_is_seen() -> None:
    code = "open('/proc/self/comm','w').write('gcs_server'); print(1, flush=True); import time; time.sleep(60)"
    with subprocess.Popen(["/usr/bin/env", "python3", "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert child.pid in [process.pid for process in devices.foreign_ray()]
        child.kill()
