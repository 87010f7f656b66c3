"""What a campaign takes from its recipe; the facts themselves are found in autoresearch/nemo_rl."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from autoresearch import clock, files, knobs, paths
from autoresearch.campaign import Campaign
from autoresearch.errors import AutoresearchError, Usage
from autoresearch.plan import Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from autoresearch.nemo_rl.facts import RecipeFacts

# What is left of a cap for the last save, beside set-up.
SAVE_S, SAVE_SHARE = 60.0, 0.1


def inspect(repository: str, recipe: str, scratch: str = "") -> RecipeFacts:
    """Return all that a recipe says, read with the environment a run would have."""
    from autoresearch.nemo_rl import facts

    env = dict(os.environ)
    root = paths.cache_root(scratch) if scratch else None
    if root:
        env |= paths.cache_exports(root)
    return facts.inspect(repository, recipe, env=env, cache_root=root)


def into(made: Plan, *, guess_command: bool) -> Plan:
    """Return the plan with what its recipe says: command, metric, direction, limits, GPUs, secrets, remarks.

    Args:
        made: a plan with a YAML recipe.
        guess_command: no CMD was given, so the recipe's own entry point is the command.
    """
    found = inspect(made.repository, made.recipe, made.scratch)
    changes: dict[str, Any] = {"notes": [*made.notes, *found.warnings, *found.notes]}
    if (guess_command or made.recipe_overrides) and not knobs.get("CMD") and found.argv:
        own = set(found.base_overrides)
        changes["command"] = " ".join(_word(word) for word in found.argv if word not in own)
        changes["recipe_overrides"] = list(found.base_overrides)
    elif knobs.get("CMD"):
        changes["recipe_overrides"] = []
        changes["notes"] += _stray_outputs(found, knobs.text("CMD"))
    if found.metric and not made.metric:
        changes |= {"metric": found.metric}
    if (
        found.direction
        and made.direction_source != "DIRECTION"
        and (changes.get("metric") or made.metric) == found.metric
    ):
        changes |= {"direction": found.direction, "direction_source": f"the recipe, {found.where.get('direction', '')}"}
    if found.num_nodes:
        changes["nodes"] = found.num_nodes
    changes["model"] = found.model
    changes["code_paths"] = list(found.code_paths)
    changes["gpus"] = found.gpus_per_node or 0
    changes["recipe_timeout_s"] = found.own_timeout_s or 0.0
    changes["must_save_by"] = found.must_save_by_key if changes.get("recipe_overrides", made.recipe_overrides) else ""
    if knobs.get("SECRETS") is None and not made.secrets:
        changes["secrets"] = found.secret_keys()
    if made.smoke_overrides and changes.get("recipe_overrides", made.recipe_overrides):
        from autoresearch.nemo_rl import overrides

        words = knobs.split("SMOKE_OVERRIDES", made.smoke_overrides)
        changes["notes"] += overrides.check(found.resolved.config, words, protected=found.set_keys)
    _write_kinds(made, found)
    return made._replace(**changes)


def without(made: Plan) -> Plan:
    """Return the plan without the metric, direction and secrets that its recipe gave it: another one follows."""
    try:
        found = inspect(made.repository, made.recipe, made.scratch)
    except AutoresearchError:
        return made  # its file is gone
    changes: dict[str, Any] = {}
    if found.metric and made.metric == found.metric:
        changes["metric"] = ""
        if made.direction_source != "DIRECTION":
            changes |= {"direction": "", "direction_source": ""}
    if made.secrets == found.secret_keys():
        changes["secrets"] = []
    return made._replace(**changes)


def _word(word: str) -> str:
    """Return a word for the CMD line; placeholders stay readable, without quotes."""
    return word if word.isascii() and word.strip("{}").isidentifier() else shlex.quote(word)


def _stray_outputs(found: RecipeFacts, line: str) -> list[str]:
    """Return a remark when a CMD of the user leaves the recipe's output directories in the tree."""
    keys = [word.partition("=")[0].lstrip("+") for word in found.base_overrides if "_dir}" in word]
    missing = [key for key in keys if key not in line]
    if not missing:
        return []
    return [f"CMD does not set {' and '.join(missing)}: what lands in the tree is moved to the artifacts after the run"]


def _kinds_file(where: paths.Campaign) -> str:
    return os.path.join(where.state, "kinds")


def _write_kinds(made: Plan, found: RecipeFacts) -> None:
    """Keep the kind of each key, so that override words can be checked without resolving the recipe again."""
    where = paths.Campaign(made.repository, made.scratch, made.campaign)
    os.makedirs(where.state, mode=0o700, exist_ok=True)
    kinds = found.kinds if found.algorithm else {}
    files.replace(_kinds_file(where), json.dumps({"kinds": kinds, "set": list(found.set_keys)}).encode())


