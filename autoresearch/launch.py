"""From a reserved attempt to its row: what the supervisor does. It runs in a process that survives its caller."""

from __future__ import annotations

import os
import time
from binascii import crc32
from collections.abc import Callable

from autoresearch import (
    attempts,
    campaign,
    clock,
    command,
    conclude,
    durations,
    environment,
    files,
    knobs,
    launchers,
    progress,
    recipes,
)
from autoresearch.attempts import State
from autoresearch.campaign import Campaign
from autoresearch.errors import AutoresearchError, Refused
from autoresearch.launchers import Job, Outcome, Watch
from autoresearch.plan import Plan
from autoresearch.rows import places
from autoresearch.rules import standing, stop
from autoresearch.running import conversion, devices, keeper, sockets
from autoresearch.sessions import session

GRACE_S = 30.0
RULES_SHARE = 0.005  # of a core, for looking at the rules while a run waits: of a large ledger that takes 100 ms
HEARTBEAT_S = 25 * 60.0  # the session is to hear of a run at least every 30 minutes


def detach(opened: Campaign, state: State) -> int:
    """Start the supervisor of a reserved attempt; return a descriptor that ends when all is over (keeper.wait)."""
    from autoresearch import recovery

    return keeper.detach(
        lambda: supervise(opened, state),
        lambda: recovery.rescue(opened, state.lock),
        lock_path=attempts.lock_file(opened.where, state),
        log_path=os.path.join(progress.directories(opened.where, state).logs, "supervisor.log"),
        grace_s=grace_s(opened),
    )


def supervise(opened: Campaign, state: State) -> None:
    """Run an attempt, write its row, then the runs that its verdict asks for (repeats, confirming pairs)."""
    import gc

    from autoresearch import series_of_runs

    gc.freeze()  # what the client had loaded stays for good, and in memory that both share
    gc.enable()
    pending: State | None = state
    while pending is not None:
        finished = run_one(opened, pending)
        pending = series_of_runs.next_one(opened, pending) if finished else None
    attempts.forget_lock(opened.where, state.lock)


def run_one(opened: Campaign, state: State) -> bool:
    """Run one reserved attempt to its row; False when nothing is to follow it: it never ran, or was asked to end."""
    lease: devices.Lease | None = None
    turn = conversion.Turn(-1, "")
    try:
        if state.phase == "reserved":  # else it is a cluster job that is followed again
            if opened.plan.launcher == "local":
                lease = take_device(opened, state)
                turn = take_turn(opened, state)
            prove_visible(opened, state)  # it may have to wait in a queue
            state = may_still_run(opened, state)
        outcome = _follow(opened, state)
        others = lease.neighbours() if lease else []
    except AutoresearchError as refusal:
        withdraw(opened, state, refusal)
        return False
    except OSError as error:
        if state.phase != "reserved":
            raise  # it may be running: the keeper brings it to its row
        fix = "check disk space and permissions, then try again"
        withdraw(opened, state, AutoresearchError("launch", str(error), fix))
        return False
    finally:
        turn.over(recipes.setup_seconds(progress.directories(opened.where, state).log) if turn.fd >= 0 else 0.0)
        if lease:
            lease.release()
    state = attempts.read(attempts.path(opened.where, state.id)) or state
    notes = [*state.notes, *(f"not alone on this machine: {other}" for other in others)]
    state = attempts.update(opened.where, state._replace(phase="ended", outcome=outcome._asdict(), notes=notes))
    asked = stop_asked(opened, state)  # the request goes with the state, also when the run had ended by then
    conclude.finish(opened, state, outcome)
    return not asked


def take_turn(opened: Campaign, state: State) -> conversion.Turn:
    """Wait until no other run of this machine may be converting the same model's weights."""
    return conversion.take(
        opened.plan,
        opened.where.caches,
        say=lambda text: keep_waiting(opened, state, text),
        stop=no_longer_waits(opened, state),
    )


def stop_asked(opened: Campaign, state: State) -> bool:
    """Return whether somebody asked the attempt to end."""
    return attempts.stop_asked(opened.where, state) or keeper.stop_asked()


def take_device(opened: Campaign, state: State) -> devices.Lease:
    """Wait for this machine's device, by default as long as the stop rules allow (WAIT), and return the hold on it.

    Raises:
        TryAgain: the time is up, or the attempt was asked to stop.
        Refused: a stop rule is met meanwhile, as it is approved by then.
    """
    plan = opened.plan
    wait = knobs.text("WAIT") or plan.setting("WAIT")
    return devices.acquire(
        who=f"{os.environ.get('USER', '')} {opened.name}/{state.id}",
        mark=state.mark,
        gpus=plan.setting("GPUS"),
        slots=plan.setting("SLOTS"),
        wait_s=durations.parse(wait) if wait else None,
        say=lambda text: keep_waiting(opened, state, text),
        stop=no_longer_waits(opened, state),
    )


