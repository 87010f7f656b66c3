"""plot.py: a valid drawing of anything, with the invalid values on the lower edge."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st

from autoresearch import plot
from tests.campaigns import row

VALUES = st.one_of(st.none(), st.floats(-1e150, 1e150, allow_subnormal=False))
NAMES = st.text(st.characters(codec="utf-8"), max_size=20)
SVG = "{http://www.w3.org/2000/svg}"


@given(st.lists(st.tuples(VALUES, st.sampled_from(["keep", "discard", "crash", ""]))), st.sampled_from(["max", "min"]))
@settings(max_examples=80)
def test_every_attempt_has_a_mark_inside_the_drawing(points: list[tuple[float | None, str]], direction: str) -> None:
    rows = [row(f"e{place}", value, status) for place, (value, status) in enumerate(points)]
    tree = ElementTree.fromstring(plot.svg("c", "m", rows, direction))
    circles = tree.findall(f"{SVG}circle")
    assert len(circles) == sum(value is not None for value, _ in points)
    assert len(tree.findall(f"{SVG}path")) == sum(value is None for value, _ in points)
    for circle in circles:
        assert 0 <= float(circle.get("cx", "nan")) <= plot.WIDTH
        assert 0 <= float(circle.get("cy", "nan")) <= plot.HEIGHT


@given(NAMES, NAMES, NAMES)
@settings(max_examples=80)
def test_any_text_gives_valid_xml(title: str, metric: str, name: str) -> None:
    ElementTree.fromstring(plot.svg(title, metric, [row("x", 0.5)._replace(experiment=name)], "max"))


def test_the_line_climbs_through_the_kept_bests() -> None:
    rows = [row("baseline", 0.5), row("a", 0.4), row("b", 0.9, "discard"), row("c", 0.7), row("d", None)]
    found = re.search(r'<polyline points="([^"]+)"', plot.svg("c", "m", rows, "max"))
    assert found
    heights = [float(point.split(",")[1]) for point in found[1].split()]
    assert heights == sorted(heights, reverse=True)
    assert len(set(heights)) == 2
    assert "<polyline" not in plot.svg("c", "m", [row("d", None)], "max")
