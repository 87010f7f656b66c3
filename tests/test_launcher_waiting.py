"""The common loop of the engines, with an engine and clocks that the tests move."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from autoresearch.launchers import Job, Watch
from autoresearch.launchers._waiting import Clock, Ended, Following, Limits, Sight, cause_of, end_now
from tests.launching import Recorder, make_job

START = 1_800_000_000.0


class Stage:
    """An engine that shows `sights` one after another (the last for ever), and clocks that only sleep moves."""

    def __init__(self, *sights: Sight | tuple[float, Sight]) -> None:
        self.plan = [(0.0, sight) if isinstance(sight, Sight) else sight for sight in sights]
        self.time, self.since = 0.0, 0.0  # seconds since START: tiny steps would drown in an epoch's float
        self.ends: list[tuple[float, bool]] = []
        self.after_end: Sight | None = None
        self.clock = Clock(lambda: START + self.time, lambda: self.time, self.sleep)
        self.when: dict[float, Callable[[], None]] = {}

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        for moment in [moment for moment in self.when if self.time >= moment]:
            self.when.pop(moment)()

    def look(self) -> Sight:
        if self.ends and self.after_end:
            return self.after_end
        while len(self.plan) > 1 and self.time - self.since >= self.plan[0][0]:
            self.plan.pop(0)
            self.since = self.time
        return self.plan[0][1]

    def end(self, force: bool) -> None:
        self.ends.append((self.time, force))


PENDING, RUNNING = Sight("pending", "Resources"), Sight("running", started_at=None)
OK = Sight("ended", cause="ok", exit_code=0)
CANCELLED = Sight("ended", cause="cancelled")


def follow(stage: Stage, job: Job, limits: Limits | None = None, recorder: Recorder | None = None) -> Ended:
    watch: Watch = (recorder or Recorder()).watch()
    return Following(job, stage, watch, limits or Limits(), START, stage.clock).run()


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return make_job(tmp_path, ["true"])


def test_queue_time_does_not_eat_the_cap(job: Job) -> None:
    stage = Stage((500.0, PENDING), (90.0, RUNNING), OK)
    ended = follow(stage, job._replace(cap_s=100.0))
    assert ended.outcome.end_cause == "ok"
    assert stage.ends == []


def test_the_cap_is_kept_to_the_second_however_slow_the_polling(job: Job) -> None:
    stage = Stage((30.0, PENDING), RUNNING)
    stage.after_end = CANCELLED
    outcome = follow(stage, job._replace(cap_s=100.0), Limits(last_poll_s=60.0)).outcome
    assert outcome.end_cause == "timeout"
    assert len(stage.ends) == 1
    assert outcome.elapsed_s == pytest.approx(100.0, abs=1.5)


def test_an_end_that_has_no_effect_is_repeated_by_force(job: Job) -> None:
    stage = Stage((60.0, RUNNING), CANCELLED)
    outcome = follow(stage, job._replace(cap_s=10.0, grace_s=5.0)).outcome
    assert outcome.end_cause == "timeout"
    assert [force for _, force in stage.ends] == [False, True, True, True]


def test_a_job_that_ended_by_itself_before_the_request_keeps_its_own_end(job: Job) -> None:
    stage = Stage(RUNNING)
    stage.after_end = OK
    assert follow(stage, job._replace(cap_s=10.0)).outcome.end_cause == "ok"


def test_a_capped_run_that_no_longer_fits_is_cancelled_while_pending(job: Job) -> None:
    stage = Stage(PENDING)
    stage.after_end = CANCELLED
    outcome = follow(stage, job._replace(cap_s=3600.0, deadline=START + 7200.0)).outcome
    assert outcome.end_cause == "stopped"
    assert "deadline" in outcome.reason
    assert stage.ends[0][0] == pytest.approx(3600.0, abs=10.0)


def test_a_cluster_that_comes_up_too_late_for_the_deadline_is_given_up(job: Job) -> None:
    stage = Stage((60.0, PENDING), Sight("starting"))
    stage.after_end = CANCELLED
    outcome = follow(stage, job._replace(cap_s=600.0, deadline=START + 1200.0)).outcome
    assert (outcome.end_cause, "while starting" in outcome.reason) == ("stopped", True)
    assert stage.ends[0][0] == pytest.approx(600.0, abs=10.0)


def test_a_cap_that_is_only_the_time_left_shrinks_with_the_queue(job: Job) -> None:
    stage = Stage((100.0, PENDING), RUNNING)
    stage.after_end = CANCELLED
    outcome = follow(stage, job._replace(cap_s=1000.0, deadline=START + 1000.0)).outcome
    assert outcome.end_cause == "timeout"
    assert stage.ends[0][0] == pytest.approx(1000.0, abs=12.0)


def test_a_stop_request_is_seen_between_slow_looks(job: Job) -> None:
    recorder = Recorder()
    stage = Stage(RUNNING)
    stage.after_end = CANCELLED
    stage.when[123.0] = recorder.stop
    assert follow(stage, job, recorder=recorder).outcome.end_cause == "stopped"
    assert stage.ends[0][0] == pytest.approx(123.0, abs=1.5)


def test_a_run_is_ended_before_a_shared_disk_is_full(job: Job) -> None:
    """Also elsewhere: what it writes lies on this machine's scratch."""
    for reserve, cause in (("0", "ok"), ("1e9", "disk")):
        stage = Stage((60.0, RUNNING), OK)
        stage.after_end = CANCELLED
        settings = {"DISK_PATHS": f"{job.logs}\n{job.tree}", "DISK_RESERVE_GB": reserve}
        outcome = follow(stage, job._replace(settings=settings)).outcome
        assert outcome.end_cause == cause
        assert ("GB free, less than 1e+09 GB" in outcome.reason) == (cause == "disk")
    assert stage.ends[0][0] < 10.0