def no_longer_waits(opened: Campaign, state: State) -> Callable[[], bool]:
    """Return what a waiting attempt asks all the time: was it asked to end? It raises Refused when a rule is met."""
    next_look = 0.0

    def ends() -> bool:
        nonlocal next_look
        begun = time.monotonic()
        if begun >= next_look:
            check_rules(opened, state)
            next_look = begun + (time.monotonic() - begun) / RULES_SHARE
        return stop_asked(opened, state)

    return ends


def keep_waiting(opened: Campaign, state: State, text: str) -> None:
    """Record what an attempt waits for, for `status`."""
    attempts.update(opened.where, state._replace(waited=text))


def prove_visible(opened: Campaign, state: State) -> None:
    """Let a small job prove, once a campaign, that tree and directories are visible where a cluster runs its jobs.

    Raises:
        Refused: they are not; nothing of the attempt was started.
    """
    launcher = opened.plan.launcher
    if launcher == "local":
        return
    settings = launcher_settings(opened.plan)
    which = crc32(repr(sorted(settings.items())).encode())  # a plan may come to name another cluster
    marker = os.path.join(opened.where.state, f"canary-{launcher}-{which:08x}")
    if os.path.exists(marker):
        return
    keep_waiting(opened, state, "a canary job looks whether this scratch is visible there")
    at = progress.directories(opened.where, state)
    needed = [key for key in campaign.secret_keys() if os.environ.get(key)]
    places = [at.logs, at.checkpoints, at.artifacts]
    if held := held_allocation(opened):
        settings["SLURM_HOLD"] = held
    started = opened.started()

    def unwanted() -> bool:
        return stop_asked(opened, state) or bool(started and started[1] and clock.now() >= started[1])

    said = ""

    def say(text: str) -> None:
        nonlocal said
        if text != said:
            said = text
            keep_waiting(opened, state, text)

    found = launchers.canary(launcher, settings, state.tree, places, needed, unwanted, say)
    if found.level == "FAIL":
        raise Refused(found.what, found.detail, found.fix)
    with open(marker, "w", encoding="utf-8") as file:
        file.write(f"{found.detail}\n")


def may_still_run(opened: Campaign, state: State) -> State:
    """Check the stop rules once more after any wait, start the campaign's clock, and return the state as launched.

    Raises:
        Refused: a trigger was met meanwhile, or the time left cannot hold the run.
    """
    with opened.locked():
        known = check_rules(opened, state)
        if known.first_launch is None:
            first = clock.now()
            opened.write_started(first)
            known = known._replace(first_launch=first)
        state = state._replace(phase="launched", waited="", cap_s=standing.run_cap(opened, known))
        return attempts.update(opened.where, state)


def check_rules(opened: Campaign, state: State) -> stop.Facts:
    """Return the facts for the stop rules, as they are approved by now, for an attempt that has its place.

    Who has waited longer goes first: what was reserved later and has not started is not among them.

    Raises:
        Refused: a trigger is met, or the time left cannot hold the run.
    """
    opened.renew_rules()
    rows, mine = opened.rows(), (state.reserved_at, state.id)
    others = [other for other in attempts.every(opened.where) if other.id != state.id]
    ahead = [other for other in others if other.phase != "reserved" or (other.reserved_at, other.id) < mine]
    known = standing.facts(opened, rows, ahead)
    if not state.smoke:
        new = not places(rows, "experiment", state.experiment)
        cap = standing.run_cap(opened, known)
        allowed = stop.may_launch(standing.rules(opened), known, cap_s=cap, is_new_idea=new, is_open=state.is_open)
        if not allowed.ok:
            raise Refused("stop rule", allowed.why, allowed.fix)
    return known


def withdraw(opened: Campaign, state: State, refusal: AutoresearchError) -> None:
    """Give up an attempt that never ran: no row, its place in the count is free again, the branch stays.

    Who waits for a first run is told by its state; a later run of a chain leaves what the runs before it gave.
    """
    session.checkpoint(opened.where, f"{session.WITHDRAWN} {state.id}", refusal.why)
    conclude.give_tree_back(opened, state)
    if state.is_first:
        attempts.update(
            opened.where, state._replace(phase=attempts.WITHDRAWN, waited=str(refusal), row=[str(refusal.code)])
        )
    else:
        attempts.remove(opened.where, state)


