"""All that a recipe says about its training, from the recipe alone."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from autoresearch.nemo_rl import checks, code_paths, entrypoint, inputs, outputs
from autoresearch.nemo_rl.entrypoint import Entry
from autoresearch.nemo_rl.grammar import kinds
from autoresearch.nemo_rl.inputs import Input
from autoresearch.nemo_rl.outputs import Write
from autoresearch.nemo_rl.resolve import Resolved, is_nemo_rl, resolve


class Secret(NamedTuple):
    """A secret that the recipe will want. Not `required` means: only for a gated or private download."""

    key: str
    required: bool
    why: str


class RecipeFacts(NamedTuple):
    """What `inspect` found. Paths are relative to `repo` unless absolute; None or `` is "the recipe does not say"."""

    repo: str
    recipe: str
    files: tuple[str, ...]  # the recipe and its parents: when one changes, these facts are out of date
    parents: tuple[str, ...]
    nemo_rl: bool  # the checkout is NeMo-RL's, or a fork's
    algorithm: str  # sft, dpo, rm, ppo, distillation, grpo
    gym: bool
    entry_point: str | None
    argv: tuple[str, ...]  # a template for `grammar.fill`; empty without an entry point
    base_overrides: tuple[str, ...]  # the override words in it
    set_keys: tuple[str, ...]  # the keys those set; override words of a user may not
    twin: str  # the recipe's test script
    twin_words: tuple[str, ...]  # what that script overrides too, for the reader
    metric: str  # as the recipe names it, `val:accuracy`
    metric_tag: str  # its TensorBoard tag, `validation/accuracy`
    direction: str  # max, min
    log_dir: str
    checkpoint_dir: str
    own_timeout_s: float | None  # seconds from the start of the training loop, set-up not counted
    must_save_by_key: str  # the key that takes `grammar.must_save_by(seconds)`, `` when there is none
    num_nodes: int | None
    gpus_per_node: int | None
    model: str
    tokenizer: str
    models: tuple[Input, ...]
    datasets: tuple[Input, ...]
    max_steps: int | None
    max_epochs: int | None
    val_period: int | None
    save_period: int | None
    wandb: bool
    writes: tuple[Write, ...]
    secrets: tuple[Secret, ...]
    missing_env: tuple[str, ...]
    warnings: tuple[str, ...]
    code_paths: tuple[str, ...]
    loader: str  # `checkout` or `rules`
    notes: tuple[str, ...]
    where: dict[str, str]  # field name -> file:line
    kinds: dict[str, str]  # for `grammar.quick`
    resolved: Resolved  # for `overrides.check`

    def secret_keys(self) -> list[str]:
        """Return the keys of the secrets without which a launch is refused."""
        return [secret.key for secret in self.secrets if secret.required]


def inspect(
    repo: str,
    recipe: str,
    *,
    env: Mapping[str, str],
    cache_root: str | None = None,
    overrides: Sequence[str] = (),
    use_checkout: bool = True,
) -> RecipeFacts:
    """Find out all that the recipe says.

    Args:
        repo: the checkout, or a worktree of it.
        recipe: a path, absolute or below `repo`, or the bare name of a recipe there.
        env: the environment a run would have; only names that the recipe asks for are read, no secret's value is kept.
        cache_root: autoresearch's shared cache directory; None to look where `env` says.
        overrides: override words of the plan, counted in.
        use_checkout: let the checkout's own loader read the recipe where that is safe.

    Raises:
        Usage: the recipe cannot be found or read, or a word does not apply; with file and line.
    """
    resolved = resolve(repo, recipe, env=env, overrides=overrides, use_checkout=use_checkout)
    nemo_rl = is_nemo_rl(resolved.repo)
    section = entrypoint.algorithm(resolved.values)
    entry = entrypoint.find(resolved.repo, resolved.recipe, resolved.values, resolved.files)
    hub = inputs.hub_cache(env, cache_root)
    models, datasets = inputs.models(resolved, hub), inputs.datasets(resolved, hub)
    words = outputs.base_overrides(resolved, nemo_rl=nemo_rl)
    argv: tuple[str, ...] = ()
    problems: list[str] = []
    if entry.path:
        head, problems = launcher_words(resolved.repo, env)
        argv = (*head, entry.path, "--config", "{recipe}", *words, "{overrides}")
    elif section:
        problems = [f"no program found for this recipe ({entry.where or 'no rule'}): give CMD"]
    limit = checks.own_limit(resolved)
    metric = resolved.get("checkpointing.metric_name")
    places = _keys(section)
    return RecipeFacts(
        repo=resolved.repo,
        recipe=resolved.recipe,
        files=resolved.files,
        parents=resolved.parents,
        nemo_rl=nemo_rl,
        algorithm=section,
        gym=entrypoint.uses_gym(resolved.values),
        entry_point=entry.path,
        argv=argv,
        base_overrides=words if argv else (),
        set_keys=outputs.keys_of(words) if argv else (),
        twin=entry.twin,
        twin_words=entry.words,
        metric=metric if isinstance(metric, str) else "",
        metric_tag=metric_tag(metric, section) if isinstance(metric, str) else "",
        direction={True: "max", False: "min"}.get(resolved.get("checkpointing.higher_is_better"), ""),
        log_dir=str(resolved.get("logger.log_dir") or ""),
        checkpoint_dir=str(resolved.get("checkpointing.checkpoint_dir") or ""),
        own_timeout_s=limit.seconds,
        must_save_by_key=checks.SAVE_BY if resolved.has(checks.SAVE_BY) else "",
        num_nodes=_whole(resolved, "cluster.num_nodes"),
        gpus_per_node=_whole(resolved, "cluster.gpus_per_node"),
        model=_text(resolved, "policy.model_name"),
        tokenizer=_text(resolved, "policy.tokenizer.name"),
        models=tuple(models),
        datasets=tuple(datasets),
        max_steps=_whole(resolved, f"{section}.max_num_steps"),
        max_epochs=_whole(resolved, f"{section}.max_num_epochs"),
        val_period=_whole(resolved, f"{section}.val_period"),
        save_period=_whole(resolved, "checkpointing.save_period"),
        wandb=bool(resolved.get("logger.wandb_enabled")),
        writes=tuple(outputs.writes(resolved, nemo_rl=nemo_rl)),
        secrets=tuple(secrets(resolved, [*models, *datasets], env)),
        missing_env=resolved.missing_env,
        warnings=(*problems, *checks.warnings(resolved, [*models, *datasets], entry.twin)),
        code_paths=tuple(code_paths.worth_reading(resolved, entry)),
        loader=resolved.loader,
        notes=resolved.notes,
        where=_where(resolved, entry, places),
        kinds=kinds(resolved.values),
        resolved=resolved,
    )


def _keys(section: str) -> dict[str, str]:
    """The config key behind each field that comes from one."""
    return {
        "algorithm": section,
        "metric": "checkpointing.metric_name",
        "direction": "checkpointing.higher_is_better",
        "log_dir": "logger.log_dir",
        "checkpoint_dir": "checkpointing.checkpoint_dir",
        "own_timeout_s": checks.SAVE_BY,
        "num_nodes": "cluster.num_nodes",
        "gpus_per_node": "cluster.gpus_per_node",
        "model": "policy.model_name",
        "tokenizer": "policy.tokenizer.name",
        "max_steps": f"{section}.max_num_steps",
        "max_epochs": f"{section}.max_num_epochs",
        "val_period": f"{section}.val_period",
        "save_period": "checkpointing.save_period",
        "wandb": "logger.wandb_enabled",
        "gym": "env.should_use_nemo_gym",
    }


def _where(resolved: Resolved, entry: Entry, keys: Mapping[str, str]) -> dict[str, str]:
    found = {field: resolved.where(key) for field, key in keys.items() if key and resolved.has(key)}
    return {**found, "entry_point": entry.where}


def _whole(resolved: Resolved, key: str) -> int | None:
    value = resolved.get(key)
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _text(resolved: Resolved, key: str) -> str:
    value = resolved.get(key)
    return value if isinstance(value, str) else ""


def metric_tag(metric: str, section: str) -> str:
    """Return the TensorBoard tag of a recipe's metric name, `` for a name of neither kind.

    `val:X` is `validation/X`, `train:X` is `train/X`; dpo and rm log each validation set apart:
    `val:validation-default_loss` is `validation-default/loss` (NeMo-RL `nemo_rl/algorithms/dpo.py`).
    """
    kind, _, name = metric.partition(":")
    if kind == "val" and section in ("dpo", "rm") and name.startswith("validation-"):
        # The set's name may hold `_` and so may the metric's: the first one ends the set, as the trainer joins them.
        head, _, leaf = name.partition("_")
        return f"{head}/{leaf}"
    return {"val": f"validation/{name}", "train": f"train/{name}"}.get(kind, "") if name else ""


def launcher_words(repo: str, env: Mapping[str, str]) -> tuple[tuple[str, ...], list[str]]:
    """Return the words in front of the program, and what is wrong with them.

    A uv project (`uv.lock` or a `[tool.uv]` table) runs by `uv run`, which makes the environment of each worktree;
    other projects run with the Python of the active environment, else of the checkout's `.venv`, by its absolute
    path, so that cron and a worktree get the same one; else with `python3`.
    """
    if os.path.exists(os.path.join(repo, "uv.lock")) or _has_uv_table(repo):
        there = shutil.which("uv", path=env.get("PATH", os.defpath))
        return ("uv", "run"), [] if there else ["this is a uv project, and `uv` is not on the PATH: install uv"]
    active = env.get("VIRTUAL_ENV", "")
    if active and os.path.realpath(active) != os.path.realpath(sys.prefix):
        python = os.path.join(active, "bin", "python")
        if os.access(python, os.X_OK):
            return (python,), []
    own = os.path.join(repo, ".venv", "bin", "python")
    return ((own,) if os.access(own, os.X_OK) else ("python3",)), []


def _has_uv_table(repo: str) -> bool:
    try:
        with open(os.path.join(repo, "pyproject.toml"), encoding="utf-8") as file:
            return any(line.startswith("[tool.uv") for line in file)
    except (OSError, UnicodeDecodeError):
        return False


def secrets(resolved: Resolved, read: Sequence[Input], env: Mapping[str, str]) -> list[Secret]:
    """Return the secrets that the recipe will need: for its trackers, for downloads, and what it reads itself."""
    found: list[Secret] = []
    offline = env.get("WANDB_MODE", "") in ("offline", "disabled", "dryrun")
    if resolved.get("logger.wandb_enabled") and not offline:
        found.append(Secret("WANDB_API_KEY", True, f"W&B is on ({resolved.where('logger.wandb_enabled')})"))
    if resolved.get("logger.swanlab_enabled"):
        found.append(Secret("SWANLAB_API_KEY", True, f"SwanLab is on ({resolved.where('logger.swanlab_enabled')})"))
    absent = [item for item in read if item.kind == "hub" and not item.present]
    gated = [item for item in absent if item.name.startswith(inputs.GATED)]
    for item in (gated or absent)[:1]:
        what = "asks for a licence on the hub" if gated else "will be downloaded"
        found.append(Secret("HF_TOKEN", bool(gated), f"{item.source or item.name} {what} ({item.where})"))
    named = resolved.get("policy.generation.vllm_cfg.http_refit_api_key_env_var")
    if isinstance(named, str):
        found.append(Secret(named, True, "policy.generation.vllm_cfg.http_refit_api_key_env_var names it"))
    known = {secret.key for secret in found}
    found.extend(Secret(name, True, "the recipe reads it") for name in resolved.secret_env if name not in known)
    return found
