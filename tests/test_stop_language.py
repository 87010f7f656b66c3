"""The language of STOP: every form reads as what it says, everything else is refused with its place marked."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoresearch.errors import Usage
from autoresearch.rules import explicit, stop
from autoresearch.rules.stop import Rules

NOW = datetime(2026, 9, 21, 14, 0, tzinfo=UTC).timestamp()
TOKYO_7 = datetime(2026, 11, 30, 22, 0, tzinfo=UTC).timestamp()


def read(text: str, tz: str | None = None) -> Rules:
    return stop.parse(text, now=NOW, tz=tz)


def refused(text: str, tz: str | None = None) -> tuple[str, str]:
    """Return the marked part of the text and the whole message."""
    with pytest.raises(Usage) as caught:
        read(text, tz)
    message = str(caught.value)
    shown, carets = message.splitlines()[-2:]
    assert set(carets.strip()) == {"^"}
    start = len(carets) - len(carets.lstrip())
    return shown[start : start + carets.count("^")], message


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("50 experiments", Rules(experiments=50)),
        ("do 50 experiments", Rules(experiments=50)),
        ("Do 50 Experiments.", Rules(experiments=50)),
        ("at most 20 ideas", Rules(experiments=20)),
        ("1 experiment", Rules(experiments=1)),
        ("10h total, 1h each", Rules(total_s=36000, each_s=3600)),
        ("10h total,1h each", Rules(total_s=36000, each_s=3600)),
        ("50 experiments or 10h total, 1h each", Rules(experiments=50, total_s=36000, each_s=3600)),
        ("50 experiments or 10h total and 1h each", Rules(experiments=50, total_s=36000, each_s=3600)),
        ("1h each and 50 experiments", Rules(experiments=50, each_s=3600)),
        ("50 experiments or 10h total, whichever comes first", Rules(experiments=50, total_s=36000)),
        ("90m per experiment, 2d in total", Rules(total_s=172800, each_s=5400)),
        ("each 1h30m or total 10h", Rules(total_s=36000, each_s=5400)),
        ("time budget: 5h", Rules(total_s=18000)),
        ("50 experiments at most, 1 hour for each experiment", Rules(experiments=50, each_s=3600)),
        ("10 hours total max, 1h each run", Rules(total_s=36000, each_s=3600)),
        ("within 10h total", Rules(total_s=36000)),
        ("val_accuracy >= 0.8", Rules(target=("val_accuracy", ">=", 0.8))),
        ("val:accuracy>=0.8", Rules(target=("val:accuracy", ">=", 0.8))),
        ("stop when validation/loss < 1e-3", Rules(target=("validation/loss", "<", 0.001))),
        ("until reward > -2.5", Rules(target=("reward", ">", -2.5))),
        ("target 0.8", Rules(target=("", "", 0.8))),
        ("target: -0.8", Rules(target=("", "", -0.8))),
        ("target >= .8", Rules(target=("", ">=", 0.8))),
        ("acc ≥ 0.8", Rules(target=("acc", ">=", 0.8))),
        ("plateau 8", Rules(plateau=8)),
        ("plateau of 8 ideas", Rules(plateau=8)),
        ("no new best in 8 ideas", Rules(plateau=8)),
        ("8 experiments without a new best", Rules(plateau=8)),
        ("5 crashes in a row", Rules(crashes_in_a_row=5)),
        ("5 consecutive failures", Rules(crashes_in_a_row=5)),
        ("1 crash in a row", Rules(crashes_in_a_row=1)),
        ("10 GPU-hours", Rules(gpu_hours=10)),
        ("2.5 gpu hours", Rules(gpu_hours=2.5)),
        ("実験50回", Rules(experiments=50)),
        ("５０回の実験", Rules(experiments=50)),
        ("実験を50回行う。", Rules(experiments=50)),
        ("合計10時間、各1時間", Rules(total_s=36000, each_s=3600)),
        ("合計１０時間，各１時間", Rules(total_s=36000, each_s=3600)),
        ("実験50回または合計10時間、各1時間", Rules(experiments=50, total_s=36000, each_s=3600)),
        ("合計10時間か、実験50回", Rules(experiments=50, total_s=36000)),
        ("実験50回か合計10時間", Rules(experiments=50, total_s=36000)),
        ("全体で10時間まで、実験ごとに1時間半", Rules(total_s=36000, each_s=5400)),
        ("実験50回、合計10時間のいずれか早い方", Rules(experiments=50, total_s=36000)),
        ("val_accuracyが0.8以上", Rules(target=("val_accuracy", ">=", 0.8))),
        ("loss は 0.3 未満", Rules(target=("loss", "<", 0.3))),
        ("val_accuracy　＞＝　０．８", Rules(target=("val_accuracy", ">=", 0.8))),
        ("目標値0.8", Rules(target=("", "", 0.8))),
        ("プラトー8", Rules(plateau=8)),
        ("8回改善なし", Rules(plateau=8)),
        ("5回連続クラッシュ", Rules(crashes_in_a_row=5)),
        ("クラッシュ5回連続", Rules(crashes_in_a_row=5)),
        ("連続失敗5回", Rules(crashes_in_a_row=5)),
        ("10GPU時間", Rules(gpu_hours=10)),
        ("GPU時間は10", Rules(gpu_hours=10)),
        ("", Rules(experiments=4, default=True)),
        ("  \n ", Rules(experiments=4, default=True)),
        ("1h each", Rules(experiments=4, each_s=3600, default=True)),
        (
            "50 experiments, 10h total, 1h each, target 0.9, plateau 8, 5 crashes in a row, 100 GPU-hours",
            Rules(50, 36000, 3600, None, ("", "", 0.9), 8, 5, 100),
        ),
    ],
)
def test_reads(text: str, rules: Rules) -> None:
    assert read(text) == rules


@pytest.mark.parametrize(
    "text",
    [
        "until 2026-12-01T07:00+09:00",
        "until 2026-12-01 07:00 +0900",
        "until 2026-12-01 07:00 JST",
        "by 2026-11-30T22:00Z",
        "until 2026-11-30T22:00:00 UTC",
        "until 2026-12-01 07:00 Asia/Tokyo",
        "deadline: 2026-12-01T07:00+09:00",
        "2026-12-01T07:00+09:00まで",
        "期限：2026-12-01T07:00+09:00",
    ],
)
def test_deadlines_with_a_zone(text: str) -> None:
    rules = read(text)
    assert rules.until == TOKYO_7
    assert re.search(r"[+-][0-9]{2}:[0-9]{2}$", rules.until_text)


@pytest.mark.parametrize("text", ["until 2026-12-01T07:00", "2026年12月1日7時まで", "until 2026-12-01 7:00"])
@pytest.mark.parametrize("tz", ["Asia/Tokyo", "+09:00"])
def test_a_deadline_without_a_zone_is_local_and_says_so(text: str, tz: str) -> None:
    rules = read(text, tz)
    assert rules.until == TOKYO_7
    assert rules.until_text == "2026-12-01T07:00:00+09:00"


def test_the_machines_own_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert read("until 2026-12-01T07:00").until_text == "2026-12-01T07:00:00+09:00"
        assert read("until 07:00").until_text == "2026-09-22T07:00:00+09:00"
        assert read("until 23:30").until_text == "2026-09-21T23:30:00+09:00"
    finally:
        monkeypatch.setenv("TZ", "UTC")
        time.tzset()


def test_clock_changes_are_not_guessed() -> None:
    assert "does not exist" in refused("until 2027-03-28T02:30", "Europe/Berlin")[1]
    assert "happens twice" in refused("until 2026-10-25T02:30", "Europe/Berlin")[1]
    assert read("until 2026-10-25T02:30+01:00", "Europe/Berlin").until


@pytest.mark.parametrize(
    ("text", "place", "word"),
    [
        ("50 experimens or 10h total", "experimens", "not understood"),
        ("10h totel, 1h each", "totel", "not understood"),
        ("50 experiments 10h total", "10h", "comma or `or`"),
        ("50 experiments or", " or", "nothing follows"),
        ("50 experiments,, 10h total", ",", "missing"),
        ("50 experiments;10h total", ";10h", "not understood"),
        ("10h", "10h", "10h total"),
        ("50", "50", "50 experiments"),
        ("50 runs", "50 runs", "rerun"),
        ("20 trials, 1h each", "20 trials", "rerun"),
        ("5 crashes", "5 crashes", "in a row"),
        ("until 2026-12-01", "until 2026-12-01", "leaves the time open"),
        ("2026-12-01T07:00Z", "2026-12-01T07:00Z", "does not say"),
        ("until 2026-12-01 07:00 EST", "EST", "offset"),
        ("until 2026-12-01 07:00 Asia/Tokio", "Asia/Tokio", "no time zone"),
        ("until 2026-02-30T00:00Z", "2026-02-30T00:00Z", "no date"),
        ("until 2026-09-21T13:59Z", "2026-09-21T13:59Z", "has passed"),
        ("target 80%", "target 80%", "per cent"),
        ("target nan", "nan", "not understood"),
        ("target inf", "inf", "not understood"),
        ("target 1e999", "1e999", "too large"),
        ("target 0.8.5", ".5", "not understood"),
        ("acc == 0.8", "acc", "not understood"),
        ("0 experiments", "0", "above 0"),
        ("1.5 experiments", "1.5 experiments", "whole"),
        ("-5 experiments", "-5", "not understood"),
        ("1e3 experiments", "1e3", "not understood"),
        ("٥٠ experiments", "٥٠", "not understood"),
        ("fifty experiments", "fifty", "not understood"),
        ("30m1h each", "30m1h", "large to small"),
        ("0s each", "0s", "no time"),
        ("50 experiments and 10h total", " and ", "`and`"),
        ("plateau 8 & target 0.8", " & ", "`and`"),
        ("50 experiments, 10h total and 1h each", " and ", "`and`"),
        ("実験50回かつ合計10時間", "かつ", "`and`"),
        ("実験50回と合計10時間", "と", "`and`"),
        ("実験五十回", "実験五十回", "not understood"),
        ("50回", "50回", "実験50回"),
        ("50 experiments, 20 experiments", "20 experiments", "says again"),
        ("target 0.8 or acc >= 0.8", "acc >= 0.8", "says again"),
        ("1h total, 2h each", "2h each", "none would ever start"),
        ("until 2026-09-21T14:30Z, 1h each", "1h each", "none would ever start"),
        ("$(touch x)", "$(touch", "not understood"),
        ("50 experiments `id`", "`id`", "not understood"),
        ("50 more experiments", "50 more experiments", "not understood"),
        ("no limit", "limit", "not understood"),
    ],
)
def test_refuses_and_marks_the_place(text: str, place: str, word: str) -> None:
    marked, message = refused(text)
    assert word in message
    # Wide characters take two columns in a terminal, so only narrow texts can be compared by column.
    if text.isascii():
        assert marked == place


def test_wide_characters_move_the_mark_by_two_columns() -> None:
    _, message = refused("実験50回かつ合計10時間")
    assert message.splitlines()[-1] == " " * (4 + 2 * 2 + 2 + 2) + "^^^^"


def test_control_characters_do_not_reach_the_terminal() -> None:
    message = refused("50 experiments \x1b[31mred\u202e\udcff\r\n")[1]
    assert all(line.isprintable() for line in message.split("\n"))


def test_too_long() -> None:
    assert "longer than" in refused("5 experiments, " * 100)[1]


@pytest.mark.parametrize("text", ["1h " * 330, "0" * 999, "stop" + " " * 990, "a" * 999, "1h,", "(" * 999, "の" * 999])
def test_long_nonsense_is_refused_quickly(text: str) -> None:
    from time import process_time  # of this process alone: a busy machine does not count

    began = process_time()
    refused(text)
    assert process_time() - began < 1


PARTS = ["50", "10h", "1h30m", "experiments", "total", "each", "or", "and", ",", "until", "2026-12-01T07:00", "+09:00"]
PARTS += ["target", "0.8", ">=", "acc", "plateau", "8", "crashes in a row", "GPU-hours", "合計", "実験", "回", "時間"]


@settings(max_examples=300)
@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(PARTS), max_size=12).map(" ".join)))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        rules = read(text)
    except Usage:
        return
    assert Rules.from_json(rules.to_json()) == rules
    assert explicit.describe(rules)


@given(
    st.integers(1, 10**6),
    st.integers(2, 900),
    st.floats(-1e6, 1e6).filter(lambda x: x == x),
    st.permutations(["count", "total", "each", "target"]),
    st.sampled_from([", ", " or ", "、", "または", ","]),
)
def test_order_and_separators_do_not_matter(count: int, hours: int, value: float, order: list[str], sep: str) -> None:
    says = {
        "count": f"{count} experiments",
        "total": f"{hours}h total",
        "each": "1h each",
        "target": f"acc <= {value!r}",
    }
    rules = read(sep.join(says[name] for name in order))
    assert rules == Rules(experiments=count, total_s=hours * 3600.0, each_s=3600, target=("acc", "<=", value))


def test_every_form_in_the_manual_is_read() -> None:
    from tests.conftest import ROOT

    manual = (ROOT / "docs" / "stop-rules.md").read_text(encoding="utf-8")
    rows = [line for line in manual.splitlines() if line.startswith("| `")]
    forms = [form for row in rows for form in re.findall(r"`([^`]+)`", row)]
    assert len(forms) > 20
    for form in forms:
        assert not read(form).default or "each" in form or "per" in form or "各" in form or "ごと" in form
