"""plan.py: the plan reads back as it was written, and an approval binds to exactly one text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoresearch import paths, plan
from autoresearch.errors import Refused
from autoresearch.plan import Plan

TEXT = st.text(st.characters(codec="utf-8"), max_size=30)


@pytest.fixture
def where(hostile: Path) -> paths.Campaign:
    """The places of a campaign."""
    return paths.Campaign(str(hostile), str(hostile), "c")


FIELDS = st.fixed_dictionaries(
    {"repository": TEXT.filter(bool), "command": TEXT, "objective": TEXT},
    optional={
        "stop": TEXT,
        "secrets": st.lists(TEXT, max_size=3),
        "settings": st.dictionaries(st.from_regex(r"[A-Z_]{1,8}", fullmatch=True), TEXT, max_size=3),
        "recipe_timeout_s": st.floats(0, 1e6),
        "confirm": st.integers(0, 9),
    },
)


@given(FIELDS)
@settings(max_examples=60)
def test_any_plan_comes_back(fields: dict[str, Any]) -> None:
    import tempfile

    made = Plan(campaign="c", **fields)
    with tempfile.TemporaryDirectory() as folder:
        here = paths.Campaign(folder, folder, "c")
        data = plan.save(here, made)
        assert plan.load(here.plan) == (made, data)


def test_a_new_plan_shares_nothing_with_another() -> None:
    assert Plan("c", "/r").settings == {}
    assert Plan("c", "/r").setting("GPUS", "none") == "none"


@pytest.mark.parametrize(
    "text",
    [
        "campaign = ",
        "campaign = 1\nrepository = 'r'",
        "unknown = 1",
        "campaign = 'c'\nrepository = 'r'\nsettings = []",
        "\xff",
    ],
)
def test_a_plan_that_cannot_be_read_is_refused(where: paths.Campaign, text: str) -> None:
    plan.save(where, Plan("c", "/r"))
    Path(where.plan).write_bytes(text.encode("latin-1"))
    with pytest.raises(Refused) as caught:
        plan.load(where.plan)
    assert "plan.toml" in str(caught.value)


def test_nothing_is_approved_without_a_yes_to_this_text(where: paths.Campaign) -> None:
    with pytest.raises(Refused, match="has none"):
        plan.approved(where)
    made = Plan("c", "/r", stop="4 experiments")
    data = plan.save(where, made)
    with pytest.raises(Refused, match="not approved yet"):
        plan.approved(where)
    plan.approve(where, made, data, "me")
    assert plan.approved(where).plan == made
    Path(where.plan).write_bytes(data + b" ")
    with pytest.raises(Refused, match="changed since"):
        plan.approved(where)
    Path(where.plan).write_bytes(data)
    assert plan.approved(where).by == "me"
    Path(where.plan).unlink()
    with pytest.raises(Refused):
        plan.approved(where)


def test_the_history_keeps_earlier_stop_rules(where: paths.Campaign) -> None:
    for text in ("4 experiments", "4 experiments", "10h"):
        made = Plan("c", "/r", stop=text)
        plan.approve(where, made, plan.save(where, made), "me")
    found = plan.read_approval(where)
    assert found is not None
    assert [entry["stop"] for entry in found.history] == ["4 experiments"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"plan": 1}', json.dumps({"digest": "x", "plan": {}})])
def test_a_broken_approval_is_refused_with_the_remedy(where: paths.Campaign, text: str) -> None:
    plan.save(where, Plan("c", "/r"))
    Path(where.approval).write_text(text)
    with pytest.raises(Refused) as caught:
        plan.approved(where)
    assert "make approve" in str(caught.value)


def test_the_records_are_private(where: paths.Campaign) -> None:
    made = Plan("c", "/r")
    plan.approve(where, made, plan.save(where, made), "me")
    assert Path(where.records).stat().st_mode & 0o777 == 0o700
    for path in (where.plan, where.approval):
        assert Path(path).stat().st_mode & 0o777 == 0o600
