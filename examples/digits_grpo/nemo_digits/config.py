"""Recipes: YAML files that inherit through `defaults:`, overrides such as `grpo.seed=1`, and their types."""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import yaml

from nemo_digits.data import IMAGES
from nemo_digits.schema import MasterConfig
from nemo_digits.timer import parse_limit

T = TypeVar("T")
Section = dict[str, Any]


class ConfigError(Exception):
    """A recipe or an override that cannot be used; the message names the key and the value."""


class _Loader(yaml.SafeLoader):
    """YAML 1.1 as PyYAML reads it, plus `1e-4` as a number (PyYAML alone takes it for text)."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def load_config(recipe: Path, overrides: Sequence[str] = ()) -> MasterConfig:
    """Read a recipe with its parents, apply the overrides, and check every key and value.

    Args:
        recipe: the YAML file.
        overrides: words `dotted.key=value`; for a key given twice the last one counts.

    Raises:
        ConfigError: the file, a key or a value cannot be used.
    """
    values = load_recipe(recipe)
    for word in overrides:
        _apply(values, word)
    config = _build(MasterConfig, values, "")
    _check(config)
    return config


def load_recipe(path: Path, children: tuple[Path, ...] = ()) -> Section:
    """Read one YAML file on top of its `defaults`, each of which is relative to the file that names it.

    Mappings merge deeply, anything else (lists too) is replaced; later parents win over earlier ones
    and the file itself over all of them.
    """
    path = path.resolve()
    if path in children:
        raise ConfigError(f"{path}: inherits from itself")
    own = _read_yaml(path)
    defaults = own.pop("defaults", [])
    parents = defaults if isinstance(defaults, list) else [defaults]
    merged: Section = {}
    for parent in parents:
        if not isinstance(parent, str):
            raise ConfigError(f"{path}: defaults: expected a file or a list of files, got {defaults!r}")
        merged = _merge(merged, load_recipe(path.parent / parent, (*children, path)))
    return _merge(merged, own)


def _read_yaml(path: Path) -> Section:
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected sections such as `grpo:`, got {values!r}")
    return values


def _merge(base: Section, top: Mapping[str, Any]) -> Section:
    merged = dict(base)
    for key, value in top.items():
        below = merged.get(key)
        merged[key] = _merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def _apply(values: Section, word: str) -> None:
    """Set one override in place. `++key=value`, Hydra's form for add or change, means the same as `key=value`."""
    key, equals, text = word.removeprefix("++").partition("=")
    if not equals or not key:
        raise ConfigError(f"{word!r}: an override has the form key=value")
    *sections, name = key.split(".")
    schema: Any = MasterConfig
    for depth, section in enumerate([*sections, name]):
        hints = get_type_hints(schema) if is_dataclass(schema) else {}
        if section not in hints:
            raise _unknown(".".join(key.split(".")[: depth + 1]), hints)
        schema = hints[section]
    if is_dataclass(schema):
        raise ConfigError(f"{key}: is a section; set one of its keys ({', '.join(get_type_hints(schema))})")
    for section in sections:
        values = values.setdefault(section, {})
        if not isinstance(values, dict):
            raise ConfigError(f"{section}: expected a section, got {values!r}")
    values[name] = _parse(key, text, schema)


def _parse(key: str, text: str, hint: Any) -> Any:
    """The value of an override; where the key holds text, the text stays as it is (`1e5`, `10:00:00:00`, `a=b`)."""
    quoted = re.fullmatch(r"""(['"])(.*)\1""", text, re.DOTALL)
    if str in (hint, *get_args(hint)):
        if quoted:
            return _unescape(quoted[2], quoted[1])
        return None if text == "null" and hint is not str else text
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError:
        raise ConfigError(f"{key}: cannot read the value {text!r}") from None


