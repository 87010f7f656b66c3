"""Reading all values of big logs: the shortcut agrees with the judgement, and holds nothing in memory."""

from __future__ import annotations

import math
import os
import random
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from autoresearch import metrics
from autoresearch.metrics import aggregate, backwards, bulk, child, console, sweep, template

RELAXED = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], max_examples=150)

LINES = (
    "step {i} loss 2.5 NAME: 0.{i}",
    "step {i}: NAME: 0.{i} lr 3e-4",
    "step={i}, NAME=0.{i}, lr=1e-4",
    "NAME: 0.{i} step: {i}",
    "NAME: 0.{i}",
    "NAME 0.{i}",
    "NAME: 1.{i}e-0{d}",
    "NAME: -{i}",
    "Epoch {i} | NAME: 0.{i} | lr 1",
    "Epoch {d}, step {i}, NAME: 0.{i}",
    "step 1 then step {i}, NAME: 0.{i}",
    "10:0{d}:59 it {i} NAME=0.{i} (best 0.1)",
    "step {d} NAME: 0.{i}",
    "final NAME: 0.{i}",
    "eval NAME: 0.{i}",
    "best NAME: 0.{i}",
    "best_NAME: 0.{i}",
    "NAME_ema: 0.{i} NAME: 1.{i}",
    "train NAME: 0.{i}",
    "NAME/x: 0.{i}",
    "NAME.x: 0.{i}",
    "x-NAME: 0.{i}",
    "top{d} NAME: 0.{i}",
    "step {i} top1 NAME: 0.{i}",
    "step/{d} NAME: 0.{i}",
    "at {i}.5 NAME: 0.{i}",
    "step {i} NAME: 0.{i} ms",
    "step {i} NAME: {i} s",
    "step {i} NAME: {i} h: 3",
    "NAME: {i} tokens {i}",
    "NAME: {i} tokens left",
    "NAME: {i} tokens -{i}",
    "step {i} NAME: 0.{i}%",
    "step {i} NAME: 0.{i} %",
    "iter {i} step {i}5 NAME: 0.{i}",
    "step {i} NAME: nan",
    "step {i}: NAME: nan lr 3e-4",
    "step {i}: NAME: -inf lr 3e-4",
    "step {i}: NAME: 1e999 lr 3e-4",
    "NAME: 1,{i}",
    "NAME: 1,00{d}, x",
    "NAME: 1_000",
    "NAME: {i}-01-02",
    "NAME: 0.{i} -> 0.1",
    "NAME: [0.1, 0.{i}]",
    "NAME: [0.{i}]",
    "NAME: None",
    "NAME: 0.{i}, NAME: 0.5",
    "| NAME | 0.{i} |",
    "| NAME | 0.{i} | 0.1 |",
    "| step | NAME |",
    "| {i} | 0.{i} |",
    '{{"step": {i}, "NAME": 0.{i}, "x": 1}}',
    '{{"NAME":0.{i},"x":1}}',
    "{{'NAME': 0.{i}}}",
    "\x1b[36m(w pid=1)\x1b[0m NAME: 0.{i}",
    "\x1b]8;;http://h/ NAME: 9 lr\x1b\\text",
    "NAME: \x1b[32m0.{i}\x1b[0m",
    "\x1b[36mstep {i}\x1b[0m \x1b[1mNAME\x1b[0m: \x1b[32m0.{i}\x1b[0m",
    "NAME: 0.{i} \x1b[1",
    "\rbar 10% NAME=0.{i}, x=2\r",
    "bar: {d}%|#| {i}/100 [00:01, NAME=0.{i}]",
    "NAME: {i}/60",
    "NAME: 0.{i}\u00b5s",
    "NAME: 0.{i} it/s",
    "globalstep {i} NAME: 0.{i}",
    "step {i}% NAME: 0.{i}",
    "\u00e9 NAME: 0.{i}",
    "x\u00e9NAME: 0.{i}",
    "=" * 700 + " NAME: 0.{i}",
    "no value here",
    "",
)
NAMES = st.sampled_from(["val_bpb", "bpb", "loss", "val/acc", "test loss", "a", "e", "nan", "a a", "%x", "5"])
ENDS = st.sampled_from(["\n", "\r\n", "\r", " \n", ". "])


