"""Runs that prove nothing about an idea: too small to judge, touching what is protected, or a new seed only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from autoresearch.errors import Usage

SMALL = 10  # a tenth of the baseline's steps or batch is where a run stops being a test of its idea


def too_small(run: Mapping[str, float], baseline: Mapping[str, float]) -> str:
    """Return why a run is plainly too small to judge, or an empty text.

    Args:
        run, baseline: sizes by name: `steps` done, and `batch_sizes`.

    Returns:
        The reason for the smoke row. What is unknown of one of them is no ground. A run that stopped early because
        it had reached its goal is not meant: the caller does not ask then.
    """
    for what, here in run.items():
        there = baseline.get(what, 0.0)
        if 0 <= here * SMALL < there:
            return f"too small to judge: {what} {here:g} against the baseline's {there:g}"
    return ""


# The samples of one step, in the names of the field: `batch_size`, `train_global_batch_size`, `--total-batch-size`.
# Not those of a part of a step (micro, per device), which only move work about, nor those of validation.
_BATCH = re.compile(r"(?:(?:train|global|total|effective)_)*(?:batch|bs|batchsize|batch_size)", re.IGNORECASE)
_NO_TRAINING = re.compile(r"(?:val|valid|validation|eval|test|generation|vllm)(?:_.*)?", re.IGNORECASE)
# NeMo-RL's GRPO says it in two numbers (examples/configs/grpo_math_1B.yaml).
_ROLLOUTS = ("num_prompts_per_step", "num_generations_per_prompt")


def batch_sizes(settings: Mapping[str, str]) -> dict[str, float]:
    """Return the sizes of a training step that settings name, by the last part of their key.

    Args:
        settings: values by key, dotted or not: of a recipe, or of a command's words.
    """
    last: dict[str, str] = {}
    for key, value in settings.items():
        *above, name = re.split(r"[./]", key.lstrip("-+~").replace("-", "_"))
        if not any(map(_NO_TRAINING.fullmatch, above)):
            last[name] = value
    found = {key: size for key, value in last.items() if _BATCH.fullmatch(key) and (size := _number(value)) > 0}
    rollouts = [_number(last.get(key, "")) for key in _ROLLOUTS]
    if all(rollouts):
        found[" * ".join(_ROLLOUTS)] = rollouts[0] * rollouts[1]
    return found


def _number(text: str) -> float:
    return float(text) if re.fullmatch(r"[0-9]+(?:\.[0-9]+)?(?:e[0-9]+)?", text, re.ASCII | re.IGNORECASE) else 0.0


def protected_patterns(text: str) -> tuple[str, ...]:
    """Read `PROTECT="eval/ data/*.jsonl"`: paths from the repository's top, separated by blanks.

    A path means the file or everything below the directory. `*` and `?` stay within one part of a path,
    `**` does not. Quotes keep a blank in a path.

    Raises:
        Usage: an absolute path, one that leaves the repository, or a quote that is not closed.
    """
    from shlex import split

    try:
        words = split(text)
    except ValueError as error:
        raise Usage("PROTECT", f"{text!r}: {error}", "close the quote") from None
    found = []
    for word in words:
        parts = [part for part in word.split("/") if part not in ("", ".")]
        if word.startswith("/") or ".." in parts or not parts:
            raise Usage(
                "PROTECT", f"{word!r} is not a path inside the repository", 'write it like PROTECT="eval/ data/"'
            )
        found.append("/".join(parts))
    return tuple(found)


def protected(changed: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """Return the changed paths that are protected, in the order given.

    Args:
        changed: paths from the repository's top, both names of a rename; a changed directory or link above
            a protected path counts as well, for it takes the place of what is protected.
        patterns: from `protected_patterns`.
    """
    shapes = [re.compile(_shape(pattern)) for pattern in patterns]
    return [path for path in changed if any(shape.fullmatch(path) for shape in shapes) or _above(path, patterns)]


def _above(path: str, patterns: Sequence[str]) -> bool:
    return any(pattern.startswith(f"{path.rstrip('/')}/") for pattern in patterns)


def _shape(pattern: str) -> str:
    """Return the regular expression of a pattern and of everything below it."""
    out, place = "", 0
    while place < len(pattern):
        for glob, meaning in (("**/", "(?:.*/)?"), ("**", ".*"), ("*", "[^/]*"), ("?", "[^/]")):
            if pattern.startswith(glob, place):
                out, place = out + meaning, place + len(glob)
                break
        else:
            out, place = out + re.escape(pattern[place]), place + 1
    return rf"(?s:{out}(?:/.*)?)"


_SEED = re.compile(r"(?:.*[._-])?seeds?(?:\.[0-9]+|\[[0-9]+\])?", re.ASCII | re.IGNORECASE)
_SEED_LINE = re.compile(rf"""\s*["']?(?:{_SEED.pattern})["']?\s*[:=]\s*["']?[0-9]+["']?\s*,?\s*(?:#.*)?""", _SEED.flags)
CONFIG = (".yaml", ".yml", ".json", ".toml", ".ini", ".cfg", ".conf")  # where a line may set a seed


def only_seed(overrides: Sequence[str] = (), lines: Iterable[str] = (), other_changes: bool = False) -> bool:
    """Return whether an experiment changes nothing but a random seed: a repeat in disguise.

    Args:
        overrides: the override words, `grpo.seed=1`, `+seed=2`, `--seed=3` or `--seed 3`.
        lines: the lines of config that were added and removed.
        other_changes: anything else changed (code, data, a file that is no config).
    """
    if other_changes:
        return False
    set_by_lines = [_SEED_LINE.fullmatch(line) is not None for line in lines]
    keys = []
    words = iter(overrides)
    for word in words:
        key, given, _ = word.partition("=")
        keys.append(key.lstrip("+~-"))
        if word.startswith("--") and not given:
            next(words, None)  # its value is the next word
    return bool(keys or set_by_lines) and all(set_by_lines) and all(_SEED.fullmatch(key) for key in keys)
