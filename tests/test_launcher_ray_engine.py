"""The Ray launcher against a real head that the tests bring up themselves."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoresearch.errors import TryAgain
from autoresearch.launchers import ray as module
from autoresearch.launchers._ray_api import Api
from autoresearch.launchers._waiting import Limits
from autoresearch.launchers.ray import Ray
from tests.launching import (
    SECRET,
    Run,
    bring_up,
    engine_folder,
    make_job,
    marked,
    python,
    ray_program,
    take_down,
    wait_until,
)

pytestmark = pytest.mark.engine
FOLDER = [""]


@pytest.fixture(scope="module")
def head() -> Iterator[str]:
    program = ray_program()
    for folder in engine_folder():
        FOLDER[0] = folder
        address = bring_up("ray", folder, RAY_BIN=program, PROVIDED_TOKEN="there")
        yield address
        take_down("ray", folder)


@pytest.fixture(autouse=True)
def nothing_left(head: str) -> Iterator[None]:
    yield
    reply = Api({"RAY_ADDRESS": head}, {}).call("GET", "/api/jobs/")
    jobs = json.loads(reply.text) if reply.status == 200 else []
    assert [job["submission_id"] for job in jobs if job["status"] == "RUNNING"] == []


@pytest.fixture
def launcher() -> Ray:
    return Ray(Limits(gone_s=5.0, away_s=5.0, queue_s=30.0, last_poll_s=1.0))


@pytest.fixture
def settings(head: str) -> dict[str, str]:
    return {"RAY_ADDRESS": head, "RAY_SECRETS": "none"}


def test_success_takes_every_byte_and_writes_no_secret(
    launcher: Ray, settings: dict[str, str], hostile: Path, head: str
) -> None:
    words = ["", "a b", "$(touch x)", "`id`", "l1\nl2", "'\"\\", "#", "é", "-n", "a=b", "\udcff"]
    told = "[sys.argv[1:], os.getcwd(), os.environ['HF_HOME'], 'API_TOKEN' in os.environ]"
    code = f"import json,os,sys;print(json.dumps({told}))"
    run = Run(launcher, make_job(hostile, python(code, *words), settings=settings))
    outcome = run.result()
    assert (outcome.end_cause, outcome.exit_code) == ("ok", 0)
    assert json.loads(Path(run.job.log_path).read_text()) == [words, run.job.tree, run.job.exports["HF_HOME"], False]
    assert SECRET not in Api(settings, {}).job(run.job_id).text
    for file in Path(run.job.logs).iterdir():
        assert SECRET.encode() not in file.read_bytes()
    assert "SUCCEEDED" in launcher.describe(run.job_id, settings)


@pytest.mark.parametrize(
    ("argv", "cause", "code"),
    [(["sh", "-c", "exit 3"], "exit 3", 3), (["sh", "-c", "kill -9 $$"], "signal 9", 137), (["nope"], "exit 127", 127)],
)
def test_failures(
    launcher: Ray, settings: dict[str, str], tmp_path: Path, argv: list[str], cause: str, code: int
) -> None:
    outcome = Run(launcher, make_job(tmp_path, argv, settings=settings)).result()
    assert (outcome.end_cause, outcome.exit_code) == (cause, code)


DAEMON = (
    "import subprocess,sys,time;subprocess.Popen(['setsid','-f','sleep',sys.argv[1]]);time.sleep(float(sys.argv[2]))"
)


def test_our_cap_and_a_daemon(launcher: Ray, settings: dict[str, str], tmp_path: Path) -> None:
    outcome = Run(launcher, make_job(tmp_path, python(DAEMON, "4251.5", "60"), settings=settings, cap_s=2.0)).result()
    assert outcome.end_cause == "timeout"
    assert not marked("4251.5")


def test_a_daemon_of_a_run_that_ended(launcher: Ray, settings: dict[str, str], tmp_path: Path) -> None:
    assert (
        Run(launcher, make_job(tmp_path, python(DAEMON, "4252.5", "0"), settings=settings)).result().end_cause == "ok"
    )
    assert not marked("4252.5")


def test_stop(launcher: Ray, settings: dict[str, str], tmp_path: Path) -> None:
    job = make_job(tmp_path, ["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done; echo 4253.5"], settings=settings)
    run = Run(launcher, job)
    run.wait_started()
    run.recorder.stop()
    assert run.result().end_cause == "stopped"
    assert not marked("4253.5")


def test_stopped_by_a_stranger(launcher: Ray, settings: dict[str, str], tmp_path: Path) -> None:
    run = Run(launcher, make_job(tmp_path, ["sleep", "300"], settings=settings))
    run.wait_started()
    Api(settings, {}).stop(run.job_id)
    assert run.result().end_cause == "stopped"


def test_a_job_that_cannot_be_scheduled_never_begins(launcher: Ray, settings: dict[str, str], tmp_path: Path) -> None:
    job = make_job(tmp_path, ["touch", "began"], settings={**settings, "RAY_GPUS": "99", "QUEUE_LIMIT": "2s"})
    outcome = Run(launcher, job).result()
    assert outcome.end_cause == "launcher"
    assert "pending" in outcome.reason
    done = subprocess.run(["bash", f"{job.logs}/ray.sh"], check=False)
    assert done.returncode == 143, "should Ray ever place it, the script ends at once"
    assert not Path(job.tree, "began").exists()


def test_an_id_is_used_once(launcher: Ray, settings: dict[str, str], tmp_path: Path) -> None:
    job = make_job(tmp_path, ["sh", "-c", "echo once; sleep 3; exit 6"], settings=settings)
    run = Run(launcher, job)
    run.wait_started()
    again = Run(launcher, job)  # as a recovery that does not know the id
    assert again.result().end_cause == "exit 6"
    assert run.result().end_cause == "exit 6"
    assert again.recorder.ids == run.recorder.ids
    assert Path(job.log_path).read_text() == "once\n"
    body = module.body_of(job, run.job_id)
    launcher._post(Api(settings, {}), body, run.job_id)  # the same id again is taken for the answer that got lost
    collected = launcher.collect(job, run.job_id)
    assert collected is not None
    assert collected.end_cause == "exit 6"


def test_a_job_that_never_arrived_cannot_begin_later(launcher: Ray, settings: dict[str, str], tmp_path: Path) -> None:
    job = make_job(tmp_path, ["touch", "began"], settings=settings)
    Path(job.logs, "ray.sh").write_text("# Token 0123abcd.\n")
    outcome = launcher.collect(job, "")
    assert outcome is not None
    assert outcome.end_cause == "launcher"
    assert Path(job.logs, "ray.state.cancelled").exists()


def test_secrets_that_the_machine_does_not_supply(launcher: Ray, head: str, tmp_path: Path) -> None:
    settings = {"RAY_ADDRESS": head}
    finding = module.canary(settings, str(tmp_path), [str(tmp_path)], ["API_TOKEN", "PROVIDED_TOKEN"])
    assert finding.level == "FAIL"
    assert "API_TOKEN" in finding.detail
    assert "PROVIDED_TOKEN" not in finding.detail
    assert Run(launcher, make_job(tmp_path, ["true"], settings=settings)).result().end_cause == "launcher"


def test_canary(settings: dict[str, str], hostile: Path) -> None:
    assert module.canary(settings, str(hostile), [str(hostile)]).level == "ok"
    finding = module.canary(settings, str(hostile / "none"), [str(hostile)])
    assert (finding.level, "missing" in finding.detail) == ("FAIL", True)


def test_check(launcher: Ray, settings: dict[str, str]) -> None:
    assert [finding.level for finding in launcher.check(settings, 1, 2)] == ["ok", "ok"]
    wait_until(lambda: launcher.check(settings, 8, 1)[-1].level == "FAIL")
    assert launcher.check({"RAY_ADDRESS": "ray://x:10001"}, 0, 1)[0].level == "FAIL"


def test_a_head_that_is_not_there(launcher: Ray, tmp_path: Path) -> None:
    with pytest.raises(TryAgain):
        Run(launcher, make_job(tmp_path, ["true"], settings={"RAY_ADDRESS": "127.0.0.1:9"})).result()


def test_a_head_that_dies(launcher: Ray, settings: dict[str, str], tmp_path: Path) -> None:
    """The last test: it takes the head along."""
    run = Run(launcher, make_job(tmp_path, ["sleep", "4254.5"], settings=settings))
    run.wait_started()
    time.sleep(1)
    take_down("ray", FOLDER[0])
    outcome = run.result()
    assert outcome.end_cause in ("lost", "launcher")  # launcher when the script could still note why
    wait_until(lambda: not marked("4254.5"))
