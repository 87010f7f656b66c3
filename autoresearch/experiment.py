"""One idea from the caller's side: preflight, hypothesis, reservation, launch, and the wait for its row."""

from __future__ import annotations

import os

from autoresearch import campaign, command, knobs, launch, launchers, parents, recovery, reservation, talk
from autoresearch.campaign import Campaign
from autoresearch.errors import Refused, Usage
from autoresearch.plan import Plan
from autoresearch.reservation import Draft
from autoresearch.sessions import session


def open_for_launch() -> Campaign:
    """Return the campaign ready for a launch: orphans finished, disk, secrets and launcher looked at.

    Raises:
        Refused: something is missing; nothing was changed.
    """
    opened = campaign.open_approved()
    recovery.finish(opened)
    check_ledger(opened)
    if knobs.get("CONFIRM"):
        opened.plan = opened.plan._replace(confirm=knobs.count("CONFIRM", 0, least=0))
    check_disk(opened)
    if opened.plan.require:  # data that was there for the plan may be gone since: a run without it still gives a number
        from autoresearch import planning

        planning.check_needs(opened.plan)
    check_secrets(opened)
    check_launcher(opened)
    if opened.plan.launcher == "local":
        command.program(command.check(opened.plan.command))
    campaign.make_root(opened.where)
    return opened


def check_ledger(opened: Campaign) -> None:
    """Refuse to count from nothing again where the ledger was lost: git still has what was run."""
    if opened.has_lost_rows():
        why = f"{opened.ledger_path} holds no row, and git has rows of this campaign"
        fix = f"make ledger CAMPAIGN={opened.name} YES=1 brings them back; for a fresh start plan another CAMPAIGN"
        raise Refused("ledger", why, fix)


def check_disk(opened: Campaign) -> None:
    """Refuse when scratch is missing or a disk is below its reserve; nothing is created before."""
    from autoresearch import paths
    from autoresearch.running import disk

    paths.scratch_root(opened.where.repository, opened.where.scratch)
    reserve = knobs.parse_number("DISK_RESERVE_GB", opened.plan.setting("DISK_RESERVE_GB", "2"))
    disk.check([opened.where.repository, opened.where.scratch], reserve, 0.0)


def check_secrets(opened: Campaign) -> None:
    """Refuse when a key that the plan needs is nowhere; names file and key, never a value."""
    file = os.path.join(opened.where.repository, ".env")
    missing = missing_secrets(opened.plan)
    if missing:
        where = file if os.path.exists(file) else f"{file} (which does not exist)"
        why = f"{', '.join(missing)}: neither in {where} nor in the environment"
        raise Refused("secrets", why, f"add a line {missing[0]}=... to {file}, mode 600")
    if opened.plan.secrets or os.path.exists(file):
        from autoresearch import dotenv_file

        for warning in dotenv_file.warnings(file):
            talk.note(f"warning: {warning}")


def missing_secrets(plan: Plan) -> list[str]:
    """Return the keys that a plan needs and that have no value."""
    wanted = [key for key in plan.secrets if key != "none"]
    return [key for key in wanted if not any(os.environ.get(name) for name in same_secret(key))]


def same_secret(key: str) -> tuple[str, ...]:
    """Return the names that will do for a key: Hugging Face has two for one token."""
    tokens = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
    return tokens if key in tokens else (key,)


def check_launcher(opened: Campaign) -> None:
    """Refuse when the plan's launcher cannot take the job, before anything is made."""
    plan = opened.plan
    if plan.launcher == "local" and (not plan.gpus or plan.setting("FORCE_LOCAL")) and not plan.setting("GPUS"):
        return
    for found in launchers.load(plan.launcher).check(launch.launcher_settings(plan), plan.gpus, plan.nodes):
        if found.level == "FAIL":
            raise Refused(f"launcher {plan.launcher}", f"{found.what}: {found.detail}", found.fix)
        if found.level == "warn":
            talk.note(f"warning: {found.what}: {found.detail}")


def run_draft(opened: Campaign, draft: Draft, publish: reservation.Publish) -> int:
    """Reserve, prepare and launch a draft, then wait for its row unless DETACH=1; return the exit code.

    Raises:
        Refused: a stop rule is met or the branch cannot be made; nothing was changed.
    """
    from autoresearch import waiting

    state = reservation.reserve(opened, draft, publish)
    try:
        state = launch.prepare(opened, state)
        session.checkpoint(opened.where, f"{session.LAUNCHING} {state.id} on {state.branch}", state.description)
    except BaseException:
        # The branch keeps the hypothesis; the place in the count is free again.
        recovery.give_up(opened, state)
        raise
    with waiting.ctrl_c_ends(opened, state):
        done = launch.detach(opened, state)
        if not knobs.flag("DETACH"):
            return waiting.attached(opened, state, done)
    talk.out(state.id)
    talk.note(f"{state.id} runs on {state.branch}; next: make wait NAME={state.experiment}")
    return 0


