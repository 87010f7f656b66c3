"""The command of a run: the plan's line as words, its placeholders replaced; never a shell."""

from __future__ import annotations

import os
import re
import shlex

from autoresearch import knobs, paths
from autoresearch.errors import Refused, Usage

PLACEHOLDERS = ("recipe", "log_dir", "checkpoint_dir", "artifacts_dir", "overrides", "seed", "run_name")
_PLACE = re.compile(r"\{(" + "|".join(PLACEHOLDERS) + r")\}")


def check(line: str) -> list[str]:
    """Return the words of a CMD line.

    Raises:
        Usage: an open quote, no words, or `{overrides}` inside a longer word.
    """
    words = knobs.split("CMD", line)
    if not words:
        raise Usage("CMD", "it is empty", "CMD='python train.py --config {recipe} {overrides}'")
    for word in words:
        if "{overrides}" in word and word != "{overrides}":
            raise Usage("CMD", f"{word!r}: {{overrides}} must be a word of its own", "put blanks around it")
    return words


def values(recipe: str, attempt: paths.Attempt, seed: int, run_name: str) -> dict[str, str]:
    """Return what the placeholders of one run stand for.

    Args:
        recipe: path of the recipe relative to the tree.
        attempt: directories of the attempt.
        seed: a number that differs from one repeat to the next.
        run_name: unique and readable, for W&B and others.
    """
    return {
        "recipe": recipe,
        "log_dir": attempt.logs,
        "checkpoint_dir": attempt.checkpoints,
        "artifacts_dir": attempt.artifacts,
        "seed": str(seed),
        "run_name": run_name,
    }


def build(line: str, values: dict[str, str], own: list[str], overrides: list[str]) -> list[str]:
    """Return the argv of one run.

    Args:
        line: the plan's CMD.
        values: what the placeholders stand for.
        own: words of ours for the recipe, ready as they are; they come before the overrides.
        overrides: words that take the place of `{overrides}`, else go to the end.
    """
    words = knobs.split("CMD", line)
    behind = own + [_fill(word, values) for word in overrides]
    argv: list[str] = []
    for word in words:
        if word == "{overrides}":
            argv += behind
        else:
            argv.append(_fill(word, values))
    return argv if "{overrides}" in words else argv + behind


def _fill(word: str, values: dict[str, str]) -> str:
    return _PLACE.sub(lambda match: values.get(match[1], match[0]), word)


def same_seed(line: str) -> str:
    """Return a remark for runs of CMD that are repeated with one seed: their spread is less than the noise."""
    if "{seed}" in line:
        return ""
    return "the command has no {seed}: runs that are repeated may all give the same number, and show no noise"


def show(argv: list[str]) -> str:
    """Return the command as one line that a shell would split into the same words."""
    return shlex.join(argv)


def settings(line: str) -> dict[str, str]:
    """Return what the words of a command set, the last one counting: `key=value`, `--key=value`, `--key value`.

    Args:
        line: a command as `show` gives it; what is no such line sets nothing.
    """
    try:
        words = shlex.split(line)
    except ValueError:
        return {}
    found: dict[str, str] = {}
    for word, following in zip(words, [*words[1:], ""], strict=True):
        key, given, value = word.partition("=")
        if given or key.startswith("--"):
            found[key.lstrip("-+~")] = value if given else following
    return found


def script(argv: list[str], tree: str, exports: dict[str, str]) -> str:
    """Return a script that repeats the run by hand, without secrets; it lies beside the logs."""
    lines = [
        "#!/usr/bin/env bash",
        "# The exact command of this run, to read or to repeat by hand; secrets not included.",
    ]
    lines += [f"export {key}={shlex.quote(value)}" for key, value in sorted(exports.items())]
    return "\n".join([*lines, f"cd -- {shlex.quote(tree)} || exit", f"exec {shlex.join(argv)}", ""])


def program(argv: list[str], tree: str = "") -> str:
    """Return the program a command starts on this machine, with PATH as it is now.

    Args:
        argv: the command.
        tree: what a relative path with a slash starts from; empty: such a one is taken as it is.

    Raises:
        Refused: there is no such program, or it may not be executed.
    """
    name, path = argv[0], os.environ.get("PATH", os.defpath)
    if "/" in name and not os.path.isabs(name) and not tree:
        return name
    folders = [tree] if "/" in name else path.split(os.pathsep)
    for folder in folders:
        found = os.path.join(folder or os.curdir, name)  # an empty entry of PATH is the caller's directory
        if os.path.isfile(found) and os.access(found, os.X_OK):
            return found
    if "/" in name and os.path.isfile(found):
        fix = "chmod +x it and commit that, or name what reads it: CMD='python3 ...'"
        raise Refused("CMD", f"{name!r} is not executable", fix)
    where = tree or "this machine" if "/" in name else f"PATH ({path})"
    fix = "install it, or activate its environment first (cron: name its folder in PATH), or give its path in CMD"
    if "=" in name or name in ("cd", "export", "source"):
        fix = "no shell reads CMD: start a script of the repository that does it"
    raise Refused("CMD", f"there is no program {name!r} on {where}", fix)
