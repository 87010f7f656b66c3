"""paths.py: where everything lies, exactly as the people of the machine know it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autoresearch import paths
from autoresearch.errors import Refused
from autoresearch.running import disk

CACHES = """HF_HOME=/s/nemo-rl/ubuntu/cache/huggingface
HF_HUB_CACHE=/s/nemo-rl/ubuntu/cache/huggingface/hub
HF_DATASETS_CACHE=/s/nemo-rl/ubuntu/cache/huggingface/datasets
TRANSFORMERS_CACHE=/s/nemo-rl/ubuntu/cache/huggingface/transformers
TORCH_HOME=/s/nemo-rl/ubuntu/cache/torch
TRITON_CACHE_DIR=/s/nemo-rl/ubuntu/cache/triton
UV_CACHE_DIR=/s/nemo-rl/ubuntu/cache/uv
PIP_CACHE_DIR=/s/nemo-rl/ubuntu/cache/pip
XDG_CACHE_HOME=/s/nemo-rl/ubuntu/cache/xdg
WANDB_CACHE_DIR=/s/nemo-rl/ubuntu/cache/wandb
VLLM_CACHE_ROOT=/s/nemo-rl/ubuntu/cache/vllm"""


@pytest.fixture
def mounted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The mount points that the machine is said to have; Brev's repository is said to be absent."""
    points: list[str] = []
    monkeypatch.setattr(disk, "is_mount", lambda path: path in points)
    monkeypatch.setattr(paths, "BREV_REPOSITORY", "/nonexistent/RL")
    return points


def test_the_caches_are_the_account_s() -> None:
    assert "\n".join(f"{key}={value}" for key, value in paths.cache_exports(paths.cache_root("/s")).items()) == CACHES


def test_the_account_is_ubuntu_without_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "a b")
    assert paths.user_root("/s") == "/s/nemo-rl/a b"
    monkeypatch.delenv("USER")
    assert paths.user_root("/s") == "/s/nemo-rl/ubuntu"


def test_a_campaign_and_its_attempts() -> None:
    where = paths.Campaign("/r", "/s", "c")
    root = "/s/nemo-rl/ubuntu/nemo-rl-auto-research/c"
    assert where.root == root
    assert where.trees == f"{root}/.trees"
    assert where.records == "/r/reports/auto_research/c"
    assert [os.path.basename(path) for path in (where.plan, where.ledger, where.summary, where.plot)] == [
        *("plan.toml", "results.tsv", "summary.md", "progress.svg")
    ]
    first, second, smoke = where.attempt("y", 1), where.attempt("y", 2), where.attempt("y", 1, smoke=True)
    assert (first.log, first.checkpoints) == (f"{root}/y/logs/run.log", f"{root}/y/checkpoints")
    assert (second.log, second.checkpoints) == (f"{root}/y/logs/2/run.log", f"{root}/y/checkpoints/2")
    assert smoke.checkpoints not in (first.checkpoints, second.checkpoints)
    assert first.exports() == {
        "EXP_DIR": f"{root}/y",
        "LOG_DIR": f"{root}/y/logs",
        "CHECKPOINT_DIR": f"{root}/y/checkpoints",
        "ARTIFACT_DIR": f"{root}/y/artifacts",
        "RAY_TMPDIR": f"{root}/y/ray",
        "TMPDIR": f"{root}/y/tmp",
        "WANDB_DIR": f"{root}/y/wandb",
    }


def test_an_attempt_s_directories_are_private(hostile: Path) -> None:
    before = os.umask(0)
    try:
        at = paths.Campaign(str(hostile), str(hostile), "c").attempt("y", 2)
        at.make()
        at.make()
    finally:
        os.umask(before)
    for path in (
        at.experiment,
        os.path.dirname(at.logs),
        at.logs,
        at.checkpoints,
        at.artifacts,
        at.ray,
        at.tmp,
        at.wandb,
    ):
        assert os.stat(path).st_mode & 0o777 == 0o700, path


def test_scratch_is_what_was_asked_for_if_it_exists(hostile: Path, mounted: list[str]) -> None:
    (hostile / "link").symlink_to(hostile)
    assert paths.scratch_root("/r", str(hostile / "link"))[0] == str(hostile.resolve())
    (hostile / "file").write_text("")
    for wanted in ("none", "file"):
        with pytest.raises(Refused):
            paths.scratch_root("/r", str(hostile / wanted))


def test_ephemeral_counts_only_when_it_is_mounted(mounted: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    home = os.environ["HOME"]
    assert paths.scratch_root("/r")[0] == f"{home}/.local/state/autoresearch"
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert paths.scratch_root("/r")[0] == "/state/autoresearch"
    mounted.append("/ephemeral")
    assert paths.scratch_root("/r")[0] == "/ephemeral"


def test_a_planned_ephemeral_that_is_no_longer_mounted_is_refused(
    mounted: list[str], monkeypatch: pytest.MonkeyPatch, hostile: Path
) -> None:
    monkeypatch.setattr(paths, "EPHEMERAL", str(hostile))
    (hostile / "mine").mkdir()
    for wanted in (hostile, hostile / "mine"):
        with pytest.raises(Refused, match="is not mounted"):
            paths.scratch_root("/r", str(wanted))
    mounted.append(str(hostile))
    assert paths.scratch_root("/r", str(hostile / "mine"))[0] == str(hostile / "mine")
    beside = hostile.with_name(f"{hostile.name}2")
    beside.mkdir()
    assert paths.scratch_root("/r", str(beside))[0] == str(beside)


def test_a_brev_machine_without_ephemeral_is_refused(
    mounted: list[str], monkeypatch: pytest.MonkeyPatch, hostile: Path
) -> None:
    assert not paths.is_brev("/r")
    monkeypatch.setenv("BREV", "1")
    assert paths.is_brev("/r")
    with pytest.raises(Refused) as caught:
        paths.scratch_root("/r")
    assert "/ephemeral" in str(caught.value)
    monkeypatch.delenv("BREV")
    assert paths.is_brev(paths.BREV_REPOSITORY)
    with pytest.raises(Refused):
        paths.scratch_root(paths.BREV_REPOSITORY)
    monkeypatch.setattr(paths, "BREV_REPOSITORY", str(hostile))
    assert not paths.is_brev("/r")
    mounted.append("/ephemeral")
    assert paths.is_brev("/r")


def test_no_state_file_of_ours_can_be_an_experiment_s() -> None:
    from autoresearch import attempts, names

    where = paths.Campaign("/r", "/s", "c")
    ours = {where.lock, where.started}
    for name in ("lock", "started", "session", "space", "kinds", "contents", "recovery"):
        names.check_experiment(name)
        assert attempts.path(where, name) not in ours
        assert attempts.stop_file(where, name) not in ours
