"""A metric by the user's own expression, files from before the run, and the tail of a log for messages."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from autoresearch import metrics
from autoresearch.errors import Usage
from tests.test_metrics_console import read

PATTERNS = {
    r"log:/bpb: ([\d.]+)/": "0.7421",
    r"log:/bpb: (\S+)/": "0.7421",
    r"log:/BPB: (?P<value>\S+)/i": "0.7421",
    r"log:/step (?P<step>\d+) .*bpb: (?P<value>\S+)/": "0.7421",
    r"log:/acc: ([\d.]+)%/": "45.6",
    r"log:/lat ([\d.]+)ms/": "12",
    r"log:/(?<=bpb: )[\d.]+/": "0.7421",
}
LOG = "step 3 val_bpb: 0.7421\n  acc: 45.6%\n lat 12ms\n n 1,234\nneg: -0.5\nx: 7.25\ny: 6.05e-06\n"


@pytest.mark.parametrize("metric", PATTERNS)
def test_patterns(tmp_path: Path, metric: str) -> None:
    assert read(tmp_path, LOG, metric).text == PATTERNS[metric]


@pytest.mark.parametrize(
    ("metric", "reason"),
    [
        (r"log:/bpb: ([\d.]{3})/", "part of a number"),
        (r"log:/neg: -([\d.]+)/", "part of a number"),
        (r"log:/(\d+)$/", "part of a number"),
        (r"log:/y: ([\d.]+)/", "part of a number"),
        (r"log:/acc: ([\d.]+)/", "percent"),
        (r"log:/lat ([\d.]+)/", "unit"),
        (r"log:/n (\d+)/", "thousands"),
        (r"log:/n ([\d,]+)/", "thousands"),
        (r"log:/nothing (\d)/", "nothing in run.log matches"),
        (r"log:/(step) \d/", "not a number"),
    ],
)
def test_patterns_that_are_refused(tmp_path: Path, metric: str, reason: str) -> None:
    reading = read(tmp_path, LOG, metric)
    assert reading.value is None
    assert reading.reason.startswith(reason)


@pytest.mark.parametrize("metric", ["log:/(/", r"log:/(\d) (\d)/", "log://", "log:/a/x", r"log:/(?P<a>\d)(?P<b>\d)/"])
def test_patterns_that_are_wrong(metric: str) -> None:
    with pytest.raises(Usage):
        metrics.parse_spec(metric, "min")


def test_a_pattern_without_end_is_given_up(tmp_path: Path) -> None:
    from autoresearch.metrics import pattern

    log = tmp_path / "run.log"
    log.write_text("a" * 50 + "!\n")
    begin = time.monotonic()
    found = pattern.find("/(a+)+$/", str(log), limit_s=0.3)
    assert "given up" in found.trouble
    assert time.monotonic() - begin < 60


def test_a_process_with_many_open_files_reads_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("acc: 0.5\n")
    script = """
import os, resource, sys
from autoresearch.metrics import pattern
resource.setrlimit(resource.RLIMIT_NOFILE, (1200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
print(list(pattern.find(r"/acc: (\\S+)/", sys.argv[1]).values))
"""
    said = subprocess.run([sys.executable, "-c", script, str(tmp_path / "log")], capture_output=True, text=True)
    assert said.stdout == "[0.5]\n", said.stderr


def test_pattern_on_a_long_line_and_many_lines(tmp_path: Path) -> None:
    assert read(tmp_path, "x" * 200_000 + " bpb: 0.5 " + "y" * 900_000 + "\n", r"log:/bpb: (\S+)/").text == "0.5"
    text = "".join(f"step {i} bpb: 0.{i}\r\n" for i in range(1, 40_000))
    reading = read(tmp_path, text, r"log:/bpb: (\S+)/")
    assert (reading.text, reading.n_values, reading.step) == ("0.39999", 39_999, 39_999)
    assert reading.source.endswith(":39999")


def test_a_log_from_before_the_run_is_not_read(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("val_bpb: 0.5\n")
    where = metrics.Where(str(log), "", "", "", "", started_at=time.time() + 60)
    for metric in ("val_bpb", "log:val_bpb", r"log:/val_bpb: (\S+)/"):
        reading = metrics.read(metrics.Spec(metric, "min"), where)
        assert reading.value is None
        assert "before the run started" in reading.reason


def test_tail_is_safe_to_print(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_bytes(
        b"one\n\x1b[31mred\x1b[0m\x07\x00\n10%\r50%\r100%\n\x1b]0;title\x07end\xff\n" + b"w" * 500 + b"\n\n"
    )
    lines = metrics.tail_hint(str(log), 4).split("\n")
    assert lines[0] == "red"
    assert lines[1] == "100%"
    assert lines[2].startswith("end")
    assert len(lines[3]) == 200
    assert metrics.tail_hint(str(tmp_path / "none")) == ""
