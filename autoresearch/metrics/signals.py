"""Side signals of a run: GPU memory, speed, and what warns of an empty success."""

from __future__ import annotations

import os
import re

from autoresearch.metrics import Where, files

# Ray's monitor logs MB / 1024 per device, whatever process uses it; `ray/node.N.mem_gb` is the host's memory.
_GPU = re.compile(r"(?:ray/)?node\.[^.]+\.gpu\.[^.]+\.mem_gb")
# Signal -> TensorBoard tags and the labels that NeMo-RL's console prints, the first that exists is taken.
TAGS = {
    "tokens_per_second_per_gpu": ("performance/tokens_per_sec_per_gpu", "timing/train/valid_tokens_per_sec_per_gpu"),
    "samples_per_second": ("performance/samples_per_sec",),
    "step_seconds": ("timing/train/total_step_time",),
    "reward": ("train/reward", "train/total_reward/mean"),
    "reward_std": ("train/reward_std", "train/total_reward/stddev", "train/rewards/std"),
    "truncation_rate": ("train/truncation_rate", "train/truncated_fraction", "validation/truncation_rate"),
    "zero_variance_fraction": ("train/zero_variance_fraction", "train/pct_0_variance", "train/pct_zero_variance"),
    "trajectory_age": ("train/avg_trajectory_age", "train/trajectory_age", "performance/avg_trajectory_age"),
    "token_mult_prob_error": ("train/token_mult_prob_error",),
    "generation_kl_error": ("train/gen_kl_error",),
    "mean_generation_length": ("train/mean_gen_tokens_per_sample", "validation/avg_length"),
}
LABELS = {
    "tokens_per_second_per_gpu": ("E2E (Tokens/sec/gpu)",),
    "samples_per_second": ("E2E (Samples/sec)",),
    "step_seconds": ("Total step time",),
    "reward": ("Avg Reward", "Avg Total Reward"),
    "trajectory_age": ("Avg Trajectory Age",),
    "generation_kl_error": ("Generation KL Error",),
    "mean_generation_length": ("Mean Generation Length",),
}
_HINTS = {  # words that give an unknown tag away
    "truncation_rate": re.compile(r"train/.*trunc", re.IGNORECASE),
    "zero_variance_fraction": re.compile(r"train/.*(?:zero_var|0_var|zero_std)", re.IGNORECASE),
    "trajectory_age": re.compile(r"(?:train|performance)/.*(?:trajectory_age|staleness)", re.IGNORECASE),
    "reward_std": re.compile(r"train/.*reward.*(?:std|var)", re.IGNORECASE),
}


def _events(where: Where) -> list[str]:
    return files.search([where.logs], where.started_at, ("*tfevents*",))[0] if where.logs else []


def peak_gpu_memory(where: Where) -> float | None:
    """The most memory that any one GPU held during the run, in GiB; None when nobody recorded it.

    From NeMo-RL's GPU monitor in TensorBoard: whole-device use sampled every ten seconds, so a short peak may be
    missed. The console's "Driver CPU memory" is not it.
    """
    from autoresearch.metrics import tensorboard

    peak: float | None = None
    for path in _events(where):
        try:
            for tag, _, value in tensorboard.scan(path, b".mem_gb"):
                if _GPU.fullmatch(tag) and 0 <= value < 1e6 and (peak is None or value > peak):
                    peak = value
        except OSError:
            continue
    return None if peak is None else round(peak, 4)


def signals(where: Where) -> dict[str, float]:
    """The last value of every recorded side signal, by the names in `TAGS`; `gpu_memory_gb` is the peak in GiB."""
    from autoresearch.metrics import numbers, tensorboard

    found: dict[str, float] = {}
    events = _events(where)
    known = {tag for path in events for tag in tensorboard.tags(path)}
    for name, tags in TAGS.items():
        hints = sorted(tag for tag in known if name in _HINTS and _HINTS[name].match(tag))
        tag = next((tag for tag in (*tags, *hints) if tag in known), None)
        series = tensorboard.merged(events, tag) if tag else None
        if series is not None and series.values:
            found[name] = numbers.shortest_single(series.values[-1])
        elif (value := _label(name, where)) is not None:
            found[name] = value
    peak = peak_gpu_memory(where)
    if peak is not None:
        found["gpu_memory_gb"] = peak
    return found


def _label(name: str, where: Where) -> float | None:
    """The last console line `• Label: number`, as NeMo-RL prints it; lines of other processes do not count."""
    from autoresearch.metrics import backwards, console, numbers

    if not os.path.isfile(where.log) or not files.fresh(where.log, where.started_at):
        return None
    for label in LABELS.get(name, ()):
        pattern = re.compile(rf"\s*[•-] {re.escape(label)}: ({numbers.NUMBER})", re.ASCII)

        def judge(data: bytes, hit: int, base: int, pattern: re.Pattern[str] = pattern) -> float | None:
            match = pattern.match(console.visible(data[backwards.line_start(data, hit) : hit + 200]))
            return float(match.group(1)) if match else None

        try:
            with backwards.Log(where.log) as log:
                value = backwards.last_hit(log, f"{label}: ".encode(), judge, low=max(0, log.size - (64 << 20)))
        except OSError:
            return None
        if value is not None:
            return value
    return None
