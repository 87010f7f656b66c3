"""Files that tracked code needs but git does not know: a worktree would lack them, and the run would die late.

Found: Python modules that a tracked file imports, and paths that the command or the recipe names. Not found: what is
opened by a path built at run time; the plan's REQUIRE is for that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from autoresearch.git import Git

# Directories whose modules come from an installer, not from the user's hand.
NOT_THEIRS = (".venv", "venv", "node_modules", "__pycache__", "build", "dist", "site-packages")
_IMPORT = re.compile(
    r"\s*(?:from\s+(?P<dots>\.*)(?P<module>[\w.]*)\s+import\s+(?P<names>[\w, *(]+)|import\s+(?P<plain>[\w., ]+))"
)


def needed(git: Git, top: str, base: str, words: Sequence[str] = ()) -> list[str]:
    """Return the paths, below `top`, that tracked code needs but git does not know.

    Args:
        git: git in the user's checkout.
        top: root of that checkout.
        base: the commit the campaign starts from.
        words: words of the command and paths of the recipe, which may name files.
    """
    unknown = _unknown(git)
    if not unknown:
        return []
    found: dict[str, None] = {}
    for word in words:
        for part in (word, word.partition("=")[2]):
            path = os.path.normpath(part) if part else ""
            if path and not os.path.isabs(path) and _is_unknown(top, path, unknown):
                found[path] = None
    for file, line in _imports(git, base):
        for path in _candidates(file, line):
            if _is_unknown(top, path, unknown):
                found[path] = None
    return sorted(found)


def _unknown(git: Git) -> tuple[str, ...]:
    """Untracked and ignored paths; a directory without tracked files is one entry with a slash."""
    out = git.run("ls-files", "-z", "--others", "--directory", "--no-empty-directory")
    entries = (os.fsdecode(entry) for entry in out.split(b"\0") if entry)
    return tuple(entry for entry in entries if not set(entry.rstrip("/").split("/")) & set(NOT_THEIRS))


def _is_unknown(top: str, path: str, unknown: tuple[str, ...]) -> bool:
    inside = path in unknown or any(
        entry.endswith("/") and (path + "/").startswith(entry) for entry in unknown
    )  # only a directory entry can hold it
    return inside and os.path.exists(os.path.join(top, path))


def _imports(git: Git, base: str) -> Iterator[tuple[str, str]]:
    done = git.call(
        *("grep", "-z", "-I", "-E", "^[[:space:]]*(from|import)[[:space:]]", base, "--", ":(glob)**/*.py"),
        env={"GIT_LITERAL_PATHSPECS": "0"},
    )
    # With -z the name ends with NUL instead of a colon: `<base>:<path>\0<line>\n`.
    for record in done.out.decode("utf-8", "surrogateescape").split("\n"):
        name, nul, line = record.partition("\0")
        if nul:
            yield name.partition(":")[2], line


def _candidates(file: str, line: str) -> Iterator[str]:
    """Yield the files that an import line of `file` may mean, below each root Python would look in."""
    match = _IMPORT.match(line)
    if not match:
        return
    here = os.path.dirname(file)
    if match["plain"]:
        modules = [word.split()[0] for word in match["plain"].split(",") if word.split()]
        roots = ["", "src", here]
    else:
        names = [word.strip(" (").split(" ")[0] for word in match["names"].split(",")]
        modules = [match["module"]] if match["module"] else []
        modules += [f"{match['module']}.{name}".lstrip(".") for name in names if name and name != "*"]
        up = here
        for _ in range(len(match["dots"]) - 1):
            up = os.path.dirname(up)
        roots = [up] if match["dots"] else ["", "src", here]
    for root in dict.fromkeys(roots):
        for module in modules:
            path = os.path.join(root, *module.split("."))
            yield f"{path}.py"
            yield os.path.join(path, "__init__.py")
