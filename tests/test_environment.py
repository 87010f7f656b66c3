"""environment.py: what a run gets of the caller's environment, and what of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoresearch import environment, paths
from autoresearch.plan import Plan


def build(at: Path, tree: str = "", links: dict[str, str] | None = None, **settings: str) -> environment.RunEnvironment:
    """Return the environment of attempt 1 of `y`."""
    where = paths.Campaign(str(at), str(at / "scratch"), "c")
    plan = Plan("c", str(at), settings=settings)
    return environment.build(where, plan, "y", where.attempt("y", 1), tree, links or {})


def test_ours_win_over_the_caller_s(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", "/elsewhere")
    monkeypatch.setenv("WANDB_API_KEY", "s3cr3t-value")
    run = build(hostile)
    assert run.full["HF_HOME"] == f"{hostile}/scratch/nemo-rl/ubuntu/cache/huggingface"
    assert run.full["WANDB_API_KEY"] == "s3cr3t-value"
    assert "s3cr3t-value" not in str(run.exports)
    assert run.exports["AUTORESEARCH_CAMPAIGN"] == "c"
    assert run.exports["AUTORESEARCH_EXPERIMENT"] == "y"
    assert run.exports["PYTHONUNBUFFERED"] == "1"


def test_no_knob_and_no_make_reaches_a_training(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped = ("AR_NAME", "AR_YES", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "GIT_DIR", "GIT_INDEX_FILE")
    for key in dropped:
        monkeypatch.setenv(key, "x")
    for key in ("NAME", "PREFIX", "CMD", "GIT_SSH_COMMAND"):
        monkeypatch.setenv(key, "theirs")
    full = build(hostile).full
    assert not set(dropped) & set(full)
    assert [full[key] for key in ("NAME", "PREFIX", "CMD", "GIT_SSH_COMMAND")] == ["theirs"] * 4


def test_short_links_stand_for_the_socket_directories(hostile: Path) -> None:
    run = build(hostile, links={"RAY_TMPDIR": "/tmp/r1", "TMPDIR": "/tmp/t1"})
    assert (run.exports["RAY_TMPDIR"], run.exports["TMPDIR"]) == ("/tmp/r1", "/tmp/t1")


def test_a_cache_of_its_own(hostile: Path) -> None:
    own = build(hostile, CLEAN_CACHE="1").exports
    assert own["HF_HOME"].startswith(own["ARTIFACT_DIR"])
    assert own["UV_CACHE_DIR"].startswith(own["ARTIFACT_DIR"])
    environment.make_caches(own)
    assert Path(own["TORCH_HOME"]).stat().st_mode & 0o777 == 0o700


def test_uv_may_keep_its_own_cache(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", "/elsewhere")
    run = build(hostile, UV_CACHE="default")
    assert "UV_CACHE_DIR" not in run.full
    assert "UV_CACHE_DIR" not in run.exports


def test_the_tree_s_code_comes_first(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/theirs")
    tree = hostile / "tree"
    (tree / "src").mkdir(parents=True)
    full = build(hostile, str(tree)).full
    assert full["PYTHONPATH"].split(":") == [str(tree), str(tree / "src"), "/theirs"]
    assert full["PWD"] == str(tree)
    assert not full["PYTHONPYCACHEPREFIX"].startswith(str(tree))


def test_the_user_s_environment_serves_every_tree(hostile: Path) -> None:
    (hostile / ".venv").mkdir()
    exports = build(hostile, str(hostile)).exports
    assert exports["UV_PROJECT_ENVIRONMENT"] == str(hostile / ".venv")
    assert exports["UV_NO_SYNC"] == "1"


def test_nemo_rl_gets_what_it_needs(hostile: Path) -> None:
    assert "RAY_ADDRESS" not in build(hostile).exports
    (hostile / "nemo_rl").mkdir()
    exports = build(hostile).exports
    assert exports["RAY_ADDRESS"] == "local"
    assert exports["NEMO_RL_VENV_DIR"] == f"{hostile}/scratch/nemo-rl/ubuntu/venvs"
    (hostile / "venvs").mkdir()
    assert build(hostile).exports["NEMO_RL_VENV_DIR"] == f"{hostile}/venvs"


def test_chosen_gpus_are_the_only_ones(hostile: Path) -> None:
    assert build(hostile, GPUS="0,3").exports["CUDA_VISIBLE_DEVICES"] == "0,3"
    assert "CUDA_VISIBLE_DEVICES" not in build(hostile).exports


def test_bytecode_of_an_earlier_run_is_forgotten(hostile: Path) -> None:
    where = paths.Campaign(str(hostile), str(hostile / "scratch"), "c")
    tree = f"{where.trees}/1"
    old = Path(environment.bytecode_root(where) + tree)
    old.mkdir(parents=True)
    (old / "x.pyc").write_text("")
    environment.forget_bytecode(where, tree)
    environment.forget_bytecode(where, tree)
    assert not old.exists()
