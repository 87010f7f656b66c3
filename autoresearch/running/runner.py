"""One local run, from its launch until nothing of it lives, inside its limits.

The supervisor sleeps in poll(2): it wakes when a child ends, when the watchdog has something to say,
and when the time is up. The run writes straight into its log, so how much it prints costs nothing
here. All times are monotonic.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from autoresearch.errors import Refused, TryAgain
from autoresearch.launchers import Outcome, Watch
from autoresearch.running import endcause, keeper, processes, runfile
from autoresearch.running.watchdog import Limits, Watchdog

TRUSTED_S = 2.0  # so long ago the file system answered
FILES_S = 10.0  # to read the log's end after a run that ended by itself
KEEP_S = 0.5  # to keep the outcome, within the time after cap and grace
WATCH_AFTER_S = 0.05  # a run that has ended by then needs no helper
REPLACE_S = 5.0
LONGEST_POLL_S = 3600.0
CANNOT_RUN = 127
GIB_IN_KIB = 1024 * 1024


class Command(NamedTuple):
    """What to run and how far it may go."""

    argv: list[str]
    cwd: str
    env: Mapping[str, str]
    logs: str  # the attempt's log directory: `run.json` is kept there
    log_path: str
    cap_s: float | None
    grace_s: float
    deadline: float | None = None  # epoch seconds
    mark: str = ""  # of processes.Mark.text(); drawn when empty
    limits: Limits = Limits()


def run(command: Command, watch: Watch) -> Outcome:
    """Run a command to its end and return how it ended.

    Whatever happens, this returns within cap + grace + 2 s, and then nothing that the command started
    lives, unless the kernel cannot end it (the reason says so). Must be called in a process of its own
    that is a child subreaper, as `keeper.detach` makes one: every child is taken to be the run's.

    Raises:
        Refused: the record of the launch could not be written; nothing was started.
    """
    return _Run(command, watch).go()


def recover(logs: str, *, grace_s: float | None = None) -> Outcome:
    """Finish a run whose supervisor was killed: end what is left of it, and say how it had ended.

    Args:
        logs: the attempt's log directory.
        grace_s: seconds between TERM and KILL; by default that of the launch.

    Returns:
        The true outcome when the run had ended and somebody saw it, else one with end cause `lost`.

    Raises:
        TryAgain: the run was started on another machine, where it may still go on.
    """
    record = runfile.read(logs)
    if record is None:
        return Outcome("lost", None, None, None, 0.0, reason="it left no record of its launch")
    mark = processes.parse_mark(record.mark)
    if mark.boot != processes.boot_id() and record.host != os.uname().nodename:
        raise TryAgain("recovery", f"the run was started on {record.host}", "call it there")
    processes.end_marked(mark, record.grace_s if grace_s is None else grace_s)
    if record.outcome is not None:
        return Outcome(**record.outcome)
    finished = _last_write(record)
    elapsed = max(0.0, finished - record.started_at)
    seen = keeper.ended.get(record.pid)
    code = None if seen is None else endcause.exit_code(seen[0])
    verdict = endcause.classify(endcause.Evidence(code), endcause.tail(record.log_path))
    peak = seen[1] / GIB_IN_KIB if seen and seen[1] / GIB_IN_KIB > own_peak_gb() else None
    source = "maxrss" if peak is not None else ""
    reason = verdict.reason or ("its supervisor was killed" if code is None else "")
    return Outcome(verdict.cause, code, record.started_at, finished, elapsed, peak, source, record.host, reason)


def _last_write(record: runfile.Record) -> float:
    """Return when the log was last written, which is the last that is known of a lost run."""
    try:
        return max(record.started_at, os.stat(record.log_path).st_mtime)
    except OSError:
        return record.started_at


class _Run:
    def __init__(self, command: Command, watch: Watch) -> None:
        self.command, self.watch = command, watch
        self.mark = processes.parse_mark(command.mark) if command.mark else processes.new_mark()
        self.ended: dict[int, tuple[int, int]] = {}
        self.children_left = True
        self.cause, self.detail = "", ""
        self.peak_gb, self.peak_source = 0.0, ""
        self.hurried = 0
        self.dog: Watchdog | None = None
        self.pid = 0
        self.complaint = -1

    def go(self) -> Outcome:
        wake, wake_writer = os.pipe()
        for fd in (wake, wake_writer):
            os.set_blocking(fd, False)
        self.wake = wake
        previous = signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        handlers = {number: signal.signal(number, _wake) for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)}
        try:
            if self.watch.stop_requested() or keeper.stop_asked():
                return self._never("stopped", "before the launch")
            return self._supervised()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(previous)
            os.close(wake)
            os.close(wake_writer)

    def _never(self, cause: str, reason: str) -> Outcome:
        now = time.time()
        return Outcome(cause, None, now, now, 0.0, host=os.uname().nodename, reason=reason)

    def _supervised(self) -> Outcome:
        oom_before = _kernel_ooms()
        self._launch()
        try:
            self._follow()
        finally:
            stuck = self._finish()
        status, _ = self.ended.get(self.pid, (None, 0))
        outcome = self._judge(status, stuck, oom_before)
        self._safely(lambda: _write_end(self.command.logs, self.record._replace(outcome=outcome._asdict())), KEEP_S)
        return outcome

    def _safely(self, work: Callable[[], bytes], patience_s: float) -> bytes:
        """Do something with files; after a run of some length in a helper, as the disk may hang by now."""
        if time.monotonic() - self.began < TRUSTED_S:
            return work()
        return processes.bounded(work, patience_s) or b""

    def _launch(self) -> None:
        """Fork the run, which waits until its mark and identity are on disk, then let it go."""
        command = self.command
        gate, opener = os.pipe()
        self.complaint, complain = os.pipe()
        environment = processes.marked(command.env, self.mark)
        self.pid = os.fork()
        if self.pid == 0:
            _become(command, environment, self.mark, gate, complain)
        os.close(gate)
        os.close(complain)
        try:
            self.started_at, self.began = time.time(), time.monotonic()
            self.record = runfile.Record(
                self.mark.text(),
                os.uname().nodename,
                self.started_at,
                command.grace_s,
                command.log_path,
                self.pid,
                _identity(self.pid),
                _identity(os.getpid()),
            )
            runfile.write(command.logs, self.record)
            os.write(opener, b"g")
        except OSError as error:
            os.close(self.complaint)
            processes.retire(self.pid)
            why = f"cannot write {command.logs}/{runfile.NAME}: {error.strerror}"
            raise Refused("launch", why, "check disk space and permissions, then try again") from None
        finally:
            os.close(opener)  # without the byte the child ends by itself
        try:
            self.watch.started(self.started_at)
        except OSError:
            pass  # run.json has it

    def _follow(self) -> None:
        """Sleep and wake until the run has ended by itself or is to be ended."""
        limit = self.began + self._seconds()
        watch_at = self.began + WATCH_AFTER_S
        while not self._over(limit):
            if self.dog is None and time.monotonic() >= watch_at:
                watch_at = time.monotonic() + REPLACE_S  # should this one be killed
                self.dog = Watchdog(
                    self.command.limits, self.command.log_path, self.watch.stop_requested, self.watch.say
                )
            until = limit if self.dog else min(limit, watch_at)
            poller = select.poll()
            for fd in (self.wake, *((self.dog.reader,) if self.dog else ())):
                poller.register(fd, select.POLLIN)
            poller.poll(min(max(0.0, until - time.monotonic()), LONGEST_POLL_S) * 1000)

    def _seconds(self) -> float:
        cap = float("inf") if self.command.cap_s is None else self.command.cap_s
        left = float("inf") if self.command.deadline is None else self.command.deadline - self.started_at
        self.by_deadline = left < cap
        return max(0.0, min(cap, left))

    def _over(self, limit: float) -> bool:
        asked = self._signals()
        if self._reaped():
            return True
        self._hear()
        if not self.cause and (asked or keeper.stop_asked()):
            self.cause, self.detail = "stopped", "by a signal to the supervisor"
        if not self.cause and time.monotonic() >= limit:
            why = "the campaign's deadline" if self.by_deadline else f"the cap of {self.command.cap_s:g} s"
            self.cause, self.detail = "timeout", f"reached {why}"
        return bool(self.cause)

    def _reaped(self) -> bool:
        """Collect what has ended; true once the run's first process has."""
        self.children_left = keeper.reap(self.ended)
        return self.pid in self.ended

    def _signals(self) -> int:
        """Empty the wake-up pipe; returns how many requests to stop were in it."""
        try:
            found = os.read(self.wake, 4096)
        except BlockingIOError:
            return 0
        return found.count(signal.SIGTERM) + found.count(signal.SIGINT)

    def _hear(self, last: bool = False) -> None:
        """Take in what the watchdog says; one that was killed is put away, and replaced later."""
        if self.dog is None:
            return
        gone = self.ended.pop(self.dog.pid, None) is not None
        words = self.dog.retire(reaped=gone) if last or gone else self.dog.news()
        if last or gone:
            self.dog = None
        for word, detail in words:
            if word == "memory":
                size, self.peak_source = detail.split(" ", 1)
                self.peak_gb = float(size)
            elif not self.cause:
                self.cause, self.detail = ("stopped", "") if word == "stop" else (word, detail)

    def _finish(self) -> list[processes.Process]:
        """End whatever of the run is left; a second TERM to the supervisor cuts the grace short."""
        cause, detail = self.cause, self.detail
        self._hear(last=True)
        self.cause, self.detail = cause, detail  # a word that came after the end does not explain it
        stuck = processes.end(self._left, self.command.grace_s, hurry=self._hurry, wake_fd=self.wake)
        self._reaped()
        return stuck

    def _left(self) -> list[processes.Process]:
        self._reaped()
        return processes.descendants() if self.children_left else []

    def _hurry(self) -> bool:
        self.hurried += self._signals()
        return self.hurried > 0

    def _judge(self, status: int | None, stuck: list[processes.Process], oom_before: int) -> Outcome:
        elapsed = time.monotonic() - self.began
        code = None if status is None else endcause.exit_code(status)
        complaint = _drain(self.complaint)
        killed = code == 128 + signal.SIGKILL and not self.cause
        evidence = endcause.Evidence(
            code,
            self.cause,
            self.detail,
            killed and _kernel_ooms() > oom_before,
            complaint,
            _full(self.command.limits) if code and not self.cause else "",
        )
        # What we ended needs no explanation from a log that may hang.
        log = b"" if self.cause else self._safely(lambda: endcause.tail(self.command.log_path), FILES_S)
        verdict = endcause.classify(evidence, log)
        reason = verdict.reason
        if stuck:
            pids = " ".join(str(process.pid) for process in stuck[:8])
            reason = f"{reason}; cannot be ended: pid {pids}".lstrip("; ")
        memory, source = self._memory()
        return Outcome(
            verdict.cause,
            code,
            self.started_at,
            self.started_at + elapsed,
            elapsed,
            memory,
            source,
            os.uname().nodename,
            reason,
        )

    def _memory(self) -> tuple[float | None, str]:
        """The sampled peak, or the largest single process (wait4(2)) where that is more, or all there is."""
        largest = max((peak for _, peak in self.ended.values()), default=0) / GIB_IN_KIB
        if largest <= own_peak_gb():
            largest = 0.0  # what wait4 says begins with the size of this process at the fork
        if self.peak_source.startswith("nvml") or (self.peak_gb and self.peak_gb >= largest):
            return self.peak_gb, self.peak_source
        return (largest, "maxrss") if largest else (None, "")


