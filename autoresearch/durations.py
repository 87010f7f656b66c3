"""Lengths of time: the one place that reads and writes them (`90m`, `1h30m`, `2d`, `1時間半`)."""

from __future__ import annotations

import re

from autoresearch.errors import Usage

NUMBER = r"[0-9]+(?:\.[0-9]+)?"
UNITS = (  # largest first: a length names its units in this order, each at most once
    (604800.0, r"weeks?|w|週間"),
    (86400.0, r"days?|d|日間?"),
    (3600.0, r"hours?|hrs?|h|時間"),
    (60.0, r"minutes?|mins?|m|分間?"),
    (1.0, r"seconds?|secs?|s|秒間?"),
)
_UNIT = "|".join(f"(?:{pattern})" for _, pattern in UNITS)
# One length of time inside a longer text. A letter may not follow: `10m` is not the start of `10min`.
PATTERN = rf"{NUMBER}\s*(?:{_UNIT})(?![A-Za-z])(?:\s*{NUMBER}\s*(?:{_UNIT})(?![A-Za-z]))*半?"
LONGEST_S = 10 * 365 * 86400.0
FLAGS = re.IGNORECASE | re.ASCII
_EXAMPLES = "write it like 90m, 1h30m, 2d or 1時間30分"

# Full-width forms (`１０ｈ`, `＞＝`, the ideographic blank) become their ASCII twins one for one, so that places in
# the text stay where they are. Other scripts' digits are refused: `\d` would take them and nobody would notice.
_NARROW = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: 0x20, 0x2212: 0x2D}


def narrow(text: str) -> str:
    """Return `text` with full-width ASCII made half-width; its length does not change."""
    return text if text.isascii() else text.translate(_NARROW)


def read(text: str) -> tuple[float, str]:
    """Read a length that `PATTERN` matched.

    Args:
        text: a narrow text that `PATTERN` matches as a whole.

    Returns:
        Seconds and an empty text, or 0.0 and what is wrong with it.
    """
    total, last, size = 0.0, -1, 1.0
    for number, unit in re.findall(rf"({NUMBER})\s*({_UNIT})", text, FLAGS):
        place = next(i for i, (_, names) in enumerate(UNITS) if re.fullmatch(names, unit, FLAGS))
        if place <= last:
            return 0.0, "units go from large to small, each once"
        last, size = place, UNITS[place][0]
        total += float(number) * size
    if text.endswith("半"):
        total += size / 2
    if total > LONGEST_S:
        return 0.0, "longer than ten years"
    return total, ""


def parse(text: str) -> float:
    """Read a length of time: `90m`, `1h30m`, `2d`, `45 s`, `1.5 hours`, `1時間30分`, `1時間半`, or `0`.

    Returns:
        Seconds, zero or more.

    Raises:
        Usage: no unit, an unknown one, units out of order, a sign, or more than ten years.
    """
    given = narrow(text).strip()
    if given == "0":
        return 0.0
    if re.fullmatch(NUMBER, given, FLAGS):
        raise Usage("duration", f"{text!r} has no unit", _EXAMPLES)
    if not re.fullmatch(PATTERN, given, FLAGS):
        raise Usage("duration", f"{text!r} is not understood", _EXAMPLES)
    seconds, problem = read(given)
    if problem:
        raise Usage("duration", f"{text!r}: {problem}", _EXAMPLES)
    return seconds


def format(seconds: float, parts: int = 4) -> str:
    """Write a length of time so that `parse` reads it back: 22320.0 is `6h12m`.

    Args:
        seconds: may be negative (`-5m`). Under a minute tenths are kept, above it whole seconds.
        parts: how many units to show, largest first; the rest is cut off, never rounded up, so that two
            parts of a remaining time do not promise more than there is. Days appear from 48 hours on.
    """
    if seconds < 0:
        return f"-{format(-seconds, parts)}"
    if seconds < 60:
        shown = int(seconds * 10) / 10
        return f"{shown:g}s"
    left = int(seconds) if parts < 4 else int(seconds + 0.5)
    found = []
    for size, letter in ((86400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        if letter == "d" and left < 172800:
            continue
        count, left = divmod(left, size)
        found.append((count, letter))
    while found[0][0] == 0:
        found.pop(0)
    return "".join(f"{count}{letter}" for count, letter in found[:parts] if count)