def test_away_is_not_gone(job: Job) -> None:
    stage = Stage((5.0, RUNNING), (3600.0, Sight("away", "no route")), (30.0, RUNNING), OK)
    assert follow(stage, job).outcome.end_cause == "ok"


@pytest.mark.parametrize("seen", [True, False])
def test_the_cap_is_kept_while_the_engine_is_away(job: Job, seen: bool) -> None:
    """Also by whoever takes the run up in the meantime, and only knows what it noted itself."""
    before = [(5.0, RUNNING)] if seen else []
    stage = Stage(*before, Sight("away", started_at=None if seen else START))
    stage.after_end = CANCELLED
    assert follow(stage, job._replace(cap_s=100.0)).outcome.end_cause == "timeout"
    assert stage.ends[0][0] == pytest.approx(100.0, abs=2.0)


@pytest.mark.parametrize("seen", [True, False])
def test_a_run_that_is_over_by_its_own_word_uses_up_no_cap_while_the_engine_is_away(job: Job, seen: bool) -> None:
    before = [(5.0, RUNNING)] if seen else []
    stage = Stage(*before, (300.0, Sight("away", started_at=START, finished_at=START + 60.0)), OK)
    assert follow(stage, job._replace(cap_s=100.0)).outcome.end_cause == "ok"
    assert stage.ends == []


def test_a_stop_and_the_deadline_count_while_the_engine_is_away(job: Job) -> None:
    recorder = Recorder()
    stage = Stage((5.0, RUNNING), Sight("away"))
    stage.after_end = CANCELLED
    stage.when[50.0] = recorder.stop
    assert follow(stage, job, recorder=recorder).outcome.end_cause == "stopped"
    assert stage.ends[0][0] == pytest.approx(50.0, abs=2.0)
    stage = Stage((5.0, PENDING), Sight("away"))
    stage.after_end = CANCELLED
    outcome = follow(stage, job._replace(cap_s=60.0, deadline=START + 300.0)).outcome
    assert (outcome.end_cause, stage.ends[0][0]) == ("stopped", pytest.approx(240.0, abs=10.0))


def test_notes_of_a_run_before_its_requeue_use_up_nothing(job: Job) -> None:
    stage = Stage((5.0, RUNNING), (5.0, PENDING), (900.0, Sight("away", started_at=START)), (90.0, RUNNING), OK)
    assert follow(stage, job._replace(cap_s=100.0)).outcome.end_cause == "ok"