def _log(path: Path, shapes: list[str], name: str, end: str, seed: int, *, shuffled: bool) -> str:
    draw = random.Random(seed)
    rows = [draw.choice(shapes) if shuffled else shapes[i % len(shapes)] for i in range(200)]
    text = end.join(row.format(i=i, d=i % 10).replace("NAME", name) for i, row in enumerate(rows))
    log = path / "run.log"
    log.write_bytes(text.encode() + (end.encode() if seed % 2 else b""))
    return str(log)


@contextmanager
def patched(**values: int) -> Iterator[None]:
    """Small pieces, so that a small log has many; or no learning at all."""
    places = {
        "DENSE": console,
        "FEW": bulk,
        "PIECE": backwards,
        "KEPT": sweep,
        "JUDGED": backwards,
        "WORTH": child,
        "SENT": sweep,
    }
    before = {name: getattr(places[name], name) for name in values}
    try:
        for name, value in values.items():
            setattr(places[name], name, value)
        yield
    finally:
        for name, one in before.items():
            setattr(places[name], name, one)


def everything(name: str, log: str) -> tuple[object, ...]:
    """All that a reader can learn, nan made comparable."""
    found = console.find(name, log)
    values, steps = list(found.values), [None if step == aggregate.NO_STEP else step for step in found.steps]
    places = [found.locate(i) for i in range(0, len(values), 7)] if found.locate else []
    readings = [repr(aggregate.reading("m", found, at, way)) for at in ("best", "mean:3") for way in ("max", "min")]
    said = [reading.partition("; there is ")[0] for reading in readings]  # which other names are offered may differ
    return repr(values), steps, places, found.faults, said


@RELAXED
@given(
    st.lists(st.sampled_from(LINES), min_size=1, max_size=4),
    NAMES,
    ENDS,
    st.integers(0, 9),
    st.booleans(),
    st.sampled_from([700, 3000, 1 << 20]),
    st.integers(0, 5),
)
@example(["step {d} NAME: 0.{i}", "top{d} NAME: 0.{i}"], "loss", "\n", 1, False, 3000, 2)
@example(["step {d} NAME: 0.{i}", "step/{d} NAME: 0.{i}"], "loss", "\n", 1, False, 3000, 2)
@example(["NAME: {i} tokens -{i}", "NAME: {i} tokens left"], "loss", "\n", 1, False, 3000, 2)
@example(["final NAME: 0.{i}", "eval NAME: 0.{i}"], "val_bpb", "\n", 1, False, 3000, 2)
@example(["NAME: 0.{i}", "NAME: 0.{i} ms"], "val_bpb", "\n", 1, False, 3000, 2)
@example(["step {i} NAME: 0.{i}", "step 1 then step {i}, NAME: 0.{i}"], "val_bpb", "\n", 1, False, 3000, 2)
@example(["step {i} NAME: 0.{i}"], "val_bpb", "\n", 1, False, 1 << 20, 0)
@example(["step {i}: NAME: 0.{i} lr 3e-4", "step {i}: NAME: nan lr 3e-4"], "val_bpb", "\n", 1, False, 3000, 2)
@example(["step {i}: NAME: nan lr 3e-4"], "nan", "\n", 0, False, 700, 0)
@example(["bar: {d}%|#| {i}/100 [00:01, NAME=0.{i}]"], "loss", "\r", 0, False, 3000, 2)
@example(["NAME: \x1b[32m0.{i}\x1b[0m"], "loss", "\n", 0, False, 700, 0)
@example(["\x1b[36mstep {i}\x1b[0m \x1b[1mNAME\x1b[0m: \x1b[32m0.{i}\x1b[0m"], "loss", "\n", 0, False, 3000, 2)
def test_the_shortcut_agrees_with_the_judgement(
    tmp_path: Path, shapes: list[str], name: str, end: str, seed: int, shuffled: bool, piece: int, few: int
) -> None:
    log = _log(tmp_path, shapes, name, end, seed, shuffled=shuffled)
    with patched(PIECE=piece, DENSE=1, FEW=few, KEPT=100, SENT=100, WORTH=1):
        quick = everything(name, log)
    with patched(PIECE=piece, DENSE=10**9, FEW=10**9), pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(template.Learner, "steps", lambda *_: None)
        monkeypatch.setattr(console.Judge, "heads", property(lambda _: True, lambda *_: None), raising=False)
        assert quick == everything(name, log)


