"""Whole campaigns on a real Slurm and a real Ray: whatever happens, one true row, and no job of ours left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from autoresearch.launchers._ray_api import Api
from autoresearch.rows import Row
from autoresearch.running import processes
from tests.conftest import git, snapshot
from tests.faults import Lab, ended, idea, train_repo, until
from tests.launching import bring_up, engine_folder, ray_program, take_down

pytestmark = pytest.mark.engine
SECRET = "s3cr3t-value-never-written"


class Site(NamedTuple):
    """One engine as the tests look at it, past autoresearch."""

    name: str
    knobs: dict[str, str]
    env: dict[str, str]
    folder: str

    def slurm(self, *argv: str) -> str:
        env = {**os.environ, **self.env}
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False).stdout

    def jobs(self) -> dict[str, str]:
        """All jobs that the engine remembers, as {id: state}."""
        if self.name == "slurm":
            lines = self.slurm("squeue", "-h", "-t", "all", "-o", "%i %T").splitlines()
            return {line.split()[0]: line.split()[1] for line in lines}
        reply = Api(self.knobs, {}).call("GET", "/api/jobs/")
        return {job["submission_id"]: job["status"] for job in json.loads(reply.text)}

    def live(self) -> list[str]:
        return [job for job, state in self.jobs().items() if state in ("PENDING", "RUNNING", "COMPLETING")]

    def names(self, campaign: str) -> list[str]:
        """The names of all attempts of a campaign that were ever given to the engine, one for each job."""
        if self.name == "slurm":
            lines = self.slurm("squeue", "-h", "-t", "all", "-o", "%j").splitlines()
        else:
            lines = list(self.jobs())
        return sorted(name.rpartition("-")[0] for name in lines if name.startswith(f"{campaign}-"))

    def end(self, job_id: str) -> None:
        """End a job as a stranger would."""
        if self.name == "slurm":
            self.slurm("scancel", job_id)
        else:
            Api(self.knobs, {}).stop(job_id)


@pytest.fixture(scope="module")
def slurm_site() -> Iterator[Site]:
    for folder in engine_folder():
        bring_up("slurm", folder, SLURM_KILL_WAIT="2", SLURM_CPUS="12", SLURM_MEMORY="3000")
        yield Site("slurm", {"LAUNCHER": "slurm"}, {"SLURM_CONF": f"{folder}/slurm.conf"}, folder)
        take_down("slurm", folder)


@pytest.fixture(scope="module")
def ray_site() -> Iterator[Site]:
    program = ray_program()
    for folder in engine_folder():
        address = bring_up("ray", folder, RAY_BIN=program, PROVIDED_TOKEN=SECRET)
        yield Site("ray", {"LAUNCHER": "ray", "RAY_ADDRESS": address}, {}, folder)
        take_down("ray", folder)


@pytest.fixture(params=["slurm", "ray"])
def site(request: pytest.FixtureRequest) -> Site:
    found: Site = request.getfixturevalue(f"{request.param}_site")
    return found


@pytest.fixture
def lab_of(make_repo: Callable[..., Path], tmp_path: Path, hermetic: Path) -> Iterator[Callable[..., Lab]]:
    """A factory: a planned and approved campaign on a site. At the end no job of the site is left."""
    used: list[Site] = []

    def build(site: Site, name: str, stop: str = "30 experiments", **knobs: str) -> Lab:
        used.append(site)
        env, given = {**os.environ, **site.env}, {**site.knobs, **knobs}
        return Lab(train_repo(make_repo), tmp_path / "s", hermetic, stop=stop, name=name, env=env, **given)

    yield build
    for site in used:
        left = [job for job in site.live() if not never_begins(site, job, tmp_path)]
        for job in left:
            site.end(job)
        assert left == [], "a job of ours is left"


def never_begins(site: Site, job: str, scratch: Path) -> bool:
    """Ray cannot stop a pending job: a file beside its script makes it end at once, should it ever begin."""
    if site.name != "ray" or site.jobs()[job] != "PENDING":
        return False
    return any(
        f"Token {job.rpartition('-')[2]}." in path.with_name("ray.sh").read_text()
        for path in scratch.rglob("*.cancelled")
    )


def running(lab: Lab, name: str) -> dict[str, object]:
    """Wait until the training of an idea has begun; returns what status says of it."""

    def look() -> object:
        if not any(f"/{name}/" in path for path in lab.began()):
            return None
        return next(
            (one for one in lab.status()["running"] if one["id"] == name and one["elapsed_s"] is not None), None
        )

    found: dict[str, object] = until(look, 60, lambda: (lab.status(), lab.processes()))
    return found


def launch(lab: Lab, name: str, words: str = "", **knobs: str) -> None:
    lab.ok("experiment", **idea(name, words), DETACH="1", **knobs)


def useful(lab: Lab, site: Site, row: Row) -> None:
    """Assert that a person finds the job of a row again."""
    assert row.launcher == site.name
    assert row.job_id.split(".")[0] in site.jobs()
    assert "train.py" in row.command
    assert f"idea={row.experiment}" in row.command or row.experiment == "baseline"
    logs = Path(row.log_path).parent
    assert (logs / f"{site.name}.sh").stat().st_mode & 0o777 == 0o700
    assert row.host
    assert row.started_at <= row.finished_at
    assert row.started_at or row.end_cause in ("stopped", "launcher")


def ours(lab: Lab) -> list[int]:
    """Everything of ours, not the jobs."""
    lines = [line for line in lab.processes() if "-m autoresearch" in line or "/bin/experiment" in line]
    return [int(line.partition(":")[0]) for line in lines]


def killed(lab: Lab) -> None:
    """kill -9 of everything of ours."""
    while pids := ours(lab):
        send(pids)


def supervisors_killed(lab: Lab) -> None:
    """kill -9 of the supervisors; their keepers stay."""
    pids = ours(lab)
    parents = {pid: int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in pids}
    children = [pid for pid, parent in parents.items() if parent in parents]
    assert children
    send(children)


def send(pids: list[int]) -> None:
    for pid in pids:
        victim = processes.identify(pid)
        if victim:
            processes.send(victim, signal.SIGKILL)


def test_every_end_has_its_one_row(site: Site, lab_of: Callable[..., Lab]) -> None:
    name = f"{site.name}-ends"
    lab = lab_of(site, name, "30 experiments, 10s each", RAY_SECRETS="none" if site.name == "ray" else "")
    told = lab.ok("doctor")
    assert f"launcher {site.name}" in told
    lab.ok("baseline")
    proofs = {path.name: path.read_text() for path in (lab.records / ".state").glob("canary*")}
    assert len(proofs) == 1
    assert "saw the tree" in next(iter(proofs.values()))
    for one, words in {
        "better": "value=0.6",
        "fails": "exit=3",
        "capped": "family=1 sleep=60",
        "stopped": "sleep=60",
        "cancelled": "sleep=60",
    }.items():
        launch(lab, one, words)
    running(lab, "stopped")
    lab.ok("stop", NAME="stopped")
    site.end(str(running(lab, "cancelled")["job_id"]))
    codes = {one: lab.call("wait", NAME=one).returncode for one in ("better", "fails", "cancelled", "capped")}
    assert codes == {"better": 0, "fails": 4, "cancelled": 4, "capped": 4}
    rows = {row.experiment: row for row in lab.check()}
    assert {one: (row.status, row.end_cause, row.exit_code) for one, row in rows.items()} == {
        "baseline": ("keep", "ok", "0"),
        "better": ("keep", "ok", "0"),
        "fails": ("crash", "exit 3", "3"),
        "capped": ("crash", "timeout", rows["capped"].exit_code),
        "stopped": ("crash", "stopped", rows["stopped"].exit_code),
        "cancelled": ("crash", "stopped", rows["cancelled"].exit_code),
    }
    for row in rows.values():
        useful(lab, site, row)
    assert (rows["better"].metric_value, rows["better"].parent_metric) == ("0.6", "0.5")
    assert "over its cap of 10 s" in rows["capped"].reason
    assert 9 <= float(rows["capped"].elapsed_min) * 60 < 25
    assert "stop was asked for" in rows["stopped"].reason
    assert "cancelled in Slurm" in rows["cancelled"].reason or "in Ray" in rows["cancelled"].reason
    assert site.names(name) == sorted(f"{name}-{one}" for one in rows)
    assert proofs == {path.name: path.read_text() for path in (lab.records / ".state").glob("canary*")}


def test_a_job_outlives_everything_of_ours(site: Site, lab_of: Callable[..., Lab]) -> None:
    """A reader starts to follow it again, and so does a verb; each job is launched once and has one row."""
    name = f"{site.name}-kill"
    lab = lab_of(site, name, RAY_SECRETS="none" if site.name == "ray" else "")
    lab.ok("baseline")
    launch(lab, "reader", "sleep=4 value=0.7")
    launch(lab, "verb", "sleep=7 exit=5")
    for one in ("reader", "verb"):
        running(lab, one)
    supervisors_killed(lab)
    assert lab.status()["orphans"] == []
    killed(lab)
    assert {one["id"] for one in lab.status()["running"]} == {"reader", "verb"}
    until(lambda: any(row.experiment == "reader" for row in lab.rows()), 30, lab.processes)
    assert lab.status()["orphans"] == []  # the other one is followed still
    killed(lab)
    assert lab.call("wait", NAME="verb").returncode == 4
    rows = {row.experiment: row for row in lab.check()}
    assert (rows["reader"].end_cause, rows["reader"].metric_value) == ("ok", "0.7")
    assert rows["verb"].end_cause == "exit 5"
    for row in rows.values():
        useful(lab, site, row)
    assert float(rows["reader"].elapsed_min) * 60 >= 3.5
    assert site.names(name) == sorted(f"{name}-{one}" for one in rows)


def test_killed_at_any_moment_of_a_launch(site: Site, lab_of: Callable[..., Lab]) -> None:
    name = f"{site.name}-moments"
    lab = lab_of(site, name, RAY_SECRETS="none" if site.name == "ray" else "")
    lab.ok("baseline")
    for n, pause in enumerate((0.25, 0.4, 0.55, 0.7) if site.name == "slurm" else (0.3, 0.6)):
        launched = lab.spawn("experiment", **idea(f"e{n}", "sleep=1 value=0.4"))
        time.sleep(pause)
        killed(lab)
        ended(launched)
    lab.idea("last")
    for state in lab.states():
        lab.call("wait", NAME=state.removesuffix(".json"))
    rows = lab.check()
    assert Counter(site.names(name)) == Counter(f"{name}-{row.experiment}" for row in rows if row.job_id != "none")
    assert {row.end_cause for row in rows} <= {"ok", "launcher"}
    assert all(row.end_cause == "ok" for row in rows if row.job_id != "none")


def test_twenty_jobs_of_four_drivers(site: Site, lab_of: Callable[..., Lab]) -> None:
    name = f"{site.name}-many"
    lab = lab_of(site, name, RAY_SECRETS="none" if site.name == "ray" else "")
    lab.ok("baseline")
    told: list[subprocess.CompletedProcess[str]] = []

    def drive(driver: int) -> None:
        for n in range(5):
            words = f"value=0.{n + 1} exit={n if driver == 3 else 0}"
            told.append(lab.call("experiment", **idea(f"d{driver}-{n}", words), DETACH="1"))

    drivers = [threading.Thread(target=drive, args=(n,)) for n in range(4)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    assert [one for one in told if one.returncode] == []
    until(lambda: not lab.states(), 120, lambda: (lab.states(), site.jobs()))
    rows = {row.experiment: row for row in lab.check()}
    assert len(rows) == 21
    for driver in range(4):
        causes = [rows[f"d{driver}-{n}"].end_cause for n in range(5)]
        assert causes == ["ok", *(f"exit {n}" if driver == 3 else "ok" for n in range(1, 5))]
    assert len({row.job_id for row in rows.values()}) == 21
    assert site.names(name) == sorted(f"{name}-{one}" for one in rows)


def test_an_engine_that_is_not_there(site: Site, lab_of: Callable[..., Lab]) -> None:
    """A launch is refused before anything is made."""
    lab = lab_of(site, f"{site.name}-away", RAY_SECRETS="none" if site.name == "ray" else "")
    if site.name == "slurm":
        dead = Path(lab.home, "slurm.conf")
        text = Path(site.env["SLURM_CONF"]).read_text()
        dead.write_text(
            "\n".join("SlurmctldPort=9" if line.startswith("SlurmctldPort") else line for line in text.splitlines())
        )
        lab.env["SLURM_CONF"] = str(dead)
    else:
        lab.ok("plan", CAMPAIGN="ray-away", RAY_ADDRESS="http://127.0.0.1:9")
        lab.ok("approve", YES="1")
    refs = git(lab.repo, "for-each-ref")
    done = lab.call("baseline")
    assert done.returncode == 3, done
    assert f"launcher {site.name}" in done.stderr
    assert "Traceback" not in done.stderr
    assert not lab.root.exists()
    assert (lab.states(), git(lab.repo, "for-each-ref"), snapshot(lab.repo)) == ([], refs, lab.before)
    assert not (lab.records / "results.tsv").exists()


def test_secrets_that_a_ray_node_lacks(ray_site: Site, lab_of: Callable[..., Lab]) -> None:
    lab = lab_of(ray_site, "ray-secrets")
    (lab.repo / ".env").write_text(f"NEEDED_TOKEN={SECRET}\n")
    (lab.repo / ".env").chmod(0o600)
    lab.before = snapshot(lab.repo)
    done = lab.call("baseline")
    assert done.returncode == 3, done
    assert "no NEEDED_TOKEN there" in done.stderr
    assert SECRET not in done.stderr + done.stdout
    assert lab.check() == []
    assert lab.status()["attempted"] == 0
    (lab.repo / ".env").write_text(f"PROVIDED_TOKEN={SECRET}\n")
    lab.before = snapshot(lab.repo)
    lab.ok("baseline")
    code = "code=print(len(os.environ['PROVIDED_TOKEN']))"
    assert lab.idea("uses", f'"{code}"').returncode == 0
    rows = lab.check()
    assert [row.end_cause for row in rows] == ["ok", "ok"]
    assert f"\n{len(SECRET)}\n" in Path(rows[-1].log_path).read_text()
    assert SECRET not in Api(ray_site.knobs, {}).call("GET", "/api/jobs/").text
    for file in [*lab.root.rglob("*"), *lab.records.rglob("*")]:
        assert not file.is_file() or SECRET.encode() not in file.read_bytes(), file


def test_a_pending_job_that_no_longer_fits_the_deadline(site: Site, lab_of: Callable[..., Lab]) -> None:
    """A run of its full cap has to fit: it is cancelled long before the deadline itself."""
    stranger = ""
    if site.name == "slurm":
        lab = lab_of(site, "slurm-late", "30 experiments or 45s total, 32s each")
        lab.ok("baseline")
        stranger = site.slurm("sbatch", "--parsable", "--exclusive", "--output=/dev/null", "--wrap=sleep 100").strip()
        until(lambda: site.jobs()[stranger] == "RUNNING")
    else:
        lab = lab_of(site, "ray-late", "30 experiments or 40s total, 35s each", RAY_GPUS="99", RAY_SECRETS="none")
    begun = time.monotonic()
    try:
        done = lab.idea("late") if stranger else lab.call("baseline")
    finally:
        if stranger:
            site.end(stranger)
            until(lambda: not site.live(), 20)
    assert done.returncode == 4, done
    assert time.monotonic() - begun < 30
    row = lab.check()[-1]
    assert (row.status, row.end_cause, row.started_at, row.elapsed_min) == ("crash", "stopped", "", "0.00")
    assert "the deadline leaves no room" in row.reason


def test_experiments_inside_a_held_allocation(slurm_site: Site, lab_of: Callable[..., Lab]) -> None:
    """It takes the whole cluster: what runs can only run inside it."""
    lab = lab_of(slurm_site, "slurm-hold", SLURM_ARGS="--exclusive")
    held = lab.ok("hold").strip()
    assert lab.call("hold").returncode == 3
    lab.ok("baseline")
    assert lab.idea("fails", "exit=3").returncode == 4
    launch(lab, "orphan", "sleep=7 value=0.6")
    launch(lab, "stopped", "sleep=60")
    for one in ("orphan", "stopped"):
        running(lab, one)
    supervisors_killed(lab)
    time.sleep(1)  # their keepers may end nothing
    assert lab.status()["orphans"] == []
    killed(lab)
    lab.ok("stop", NAME="stopped")
    assert lab.call("wait", NAME="orphan").returncode == 0
    launch(lab, "cut", "sleep=60")
    running(lab, "cut")
    lab.ok("hold", RELEASE="1")
    assert lab.call("wait", NAME="cut").returncode == 4
    rows = {row.experiment: row for row in lab.check()}
    assert {one: row.end_cause for one, row in rows.items()} == {
        "baseline": "ok",
        "fails": "exit 3",
        "orphan": "ok",
        "stopped": "stopped",
        "cut": "launcher",
    }
    for row in rows.values():
        useful(lab, slurm_site, row)
        assert row.job_id.startswith(f"{held}.")
    assert "allocation" in rows["cut"].reason
    assert lab.call("hold", RELEASE="1").returncode == 3