def _unescape(text: str, mark: str) -> str:
    """Undo the escapes of a quoted value by Hydra's rule: a backslash is one only before the mark, `${` or the end."""
    return re.sub(rf"\\+(?={mark}|\$\{{|\Z)", lambda run: "\\" * (len(run[0]) // 2), text)


def _build(schema: type[T], values: object, where: str) -> T:
    """Make a schema's instance from a mapping; unknown, missing and mistyped keys are errors."""
    if not isinstance(values, dict):
        raise ConfigError(f"{where}: expected a section, got {values!r}")
    hints = get_type_hints(schema)
    prefix = f"{where}." if where else ""
    for key in values:
        if key not in hints:
            raise _unknown(f"{prefix}{key}", hints)
    for key in hints:
        if key not in values:
            raise ConfigError(f"{prefix}{key}: missing; inherit it with `defaults:` or set it")
    return schema(**{key: _convert(values[key], hint, f"{prefix}{key}") for key, hint in hints.items()})


def _convert(value: Any, hint: Any, where: str) -> Any:
    if is_dataclass(hint):
        return _build(hint, value, where)  # type: ignore[arg-type]
    if get_origin(hint) is types.UnionType:
        return None if value is None else _convert(value, get_args(hint)[0], where)
    if get_origin(hint) is tuple and isinstance(value, list) and len(value) == len(get_args(hint)):
        return tuple(_convert(item, kind, where) for item, kind in zip(value, get_args(hint), strict=True))
    if hint is float and type(value) in (int, float):
        return float(value)
    if type(value) is hint:  # not isinstance: true is no number
        return value
    raise ConfigError(f"{where}: expected {_describe(hint)}, got {value!r}")


def _describe(hint: Any) -> str:
    if get_origin(hint) is tuple:
        return f"a list of {len(get_args(hint))} numbers"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text in quotes"}
    return names[hint]


def _unknown(key: str, known: Iterable[str]) -> ConfigError:
    close = difflib.get_close_matches(key.rpartition(".")[2], list(known), n=1)
    return ConfigError(f"{key}: unknown key" + (f"; did you mean {close[0]}?" if close else ""))


def _check(config: MasterConfig) -> None:
    """Refuse values that have the right type but no meaning.

    Raises:
        ConfigError: for the first of them.
    """
    for key, value, lowest in _lowest_values(config):
        if not value >= lowest:  # so that nan is refused too
            raise ConfigError(f"{key}: must be at least {lowest}, got {value}")
    if config.data.num_validation_images >= IMAGES:
        raise ConfigError(f"data.num_validation_images: must be less than {IMAGES}, the number of images there are")
    if not all(0 <= beta < 1 for beta in config.policy.optimizer.kwargs.betas):
        raise ConfigError("policy.optimizer.kwargs.betas: must be at least 0 and less than 1")
    if config.policy.optimizer.name != "adam":
        raise ConfigError(f"policy.optimizer.name: only adam is known, got {config.policy.optimizer.name!r}")
    metric = config.checkpointing.metric_name
    if metric is not None and not metric.startswith(("val:", "train:")):
        raise ConfigError(f"checkpointing.metric_name: must start with val: or train:, got {metric!r}")
    try:
        parse_limit(config.checkpointing.checkpoint_must_save_by)
    except ValueError as error:
        raise ConfigError(f"checkpointing.checkpoint_must_save_by: {error}") from None


def _lowest_values(config: MasterConfig) -> list[tuple[str, float, float]]:
    grpo, data, policy = config.grpo, config.data, config.policy
    return [
        ("grpo.num_prompts_per_step", grpo.num_prompts_per_step, 1),
        ("grpo.num_generations_per_prompt", grpo.num_generations_per_prompt, 2),
        ("grpo.max_val_samples", grpo.max_val_samples, 1),
        ("grpo.seed", grpo.seed, 0),
        ("checkpointing.save_period", config.checkpointing.save_period, 1),
        ("checkpointing.keep_top_k", config.checkpointing.keep_top_k, 1),
        ("policy.hidden_size", policy.hidden_size, 1),
        ("policy.train_global_batch_size", policy.train_global_batch_size, 1),
        ("policy.generation.temperature", policy.generation.temperature, 0.01),
        ("policy.optimizer.kwargs.lr", policy.optimizer.kwargs.lr, 0),
        ("data.digits_per_prompt", data.digits_per_prompt, 1),
        ("data.num_train_prompts", data.num_train_prompts, grpo.num_prompts_per_step),
        ("data.num_validation_prompts", data.num_validation_prompts, 1),
        ("data.num_validation_images", data.num_validation_images, 1),
        ("data.seed", data.seed, 0),
    ]