def check_overrides(opened: Campaign, words: list[str], *, commit: str = "", tree: str = "") -> None:
    """Refuse override words that the training would refuse or misread, before any time is spent on it.

    The recipe of the checkout is asked first. What it does not have may come from the idea's own edits or its parent's.

    Args:
        opened: the campaign.
        words: override words.
        commit: what the idea starts from; empty for nothing else than the checkout.
        tree: the directory where the idea was edited, if there is one.

    Raises:
        Usage: an unknown key, an unquoted `=` or `,`, a name that would turn into a number.
    """
    if not opened.plan.recipe_overrides:
        return  # the user's own command: what its words mean is not known here
    from autoresearch.nemo_rl import grammar

    try:
        with open(_kinds_file(opened.where), "rb") as file:
            known = json.loads(file.read())
    except (FileNotFoundError, ValueError):
        return
    if not known["kinds"] or grammar.quick(words, known["kinds"]):
        return
    from autoresearch import talk
    from autoresearch.nemo_rl import overrides, resolve

    def check(root: str) -> list[str]:
        found = resolve.resolve(root, opened.plan.recipe, env=os.environ, use_checkout=False)
        return overrides.check(found.config, words, protected=known["set"])

    try:
        warnings = check(opened.plan.repository)
    except Usage as refusal:
        with _recipe_at(opened, commit) as folder:
            warnings = _first(check, [root for root in (tree, folder) if root], refusal)
    for warning in warnings:
        talk.note(f"warning: {warning}")


def _first(check: Callable[[str], list[str]], roots: list[str], refusal: Usage) -> list[str]:
    for root in roots:
        try:
            return check(root)
        except Usage:
            continue
    raise refusal


@contextmanager
def _recipe_at(opened: Campaign, commit: str) -> Iterator[str]:
    """A directory that holds the recipe and its parents as a commit has them; empty when that cannot be had."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix=f"recipe-{int(clock.now())}-") as folder:
        try:
            for file in inspect(opened.plan.repository, opened.plan.recipe).files if commit else ():
                target = os.path.join(folder, file)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                with open(target, "wb") as out:
                    out.write(opened.git.run("show", f"{commit}:{file}"))
        except (AutoresearchError, OSError):
            commit = ""
        yield folder if commit else ""


def run_words(plan: Plan, values: dict[str, str], cap_s: float | None, setup_s: float) -> list[str]:
    """Return the words that every run of a recipe carries: output directories, names, and when it must have saved.

    Args:
        plan: the approved plan.
        values: what the placeholders stand for, `run_name` among them.
        cap_s: the run's cap in seconds.
        setup_s: seconds that set-up took in the baseline, 0.0 when that is not known.
    """
    if not plan.recipe_overrides:
        return []
    from autoresearch.nemo_rl import grammar

    words = grammar.fill(plan.recipe_overrides, values)
    limit = save_by(plan, cap_s, setup_s)
    if plan.must_save_by and limit is not None:
        words.append(f"{plan.must_save_by}={grammar.quote(grammar.must_save_by(limit))}")
    return words


def save_by(plan: Plan, cap_s: float | None, setup_s: float) -> float | None:
    """Return the seconds after set-up by which a run must have saved and stopped itself; None for no limit."""
    own = plan.recipe_timeout_s or None
    room = None if cap_s is None else cap_s - setup_s - max(SAVE_S, SAVE_SHARE * cap_s)
    if room is not None and room < SAVE_S:
        return own  # a cap too short to save in: the outer limit alone ends the run
    limits = [limit for limit in (own, room) if limit is not None]
    return min(limits, default=None)


def setup_seconds(log: str) -> float:
    """Return how long set-up took by a log's `Total setup time: N.Ns` (nemo_rl/algorithms/grpo.py), else 0.0."""
    import re

    try:
        with open(log, "rb") as file:
            head = file.read(4 << 20)
    except OSError:
        return 0.0
    found = re.search(rb"Total setup time: ([0-9]+(?:\.[0-9]+)?)s", head)
    return float(found[1]) if found else 0.0


def values_at(opened: Campaign, commit: str, words: list[str]) -> dict[str, str]:
    """Return the recipe's values at a commit with override words applied, flat; without a recipe the words alone.

    Words that are no overrides of a recipe, `--lr 0.1` say, stand beside its values.
    """
    flat = _by_key(words)
    if not opened.plan.recipe.endswith((".yaml", ".yml")):
        return flat
    from autoresearch.nemo_rl import resolve

    with _recipe_at(opened, commit) as folder:
        for applied, beside in ((words, {}), ([], flat)) if folder else ():
            try:
                found = resolve.resolve(
                    folder, opened.plan.recipe, env=os.environ, overrides=applied, use_checkout=False
                )
            except (AutoresearchError, OSError):
                continue
            return _flat(found.values) | beside
    return flat


def _by_key(words: list[str]) -> dict[str, str]:
    """Return what words set, by key: `key=value`, `--key=value`, `--key value ...`, or a word alone."""
    found: dict[str, str] = {}
    option = ""
    for word in words:
        key, given, value = word.partition("=")
        if given:
            found[key.lstrip("+~")], option = value, ""
        elif word.startswith("-") and not word[1:2].isdigit():
            found[word], option = "", word
        elif option:
            found[option] = f"{found[option]} {word}".lstrip()
        else:
            found[word.lstrip("+~")] = ""
    return found


def _flat(values: Any, prefix: str = "") -> dict[str, str]:
    if not isinstance(values, dict):
        return {prefix: json.dumps(values) if isinstance(values, list) else str(values)}
    out: dict[str, str] = {}
    for key, value in values.items():
        out |= _flat(value, f"{prefix}.{key}" if prefix else str(key))
    return out
