"""The Slurm launcher's own parts: what its programs' answers mean, what is submitted, with a strict double."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.errors import Refused, TryAgain, Usage
from autoresearch.launchers import Job, _script, slurm
from autoresearch.launchers import _slurm_calls as calls
from autoresearch.launchers import _slurm_submit as submission
from autoresearch.launchers._calls import Answer, call
from autoresearch.launchers._slurm_hold import StepEngine
from autoresearch.launchers._waiting import Clock, Limits
from autoresearch.launchers.slurm import Slurm, SlurmEngine
from tests.launching import SECRET, Recorder, make_job

CONTACT = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
UNKNOWN = "slurm_load_jobs error: Invalid job id specified"


# How Slurm's programs may be called: a wrong option or format would be answered by a double that does not look.
SHAPES = (
    r"(?s)sbatch --requeue --kill-on-invalid-dep=yes .* --export=ALL /.*",
    r"squeue -h -t all (-j \d+ -o %T\|%S\|%N\|%r|--name \S+ -o %A\|%j)",
    r"squeue -h -s -j \d+ -o %i\|%j",
    r"scontrol show job -o \d+",
    r"sacct (-X|-c) -n -P( -S now-90days)? (-j \d+|--name \S+) -o [a-z,]+",
    r"scancel ((--signal=KILL --full )?\d+|--name=\S+)",
)


class Programs:
    """A double of Slurm's programs: answers by the start of the command line, anything else fails the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: list[tuple[tuple[str, ...], list[Answer]]] = []
        self.calls: list[list[str]] = []
        self.envs: list[Mapping[str, str]] = []
        for module in (calls, submission):
            monkeypatch.setattr(module, "call", self.call)
        monkeypatch.setattr(submission.time, "sleep", lambda seconds: None)

    def on(self, *start: str, out: str = "", code: int = 0, err: str = "") -> Programs:
        for known, answers in self.answers:
            if known == start:
                answers.append(Answer(code, out, err))
                return self
        self.answers.append((start, [Answer(code, out, err)]))
        return self

    def call(
        self, argv: Sequence[str], *, timeout_s: float, env: Mapping[str, str], cwd: str = "", stdin: str = ""
    ) -> Answer:
        assert any(re.fullmatch(shape, " ".join(argv)) for shape in SHAPES), f"no such call: {argv}"
        self.calls.append(list(argv))
        self.envs.append(env)
        for start, answers in self.answers:
            if tuple(argv[: len(start)]) == start:
                answer = answers.pop(0) if len(answers) > 1 else answers[0]
                name = argv[argv.index("--name") + 1] if "--name" in argv else ""
                return answer._replace(out=answer.out.replace("NAME", name))
        raise AssertionError(f"unknown call: {argv}")


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    return Programs(monkeypatch)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return make_job(tmp_path, ["python", "train.py"])


def engine(job: Job, site: bool = False) -> SlurmEngine:
    return SlurmEngine("7", submission.files(job), site, Clock())


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("COMPLETED|0:0", "ok"),
        ("TIMEOUT|0:0", "timeout"),
        ("OUT_OF_MEMORY|0:125", "oom"),
        ("CANCELLED by 1000|0:0", "cancelled"),
        ("FAILED|1:0", "exit 1"),
        ("FAILED|0:9", "signal 9"),
        ("FAILED|137:0", "signal 9"),
        ("FAILED|0:53", "launcher"),
        ("NODE_FAIL|0:0", "launcher"),
        ("BOOT_FAIL|0:0", "launcher"),
        ("PREEMPTED|0:0", "launcher"),
        ("DEADLINE|0:0", "stopped"),
    ],
)
def test_states_come_before_exit_codes(programs: Programs, job: Job, line: str, cause: str) -> None:
    programs.on("squeue", code=1, err=UNKNOWN).on("scontrol", code=1, err=UNKNOWN)
    programs.on("sacct", out=f"{line}|2026-11-30T20:00:00|2026-11-30T20:10:00|n1\n")
    sight = engine(job).look()
    assert (sight.phase, sight.cause) == ("ended", cause)
    assert (sight.finished_at or 0) - (sight.started_at or 0) in (600.0, sight.finished_at)


