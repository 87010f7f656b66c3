"""The `.env` of the user's repository, read as data: parsed by python-dotenv, checked line by line, never evaluated.

`python -I -m autoresearch.dotenv_file FILE` writes NUL-separated pairs for the bash hand-over (lib/dotenv.bash).
"""

from __future__ import annotations

import gc
import os
import stat
import sys
from types import ModuleType

from autoresearch.errors import AutoresearchError, Refused
from autoresearch.leaving import leave

_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_KEY = _LETTERS | frozenset("0123456789_")
# Names that steer programs instead of informing them: a value here would run code in the next shell, git or linker.
_STEERING = (
    " PATH IFS PS4 ENV SHELL SHELLOPTS PROMPT_COMMAND CDPATH HOME USER LOGNAME TMPDIR"
    " MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES "
)
# bash's own variables: it reads the value of the first four as arithmetic, which runs `a[$(command)]` also in an
# `export`; the others it keeps to itself, or they change how our own wrapper goes on.
_BASH = (
    " RANDOM SRANDOM HISTCMD OPTIND OPTERR LINENO SECONDS EPOCHSECONDS EPOCHREALTIME UID EUID PPID SHLVL GROUPS"
    " DIRSTACK FUNCNAME FUNCNEST PIPESTATUS POSIXLY_CORRECT TMOUT "
)
_STEERING_FAMILIES = ("LD_", "DYLD_", "PYTHON", "GIT_", "AR_", "BASH")
# One string of an environment is limited to 128 KiB by the kernel (MAX_ARG_STRLEN).
_LONGEST = 128 * 1024 - 1


def load(path: str) -> dict[str, str]:
    """Return the pairs of a `.env` file, without interpolation.

    Args:
        path: the file itself; nothing else is searched for.

    Raises:
        Refused: unreadable, a line that cannot be parsed, a key that is no plain name or steers programs; the
            message names file and line, never a value.
    """
    data = _read(path)
    try:
        source = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise _broken(path, line, "is not UTF-8") from None
    import io

    pairs: dict[str, str] = {}
    for binding in _parser().parse_stream(io.StringIO(source)):
        # The parser counts blank lines before a binding as part of it.
        written = binding.original.string
        line = binding.original.line + written[: len(written) - len(written.lstrip())].count("\n")
        if binding.error:
            raise _broken(path, line, "cannot be read (a missing quote or blank-separated words?)")
        if binding.key is None:
            continue
        _check(path, line, binding.key, binding.value)
        pairs[binding.key] = binding.value or ""
    return pairs


def _parser() -> ModuleType:
    """Return python-dotenv's parser alone: the package around it loads logging and tempfile, 20 ms of a 40 ms start."""
    from importlib.util import find_spec, module_from_spec, spec_from_file_location

    package = find_spec("dotenv")
    if package is None or not package.origin:
        raise AutoresearchError(".env", "python-dotenv is not installed", "make setup")
    file = os.path.join(os.path.dirname(package.origin), "parser.py")
    spec = spec_from_file_location("autoresearch_dotenv_parser", file)
    if spec is None or spec.loader is None:
        raise AutoresearchError(".env", f"{file} cannot be loaded", "make setup")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _read(path: str) -> bytes:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise Refused(".env", f"{path} is not a regular file", "make it a plain file of KEY=value lines")
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise Refused(
            ".env", f"{path} cannot be read ({error.strerror})", f"check its owner and mode: ls -l {path}"
        ) from None


def _check(path: str, line: int, key: str, value: str | None) -> None:
    if value is None:
        raise _broken(path, line, "has a key without a value")
    if key[:1] not in _LETTERS or not _KEY.issuperset(key):
        raise _broken(path, line, "has a key that is not of the form A-Z, 0-9 and _")
    if f" {key} " in _STEERING + _BASH or key.startswith(_STEERING_FAMILIES):
        raise _broken(path, line, f"sets {key}, which steers programs")
    if "\0" in value or len(value.encode()) + len(key) > _LONGEST:
        raise _broken(path, line, f"has a value for {key} that no environment can hold")


def _broken(path: str, line: int, why: str) -> Refused:
    return Refused(".env", f"{path} line {line} {why}", "correct that line; values are never shown")


def warnings(path: str) -> list[str]:
    """Return what is worth saying about the file's owner and mode, one line each; empty when all is well."""
    try:
        info = os.stat(path)
    except OSError:
        return []
    found = []
    if info.st_uid != os.geteuid():
        found.append(f"{path} is not yours")
    if info.st_mode & 0o077:
        from shlex import quote

        found.append(f"{path} can be read by others: chmod 600 {quote(path)}")
    return found


def main() -> int:
    """Write the pairs of the file given as argument; exit 3 with a message when it is refused."""
    try:
        pairs = load(sys.argv[1])
    except AutoresearchError as error:
        sys.stderr.write(f"{error}\n")
        return error.code
    out = "".join(f"{key}\0{value}\0" for key, value in pairs.items())
    sys.stdout.buffer.write(out.encode("utf-8"))
    return 0


if __name__ == "__main__":
    gc.disable()
    leave(main())
