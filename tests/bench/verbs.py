"""The verbs that only read, with 10 to 10,000 rows, against awk on the same ledger."""

from __future__ import annotations

from tests.bench import measure, worlds
from tests.bench.measure import Cost
from tests.bench.results import Figure
from tests.bench.worlds import World

AWK = r"""BEGIN { FS = "\t" }
NR > 1 { n[$14]++; if ($14 == "keep" && $7 > best) { best = $7; name = $16 } last = $16 }
END { print n["keep"], n["discard"], n["crash"], name, best, last }"""
LIMITS = {"status": {10: 60.0, 1000: 60.0, 10000: 120.0}, "show-env": {10: 60.0, 1000: 60.0, 10000: 60.0}}
LIMITS["summarize"] = {10000: 300.0}


def figures(place: str, count: int) -> list[Figure]:
    """Measure every reading verb at every number of rows."""
    found = []
    for rows in (10, 1000, 10000):
        measure.said(f"verbs that read, {rows} rows")
        world = worlds.campaign(f"{place}/rows-{rows}", 50)
        worlds.record(world, rows - 1)
        found += at(world, rows, count)
    return found


def at(world: World, rows: int, count: int) -> list[Figure]:
    """Measure at one number of rows."""

    def awk() -> Cost:
        return measure.command(["awk", AWK, world.ledger], world.env)

    sides = {
        "awk": awk,
        "status": lambda: world.verb("status"),
        "show-env": lambda: world.verb("show-env"),
        "show": lambda: world.verb("show", "NAME=baseline"),
        "summarize": lambda: world.verb("summarize"),
    }
    found = []
    for name in list(sides):
        try:
            sides[name]()
        except measure.Failed as failure:
            found.append(Figure(f"{name}, {rows:,} rows", None, note=str(failure)[:60]))
            del sides[name]
    costs = measure.turns(sides, count)
    for name, cost in costs.items():
        if name == "awk":
            continue
        limit = LIMITS.get(name, {}).get(rows)
        found.append(
            Figure(
                f"{name.removeprefix('show-')}, {rows:,} rows",
                cost.wall_ms,
                yardstick="awk",
                theirs=costs["awk"].wall_ms,
                limit=limit,
                budget=f"{limit:g} ms" if limit else "",
                cpu_ms=cost.cpu_ms,
                best=cost.best_ms,
            )
        )
    return found