def test_scontrol_with_values_that_hold_blanks() -> None:
    record = calls.from_scontrol(
        "JobId=1 JobName=a b JobState=FAILED Reason=launch failed requeued held Dependency=(null) Requeue=1 "
        "ExitCode=3:0 RunTime=00:00:01 StartTime=2026-11-30T20:46:02 EndTime=Unknown BatchHost=n1 WorkDir=/a b=c/d"
    )
    assert (record.state, record.reason, record.exit_code, record.signal) == (
        "FAILED",
        "launch failed requeued held",
        3,
        0,
    )
    assert (record.started_at, record.finished_at, record.host) == (1796071562.0, None, "n1")


@given(st.text())
def test_no_line_breaks_the_parsers(line: str) -> None:
    for parse in (calls.from_squeue, calls.from_scontrol, calls.from_sacct):
        assert isinstance(parse(line), calls.Record)


def test_a_controller_that_is_away_is_not_a_vanished_job(programs: Programs, job: Job) -> None:
    programs.on("squeue", code=1, err=CONTACT)
    assert engine(job).look().phase == "away"


def test_a_job_no_book_knows(programs: Programs, job: Job) -> None:
    programs.on("squeue", code=1, err=UNKNOWN).on("scontrol", code=1, err=UNKNOWN).on("sacct", code=1, err="disabled")
    assert engine(job).look().phase == "gone"
    state = Path(submission.files(job).state)
    state.write_text("began 100.5 77 node-3\nended 160.5 77 3\n")
    sight = engine(job).look()
    assert (sight.cause, sight.started_at, sight.finished_at, sight.host) == ("exit 3", 100.5, 160.5, "node-3")


def test_notes_of_the_run_with_the_controller_away(programs: Programs, job: Job) -> None:
    programs.on("squeue", code=1, err=CONTACT)
    Path(submission.files(job).state).write_text("began 100.5 77 n\nended 160.5 77 0\n")
    assert engine(job).look().cause == "ok"


def test_a_job_that_was_told_not_to_begin_was_cancelled(programs: Programs, job: Job) -> None:
    programs.on("squeue", code=1, err=UNKNOWN).on("scontrol", code=1, err=UNKNOWN)
    programs.on("sacct", out="FAILED|143:0|2026-11-30T20:00:00|2026-11-30T20:00:01|n1\n")
    assert engine(job).look().cause == "signal 15"
    Path(f"{submission.files(job).state}.cancelled").touch()
    assert engine(job).look().cause == "cancelled"


def test_a_run_that_somebody_else_stopped_may_be_requeued_as_long_as_the_controller_is_away(
    programs: Programs, job: Job
) -> None:
    programs.on("squeue", code=1, err=CONTACT)
    state = Path(submission.files(job).state)
    state.write_text("began 100.5 77 n\nstopped 150.5 77 1\nended 160.5 77 143\n")
    sight = engine(job).look()
    assert (sight.phase, sight.started_at, sight.finished_at) == ("away", None, 160.5)
    Path(f"{state}.cancelled").touch()  # by us: it cannot begin again
    assert engine(job).look().cause == "cancelled"


@pytest.mark.parametrize("step", [False, True])
def test_a_run_that_has_just_ended_is_over_with_the_controller_away(programs: Programs, job: Job, step: bool) -> None:
    programs.on("squeue", code=1, err=CONTACT)
    Path(submission.files(job).state).write_text("began 100.5 77 n\nended 160.5 77 0\n")
    clock = Clock(now=lambda: 161.0)
    one = StepEngine(job, "7.1", clock) if step else SlurmEngine("7", submission.files(job), False, clock)
    sight = one.look()
    assert (sight.phase, sight.finished_at) == ("away", 160.5)


