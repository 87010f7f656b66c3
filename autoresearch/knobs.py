"""The knobs of a call, as bin/ hands them over: AR_NAME in the environment, values byte for byte."""

from __future__ import annotations

import os
import shlex

from autoresearch.errors import Usage

TRUE = ("1", "yes", "true", "on")
FALSE = ("", "0", "no", "false", "off")


def get(name: str) -> str | None:
    """Return the knob's value, or None when it was not given; an empty value stays an empty string."""
    return os.environ.get(f"AR_{name}")


def text(name: str, default: str = "") -> str:
    """Return the knob's value or `default`; an empty value counts as not given."""
    return get(name) or default


def required(name: str, example: str) -> str:
    """Return a knob that must be there.

    Raises:
        Usage: it is missing; a plain variable of that name in the environment is pointed out, not read.
    """
    value = get(name)
    if value:
        return value
    hint = f"write {name}={example}"
    if os.environ.get(name):
        # WSL, conda and others own names such as NAME or PREFIX, so the environment gives knobs only as AR_NAME.
        hint += f" on the command line ({name} is set in your environment, where only AR_{name} is read)"
    raise Usage(name, "it is missing", hint)


def flag(name: str) -> bool:
    """Return whether a yes/no knob was given as yes.

    Raises:
        Usage: the value is neither yes nor no.
    """
    value = text(name).lower()
    if value in TRUE:
        return True
    if value in FALSE:
        return False
    raise Usage(name, f"{value!r} is neither yes nor no", f"write {name}=1 or leave it out")


def number(name: str, default: float, *, least: float = 0.0) -> float:
    """Return a knob that is a plain decimal number of at least `least`.

    Raises:
        Usage: not a finite decimal number, or below `least`.
    """
    raw = get(name)
    return default if raw in (None, "") else parse_number(name, raw or "", least=least)


def parse_number(name: str, raw: str, *, least: float = 0.0) -> float:
    """Return `raw` as a number; strict, since float() also takes `1_0`, `nan` and Arabic digits."""
    import re

    if not re.fullmatch(r"[0-9]+(\.[0-9]*)?|\.[0-9]+", raw, re.ASCII) or not least <= float(raw) < float("inf"):
        fix = f"write {name}={max(least, 1):g}, for example"
        raise Usage(name, f"{raw[:40]!r} is not a number of at least {least:g}", fix)
    return float(raw)


def count(name: str, default: int, *, least: int = 1) -> int:
    """Return a knob that is a whole number of at least `least`.

    Raises:
        Usage: anything else.
    """
    raw = get(name)
    if not raw:
        return default
    if not (raw.isascii() and raw.isdigit() and len(raw) < 19) or int(raw) < least:
        raise Usage(name, f"{raw[:40]!r} is not a whole number of at least {least}", f"write {name}={max(least, 1)}")
    return int(raw)


def words(name: str) -> list[str]:
    """Return a knob split like a shell would, without a shell: quotes group, nothing is expanded.

    Raises:
        Usage: a quote is not closed.
    """
    return split(name, text(name))


def split(name: str, line: str) -> list[str]:
    """Split `line` into words; `name` is what a message calls it."""
    try:
        return shlex.split(line)
    except ValueError as error:
        raise Usage(name, f"{line!r} cannot be split into words ({error})", "close the quote") from None


def is_given(*names: str) -> list[str]:
    """Return those of `names` that were given with a value."""
    return [name for name in names if get(name)]
