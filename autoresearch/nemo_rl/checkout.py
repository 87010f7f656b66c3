"""The checkout's own config loader, run apart: one file, in a process of its own, under a time limit.

Only `nemo_rl/utils/config.py` runs, and only when it holds nothing but imports of known packages and
definitions; the package around it does not. The process gets no secret: of the environment it sees only what
the recipe's `${oc.env:NAME}` names.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

LOADER = "nemo_rl/utils/config.py"
TIME_LIMIT_S = 30.0
_OURS = frozenset({"hydra", "omegaconf", "yaml", "typing_extensions"})
_STDLIB = frozenset({"__future__", "pathlib", "typing", "os", "re", "copy", "math", "collections", "functools"})
_KNOWN = _OURS | _STDLIB | {"dataclasses", "warnings", "logging", "enum", "itertools"}
_HARMLESS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
_ASKED = re.compile(r"\$\{oc\.env:\s*([A-Za-z_][A-Za-z0-9_]*)")
# Runs in the other process. Key and value pairs, since JSON would make a key of 1 into "1".
_CHILD = """
import importlib.util, json, os, sys
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
spec = importlib.util.spec_from_file_location("checkout_config", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
from omegaconf import OmegaConf
getattr(module, "register_omegaconf_resolvers", lambda: None)()
def pack(value):
    if isinstance(value, dict):
        return {"pairs": [[key, pack(below)] for key, below in value.items()]}
    if isinstance(value, list):
        return [pack(below) for below in value]
    return value if value is None or isinstance(value, (str, int, float)) else str(value)
answer = {"config": None, "resolved": None, "error": ""}
try:
    config = module.load_config(sys.argv[2])
    answer["config"] = pack(OmegaConf.to_container(config, resolve=False))
    answer["resolved"] = pack(OmegaConf.to_container(config, resolve=True))
except Exception as error:
    answer["error"] = f"{type(error).__name__}: {error}".splitlines()[0][:300]
out.write(json.dumps(answer))
out.close()
"""


class Loaded(NamedTuple):
    """What the checkout's loader made of a recipe; each part is None where it failed, `error` says why."""

    config: dict[Any, Any] | None  # interpolations kept
    resolved: dict[Any, Any] | None
    error: str


def why_not(repo: str) -> str:
    """Return why the loader of the checkout at `repo` cannot be run on its own; empty when it can."""
    path = os.path.join(repo, LOADER)
    try:
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read())
    except OSError:
        return f"no {LOADER}"
    except (SyntaxError, ValueError):
        return f"{LOADER} is not valid Python here"
    for node in tree.body:
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "" if not node.level else "."]
        elif not isinstance(node, _HARMLESS) and not (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ):
            return f"{LOADER}:{node.lineno} does more than define"
        for name in names:
            if name.split(".")[0] not in _KNOWN:
                return f"{LOADER}:{node.lineno} imports {name or 'its package'}"
    return ""


def load(repo: str, recipe: str, files: tuple[str, ...], env: Mapping[str, str]) -> Loaded:
    """Let the checkout's loader read a recipe.

    Args:
        repo: absolute path of the checkout; `why_not` must have said nothing about it.
        recipe: absolute path of the recipe.
        files: the recipe and its parents, searched for the environment variables that may be handed over.
        env: the environment of the run.
    """
    from autoresearch.nemo_rl.compose import is_secret

    given = {name: f"<{name}>" if is_secret(name) else env[name] for name in sorted(_asked(files)) if name in env}
    command = [sys.executable, "-I", "-c", _CHILD, os.path.join(repo, LOADER), recipe]
    try:
        done = subprocess.run(
            command,
            env={"PATH": os.defpath, "PYTHONWARNINGS": "ignore", **given},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIME_LIMIT_S,
            check=False,
            start_new_session=True,
        )
        answer = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return Loaded(None, None, f"{LOADER} took more than {TIME_LIMIT_S:.0f} s")
    except ValueError:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return Loaded(None, None, f"{LOADER} failed: {''.join(last)[:300] or f'exit {done.returncode}'}")
    return Loaded(_unpack(answer["config"]), _unpack(answer["resolved"]), str(answer["error"]))


def _asked(files: tuple[str, ...]) -> set[str]:
    names: set[str] = set()
    for path in files:
        try:
            with open(path, encoding="utf-8") as file:
                names.update(_ASKED.findall(file.read()))
        except (OSError, UnicodeDecodeError):
            continue
    return names - {"PATH", "PYTHONWARNINGS"}


def _unpack(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unpack(below) for key, below in value["pairs"]}
    if isinstance(value, list):
        return [_unpack(below) for below in value]
    return value
