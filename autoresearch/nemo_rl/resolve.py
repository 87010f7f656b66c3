"""From a recipe's path to its chain of parents, its resolved values, and the line that set each key."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from autoresearch.errors import Usage
from autoresearch.nemo_rl import checkout
from autoresearch.nemo_rl.compose import Composed, Environment, compose, register_resolvers
from autoresearch.nemo_rl.grammar import look_up
from autoresearch.nemo_rl.parsing import MISSING, Mark, find

RECIPE_DIRS = ("examples/configs", "examples/nemo_gym", "examples", "configs", "recipes", "research")
MAX_RECIPES_SEARCHED = 5000


class Resolved(NamedTuple):
    """A recipe with everything its parents, its interpolations and the override words say."""

    repo: str  # absolute, real path of the checkout
    recipe: str  # relative to repo
    files: tuple[str, ...]  # the recipe, then its parents, nearest first; relative where inside repo
    config: Any  # OmegaConf mapping, override words applied, interpolations kept: what words are checked against
    values: dict[str, Any]  # plain values; a value that cannot be resolved stays as it is written
    unresolved: dict[str, str]  # dotted key -> why its interpolation has no value
    missing_env: tuple[str, ...]  # environment variables that `${oc.env:NAME}` needs and the run would not have
    secret_env: tuple[str, ...]  # those among all that it reads whose names say that they are secrets
    mandatory: tuple[str, ...]  # keys that are still `???`
    marks: Mark
    overridden: tuple[str, ...]  # keys that override words set
    loader: str  # `checkout`: its own loader ran; `rules`: the rules of NeMo-RL's loader as kept here
    notes: tuple[str, ...]

    @property
    def parents(self) -> tuple[str, ...]:
        """The recipe's parents, nearest first."""
        return self.files[1:]

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of dotted `key` (list items by number), or `default` when it is not there."""
        there, value = look_up(self.values, key)
        return value if there else default

    def has(self, key: str) -> bool:
        """Tell whether dotted `key` exists, a null value included."""
        nothing = object()
        return self.get(key, nothing) is not nothing

    def where(self, key: str) -> str:
        """Return `file:line` of the line that set `key` or the closest key above it, `` when nothing did."""
        if any(key == word or key.startswith(f"{word}.") for word in self.overridden):
            return "override"
        mark, _ = find(self.marks, key)
        return f"{relative(self.repo, mark.file)}:{mark.line}" if mark is not self.marks else ""

    def raw(self, key: str) -> str:
        """Return the scalar of `key` as its file writes it, `` when it is none or was overridden."""
        mark, exact = find(self.marks, key)
        return mark.raw or "" if exact and self.where(key) != "override" else ""


def relative(repo: str, path: str) -> str:
    """Return `path` relative to `repo` when it lies inside, else as it is."""
    inside = os.path.relpath(path, repo)
    return path if inside.startswith("..") else inside


def find_recipe(repo: str, recipe: str) -> str:
    """Return the absolute path of `recipe`: a path, absolute or below `repo`, or the bare name of a recipe there.

    Raises:
        Usage: there is none of that name, or it lies outside the repository, so that no commit can carry it.
    """
    repo = os.path.realpath(repo)
    if not recipe or "\0" in recipe:
        raise Usage("RECIPE", f"{recipe!r} is not a path", "RECIPE=examples/configs/....yaml")
    for name in (recipe, f"{recipe}.yaml"):
        path = os.path.normpath(os.path.join(repo, name))
        if os.path.isfile(path):
            if os.path.relpath(os.path.realpath(path), repo).startswith(".."):
                why = f"{path} is outside the repository {repo}"
                raise Usage("RECIPE", why, "put it into the repository, an experiment runs from a commit")
            return os.path.realpath(path)
    found = _all_recipes(repo)
    stem = _stem(recipe)
    same = [path for path in found if _stem(path) == stem]
    if len(same) == 1 and "/" not in recipe:
        return os.path.join(repo, same[0])
    raise Usage("RECIPE", f"there is no {recipe} in {repo}", _suggest(stem, same, found))


def _stem(path: str) -> str:
    """The file's name without `.yaml`; names such as `grpo.v1` keep their dot."""
    return os.path.basename(path).removesuffix(".yaml").removesuffix(".yml")


def _suggest(stem: str, same: list[str], found: list[str]) -> str:
    from difflib import get_close_matches

    by_stem = {_stem(path): path for path in found}
    close = same or [by_stem[name] for name in get_close_matches(stem, by_stem, 3, 0.5)]
    return f"did you mean {' or '.join(close)}" if close else "give a path below the repository"


