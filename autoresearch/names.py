"""The one place where a name is judged: campaigns, experiments, branch prefixes."""

from __future__ import annotations

import re

from autoresearch.errors import Usage

# Safe as a directory on any disk (also case-blind ones), a part of a branch, a job name, a shell word.
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)
# `results.tsv` is the ledger's name on scratch (LEDGER=scratch), beside the experiments' directories.
RESERVED = ("baseline", "best", "results.tsv")


def check(kind: str, name: str) -> str:
    """Return `name` when it can be a campaign or an experiment; `kind` is the knob it came from.

    Raises:
        Usage: git, a file system or a scheduler would stumble over it.
    """
    why = _fault(name)
    if why:
        raise Usage(
            kind, f"{name!r} {why}", "use a-z, 0-9, '.', '_' and '-', at most 64, starting with a letter or digit"
        )
    return name


def check_experiment(name: str) -> str:
    """Return `name` when a new idea may be called so; `baseline` and `best` mean something else.

    Raises:
        Usage: not a name, reserved, or of the form `name.2` or `name.smoke-1`, which means an attempt.
    """
    check("NAME", name)
    if name in RESERVED:
        raise Usage("NAME", f"{name!r} has a meaning of its own", "choose another name, or: make baseline")
    if re.search(r"\.(smoke-)?[0-9]+$", name):
        raise Usage("NAME", f"{name!r} reads like an attempt number", "end the name with a letter")
    return name


def check_prefix(prefix: str) -> str:
    """Return a branch prefix of one or more parts, each a safe name (upper case allowed, as in user names).

    Raises:
        Usage: a part that git or a file system would not take.
    """
    parts = prefix.split("/")
    for part in parts:
        why = _fault(part.lower())
        if why:
            raise Usage(
                "PREFIX", f"{prefix!r}: the part {part!r} {why}", "for example PREFIX=autoresearch/2026-03-24-dapo"
            )
    if len(prefix) > 150:
        raise Usage("PREFIX", "it is longer than 150 characters", "choose a shorter one")
    return prefix


def _fault(name: str) -> str:
    if not _NAME.fullmatch(name):
        return "is not a name"
    if ".." in name or name.endswith((".", ".lock")):
        return "would be refused by git"
    return ""


def experiment_of(attempt: str) -> str:
    """Return the experiment of an attempt's id."""
    return re.sub(r"\.(smoke-)?[0-9]+$", "", attempt)


def attempt_id(experiment: str, attempt: int, smoke: bool = False) -> str:
    """Return the id of an attempt: `NAME` for the first, `NAME.n` for a later one, `NAME.smoke-n` for plumbing."""
    if smoke:
        return f"{experiment}.smoke-{attempt}"
    return experiment if attempt == 1 else f"{experiment}.{attempt}"
