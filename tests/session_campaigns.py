"""A campaign as it looks after its plan was approved and some rows were written, made without running anything."""

from __future__ import annotations

from pathlib import Path

from autoresearch import attempts, campaign, clock, ledger, paths, plan
from autoresearch.attempts import State
from autoresearch.campaign import Campaign
from autoresearch.rows import Row
from autoresearch.rules import explicit, stop
from autoresearch.sessions import session_files
from tests.conftest import git


def plan_of(repo: Path, scratch: Path, **more: object) -> plan.Plan:
    """A plan with a stop rule of five experiments."""
    scratch.mkdir(exist_ok=True)
    rule = str(more.pop("stop", "5 experiments, 1h each"))
    rules = explicit.resolve(stop.parse(rule, now=clock.now()), metric="val_accuracy", direction="max")
    fields: dict[str, object] = {
        "campaign": "camp",
        "repository": str(repo),
        "objective": "raise val_accuracy of the toy",
        "base": git(repo, "rev-parse", "HEAD"),
        "prefix": "autoresearch/camp",
        "command": "python3 train.py {overrides}",
        "metric": "val_accuracy",
        "direction": "max",
        "stop": rule,
        "rules": rules.to_json(),
        "scratch": str(scratch),
        "created_at": clock.stamp(clock.now()),
    }
    return plan.Plan(**{**fields, **more})  # type: ignore[arg-type]


def make(repo: Path, scratch: Path, *, approved: bool = True, **more: object) -> Campaign:
    """An approved campaign named `camp`; AR_REPO is for the caller to set."""
    made = plan_of(repo, scratch, **more)
    where = paths.Campaign(str(repo), str(scratch), "camp")
    data = plan.save(where, made)
    (repo / ".git" / "info" / "exclude").write_text("\n".join(paths.EXCLUDED) + "\n")
    if not approved:
        return Campaign(where, plan.Approval("", "", "", made, []))
    approval = plan.approve(where, made, data, "tester")
    campaign.make_root(where)
    campaign.remember(where)
    return Campaign(where, approval)


def commit(opened: Campaign, experiment: str, parent: str = "", files: dict[str, str] | None = None) -> str:
    """A hypothesis commit with its branch, made by plumbing so that the checkout stays as it is."""
    repo = Path(opened.where.repository)
    parent = parent or opened.plan.base
    tree = git(repo, "rev-parse", f"{parent}^{{tree}}")
    for path, text in (files or {}).items():
        blob = _run(repo, ["hash-object", "-w", "--stdin"], text)
        listing = git(repo, "ls-tree", tree).splitlines()
        kept = [line for line in listing if line.split("\t")[1] != path]
        tree = _run(repo, ["mktree"], "\n".join([*kept, f"100644 blob {blob}\t{path}"]) + "\n")
    made = git(repo, "commit-tree", tree, "-p", parent, "-m", f"area: {experiment}")
    git(repo, "update-ref", f"refs/heads/{opened.branch(experiment)}", made)
    return made


def _run(repo: Path, args: list[str], text: str) -> str:
    import subprocess

    done = subprocess.run(["git", "-C", str(repo), *args], input=text, text=True, capture_output=True, check=True)
    return done.stdout.strip()


def row(opened: Campaign, experiment: str, value: float | None, status: str = "keep", **more: str) -> Row:
    """Append a row for an experiment (its commit is made when it has none) with a log on scratch."""
    attempt = int(more.pop("attempt", "1"))
    at = opened.where.attempt(experiment, attempt)
    at.make()
    Path(at.log).write_text(more.pop("log", f"step 1\nval_accuracy: {value}\n"))
    sha = more.pop("commit", "") or commit(opened, experiment)
    fields = {
        "branch": opened.branch(experiment),
        "parent_commit": opened.plan.base,
        "commit": sha,
        "metric_name": "val_accuracy",
        "metric_value": "0.000000" if value is None else repr(value),
        "memory_gb": "0.0" if value is None else "1.5",
        "elapsed_min": "0.50",
        "launcher": "local",
        "job_id": "none",
        "command": "python3 train.py",
        "log_path": at.log,
        "status": status,
        "description": f"area: {experiment}",
        "experiment": experiment,
        "attempt": str(attempt),
        "end_cause": "ok" if value is not None else "exit 1",
        "started_at": clock.stamp(clock.now() - 30),
        "finished_at": clock.stamp(clock.now()),
        "metric_source": "" if value is None else "console run.log:2",
        "artifacts_path": at.artifacts,
        "checkpoint_path": at.checkpoints,
        "verdict_by": "rule",
        "reason": f"because of {experiment}",
    }
    return ledger.append(opened.ledger_path, Row(**{**fields, **more}))


def state(opened: Campaign, experiment: str, **more: object) -> State:
    """Reserve an attempt that nobody looks after, as a kill -9 leaves it."""
    fields: dict[str, object] = {
        "experiment": experiment,
        "attempt": 1,
        "smoke": False,
        "phase": "launched",
        "branch": opened.branch(experiment),
        "commit": opened.plan.base,
        "parent_commit": opened.plan.base,
        "parent": "",
        "description": f"area: {experiment}",
        "argv": ["true"],
        "tree": "",
        "overrides": [],
        "lines_delta": None,
        "cap_s": 60.0,
        "reserved_at": clock.now(),
        "client": "",
        "lock": f"{experiment}.lock",
    }
    made = State(**{**fields, **more})  # type: ignore[arg-type]
    Path(opened.where.state).mkdir(parents=True, exist_ok=True)
    attempts.create(opened.where, made)
    return made


def notes_of(opened: Campaign) -> session_files.Notes:
    """The session of a campaign that has one."""
    found = session_files.current(opened.where)
    assert found is not None
    return found


def sections(path: str) -> list[str]:
    """The headings of a note."""
    return [line[3:] for line in Path(path).read_text().split("\n") if line.startswith("## ")]
