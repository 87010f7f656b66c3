"""A metric from a log of 1 GB: the last value and all of them, against grep, awk and (where there is one) rg."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable

from tests.bench import measure, worlds
from tests.bench.measure import Cost
from tests.bench.results import Figure

GIB = 2**30
METRIC = "val_bpb"
NEEDLE = f"{METRIC}: 0.7421\n"
MEMORY_MIB = 64.0
FILLER = "step {0}: loss {1:.4f} lr 3.0e-04 tokens 123456 dt 812 ms mfu 41.2 grad_norm 0.{0:04d} reward 0.5 kl 0.01\n"


def reader(kind: str, path: str, metric: str, env: dict[str, str], expect: float | None) -> Callable[[], Cost]:
    """Return a call of our reader in a process of its own, whose answer is checked."""
    argv = [worlds.PYTHON, "-I", os.path.join(os.path.dirname(__file__), "probe.py"), kind, metric, path]
    argv.append(os.path.dirname(path))

    def one() -> Cost:
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise measure.Failed(done.stderr[-400:])
        said = json.loads(done.stdout)
        if said["value"] != expect:
            raise measure.Failed(f"{metric} of {path}: {said['value']} instead of {expect}")
        return Cost(said["wall_s"], said["cpu_s"], said["peak_mib"])

    return one


def shell(line: str, path: str, env: dict[str, str], codes: tuple[int, ...] = (0,)) -> Callable[[], Cost]:
    """Return a call of a pipe that reads the log $1."""
    return lambda: measure.command(["bash", "-c", line, "bash", path], env, codes=codes)


def filler(carriage: bool = False, longer: bool = False) -> bytes:
    """Return about 1 MiB of a training's chatter.

    Args:
        carriage: as one progress bar that never ends its line.
        longer: with the metric's name as a part of another one in every line.
    """
    text = "".join(FILLER.format(n, 2.0 + n / 9000) for n in range(9000))
    text = text.replace(" loss ", f" {METRIC}_ema: ") if longer else text
    return (text.replace("\n", "\r") if carriage else text).encode()


def make(
    path: str,
    size: int,
    *,
    first: str = "",
    last: str = "",
    each: str = "",
    carriage: bool = False,
    longer: bool = False,
) -> None:
    """Write a log: `first`, filler up to `size` bytes with `each` after every block of it, `last`."""
    block = filler(carriage, longer) + each.encode()
    with open(path, "wb") as file:
        file.write(first.encode())
        for _ in range(size // len(block)):
            file.write(block)
        file.write(last.encode())


def figures(place: str, count: int, size: int = GIB) -> list[Figure]:
    """Measure every shape of log."""
    env = worlds.environment(os.path.join(place, "home"))
    found = []
    for name, how in SHAPES.items():
        measure.said(f"log of {size / GIB:g} GB: {name}")
        path = os.path.join(place, "logs", "run.log")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            found += how(path, env, count, size)
        finally:
            os.unlink(path)
    return found


def _near_end(path: str, env: dict[str, str], count: int, size: int) -> list[Figure]:
    make(path, size, last=NEEDLE + filler().decode())
    sides = {
        "ours": reader("last", path, f"log:{METRIC}", env, 0.7421),
        "tac": shell(f'tac "$1" | grep -m1 -o "{METRIC}: .*"', path, env, (0, 141)),
    }
    costs = measure.turns(sides, count)
    return [_last("last value, 1 MB before the end", costs["ours"], "tac | grep -m1", costs["tac"], limit_ms=30.0)]


def _at_start(path: str, env: dict[str, str], count: int, size: int) -> list[Figure]:
    make(path, size, first=NEEDLE)
    sides = {
        "ours": reader("last", path, f"log:{METRIC}", env, 0.7421),
        "tac": shell(f'tac "$1" | grep -m1 -o "{METRIC}: .*"', path, env, (0, 141)),
    }
    costs = measure.turns(sides, count)
    return [_last("last value, only at the start", costs["ours"], "tac | grep -m1", costs["tac"])]


def _absent(path: str, env: dict[str, str], count: int, size: int) -> list[Figure]:
    make(path, size)
    sides = {
        "ours": reader("last", path, f"log:{METRIC}", env, None),
        "grep": shell(f'LC_ALL=C grep -F "{METRIC}" "$1"', path, env, (1,)),
    }
    if shutil.which("rg", path=env["PATH"]):
        sides["rg"] = shell(f'rg -F "{METRIC}" "$1"', path, env, (1,))
    costs = measure.turns(sides, count)
    found = [_last("last value, absent", costs["ours"], "grep -F", costs["grep"], factor=1.0)]
    if "rg" in costs:
        found.append(_last("last value, absent", costs["ours"], "rg -F", costs["rg"]))
    return found


def _endless(path: str, env: dict[str, str], count: int, size: int) -> list[Figure]:
    found = []
    for part in (size // 4, size):
        make(path, part, first=NEEDLE, carriage=True)
        sides = {
            "ours": reader("last", path, f"log:{METRIC}", env, 0.7421),
            "cat": shell('cat "$1" | wc -c', path, env),
        }
        costs = measure.turns(sides, 2)
        name = f"last value, one endless \\r line of {part / GIB:g} GB"
        found.append(_last(name, costs["ours"], "cat | wc -c", costs["cat"]))
    quarter, whole = found
    limit = (quarter.ours or 0.0) * 5
    return [quarter, whole._replace(limit=limit, budget="linear: 4 x (5 with noise)")]


def _every(path: str, env: dict[str, str], count: int, size: int) -> list[Figure]:
    make(path, size, each=NEEDLE)
    found = []
    for name, metric, pattern, last in (
        ("one line in 9,000", METRIC, f"^{METRIC}: ", 0.7421),
        ("every line", "loss", ": loss ", None),
    ):
        awk = f'LC_ALL=C grep "{pattern}" "$1" | awk "{{ print \\$2 }}"'
        expect = last if last is not None else round(2.0 + 8999 / 9000, 4)
        sides = {
            "ours": reader("all", path, f"log:{metric}", env, expect),
            "grep": shell(awk, path, env),
        }
        costs = measure.turns(sides, 1 if last is None else count)
        found.append(_last(f"all values, {name}", costs["ours"], "grep | awk", costs["grep"], factor=1.0))
    return found


def _longer(path: str, env: dict[str, str], count: int, size: int) -> list[Figure]:
    found = []
    for name, kind, each, line, codes in (
        ("last value, absent, a longer name on every line", "last", "", "", (1,)),
        ("all values, one line in 9,000, a longer name on the others", "all", NEEDLE, " | awk '{ print $2 }'", (0,)),
    ):
        make(path, size, each=each, longer=True)
        sides = {
            "ours": reader(kind, path, f"log:{METRIC}", env, 0.7421 if each else None),
            "grep": shell(f'LC_ALL=C grep "^{METRIC}: " "$1"{line}', path, env, codes),
        }
        costs = measure.turns(sides, count)
        yardstick = "grep | awk" if line else "grep"
        found.append(_last(name, costs["ours"], yardstick, costs["grep"], factor=1.0))
    return found


def _last(
    name: str,
    ours: measure.Costs,
    yardstick: str,
    theirs: measure.Costs,
    *,
    factor: float = 0.0,
    limit_ms: float = 0.0,
) -> Figure:
    limit = limit_ms or factor * theirs.wall_ms or None
    note = f"{ours.peak_mib:.0f} MiB" + ("" if ours.peak_mib <= MEMORY_MIB else ", MORE THAN 64")
    return Figure(
        f"1 GB log: {name}",
        ours.wall_ms,
        yardstick=yardstick,
        theirs=theirs.wall_ms,
        limit=limit,
        budget=f"{limit_ms:g} ms" if limit_ms else f"{factor:g} x" if factor else "",
        cpu_ms=ours.cpu_ms,
        best=ours.best_ms,
        note=note,
    )


SHAPES = {
    "near the end": _near_end,
    "at the start": _at_start,
    "absent": _absent,
    "endless": _endless,
    "all": _every,
    "longer names": _longer,
}
