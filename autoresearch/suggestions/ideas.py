"""Ideas that fit a campaign: the catalog, pruned by algorithm and GPUs, ordered by what the last runs showed."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

from autoresearch import attempts, metrics, parents
from autoresearch.campaign import Campaign
from autoresearch.direction import gain
from autoresearch.errors import AutoresearchError
from autoresearch.rows import Row
from autoresearch.rules import standing, stop
from autoresearch.suggestions.idea_catalog import CATALOG
from autoresearch.suggestions.idea_entry import AREAS, Change, Entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from autoresearch.nemo_rl.resolve import Resolved

LOOKED_AT = 5  # of the latest rows
SPEED = re.compile(r"tokens?_per|samples?_per|throughput|latency|_time|seconds|speed", re.IGNORECASE)
NOT_NEW = "not in the recipe, or so already"


class Seen(NamedTuple):
    """Something that the last runs showed."""

    symptom: str
    detail: str


class Idea(NamedTuple):
    """One idea, ready to be tried."""

    name: str
    area: str
    hypothesis: str
    why: str
    gain: int
    cost: int
    score: float
    answers: list[str]  # the symptoms it is an answer to
    overrides: list[str]
    line: str


class Recipe(NamedTuple):
    """What is known of the recipe that the next idea starts from."""

    algorithm: str  # grpo, ppo, sft, dpo, rm, distillation; empty when there is none
    values: Resolved | None
    trouble: str = ""


def find(opened: Campaign) -> dict[str, Any]:
    """Return the ideas for a campaign as data, the best first; the schema is in docs/json.md."""
    rows, states = opened.rows(), attempts.every(opened.where)
    recipe = read_recipe(opened, rows)
    gpus = opened.plan.gpus * opened.plan.nodes
    seen = symptoms(opened, rows)
    commands = [row.command for row in rows] + [state.command for state in states]
    names = {row.experiment for row in rows} | {state.experiment for state in states}
    texts = [row.description for row in rows] + [state.description for state in states]
    found: list[Idea] = []
    left_out = dict.fromkeys(("another algorithm", "more GPUs than there are", "tried", NOT_NEW), 0)
    for entry in CATALOG:
        if entry.algorithms and recipe.algorithm not in entry.algorithms:
            left_out["another algorithm"] += 1
        elif entry.least_gpus > max(1, gpus):
            left_out["more GPUs than there are"] += 1
        elif entry.only_seen and not _answers(entry, seen):
            continue
        else:
            idea = make(opened, entry, recipe, seen)
            if idea is None:
                left_out[NOT_NEW] += 1
            elif is_tried(idea, names, commands, texts):
                left_out["tried"] += 1
            else:
                found.append(idea)
    found.sort(key=lambda idea: (-idea.score, AREAS.index(idea.area)))
    best = parents.best_kept(rows, opened.plan.direction)
    return {
        "campaign": opened.name,
        "algorithm": recipe.algorithm or None,
        "gpus": gpus,
        "recipe_trouble": recipe.trouble,
        "starts_from": best.experiment if best else None,
        "seen": [one._asdict() for one in seen],
        "left_out": left_out,
        "ideas": [idea._asdict() for idea in found],
        "next": _next(opened, rows, found),
    }


def _next(opened: Campaign, rows: Sequence[Row], found: list[Idea]) -> str:
    base = parents.latest(rows, parents.BASELINE)
    if base is None or base.status == "crash":
        return f"make baseline CAMPAIGN={opened.name}, then an idea"
    where = standing.line(opened, rows, attempts.every(opened.where))
    if where.met:
        return f"{where.line}: make summarize CAMPAIGN={opened.name}"
    return "edit one line and run it: one change for each experiment" if found else "think of a new one; none is left"


def read_recipe(opened: Campaign, rows: Sequence[Row]) -> Recipe:
    """Return the recipe as the best result has it: its values with the words that the best inherits."""
    name = opened.plan.recipe
    if not name.endswith((".yaml", ".yml")):
        return Recipe("", None)
    from autoresearch.nemo_rl import entrypoint, resolve

    best = parents.best_kept(rows, opened.plan.direction)
    try:
        words = parents.recorded_overrides(opened, best.commit) if best else []
        found = resolve.resolve(opened.where.repository, name, env=os.environ, overrides=words, use_checkout=False)
    except AutoresearchError as error:
        return Recipe("", None, f"{error.what}: {error.why}")
    return Recipe(entrypoint.algorithm(found.values), found)


def make(opened: Campaign, entry: Entry, recipe: Recipe, seen: list[Seen]) -> Idea | None:
    """Return the idea that an entry means for this recipe; None when the recipe lacks its keys, or has it already."""
    words: list[str] = []
    if entry.changes and recipe.values is not None:
        chosen = [_word(change, recipe.values) for change in entry.changes]
        # The first key must be there; a coupled one that follows it by itself is left to do so.
        if chosen[0] is None:
            return None
        words = [word for word in chosen if word]
        if not words:
            return None  # the recipe has it so already
        if any(word is None for word in chosen) and entry.area == "async":
            return None
    answers = _answers(entry, seen)
    gain = entry.gain + 2 * len(answers)
    if entry.speed != bool(SPEED.search(opened.plan.metric)) and not answers:
        gain -= 2
    return Idea(
        name=_name(entry, words),
        area=entry.area,
        hypothesis=_hypothesis(entry, words),
        why=entry.why,
        gain=entry.gain,
        cost=entry.cost,
        score=round(gain / entry.cost, 2),
        answers=answers,
        overrides=words,
        line=_line(opened, entry, _name(entry, words), words, recipe),
    )


def _answers(entry: Entry, seen: list[Seen]) -> list[str]:
    return [one.symptom for one in seen if one.symptom in entry.symptoms]


def _name(entry: Entry, words: list[str]) -> str:
    """Return a name that tells two sizes of one idea apart."""
    if not words:
        return entry.key
    value = words[0].rpartition("=")[2].lower()
    slug = re.sub(r"[^a-z0-9-]+", "p", value)
    # A name that ends in .2 would read as an attempt; here the value holds no dot any more.
    return entry.key if value in ("true", "false") else f"{entry.key}-{slug}"[:64].rstrip("-")


def _word(change: Change, values: Resolved) -> str | None:
    """Return the override word of a change, `` when it would change nothing, None when no key can be changed."""
    key = _key(change, values)
    if key is None:
        return None
    old = values.get(key)
    if change.op.startswith("="):
        new = change.op[1:]
        return "" if str(old).lower() == new else f"{key}={new}"
    if isinstance(old, bool) or not isinstance(old, (int, float)) or not old or "${" in values.raw(key):
        return None
    number = float(change.op[1:])
    result = old * number if change.op[0] == "*" else old + number
    if isinstance(old, int):
        if result != int(result) or result < 1:
            return None
        return f"{key}={int(result)}"
    return f"{key}={result:.6g}"


def _key(change: Change, values: Resolved) -> str | None:
    """Return the key of a change in this recipe: of the back end that is on, where there are two."""
    for key in change.keys:
        section = next((part for part in ("policy.megatron_cfg", "policy.dtensor_cfg") if key.startswith(part)), "")
        off = section and values.get(f"{section}.enabled") is False
        other = key == "policy.optimizer.kwargs.lr" and values.get("policy.megatron_cfg.enabled") is True
        if values.has(key) and not off and not other:
            return key
    return None


def _hypothesis(entry: Entry, words: list[str]) -> str:
    """Return the hypothesis with the values it sets, so that a second size of one idea is another hypothesis."""
    values = ", ".join(f"{word.partition('=')[0].rpartition('.')[2]}={word.partition('=')[2]}" for word in words)
    return f"{entry.area}: {entry.change}" + (f" ({values})" if values else "")


def _line(opened: Campaign, entry: Entry, name: str, words: list[str], recipe: Recipe) -> str:
    text = shlex.quote(_hypothesis(entry, words))
    head = f"make experiment CAMPAIGN={opened.name} NAME={name} HYPOTHESIS={text}"
    if words:
        return f"{head} OVERRIDES={shlex.quote(' '.join(words))}"
    if entry.changes and recipe.values is None:
        return f"{head} OVERRIDES='<key>=<value>'"
    return f"{head} FILES='<the files you edited>'"


def is_tried(idea: Idea, names: set[str], commands: list[str], texts: list[str]) -> bool:
    """Return whether an idea was run before: under its name, with its words, or with its very hypothesis."""
    if idea.name in names or idea.hypothesis in texts:
        return True
    if not idea.overrides:
        return any(name.startswith(f"{idea.name}-") for name in names)
    return any(all(word in _words(command) for word in idea.overrides) for command in commands)


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def symptoms(opened: Campaign, rows: Sequence[Row]) -> list[Seen]:
    """Return what the latest runs showed, each symptom once, the newest first."""
    found: dict[str, str] = {}
    for row in reversed(rows[-LOOKED_AT:]):
        for symptom, detail in _of_row(opened, row):
            found.setdefault(symptom, f"{row.id}: {detail}")
    known = standing.facts(opened, rows, [])
    flat = stop.ideas_since_best(known)
    if flat >= 4:
        found["plateau"] = f"no new best in {flat} ideas"
    valid = [row for row in reversed(rows[-LOOKED_AT:]) if row.value is not None]
    if valid:
        for symptom, detail in _of_signals(opened, valid[0]):
            found.setdefault(symptom, f"{valid[0].id}: {detail}")
    return [Seen(symptom, detail) for symptom, detail in found.items()]


def _of_row(opened: Campaign, row: Row) -> list[tuple[str, str]]:
    out = []
    if row.end_cause == "oom" or "out of memory" in row.reason.lower():
        out.append(("oom", "out of memory"))
    if row.end_cause in ("timeout", "recipe-timeout", "stalled"):
        out.append(("slow", f"ended by {row.end_cause}"))
    if re.search(r"diverged|\bnan\b|\binf\b", row.reason, re.IGNORECASE):
        out.append(("unstable", "the metric diverged"))
    value = row.value
    if value is None:
        return out
    try:
        best = float(row.metric_best)
    except ValueError:
        return out
    if gain(best, value, opened.plan.direction) > 0.02 * abs(best):
        out.append(("peaks-early", f"its best was {row.metric_best}, its last {row.metric_value}"))
    elif best == value and row.metric_step:
        out.append(("still-improving", "its last value was its best"))
    return out


def _of_signals(opened: Campaign, row: Row) -> list[tuple[str, str]]:
    """Return what the side signals of a run warn of; thresholds are rules of thumb, not laws."""
    attempt = opened.where.attempt(row.experiment, row.number)
    try:
        values = metrics.signals_of(
            metrics.Where(attempt.log, attempt.logs, attempt.checkpoints, attempt.artifacts, "")
        )
    except OSError:
        return []
    limits = (
        ("truncation_rate", 0.1, "truncated", "of the answers were cut off"),
        ("zero_variance_fraction", 0.3, "no-variance", "of the groups had equal rewards"),
        ("trajectory_age", 2.0, "stale", "steps old were the answers"),
        ("token_mult_prob_error", 1.05, "mismatch", "is the probability error between the back ends"),
        ("generation_kl_error", 0.01, "mismatch", "is the KL error between the back ends"),
    )
    out = [
        (symptom, f"{values[name]:.3g} {text}")
        for name, least, symptom, text in limits
        if values.get(name, 0.0) > least
    ]
    spread = values.get("reward_std")
    if spread is not None and spread < 1e-3:
        out.append(("no-variance", f"the reward's spread was {spread:.3g}"))
    return out
