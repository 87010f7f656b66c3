"""Our readers against the libraries that own the formats; a test is skipped where its library cannot be had."""

from __future__ import annotations

import math
import os
import random
import subprocess
from pathlib import Path

import pytest

from autoresearch import metrics
from autoresearch.metrics import tensorboard
from tests.packages import python_with


def where(path: Path) -> metrics.Where:
    return metrics.Where(str(path / "run.log"), str(path), "", "", str(path))


def accumulated(path: Path, tag: str) -> list[tuple[int, float]]:
    module = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="needs tensorboard")
    official = module.EventAccumulator(str(path), size_guidance={"scalars": 0, "tensors": 0})
    official.Reload()
    if tag in official.Tags()["scalars"]:
        return [(point.step, point.value) for point in official.Scalars(tag)]
    from tensorboard.util import tensor_util

    return [(point.step, float(tensor_util.make_ndarray(point.tensor_proto))) for point in official.Tensors(tag)]


def test_tensorboardx_files_read_as_the_event_accumulator_reads_them(tmp_path: Path) -> None:
    writers = pytest.importorskip("tensorboardX", reason="needs tensorboardX")
    writer = writers.SummaryWriter(str(tmp_path))
    source = random.Random(1)
    for step in (*range(400), 16_383, 16_384, 2**31):
        writer.add_scalar("val/acc", source.gauss(0, 10 ** source.randint(-20, 20)), step)
        writer.add_scalar("val/acc_ema", 1.0, step)
        writer.add_text("note", "val/acc", step)
        if step % 7 == 0:
            writer.add_histogram("h", [1.0, 2.0, 3.0], step)
    writer.add_scalar("val/acc", math.nan, 2**31 + 1)
    writer.close()
    file = next(tmp_path.glob("*tfevents*"))
    ours = tensorboard.read(str(file), "val/acc")
    assert repr(list(zip(ours.steps, ours.values, strict=True))) == repr(accumulated(tmp_path, "val/acc"))
    assert {"val/acc", "val/acc_ema"} <= set(tensorboard.tags(str(file)))
    whole = file.read_bytes()
    for cut in (len(whole) // 3, len(whole) // 2, len(whole) - 5):
        file.write_bytes(whole[:cut])
        ours = tensorboard.read(str(file), "val/acc")
        assert list(zip(ours.steps, ours.values, strict=True)) == accumulated(tmp_path, "val/acc")


def test_tensor_scalars_read_as_the_event_accumulator_reads_them(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs tensorboard")
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.plugins.scalar import metadata
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.util import tensor_util

    numpy = pytest.importorskip("numpy")
    writer = EventFileWriter(str(tmp_path))
    for step in range(50):
        value = summary_pb2.Summary.Value(
            tag="acc",
            tensor=tensor_util.make_tensor_proto(numpy.float32(step / 7)),
            metadata=metadata.create_summary_metadata("", ""),
        )
        writer.add_event(event_pb2.Event(step=step, wall_time=1.0, summary=summary_pb2.Summary(value=[value])))
    writer.close()
    ours = tensorboard.read(str(next(tmp_path.glob("*tfevents*"))), "acc")
    assert list(zip(ours.steps, ours.values, strict=True)) == accumulated(tmp_path, "acc")


def run(python: Path, code: str, path: Path, **env: str) -> None:
    environment = {**os.environ, **env}
    subprocess.run([str(python), "-c", code, str(path)], check=True, cwd=path, env=environment, capture_output=True)


@pytest.mark.slow
def test_wandb_offline_runs(tmp_path: Path) -> None:
    code = (
        "import wandb, sys\n"
        "run = wandb.init(mode='offline', dir=sys.argv[1], project='p')\n"
        "for n in range(300): run.log({'val/acc': n / 7, 'nested': {'loss': n / 3}, 'text': 'x' * 300}, step=n * 2)\n"
        "run.log({'val/acc': float('nan')}, step=1000); run.finish()\n"
    )
    run(python_with("wandb", "wandb"), code, tmp_path, WANDB_SILENT="true")
    points = metrics.series(metrics.Spec("wandb:val/acc", "max"), where(tmp_path))
    assert points[:-1] == [metrics.Point(n * 2, n / 7) for n in range(300)]
    assert points[-1].step == 1000
    assert math.isnan(points[-1].value)
    nested = metrics.read(metrics.Spec("wandb:nested.loss", "max"), where(tmp_path))
    assert (nested.value, nested.step, nested.n_values) == (299 / 3, 598, 300)


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite:///mlflow.db", "file:mlruns"])
def test_mlflow_stores(tmp_path: Path, store: str) -> None:
    code = (
        "import mlflow, sys\n"
        f"mlflow.set_tracking_uri({store!r}); mlflow.set_experiment('e')\n"
        "with mlflow.start_run():\n"
        "    for n in range(20): mlflow.log_metric('val/acc', n / 7, step=n)\n"
        "    mlflow.log_metric('bad', 1.0, step=0); mlflow.log_metric('bad', float('inf'), step=1)\n"
    )
    python = python_with("mlflow", "mlflow-skinny", "sqlalchemy", "alembic")
    run(python, code, tmp_path, MLFLOW_ALLOW_FILE_STORE="true")
    points = metrics.series(metrics.Spec("mlflow:val/acc", "max"), where(tmp_path))
    assert points == [metrics.Point(n, n / 7) for n in range(20)]
    assert metrics.read(metrics.Spec("mlflow:bad", "max"), where(tmp_path)).reason == "diverged: inf at step 1"
