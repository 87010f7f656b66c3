"""What an experiment adds to its training, against the same experiment done by hand in shell."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from tests.bench import measure, worlds
from tests.bench.measure import Cost
from tests.bench.results import Figure
from tests.bench.worlds import World

# Branch, commit, run, grep, append: what people do without a tool.
BARE = """set -e
git checkout -q -b "bare/$1"
git commit -q -a -m "part: change $1"
echo 'val_accuracy: 0.5' >run.log 2>&1
value=$(grep -o 'val_accuracy: .*' run.log | tail -n 1 | cut -d ' ' -f 2)
printf '%s\\t%s\\t%s\\n' "$(git rev-parse HEAD)" "$value" discard >>results.tsv
"""


def ours(world: World) -> Callable[[], Cost]:
    """Return what makes one new idea with an edit of one file."""
    count = [0]

    def one() -> Cost:
        count[0] += 1
        edit(world.repository, count[0])
        return world.verb(
            "experiment", f"NAME=new-{count[0]}", "FILES=settings.py", f"HYPOTHESIS=part: change {count[0]}"
        )

    return one


def bare(place: str, files: int) -> Callable[[], Cost]:
    """Return what does the same by hand in a repository of its own."""
    env = worlds.environment(os.path.join(place, "home"))
    repository = os.path.join(place, "repository")
    os.makedirs(repository)
    worlds.generate(repository, files, env)
    with open(os.path.join(repository, ".git", "info", "exclude"), "a", encoding="utf-8") as file:
        file.write("/run.log\n/results.tsv\n")
    count = [0]

    def one() -> Cost:
        count[0] += 1
        edit(repository, count[0])
        return measure.command(["bash", "-c", BARE, "bare", f"new-{count[0]}"], env, cwd=repository)

    return one


def edit(repository: str, number: int) -> None:
    """Change one file, as the person with the idea does; it takes part in no measured time."""
    with open(os.path.join(repository, "settings.py"), "w", encoding="utf-8") as file:
        file.write(f"rate = 0.2{number}  # {time.monotonic_ns()}\n")


def figures(place: str, files: int, factor: float, recorded: tuple[int, ...], count: int) -> list[Figure]:
    """Measure at one size of repository: with 1 and with more ideas recorded, and without .env, in the same turns.

    Args:
        place: an empty directory.
        files: the size.
        factor: how many times the same by hand it may cost.
        recorded: numbers of ideas besides 1.
        count: turns.
    """
    measure.said(f"experiments, {files} files")
    sides: dict[str, Callable[[], Cost]] = {"by hand": bare(f"{place}/bare{files}", files)}
    for ideas in (1, *recorded):
        world = worlds.campaign(f"{place}/{files}-{ideas}", files)
        worlds.record(world, ideas, directories=False)  # an experiment looks at no other's output
        sides[f"{ideas:,} ideas recorded"] = ours(world)
    sides["no .env"] = ours(worlds.campaign(f"{place}/{files}-plain", files, dotenv=False))
    costs = measure.turns(sides, count)
    hand, first = costs.pop("by hand"), costs["1 ideas recorded"].wall_ms
    found = []
    for name, cost in costs.items():
        of_hand = name in ("1 ideas recorded", "no .env")
        found.append(
            Figure(
                f"experiment, {files:,} files, {name.replace('1 ideas', '1 idea')}",
                cost.wall_ms,
                yardstick="by hand" if of_hand else "1 idea recorded",
                theirs=hand.wall_ms if of_hand else first,
                limit=factor * hand.wall_ms if of_hand else 1.5 * first,
                budget=f"{factor:g} x" if of_hand else "1.5 x",
                cpu_ms=cost.cpu_ms,
                best=cost.best_ms,
                note=f"by hand: cpu {hand.cpu_ms:.0f} ms, best {hand.best_ms:.0f}" if of_hand else "",
            )
        )
    return found
