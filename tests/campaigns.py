"""What the tests of the flow share: an approved campaign in a real repository, rows, and states."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from autoresearch import attempts, campaign, clock, paths, plan
from autoresearch.attempts import State
from autoresearch.campaign import Campaign
from autoresearch.plan import Plan
from autoresearch.rows import Row
from autoresearch.rules import stop
from tests.conftest import git


def approved(repo: Path, scratch: Path, *, name: str = "c", rules: str = "", **fields: Any) -> Campaign:
    """Return an open campaign whose plan is approved. `fields`: fields of the plan."""
    scratch.mkdir(exist_ok=True)
    where = paths.Campaign(str(repo), str(scratch), name)
    given: dict[str, Any] = {
        "campaign": name,
        "repository": str(repo),
        "base": git(repo, "rev-parse", "HEAD"),
        "prefix": f"ar/{name}",
        "command": "python3 train.py {overrides}",
        "metric": "val_accuracy",
        "direction": "max",
        "stop": rules,
        "rules": stop.parse(rules, now=clock.now()).to_json(),
        "scratch": str(scratch),
    }
    made = Plan(**{**given, **fields})
    data = plan.save(where, made)
    os.makedirs(where.state, mode=0o700, exist_ok=True)
    campaign.make_root(where)
    return Campaign(where, plan.approve(where, made, data, "tests"))


def row(experiment: str, value: float | None, status: str = "keep", **more: Any) -> Row:
    """Return a row as a run leaves it; `value` None is a crash."""
    number = str(more.pop("attempt", 1))
    fields = {
        "commit": f"{experiment:0<40}"[:40],
        "parent_commit": "p" * 40,
        "metric_name": "val_accuracy",
        "metric_value": "0.000000" if value is None else repr(value),
        "metric_source": "" if value is None else "console run.log:1",
        "status": "crash" if value is None else status,
        "end_cause": "exit 1" if value is None else "ok",
        "elapsed_min": "1.50",
        "launcher": "local",
        "memory_gb": "0.0" if value is None else "1.5",
        "description": f"area: {experiment}",
        "branch": f"ar/c/{experiment}",
        "index": "1",
    }
    return Row(experiment=experiment, attempt=number, **{**fields, **more})


def state(experiment: str = "y", attempt: int = 1, **more: Any) -> State:
    """Return the state of an attempt."""
    fields: dict[str, Any] = {
        "smoke": False,
        "phase": "reserved",
        "branch": f"ar/c/{experiment}",
        "commit": f"{experiment:0<40}"[:40],
        "parent_commit": "p" * 40,
        "parent": "baseline",
        "description": f"area: {experiment}",
        "argv": ["true"],
        "tree": "",
        "overrides": [],
        "lines_delta": None,
        "cap_s": None,
        "reserved_at": float(attempt),
        "client": "",
        "lock": f"{experiment}.lock",
    }
    return State(experiment=experiment, attempt=attempt, **{**fields, **more})


def under_way(opened: Campaign, one: State) -> State:
    """Record an attempt as under way."""
    attempts.create(opened.where, one)
    return one
