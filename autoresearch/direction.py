"""Which of two values is better: the one place that knows, for verdicts, best, targets, plots and resume."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from autoresearch.errors import Usage

DIRECTIONS = ("max", "min")
_LOWER = frozenset(
    (
        "loss",
        "bpb",
        "bpc",
        "ppl",
        "perplexity",
        "nll",
        "entropy",
        "error",
        "err",
        "rmse",
        "mse",
        "mae",
        "wer",
        "cer",
        "latency",
        "time",
        "seconds",
        "duration",
        "regret",
        "kl",
        "divergence",
        "fid",
        "memory",
        "mem",
        "cost",
        "brier",
        "ece",
        "distance",
    )
)
_HIGHER = frozenset(
    (
        "accuracy",
        "acc",
        "reward",
        "rewards",
        "return",
        "score",
        "f1",
        "auc",
        "auroc",
        "map",
        "precision",
        "recall",
        "bleu",
        "rouge",
        "throughput",
        "tps",
        "speed",
        "iou",
        "dice",
        "pass",
        "win",
        "winrate",
        "success",
        "mfu",
        "utilization",
        "r2",
        "psnr",
        "ssim",
        "exact",
        "em",
    )
)


def check(direction: str) -> str:
    """`direction` itself when it is `max` or `min`; raises Usage otherwise."""
    if direction not in DIRECTIONS:
        raise Usage("DIRECTION", f"{direction!r} is neither max nor min", "say DIRECTION=max where higher is better")
    return direction


def gain(value: float, than: float, direction: str) -> float:
    """How much better `value` is than `than`, in the metric's unit; negative when it is worse."""
    return value - than if check(direction) == "max" else than - value


def better(value: float, than: float, direction: str) -> bool:
    """Whether `value` is better than `than`; a value that is not finite is better than nothing."""
    return math.isfinite(value) and (not math.isfinite(than) or gain(value, than, direction) > 0)


def best_index(values: Sequence[float], direction: str) -> int | None:
    """Where the best finite value is, the later of equals (as NeMo-RL breaks ties); None without a finite one."""
    # A series that is not held in memory knows where its best value is.
    known: Callable[[str], int | None] | None = getattr(values, "best_index", None)
    if known is not None:
        return known(check(direction))
    pick, sign = (max, 1.0) if check(direction) == "max" else (min, -1.0)
    if values and math.isfinite(sum(values)):  # nothing here is nan: the search can be left to C
        best = pick(values)
        return len(values) - 1 - values[::-1].index(best)
    chosen, top = None, -math.inf
    for index, value in enumerate(values):
        if math.isfinite(value) and value * sign >= top:
            chosen, top = index, value * sign
    return chosen


def reaching(direction: str) -> tuple[str, str]:
    """The comparisons that reach a target in this direction; the first is meant where none is written."""
    return (">=", ">") if check(direction) == "max" else ("<=", "<")


def meets(value: float, op: str, target: float) -> bool:
    """Whether a valid value reaches a target written with `>=`, `>`, `<=` or `<`."""
    if not math.isfinite(value):
        return False
    compare = {">=": value >= target, ">": value > target, "<=": value <= target, "<": value < target}
    if op not in compare:
        raise Usage("target", f"{op!r} is no comparison", "use >=, >, <= or <")
    return compare[op]


def guess_direction(name: str) -> str | None:
    """`max`, `min` or None from the words of a metric's name: an offer for the plan, never taken without a yes.

    Speeds are looked for first: `tokens_per_sec` holds the unit of a time and is no time.
    """
    words = [word for word in re.split(r"[^a-z0-9]+", re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()) if word]
    if re.search(r"per_(?:s|sec|second|gpu|min)(?:_|$)", "_".join(words)):
        return "max"
    high = [index for index, word in enumerate(words) if word in _HIGHER]
    low = [index for index, word in enumerate(words) if word in _LOWER]
    if not high and not low:
        return None
    # The last word that says something is the noun: `reward_loss` is a loss, `loss_accuracy` an accuracy.
    return "max" if max(high, default=-1) > max(low, default=-1) else "min"
