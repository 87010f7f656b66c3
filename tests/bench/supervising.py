"""What supervising costs while a run goes on, several runs at once, and removing what many runs have left."""

from __future__ import annotations

import os
import subprocess
import time

from tests.bench import measure, worlds
from tests.bench.results import Figure
from tests.bench.worlds import ROOT, World

SHARE = 0.5  # percent of one core
CHATTY = """import sys, time
block = (b"loss 0.5 and some words to fill the line up to its usual length\\n" * 16000)[:1_000_000]
begun = time.monotonic()
for second in range(1, int(sys.argv[1]) * 100 + 1):
    sys.stdout.buffer.write(block)
    sys.stdout.buffer.flush()
    time.sleep(max(0.0, begun + second / 100 - time.monotonic()))
print()
print("val_accuracy: 0.5")
"""


def figures(place: str, quiet_s: float = 15.0, chatty_s: float = 8.0) -> list[Figure]:
    """Measure the processor share of everything of ours, the waiting client included, while a run goes on."""
    found = []
    for name, seconds, script in (
        ("quiet", quiet_s, f"sleep {quiet_s + 3}\necho {worlds.METRIC}: 0.5\n"),
        ("100 MB/s of output", chatty_s, f"exec {worlds.PYTHON} chatty.py {int(chatty_s) + 3}\n"),
    ):
        measure.said(f"supervising, {name}")
        world = worlds.campaign(f"{place}/supervised-{len(found)}", 50, cmd="sh go.sh")
        for file, text in (("chatty.py", CHATTY), ("go.sh", script)):
            with open(os.path.join(world.repository, file), "w", encoding="utf-8") as handle:
                handle.write(text)
        share, held = _watched(world, seconds)
        found.append(
            Figure(
                f"supervising, {name}",
                share,
                unit="% of a core",
                limit=SHARE,
                budget=f"{SHARE:g} %",
                note=f"{held:.0f} MiB in all processes of ours",
            )
        )
    return found


def _watched(world: World, seconds: float) -> tuple[float, float]:
    """Return percent of one core and MiB of our processes over `seconds` of a run."""
    argv = [
        os.path.join(ROOT, "bin", "experiment"),
        f"CAMPAIGN={worlds.CAMPAIGN}",
        "NAME=long",
        "FILES=go.sh chatty.py",
    ]
    client = subprocess.Popen(
        argv, env=world.env, cwd=world.repository, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        time.sleep(1.5)
        ours = _ours(client.pid)
        if len(ours) < 3:
            raise measure.Failed(f"client, keeper and supervisor are not there: {ours}")
        before, begun = sum(map(_cpu_s, ours)), time.monotonic()
        time.sleep(seconds)
        spent = time.monotonic() - begun
        ours |= _ours(client.pid)
        used = sum(map(_cpu_s, ours)) - before
        memory = sum(map(_proportional_mib, ours))
        return 100 * used / spent, memory
    finally:
        if client.wait():
            raise measure.Failed("the supervised run failed")


def _ours(client: int) -> set[int]:
    """Return the client and what it started, without the run: ours all carry the core's command line."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parents.setdefault(int(file.read().rpartition(b")")[2].split()[1]), []).append(int(name))
            except OSError:
                continue
    found, todo = set(), [client]
    while todo:
        pid = todo.pop()
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if b"autoresearch" not in file.read():
                    continue
        except OSError:
            continue
        found.add(pid)
        todo += parents.get(pid, [])
    return found


def _cpu_s(pid: int) -> float:
    """Return the processor seconds of a process, to the nanosecond where the kernel tells."""
    try:
        with open(f"/proc/{pid}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[0]) / 1e9
    except OSError:
        return 0.0


def _proportional_mib(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("Pss:")) / 1024
    except (OSError, StopIteration):
        return 0.0


def concurrent(place: str, count: int = 8, rounds: int = 3) -> list[Figure]:
    """Measure `count` experiments started at once, against the same number one after the other."""
    measure.said(f"{count} experiments at once")
    world = worlds.campaign(f"{place}/concurrent", 50, more=(f"SLOTS={count}",))
    walls: dict[str, list[float]] = {"at once": [], "in turn": []}
    for turn in range(rounds + 1):
        for kind, found in walls.items():
            names = [f"{kind.replace(' ', '-')}-{turn}-{number}" for number in range(count)]
            begun = time.perf_counter()
            if kind == "in turn":
                for name in names:
                    _start(world, name).wait()
            else:
                for client in [_start(world, name) for name in names]:
                    if client.wait():
                        raise measure.Failed("an experiment of many at once failed")
            if turn:
                found.append(time.perf_counter() - begun)
    with open(world.ledger, encoding="utf-8") as file:
        rows = len(file.read().splitlines()) - 1
    if rows != 1 + 2 * count * (rounds + 1):
        raise measure.Failed(f"{rows} rows instead of {1 + 2 * count * (rounds + 1)}")
    once, turns = (sorted(found)[len(found) // 2] * 1000 for found in walls.values())
    return [Figure(f"{count} experiments at once", once, yardstick=f"{count} in turn", theirs=turns)]


def _start(world: World, name: str) -> subprocess.Popen[bytes]:
    argv = [os.path.join(ROOT, "bin", "experiment"), f"CAMPAIGN={worlds.CAMPAIGN}", f"NAME={name}"]
    return subprocess.Popen(
        [*argv, "OVERRIDES=x"],
        env=world.env,
        cwd=world.repository,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def cleaning(place: str, files: int = 200_000) -> list[Figure]:
    """Measure clean-campaign of many files against rm -rf of as many."""
    measure.said(f"clean-campaign, {files} files")
    world = worlds.campaign(f"{place}/cleaned", 50)
    other = os.path.join(place, "removed")
    for top in (os.path.join(world.output, "baseline", "checkpoints"), other):
        for folder in range(files // 1000):
            path = os.path.join(top, f"step_{folder}")
            os.makedirs(path)
            for number in range(1000):
                os.close(os.open(os.path.join(path, f"shard_{number}"), os.O_WRONLY | os.O_CREAT, 0o600))
    hand = measure.command(["rm", "-rf", other], world.env)
    cost = world.verb("clean-campaign", "YES=1")
    return [
        Figure(
            f"clean-campaign, {files:,} files",
            cost.wall_s * 1000,
            yardstick="rm -rf",
            theirs=hand.wall_s * 1000,
            cpu_ms=cost.cpu_s * 1000,
            note="it shows the sizes before, and checks what it removes",
        )
    ]
