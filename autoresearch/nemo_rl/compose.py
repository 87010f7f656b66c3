"""A recipe and its parents as one config: NeMo-RL's inheritance rules, kept by OmegaConf's own merge.

The rules (NeMo-RL `nemo_rl/utils/config.py` at 7ea279a): `defaults` is one path or a list of them, relative
to the directory of the file that names it; depth first, left to right, the child last; mappings merge,
lists replace; a mapping on the top level with `_override_: true` replaces; a child's `???` erases nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from copy import deepcopy
from typing import Any, NamedTuple

from autoresearch.errors import Usage
from autoresearch.nemo_rl.parsing import Mark, Parsed, overlay, parse, stamp

SECRET_WORDS = frozenset(("TOKEN", "KEY", "APIKEY", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "CREDENTIALS"))
_NO_DEFAULT = object()
_CACHE: dict[tuple[str, bool], tuple[tuple[tuple[int, ...], ...], Composed]] = {}
_environment: ContextVar[Environment | None] = ContextVar("environment", default=None)


class Composed(NamedTuple):
    """One config from a file and its parents: `files` is depth first, the file itself leading."""

    config: Any  # an OmegaConf DictConfig with its interpolations kept; shared, never to be changed
    marks: Mark
    files: tuple[str, ...]


class Environment:
    """The environment that `${oc.env:NAME}` reads while a recipe is resolved, and what it asked for."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = values
        self.missing: set[str] = set()
        self.secrets: set[str] = set()

    def __enter__(self) -> Environment:
        register_resolvers()
        self._token = _environment.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _environment.reset(self._token)

    def read(self, name: str, default: Any) -> str | None:
        """Return the value of `name` as OmegaConf's `oc.env` would; a secret's value stays here."""
        if name in self.values:
            if is_secret(name):
                self.secrets.add(name)
                return f"<{name}>"
            return self.values[name]
        if default is not _NO_DEFAULT:
            return None if default is None else str(default)
        self.missing.add(name)
        if is_secret(name):
            self.secrets.add(name)
        raise KeyError(f"environment variable {name!r} is not set")


def is_secret(name: str) -> bool:
    """Tell whether an environment variable of this name holds a secret, as far as its name says."""
    return not SECRET_WORDS.isdisjoint(name.upper().split("_"))


def _read_environment(name: str, default: Any = _NO_DEFAULT) -> str | None:
    given = _environment.get() or Environment(os.environ)
    return given.read(name, default)


def register_resolvers() -> None:
    """Make NeMo-RL's arithmetic known to OmegaConf, and let `oc.env` read the environment of the run."""
    from omegaconf import OmegaConf

    rules: dict[str, Callable[..., Any]] = {
        "add": lambda a, b: a + b,
        "mul": lambda a, b: a * b,
        "div": lambda a, b: a / b,
        "max": lambda a, b: max(a, b),
    }
    for name, rule in rules.items():
        if not OmegaConf.has_resolver(name):
            OmegaConf.register_new_resolver(name, rule)
    OmegaConf.register_new_resolver("oc.env", _read_environment, replace=True)


def compose(path: str, *, strict: bool) -> Composed:
    """Return the config of the recipe at absolute `path` with all its parents.

    Args:
        path: the recipe.
        strict: fail where NeMo-RL's loader fails too, on a top-level interpolation of what its own file lacks.

    Raises:
        Usage: a file is missing or malformed, or the parents form a circle; the message names file and line.
    """
    register_resolvers()
    return _compose(os.path.abspath(path), strict, ())


def _compose(path: str, strict: bool, below: tuple[str, ...], named_at: str = "") -> Composed:
    from omegaconf import OmegaConf

    if path in below:
        circle = " -> ".join((*below[below.index(path) :], path))
        raise Usage("recipe", f"its parents form a circle: {circle}", "take one `defaults:` out")
    known = _CACHE.get((path, strict))
    if known and known[0] == tuple(stamp(file) for file in known[1].files) and all(known[0]):
        return known[1]
    parsed = parse(path, named_at)
    own = OmegaConf.create({key: value for key, value in parsed.data.items() if key != "defaults"})
    config, marks, files = own, _without_defaults(parsed.marks), [path]
    parents = _parents(parsed)
    if parents is not None:
        base, base_marks = OmegaConf.create({}), Mark(path, 1)
        base_marks.children = {}
        for name, line in parents:
            parent = name if name.startswith("/") else os.path.normpath(os.path.join(os.path.dirname(path), name))
            composed = _compose(parent, strict, (*below, path), f"{path}:{line}")
            base = _merge(base, composed.config, strict, composed.files[0])
            base_marks = overlay(base_marks, composed.marks)
            files.extend(file for file in composed.files if file not in files)
        config, marks = _merge(base, own, strict, path), overlay(base_marks, marks)
    done = Composed(config, marks, tuple(files))
    _CACHE[path, strict] = (tuple(stamp(file) for file in files), done)
    return done


def _without_defaults(marks: Mark) -> Mark:
    own = Mark(marks.file, marks.line)
    own.children = {name: below for name, below in (marks.children or {}).items() if name != "defaults"}
    return own


def _parents(parsed: Parsed) -> list[tuple[str, int]] | None:
    """The parents a file names, each with the line; None when it has no `defaults`."""
    if "defaults" not in parsed.data:
        return None
    value = parsed.data["defaults"]
    mark = (parsed.marks.children or {})["defaults"]
    if isinstance(value, str):
        return [(value, mark.line)]
    if isinstance(value, list) and all(isinstance(item, (str, int, float)) for item in value):
        lines = mark.children or {}
        return [(str(item), lines[str(n)].line if str(n) in lines else mark.line) for n, item in enumerate(value)]
    raise Usage(
        "recipe",
        f"{parsed.path}:{mark.line}: `defaults` is neither a path nor a list of paths",
        "name the parent recipes relative to this file",
    )


def _merge(base: Any, child: Any, strict: bool, path: str) -> Any:
    from omegaconf import DictConfig, OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    marked: list[Any] = []
    try:
        for key in list(child.keys()):
            if OmegaConf.is_missing(child, key):
                continue
            # NeMo-RL looks at each value, which resolves an interpolation before there is anything to resolve it with.
            value = child[key] if strict else child._get_node(key)
            if isinstance(value, DictConfig) and not value._is_none() and "_override_" in value and value["_override_"]:
                marked.append(key)
        if marked:
            base, child = deepcopy(base), deepcopy(child)
            for key in marked:
                child[key].pop("_override_")
                base.pop(key, None)
        if not base.keys() and not marked:
            return child
        return OmegaConf.merge(base, child)
    except OmegaConfBaseException as error:
        why = str(error).splitlines()[0]
        raise Usage("recipe", f"{path}: its parts cannot be merged: {why}", "correct the file") from None
