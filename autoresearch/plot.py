"""The progress plot: one point an attempt, the best so far as a line; plain SVG without a library."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from autoresearch.direction import better
from autoresearch.rows import Row

WIDTH, HEIGHT = 900, 420
LEFT, RIGHT, TOP, BOTTOM = 90, 20, 40, 50
COLOURS = {"keep": "#2a7f3f", "discard": "#8a8a8a", "crash": "#c0392b"}


# What XML 1.0 cannot hold, escaped or not.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def escape(text: str) -> str:
    """Return `text` as an XML document may hold it."""
    return html.escape(text if text.isprintable() else _NOT_XML.sub("", text))


def svg(title: str, metric: str, rows: Sequence[Row], direction: str) -> str:
    """Return the plot as an SVG document; what has no valid value stands on the lower edge."""
    points = [(place, row, row.value) for place, row in enumerate(rows, 1)]
    known = [value for _, _, value in points if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    if low == high:
        low, high = low - abs(low or 1) * 0.05, high + abs(high or 1) * 0.05
    scale = _Scale(low, high, max(len(rows), 2))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}"',
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="15">{escape(title)}: {escape(metric)} ({direction})</text>',
        *_grid(scale),
        _best_line(points, direction, scale),
        *(_mark(place, row, value, scale) for place, row, value in points),
        f'<text x="{LEFT}" y="{HEIGHT - 12}">1 to {len(rows)} attempts; line: best kept; x: crash</text>',
        "</svg>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


class _Scale:
    """From (place, value) to the coordinates of the drawing."""

    def __init__(self, low: float, high: float, places: int) -> None:
        self.low, self.high, self.places = low, high, places

    def x(self, place: float) -> float:
        return LEFT + (place - 1) / (self.places - 1) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return TOP + (self.high - value) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM)


def _grid(scale: _Scale) -> list[str]:
    out = []
    for step in range(5):
        value = scale.low + (scale.high - scale.low) * step / 4
        y = scale.y(value)
        out.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#e4e4e4"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:.5g}</text>')
    return out


def _best_line(points: list[tuple[int, Row, float | None]], direction: str, scale: _Scale) -> str:
    best: float | None = None
    path: list[str] = []
    for place, row, value in points:
        if value is not None and row.status == "keep" and (best is None or better(value, best, direction)):
            if best is not None:
                path.append(f"{scale.x(place):.1f},{scale.y(best):.1f}")
            best = value
            path.append(f"{scale.x(place):.1f},{scale.y(value):.1f}")
    if best is None:
        return ""
    path.append(f"{scale.x(len(points)):.1f},{scale.y(best):.1f}")
    return f'<polyline points="{" ".join(path)}" fill="none" stroke="{COLOURS["keep"]}" stroke-width="1.5"/>'


def _mark(place: int, row: Row, value: float | None, scale: _Scale) -> str:
    colour = COLOURS.get(row.status, "#000")
    label = (
        f"<title>{escape(f'{row.id} {row.metric_value if value is not None else row.end_cause} {row.status}')}</title>"
    )
    if value is None:
        x, y = scale.x(place), HEIGHT - BOTTOM
        return f'<path d="M{x - 4:.1f},{y - 4}l8,8m0,-8l-8,8" stroke="{colour}" fill="none">{label}</path>'
    return f'<circle cx="{scale.x(place):.1f}" cy="{scale.y(value):.1f}" r="4" fill="{colour}">{label}</circle>'