def test_a_cluster_script_is_starting_until_the_run_begins(programs: Programs, job: Job) -> None:
    programs.on("squeue", out="RUNNING|2026-11-30T20:46:02|n1|None\n")
    assert engine(job, site=True).look().phase == "starting"
    assert engine(job).look().phase == "running"


def test_a_job_that_never_fits_its_partition_is_given_up(programs: Programs, job: Job) -> None:
    now = [100.0]
    one = SlurmEngine("7", submission.files(job), False, Clock(monotonic=lambda: now[0]))
    programs.on("squeue", out="PENDING|N/A||PartitionTimeLimit\n").on("squeue", out="PENDING|N/A||Resources\n")
    programs.on("squeue", out="PENDING|N/A||PartitionTimeLimit\n").on("scancel")
    assert [one.look().phase for _ in range(2)] == ["pending", "pending"]
    for later, phase in ((300.0, "pending"), (350.0, "pending"), (361.0, "ended")):
        now[0] = later
        sight = one.look()
        assert sight.phase == phase
    assert (sight.cause, "PartitionTimeLimit" in sight.detail) == ("launcher", True)
    assert ["scancel", "7"] in programs.calls


def test_nodes_that_boot_use_up_no_cap(programs: Programs, job: Job) -> None:
    programs.on("squeue", out="CONFIGURING|2026-11-30T20:46:02|n1|None\n")
    assert engine(job).look().phase == "starting"


def test_a_srun_that_died_is_worth_a_retry_until_training_began(programs: Programs, job: Job) -> None:
    programs.on("squeue", out="FAILED|2026-11-30T20:46:02|n1|NonZeroExitCode\n")
    programs.on("scontrol", out="JobState=FAILED Reason=NonZeroExitCode ExitCode=1:0 StartTime=2026-11-30T20:46:02\n")
    where = submission.files(job)
    Path(where.batch_log).write_text("[ERROR] Background srun 'ray-head' died (pid=9). Could be ...\n")
    sight = engine(job, site=True).look()
    assert (sight.cause, sight.retry) == ("launcher", True)
    Path(where.state).write_text("began 1796071570.0 77 n\n")
    sight = engine(job, site=True).look()
    assert (sight.cause, sight.retry) == ("launcher", False)


def test_a_start_that_a_node_refuses_because_an_earlier_one_still_runs(programs: Programs, job: Job) -> None:
    """A controller that was killed forgot it: the earlier one is ended, and what the node said is no exit of ours."""
    times = "StartTime=2026-11-30T20:46:32 EndTime=2026-11-30T20:46:33"
    programs.on("squeue", out="FAILED|2026-11-30T20:46:32|n1|NonZeroExitCode\n").on("scancel", out="")
    programs.on("scontrol", out=f"JobState=FAILED Reason=NonZeroExitCode ExitCode=1:0 {times}\n")
    state = Path(submission.files(job).state)
    state.write_text("began 1796071570.0 77 n\n")
    one = engine(job)
    assert one.look().phase == "running"
    assert Path(f"{state}.cancelled").exists()
    state.write_text("began 1796071570.0 77 n\nstopped 1796071594.0 77 1\nended 1796071595.0 77 143\n")
    sight = one.look()
    assert (sight.phase, sight.cause, sight.retry) == ("ended", "launcher", False)


