"""The facts of a recipe as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from autoresearch.nemo_rl.facts import RecipeFacts
from autoresearch.nemo_rl.inputs import Input

MAX_LINES = 60
LABEL = 16


def describe(facts: RecipeFacts, *, max_lines: int = MAX_LINES) -> list[str]:
    """Return what was found about a recipe, each fact with the file and line it came from.

    Args:
        facts: from `inspect`.
        max_lines: the most lines returned; the longer lists are cut first, warnings last.
    """
    head = [
        _line("recipe", facts.recipe),
        *(_line("parent" if not index else "", parent) for index, parent in enumerate(facts.parents)),
        *_main(facts),
        *_read(facts),
    ]
    writes = [
        _line("writes" if not index else "", f"{write.what}: {write.path}", write.where, write.moved_by)
        for index, write in enumerate(facts.writes)
    ]
    words = [_line("always set" if not n else "", word) for n, word in enumerate(facts.base_overrides)]
    secrets = [
        _line("secrets" if not n else "", f"{secret.key}{'' if secret.required else ' (if you have it)'}: {secret.why}")
        for n, secret in enumerate(facts.secrets)
    ]
    code = [_line("read" if not n else "", path) for n, path in enumerate(facts.code_paths[len(facts.files) :])]
    twin = [_line("its test sets" if not n else "", word) for n, word in enumerate(facts.twin_words)]
    notes = [_line("note", note) for note in facts.notes]
    warn = [_line("warning", text) for text in facts.warnings]
    # What matters most takes its lines first; each part keeps a few for itself.
    parts = ((warn, 3), (secrets, 2), (words, 3), (writes, 3), (notes, 1), (twin, 1), (code, 2))
    room = max_lines - len(head) - sum(min(len(part), least) for part, least in parts)
    kept: list[list[str]] = []
    for part, least in parts:
        kept.append(_cut(part, min(len(part), least) + max(room, 0)))
        room -= max(len(kept[-1]) - least, 0)
    warn, secrets, words, writes, notes, twin, code = kept
    return [*head, *words, *writes, *secrets, *twin, *code, *notes, *warn][:max_lines]


def _cut(lines: list[str], room: int) -> list[str]:
    if len(lines) <= room:
        return lines
    return [*lines[: room - 1], _line("", f"... and {len(lines) - room + 1} more")]


def _line(label: str, text: object, *origins: str) -> str:
    tail = "; ".join(origin for origin in origins if origin)
    return f"{label:<{LABEL}}{text}" + (f"  [{tail}]" if tail else "")


def _main(facts: RecipeFacts) -> Iterable[str]:
    where = facts.where
    yield _line(
        "resolved by", "the checkout's own loader" if facts.loader == "checkout" else "the rules of NeMo-RL's loader"
    )
    yield _line(
        "algorithm",
        (facts.algorithm or "unknown") + (" with NeMo-Gym" if facts.gym else ""),
        where.get("algorithm", ""),
    )
    yield _line("entry point", facts.entry_point or "unknown: give CMD", where.get("entry_point", ""))
    if facts.argv:
        yield _line("command", f"{' '.join(facts.argv[: facts.argv.index('{recipe}')])} {facts.recipe} ...")
    direction = {"max": "higher is better", "min": "lower is better"}.get(facts.direction, "direction unknown")
    tag = f", TensorBoard {facts.metric_tag}" if facts.metric_tag else ""
    yield _line(
        "metric",
        f"{facts.metric or 'none: give METRIC'} ({direction}{tag})",
        where.get("metric", ""),
        where.get("direction", ""),
    )
    length = [
        f"{facts.max_steps} steps" if facts.max_steps is not None else "",
        f"{facts.max_epochs} epochs" if facts.max_epochs is not None else "",
    ]
    yield _line(
        "length",
        " or ".join(part for part in length if part) or "unknown",
        where.get("max_steps", ""),
        where.get("max_epochs", ""),
    )
    yield _line("validation", f"every {_or(facts.val_period)} steps", where.get("val_period", ""))
    yield _line("saves", f"every {_or(facts.save_period)} steps", where.get("save_period", ""))
    own = "none" if facts.own_timeout_s is None else f"{facts.own_timeout_s:.0f} s after its set-up"
    yield _line("own time limit", own, where.get("own_timeout_s", ""))
    yield _line(
        "machines",
        f"{_or(facts.num_nodes)}, with {_or(facts.gpus_per_node)} GPUs each",
        where.get("num_nodes", ""),
        where.get("gpus_per_node", ""),
    )


def _or(value: int | None) -> str:
    return "?" if value is None else str(value)


def _read(facts: RecipeFacts) -> Iterable[str]:
    items = [item for item in facts.models if item.role != "tokenizer" or item.name != facts.model]
    for item in (*items[:6], *facts.datasets[:8]):
        yield _line(item.role, f"{item.name}{f' = {item.source}' if item.source else ''}: {state(item)}", item.where)


def state(item: Input) -> str:
    """Return in words whether an input is here."""
    if item.kind == "placeholder":
        return "to be given"
    if item.kind == "built-in":
        return "a data set class of the project"
    if item.kind == "url":
        return "read from the network"
    if item.present is None:
        return "not known"
    if item.kind == "path":
        return "exists" if item.present else "MISSING"
    return "in the cache" if item.present else "not in the cache, will be downloaded"