def _follow(opened: Campaign, state: State) -> Outcome:
    """Hand the job to its launcher and wait for its end."""
    launcher = launchers.load(opened.plan.launcher)
    job = make_job(opened, state)
    watch = watch_of(opened, state)
    job_id = state.job_id or launcher.submit(job, watch)
    try:
        return launcher.follow(job, job_id, watch)
    except AutoresearchError as error:
        if opened.plan.launcher == "local":
            raise  # it refuses only what was not started
        launcher.cancel(job, job_id)
        return Outcome("launcher", None, None, clock.now(), 0.0, reason=error.why)


def watch_of(opened: Campaign, state: State) -> Watch:
    """Return what the launcher may tell and ask while it follows an attempt; what it tells is kept in the state."""
    where, current, beat = opened.where, [state], heartbeat(opened, state)

    def keep(**changes: object) -> None:
        current[0] = attempts.update(where, current[0]._replace(**changes))  # type: ignore[arg-type]

    def stop_requested() -> bool:
        beat()  # asked regularly as long as the run goes on, whatever its launcher
        return attempts.stop_asked(where, state)

    def started(at: float) -> None:
        keep(started_at=at)
        if at:
            session.checkpoint(where, f"{session.LAUNCHED} {state.id}")

    return Watch(
        stop_requested=stop_requested,
        submitted=lambda job_id: keep(job_id=job_id),
        started=started,
        say=lambda text: keep(waited=text),
    )


def heartbeat(opened: Campaign, state: State) -> Callable[[], None]:
    """Return what writes a line into the session's notes when the last one is HEARTBEAT_S old."""
    last = [time.monotonic()]

    def beat() -> None:
        if time.monotonic() - last[0] >= HEARTBEAT_S:
            last[0] = time.monotonic()
            session.heartbeat(opened.where, progress.line(opened, state))

    return beat


def make_job(opened: Campaign, state: State) -> Job:
    """Return the job of an attempt: command, environment, limits; also for recovery, from the state alone."""
    at = progress.directories(opened.where, state)
    run = environment.build(opened.where, opened.plan, state.experiment, at, state.tree, state.links)
    started = opened.started()
    return Job(
        id=f"{opened.name}-{state.id}",
        argv=state.argv,
        tree=state.tree,
        env=run.full,
        exports=run.exports,
        secret_keys=campaign.secret_keys(),
        logs=at.logs,
        log_path=at.log,
        cap_s=state.cap_s,
        grace_s=grace_s(opened),
        deadline=(started[1] or None) if started else None,
        settings={
            **launcher_settings(opened.plan),
            "MARK": state.mark,
            "DISK_PATHS": f"{at.logs}\n{opened.where.repository}",
            **({"SLURM_HOLD": held} if (held := held_allocation(opened)) else {}),
        },
    )


def launcher_settings(plan: Plan) -> dict[str, str]:
    """Return what a launcher may ask for: the settings of the plan, and the facts it has to compare with its site."""
    return {
        **plan.settings,
        "GPUS_NEEDED": str(plan.gpus),
        "NODES": str(plan.nodes),
        "SCRATCH": plan.scratch,
        "REPO": plan.repository,
        "RECIPE": plan.recipe,
        "SECRETS": " ".join(plan.secrets),
    }


def held_allocation(opened: Campaign) -> str:
    """Return the id of the allocation that the campaign's runs go into, empty when there is none."""
    return allocation(opened) if opened.plan.launcher == "slurm" else ""


def allocation(opened: Campaign) -> str:
    """Return the id of the allocation held for the campaign, whatever its plan says by now; empty without one."""
    try:
        with open(opened.where.hold, encoding="ascii") as file:
            return file.read().strip()
    except FileNotFoundError:
        return ""


def grace_s(opened: Campaign) -> float:
    """Return the seconds between TERM and KILL."""
    return knobs.parse_number("GRACE_S", opened.plan.setting("GRACE_S", str(GRACE_S)))


def prepare(opened: Campaign, state: State) -> State:
    """Give an attempt its tree, directories, caches, socket links and script; return the state with them."""
    at = progress.directories(opened.where, state)
    at.make()
    tree = opened.pool().acquire(state.commit, state.id, opened.plan.require)
    state = attempts.update(opened.where, state._replace(tree=tree.path))
    links = sockets.make(at.ray, at.tmp)
    state = state._replace(links={"RAY_TMPDIR": links.ray, "TMPDIR": links.tmp})
    run = environment.build(opened.where, opened.plan, state.experiment, at, state.tree, state.links)
    environment.make_caches(run.exports)
    environment.forget_bytecode(opened.where, state.tree)
    script = os.path.join(at.logs, "command.sh")
    fd = os.open(script, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o700)
    with files.naming(script), os.fdopen(fd, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(command.script(state.argv, state.tree, run.exports))
    return attempts.update(opened.where, state._replace(command=command.show(state.argv)))
