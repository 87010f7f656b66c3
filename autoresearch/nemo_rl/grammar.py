"""Hydra's override grammar, as far as it is needed to write a word and to know a harmless one.

Nothing here imports Hydra: the hot path of an experiment uses this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from autoresearch.errors import Usage

RESERVED = frozenset(("null", "true", "false", "inf", "nan"))
NEVER_QUICK = ("checkpoint_must_save_by", "metric_name", "higher_is_better", "log_dir", "checkpoint_dir")
_BARE = re.compile(r"[A-Za-z/][A-Za-z0-9_./:@+-]*")
_WORD = re.compile(r"(\+\+|\+|~|)([^=\s'\"]+)(?:(=)(.*))?", re.DOTALL)
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")
_PLACE = re.compile(r"\{([a-z_]+)\}")
_TARGET = re.compile(r"(?:\+\+|\+|)[A-Za-z_][A-Za-z0-9_.]*=")


class Word(NamedTuple):
    """One override word in its parts; `value` is None for a `~key`."""

    text: str
    prefix: str  # one of: nothing, `+`, `++`, `~`
    key: str
    value: str | None


def split(text: str) -> Word:
    """Take an override word apart.

    Raises:
        Usage: it has no key or no `=`.
    """
    found = _WORD.fullmatch(text)
    if not found or (found[3] is None and found[1] != "~"):
        raise Usage("OVERRIDES", f"{text!r} is not KEY=VALUE", "write key=value, +key=value, ++key=value or ~key")
    return Word(text, found[1], found[2], found[4])


def quote(value: Any) -> str:
    """Return `value` as the right side of an override word that gives exactly this value back.

    Args:
        value: a string, number, truth value, None, list or mapping. A `${` in a string stays text.

    Raises:
        Usage: the value is `???`, which a config can only read as "not given".
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_key(key)}:{quote(below)}" for key, below in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(quote(below) for below in value) + "]"
    text = str(value)
    if _BARE.fullmatch(text) and text.lower() not in RESERVED:
        return text
    return _quoted(text)


def _key(key: Any) -> str:
    """A mapping's key: Hydra knows no quotes there."""
    text = str(key)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_./-]*", text) and not isinstance(key, int):
        raise Usage("OVERRIDES", f"{text!r} cannot be a key inside a value", "set it in the recipe")
    return text


def _quoted(text: str) -> str:
    if text == "???":
        raise Usage("OVERRIDES", "??? means that a value is missing", "give another value")
    # OmegaConf reads `${` as an interpolation unless a backslash is before it; backslashes before that are halved.
    text = re.sub(r"(\\*)\$\{", lambda found: f"{found[1]}{found[1]}\\${{", text)
    # Hydra halves a run of backslashes before a quote and at the end, and only there.
    text = re.sub(r'(\\*)"', lambda found: f'{found[1]}{found[1]}\\"', text)
    return '"' + re.sub(r"(\\+)\Z", r"\1\1", text) + '"'


def fill(argv: Sequence[str], values: Mapping[str, str], overrides: Iterable[str] = ()) -> list[str]:
    """Put values into a command template: `{recipe} {log_dir} {checkpoint_dir} {artifacts_dir} {run_name} {overrides}`.

    In a word `key=...{x}...` the whole right side is quoted for Hydra after the replacement, so that a path with
    blanks, quotes, `=` or `,` and a name like `1e5` arrive as the text they are. `{overrides}` becomes the words of
    `overrides`, as they are. A placeholder that `values` lacks stays as it is.
    """
    filled: list[str] = []
    for word in argv:
        if word == "{overrides}":
            filled.extend(overrides)
            continue
        target = _TARGET.match(word)
        rest = word[target.end() :] if target else word
        text = _PLACE.sub(lambda found: values.get(found[1], found[0]), rest)
        filled.append(
            f"{target[0]}{quote(text)}" if target and _PLACE.search(rest) else (target[0] if target else "") + text
        )
    return filled


def look_up(values: Any, key: str) -> tuple[bool, Any]:
    """Return whether dotted `key` is there (list items by number), and its value."""
    at = values
    for part in key.split("."):
        if isinstance(at, Mapping) and part in at:
            at = at[part]
        elif isinstance(at, list) and part.isdigit() and int(part) < len(at):
            at = at[int(part)]
        else:
            return False, None
    return True, at


def kinds(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the scalar keys of resolved values, dotted, each with its kind: s text, n number, b truth value, z null.

    Plain enough for a JSON file: an approval keeps it, and `quick` then needs nothing else.
    """
    found: dict[str, str] = {}

    def walk(at: Mapping[str, Any], prefix: str) -> None:
        for name, value in at.items():
            if not isinstance(name, str) or "." in name:
                continue
            if isinstance(value, Mapping):
                walk(value, f"{prefix}{name}.")
            elif not isinstance(value, list):
                found[prefix + name] = kind(value)

    walk(values, "")
    return found


def kind(value: Any) -> str:
    """Return the kind of one resolved value: s, n, b, z, m for a mapping, l for a list."""
    if value is None:
        return "z"
    if isinstance(value, bool):
        return "b"
    if isinstance(value, (int, float)):
        return "n"
    return "m" if isinstance(value, Mapping) else "l" if isinstance(value, (list, tuple)) else "s"


def quick(words: Iterable[str], known: Mapping[str, str]) -> bool:
    """Tell whether all `words` are certainly fine for a recipe whose `kinds` are `known`.

    False means only that `overrides.check`, which takes a third of a second, has to look.
    """
    for text in words:
        key, equals, value = text.partition("=")
        sort = known.get(key)
        if not equals or sort is None or key.endswith(NEVER_QUICK):
            return False
        number, truth = bool(_NUMBER.fullmatch(value)), value in ("true", "false", "True", "False")
        bare = bool(_BARE.fullmatch(value)) and value.lower() not in RESERVED
        if not {"n": number, "b": truth, "s": bare, "z": False}[sort]:
            return False
    return True


def must_save_by(seconds: float) -> str:
    """Return `seconds` as `checkpointing.checkpoint_must_save_by` wants it, `DD:HH:MM:SS`, rounded down.

    Raises:
        Usage: less than a second is left, or more than the field can say.
    """
    if not 1 <= seconds < 8_640_000:
        raise Usage("time limit", f"{seconds:g} s cannot be given to the recipe", "between 1 second and 99 days")
    whole = int(seconds)
    return f"{whole // 86400:02}:{whole // 3600 % 24:02}:{whole // 60 % 60:02}:{whole % 60:02}"