def last(name: str, log: str) -> tuple[object, ...]:
    """What a reader of the last value can learn."""
    found = console.find(name, log, whole=False)
    reading = aggregate.reading("m", found, "last", "max")
    return (
        repr(reading[:-1]),
        reading.reason.partition("; there is ")[0],
        found.faults,
        found.locate and found.locate(0),
    )


@RELAXED
@given(
    st.lists(st.sampled_from(LINES), min_size=1, max_size=3),
    NAMES,
    ENDS,
    st.integers(0, 9),
    st.sampled_from([700, 1 << 20]),
)
@example(["a a a 5"], "a a", "\n", 1, 700)
@example(["\x1b[1mNAME: 0.{i}", "\x1b[1mNAME_ema: 0.{i}"], "loss", "\n", 1, 700)
@example(["| step | NAME |", "| {i} | 0.{i} |", "NAME_ema: 0.{i}"], "loss", "\n", 1, 700)
def test_passing_over_longer_names_agrees_with_the_judgement(
    tmp_path: Path, shapes: list[str], name: str, end: str, seed: int, piece: int
) -> None:
    # The values are at the start, the longer names behind them.
    log = _log(tmp_path, shapes, name, end, seed, shuffled=False)
    with open(log, "a", encoding="utf-8") as file:
        file.writelines(f"{name}_ema: 0.{i}{end}best_{name}: 0.{i}{end}" for i in range(100))
    with patched(PIECE=piece, JUDGED=0, WORTH=700):
        quick = last(name, log)
    with patched(PIECE=piece, JUDGED=10**9), pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(console.Judge, "heads", property(lambda _: True, lambda *_: None), raising=False)
        assert quick == last(name, log)


def test_a_dense_line_is_learned() -> None:
    data = b"\nstep 1 loss 2.5 val_bpb: 0.5 lr 1\n"
    shape = template.learn(data, b"val_bpb", data.index(b"val_bpb"))[0]
    assert not shape.loose
    assert shape.pattern.findall(data + b"step 22 loss 3e-4 val_bpb: 0.6 lr 1\n") == [b"1", b"22"]


