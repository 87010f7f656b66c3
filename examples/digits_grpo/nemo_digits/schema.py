"""Every key of a recipe with its type. The values live in the YAML files: no key has a default here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Grpo:
    """Sampling, length and validation of a run; periods and lengths are in steps."""

    num_prompts_per_step: int
    num_generations_per_prompt: int
    max_num_epochs: int
    max_num_steps: int
    normalize_rewards: bool
    use_leave_one_out_baseline: bool
    val_period: int
    val_at_start: bool
    val_at_end: bool
    max_val_samples: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class LossFn:
    """The clipped objective: the ratio stays in [1 - ratio_clip_min, 1 + ratio_clip_max]."""

    reference_policy_kl_penalty: float
    ratio_clip_min: float
    ratio_clip_max: float


@dataclass(frozen=True, kw_only=True)
class Checkpointing:
    """Where and when to save; `checkpoint_must_save_by` is DD:HH:MM:SS from the start of training."""

    enabled: bool
    checkpoint_dir: str
    metric_name: str | None
    higher_is_better: bool
    keep_top_k: int
    save_period: int
    checkpoint_must_save_by: str | None


@dataclass(frozen=True, kw_only=True)
class OptimizerKwargs:
    """Adam's learning rate, decay rates of its two moments, and the term that avoids a division by zero."""

    lr: float
    betas: tuple[float, float]
    eps: float


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """The optimiser; `adam` is the only one."""

    name: str
    kwargs: OptimizerKwargs


@dataclass(frozen=True, kw_only=True)
class Generation:
    """How answers are sampled in training."""

    temperature: float


@dataclass(frozen=True, kw_only=True)
class PolicyConfig:
    """The network and its updates; `train_global_batch_size` counts answers."""

    hidden_size: int
    train_global_batch_size: int
    max_grad_norm: float
    optimizer: Optimizer
    generation: Generation


@dataclass(frozen=True, kw_only=True)
class Data:
    """How the images become prompts."""

    digits_per_prompt: int
    num_train_prompts: int
    num_validation_prompts: int
    num_validation_images: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class LoggerConfig:
    """Where the metrics go: `<log_dir>/exp_NNN/metrics.jsonl`."""

    log_dir: str


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """What the run needs; this one runs on one node without a GPU."""

    num_nodes: int
    gpus_per_node: int


@dataclass(frozen=True, kw_only=True)
class MasterConfig:
    """A whole recipe."""

    grpo: Grpo
    loss_fn: LossFn
    checkpointing: Checkpointing
    policy: PolicyConfig
    data: Data
    logger: LoggerConfig
    cluster: Cluster
