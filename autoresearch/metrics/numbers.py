"""Numbers in text: a strict grammar, what may follow a number, and the exact short form that the ledger writes.

`float()` alone takes `1_000`, full-width digits and blanks, and turns `1e400` into infinity without a word; so a text
is matched first, converted after, and what stands right behind it decides whether it was the whole number.
"""

from __future__ import annotations

import math
import re
from typing import Any, AnyStr, Generic, NamedTuple, cast

from autoresearch.errors import Usage


class _Later(Generic[AnyStr]):
    def __init__(self, text: AnyStr, flags: int) -> None:
        self._text: AnyStr = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(self._text, self._flags)
        for one in ("match", "fullmatch", "search", "finditer", "split", "sub", "pattern"):
            setattr(self, one, getattr(compiled, one))
        return getattr(compiled, name)


def later(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """A pattern that is compiled when it is first used: those of a reader take 4 ms, and a log may need none."""
    return cast("re.Pattern[AnyStr]", _Later(text, flags))


NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
# nan and inf as C, Python, Java, JavaScript and the old Microsoft runtime print them.
NONFINITE = r"[+-]?(?:[0-9]\.\#[A-Za-z]+[0-9]*|(?i:nan)(?:\([A-Za-z0-9]{0,12}\))?|(?i:inf(?:inity)?))(?![0-9A-Za-z_])"
_WHOLE = later(rf"({NUMBER})|({NONFINITE})", re.ASCII)
EITHER = rf"(?:{NONFINITE}|{NUMBER})"  # `1.#INF` begins like a number
_GROUPED = later(r"[+-]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?", re.ASCII)
_PLAIN = later(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", re.ASCII)
_TIME = r"(?:[nuµm]?s|secs?|seconds?|msecs?|mins?|minutes?|hours?|hrs?|h|days?)"
# After a blank only these words are units; any other word may be the next name of the line, and so may these where a
# number follows, unless a time goes on with it (`2 minutes 30 seconds`).
UNIT_WORD = later(
    rf"[ \t](?P<unit>{_TIME}(?=[ \t]+[0-9][0-9.]*(?:[ \t]*(?:{_TIME}|m)(?!\w)|:[0-9]))|"
    rf"(?:(?:{_TIME}|[kKMGTB]|[kKMGT]i?[Bb]|bytes|[KMGT]?bps|tokens?|toks?|samples?|percent|pct|fps|[kKMG]?Hz|k?Wh?|dB|"
    r"°[CF]|thousand|million|billion|trillion|[KMGT]?FLOPS?)(?:/\w+)?|[A-Za-z]{1,12}/(?:s|sec|second|min)[^\s:=]*)"
    r"(?![\w/])(?![ \t]*[:=]|[ \t]+[-+.]?[0-9]))",
)
_UNIT_HERE = later(r"[^\W\d_]\S{0,15}|[µ°]\S{0,15}")
_MARKS = ("%", "％")
_RATIO = later(r"[ \t]*/[ \t]*\.?[0-9]|[ \t]+(?:out[ \t]+)?of[ \t]+[0-9]")
_POWER = later(r"[ \t]?[x×·*][ \t]?10(?:\^|\*\*|[⁰¹²³⁴-⁹⁻])")
DECLARABLE = ("percent", "fraction", "thousands")


class Parsed(NamedTuple):
    """A number in text: its value (nan and inf included) or the fault that forbids to take it."""

    value: float | None
    text: str
    fault: str = ""


def check_options(options: tuple[str, ...]) -> None:
    """Refuse a declared reading of text that does not exist.

    Args:
        options: `percent` (`45.6%` is 45.6), `fraction` (`45.6%` is 0.456), `thousands` (`1,234` is 1234) and
            `unit:NAME` (`12ms` is 12 where the unit is exactly NAME).

    Raises:
        Usage: for any other word, or for `percent` and `fraction` together.
    """
    for option in options:
        if option not in DECLARABLE and not (option.startswith("unit:") and option != "unit:"):
            raise Usage("metric option", f"{option!r} is not known", f"use {', '.join(DECLARABLE)} or unit:NAME")
    if "percent" in options and "fraction" in options:
        raise Usage("metric option", "percent and fraction exclude each other", "choose one")


def strict(text: str) -> float:
    """The number that `text` is, as a whole; nan and inf in any spelling are numbers here.

    Raises:
        ValueError: when the text is anything else, be it only by a blank, an underscore or a unit.
    """
    match = _WHOLE.fullmatch(text)
    if match is None:
        raise ValueError(f"not a number: {text[:40]!r}")
    return float(text) if match.group(1) is not None else nonfinite(text)


def nonfinite(text: str) -> float:
    """nan or a signed infinity from any of its spellings (`NaN`, `-nan(ind)`, `1.#INF`, `Infinity`)."""
    low = text.lower()
    if "inf" not in low:
        return math.nan
    return -math.inf if low.startswith("-") else math.inf


def follow(text: str, after: str, options: tuple[str, ...] = (), *, free: bool = False) -> Parsed:
    """Judge a number by what stands behind it.

    Args:
        text: what matched `NUMBER` or `NONFINITE`.
        after: the next 40 characters or so of the same line.
        options: the readings that were declared, see `check_options`.
        free: the user's own pattern chose the end, so a percent sign or unit behind it is meant to be dropped.

    Returns:
        The value and its text, or the fault (`unit: ...`, `percent: ...`, `thousands: ...`, `ratio: ...`,
        `part of a number: ...`).
    """
    if _WHOLE.fullmatch(text) is None:
        return Parsed(None, text, f"not a number: {text[:40]!r}")
    if after[:1] == "," and after[1:2].isdigit():
        return _grouped(text, after, options)
    fault = _part(text, after) or ("" if free else _ratio(text, after))
    if fault:
        return Parsed(None, text, fault)
    mark = after.lstrip(" ")[:1]
    if mark in _MARKS and mark:
        return Parsed(None, text, _percent_fault(text)) if not free and not _scaled(options) else _scale(text, options)
    if _scaled(options) and not free and math.isfinite(strict(text)):
        return Parsed(None, text, f"percent: `{text}` has no percent sign, though one was declared")
    declared = [option[5:] for option in options if option.startswith("unit:")]
    unit = "" if free else _unit(after, declared)
    if unit and unit not in declared:
        return Parsed(
            None,
            text,
            f"unit: `{text}{after[: after.find(unit)]}{unit}` carries a unit; METRIC_OPTIONS=unit:{unit} drops it",
        )
    if declared and not unit and not free and math.isfinite(strict(text)):
        return Parsed(None, text, f"unit: `{text}` has no unit, though {declared[0]} was declared")
    return Parsed(strict(text), text)


def _part(text: str, after: str) -> str:
    one, two = after[:1], after[1:2]
    if one == "/" and (two.isdigit() or two == "."):
        return _ratio(text, after)
    if text in ("0", "+0", "-0") and one in ("x", "X", "b", "o") and two.isalnum():
        one = two = "0"
    glued = one.isdigit() or one == "_" or (one in ".:-+*^~'’×·" and one != "" and two.isdigit())
    glued = glued or one == "…" or _POWER.match(after) is not None  # a table that was too narrow cuts its cells so
    if glued or (one in "eE" and one != "" and (two.isdigit() or (two in "+-" and after[2:3].isdigit()))):
        return f"part of a number: `{text}` of `{(text + after).split()[0][:60]}`"
    return ""


def _ratio(text: str, after: str) -> str:
    match = _RATIO.match(after)
    if match is None:
        return ""
    return f"ratio: `{text}{after.split(',')[0][:12].rstrip()}` is a ratio or a count, not one number"


def _grouped(text: str, after: str, options: tuple[str, ...]) -> Parsed:
    match = _GROUPED.match(text + after)
    whole = (text + after).split()[0][:60]
    if match is None or (text + after)[match.end() : match.end() + 1] in tuple("0123456789_,"):
        return Parsed(None, text, f"part of a number: `{text}` of `{whole}`")
    if "thousands" not in options:
        return Parsed(
            None, text, f"thousands: `{match.group()}` holds separators; METRIC_OPTIONS=thousands if it is one number"
        )
    bare = match.group().replace(",", "")
    return follow(bare, (text + after)[match.end() :], options)


def _scaled(options: tuple[str, ...]) -> bool:
    return "percent" in options or "fraction" in options


def _percent_fault(text: str) -> str:
    shown = _scale(text, ("fraction",)).text
    return f"percent: `{text}%` carries a percent sign; METRIC_OPTIONS=percent ({text}) or fraction ({shown})"


def _scale(text: str, options: tuple[str, ...]) -> Parsed:
    if "fraction" not in options or not math.isfinite(strict(text)):
        return Parsed(strict(text), text)
    mantissa, _, exponent = text.lower().partition("e")
    # The shift is made in the decimal text: 45.6 / 100 is not the float nearest to 0.456 for every number.
    value = float(f"{mantissa}e{int(exponent or 0) - 2}")
    return Parsed(value, render(value))


def _unit(after: str, declared: list[str]) -> str:
    match = _UNIT_HERE.match(after)
    if match is not None:
        return re.split(r"[,;:()\[\]{}|\"'\x1b]", match.group())[0]
    for unit in declared:
        if re.match(rf"[ \t]{re.escape(unit)}(?![\w/]|[ \t]*[:=])", after):
            return unit
    word = UNIT_WORD.match(after)
    return word.group("unit") if word else ""


def render(value: float) -> str:
    """The exact and short text of a number: `0.7421`, `6.05e-06`, `77`; reading it back gives the same float."""
    text = repr(float(value))
    return text[:-2] if text.endswith(".0") else text


def keep(text: str, value: float) -> str:
    """The text as the log printed it where it is short and plain, else `render(value)`."""
    return text if len(text) <= 24 and _PLAIN.fullmatch(text) else render(value)


def shortest_single(value: float) -> float:
    """The shortest decimal that a single-precision number stands for: 0.699999988079071 gives 0.7.

    TensorBoard stores 32 bits. The number that was logged is nearer to the short decimal, and a target such as
    `>= 0.7` must not be missed for the rounding of the store.
    """
    import struct

    if not math.isfinite(value):
        return value
    try:
        bits = struct.pack("<f", value)
        if struct.unpack("<f", bits)[0] != value:
            return value
    except OverflowError:
        return value
    for digits in range(6, 10):
        short = float(f"{value:.{digits}g}")
        try:
            if struct.pack("<f", short) == bits:
                return short
        except OverflowError:
            continue
    return value
