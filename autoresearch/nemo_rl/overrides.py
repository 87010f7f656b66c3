"""Override words tried on the resolved recipe before anything is launched.

NeMo-RL applies them with Hydra's grammar in struct mode (its `parse_hydra_overrides`): an unknown key is an error,
`+key` adds what is not there, `++key` adds or sets, `~key` deletes, the last word for a key wins. The same
functions of Hydra do it here; what they say is said again with the way out.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from difflib import get_close_matches
from typing import Any

from autoresearch.errors import Usage
from autoresearch.nemo_rl.grammar import Word, kind, kinds, look_up, quote, split

_NAME_LIKE = re.compile(r"(?:.*_)?(?:name|project|entity|group|dir|path|file|tokenizer)")
_SAVE_BY = re.compile(r"\d+:\d+:\d+:\d+")
_KIND_NAMES = {"s": "text", "n": "a number", "b": "a truth value", "z": "null", "m": "a mapping", "l": "a list"}


def check(config: Any, words: Sequence[str], *, protected: Collection[str] = ()) -> list[str]:
    """Try `words` on a composed config, as the training will.

    Args:
        config: `Resolved.config`; it is not changed.
        words: override words, in order.
        protected: keys that the tool sets itself (`RecipeFacts.set_keys`); a word for one is refused.

    Returns:
        Warnings: what will be accepted but looks wrong.

    Raises:
        Usage: a word that the training would refuse or misread; the message names the key meant or the quoting.
    """
    config = deepcopy(config)
    notes: list[str] = []
    for text in words:
        word = split(text)
        if word.key in protected:
            why = f"{word.key} is set by autoresearch for every attempt, so that outputs stay out of the checkout"
            raise Usage("OVERRIDES", why, f"leave {text!r} out")
        config = _apply_one(config, word, notes)
    return notes


def apply(config: Any, words: Sequence[str]) -> tuple[Any, tuple[str, ...]]:
    """Return the config with `words` applied, and the keys they set. Raises as `check` does."""
    config = deepcopy(config)
    keys: list[str] = []
    for text in words:
        word = split(text)
        config = _apply_one(config, word, [])
        keys.append(word.key)
    return config, tuple(keys)


def _apply_one(config: Any, word: Word, notes: list[str]) -> Any:
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from autoresearch.nemo_rl.resolve import plain

    parsed = _parse(word)
    values, _ = plain(config)
    there, old = look_up(values, word.key)
    _check_presence(word, there, old, values)
    if word.prefix != "~":
        _check_value(word, there, old, parsed.value(), notes)
    try:
        OmegaConf.set_struct(config, True)
        ConfigLoaderImpl._apply_overrides_to_config(overrides=[parsed], cfg=config)
    except (HydraException, OmegaConfBaseException) as error:
        cause = error.__cause__ or error
        raise Usage("OVERRIDES", f"{word.text!r}: {str(cause).splitlines()[0]}", "correct the word") from None
    return config


def _parse(word: Word) -> Any:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        parsed = OverridesParser.create().parse_override(word.text)
    except HydraException:
        value = word.value or ""
        why = "its value holds an unquoted `=`" if "=" in value else "its value is not one of Hydra's grammar"
        raise Usage("OVERRIDES", f"{word.text!r}: {why}", _quoting(word)) from None
    if parsed.is_sweep_override():
        why = "an unquoted `,` asks Hydra for several runs"
        raise Usage("OVERRIDES", f"{word.text!r}: {why}", f"{_quoting(word)}; a list is [a,b]")
    return parsed


def _quoting(word: Word) -> str:
    value = (word.value or "").strip()
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        value = value[1:-1]
    return _written(word, value)


def _written(word: Word, value: str) -> str:
    """The advice how to write a value so that it arrives: the knob takes one layer of quotes off, Hydra another."""
    text = f"{word.prefix}{word.key}={quote(value)}"
    return f"write {shlex.quote(text)}, with both kinds of quotes" if '"' in text else f"write {text}"


def _check_presence(word: Word, there: bool, old: Any, values: Mapping[str, Any]) -> None:
    if word.prefix == "+" and there and old is not None:  # Hydra takes null for a key that is not there yet
        why = f"{word.key} is in the recipe already, `+` only adds"
        raise Usage("OVERRIDES", f"{word.text!r}: {why}", f"write {word.text[1:]}")
    if word.prefix in ("", "~") and not there:
        close = closest(word.key, values)
        way = f"did you mean {' or '.join(close)}" if close else "look it up with `make recipe`"
        add = "" if word.prefix else f"; to add a new key write +{word.text}"
        raise Usage("OVERRIDES", f"{word.text!r}: the recipe has no key {word.key}", f"{way}{add}")


def closest(key: str, values: Mapping[str, Any]) -> list[str]:
    """Return up to three keys of the resolved values that `key` may have meant, the likeliest first."""
    known = list(_all_keys(values))
    leaf = key.rsplit(".", 1)[-1]
    same_leaf = [name for name in known if name.rsplit(".", 1)[-1] == leaf]
    near = get_close_matches(key, known, 3, 0.8)
    # The last part right and its place wrong is the commonest slip, so those are ranked by their whole names.
    ranked = get_close_matches(key, same_leaf, 3, 0.0)
    leaves = get_close_matches(leaf, {name.rsplit(".", 1)[-1] for name in known}, 1, 0.75)
    elsewhere = [name for name in known if leaves and name.rsplit(".", 1)[-1] == leaves[0]]
    return list(dict.fromkeys([*near, *ranked, *get_close_matches(key, elsewhere, 3, 0.0)]))[:3]


def _all_keys(values: Mapping[str, Any], prefix: str = "") -> list[str]:
    found: list[str] = []
    for name, value in values.items():
        found.append(f"{prefix}{name}")
        if isinstance(value, Mapping):
            found.extend(_all_keys(value, f"{prefix}{name}."))
    return found


def _check_value(word: Word, there: bool, old: Any, new: Any, notes: list[str]) -> None:
    leaf = word.key.rsplit(".", 1)[-1]
    was, becomes = kind(old), _kind(new)
    if word.key == "logger.wandb.dir":
        raise Usage("OVERRIDES", f"{word.text!r}: NeMo-RL gives wandb.init a `dir` of its own", "leave it out")
    if _NAME_LIKE.fullmatch(leaf) and was in "sz" and becomes in "nb":
        why = f"{word.value} would arrive as {_KIND_NAMES[becomes]} ({new!r}), not as a name"
        raise Usage("OVERRIDES", f"{word.text!r}: {why}", _written(word, str(word.value)))
    if leaf == "checkpoint_must_save_by" and new is not None and not _SAVE_BY.fullmatch(str(new)):
        raise Usage("OVERRIDES", f"{word.text!r} is no time", "write DD:HH:MM:SS, as in 00:01:30:00")
    if not there:
        return
    if was == "m" and becomes not in "mz":
        some = ", ".join(list(kinds(old))[:4]) or "nothing yet"
        raise Usage("OVERRIDES", f"{word.text!r}: {word.key} is a section", f"name a key in it: {some}")
    if leaf in ("metric_name", "higher_is_better"):
        notes.append(f"{word.text}: another metric than the campaign's; the verdict still reads the campaign's")
    elif {was, becomes} in ({"n", "s"}, {"n", "b"}, {"b", "s"}, {"l", "s"}, {"l", "n"}):
        notes.append(f"{word.text}: {word.key} is {_KIND_NAMES[was]} in the recipe, this is {_KIND_NAMES[becomes]}")


def _kind(value: Any) -> str:
    """The kind of a value as Hydra's parser returns it; an interpolation may be anything."""
    text = getattr(value, "text", value)  # QuotedString
    return "?" if isinstance(text, str) and "${" in text else kind(text)
