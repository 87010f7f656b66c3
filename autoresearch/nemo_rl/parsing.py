"""YAML files as OmegaConf reads them, with the line that each key stands on."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any, NamedTuple

from autoresearch.errors import Usage

MISSING = "???"  # OmegaConf's mark of a value that a child or the command line must give
_CACHE: dict[str, tuple[tuple[int, ...], Parsed]] = {}


class Mark:
    """Where one key was set: file, line, the scalar as it is written, and the keys below it.

    `children` is None for a scalar; list items are children called `0`, `1`, ...
    """

    __slots__ = ("children", "file", "is_list", "line", "quoted", "raw")

    def __init__(self, file: str, line: int, raw: str | None = None, quoted: bool = False) -> None:
        self.file, self.line, self.raw, self.quoted = file, line, raw, quoted
        self.children: dict[str, Mark] | None = None
        self.is_list = False


class Parsed(NamedTuple):
    """One YAML file: its absolute path, its data as plain Python values, and the marks of its keys."""

    path: str
    data: dict[Any, Any]
    marks: Mark


def stamp(path: str) -> tuple[int, ...]:
    """Return what changes when the file at `path` is written again; () when it is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return (found.st_mtime_ns, found.st_size, found.st_ino)


@lru_cache(maxsize=1)
def _loaders() -> list[Any]:
    """The YAML loaders to try: libyaml's parser under OmegaConf's rules, then OmegaConf's own."""
    import yaml
    from omegaconf._utils import get_yaml_loader

    # `1e-5` is a float and a date is a string for OmegaConf, unlike for plain PyYAML: its loader decides.
    own: Any = get_yaml_loader()
    try:
        from yaml.cyaml import CParser  # type: ignore[attr-defined]
    except ImportError:  # PyYAML without libyaml
        return [own]

    class Fast(CParser, own):  # type: ignore[misc]
        def __init__(self, stream: str) -> None:
            CParser.__init__(self, stream)
            yaml.constructor.SafeConstructor.__init__(self)
            yaml.resolver.Resolver.__init__(self)

    return [Fast, own]


def parse(path: str, named_at: str = "") -> Parsed:
    """Read the YAML file at absolute `path`.

    Args:
        path: the file.
        named_at: `file:line` of the `defaults:` that names it, for the message; empty for the recipe itself.

    Raises:
        Usage: it cannot be read, is not YAML, holds a key twice, or is not a mapping.
    """
    now = stamp(path)
    known = _CACHE.get(path)
    if known and now and known[0] == now:
        return known[1]
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        why = f"{path}: {getattr(error, 'strerror', None) or error}"
        raise Usage("recipe", f"{why} (named at {named_at})" if named_at else why, "correct the path") from None
    data, marks = _read(path, text)
    if not isinstance(data, dict):
        raise Usage("recipe", f"{path} is a {type(data).__name__}, not a mapping of keys", "give a training recipe")
    parsed = Parsed(path, data, marks)
    _CACHE[path] = (now, parsed)
    return parsed


def _read(path: str, text: str) -> tuple[Any, Mark]:
    import yaml

    failure: Exception | None = None
    for make in _loaders():
        loader = make(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return {}, Mark(path, 1)
            return loader.construct_document(node), _marks(path, node, {})
        except yaml.YAMLError as error:
            failure = error
        except (ValueError, RecursionError) as error:  # an impossible number, an alias of itself
            failure = error
        finally:
            loader.dispose()
    place = getattr(failure, "problem_mark", None)
    line = f":{place.line + 1}" if place is not None else ""
    raise Usage("recipe", f"{path}{line}: {getattr(failure, 'problem', None) or failure}", "correct the file") from None


def _marks(path: str, node: Any, seen: dict[int, Mark]) -> Mark:
    """The marks below one YAML node; an alias is marked where its anchor stands."""
    import yaml

    known = seen.get(id(node))
    if known is not None:
        return known
    mark = Mark(path, node.start_mark.line + 1)
    seen[id(node)] = mark
    if isinstance(node, yaml.MappingNode):
        mark.children = {}
        for key_node, value in node.value:
            key = str(key_node.value)
            child = _marks(path, value, seen)
            if key_node.tag == "tag:yaml.org,2002:merge":
                sources = child.children.values() if child.is_list and child.children else [child]
                for source in sources:
                    for name, below in (source.children or {}).items():
                        mark.children.setdefault(name, below)
                continue
            at = Mark(path, key_node.start_mark.line + 1, child.raw, child.quoted)
            at.children, at.is_list = child.children, child.is_list
            mark.children[key] = at
    elif isinstance(node, yaml.SequenceNode):
        mark.children, mark.is_list = {}, True
        for index, item in enumerate(node.value):
            mark.children[str(index)] = _marks(path, item, seen)
    else:
        mark.raw, mark.quoted = str(node.value), node.style is not None
    return mark


def overlay(base: Mark | None, child: Mark, top: bool = True) -> Mark:
    """Return the marks of `child` merged over those of `base`, by the rules that merge their values.

    Mappings merge key by key, lists and scalars replace, `???` keeps what is there, and a mapping on
    the top level that holds `_override_` replaces.
    """
    if base is None:
        return child
    if child.raw == MISSING:
        return base
    if child.children is None or base.children is None or child.is_list or base.is_list:
        return child
    merged = Mark(child.file, child.line)
    merged.children = dict(base.children)
    for name, below in child.children.items():
        replaces = top and below.children is not None and _is_set(below.children.get("_override_"))
        merged.children[name] = below if replaces else overlay(base.children.get(name), below, top=False)
    return merged


def _is_set(mark: Mark | None) -> bool:
    return mark is not None and (mark.raw or "").lower() in ("true", "yes", "on")


def find(marks: Mark, key: str) -> tuple[Mark, bool]:
    """Return the mark of dotted `key`, or of the closest key above it, and whether it is the key itself."""
    at = marks
    for part in key.split("."):
        below = (at.children or {}).get(part)
        if below is None:
            return at, False
        at = below
    return at, True
