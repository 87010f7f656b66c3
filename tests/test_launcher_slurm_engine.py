"""The Slurm launcher against a real Slurm that the tests bring up themselves."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoresearch.errors import Refused
from autoresearch.launchers import slurm as module
from autoresearch.launchers._waiting import Limits
from autoresearch.launchers.slurm import Slurm
from tests.launching import (
    SECRET,
    Run,
    bring_up,
    make_job,
    marked,
    python,
    slurm_cluster,
    wait_until,
)

pytestmark = pytest.mark.engine
SLOW: dict[str, Run] = {}


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    yield from slurm_cluster(SLURM_JOB_AGE="2", SLURM_KILL_WAIT="3", SLURM_MEMORY="2048")


@pytest.fixture(autouse=True)
def conf(cluster: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("SLURM_CONF", f"{cluster}/slurm.conf")
    yield cluster
    left = [line for line in slurm("squeue", "-h", "-o", "%i %j").splitlines() if "slow-limit" not in line]
    slurm("scancel", *[line.split()[0] for line in left] or ["0"], check=False)
    assert left == [], "a job of ours is left"


@pytest.fixture
def launcher() -> Slurm:
    return Slurm(Limits(gone_s=8.0, last_poll_s=1.0))


def slurm(*argv: str, check: bool = True) -> str:
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=check).stdout.strip()


def test_slurms_own_limit_begins(launcher: Slurm, tmp_path: Path) -> None:
    """Slurm needs 80 s to enforce a minute: the job starts first and is looked at last."""
    SLOW["limit"] = Run(launcher, make_job(tmp_path, ["sleep", "300"], "slow-limit", settings={"SLURM_ARGS": "-t 1"}))
    SLOW["limit"].wait_started()


def test_success_takes_every_byte_and_writes_no_secret(launcher: Slurm, hostile: Path) -> None:
    words = ["", "a b", "$(touch x)", "`id`", "l1\nl2", "'\"\\", "#", "é", "-n", "a=b", "%j", "\udcff"]
    code = (
        "import json,os,sys;"
        "print(json.dumps([sys.argv[1:], os.environ['API_TOKEN'] == sys.stdin.read() + os.environ['API_TOKEN'],"
        " os.getcwd(), os.environ['HF_HOME'], len(os.environ['API_TOKEN'])]))"
    )
    run = Run(launcher, make_job(hostile, python(code, *words), cap_s=50.0))
    outcome = run.result()
    assert (outcome.end_cause, outcome.exit_code) == ("ok", 0)
    assert outcome.elapsed_s < 40.0
    assert outcome.started_at == pytest.approx(run.recorder.began[0], abs=5) if run.recorder.began else True
    told = json.loads(Path(run.job.log_path).read_text())
    assert told == [words, True, run.job.tree, run.job.exports["HF_HOME"], len(SECRET)]
    for file in Path(run.job.logs).iterdir():
        assert SECRET.encode() not in file.read_bytes()
    assert b"--time=3" in Path(run.job.logs, "slurm.sh").read_bytes()
    assert launcher.describe(run.job_id, {}).startswith(f"job {run.job_id}: COMPLETED")


@pytest.mark.parametrize(
    ("argv", "cause", "code"),
    [(["sh", "-c", "exit 3"], "exit 3", 3), (["sh", "-c", "kill -9 $$"], "signal 9", 137), (["nope"], "exit 127", 127)],
)
def test_failures(launcher: Slurm, tmp_path: Path, argv: list[str], cause: str, code: int) -> None:
    outcome = Run(launcher, make_job(tmp_path, argv)).result()
    assert (outcome.end_cause, outcome.exit_code) == (cause, code)


def test_our_cap_ends_the_whole_tree(launcher: Slurm, tmp_path: Path) -> None:
    code = "import subprocess,time;subprocess.Popen(['setsid','sleep','4242.5']);print(1,flush=True);time.sleep(60)"
    outcome = Run(launcher, make_job(tmp_path, python(code), cap_s=2.0)).result()
    assert outcome.end_cause == "timeout"
    assert 1.0 <= outcome.elapsed_s < 40.0
    wait_until(lambda: not marked("4242.5"), 10)


def test_what_a_finished_run_left_behind_is_ended(launcher: Slurm, tmp_path: Path) -> None:
    code = "import subprocess;subprocess.Popen(['setsid','sleep','4243.5'])"
    assert Run(launcher, make_job(tmp_path, python(code))).result().end_cause == "ok"
    assert not marked("4243.5")


def test_a_stop_gives_the_run_its_time_to_save(launcher: Slurm, tmp_path: Path) -> None:
    """scancel tells the script alone, and kills what it has not told after KillWait."""
    saves = "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    run = Run(launcher, make_job(tmp_path, ["sh", "-c", saves], grace_s=60.0))
    log = Path(run.job.log_path)
    wait_until(lambda: log.exists() and "up" in log.read_text())
    run.recorder.stop()
    assert run.result().end_cause == "stopped"
    assert "saved" in log.read_text()


def test_a_stop_request_ends_the_job(launcher: Slurm, tmp_path: Path) -> None:
    run = Run(launcher, make_job(tmp_path, ["sleep", "300"]))
    run.wait_started()
    run.recorder.stop()
    assert run.result().end_cause == "stopped"


def test_habits_of_a_users_shell(launcher: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for habit in ("SQUEUE_USERS=nobody", "SCANCEL_STATE=PENDING", "SCANCEL_USER=nobody", "SACCT_FORMAT=jobid"):
        monkeypatch.setenv(*habit.split("="))
    job = make_job(tmp_path, ["sleep", "300"])
    run = Run(launcher, job)
    run.wait_started()
    assert launcher.lost_id(job) == run.job_id
    run.recorder.stop()
    assert run.result(30).end_cause == "stopped"


def test_scancel_by_a_stranger(launcher: Slurm, tmp_path: Path) -> None:
    run = Run(launcher, make_job(tmp_path, ["sleep", "300"]))
    run.wait_started()
    slurm("scancel", run.job_id)
    outcome = run.result()
    assert outcome.end_cause == "stopped"
    assert "cancelled in Slurm" in outcome.reason


def test_cancelled_while_pending(launcher: Slurm, tmp_path: Path) -> None:
    run = Run(launcher, make_job(tmp_path, ["true"], settings={"SLURM_ARGS": "--begin=now+1hour"}))
    wait_until(lambda: any("BeginTime" in said for said in run.recorder.said))
    slurm("scancel", run.job_id)
    outcome = run.result()
    assert (outcome.end_cause, outcome.started_at, outcome.elapsed_s) == ("stopped", None, 0.0)


def test_a_pending_job_is_cancelled_when_it_no_longer_fits_the_deadline(launcher: Slurm, tmp_path: Path) -> None:
    settings = {"SLURM_ARGS": "--begin=now+1hour"}
    job = make_job(tmp_path, ["true"], settings=settings, cap_s=3600.0, deadline=time.time() + 3604.0)
    outcome = Run(launcher, job).result()
    assert outcome.end_cause == "stopped"
    assert "deadline" in outcome.reason


def test_a_queue_limit_gives_up(launcher: Slurm, tmp_path: Path) -> None:
    settings = {"SLURM_ARGS": "--begin=now+1hour", "QUEUE_LIMIT": "2s"}
    outcome = Run(launcher, make_job(tmp_path, ["true"], settings=settings)).result()
    assert outcome.end_cause == "launcher"
    assert "BeginTime" in outcome.reason


@pytest.mark.skipif(not os.access("/sys/fs/cgroup/memory/cgroup.procs", os.W_OK), reason="needs root and cgroup v1")
def test_out_of_memory(launcher: Slurm, tmp_path: Path) -> None:
    code = "x = bytearray(400 << 20); print(len(x))"
    outcome = Run(launcher, make_job(tmp_path, python(code), settings={"SLURM_ARGS": "--mem=100"})).result()
    assert outcome.end_cause == "oom"


def test_a_log_that_cannot_be_written(launcher: Slurm, tmp_path: Path) -> None:
    job = make_job(tmp_path, ["true"])
    outcome = Run(launcher, job._replace(log_path=f"{job.logs}/missing/run.log")).result()
    assert outcome.end_cause == "launcher"


def test_a_submission_that_slurm_refuses(launcher: Slurm, tmp_path: Path) -> None:
    run = Run(launcher, make_job(tmp_path, ["true"], settings={"SLURM_ARGS": "--partition=nope"}))
    with pytest.raises(Refused, match="partition"):
        run.result()
    assert run.recorder.ids == []


def test_a_drained_node_keeps_the_job_waiting_with_its_reason(launcher: Slurm, tmp_path: Path) -> None:
    node = slurm("sinfo", "-h", "-N", "-o", "%N")
    slurm("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test")
    try:
        run = Run(launcher, make_job(tmp_path, ["true"]))
        wait_until(lambda: any("DRAINED" in said for said in run.recorder.said))
        told = launcher.check({}, 0, 1)[1]  # such a job may be launched
        assert (told.level, node in told.detail) == ("warn", True)
    finally:
        slurm("scontrol", "update", f"NodeName={node}", "State=RESUME")
    assert run.result().end_cause == "ok"


def test_a_requeue_is_followed_into_one_outcome(launcher: Slurm, tmp_path: Path) -> None:
    job = make_job(
        tmp_path, ["sh", "-c", 'echo run "$SLURM_RESTART_COUNT"; [ -n "$SLURM_RESTART_COUNT" ] || sleep 300']
    )
    run = Run(launcher, job)
    run.wait_started()
    wait_until(lambda: Path(job.log_path).exists() and "run" in Path(job.log_path).read_text())
    slurm("scontrol", "requeue", run.job_id)
    wait_until(lambda: slurm("squeue", "-h", "-j", run.job_id, "-o", "%T") == "PENDING")
    wait_until(lambda: any(said.startswith("pending: BeginTime") for said in run.recorder.said))
    slurm("scontrol", "update", f"JobId={run.job_id}", "StartTime=now")
    outcome = run.result()
    assert outcome.end_cause == "ok"
    assert "started again after a requeue\nrun 1" in Path(job.log_path).read_text()
    assert run.recorder.ids == [run.job_id]


def test_a_controller_that_dies_is_not_a_job_that_vanished(launcher: Slurm, tmp_path: Path, cluster: str) -> None:
    run = Run(launcher, make_job(tmp_path, ["sh", "-c", "sleep 18; exit 5"]))
    run.wait_started()
    saved = Path(cluster, "state", "job_state")
    wait_until(lambda: saved.stat().st_mtime > run.recorder.began[0] + 1)  # before that it would forget the start
    os.kill(int(Path(cluster, "run", "slurmctld.pid").read_text()), signal.SIGKILL)
    wait_until(lambda: any(said.startswith("away") for said in run.recorder.said))
    bring_up("slurm", cluster)
    assert run.result().end_cause == "exit 5"


def test_the_cap_is_kept_while_the_controller_is_dead(launcher: Slurm, tmp_path: Path, cluster: str) -> None:
    run = Run(launcher, make_job(tmp_path, ["sleep", "4248.5"], cap_s=12.0))
    run.wait_started()
    saved = Path(cluster, "state", "job_state")
    wait_until(lambda: saved.stat().st_mtime > run.recorder.began[0] + 1)
    os.kill(int(Path(cluster, "run", "slurmctld.pid").read_text()), signal.SIGKILL)
    wait_until(lambda: not marked("4248.5"), 45)
    bring_up("slurm", cluster)
    assert run.result().end_cause == "timeout"


def test_a_start_that_slurm_forgot_leaves_nothing_behind(launcher: Slurm, tmp_path: Path, cluster: str) -> None:
    run = Run(launcher, make_job(tmp_path, ["sleep", "4247.5"]))
    run.wait_started()
    os.kill(int(Path(cluster, "run", "slurmctld.pid").read_text()), signal.SIGKILL)
    bring_up("slurm", cluster)  # Slurm starts the job once more, or holds it
    wait_until(lambda: len(run.recorder.began) > 1 or not run.thread.is_alive())
    run.recorder.stop()
    assert run.result().end_cause in ("stopped", "launcher", "lost")  # by when it last saved its state
    wait_until(lambda: not marked("4247.5"), 15)
    bring_up("slurm", cluster)  # the node may be drained


def test_a_driver_that_died_finds_its_job_again(launcher: Slurm, tmp_path: Path) -> None:
    job = make_job(tmp_path, ["sh", "-c", "sleep 4; exit 6"])
    recorder_run = Run(launcher, job)
    recorder_run.wait_started()
    assert launcher.collect(job, "") is None
    again = Run(launcher, job, job_id="")
    assert again.result().end_cause == "exit 6"
    assert again.recorder.ids == [recorder_run.job_id]
    assert recorder_run.result().end_cause == "exit 6"
    wait_until(
        lambda: "Invalid" in subprocess.run(["squeue", "-j", again.job_id], capture_output=True, text=True).stderr
    )
    collected = launcher.collect(job, again.job_id)
    assert collected is not None
    assert (collected.end_cause, collected.exit_code) == ("exit 6", 6)


def test_a_job_that_was_never_submitted(launcher: Slurm, tmp_path: Path) -> None:
    outcome = launcher.collect(make_job(tmp_path, ["true"]), "")
    assert outcome is not None
    assert outcome.end_cause == "launcher"


def test_a_job_nobody_knows_is_lost_after_a_bound(launcher: Slurm, tmp_path: Path) -> None:
    outcome = Run(launcher, make_job(tmp_path, ["true"]), job_id="987654").result()
    assert outcome.end_cause == "lost"


def test_cancel_returns_when_the_job_is_gone(launcher: Slurm, tmp_path: Path) -> None:
    run = Run(launcher, make_job(tmp_path, ["sleep", "4244.5"]))
    run.wait_started()
    launcher.cancel(run.job, run.job_id)
    assert not marked("4244.5")
    assert run.result().end_cause == "stopped"
    launcher.cancel(run.job, run.job_id)


def test_canary(tmp_path: Path, hostile: Path) -> None:
    assert module.canary({}, str(hostile), [str(tmp_path)]).level == "ok"
    finding = module.canary({}, str(hostile / "none"), [str(tmp_path)])
    assert finding.level == "FAIL"
    assert "missing" in finding.detail
    assert [path for path in tmp_path.iterdir() if "canary" in path.name] == []


def test_a_canary_waits_in_the_queue_as_long_as_a_run_may(hostile: Path, tmp_path: Path) -> None:
    stranger = slurm("sbatch", "--parsable", "--exclusive", "--output=/dev/null", "--wrap=sleep 600")
    wait_until(lambda: slurm("squeue", "-h", "-j", stranger, "-o", "%T") == "RUNNING")
    given_up = module.canary({"QUEUE_LIMIT": "1s"}, str(hostile), [str(tmp_path)])
    assert (given_up.level, "no answer yet (PENDING" in given_up.detail) == ("FAIL", True)
    stopped = module.canary({}, str(hostile), [str(tmp_path)], stop=lambda: True)
    assert (stopped.level, "given up" in stopped.detail) == ("FAIL", True)
    said: list[str] = []
    leaves = threading.Timer(7.0, slurm, ("scancel", stranger))

    def say(text: str) -> None:
        if not said:
            leaves.start()
        said.append(text)

    found = module.canary({}, str(hostile), [str(tmp_path)], wait_s=6.0, say=say)
    assert (found.level, said[0].startswith("canary job: PENDING")) == ("ok", True)


def test_check(launcher: Slurm) -> None:
    assert {finding.level for finding in launcher.check({"SLURM_ARGS": "--gres=gpu:1"}, 1, 1)} == {"ok"}
    assert launcher.check({"SLURM_ARGS": "--gres=gpu:99"}, 1, 1)[1].level == "FAIL"
    assert "--no-such" in launcher.check({"SLURM_ARGS": "--no-such"}, 1, 1)[1].detail
    assert launcher.check({}, 2, 2)[-2].what == "GPUs"
    for wrong in (
        "SLURM_ENV='A=1",
        "SLURM_ENV=a=1",
        "SLURM_STARTUP=soon",
        "QUEUE_LIMIT=1",
        "SLURM_ARGS='x",
        "ENGINE_PATIENCE=-1s",
    ):
        knob, _, value = wrong.partition("=")
        found = launcher.check({knob: value}, 0, 1)[-1]
        assert (found.level, found.what) == ("FAIL", knob)


def test_experiments_inside_one_held_allocation(launcher: Slurm, tmp_path: Path) -> None:
    logs = tmp_path / "hold"
    logs.mkdir()
    held = module.hold({"SLURM_ARGS": "--gres=gpu:1"}, name="camp", tree=str(tmp_path), logs=str(logs), env=os.environ)
    settings = {"SLURM_HOLD": held}
    try:
        code = "import os,sys;print(os.environ['CUDA_VISIBLE_DEVICES'], len(os.environ['API_TOKEN']), sys.argv[1:])"
        run = Run(launcher, make_job(tmp_path, python(code, "a\n'b"), "one", settings=settings))
        assert run.result().end_cause == "ok"
        assert Path(run.job.log_path).read_text() == f'0 {len(SECRET)} ["a\\n\'b"]\n'
        failing = Run(launcher, make_job(tmp_path, ["sh", "-c", "sleep 2; exit 4"], "two", settings=settings))
        assert failing.result().end_cause == "exit 4"
        assert failing.job_id.startswith(f"{held}.")
        capped = Run(launcher, make_job(tmp_path, ["sleep", "4245.5"], "three", settings=settings, cap_s=2.0))
        assert capped.result().end_cause == "timeout"
        assert not marked("4245.5")
        lasting = Run(launcher, make_job(tmp_path, ["sleep", "4246.5"], "four", settings=settings))
        lasting.wait_started()
    finally:
        module.release(held)
    assert lasting.result().end_cause == "launcher"
    assert not marked("4246.5")


RAY_SUB = r"""#!/bin/bash
#SBATCH --time=1:0:0
#SBATCH --dependency=singleton
set -eu
LOG_DIR=$BASE_LOG_DIR/$SLURM_JOB_ID-logs
mkdir -p "$LOG_DIR"
printf '%s' "$COMMAND" >"$LOG_DIR/driver_command.sh"
echo "container $CONTAINER mounts $MOUNTS gpus $GPUS_PER_NODE address ${RAY_ADDRESS:-none}"
if [[ -z $COMMAND ]]; then
  echo 'srun --overlap --jobid='$SLURM_JOB_ID' bash -c "$COMMAND"' >"$SLURM_SUBMIT_DIR/$SLURM_JOB_ID-attach.sh"
  sleep 600