def baseline_draft(opened: Campaign) -> tuple[Draft, reservation.Publish]:
    """Return the baseline: an empty signed-off commit on BASE, made once, and what creates its branch."""
    from autoresearch.git import hypothesis

    rows, smoke = opened.rows(), knobs.flag("SMOKE")
    known = parents.latest(rows, parents.BASELINE) or parents.latest(opened.rows(smoke=True), parents.BASELINE)
    measured = parents.judged(rows, known.commit) if known else None
    if measured and not (knobs.flag("REPEAT") or knobs.get("REPEATS") or smoke):
        why = f"it is measured already ({measured.metric_value})"
        raise Refused("baseline", why, "make experiment NAME=y ..., or measure it again: REPEAT=1")
    more = check_repeats(1 if measured else opened.plan.repeats or 1)
    if more and (remark := command.same_seed(opened.plan.command)):
        talk.note(f"warning: {remark}")
    subject = f"baseline: {opened.plan.recipe or opened.name} unmodified"
    branch = opened.branch(parents.BASELINE)
    commit = known.commit if known else own_tip(opened, parents.BASELINE)
    publish: reservation.Publish = nothing
    if not commit:
        made = hypothesis.build(
            opened.git,
            parent=opened.plan.base,
            base=opened.plan.base,
            subject=subject,
            trailers=trailers(opened, parents.BASELINE, opened.plan.base, []),
            allow_empty=True,
        )
        commit = made.commit
        publish = creator(opened, branch, commit)
    return (
        Draft(
            experiment=parents.BASELINE,
            commit=commit,
            parent_commit=opened.plan.base,
            parent="",
            description=subject,
            overrides=[],
            smoke=smoke,
            role="repeat" if measured and not smoke else "idea",
            more=more,
        ),
        publish,
    )


def existing_tip(opened: Campaign, branch: str) -> str:
    """Return the commit that a branch points to, empty when there is none."""
    done = opened.git.call("rev-parse", "--verify", "--quiet", "--end-of-options", f"refs/heads/{branch}^{{commit}}")
    return "" if done.code else str(done.out.decode().strip())


def own_tip(opened: Campaign, name: str) -> str:
    """Return the commit on the branch of an experiment whose launch was cut off before it ran; empty without one.

    Raises:
        Refused: somebody else made that branch; nothing is ever put on top of it.
    """
    branch = opened.branch(name)
    tip = existing_tip(opened, branch)
    if not tip:
        return ""
    if not is_own(opened, name, tip):
        fix = "choose another NAME or PREFIX"
        if name != parents.BASELINE:
            fix += f", or go on from where it is: make start NAME={name}"
        raise Refused("branch", f"{branch} exists and is not of this campaign", fix)
    return tip


def is_own(opened: Campaign, name: str, commit: str) -> bool:
    """Return whether a commit is a hypothesis of this experiment, by its trailers."""
    form = "--format=%(trailers:key=Campaign,valueonly)%(trailers:key=Experiment,valueonly)"
    written = opened.git.run("show", "-s", "--no-notes", form, commit, "--").decode("utf-8", "replace").split()
    return written == [opened.name, name]


def trailers(opened: Campaign, experiment: str, parent: str, overrides: list[str]) -> list[tuple[str, str]]:
    """Return what the commit of a hypothesis records besides its subject."""
    import json

    found = [("Campaign", opened.name), ("Experiment", experiment), ("Parent", parent)]
    if overrides:
        found.append(("Overrides", json.dumps(overrides)))
    return [*found, ("Command", opened.plan.command)]


def creator(opened: Campaign, branch: str, commit: str) -> reservation.Publish:
    """Return what creates a branch at a commit; of many callers one succeeds."""
    from autoresearch.git import repository

    return lambda: repository.create_branch(opened.git, branch, commit)


def nothing() -> None:
    """Publish nothing: the branch is there."""


def check_repeats(runs: int = 1) -> int:
    """Return how many runs follow the first one; `runs` are made in all where the call does not say."""
    if not knobs.flag("SMOKE"):
        return knobs.count("REPEATS", runs) - 1
    if knobs.get("REPEATS"):
        raise Usage("REPEATS", "a plumbing run is not repeated", "leave SMOKE or REPEATS out")
    return 0
