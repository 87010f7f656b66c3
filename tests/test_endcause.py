"""Why a run ended, from exit codes and the texts that real programs print."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.running.endcause import Evidence, classify, exit_code, last_error, tail

TRACEBACK = b'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n'


def cause(code: int | None, log: bytes = b"", **more: object) -> str:
    return classify(Evidence(code, **more), log).cause


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        *((0, "ok"), (1, "exit 1"), (2, "exit 2"), (15, "exit 15"), (127, "exit 127"), (128, "exit 128")),
        *((137, "signal 9"), (139, "signal 11"), (143, "signal 15"), (255, "exit 255"), (None, "lost")),
    ],
)
def test_codes(code: int | None, expected: str) -> None:
    assert cause(code) == expected


def test_exit_codes_are_those_of_a_shell() -> None:
    assert [exit_code(status) for status in (0, 1 << 8, 15, 9, 11 | 0x80)] == [0, 1, 143, 137, 139]


@pytest.mark.parametrize(
    "text",
    [
        b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        b"torch.cuda.OutOfMemoryError: CUDA out of memory.",
        b"ray.exceptions.RayTaskError(OutOfMemoryError): ray::train()",
        b"ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        b"RuntimeError: CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62",
        b"RuntimeError: CUDA error: out of memory",
        b"MemoryError",
        b"numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB",
        b"OSError: [Errno 12] Cannot allocate memory",
        b"terminate called after throwing an instance of 'std::bad_alloc'",
        b"slurmstepd: error: Detected 1 oom_kill event in StepId=1.0",
    ],
)
def test_out_of_memory(text: bytes) -> None:
    verdict = classify(Evidence(1), b"step 1 ok\n" * 50 + TRACEBACK + text + b"\n")
    assert verdict.cause == "oom"
    assert text.decode()[:30] in verdict.reason


@pytest.mark.parametrize(
    "text",
    [
        b"OSError: validate_socket_filename failed: AF_UNIX path length cannot exceed 107 bytes: /ephemeral/x",
        b"OSError: AF_UNIX path too long",
        b"Background srun 'ray-head' died. Exiting",
        b"slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO NODE FAILURE ***",
        b"RuntimeError: CUDA driver version is insufficient for CUDA runtime version",
    ],
)
def test_what_is_not_the_ideas_fault(text: bytes) -> None:
    assert cause(1, text + b"\n") == "launcher"


@pytest.mark.parametrize(
    "text", [b"OSError: [Errno 28] No space left on device: 'x'", b"[Errno 122] Disk quota exceeded"]
)
def test_disk_full(text: bytes) -> None:
    assert cause(1, TRACEBACK + text) == "disk"
    assert cause(137, text) == "disk"


def test_a_disk_that_is_full_explains_a_silent_failure() -> None:
    assert cause(1, b"", disk_full="/ephemeral is full") == "disk"
    assert cause(0, b"", disk_full="/ephemeral is full") == "ok"


def test_the_kernel_as_killer() -> None:
    assert cause(137, b"", kernel_oom=True) == "oom"
    assert cause(1, b"", kernel_oom=True) == "exit 1"


def test_an_error_that_was_survived_explains_nothing() -> None:
    early = TRACEBACK + b"torch.OutOfMemoryError: CUDA out of memory\nretry with a smaller batch\n"
    assert cause(1, early + b"step ok\n" * 20 + TRACEBACK + b"AssertionError: reward\n") == "exit 1"
    assert cause(1, early + b"step 12 of 1000 ok\n" * 5000 + b"bye\n") == "exit 1"


def test_an_error_behind_another_counts() -> None:
    chained = b"\nDuring handling of the above exception, another exception occurred:\n\n"
    log = TRACEBACK + b"torch.OutOfMemoryError: CUDA out of memory\n" + chained + TRACEBACK + b"RuntimeError: closing\n"
    assert cause(1, log) == "oom"


def test_words_that_only_contain_the_name() -> None:
    assert cause(1, b"class MyMemoryErrorHandler loaded\nfailed\n") == "exit 1"


def test_what_we_did_comes_first() -> None:
    log = TRACEBACK + b"torch.OutOfMemoryError: CUDA out of memory\n"
    for word in ("timeout", "disk", "stopped", "stalled"):
        verdict = classify(Evidence(0, word, "why"), log)
        assert (verdict.cause, verdict.reason) == (word, "why")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"Max number of steps has been reached, stopping training early", "ok"),
        (b"Timeout has been reached, stopping training early", "recipe-timeout"),
        (b"Timeout reached, stopping training early.", "recipe-timeout"),
        ("❌ Policy generation refit failed: RuntimeError: x".encode(), "exit 0"),
    ],
)
def test_exit_zero_is_not_always_the_same(text: bytes, expected: str) -> None:
    assert cause(0, b"step 1\n" + text + b"\nAsync GRPO training complete!\n") == expected


def test_a_word_of_the_beginning_does_not_count_at_the_end() -> None:
    assert cause(0, b"Timeout has been reached, stopping training early\n" + b"step\n" * 100) == "ok"


def test_reasons_are_one_printable_line() -> None:
    log = b"\x1b[31mMemoryError\x1b[0m: a\tb\x00\xff " + b"x" * 500 + b"\nnext\n"
    verdict = classify(Evidence(1), log)
    assert verdict.reason.isprintable()
    assert len(verdict.reason) < 230
    assert "\x1b" not in verdict.reason


@given(st.binary(max_size=2000), st.one_of(st.none(), st.integers(0, 255)))
def test_any_log_gets_a_word(log: bytes, code: int | None) -> None:
    verdict = classify(Evidence(code), log)
    assert verdict.cause.split()[0] in ("ok", "recipe-timeout", "exit", "signal", "oom", "disk", "launcher", "lost")
    assert last_error(log) in log or last_error(log) == log.rstrip()


def test_the_tail_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert tail(str(path)) == b""
    path.write_bytes(b"abc" * 10)
    assert tail(str(path), 4) == b"cabc"
    assert tail(str(path), 400) == b"abc" * 10
    assert tail(str(tmp_path)) == b""
