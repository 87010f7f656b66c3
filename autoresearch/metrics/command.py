"""The number that a program of the user prints: `command:PROGRAM ARGS`."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile

from autoresearch.errors import Usage
from autoresearch.metrics import Where, numbers
from autoresearch.metrics.aggregate import Found

LIMIT_S = 120.0
LONGEST = 1 << 16


def words(rest: str) -> list[str]:
    """The argument list of a command line; no shell ever sees it. Raises Usage when it is empty or unbalanced."""
    try:
        argv = shlex.split(rest)
    except ValueError as error:
        raise Usage("METRIC", f"command:{rest}: {error}", "check the quotes") from error
    if not argv:
        raise Usage("METRIC", "command: needs a program", "write command:PROGRAM ARGS")
    return argv


def find(rest: str, where: Where, *, limit_s: float = LIMIT_S, env: dict[str, str] | None = None) -> Found:
    """Run the program in the run's directory and read the one number that it prints.

    Args:
        rest: the command line; split into words, not given to a shell.
        where: handed to the program as RUN_LOG, LOG_DIR, CHECKPOINT_DIR and ARTIFACT_DIR.
        limit_s: seconds after which the program's process group is killed.
        env: the environment; the caller's own by default.
    """
    argv = words(rest)
    source = f"command {argv[0]}"
    base = dict(os.environ if env is None else env)
    base.update(RUN_LOG=where.log, LOG_DIR=where.logs, CHECKPOINT_DIR=where.checkpoints, ARTIFACT_DIR=where.artifacts)
    cwd = where.tree if os.path.isdir(where.tree) else None
    # Files, not pipes: a grandchild that keeps a pipe open cannot hold us, and much output cannot block it.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            child = subprocess.Popen(
                argv, cwd=cwd, env=base, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
            )
        except (OSError, ValueError) as error:
            return Found(source, trouble=f"cannot run {argv[0]}: {getattr(error, 'strerror', None) or error}")
        try:
            code = child.wait(limit_s)
        except subprocess.TimeoutExpired:
            _kill(child)
            return Found(source, trouble=f"{argv[0]} did not end within {limit_s:g} s and was killed")
        out.seek(0)
        text = out.read(LONGEST).decode("utf-8", "replace").strip()
        err.seek(0)
        said = err.read(LONGEST).decode("utf-8", "replace").strip().splitlines()
    if code != 0:
        why = f": {said[-1][:200]}" if said else ""
        return Found(source, trouble=f"{argv[0]} ended with {code}{why}")
    try:
        return Found(source, [numbers.strict(text)], [None], lambda _: (0, text, None))
    except ValueError:
        shown = text[:60] + ("..." if len(text) > 60 else "")
        return Found(source, trouble=f"{argv[0]} must print one number and nothing else; it printed {shown!r}")


def _kill(child: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()
