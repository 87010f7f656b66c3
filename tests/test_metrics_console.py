"""Console logs of anybody: every shape that is read, every shape that is refused, and no text that fails."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from autoresearch import metrics

RELAXED = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], max_examples=60)


def read(path: Path, text: str | bytes, metric: str = "val_bpb", **more: object) -> metrics.Reading:
    """The reading of a log with this text; reading it all and only its end must agree on the last value."""
    log = path / "run.log"
    log.write_bytes(text if isinstance(text, bytes) else text.encode())
    where = metrics.Where(str(log), str(path / "logs"), "", "", str(path))
    spec = metrics.Spec(metric, str(more.pop("direction", "min")), **more)  # type: ignore[arg-type]
    whole, end = metrics.read(spec, where, whole=True), metrics.read(spec, where, whole=False)
    assert (whole.value, whole.text, whole.step) == (end.value, end.text, end.step)
    assert bool(whole.reason) == bool(end.reason)
    return whole


VALUES = {
    "val_bpb: 0.7421": "0.7421",
    "val_bpb=0.7421": "0.7421",
    "val_bpb 0.7421": "0.7421",
    "val_bpb\t0.7421": "0.7421",
    "val_bpb : 0.7421": "0.7421",
    '{"step": 3, "val_bpb": 0.7421}': "0.7421",
    "{'val_bpb': 0.7421, 'x': 1}": "0.7421",
    '{\\"val_bpb\\": 0.7421}': "0.7421",
    "val_bpb=[77.]": "77",
    "| val_bpb   | 0.7421 |": "0.7421",
    "│ val_bpb   │ 0.7421 │": "0.7421",
    "val_bpb: 6.05e-06": "6.05e-06",
    "val_bpb: 6.05E-06, lr 1": "6.05E-06",
    "val_bpb: -0.0": "-0.0",
    "val_bpb: .5": "0.5",
    "val_bpb: 0.5.": "0.5",
    "val_bpb: 0.5, x: 4": "0.5",
    "val_bpb: 0.5,x=4": "0.5",
    "val_bpb: 0.5 (best 0.4)": "0.5",
    "(epoch 3, val_bpb 0.5): 4 h": "0.5",
    "| step | 3 | val_bpb | 0.5 | lr | 0.1 |": "0.5",
    "val_bpb: 0.5 12:30:01": "0.5",
    "val_bpb: 0.5 2026-03-24 10%|# | 1/10": "0.5",
    "val_bpb 0.5 1234 tok/s": "0.5",
    "val_bpb: 0.5 + 0.01": "0.5",
    "val_bpb: 0.5±0.1": "0.5",
    "val_bpb ...... 0.5": "0.5",
    "val_bpb -> 0.5": "0.5",
    "val_bpb: tensor(0.5, device='cuda:0')": "0.5",
    "'val_bpb': np.float64(0.5)}": "0.5",
    "INFO:root:val_bpb: 0.5": "0.5",
    "2026-03-24 09:00:11 INFO val_bpb: 0.5": "0.5",
    "[rank0] val_bpb: 0.5 tokens: 8": "0.5",
    "final val_bpb: 0.5": "0.5",
    "val_bpb：0.5": "0.5",
    "検証 val_bpb ＝ 0.5": "0.5",
    "9.9it/s val_bpb: 0.5": "0.5",
    "phase=train val_bpb=0.5 checkpoint=last.ckpt": "0.5",
    "- **val_bpb**: 0.5": "0.5",
    "**val_bpb:** 0.5": "0.5",
    "val_bpb: **0.5** (best **0.4**)": "0.5",
    "lm loss: 1.234E+01 | val_bpb: 5.0E-01 | grad norm: 0.5": "5.0E-01",
    "val_bpb: \x1b[32m0.5\x1b[0m": "0.5",
    "\x1b[1mval_bpb\x1b[0m: \x1b[1;32m0.5\x1b[0m": "0.5",
    "\x1b]8;;http://host/val_bpb=9\x1b\\val_bpb\x1b]8;;\x1b\\: 0.5": "0.5",
    "\x1b[36m(train pid=12)\x1b[0m val_bpb: 0.5\x1b[32m [repeated 3x across cluster]\x1b[0m": "0.5",
    "\rEpoch 1: 10%|# | 1/10 [00:01, val_bpb=0.9]\rEpoch 1: 20%|## | 2/10 [00:02, val_bpb=0.5]": "0.5",
}


@pytest.mark.parametrize("line", VALUES)
@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_shapes_that_are_read(tmp_path: Path, line: str, end: str) -> None:
    reading = read(tmp_path, f"val_bpb: 0.25{end or chr(10)}{line}{end}")
    assert reading.text == VALUES[line]
    assert reading.value == float(VALUES[line])
    assert reading.source.startswith("console run.log:2")


REFUSED = {
    "val_bpb: 45.6%": "percent",
    "val_bpb: 45.6 %": "percent",
    "val_bpb: 1,234.5": "thousands",
    "val_bpb: 12ms": "unit",
    "val_bpb: 12 ms": "unit",
    "val_bpb: 12 ms, other: 3": "unit",
    "val_bpb: 0.5 it/s": "unit",
    "val_bpb: 12.3 k": "unit",
    "val_bpb: 1.5 M, other: 3": "unit",
    "val_bpb: 250 images/sec": "unit",
    "val_bpb: 2.5 kB": "unit",
    "val_bpb: 3.2 s/it": "unit",
    "val_bpb: 12 GB/80 GB": "unit",
    "val_bpb: 2 minutes 30 seconds": "unit",
    "val_bpb: 1 day 2:03:04": "unit",
    "val_bpb: 45/60": "ratio",
    "val_bpb: 45 / 60 (75%)": "ratio",
    "val_bpb: 45 of 60": "ratio",
    "val_bpb: 2^10": "part of a number",
    "val_bpb: 2 x 10^-3": "part of a number",
    "val_bpb: 1'234": "part of a number",
    "val_bpb: 1_000": "part of a number",
    "val_bpb: 1.2.3": "part of a number",
    "val_bpb: 2024-01-02": "part of a number",
    "val_bpb: 12:30": "part of a number",
    "val_bpb: 0x1p3": "part of a number",
    "val_bpb: 12,34": "part of a number",
    "│ val_bpb │ 0.74… │": "part of a number",
    "val_bpb: [0.1, 0.2]": "several numbers",
    "val_bpb: array([0.1 0.2])": "several numbers",
    "val_bpb | 0.5 | 0.6": "several numbers",
    "val_bpb: 0.9 -> 0.8": "several numbers",
    "val_bpb: 0.9 to 0.8": "several numbers",
    "val_bpb: [0.9": "several numbers",
    "val_bpb: 0.9 0.8": "several numbers",
    "val_bpb: 0.9, 0.8": "several numbers",
    "val_bpb: 1 234 567": "several numbers",
    "val_bpb 1 0.8 val_bpb_5 0.9": "several numbers",
    "|val_bpb|  3|none|0.7|±  |0.01|": "several numbers",
}


@pytest.mark.parametrize("line", REFUSED)
def test_shapes_that_are_refused_by_name(tmp_path: Path, line: str) -> None:
    reading = read(tmp_path, f"val_bpb: 0.25\n{line}\n")
    assert reading.value is None
    assert reading.reason.startswith(REFUSED[line] + ":")


@pytest.mark.parametrize(
    "line",
    [
        "best_val_bpb: 0.1",
        "val_bpb_ema: 0.1",
        "val_bpb/ema: 0.1",
        "train/val_bpb: 0.1",
        "best val_bpb: 0.1",
        '{"message": "best val_bpb: 0.1"}',
        "**Best val_bpb: 0.1**",
        "[INFO]best val_bpb: 0.1",
        "valid_0's val_bpb: 0.1",
        "Best model val_bpb: 0.1",
        "max val_bpb 0.9 min val_bpb 0.1",
        "saved val_bpb=0.10.ckpt",
        "saved 'epoch=3 val_bpb=0.10-v1.ckpt'",
        "val_bpb ** 2 = 0.1",
        "val_bpb ema: 0.1",
        "val_bpb 5: 0.1",
        "val_bpb[5]: 0.1",
        "val_bpb (5) = 0.1",
        "val_bpb[5] 0.1",
        "train's val_bpb: 0.1",
        "--val_bpb 3",
        "val_bpb: None",
        "val_bpb: nanometres",
        "val_bpb: info",
        "val_bpb: ０.１",
        "val_bpb",
        "val_bpb:",
    ],
)
def test_what_is_not_this_metric(tmp_path: Path, line: str) -> None:
    assert read(tmp_path, f"val_bpb: 0.25\n{line}\n").text == "0.25"
    assert read(tmp_path, f"{line}\n").value is None


def test_a_unit_in_front_is_no_part_of_the_name(tmp_path: Path) -> None:
    assert read(tmp_path, "step 3 time 12.5 s loss 0.5\n", "loss").text == "0.5"
    assert read(tmp_path, "memory allocated: 30862 MiB reserved: 41894\n", "reserved").text == "41894"
    assert read(tmp_path, "3.1 it/s loss: 0.5\n", "loss").text == "0.5"
    assert read(tmp_path, "5 policy loss: 0.5\n", "loss").value is None
    assert read(tmp_path, "max loss 1.0 min loss 0.5\n", "loss").value is None
    assert read(tmp_path, "s loss: 0.5\n", "loss").value is None


def test_many_values_that_cannot_be_taken_cost_what_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from autoresearch.metrics import console

    asked = []
    judge = console.Judge.__call__
    monkeypatch.setattr(console.Judge, "__call__", lambda *of: asked.append(1) or judge(*of))
    log = tmp_path / "run.log"
    log.write_text("tps: 8,123\n" * 10_000)
    where = metrics.Where(str(log), "", "", "", "")
    assert metrics.read(metrics.Spec("tps", "max"), where, whole=True).reason.startswith("thousands")
    assert len(asked) == 1


def test_a_time_of_two_units_among_many_lines_is_not_half_taken(tmp_path: Path) -> None:
    assert read(tmp_path, "took 1 min 3\n" * 200 + "took 2 min 30 s\n", "took").reason.startswith("unit:")


def test_longer_names_are_offered(tmp_path: Path) -> None:
    reading = read(tmp_path, "train loss: 0.5\ntest loss: 0.6\n", "loss")
    assert reading.value is None
    assert '"train loss"' in reading.reason
    assert '"test loss"' in reading.reason
    assert read(tmp_path, "train loss: 0.5\ntest loss: 0.6\n", "test loss").text == "0.6"


@pytest.mark.parametrize(
    "spelling", ["nan", "NaN", "NAN", "-nan(ind)", "1.#QNAN", "inf", "-inf", "Infinity", "1e999", "tensor(nan)"]
)
@pytest.mark.parametrize("at", ["last", "best", "min", "max", "mean:1", "step:1"])
def test_never_an_earlier_good_value(tmp_path: Path, spelling: str, at: str) -> None:
    reading = read(tmp_path, f"step 1 val_bpb: 0.25\nstep 2 val_bpb: {spelling}\nother: 3\n", at=at)
    assert reading.value is None
    assert reading.reason.startswith("diverged: ")


def test_declared_readings(tmp_path: Path) -> None:
    assert read(tmp_path, "val_bpb: 45.6%\n", options=("percent",)).value == 45.6
    assert read(tmp_path, "val_bpb: 45.6 %\n", options=("fraction",)).text == "0.456"
    assert read(tmp_path, "val_bpb: 0.456\n", options=("fraction",)).reason.startswith("percent:")
    assert read(tmp_path, "val_bpb: 1,234,567.5\n", options=("thousands",)).value == 1234567.5
    assert read(tmp_path, "val_bpb: 12 ms\n", options=("unit:ms",)).value == 12
    assert read(tmp_path, "val_bpb: 12 s\n", options=("unit:ms",)).reason.startswith("unit:")
    assert read(tmp_path, "val_bpb: 12 nats\n", options=("unit:nats",)).value == 12
    assert read(tmp_path, "val_bpb: 12.5GiB(15.5%)\n").reason.endswith("METRIC_OPTIONS=unit:GiB drops it")
    assert read(tmp_path, "val_bpb: nan%\n", options=("percent",)).reason.startswith("diverged")


def test_steps_come_along(tmp_path: Path) -> None:
    assert read(tmp_path, "step 7 loss 3 val_bpb: 0.5\n").step == 7
    assert read(tmp_path, "epoch=3 step=10/20, val_bpb=0.5\n").step == 10
    assert read(tmp_path, "val_bpb: 0.5 at global_step: 12\n").step == 12
    assert read(tmp_path, "Epoch 3, val_bpb: 0.5\n").step == 3
    assert read(tmp_path, "\x1b[31mstep: 7 \x1b[32mval_bpb: 0.5\x1b[39m\n").step == 7
    assert read(tmp_path, "val_bpb: 0.5\n").step is None
    assert read(tmp_path, "step 1,000 val_bpb: 0.5\n").step is None
    assert read(tmp_path, "step 99999999999999999999 val_bpb: 0.5\n").step is None


def test_columns_of_a_table(tmp_path: Path) -> None:
    table = "| epoch | loss | val_bpb |\n|---|---|---|\n| 1 | 0.5 | 0.9 |\n| 2 | 0.4 | 0.8 |\n"
    reading = read(tmp_path, "start\n" + table + "\ndone\n")
    assert (reading.text, reading.step, reading.n_values) == ("0.8", 2, 2)
    assert read(tmp_path, table + "| 3 | 0.4 | nan |\n").reason.startswith("diverged")


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ("|  | 0.3 | 0.7 |\n", "0.7"),  # a group's name stands in its first row only
        ("saved a checkpoint\n| 3 | 0.3 | 0.7 |\n", "0.7"),
        ("\n| step | lr | mem |\n| 3 | 0.3 | 0.7 |\n", "0.8"),  # another table
        ("\n| step | val_bpb |\n| 3 | 0.7 |\n", "0.7"),
        ("| 3 | 0.3 |  |\n", "0.8"),
        ("| 3 | 0.3 | **0.7** |\n", "0.7"),
        ("\n| step | **val_bpb** |\n| 3 | 0.7 |\n", "0.7"),
    ],
)
def test_a_table_goes_on_up_to_another_one(tmp_path: Path, more: str, text: str) -> None:
    table = "| epoch | loss | val_bpb |\n|---|---|---|\n| 1 | 0.5 | 0.9 |\n| 2 | 0.4 | 0.8 |\n"
    assert read(tmp_path, table + more).text == text


@pytest.mark.parametrize("table", ["| epoch | val_bpb |\n| 1 | 0.5 0.6 |\n", "| val_bpb | val_bpb |\n| 1 | 0.5 |\n"])
def test_a_cell_or_a_head_that_is_not_one(tmp_path: Path, table: str) -> None:
    assert read(tmp_path, table).reason.startswith("several numbers")


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    assert read(tmp_path, b"\xff\xfe val_bpb: 0.5\r\n\xc3(\x00\r\n").text == "0.5"
    assert read(tmp_path, "x" * 200_000 + " val_bpb: 0.5 " + "y" * 200_000 + "\n").text == "0.5"
    assert read(tmp_path, b"").reason


def test_hits_around_piece_borders(tmp_path: Path) -> None:
    border = 1 << 20
    for shift in (-20, -12, -9, -4, 0, 3):
        text = ("z" * 99 + "\n") * 10486
        text = text[: border + shift - 1] + "\nval_bpb: 0.5421\n" + text[:1000]
        assert read(tmp_path, text).text == "0.5421"


PRINTED = st.sampled_from(["{!r}", "{:.17g}", "{:.6f}", "{:.4f}", "{:.3e}", "{:+.5g}", "{:E}", "{:g}"])
AROUND = st.sampled_from(
    [
        "val_bpb: {}\n",
        "val_bpb={}\n",
        "step 3 val_bpb {}\n",
        '{{"val_bpb": {}, "x": 1}}\n',
        "| val_bpb | {} |\n",
        "val_bpb=[{}]\r\n",
        "\x1b[36m(w pid=1)\x1b[0m val_bpb: {}\n",
        "\rbar 10% val_bpb={}, x=2\r",
        "val_bpb: {}",
    ]
)


@RELAXED
@given(st.floats(allow_nan=False, allow_infinity=False), PRINTED, AROUND)
def test_any_finite_float_in_any_format_is_read_back(tmp_path: Path, value: float, form: str, around: str) -> None:
    printed = form.format(value)
    assume(math.isfinite(float(printed)))  # four digits may round the largest floats up to infinity
    reading = read(tmp_path, "noise\n" + around.format(printed))
    assert reading.value == float(printed)
    assert float(reading.text) == float(printed)


@RELAXED
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=30),
            st.sampled_from(
                [
                    b"val_bpb",
                    b": ",
                    b"0.5",
                    b"\n",
                    b"\r",
                    b"\x1b[1m",
                    b"|",
                    b"nan",
                    b"%",
                    b"1,234",
                    b"step 3 ",
                    "📊 Validation Results:\n".encode(),
                ]
            ),
        ),
        max_size=40,
    )
)
def test_no_bytes_make_the_reader_fail(tmp_path: Path, parts: list[bytes]) -> None:
    for metric in ("val_bpb", "val:bpb", r"log:/bpb\W+(\S+)/"):
        log = tmp_path / "run.log"
        log.write_bytes(b"".join(parts))
        where = metrics.Where(str(log), "", "", "", "")
        for whole in (True, False):
            reading = metrics.read(metrics.Spec(metric, "min"), where, whole=whole)
            assert (reading.value is None) == bool(reading.reason)
            assert reading.value is None or math.isfinite(reading.value)
        metrics.tail_hint(str(log))


@pytest.mark.parametrize("end", ["\n", "\r"])
def test_time_is_linear_and_memory_small(tmp_path: Path, end: str) -> None:
    log = tmp_path / "run.log"
    line = f"step 12 loss 2.5 val_bpb_ema: 0.5 grad 1.0{end}"
    log.write_text(line * 1_000_000 + f"val_bpb: 0.5{end}" + line * 10)
    code = (
        "import sys, time; from autoresearch import metrics as m\n"
        "w = m.Where(sys.argv[1], '', '', '', ''); s = m.Spec('log:val_bpb', 'min'); t = time.process_time()\n"
        "assert m.read(s, w, whole=False).value == 0.5; a = time.process_time() - t\n"
        "assert m.read(m.Spec('log:absent', 'min'), w, whole=True).value is None\n"
        "peak = [line for line in open('/proc/self/status') if line.startswith('VmHWM')][0].split()[1]\n"
        "print(a, int(peak) // 1024)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(log)], check=True, capture_output=True, text=True)
    seconds, megabytes = map(float, done.stdout.split())
    assert seconds < 0.5
    assert megabytes < 64


def test_the_hot_path_imports_little() -> None:
    code = (
        "import sys; from autoresearch import metrics as m\n"
        "m.read(m.Spec('val_bpb', 'min'), m.Where('/nowhere/run.log', '', '', '', ''))\n"
        "bad = {'json', 'sqlite3', 'csv', 'subprocess', 'pathlib', 'dataclasses', 'argparse', 'numpy', 'yaml'}\n"
        "print(sorted(bad & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {os.getcwd()!r})\n" + code],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
