"""NeMo-RL's console blocks and checkpoints. The logs are made up; only the shapes of the lines are its own."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from autoresearch import metrics

HEAD = "Loaded configuration from: c.yaml\n📊 Using log directory: logs/exp_001\n"
RAY = "\x1b[36m(Worker[rank=0] pid=41, ip=10.0.0.5)\x1b[0m "


def validation(step: int, value: str, name: str = "Accuracy", group: str = "") -> str:
    dots, of = (".." if group else "..."), (f" for `{group}` set" if group else "")
    return (
        f"▶ Starting validation at step {step}{of}{dots}\n\n📊 Validation Results{of}:\n    • {name}: {value}\n"
        f"    • Average response length: 377.0 tokens\n    • Samples processed: 64\n\n"
        f"  ⏱️  Validation Timing{of}:\n    • Total validation time: 6.31s\n"
    )


def training(step: int, loss: str, reward: str = "0.5000") -> str:
    return (
        f"\n========================= Step {step}/3 =========================\n▶ Training policy...\n"
        f"\n📊 Training Results:\n  • Loss: {loss}\n  • Generation KL Error: 0.0004\n  • Avg Reward: {reward}\n"
        "\n⏱️  Timing:\n  • Total step time: 21.40s\n  • generation: 10.70s (50.0%)\n\n🔍 Performance Metrics:\n"
        "  • Throughputs (per GPU):\n    - E2E (Tokens/sec/gpu): 1840.22\n  • Avg Trajectory Age: 0.50 steps\n"
    )


PANEL = (
    "──────── TRAINING STEP 2 ────────\n│ USER: report │\n│ ASSISTANT: 📊 Validation Results:            │\n"
    "│     • Accuracy: 0.9900                       │\n╰──────────────╯\n"
)


def read(path: Path, text: str, metric: str = "val:accuracy", direction: str = "max") -> metrics.Reading:
    log = path / "run.log"
    log.write_text(HEAD + text, newline="")
    where = metrics.Where(str(log), "", "", "", "")
    whole = metrics.read(metrics.Spec(metric, direction), where, whole=True)
    end = metrics.read(metrics.Spec(metric, direction), where, whole=False)
    assert (whole.value, whole.text, whole.step, whole.reason) == (end.value, end.text, end.step, end.reason)
    return whole


@pytest.mark.parametrize(
    "metric", ["val:accuracy", "val_accuracy", "validation/accuracy", "log:Accuracy", "log:val_accuracy"]
)
def test_last_and_best(tmp_path: Path, metric: str) -> None:
    text = validation(2, "0.4688") + training(2, "0.1") + validation(4, "0.4375") + training(1, "0.2")
    reading = read(tmp_path, text, metric)
    assert (reading.text, reading.step, reading.best, reading.n_values) == ("0.4375", 4, 0.4688, 2)
    line = (HEAD + text).split("\n").index("    • Accuracy: 0.4375") + 1
    assert reading.source == f"console run.log:{line}"


def test_a_header_in_a_model_sample_is_no_header(tmp_path: Path) -> None:
    block = validation(2, "0.4688")
    start, rest = block.split("\n\n", 1)
    assert read(tmp_path, f"{start}\n{PANEL}\n{rest}").value == 0.4688
    raw = "📊 Validation Results:\n    • Accuracy: 0.9900\nthe end of the sample\n"
    assert read(tmp_path, f"{start}\n{raw}\n{rest}").value == 0.4688
    assert read(tmp_path, f"{start}\n{PANEL}").value is None


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_worker_lines_inside_a_block(tmp_path: Path, end: str) -> None:
    lines = validation(1, "0.6250").split("\n")
    lines.insert(3, RAY + "INFO reset prefix cache")
    lines.insert(5, RAY + "    • Accuracy: 0.1111")
    lines.insert(1, "Collecting rollouts:   0%|  | 0/2\rCollecting rollouts: 100%|██| 2/2")
    assert read(tmp_path, end.join(lines)).text == "0.6250"


def test_real_zero_and_cut_block(tmp_path: Path) -> None:
    assert read(tmp_path, validation(0, "0.0000") + training(1, "1")).text == "0.0000"
    cut = validation(4, "0.9")
    cut = cut[: cut.index("    • Accuracy")]
    assert read(tmp_path, cut).value is None
    assert read(tmp_path, validation(2, "0.3") + cut).value == 0.3


def test_diverged_validation(tmp_path: Path) -> None:
    reading = read(tmp_path, validation(2, "0.3") + validation(4, "nan"))
    assert reading.reason == "diverged: nan at step 4"


def test_steps_go_on_where_the_headers_restart(tmp_path: Path) -> None:
    text = "".join(training(step, f"0.{n}") for n, step in enumerate([1, 2, 3, 1, 2, 3], 1))
    reading = read(tmp_path, text, "train:loss", "min")
    assert (reading.value, reading.step, reading.best, reading.n_values) == (0.6, 6, 0.1, 6)
    assert read(tmp_path, text, "train:reward").text == "0.5000"


def test_two_validation_sets(tmp_path: Path) -> None:
    text = ""
    for step, default, helpful in ((0, "0.6931", "0.6931"), (2, "0.6127", "0.5810")):
        text += validation(step, default, "Validation loss", "default")
        text += validation(step, helpful, "Validation loss", "help_ful")
    reading = read(tmp_path, text, "val:validation-default_loss", "min")
    assert (reading.text, reading.step, reading.best) == ("0.6127", 2, 0.6127)
    assert read(tmp_path, text, "val:validation-help_ful_loss", "min").text == "0.5810"
    assert read(tmp_path, text, "validation-help_ful/loss", "min").text == "0.5810"
    assert "several validation sets" in read(tmp_path, text, "val:loss", "min").reason


def test_sft_and_reward_model_labels(tmp_path: Path) -> None:
    text = validation(0, "2.4142", "Validation loss") + training(1, "9.9") + validation(4, "1.7308", "Validation loss")
    assert read(tmp_path, text, "val:val_loss", "min").text == "1.7308"
    assert read(tmp_path, text, "val_loss", "min").text == "1.7308"
    block = validation(16, "0.5120", "Validation loss", "default").replace(
        "    • Samples processed: 64", "    • Validation num valid samples: 256"
    )
    assert read(tmp_path, block, "val:validation-default_num_valid_samples").text == "256"


def test_single_controller_speaks_through_ray(tmp_path: Path) -> None:
    prefix = "\x1b[36m(SingleControllerActor pid=7)\x1b[0m "
    text = "".join(
        f"{prefix}step_metrics={{'loss': 0.0{n}, 'reward': {reward}, 'total_reward': 9}}\n"
        f"{prefix}train step {n}/2  trainer_v={n}  lag=0  \n"
        for n, reward in ((1, "0.25"), (2, "0.5"))
    )
    reading = read(tmp_path, text, "train:reward")
    assert (reading.text, reading.step, reading.n_values) == ("0.5", 2, 2)
    assert read(tmp_path, text).value is None
    assert read(tmp_path, text.replace("0.5", "nan"), "train:reward").reason.startswith("diverged")


def test_hundreds_of_validations_read_in_order(tmp_path: Path) -> None:
    text = "".join(validation(n, f"0.{n:04d}") + training(n, "1") * 3 for n in range(1, 301))
    log = tmp_path / "run.log"
    log.write_text(HEAD + text)
    points = metrics.series(metrics.Spec("val:accuracy", "max"), metrics.Where(str(log), "", "", "", ""))
    assert points == [metrics.Point(n, float(f"0.{n:04d}")) for n in range(1, 301)]


def save(path: Path, step: str, **info: object) -> None:
    folder = path / step
    folder.mkdir(parents=True)
    (folder / "training_info.json").write_text(json.dumps(info))


def test_checkpoints(tmp_path: Path) -> None:
    save(tmp_path, "step_2", **{"val:accuracy": 0.46875})
    save(tmp_path, "step_10", **{"val:accuracy": 0.4375})
    save(tmp_path, "tmp_step_12", **{"val:accuracy": 0.999})
    save(tmp_path, "old_step_14", **{"val:accuracy": 0.999})
    (tmp_path / "step_16").mkdir()
    (tmp_path / "step_16" / "training_info.json").write_text('{"val:accu')
    where = metrics.Where("/none", "", str(tmp_path), "", "")
    for metric in ("checkpoint:val:accuracy", "val:accuracy", "val_accuracy"):
        reading = metrics.read(metrics.Spec(metric, "max"), where)
        assert (reading.text, reading.step, reading.best) == ("0.4375", 10, 0.46875)
    old = time.time() - 100
    os.utime(tmp_path / "step_10" / "training_info.json", (old, old))
    assert metrics.read(metrics.Spec("val:accuracy", "max"), where._replace(started_at=old + 50)).text == "0.46875"


def test_signals_from_the_console(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text(HEAD + training(1, "0.5") + RAY + "  • Total step time: 9.00s\n")
    signals = metrics.signals_of(metrics.Where(str(log), str(tmp_path), "", "", ""))
    assert signals["tokens_per_second_per_gpu"] == 1840.22
    assert signals["step_seconds"] == 21.4
    assert signals["trajectory_age"] == 0.5
    assert "gpu_memory_gb" not in signals
