"""Why a run ended, told from evidence: its wait status, what we did to it, and the end of its log.

The texts are those that CUDA, PyTorch, Ray, vLLM and NeMo-RL print; a text counts only where it
explains the end: in the last error of the log, not anywhere.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

TAIL_BYTES = 256 * 1024
LAST_LINES = 60  # without a traceback, an error is looked for in so many last lines

RECIPE_TIMEOUT = (
    b"Timeout has been reached, stopping training early",
    b"Timeout reached, stopping training early",
)
FAILED_THOUGH_ZERO = b"Policy generation refit failed"

# Compiled where they are used: most runs end well, and never need them.
OOM = (
    rb"OutOfMemoryError|CUDA out of memory|CUDA [Ee]rror: out of memory|cudaErrorMemoryAllocation"
    rb"|CUBLAS_STATUS_ALLOC_FAILED|RESOURCE_EXHAUSTED: Out of memory|HIP out of memory"
    rb"|(?m:^|[.\s])_?(?:Array)?MemoryError\b|std::bad_alloc|DefaultCPUAllocator: can't allocate memory"
    rb"|Cannot allocate memory|killed due to memory pressure|No available memory for the cache blocks"
    rb"|Out of memory: Killed process|oom[-_]kill(?:er)? event|less than desired GPU memory utilization"
)
DISK = rb"No space left on device|Disk quota exceeded|\[Errno (?:28|122)\]"
LAUNCHER = (
    rb"AF_UNIX path (?:length cannot exceed|too long)|validate_socket_filename failed|Background srun '[^'\r\n]*' died"
    rb"|DUE TO NODE FAILURE|Could not find any running Ray instance|(?:[Ff]ailed|Unable) to connect to GCS"
    rb"|CUDA driver version is insufficient|no CUDA-capable device is detected|Driver/library version mismatch"
    rb"|CUDA-capable device\(s\) is/are busy or unavailable|uncorrectable ECC error|GPU has fallen off the bus"
    rb"|srun: error: Unable to (?:create step|allocate resources|confirm allocation)"
)
_TRACEBACK = b"Traceback (most recent call last)"
_CHAINED = (
    b"During handling of the above exception, another exception occurred:",
    b"The above exception was the direct cause of the following exception:",
)
_FAR = 64 * 1024  # a traceback this far from the end was survived


class Verdict(NamedTuple):
    """A word of DESIGN section 2, and one short line that says what it was told from (may be empty)."""

    cause: str
    reason: str = ""


class Evidence(NamedTuple):
    """What is known about an end besides the log."""

    exit_code: int | None  # as a shell gives it: 128 + N for signal N; None when nobody saw it
    ended_by: str = ""  # `timeout`, `disk`, `stopped`, `stalled` when we ended the run, for that reason
    detail: str = ""  # more on `ended_by`
    kernel_oom: bool = False  # the kernel's count of OOM kills rose while the run went on
    cannot_run: str = ""  # why the command could not be executed at all
    disk_full: str = ""  # the file system that had nothing left right after the end


def exit_code(wait_status: int) -> int:
    """Return the exit code a shell would give for a status of wait(2): the code, or 128 + the signal."""
    code = os.waitstatus_to_exitcode(wait_status)
    return 128 - code if code < 0 else code


def tail(path: str, size: int = TAIL_BYTES) -> bytes:
    """Return the last `size` bytes of a file; nothing when it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        return os.pread(fd, size, max(0, os.fstat(fd).st_size - size))
    except OSError:
        return b""
    finally:
        os.close(fd)


def classify(evidence: Evidence, log_tail: bytes) -> Verdict:
    """Return why a run ended.

    Args:
        evidence: what the supervisor or the engine knows.
        log_tail: the last bytes of the run's log (see `tail`).
    """
    code = evidence.exit_code
    if evidence.ended_by:
        return Verdict(evidence.ended_by, evidence.detail)
    if evidence.cannot_run:
        return Verdict(f"exit {127 if code is None else code}", evidence.cannot_run)
    if code is None:
        return Verdict("lost")
    if code == 0:
        return _zero(log_tail)
    return _failed(code, evidence, last_error(log_tail))


def _zero(log_tail: bytes) -> Verdict:
    """Exit 0: NeMo-RL also returns normally after its own time limit, and after a failed refit (async)."""
    end = last_lines(log_tail)
    failed = end.rfind(FAILED_THOUGH_ZERO)
    if failed >= 0:
        return Verdict("exit 0", f"the log ends with: {_line_around(end, failed, failed)}")
    if any(marker in end for marker in RECIPE_TIMEOUT):
        return Verdict("recipe-timeout")
    return Verdict("ok")


def _failed(code: int, evidence: Evidence, error: bytes) -> Verdict:
    killed = code - 128 if 128 < code <= 128 + 64 else 0
    plain = f"signal {killed}" if killed else f"exit {code}"
    if killed == 9 and evidence.kernel_oom:
        return Verdict("oom", "killed by the kernel: out of memory")
    for cause, pattern in (("launcher", LAUNCHER), ("disk", DISK), ("oom", OOM)):
        if found := re.search(pattern, error):
            return Verdict(cause, f"{plain}: {_line_around(error, found.start(), found.end())}")
    if evidence.disk_full:
        return Verdict("disk", f"{plain}: {evidence.disk_full}")
    if killed:
        return Verdict(plain)
    if code == 15:
        return Verdict(plain, "Ray exits so after a SIGTERM, which did not come from autoresearch")
    return Verdict(plain)


def last_lines(log_tail: bytes, count: int = LAST_LINES) -> bytes:
    """Return the last `count` lines."""
    return b"\n".join(log_tail.rstrip().split(b"\n")[-count:])


def last_error(log_tail: bytes) -> bytes:
    """Return the part of a log that explains its end: from the last traceback on, or the last lines.

    A traceback that was raised while another was handled begins where the first one does.
    """
    first = log_tail.rfind(_TRACEBACK)
    if first < 0 or len(log_tail) - first > _FAR:
        return last_lines(log_tail)
    while (before := log_tail.rfind(_TRACEBACK, 0, first)) >= 0:
        if not any(text in log_tail[max(before, first - 400) : first] for text in _CHAINED):
            break
        first = before
    return log_tail[first:]


def _line_around(text: bytes, start: int, end: int) -> str:
    left = max(text.rfind(b"\n", 0, start), text.rfind(b"\r", 0, start)) + 1
    right = text.find(b"\n", end)
    return _text(text[left : right if right >= 0 else len(text)])


def _text(raw: bytes, limit: int = 200) -> str:
    """Return one printable line of at most `limit` characters."""
    plain = re.sub(r"\x1b\[[0-9;?]*[ -/]*[@-~]", "", raw.decode("utf-8", "replace"))
    line = " ".join("".join(c if c.isprintable() else " " for c in plain).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
