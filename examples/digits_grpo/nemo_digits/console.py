"""What a run prints: the same blocks, in the same order and form, as NeMo-RL's synchronous GRPO trainer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from pprint import pformat
from typing import Any

RULE = "=" * 60
HEADER_RULE = "=" * 25

TIMEOUT = "Timeout has been reached, stopping training early"
MAX_STEPS = "Max number of steps has been reached, stopping training early"


def start(recipe: str, overrides: Sequence[str], config: dict[str, Any], log_dir: Path, checkpoint_dir: str) -> None:
    """Which recipe runs and where its output goes; an empty `checkpoint_dir` means that nothing is saved."""
    print(f"Loaded configuration from: {recipe}")
    if overrides:
        print(f"Overrides: {list(overrides)}")
        print("Applied CLI overrides")
    print(f"Final config:\n{pformat(config, sort_dicts=False, width=120)}")
    print(f"📊 Using log directory: {log_dir}")
    if checkpoint_dir:
        print(f"📊 Using checkpoint directory: {checkpoint_dir}")


def setting_up(what: str) -> None:
    """A part of the set-up begins."""
    print(f"\n▶ Setting up {what}...")


def data_ready(train: int, validation: int) -> None:
    """How many prompts there are."""
    print(f"  ✓ Training dataloader loaded with {train} samples")
    print(f"  ✓ Validation dataloader loaded with {validation} samples")


def setup_done(policy_seconds: float, total_seconds: float) -> None:
    """How long the set-up took; training starts now."""
    print("\n▶ Worker Initialization Timing:")
    print(f"  Policy init: {policy_seconds:.1f}s")
    print(f"  Other setup: {total_seconds - policy_seconds:.1f}s")
    print(f"  Total setup: {total_seconds:.1f}s")
    print(f"\n{RULE}\n{' ' * 18}SETUP COMPLETE")
    print(f"  Total setup time: {total_seconds:.1f}s\n{RULE}\n")
    print("🚀 Running synchronous GRPO training (legacy)")


def epoch(number: int, count: int) -> None:
    """The header of an epoch, counted from 1."""
    print(f"\n{HEADER_RULE} Epoch {number}/{count} {HEADER_RULE}")


def step(number: int, count: int) -> None:
    """The header of a step, counted from 1 within its epoch."""
    print(f"\n{HEADER_RULE} Step {number}/{count} {HEADER_RULE}")


def stage(text: str) -> None:
    """A stage of a step begins."""
    print(f"▶ {text}...")


def validation(accuracy: float, length: float, samples: int, seconds: float) -> None:
    """The results of one validation."""
    print("\n📊 Validation Results:")
    print(f"    • Accuracy: {accuracy:.4f}")
    print(f"    • Average response length: {length:.1f} tokens")
    print(f"    • Samples processed: {samples}")
    print("\n  ⏱️  Validation Timing:")
    print(f"    • Total validation time: {seconds:.2f}s")


def saving(number: int) -> None:
    """A checkpoint is about to be written."""
    print(f"Saving checkpoint for step {number}...")


def metric_missing(name: str, number: int) -> None:
    """The metric that ranks checkpoints was not measured at this step."""
    print(f"⚠️ {name} was not measured at step {number}; its checkpoint ranks last")


def training(metrics: dict[str, float], seconds: dict[str, float], total_seconds: float, samples: int) -> None:
    """The results of one step, and where its time went, longest first."""
    print("\n📊 Training Results:")
    print(f"  • Loss: {metrics['loss']:.4f}")
    print(f"  • Generation KL Error: {metrics['gen_kl_error']:.4f}")
    print(f"  • Avg Reward: {metrics['reward']:.4f}")
    print(f"  • Mean Generation Length: {metrics['mean_gen_tokens_per_sample']:.4f}")
    print("\n⏱️  Timing:")
    print(f"  • Total step time: {total_seconds:.2f}s")
    for label, value in sorted(seconds.items(), key=lambda item: -item[1]):
        print(f"  • {label}: {value:.2f}s ({100 * value / total_seconds:.1f}%)")
    print("\n🔍 Performance Metrics:")
    print("  • Throughputs (per Group):")
    print(f"    - E2E (Samples/sec): {samples / total_seconds:.2f}")
    print(f"    - E2E (Tokens/sec): {samples * metrics['mean_gen_tokens_per_sample'] / total_seconds:.2f}")