def test_what_is_submitted(programs: Programs, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", "/etc/x")
    programs.on("sbatch", out="123;cluster\n")
    env = {**job.env, "SLURM_JOB_ID": "9", "SBATCH_WAIT": "1", "AUTORESEARCH_MARK": "x", "SBATCH_PARTITION": "p"}
    recorder = Recorder()
    settings = {"SLURM_ARGS": "--partition='a b' -N2 --no-requeue"}
    made = job._replace(env=env, cap_s=61.0, settings=settings)
    assert Slurm().submit(made, recorder.watch()) == "123"
    argv, given_env = programs.calls[0], programs.envs[0]
    token = _script.token_of(submission.files(job).script)
    assert argv == [
        *("sbatch", "--requeue", "--kill-on-invalid-dep=yes", "--time=4", "--partition=a b", "-N2", "--no-requeue"),
        *("--parsable", f"--job-name=camp-idea-{token}", f"--output={job.log_path}", "--open-mode=append"),
        *(f"--chdir={job.tree}", "--export=ALL", submission.files(job).script),
    ]
    assert not {"SLURM_JOB_ID", "SBATCH_WAIT", "AUTORESEARCH_MARK"} & set(given_env)
    assert (given_env["SLURM_CONF"], given_env["SBATCH_PARTITION"], given_env["API_TOKEN"]) == ("/etc/x", "p", SECRET)
    assert recorder.ids == ["123"]
    assert SECRET not in Path(submission.files(job).script).read_text()


@pytest.mark.parametrize(
    "line",
    [
        "--array=1-3",
        "-a1-3",
        "--arr 1",
        "-o x",
        "--output=x",
        "--wait",
        "-W",
        "--export=NONE",
        "--wrap=x",
        "-- x",
        "-x n1 : -N2",
        "-M other",
        "--clusters=other",
        "train.sbatch",
        "-N2 train.sbatch",
        "-N 2 train.sbatch",
        "-vN 2 train.sbatch",
        "--partition=gpu train.sbatch",
        "--partition gpu train.sbatch",
        "--exclusive train.sbatch",
        "-s ''",
    ],
)
def test_options_that_are_not_for_the_plan(line: str) -> None:
    with pytest.raises(Usage, match="SLURM_ARGS"):
        submission.words({"SLURM_ARGS": line})


def test_quotes_that_do_not_match() -> None:
    with pytest.raises(Usage, match="quotation"):
        submission.words({"SLURM_ARGS": "--comment='x"})


@pytest.mark.parametrize(
    "line",
    [
        *("--time=5 -p x --gres=gpu:1", "--wait-all-nodes=1", "--exclusive -A acct -q high", "-svN 2 -N2 -vN2"),
        *("--mem 5G", "--partition gpu --nice --comment words --cluster-constraint=x", "--some-new-option value"),
    ],
)
def test_options_that_are(line: str) -> None:
    assert submission.words({"SLURM_ARGS": line}) == line.split()


def test_a_full_queue_is_try_again_and_nonsense_is_a_refusal(programs: Programs, job: Job) -> None:
    programs.on("sbatch", code=1, err="sbatch: error: QOSMaxSubmitJobPerUserLimit").on(
        "sbatch", code=1, err="sbatch: error: invalid partition specified: x"
    )
    with pytest.raises(TryAgain):
        submission.submit(job, {}, Recorder().watch())
    with pytest.raises(Refused, match="invalid partition"):
        submission.submit(job, {}, Recorder().watch())


def test_a_second_submit_finds_the_first(programs: Programs, job: Job) -> None:
    programs.on("sbatch", out="5\n").on("squeue", out="9|other\n5|NAME\n")
    Slurm().submit(job, Recorder().watch())
    recorder = Recorder()
    assert Slurm().submit(job, recorder.watch()) == "5"
    assert recorder.ids == ["5"]
    assert sum(argv[0] == "sbatch" for argv in programs.calls) == 1


def test_a_secret_in_the_command_is_refused(job: Job) -> None:
    with pytest.raises(Refused, match="API_TOKEN") as refusal:
        Slurm().submit(job._replace(argv=["run", f"--token={SECRET}"]), Recorder().watch())
    assert SECRET not in str(refusal.value)


@pytest.mark.parametrize("line", ["--array=1-3", "-a 1-3", "-N1 --arr 1", "-a1"])
def test_a_script_that_asks_for_an_array_is_refused(programs: Programs, job: Job, line: str) -> None:
    site = job._replace(settings={"SLURM_SCRIPT": "ray.sub", "SLURM_CONTAINER": "x"})
    with pytest.raises(Refused, match=r"ray\.sub is not in"):
        Slurm().submit(site, Recorder().watch())
    Path(job.tree, "ray.sub").write_text(f"#!/bin/bash\n#SBATCH {line}\ntrue\n")
    with pytest.raises(Refused, match="job array"):
        Slurm().submit(site, Recorder().watch())
    Path(job.tree, "ray.sub").write_text("#!/bin/bash\n#SBATCH -A me --account=x -N1 # --array\n# -a 1\n")
    programs.on("sbatch", out="5\n")
    assert Slurm().submit(site, Recorder().watch()) == "5"


def test_mounts_cover_the_attempt(job: Job) -> None:
    experiment = job.exports["EXP_DIR"]
    assert submission.mounts(job, "") == f"{experiment}:{experiment},{job.tree}:{job.tree}"
    assert submission.mounts(job, "/tmp:/tmp") == "/tmp:/tmp"
    with pytest.raises(Refused, match="mounted"):
        submission.mounts(job._replace(tree="/scratch/a b"), "")


def test_the_job_is_ended_by_force_the_second_time(programs: Programs, job: Job) -> None:
    programs.on("scancel")
    engine(job).end(False)
    engine(job).end(True)
    assert programs.calls == [["scancel", "7"], ["scancel", "--signal=KILL", "--full", "7"], ["scancel", "7"]]
    assert Path(submission.files(job).state + ".cancelled").exists()


def test_scancel_asks_nobody(programs: Programs, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """With SCANCEL_INTERACTIVE it would ask without end."""
    monkeypatch.setenv("SCANCEL_INTERACTIVE", "true")
    programs.on("scancel")
    engine(job).end(False)
    assert "SCANCEL_INTERACTIVE" not in programs.envs[0]


def test_the_script_runs_by_hand_and_notes_its_end(job: Job) -> None:
    made = job._replace(argv=["sh", "-c", "exit 9"])
    text = _script.render(
        made, "0a1b2c3d", f"{job.logs}/x.state", redirect=False, exports={"A": "b $c"}, needs=["HOME"]
    )
    assert subprocess.run(["bash", "-c", text], check=False).returncode == 9
    noted = _script.read_state(f"{job.logs}/x.state")
    assert (noted.exit_code, noted.stopped, noted.failed) == (9, False, "")
    _script.cancel_by_file(f"{job.logs}/x.state")
    assert subprocess.run(["bash", "-c", text], check=False).returncode == 143


@pytest.mark.slow
def test_a_script_ends_itself_at_its_second_line(job: Job) -> None:
    """The run is told at once, not when its grace is over."""
    made = job._replace(argv=["sleep", "300"], grace_s=200.0)
    text = _script.render(made, "0a1b2c3e", f"{job.logs}/x.state", redirect=True, exports={}, needs=[], limit_s=1.0)
    assert subprocess.run(["bash", "-c", text], check=False, timeout=30).returncode == 143
    assert _script.read_state(f"{job.logs}/x.state").stopped


def test_notes_of_an_earlier_start_that_ends_late(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.write_text("began 1.0 10 a\nbegan 5.0 11 b\nended 6.0 10 143\nended 9.0 11 0\nended 10.0 11")
    assert _script.read_state(str(state)) == _script.Noted(5.0, 9.0, 0, "b")
    assert _script.read_state(str(tmp_path / "none")) == _script.Noted()


def test_calls_end_in_time_with_their_children() -> None:
    answer = call(["sh", "-c", "sleep 60 & sleep 60"], timeout_s=0.3)
    assert answer.code == 124
    assert call(["no-such-program"], timeout_s=1).code == 127
    assert call(["cat"], timeout_s=5, stdin="é").out == "é"


def test_check_without_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    findings = Slurm(Limits()).check({}, 0, 1)
    assert [finding.level for finding in findings] == ["FAIL"]
    assert slurm.launcher().name == "slurm"