@pytest.mark.parametrize(("phase", "bound"), [("gone", 60.0), ("away", 6 * 3600.0)])
def test_a_missing_job_is_lost_after_its_bound(job: Job, phase: str, bound: float) -> None:
    stage = Stage((5.0, RUNNING), Sight(phase))
    ended = follow(stage, job)
    assert (ended.outcome.end_cause, ended.outcome.exit_code) == ("lost", None)
    assert stage.time == pytest.approx(bound + 5.0, abs=20.0)
    assert stage.ends, "it shall not go on unwatched"


def test_a_job_that_vanished_is_not_asked_for_without_a_pause(job: Job) -> None:
    stage = Stage((5.0, RUNNING), Sight("gone"))
    looks = [0]
    look = stage.look

    def counted() -> Sight:
        looks[0] += 1
        assert looks[0] < 200
        return look()

    stage.look = counted  # type: ignore[method-assign]
    assert follow(stage, job._replace(cap_s=10.0)).outcome.end_cause == "lost"


def test_a_job_that_is_forgotten_at_once_after_our_request_ended_for_our_reason(job: Job) -> None:
    stage = Stage(RUNNING)
    stage.after_end = Sight("gone")
    assert follow(stage, job._replace(cap_s=5.0)).outcome.end_cause == "timeout"


def test_a_requeue_starts_the_cap_again_and_adds_up_the_time(job: Job) -> None:
    stage = Stage((80.0, RUNNING), (300.0, PENDING), (80.0, RUNNING), OK)
    recorder = Recorder()
    outcome = follow(stage, job._replace(cap_s=100.0), recorder=recorder).outcome
    assert outcome.end_cause == "ok"
    assert outcome.elapsed_s == pytest.approx(160.0, abs=20.0)
    assert "started 2 times" in outcome.reason
    assert [bool(at) for at in recorder.began] == [True, False, True], "while it is queued no clock of it goes on"


def test_limits_of_the_queue_and_of_the_start_up(job: Job) -> None:
    for sight, limits in ((PENDING, Limits(queue_s=50.0)), (Sight("starting"), Limits(startup_s=50.0))):
        stage = Stage(sight)
        stage.after_end = CANCELLED
        assert follow(stage, job, limits).outcome.end_cause == "launcher"
        assert stage.ends[0][0] == pytest.approx(50.0, abs=10.0)


def test_start_up_of_a_cluster_does_not_eat_the_cap(job: Job) -> None:
    stage = Stage((600.0, Sight("starting")), (90.0, RUNNING), OK)
    assert follow(stage, job._replace(cap_s=100.0)).outcome.end_cause == "ok"


def test_the_start_up_of_a_driver_does_not_eat_the_cap(job: Job) -> None:
    """The engine's own start comes first, then the word of the script; a clock that is ahead gives nothing more."""
    for said in (START + 5.0, START + 4000.0):
        stage = Stage((5.0, Sight("running", started_at=START)), Sight("running", started_at=said))
        stage.after_end = CANCELLED
        assert follow(stage, job._replace(cap_s=20.0), Limits(last_poll_s=1.0)).outcome.end_cause == "timeout"
        assert 24.0 < stage.ends[0][0] < 27.0


def test_a_node_whose_clock_is_wrong_cannot_use_up_the_cap(job: Job) -> None:
    for skew in (-86400.0, 86400.0):
        stage = Stage((50.0, Sight("running", started_at=START + skew)), OK)
        assert follow(stage, job._replace(cap_s=100.0)).outcome.end_cause == "ok"


def test_the_log_explains_an_end(job: Job) -> None:
    Path(job.log_path).write_text("Traceback (most recent call last):\ntorch.OutOfMemoryError: CUDA out of memory.\n")
    assert follow(Stage(Sight("ended", cause="exit 1", exit_code=1)), job).outcome.end_cause == "oom"


def test_end_now_waits_until_it_is_gone() -> None:
    stage = Stage((8.0, RUNNING), Sight("gone"))
    assert end_now(stage, 5.0, 100.0, stage.clock).phase == "gone"
    assert [force for _, force in stage.ends] == [False, True]
    stuck = Stage(RUNNING)
    assert end_now(stuck, 5.0, 20.0, stuck.clock).phase == "running"


@pytest.mark.parametrize(
    ("code", "cause"), [(0, "ok"), (3, "exit 3"), (137, "signal 9"), (128, "exit 128"), (255, "exit 255")]
)
def test_cause_of(code: int, cause: str) -> None:
    assert cause_of(code) == cause
