"""Calls of other people's command line programs: argument lists, a time limit, never a shell."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from autoresearch.errors import Refused
from autoresearch.launchers import Job

MISSING, TIMED_OUT = 127, 124
SHORTEST_SECRET = 6  # shorter values ("1", "true") occur everywhere


class Answer(NamedTuple):
    """What a program said. `code` is 127 when it is not installed and 124 when it did not answer in time."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """The last line of what it complained about, else of what it said."""
        told = (self.err.strip() or self.out.strip()).splitlines()
        lines = [line for line in told if not line.startswith("Try ")]  # `Try "sbatch --help"` behind an unknown option
        return lines[-1].strip() if lines else f"exit {self.code} without a word"


def call(
    argv: Sequence[str],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    stdin: str = "",
) -> Answer:
    """Run `argv` in a session of its own and return its answer; never raises for what the program does.

    Args:
        timeout_s: seconds after which the program and its children are killed.
        env: the whole environment; None means the caller's.
        stdin: text for its standard input.
    """
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=None if env is None else dict(env),
            cwd=cwd,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        missing = cwd if error.filename == cwd else argv[0]
        return Answer(MISSING, "", f"{missing}: not found")
    except OSError as error:
        return Answer(126, "", f"{argv[0]}: {error.strerror}")
    try:
        out, err = process.communicate(stdin.encode() if stdin else None, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        out, err = _kill(process)
        return Answer(TIMED_OUT, _text(out), f"{_text(err)}\n{argv[0]}: no answer in {timeout_s:g} s")
    return Answer(process.returncode, _text(out), _text(err))


def _kill(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    try:
        return process.communicate(timeout=2)
    except subprocess.TimeoutExpired:  # a child in uninterruptible wait holds the pipe: leave it
        return b"", b""


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def refuse_secrets(job: Job, where: str, texts: Iterable[str]) -> None:
    """Refuse texts that hold the value of one of the job's secrets; the message names the key, not the value.

    Args:
        where: what the texts are for, as the message calls it ("the command").
    Raises:
        Refused: a value of at least six characters occurs in one of them.
    """
    joined = "\0".join(texts)
    for key in job.secret_keys:
        value = job.env.get(key, "")
        if len(value) >= SHORTEST_SECRET and value in joined:
            raise Refused(where, f"holds the value of {key}", "leave it to the environment of the run")