@pytest.mark.parametrize("line", [*LINES[:8]])
def test_plain_lines_are_not_judged_one_by_one(tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log = _log(tmp_path, [line], "val_bpb", "\n", 1, shuffled=False)
    asked: list[int] = []
    judge = console.Judge.__call__

    def counting(self: console.Judge, data: bytes, hit: int, base: int) -> console.Hit | None:
        asked.append(hit)
        return judge(self, data, hit, base)

    monkeypatch.setattr(console.Judge, "__call__", counting)
    with patched(PIECE=1000, FEW=3):
        found = console.find("val_bpb", log, steps=False)
    assert len(found.values) == 200
    assert len(asked) < 100


def test_a_file_that_was_cut_since_gives_no_number_of_its_own(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("".join(f"val_bpb: 0.{i}\n" for i in range(400)))
    with patched(PIECE=700, KEPT=0):
        found = console.find("val_bpb", str(log))
        log.write_text("")
        assert math.isnan(found.values[3])
        assert found.steps[3] == aggregate.NO_STEP
        assert found.locate is not None
        assert found.locate(3)[1:] == ("", None)
        log.unlink()
        assert len(list(found.values)) == 400
        assert aggregate.reading("m", found, "mean:400", "min").value is None


@pytest.mark.parametrize("trouble", ["none", "no fork", "killed", "rubbish"])
def test_two_halves_are_one_log(tmp_path: Path, trouble: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log = _log(tmp_path, [*LINES[:8], "NAME: 5 ms", "val_xyz: 1", "eval NAME: 3"], "val_bpb", "\n", 1, shuffled=True)
    with patched(PIECE=300, KEPT=50, SENT=20):
        whole = everything("val_bpb", log)
    came: list[int | None] = []
    finish = child.finish

    def finished(one: child.Child, limit_s: float | None = None) -> tuple[bytes, int | None]:
        if trouble == "killed":
            os.kill(one.pid, signal.SIGKILL)
        data, code = finish(one, limit_s)
        came.append(code)
        return (b"(" if trouble == "rubbish" else b"" if trouble == "killed" else data), code

    def refused() -> int:
        raise BlockingIOError

    monkeypatch.setattr(child, "finish", finished)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    if trouble == "no fork":
        monkeypatch.setattr(os, "fork", refused)
    with patched(PIECE=300, KEPT=50, SENT=20, WORTH=1):
        assert everything("val_bpb", log) == whole
    assert len(came) == (trouble != "no fork")
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_a_child_does_not_outlive_its_parent() -> None:
    out, into = os.pipe()
    code = (
        "import os, signal, sys; from autoresearch.metrics import child\n"
        "child.start(lambda: iter(int, 1))\n"  # works for ever, and holds our pipe
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code], check=False, pass_fds=[into])
    os.close(into)
    with open(out, "rb") as held:
        assert select.select([held], [], [], 10)[0]
        assert held.read() == b""


def test_ten_million_values_in_little_memory(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    block = "".join(f"step {i}: val_bpb: 0.{i:06d} lr 1\n" for i in range(10_000))
    log.write_text(block * 200)
    code = (
        "import sys; from autoresearch import metrics as m\n"
        "w = m.Where(sys.argv[1], '', '', '', '')\n"
        "for at in ('last', 'best', 'mean:50000', 'median:500', 'step:77'):\n"
        "    assert m.read(m.Spec('log:val_bpb', 'min', at), w, whole=True).value is not None\n"
        "assert m.read(m.Spec('log:val_bpb', 'min'), w, whole=True).n_values == 2_000_000\n"
        "points = m.series(m.Spec('log:val_bpb', 'min'), w)\n"
        "assert sum(1 for point in points if point.step == 77) == 200\n"
        "peak = [line for line in open('/proc/self/status') if line.startswith('VmHWM')][0].split()[1]\n"
        "print(int(peak) // 1024)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(log)], check=True, capture_output=True, text=True)
    assert int(done.stdout) < 64


def test_a_curve_is_a_sequence(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("".join(f"step {i} val_bpb: {i}\n" for i in range(100)) + "val_bpb: nan\n")
    curve = metrics.series(metrics.Spec("val_bpb", "min"), metrics.Where(str(log), "", "", "", ""))
    assert curve[:2] == [metrics.Point(0, 0.0), metrics.Point(1, 1.0)]
    assert len(curve) == 101
    assert curve[-1].step is None
    assert math.isnan(curve[-1].value)
    assert [point.step for point in curve][98:] == [98, 99, None]
    assert curve != curve[:-1]
    with pytest.raises(IndexError):
        curve[101]


@RELAXED
@given(st.text("ab ", max_size=60), st.text("abc", min_size=1, max_size=3), st.integers(0, 70), st.integers(0, 70))
def test_seeking_by_a_letter_is_rfind(text: str, needle: str, first: int, stop: int) -> None:
    data, wanted = text.encode(), needle.encode()
    for _ in range(3):
        assert backwards.Seeker(wanted).last(data, first, stop) == data.rfind(wanted, first, stop)