def _all_recipes(repo: str) -> list[str]:
    found: list[str] = []
    for top in RECIPE_DIRS:
        for folder, below, names in os.walk(os.path.join(repo, top)):
            below[:] = sorted(name for name in below if not name.startswith("."))
            for name in sorted(names):
                path = os.path.relpath(os.path.join(folder, name), repo)
                if name.endswith((".yaml", ".yml")) and path not in found:
                    found.append(path)
            if len(found) > MAX_RECIPES_SEARCHED:
                return found
    return found


def is_nemo_rl(repo: str) -> bool:
    """Tell whether the checkout at `repo` is NeMo-RL's (or a fork's), whose rules then hold exactly."""
    return any(os.path.isdir(os.path.join(repo, name)) for name in ("nemo_rl", "examples/configs/recipes/llm"))


def resolve(
    repo: str,
    recipe: str,
    *,
    env: Mapping[str, str],
    overrides: Sequence[str] = (),
    use_checkout: bool = True,
) -> Resolved:
    """Resolve `recipe` as the training would.

    Args:
        repo: the checkout or a worktree of it.
        recipe: a path, absolute or below `repo`, or the bare name of a recipe there.
        env: the environment of the run, for `${oc.env:NAME}`; values of secrets go nowhere.
        overrides: Hydra override words that the command carries behind `--config`.
        use_checkout: let the checkout's own loader read it where that is safe (about half a second).

    Raises:
        Usage: the recipe or one of its parents is missing or malformed, or a word does not apply; with file and line.
    """
    repo = os.path.realpath(repo)
    path = find_recipe(repo, recipe)
    with Environment(env) as environment:
        composed = compose(path, strict=is_nemo_rl(repo))
        config, resolved, loader, notes = _by_checkout(repo, path, composed, env, use_checkout)
        keys: tuple[str, ...] = ()
        if overrides:
            from autoresearch.nemo_rl.overrides import apply

            config, keys = apply(config, overrides)
            resolved = None
        values, unresolved = plain(config)
    if unresolved and resolved is not None:  # a resolver of the checkout's own
        values, unresolved = resolved, {}
    return Resolved(
        repo,
        relative(repo, path),
        tuple(relative(repo, file) for file in composed.files),
        config,
        values,
        unresolved,
        tuple(sorted(environment.missing)),
        tuple(sorted(environment.secrets)),
        tuple(_still_missing(values, "")),
        composed.marks,
        keys,
        loader,
        notes,
    )


def _by_checkout(
    repo: str, path: str, composed: Composed, env: Mapping[str, str], wanted: bool
) -> tuple[Any, dict[Any, Any] | None, str, tuple[str, ...]]:
    """The config by the checkout's loader where it can be had, and what there is to say about that."""
    from omegaconf import OmegaConf

    if not wanted or not os.path.exists(os.path.join(repo, checkout.LOADER)):
        return composed.config, None, "rules", ()
    reason = checkout.why_not(repo)
    if reason:
        return composed.config, None, "rules", (f"resolved by NeMo-RL's rules as of August 2026: {reason}",)
    loaded = checkout.load(repo, path, composed.files, env)
    if loaded.config is None:
        return composed.config, None, "rules", (f"the checkout's own loader fails on this recipe: {loaded.error}",)
    config = OmegaConf.create(loaded.config)
    if OmegaConf.to_container(composed.config, resolve=False) == loaded.config:
        return config, loaded.resolved, "checkout", ()
    return config, loaded.resolved, "checkout", ("this commit inherits by other rules: file and line may be wrong",)


def _still_missing(value: Any, prefix: str) -> Iterator[str]:
    pairs = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for name, below in pairs:
        if below == MISSING:
            yield f"{prefix}{name}"
        else:
            yield from _still_missing(below, f"{prefix}{name}.")


def plain(config: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the resolved values of an OmegaConf mapping, and the keys that have none with the reason.

    What cannot be resolved (a missing environment variable, an unknown resolver) stays as it is written;
    everything else is resolved all the same.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    register_resolvers()
    try:
        values: Any = OmegaConf.to_container(config, resolve=True)
        return values, {}
    except OmegaConfBaseException:
        unresolved: dict[str, str] = {}
        return _tolerant(config, "", unresolved), unresolved


def _tolerant(node: Any, prefix: str, unresolved: dict[str, str]) -> Any:
    from omegaconf import DictConfig, ListConfig, OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    names = list(node.keys()) if isinstance(node, DictConfig) else list(range(len(node)))
    made: dict[Any, Any] = {}
    for name in names:
        key = f"{prefix}.{name!s}" if prefix else str(name)
        if OmegaConf.is_missing(node, name):
            made[name] = MISSING
            continue
        try:
            value = node[name]
        except OmegaConfBaseException as error:
            made[name] = node._get_node(name)._value()
            unresolved[key] = str(error).splitlines()[0]
            continue
        made[name] = _tolerant(value, key, unresolved) if isinstance(value, (DictConfig, ListConfig)) else value
    return made if isinstance(node, DictConfig) else list(made.values())
