"""Event files, record files, trackers and programs: own readers against files built here byte by byte."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import struct
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoresearch import metrics
from autoresearch.errors import Usage
from autoresearch.metrics import tensorboard, wandb

RELAXED = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], max_examples=50)


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while True:
        out.append(value & 127 | (128 if value > 127 else 0))
        value >>= 7
        if not value:
            return bytes(out)


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def simple(tag: str, step: int, value: float, time: float = 1.7e9) -> bytes:
    scalar = field(1, tag.encode()) + b"\x15" + struct.pack("<f", value)
    return event(step, field(5, field(1, scalar)), time)


def event(step: int, summary: bytes, time: float = 1.7e9) -> bytes:
    body = b"\x09" + struct.pack("<d", time) + (b"\x10" + varint(step) if step else b"") + summary
    return struct.pack("<Q", len(body)) + b"\0\0\0\0" + body + b"\0\0\0\0"


def write_events(path: Path, *events: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(event(0, field(3, b"brain.Event:2")) + b"".join(events))
    return path


def where(path: Path, **more: object) -> metrics.Where:
    base = metrics.Where(str(path / "run.log"), str(path), str(path / "ckpt"), str(path / "artifacts"), str(path))
    return base._replace(**more)  # type: ignore[arg-type]


def read(path: Path, metric: str, **more: str) -> metrics.Reading:
    return metrics.read(metrics.Spec(metric, more.pop("direction", "max"), **more), where(path))  # type: ignore[arg-type]


def test_tensorboard_scalars(tmp_path: Path) -> None:
    steps = [0, 1, 127, 128, 16_383, 16_384, 3_000_000, 2**40]
    rows = [part for n, step in enumerate(steps) for part in (simple("a/b", step, n / 8), simple("a/bc", step, 99))]
    write_events(tmp_path / "exp_001" / "tensorboard" / "events.out.tfevents.1.h.1.0", *rows)
    reading = read(tmp_path, "tensorboard:a/b")
    assert (reading.value, reading.step, reading.n_values) == (7 / 8, 2**40, len(steps))
    points = metrics.series(metrics.Spec("tensorboard:a/b", "max"), where(tmp_path))
    assert points == [metrics.Point(step, n / 8) for n, step in enumerate(steps)]
    assert "a/b, a/bc" in read(tmp_path, "tensorboard:a").reason


def test_single_precision_means_the_short_number(tmp_path: Path) -> None:
    write_events(tmp_path / "x.tfevents.1", simple("acc", 1, 0.7))
    reading = read(tmp_path, "tensorboard:acc")
    assert (reading.value, reading.text) == (0.7, "0.7")


@pytest.mark.parametrize(
    ("tensor", "value"),
    [
        (b"\x08\x01" + field(4, struct.pack("<f", 0.5)), 0.5),
        (b"\x08\x02" + field(4, struct.pack("<d", 0.1)), 0.1),
        (b"\x08\x01" + field(5, struct.pack("<f", 0.25)), 0.25),
        (b"\x08\x02" + field(6, struct.pack("<d", 0.1)), 0.1),
        (b"\x08\x09" + field(10, varint(7)), 7.0),
        (b"\x08\x03" + field(7, varint(-3)), -3.0),
    ],
)
def test_tensor_scalars_of_tensorflow_2(tmp_path: Path, tensor: bytes, value: float) -> None:
    scalar = field(5, field(1, field(1, b"acc") + field(8, tensor) + field(9, field(1, field(1, b"scalars")))))
    write_events(tmp_path / "x.tfevents.1", event(3, scalar))
    assert read(tmp_path, "tensorboard:acc").value == value


def test_every_cut_of_an_event_file_is_read_up_to_there(tmp_path: Path) -> None:
    path = write_events(tmp_path / "x.tfevents.1", *(simple("acc", n, n) for n in range(1, 6)))
    whole = path.read_bytes()
    last = 0
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        series = tensorboard.read(str(path), "acc")
        assert list(series.steps) == list(range(1, len(series.steps) + 1))
        assert len(series.steps) >= last
        last = len(series.steps)
    assert last == 5


@RELAXED
@given(st.binary(max_size=300), st.integers(0, 300))
def test_no_bytes_make_the_event_reader_fail(tmp_path: Path, noise: bytes, at: int) -> None:
    good = simple("acc", 1, 1) + simple("acc", 200, 2)
    path = tmp_path / "x.tfevents.1"
    path.write_bytes(good[:at] + noise + good[at:])
    tensorboard.read(str(path), "acc")
    tensorboard.tags(str(path))
    path.write_bytes(struct.pack("<Q", len(noise)) + b"....acc"[:4] + noise + b"...." + good)
    assert list(tensorboard.read(str(path), "acc").steps)[-2:] == [1, 200]


def test_pieces_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorboard, "PIECE", 97)
    path = write_events(tmp_path / "x.tfevents.1", *(simple("acc", n, n) for n in range(1, 400)))
    assert list(tensorboard.read(str(path), "acc").values) == list(range(1, 400))


def test_a_restarted_run_overrides_its_steps(tmp_path: Path) -> None:
    first = write_events(tmp_path / "a.tfevents.1", *(simple("acc", n, 1) for n in (1, 2, 3)))
    os.utime(first, (time.time() - 9, time.time() - 9))
    write_events(tmp_path / "b.tfevents.2", *(simple("acc", n, 2) for n in (3, 4)))
    points = metrics.series(metrics.Spec("tensorboard:acc", "max"), where(tmp_path))
    assert points == [metrics.Point(n, v) for n, v in ((1, 1.0), (2, 1.0), (3, 2.0), (4, 2.0))]


def test_runs_at_the_same_time_are_not_merged(tmp_path: Path) -> None:
    for run, begun in (("train", 10.0), ("validation", 11.0)):
        path = tmp_path / "tb" / run / "events.out.tfevents.1"
        write_events(path, *(simple("acc", step, begun / 100, begun + 3 * step) for step in (1, 2)))
        os.utime(path, (begun, begun))
    assert read(tmp_path, "tensorboard:acc").reason.startswith('several runs: "acc" is in train, validation at')
    assert read(tmp_path, "acc").reason.endswith("write tensorboard:validation/acc for that one")
    assert read(tmp_path, "tensorboard:train/acc").text == "0.1"
    assert read(tmp_path, "tensorboard:validation/acc").text == "0.11"
    (tmp_path / "run.log").write_text("acc: 0.7\n")
    assert read(tmp_path, "acc").text == "0.7"
    # One after the other: a run and its restart.
    first = tmp_path / "tb" / "train" / "events.out.tfevents.1"
    first.write_bytes(simple("acc", 1, 0.3, 1.0) + simple("acc", 2, 0.4, 2.0))
    os.utime(first, (2.0, 2.0))
    second = tmp_path / "tb" / "validation" / "events.out.tfevents.1"
    second.write_bytes(simple("acc", 2, 0.5, 3.0) + simple("acc", 3, 0.6, 4.0))
    assert read(tmp_path, "tensorboard:acc")[1:6] == (0.6, "0.6", 3, 0.6, 3)


def test_order_of_trust(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("step 4 val_accuracy: 0.5\n")
    assert read(tmp_path, "val_accuracy").source == "console run.log:1"
    info = tmp_path / "ckpt" / "step_4"
    info.mkdir(parents=True)
    (info / "training_info.json").write_text('{"val:accuracy": 0.51}')
    assert read(tmp_path, "val_accuracy").source == "checkpoint val_accuracy"
    write_events(tmp_path / "tb" / "x.tfevents.1", simple("validation/accuracy", 4, 0.52))
    reading = read(tmp_path, "val_accuracy")
    assert (reading.source, reading.text) == ("tensorboard validation/accuracy", "0.52")
    # Events that were never flushed must not hide what came after them.
    log.write_text("step 6 val_accuracy: 0.6\n")
    assert read(tmp_path, "val_accuracy").text == "0.6"
    log.write_text("step 6 val_accuracy: nan\n")
    assert read(tmp_path, "val_accuracy").reason == "diverged: nan at step 6"
    assert read(tmp_path, "tensorboard:validation/accuracy").text == "0.52"
    # Steps in one, epochs in the other; the last event was not flushed.
    events = [simple("validation/accuracy", step, 0.52) for step in (5000, 10000)]
    write_events(tmp_path / "tb" / "x.tfevents.1", *events)
    log.write_text("".join(f"epoch {epoch} val_accuracy: {text}\n" for epoch, text in ((1, 0.5), (2, 0.5), (3, "nan"))))
    assert read(tmp_path, "val_accuracy").reason == "diverged: nan at step 3"
    log.write_text("step 1000 val_accuracy: nan\n")  # long ago
    assert read(tmp_path, "val_accuracy").text == "0.52"


def test_an_empty_extraction_says_where_the_run_logged_to(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "run.log").write_text("x\n")
    write_events(tmp_path / "tree" / "out" / "exp_001" / "events.out.tfevents.1", simple("acc", 1, 0.5))
    place = where(tmp_path, logs=str(tmp_path / "logs"), tree=str(tmp_path / "tree"), started_at=1.0)
    reading = metrics.read(metrics.Spec("acc", "max"), place)
    assert reading.reason.endswith("the run logged to out/exp_001 in its tree, which only tensorboard:TAG reads")
    assert metrics.read(metrics.Spec("tensorboard:acc", "max"), place).text == "0.5"


def test_sets_of_dpo_map_to_tags(tmp_path: Path) -> None:
    write_events(tmp_path / "x.tfevents.1", simple("validation-default/loss", 4, 0.5), simple("train/loss", 4, 0.25))
    assert read(tmp_path, "val:validation-default_loss").text == "0.5"
    assert read(tmp_path, "train:loss").text == "0.25"
    assert "TensorBoard has validation-default/loss" in read(tmp_path, "val:accuracy").reason


def test_gpu_memory_is_the_most_of_any_device(tmp_path: Path) -> None:
    rows = [
        simple(f"ray/node.{n}.gpu.{g}.mem_gb", s, 40 + n + g + s / 8) for n in (0, 1) for g in (0, 1) for s in (0, 9)
    ]
    rows += [simple("ray/node.0.mem_gb", 1, 500), simple("ray/node.0.gpu.0.util", 1, 99)]
    rows += [simple("performance/tokens_per_sec_per_gpu", 3, 1840.5), simple("train/pct_zero_variance", 3, 0.125)]
    write_events(tmp_path / "x.tfevents.1", *rows)
    assert metrics.peak_gpu_memory(where(tmp_path)) == 43.125
    signals = metrics.signals_of(where(tmp_path))
    assert signals == {
        "tokens_per_second_per_gpu": 1840.5,
        "zero_variance_fraction": 0.125,
        "gpu_memory_gb": 43.125,
    }
    assert metrics.peak_gpu_memory(where(tmp_path / "none")) is None


def test_files_older_than_the_run_and_of_later_attempts(tmp_path: Path) -> None:
    old = write_events(tmp_path / "x.tfevents.1", simple("acc", 1, 1))
    os.utime(old, (1e9, 1e9))
    write_events(tmp_path / "2" / "y.tfevents.1", simple("acc", 1, 2))
    spec = metrics.Spec("tensorboard:acc", "max")
    reading = metrics.read(spec, where(tmp_path, started_at=2e9, artifacts="", tree=""))
    assert "before the run started" in reading.reason
    assert metrics.read(spec, where(tmp_path, artifacts="", tree="")).value == 1
    assert metrics.read(spec, where(tmp_path, logs=str(tmp_path / "2"), artifacts="", tree="")).value == 2


def test_json_lines(tmp_path: Path) -> None:
    rows = [{"step": n, "eval": {"loss": n / 4, "a.b": n}, "x": "0.5"} for n in (1, 2)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "m.jsonl").write_text(text + "not json\n" + '{"step": 3, "eval": {"lo')
    assert read(tmp_path, "jsonl:m.jsonl:eval.loss")[1:5] == (0.5, "0.5", 2, 0.5)
    assert read(tmp_path, "jsonl:m.jsonl:eval.a.b").value == 2
    assert read(tmp_path, "jsonl:m.jsonl:x").text == "0.5"
    assert read(tmp_path, "jsonl:m.jsonl:nope").reason == 'no "nope" in m.jsonl'
    assert "neither in" in read(tmp_path, "jsonl:n.jsonl:x").reason
    (tmp_path / "m.jsonl").write_text(text + '{"step": 3, "eval": {"loss": NaN}}\n{"eval": {"loss": true}}')
    assert read(tmp_path, "jsonl:m.jsonl:eval.loss").reason.startswith("not a number")
    (tmp_path / "m.jsonl").write_text(text + '{"step": 3, "eval": {"loss": NaN}}\n')
    assert read(tmp_path, "jsonl:m.jsonl:eval.loss").reason == "diverged: nan at step 3"


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    for name in ("m.jsonl", "run-1.wandb", "events.out.tfevents.1", "mlflow.db", "run.log"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "loop.jsonl").symlink_to("loop.jsonl")
    (tmp_path / "m.csv").mkdir()
    reasons = {
        "jsonl:m.jsonl:a": "it is no regular file",
        "jsonl:loop.jsonl:a": "loop.jsonl is neither",
        "csv:m.csv:a": "it is no regular file",
        "wandb:a": "no offline W&B run",
        "tensorboard:a": "no TensorBoard event file",
        "mlflow:a": "no MLflow store",
        "log:/a (.*)/": "it is no regular file",
        "a": "the log is empty",
    }
    for metric, reason in reasons.items():
        assert reason in read(tmp_path, metric).reason


def test_json_documents(tmp_path: Path) -> None:
    document = {"step": 7, "scores": {"val:acc": 0.5}, "tag/x": {"2": 0.1, "10": 0.3}, "list": [1, 2.5]}
    (tmp_path / "m.json").write_text(json.dumps(document))
    assert read(tmp_path, "json:m.json:scores.val:acc")[1:4] == (0.5, "0.5", 7)
    assert read(tmp_path, "json:m.json:tag/x")[1:4] == (0.3, "0.3", 10)
    assert read(tmp_path, "json:m.json:list").text == "2.5"
    assert read(tmp_path, "json:m.json:list.0").text == "1"
    (tmp_path / "m.json").write_text('{"a": 1')
    assert "not whole JSON" in read(tmp_path, "json:m.json:a").reason
    (tmp_path / "m.json").write_text('{"a": 1}\n{"a": 2}\n')
    assert "for JSON lines write jsonl:" in read(tmp_path, "json:m.json:a").reason


@pytest.mark.parametrize(("name", "mark"), [("m.csv", ","), ("m.tsv", "\t"), ("m.csv", ";")])
def test_csv(tmp_path: Path, name: str, mark: str) -> None:
    rows = [["epoch", "step", "val loss"], ["0", "1", "0.5"], ["0", "2", ""], ["1", "3", "0.25"], ["1", "4"]]
    (tmp_path / name).write_text("\ufeff" + "\n".join(mark.join(row) for row in rows))
    assert read(tmp_path, f"csv:{name}:val loss")[1:6] == (0.25, "0.25", 3, 0.5, 2)
    assert "it has epoch, step, val loss" in read(tmp_path, f"csv:{name}:loss").reason
    (tmp_path / name).write_text(f"step{mark}acc{mark}acc\n1{mark}0.5{mark}0.6\n")
    assert read(tmp_path, f"csv:{name}:acc").reason.startswith("several numbers: more than one column")


def test_csv_that_a_restart_or_other_code_goes_on_with(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("step,loss\n1,0.5\nstep,acc,loss\n2,0.9,0.25\n")
    assert read(tmp_path, "csv:m.csv:loss")[1:4] == (0.25, "0.25", 2)
    for more in ("2,0.9,0.25", "2,1,234"):
        (tmp_path / "m.csv").write_text(f"step,loss\n1,0.5\n{more}\n")
        assert "a row of 3 cells below 2 heads" in read(tmp_path, "csv:m.csv:loss").reason
    (tmp_path / "m.csv").write_text("step,loss,\n1,0.5,,\n")
    assert read(tmp_path, "csv:m.csv:loss").text == "0.5"


def test_the_end_of_a_path_that_several_files_have(tmp_path: Path) -> None:
    for at, name in enumerate(("version_1", "version_0", "version_10")):
        (tmp_path / "logs" / name).mkdir(parents=True)
        (tmp_path / "logs" / name / "m.csv").write_text(f"loss\n{at}\n")
        os.utime(tmp_path / "logs" / name / "m.csv", (1000 + at, 1000 + at))
    assert read(tmp_path, "csv:m.csv:loss").text == "2"
    (tmp_path / "logs" / "val").mkdir()
    (tmp_path / "logs" / "val" / "m.csv").write_text("loss\n7\n")
    assert read(tmp_path, "csv:m.csv:loss").reason.startswith("several files: version_")
    assert read(tmp_path, "csv:val/m.csv:loss").text == "7"


@RELAXED
@given(st.binary(max_size=200))
def test_no_bytes_make_record_readers_fail(tmp_path: Path, noise: bytes) -> None:
    for name, metric in (("m.csv", "csv:m.csv:a"), ("m.jsonl", "jsonl:m.jsonl:a"), ("m.json", "json:m.json:a")):
        (tmp_path / name).write_bytes((b"a,b\n" if name == "m.csv" else b"") + noise)
        read(tmp_path, metric)
    (tmp_path / "run-1.wandb").write_bytes(b":W&B\xe1\xbe\0" + noise)
    read(tmp_path, "wandb:a")


def wandb_file(*rows: dict[str, object], block: int = wandb.BLOCK) -> bytes:
    """An offline file: each row one record, cut into chunks at the block borders."""
    out = bytearray(b":W&B" + struct.pack("<HB", 0xBEE1, 0))
    for row in rows:
        items = b"".join(field(1, field(1, key.encode()) + field(16, json.dumps(row[key]).encode())) for key in row)
        record, first = field(2, items), True
        while first or record:
            left = block - len(out) % block
            if left < 8:
                out += bytes(left)
                continue
            part, record = record[: left - 7], record[left - 7 :]
            kind = (1 if first else 4) if not record else (2 if first else 3)
            out += b"\0\0\0\0" + struct.pack("<HB", len(part), kind) + part
            first = False
    return bytes(out)


def test_wandb_offline(tmp_path: Path) -> None:
    rows = [{"val/acc": n / 8, "note": "x" * 5000, "_step": n} for n in range(40)]
    data = wandb_file(*rows)
    path = tmp_path / "offline-run-1" / "run-abc.wandb"
    path.parent.mkdir()
    path.write_bytes(data)
    reading = read(tmp_path, "wandb:val/acc")
    assert (reading.value, reading.step, reading.n_values) == (39 / 8, 39, 40)
    path.write_bytes(data[: len(data) // 2])
    assert 0 < read(tmp_path, "wandb:val/acc").n_values < 40
    path.write_bytes(wandb_file({"val/acc": 0.5, "_step": 0}, {"val/acc": math.nan, "_step": 1}))
    assert read(tmp_path, "wandb:val/acc").reason == "diverged: nan at step 1"
    assert read(tmp_path, "wandb:none").reason == 'no "none" in the history of run-abc.wandb; it has val/acc'


def test_wandb_directory_beside_the_artifacts(tmp_path: Path) -> None:
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "run-1.wandb").write_bytes(wandb_file({"a": 1}))
    place = metrics.Where("", str(tmp_path / "logs"), "", str(tmp_path / "artifacts"), "")
    assert metrics.read(metrics.Spec("wandb:a", "max"), place).value == 1


def test_mlflow_sqlite(tmp_path: Path) -> None:
    store = sqlite3.connect(tmp_path / "mlflow.db")
    store.execute("create table runs (run_uuid text, start_time integer)")
    store.execute("create table metrics (run_uuid text, key text, value real, timestamp int, step int, is_nan int)")
    store.executemany("insert into runs values (?, ?)", [("old", 10_000), ("new", 60_000)])
    rows = [("old", 9.0, 1, 0), ("new", 0.5, 1, 0), ("new", 0.25, 2, 0)]
    store.executemany("insert into metrics values (?, 'acc', ?, 0, ?, ?)", rows)
    store.commit()
    assert read(tmp_path, "mlflow:acc")[1:6] == (0.25, "0.25", 2, 0.5, 2)
    late = metrics.read(metrics.Spec("mlflow:acc", "max"), where(tmp_path, started_at=100.0))
    assert late.value is None
    store.execute("insert into metrics values ('new', 'acc', 0, 0, 3, 1)")
    store.commit()
    assert read(tmp_path, "mlflow:acc").reason == "diverged: nan at step 3"
    store.execute("insert into metrics values ('new', 'acc', 1.7976931348623157e308, 0, 4, 0)")
    store.commit()
    store.close()
    assert read(tmp_path, "mlflow:acc").reason == "diverged: inf at step 4"


def test_a_store_of_mlflow_that_cannot_be_read(tmp_path: Path) -> None:
    store = sqlite3.connect(tmp_path / "mlflow.db")
    store.execute("create table runs (run_uuid text, start_time integer)")
    store.execute("create table metrics (run_uuid text, key text, value real, timestamp int, step int, is_nan int)")
    store.commit()
    store.close()
    whole = (tmp_path / "mlflow.db").read_bytes()
    for broken in (whole.replace(b"run_uuid", b"run_\xff\xa4id"), whole[:5000], b"SQLite format 3\0" + b"x" * 5000):
        (tmp_path / "mlflow.db").write_bytes(broken)
        assert "mlflow.db cannot be read" in read(tmp_path, "mlflow:acc").reason


def test_the_mlflow_run_that_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(root: Path, experiment: str, name: str, start: int, value: float) -> None:
        folder = root / experiment / name
        (folder / "metrics").mkdir(parents=True)
        (folder / "meta.yaml").write_text(f"run_id: {name}\nstart_time: {start}\n")
        (folder / "metrics" / "acc").write_text(f"1 {value} 1\n")

    run(tmp_path / "mlruns", "0", "a", 50_000, 0.1)
    run(tmp_path / "mlruns", "1", "b", 60_000, 0.2)
    assert read(tmp_path, "mlflow:acc").text == "0.2"  # the newest of all experiments
    run(tmp_path / "shared", "0", "c", 60_000, 0.3)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path / 'shared'}")
    spec, place = metrics.Spec("mlflow:acc", "max"), where(tmp_path / "mlruns", started_at=50.0)
    assert metrics.read(spec, place).text == "0.3"
    run(tmp_path / "shared", "0", "d", 61_000, 0.4)  # another attempt's, perhaps
    assert metrics.read(spec, place).reason.startswith("several runs: 2 with")
    # By hand the given file is meant, whatever else there is.
    with sqlite3.connect(tmp_path / "empty.db") as store:
        store.execute("create table runs (run_uuid text, start_time integer)")
    assert metrics.explain(str(tmp_path / "empty.db"), "acc").value is None


def test_mlflow_files(tmp_path: Path) -> None:
    run = tmp_path / "mlruns" / "0" / "abc"
    (run / "metrics" / "val").mkdir(parents=True)
    (run / "meta.yaml").write_text("run_id: abc\nstart_time: 60000\nstatus: 3\n")
    (run / "metrics" / "val" / "acc").write_text("1 0.5 1\n2 0.25 2\n3 0.9")
    assert read(tmp_path, "mlflow:val/acc")[1:6] == (0.25, "0.25", 2, 0.5, 2)
    assert 'no "none" in a run' in read(tmp_path, "mlflow:none").reason


def program(tmp_path: Path, code: str) -> str:
    path = tmp_path / "a program.py"
    path.write_text(f"import os, sys, time\n{code}\n")
    return f"command:{sys.executable} '{path}' 'a b' $HOME"


@pytest.mark.parametrize(
    ("code", "value", "reason"),
    [
        ("print('  0.7421 ')", 0.7421, ""),
        ("assert sys.argv[1:] == ['a b', '$HOME']; print(6.05e-06)", 6.05e-06, ""),
        ("assert os.environ['RUN_LOG'].endswith('run.log'); assert sys.stdin.read() == ''; print(1)", 1.0, ""),
        ("print('nan')", None, "diverged: nan"),
        ("print('acc 0.5')", None, "must print one number"),
        ("print(0.5); print(0.6)", None, "must print one number"),
        ("pass", None, "must print one number"),
        ("sys.exit('no such file')", None, "ended with 1: no such file"),
    ],
)
def test_command(tmp_path: Path, code: str, value: float | None, reason: str) -> None:
    reading = read(tmp_path, program(tmp_path, code))
    assert reading.value == value
    assert reason in reading.reason


def test_command_has_a_time_limit(tmp_path: Path) -> None:
    from autoresearch.metrics import command

    begin = time.monotonic()
    rest = program(tmp_path, "os.fork(); print(1); time.sleep(60)").removeprefix("command:")
    assert "was killed" in command.find(rest, where(tmp_path), limit_s=0.5).trouble
    assert time.monotonic() - begin < 50
    assert "cannot run" in command.find("/no/such/program", where(tmp_path)).trouble


@pytest.mark.parametrize("metric", ["", "log:", "jsonl:m.jsonl", "csv::x", "command:", "command:'a", "a\nb"])
def test_metrics_that_name_nothing(metric: str) -> None:
    with pytest.raises(Usage):
        metrics.parse_spec(metric, "max")


def test_names_for_the_ledger() -> None:
    names = {"val_bpb": "val_bpb", "log:val_bpb": "val_bpb", "val:accuracy": "val:accuracy", "csv:a/b.csv:x y": "x y"}
    names |= {"jsonl:m.jsonl:a:b": "a:b", "tensorboard:a/b": "a/b", "checkpoint:val:acc": "val:acc"}
    assert {metric: metrics.name_of(metric) for metric in names} == names


def test_explain_reads_any_file(hostile: Path) -> None:
    (hostile / "m.jsonl").write_text('{"acc": 0.5, "step": 3}\n')
    (hostile / "m.csv").write_text("step,acc\n1,0.5\n")
    (hostile / "run.log").write_text("noise\nstep 3 acc: 0.5\n")
    (hostile / "run-1.wandb").write_bytes(wandb_file({"acc": 0.5}))
    write_events(hostile / "events.out.tfevents.1", simple("acc", 3, 0.5))
    for name in ("m.jsonl", "m.csv", "run.log", "run-1.wandb", "events.out.tfevents.1"):
        reading = metrics.explain(str(hostile / name), "acc")
        assert (reading.value, reading.n_values) == (0.5, 1), name
    assert metrics.explain(str(hostile / "run.log"), "acc").source == "console run.log:2"
    assert metrics.explain(str(hostile), "acc").source == "tensorboard acc"
    (hostile / "experiment" / "logs").mkdir(parents=True)
    (hostile / "experiment" / "logs" / "run.log").write_text("acc: 0.7\n")
    assert metrics.explain(str(hostile / "experiment"), "acc").text == "0.7"
    with pytest.raises(Usage):
        metrics.explain(str(hostile / "none.log"), "acc")
