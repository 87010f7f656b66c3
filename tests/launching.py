"""What the launcher tests share: jobs, a recording watch, a follower thread, and real engines."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autoresearch.launchers import Job, Launcher, Outcome, Watch
from tests.packages import python_with

ENGINES = Path(__file__).parent / "engines"
SECRET = "s3cr3t-value-never-written"


class Recorder:
    """A watch that remembers what it was told; `stop()` is somebody's stop request."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.began: list[float] = []
        self.said: list[str] = []
        self.stopped = threading.Event()

    def watch(self) -> Watch:
        return Watch(self.stopped.is_set, self.ids.append, self.began.append, self.said.append)

    def stop(self) -> None:
        self.stopped.set()


def make_job(root: Path, argv: list[str], name: str = "camp-idea", **more: object) -> Job:
    """A job below `root` with its own tree and logs, a secret in its environment, and no limits."""
    home = root / name
    tree, logs = home / "tree", home / "exp" / "logs"
    tree.mkdir(parents=True, exist_ok=True)
    logs.mkdir(parents=True, exist_ok=True)
    exports = {"EXP_DIR": str(home / "exp"), "LOG_DIR": str(logs), "HF_HOME": str(root / "cache $x")}
    env = {**os.environ, **exports, "API_TOKEN": SECRET}
    fields: dict[str, object] = {
        "id": name,
        "argv": argv,
        "tree": str(tree),
        "env": env,
        "exports": exports,
        "secret_keys": ("API_TOKEN",),
        "logs": str(logs),
        "log_path": str(logs / "run.log"),
        "cap_s": None,
        "grace_s": 2.0,
        "deadline": None,
        "settings": {},
    }
    return Job(**{**fields, **more})  # type: ignore[arg-type]


class Run:
    """One attempt driven in a thread, as a supervisor would drive it."""

    def __init__(self, launcher: Launcher, job: Job, job_id: str | None = None) -> None:
        self.launcher, self.job, self.recorder = launcher, job, Recorder()
        self.outcome: Outcome | None = None
        self.error: BaseException | None = None
        self.given = job_id
        self.thread = threading.Thread(target=self._drive, daemon=True)
        self.thread.start()

    def _drive(self) -> None:
        watch = self.recorder.watch()
        try:
            job_id = self.launcher.submit(self.job, watch) if self.given is None else self.given
            self.outcome = self.launcher.follow(self.job, job_id, watch)
        except BaseException as error:  # noqa: BLE001 - handed to the test
            self.error = error

    @property
    def job_id(self) -> str:
        wait_until(lambda: bool(self.recorder.ids) or self.error is not None)
        assert self.recorder.ids, self.error
        return self.recorder.ids[-1]

    def wait_started(self) -> None:
        wait_until(lambda: bool(self.recorder.began) or not self.thread.is_alive())
        assert self.recorder.began, (self.error, self.outcome)

    def result(self, seconds: float = 60.0) -> Outcome:
        self.thread.join(seconds)
        if self.error is not None:
            raise self.error
        assert self.outcome is not None, f"no outcome after {seconds} s; it said {self.recorder.said}"
        return self.outcome


def wait_until(true: Callable[[], bool], seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.05)


def marked(text: str) -> list[int]:
    """Processes that have `text` in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if text.encode() in (entry / "cmdline").read_bytes() and (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                pass
    return found


def python(code: str, *args: str) -> list[str]:
    return [sys.executable, "-c", code, *args]


def bring_up(program: str, folder: str, **settings: str) -> str:
    """Run tests/engines/<program>-up; returns the value it exports, or skips with its reason."""
    env = {**os.environ, **settings}
    done = subprocess.run(
        [str(ENGINES / f"{program}-up"), folder], env=env, capture_output=True, text=True, timeout=180, check=False
    )
    if done.returncode == 77:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().partition("=")[2]


def take_down(program: str, folder: str) -> None:
    subprocess.run([str(ENGINES / f"{program}-down"), folder, "--purge"], timeout=120, check=False)


RAY_BIN = os.environ.get("RAY_BIN", "")  # before the tests' own environment replaces it


def ray_program() -> str:
    """The `ray` of RAY_BIN, of PATH, or of an environment that is made once; skips when it cannot be made."""
    return RAY_BIN or shutil.which("ray") or str(python_with("ray", "ray[default]").with_name("ray"))


def engine_folder() -> Iterator[str]:
    """A short path of its own: unix sockets lie below it."""
    folder = tempfile.mkdtemp(prefix="ar-", dir="/tmp")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def slurm_cluster(**settings: str) -> Iterator[str]:
    """A real Slurm of its own in a folder, which is yielded; it is taken down afterwards."""
    for folder in engine_folder():
        os.environ.pop("SLURM_CONF", None)
        bring_up("slurm", folder, **settings)
        yield folder
        take_down("slurm", folder)
