"""What the end-to-end fault tests share: a real campaign driven through bin/ and make, and what must hold after it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autoresearch import ledger
from autoresearch.git import Git, notes, treerecords
from autoresearch.rows import Row
from autoresearch.running import processes
from tests.conftest import ROOT, git, snapshot

# Reads its arguments as settings; whoever looks finds it by the mark in its command line.
TRAIN = """
import os, select, sys, time
given = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
if given.get("log_dir"):
    open(os.path.join(given["log_dir"], "began"), "a").write("x")
if "family" in given and os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(60)
    os._exit(0)
print("step 1", flush=True)
select.select([], [], [], float(given.get("sleep", "0")))  # time.sleep fails under libfaketime
exec(given.get("code", ""))
print(f"val_accuracy: {given.get('value', '0.5')}", flush=True)
sys.exit(int(given.get("exit", "0")))
"""
OWN_DEVICES = 'mkdir -p /tmp/autoresearch-devices && mount --bind "$1" /tmp/autoresearch-devices && shift && exec "$@"'
MOST_S = 60.0


class Lab:
    """One repository with one approved campaign, and a machine's devices of its own where root can give it that."""

    def __init__(
        self,
        repo: Path,
        scratch: Path,
        home: Path,
        *,
        stop: str = "",
        name: str = "c",
        env: dict[str, str] | None = None,
        **knobs: str,
    ) -> None:
        self.repo, self.scratch, self.name, self.home = repo, scratch, name, home
        scratch.mkdir(exist_ok=True)
        self.env = {**os.environ, **(env or {})}
        self.devices = home / "devices"
        self.devices.mkdir(exist_ok=True)
        self.devices.chmod(0o1777)
        self.knobs = knobs
        given = {
            "CAMPAIGN": name,
            "CMD": "python3 train.py log_dir={log_dir} {overrides}",
            "METRIC": "val_accuracy",
            "DIRECTION": "max",
            "PREFIX": f"ar/{name}",
            "SCRATCH": str(scratch),
            "DISK_RESERVE_GB": "0",
            "GRACE_S": "0.2",
            "STOP": stop,
            **knobs,
        }
        self.ok("plan", **{key: value for key, value in given.items() if value})
        self.ok("approve", YES="1")
        self.before = snapshot(repo)

    @property
    def records(self) -> Path:
        return self.repo / "reports" / "auto_research" / self.name

    @property
    def root(self) -> Path:
        return self.scratch / "nemo-rl" / "ubuntu" / "nemo-rl-auto-research" / self.name

    def argv(self, verb: str, knobs: dict[str, str], *, make: bool = False) -> list[str]:
        words = [f"{key}={value}" for key, value in knobs.items()]
        call = ["make", "-s", "-C", str(ROOT), verb, *words] if make else [str(ROOT / "bin" / verb), *words]
        if os.geteuid() != 0:
            return call
        return ["unshare", "-m", "sh", "-c", OWN_DEVICES, "-", str(self.devices), *call]

    def spawn(self, verb: str, *, make: bool = False, **knobs: str) -> subprocess.Popen[str]:
        """Start a verb in a session of its own, stdin empty, its output captured."""
        return subprocess.Popen(
            self.argv(verb, {"REPO": str(self.repo), **knobs}, make=make),
            env=self.env,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def call(self, verb: str, *, make: bool = False, **knobs: str) -> subprocess.CompletedProcess[str]:
        """Run a verb to its end."""
        return ended(self.spawn(verb, make=make, **knobs))

    def ok(self, verb: str, *, make: bool = False, **knobs: str) -> str:
        """Run a verb that must end with 0; returns its stdout."""
        done = self.call(verb, make=make, **knobs)
        assert done.returncode == 0, (verb, done)
        return done.stdout

    def idea(self, name: str, words: str = "", **knobs: str) -> subprocess.CompletedProcess[str]:
        """Run an experiment that differs from the baseline in its arguments alone."""
        return self.call("experiment", **idea(name, words), **knobs)

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.ok("status", JSON="1")))

    def rows(self) -> list[Row]:
        far = self.root / "results.tsv"  # with LEDGER=scratch
        book = ledger.read(str(far if far.exists() else self.records / "results.tsv"))
        assert not book.torn, book.torn
        return book.rows

    def row(self, name: str, attempt: str = "1") -> Row:
        (found,) = [row for row in self.rows() if row.experiment == name and row.attempt == attempt]
        return found

    def began(self) -> set[str]:
        """The log directories in which a training got as far as its first line."""
        return {str(path.parent) for path in self.root.glob("*/logs/**/began")}

    def states(self) -> list[str]:
        return sorted(path.name for path in (self.records / ".state").glob("*.json") if path.name[0] != ".")

    def processes(self) -> list[str]:
        """Every process that works for this lab: ours and the trainings."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                line = processes.read(f"{entry}/cmdline", 1 << 16).replace(b"\0", b" ")
                env = processes.read(f"{entry}/environ", 1 << 20)
                if str(self.repo).encode() in line + env or str(self.scratch).encode() in line:
                    found.append(f"{entry.name}: {line.decode(errors='replace')}")
        return found

    def settled(self, seconds: float = 90.0) -> None:
        """Wait until nothing of this lab runs and no attempt is without its row."""
        until(lambda: not self.states() and not self.processes(), seconds, lambda: [self.states(), self.processes()])

    def check(self, *, wiped: bool = False) -> list[Row]:
        """Assert all that must hold whatever happened, and return the rows. `wiped`: scratch was lost meanwhile."""
        self.settled()
        rows = self.rows()
        assert [row.index for row in rows] == [str(n + 1) for n in range(len(rows))]
        twice = [key for key, count in Counter((row.experiment, row.attempt) for row in rows).items() if count > 1]
        assert not twice
        smoke = ledger.read(str(self.records / "smoke.tsv")).rows
        recorded = [os.path.dirname(row.log_path) for row in (*rows, *smoke)]
        assert len(recorded) == len(set(recorded))
        assert self.began() <= set(recorded), "a training that began has no row"
        lost = [row.id for row in rows if os.path.dirname(row.log_path) not in self.began()]
        assert wiped or all(row.status == "crash" for row in rows if row.id in lost), lost
        assert Counter(notes.rebuild(Git(str(self.repo)), self.name)[n]["index"] for n in range(len(rows))) == Counter(
            row.index for row in rows
        )
        self.ok("ledger")
        owners = [n for n, state in treerecords.listing(str(self.root / ".trees")).items() if state == "owner"]
        assert not owners, "trees that nobody gave back"
        for row in rows:
            git(self.repo, "merge-base", "--is-ancestor", row.commit, row.branch)
        assert snapshot(self.repo) == self.before
        return rows


def idea(name: str, words: str = "") -> dict[str, str]:
    """Knobs of an idea whose only change is an argument."""
    return {"NAME": name, "HYPOTHESIS": f"arguments: {name}", "OVERRIDES": f"idea={name} {words}".strip()}


def ended(process: subprocess.Popen[str], seconds: float = MOST_S) -> subprocess.CompletedProcess[str]:
    out, err = process.communicate(timeout=seconds)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def until(true: Callable[[], Any], seconds: float = 90.0, tell: Callable[[], Any] = lambda: "") -> Any:
    limit = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < limit, ("waited in vain", tell())
        time.sleep(0.01)
    return found


def kill_all(victims: list[processes.Process]) -> None:
    """Kill them and wait until they are gone: one in the midst of a slow write lives on, and holds its locks."""
    for victim in victims:
        processes.send(victim, signal.SIGKILL)
    until(lambda: not any(map(processes.alive, victims)))


def train_repo(make_repo: Callable[..., Path], name: str = "repo") -> Path:
    """A repository with the training, and dirt of every kind in its checkout."""
    repo = make_repo({"train.py": TRAIN, ".gitignore": "*.ignored\n", "README": "x\n"}, name=name)
    (repo / "README").write_text("edited\n")
    (repo / "staged").write_text("staged\n")
    git(repo, "add", "staged")
    (repo / "untracked").write_text("untracked\n")
    (repo / "data.ignored").write_text("ignored\n")
    return repo