def own_peak_gb() -> float:
    """Return the most memory that this process ever held, in GiB: a forked child's peak is never reported below it."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / GIB_IN_KIB


def _wake(_signum: int, _frame: object) -> None:
    """Let set_wakeup_fd do the work."""


def _write_end(logs: str, record: runfile.Record) -> bytes:
    """Keep the outcome; without it only a kill in the next moments would lose the result."""
    try:
        runfile.write(logs, record)
    except OSError:
        pass
    return b""


def _identity(pid: int) -> str:
    found = processes.identify(pid)
    return found.text() if found else ""


def _become(command: Command, env: Mapping[str, str], mark: processes.Mark, gate: int, complain: int) -> None:
    """Turn this fork into the run; never returns."""
    try:
        os.setsid()
        processes.wear(mark)
        processes.close_all((gate, complain))
        null = os.open(os.devnull, os.O_RDONLY)
        log = os.open(command.log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        for fd, target in ((0, null), (1, log), (2, log)):
            os.dup2(target, fd)
        os.close(null)
        os.close(log)
        processes.default_signals()
        if os.read(gate, 1) != b"g":
            os._exit(CANNOT_RUN)
        os.close(gate)
        os.chdir(command.cwd)
        os.execvpe(command.argv[0], command.argv, env)
    except (OSError, ValueError) as error:
        text = getattr(error, "strerror", None) or str(error)
        os.write(complain, f"cannot run {command.argv[0]}: {text}".encode())
    finally:
        os._exit(CANNOT_RUN)


def _drain(fd: int) -> str:
    os.set_blocking(fd, False)
    try:
        return os.read(fd, 4096).decode("utf-8", "replace")
    except BlockingIOError:
        return ""
    finally:
        os.close(fd)


def _kernel_ooms() -> int:
    """Return how many processes the kernel has killed for want of memory since the boot (Linux 4.13)."""
    found = processes.read("/proc/vmstat", 1 << 16).partition(b"\noom_kill ")[2].split(b"\n")[0]
    return int(found or 0)


def _full(limits: Limits) -> str:
    """Return which watched disk had nothing left, right after a failure."""
    from autoresearch.running import disk

    for space in disk.spaces(list(limits.disk_paths)) if limits.disk_paths else []:
        short = space.inodes_free == 0 or (not space.trouble and space.free_gb < 1 / 1024)
        if short:
            return f"{space.path} is full"
    return ""
