"""docs/json.md says what JSON=1 answers hold: the same keys, of the same kinds, for every verb that has them."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path

import pytest

from autoresearch.campaign import Campaign
from autoresearch.sessions import session
from tests import session_campaigns as campaigns
from tests.conftest import ROOT

DOCS = ROOT / "docs" / "json.md"
VERBS = {
    "status": {},
    "resume": {},
    "handoff": {},
    "show": {"AR_NAME": "warmup"},
    "ideas": {},
    "summarize": {},
    "compare": {"AR_NAME": "warmup", "AR_WITH": "baseline"},
    "series": {"AR_NAME": "warmup"},
    "metric": {"AR_METRIC": "val_accuracy"},
}


def documented() -> dict[str, dict[str, str]]:
    """Return the keys and kinds of each section."""
    found: dict[str, dict[str, str]] = {}
    keys: dict[str, str] = {}
    for line in DOCS.read_text().split("\n"):
        heading = re.match(r"##+ `?([a-z]+)`?$", line)
        row = re.match(r"\| `([a-z_]+)` \| ([a-z]+\??) \|", line)
        if heading:
            keys = found.setdefault(heading[1], {})
        elif row:
            keys[row[1]] = row[2]
    return found


def kind(value: object) -> str:
    if value is None:
        return "?"
    if isinstance(value, bool):
        return "flag"
    names: dict[type, str] = {str: "text", int: "number", float: "number", list: "list", dict: "object"}
    return names[type(value)]


def check(answer: dict[str, object], keys: dict[str, str], what: str) -> None:
    assert list(answer) == list(keys), what
    for key, value in answer.items():
        said, seen = keys[key], kind(value)
        assert said.endswith("?") if seen == "?" else said.rstrip("?") == seen, f"{what}.{key}: {said} is {seen}"


@pytest.fixture
def opened(repo: Path, hostile: Path, monkeypatch: pytest.MonkeyPatch) -> Campaign:
    """A campaign with a baseline, an idea, a crash and a run under way."""
    monkeypatch.setenv("AR_REPO", str(repo))
    made = campaigns.make(repo, hostile / "scratch")
    session.checkpoint(made.where, "plan made")
    campaigns.row(made, "baseline", 0.5)
    campaigns.row(made, "warmup", 0.6, parent_metric="0.5", metric_step="2", exit_code="0", memory_source="maxrss")
    campaigns.row(made, "broken", None, "crash")
    monkeypatch.setenv("AR_LOG", made.where.attempt("warmup", 1).log)
    return made


def ask(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], **knobs: str
) -> dict[str, object]:
    for key, value in {**VERBS[verb], **knobs, "AR_JSON": "1"}.items():
        monkeypatch.setenv(key, value)
    assert import_module(f"autoresearch.verbs.{verb}").run() == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("verb", VERBS)
def test_the_keys_and_kinds_are_as_documented(
    verb: str, opened: Campaign, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sections = documented()
    answer = ask(verb, monkeypatch, capsys)
    check(answer, sections[verb], verb)
    for key in ("baseline", "best", "latest"):
        found = answer.get(key)
        if isinstance(found, dict):
            keys = {name: said for name, said in sections["result"].items() if name != "runs" or key != "latest"}
            check(found, keys, key)
    if verb == "ideas":
        for idea in answer["ideas"]:  # type: ignore[attr-defined]
            check(idea, sections["idea"], "idea")


def test_every_verb_with_json_is_documented(opened: Campaign) -> None:
    with_json = {
        path.stem for path in (ROOT / "autoresearch" / "verbs").glob("*.py") if 'flag("JSON")' in path.read_text()
    }
    assert with_json == set(VERBS)
    assert with_json <= set(documented())


@pytest.mark.parametrize("verb", ["show"])
def test_a_crash_and_a_run_under_way_have_the_same_keys(
    verb: str, opened: Campaign, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sections = documented()
    check(ask(verb, monkeypatch, capsys, AR_NAME="broken"), sections[verb], "broken")
    campaigns.state(opened, "busy", started_at=1.0)
    check(ask(verb, monkeypatch, capsys, AR_NAME="busy"), sections[verb], "busy")


@pytest.mark.parametrize("verb", ["status", "resume"])
def test_running_attempts_are_as_documented(
    verb: str, opened: Campaign, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from autoresearch import recovery

    monkeypatch.setattr(recovery, "start_detached", lambda opened, states: [])
    campaigns.state(opened, "busy")
    answer = ask(verb, monkeypatch, capsys)
    check(answer["running"][0], documented()["running"], "running")  # type: ignore[index]


def test_an_empty_campaign_has_the_same_keys(
    repo: Path, hostile: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AR_REPO", str(repo))
    campaigns.make(repo, hostile / "scratch")
    for verb in ("status", "resume", "handoff", "ideas", "summarize"):
        check(ask(verb, monkeypatch, capsys), documented()[verb], verb)