fi
if [[ ! -e $BASE_LOG_DIR/second ]]; then
  touch "$BASE_LOG_DIR/second"
  echo "[ERROR] Background srun 'ray-head' died (pid=7). Could be a failure in startup"
  exit 1
fi
sleep 2
bash "$LOG_DIR/driver_command.sh" >"$LOG_DIR/ray-driver.log" 2>&1
"""
SITE = {
    "SLURM_SCRIPT": "ray.sub",
    "SLURM_CONTAINER": "image.sqsh",
    "SLURM_MOUNTS": "/data:/data",
    "SLURM_ENV": "GPUS_PER_NODE=4",
}


def test_a_cluster_script_of_the_repository_is_retried_once(launcher: Slurm, tmp_path: Path) -> None:
    code = "import os,sys;print(os.getcwd(), sys.argv[1:], len(os.environ['API_TOKEN']));sys.exit(7)"
    job = make_job(tmp_path, python(code, "a b\n'"), settings=SITE)
    job = job._replace(env={**job.env, "RAY_ADDRESS": "local"})
    Path(job.tree, "ray.sub").write_text(RAY_SUB)
    run = Run(launcher, job)
    outcome = run.result()
    assert outcome.end_cause == "exit 7"
    assert len(run.recorder.ids) == 2
    assert any(said.startswith("starting") for said in run.recorder.said)
    assert Path(job.log_path).read_text() == f'{job.tree} ["a b\\n\'"] {len(SECRET)}\n'
    batch = Path(job.logs, "slurm.2.log").read_text()
    experiment = job.exports["EXP_DIR"]
    mounts = f"/data:/data,{experiment}:{experiment},{job.tree}:{job.tree}"
    assert f"container image.sqsh mounts {mounts} gpus 4 address none" in batch
    for file in Path(job.logs).rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes()


def test_a_cluster_script_that_is_held(launcher: Slurm, tmp_path: Path) -> None:
    repository, logs = tmp_path / "repository", tmp_path / "campaign" / ".hold"
    repository.mkdir()
    logs.mkdir(parents=True)
    (repository / "ray.sub").write_text(RAY_SUB)
    held = module.hold(SITE, name="camp", tree=str(repository), logs=str(logs), env=os.environ)
    try:
        job = make_job(tmp_path, ["sh", "-c", "echo in; sleep 1; exit 3"], settings={**SITE, "SLURM_HOLD": held})
        run = Run(launcher, job)
        assert run.result().end_cause == "exit 3"
        assert run.job_id.startswith(f"{held}.")
        assert Path(job.log_path).read_text() == "in\n"
        assert [path.name for path in repository.iterdir()] == ["ray.sub"]
        assert f"mounts /data:/data,{logs.parent}:{logs.parent} " in (logs / "hold.log").read_text()
    finally:
        module.release(held)


def _drive(root: Path, driver: int, results: multiprocessing.Queue[list[str]]) -> None:
    launcher = Slurm(Limits(last_poll_s=1.0))
    runs = [
        Run(launcher, make_job(root, ["sh", "-c", f"sleep 0.{n}; exit {n}"], f"job-{driver}-{n}")) for n in range(1, 6)
    ]
    results.put([run.result(120).end_cause for run in runs])


def test_twenty_jobs_from_four_drivers(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    drivers = [context.Process(target=_drive, args=(tmp_path, n, results)) for n in range(4)]
    for driver in drivers:
        driver.start()
    told = [results.get(timeout=150) for _ in drivers]
    for driver in drivers:
        driver.join(10)
    assert told == [[f"exit {n}" for n in range(1, 6)]] * 4


def test_slurms_own_limit_ends() -> None:
    outcome = SLOW["limit"].result(150)
    assert (outcome.end_cause, outcome.reason) == ("timeout", "Slurm's time limit")
    assert outcome.elapsed_s > 55.0
