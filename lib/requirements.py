"""Prints the dependencies of a pyproject.toml, and of one of its extras, NUL-separated, for pip or uv.

Usage: requirements.py PYPROJECT [EXTRA]. Runs before there is a .venv, so it needs the standard library only.
"""

import sys
import tomllib


def requirements(path: str, extra: str) -> list[str]:
    """Return the requirement strings of the project and of `extra` (extras that name the project are followed)."""
    with open(path, "rb") as file:
        project = tomllib.load(file)["project"]
    found: list[str] = list(project["dependencies"])
    todo = [extra] if extra else []
    while todo:
        for word in project["optional-dependencies"][todo.pop()]:
            if word.startswith(f"{project['name']}["):
                todo += word[len(project["name"]) + 1 : -1].split(",")
            else:
                found.append(word)
    return found


if __name__ == "__main__":
    sys.stdout.write("".join(f"{word}\0" for word in requirements(sys.argv[1], sys.argv[2] if sys.argv[2:] else "")))
