"""What the tests of processes, keeper and runner share: trees of stubborn processes, and runs of them."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from autoresearch.launchers import Outcome, Watch
from autoresearch.running import keeper, processes, runfile, runner, watchdog

# The system's own, where there is one: an ordinary user may be unable to reach that of the tests.
PYTHON = ["/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable, "-I", "-S"]
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

# Notes each member's identity in the directory it is given, then lives until it is ended.
TREE = r"""
import os, signal, sys, time
where = sys.argv[1]
def live(name, deaf):
    if deaf:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
    start = open("/proc/self/stat").read().rpartition(")")[2].split()[19]
    boot = open("/proc/sys/kernel/random/boot_id").read().strip()
    with open(f"{where}/.{name}", "w") as file:
        file.write(f"{os.getpid()}:{start}:{boot}")
    os.rename(f"{where}/.{name}", f"{where}/{name}")
    time.sleep(300)
    os._exit(0)
def member(name, deaf=False, session=False, twice=False, bare=False):
    if os.fork():
        return
    if session:
        os.setsid()
    if twice and os.fork():
        os._exit(0)
    if bare:
        code = open(sys.argv[0]).read().split("# the " + "members")[0] + f"live({name!r}, True)"
        os.execve("/usr/bin/env", ["env", "-i", sys.executable, "-I", "-S", "-c", code, where], {})
    live(name, deaf)
# the members
member('plain')
member('deaf', deaf=True)
member('session', deaf=True, session=True)
member('daemon', deaf=True, session=True, twice=True)
member('bare', session=True, twice=True, bare=True)
live('main', '--deaf' in sys.argv)
"""
MEMBERS = ("plain", "deaf", "session", "daemon", "bare", "main")


def until(true: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Return the first true value of `true`; fails when there is none in time."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        if found := true():
            return found
        time.sleep(0.005)
    raise AssertionError("waited in vain")


def tree_command(where: Path, *more: str) -> list[str]:
    """Return the command of a tree whose members note themselves in `where`."""
    where.mkdir(exist_ok=True)
    where.chmod(0o777)
    (where / "tree.py").write_text(TREE)
    return [*PYTHON, str(where / "tree.py"), str(where), *more]


def members(where: Path) -> dict[str, processes.Process]:
    """Return the identities of all members of a tree, once they are all up."""
    until(lambda: all((where / name).exists() for name in MEMBERS))
    return {name: processes.parse_process((where / name).read_text()) for name in MEMBERS}


def living(tree: dict[str, processes.Process]) -> list[str]:
    """Return the names of those that live."""
    return [name for name, process in tree.items() if processes.alive(process)]


class Attempt(NamedTuple):
    """A run under a keeper; its directory holds `result`, `rescued`, `said`, `started` as they come."""

    fd: int
    where: Path

    def outcome(self, seconds: float = 60.0) -> Outcome:
        """Wait for the end and return how the run ended."""
        assert keeper.wait(self.fd, seconds), "the keeper has not ended in time"
        for name in ("result", "rescued"):
            if (self.where / name).exists():
                return Outcome(**json.loads((self.where / name).read_text()))
        raise AssertionError(f"neither result nor rescued: {(self.where / 'keeper.log').read_text()}")

    def supervisor(self) -> processes.Process:
        """Return the identity of the supervisor of a run that has been launched."""
        record = until(lambda: (r := runfile.read(str(self.where))) and r.supervisor and r)
        return processes.parse_process(record.supervisor)

    def keeper(self) -> processes.Process:
        """Return the identity of the keeper."""
        parent = int(processes._fields(self.supervisor().pid)[1])
        found = processes.identify(parent)
        assert found
        return found

    @property
    def log(self) -> bytes:
        """What the run printed."""
        return (self.where / "run.log").read_bytes()


def start(where: Path, argv: list[str], **more: Any) -> Attempt:
    """Run a command as an attempt does. `more`: fields of runner.Command, and `settings`."""
    where.mkdir(exist_ok=True, parents=True)

    def write(name: str, text: str) -> None:
        (where / f".{name}").write_text(text)
        (where / f".{name}").rename(where / name)

    def say(text: str) -> None:
        with open(where / "said", "a") as file:
            file.write(text + "\n")

    watch = Watch(lambda: (where / "stop").exists(), lambda job: None, lambda at: write("started", str(at)), say)
    limits = watchdog.limits(more.pop("settings", {}), disk_paths=(str(where),), growing=(str(where / "events"),))
    fields = {"cwd": str(where), "env": dict(os.environ), "cap_s": 30.0, "grace_s": 0.3, "limits": limits, **more}
    command = runner.Command(argv=argv, logs=str(where), log_path=str(where / "run.log"), **fields)

    def supervise() -> None:
        write("result", json.dumps(runner.run(command, watch)._asdict()))

    def rescue() -> None:
        if not (where / "result").exists():
            write("rescued", json.dumps(runner.recover(str(where))._asdict()))

    fd = keeper.detach(
        supervise, rescue, lock_path=str(where / "lock"), log_path=str(where / "keeper.log"), grace_s=command.grace_s
    )
    return Attempt(fd, where)


@contextmanager
def tmpfs(where: Path, options: str) -> Iterator[Path]:
    """Mount a small file system at a new directory; root only."""
    where.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(where)]
    if os.spawnvp(os.P_WAIT, "mount", command):
        pytest.skip("tmpfs cannot be mounted here")
    try:
        yield where
    finally:
        os.spawnvp(os.P_WAIT, "umount", ["umount", "-l", str(where)])


def kill(process: processes.Process) -> None:
    """kill -9, and nobody else."""
    processes.send(process, signal.SIGKILL)
