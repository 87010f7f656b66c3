"""`doctor`: everything a night needs, each line ok, warn or FAIL with the remedy. Only looks."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator

from autoresearch import campaign, command, dotenv_file, experiment, knobs, launch, launchers, paths, plan, talk
from autoresearch.errors import AutoresearchError
from autoresearch.git import Git
from autoresearch.launchers import Finding
from autoresearch.plan import Plan
from autoresearch.running import disk


def run() -> int:
    """Print one line a finding; exit 3 when one fails."""
    found = list(findings())
    for item in found:
        fix = f": {item.fix}" if item.fix and item.level != "ok" else ""
        talk.out(f"{item.level:<4}  {item.what}: {talk.one_line(item.detail)}{fix}")
    fails = sum(item.level == "FAIL" for item in found)
    warns = sum(item.level == "warn" for item in found)
    talk.out(f"{len(found)} checks: {fails} fail, {warns} warn")
    return 3 if fails else 0


def findings() -> Iterator[Finding]:
    """Return every finding, in the order of a campaign's life."""
    top = campaign.repository()
    yield from _tools()
    yield from guarded("repository", lambda: _repository(top))
    yield from guarded("campaign", _campaign)
    yield from guarded("scratch", lambda: _scratch(top))
    yield from guarded("secrets", lambda: _secrets(top))
    yield from guarded("locks", _locks)


def guarded(what: str, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Return the findings of a look; a refusal is a finding too."""
    try:
        yield from look()
    except AutoresearchError as error:
        yield Finding("FAIL", error.what or what, error.why, error.fix)


def _tools() -> Iterator[Finding]:
    yield Finding("ok", "python", f"{sys.version.split()[0]} in {sys.prefix}")
    for name in ("git", "make", "bash", "flock"):
        where = shutil.which(name)
        fix = f"install {'util-linux' if name == 'flock' else name}"
        yield Finding("ok", name, where) if where else Finding("FAIL", name, "not found on PATH", fix)
    if not os.environ.get("HOME"):
        yield Finding("FAIL", "HOME", "it is not set, so git finds no configuration", "set HOME in the crontab")


def _repository(top: str) -> Iterator[Finding]:
    from autoresearch.git import repository

    git = Git(top, drop_env_keys=campaign.secret_keys())
    remarks = repository.check(git)
    yield Finding("ok", "repository", f"{top}, identity {repository.identity(git)}")
    for remark in remarks:
        yield Finding("warn", "repository", remark)
    changes = repository.user_changes(git)
    if changes:
        yield Finding("ok", "your changes", f"{len(changes)} uncommitted, left alone")


def _campaign() -> Iterator[Finding]:
    try:
        where = campaign.find()
    except AutoresearchError as error:
        yield Finding("warn", "campaign", error.why, error.fix)
        return
    try:
        plan.approved(where)
        yield Finding("ok", "plan", f"{where.plan} is approved")
    except AutoresearchError as error:
        yield Finding("warn", "plan", error.why, error.fix)
    made = plan.load(where.plan)[0]  # as it would be approved next, not as it was
    yield from guarded("campaign", lambda: _marker(where))
    yield from _launcher(made)
    yield from guarded("command", lambda: _program(made))
    yield from _needs(made)


def _marker(where: paths.Campaign) -> Iterator[Finding]:
    """Look whose the campaign's directory on scratch is: nothing launches in a repository that was moved."""
    there = campaign.check_marker(where)
    yield Finding("ok", "campaign", f"{where.root}" if there else f"{where.root} is made by the first launch")


def _launcher(made: Plan) -> Iterator[Finding]:
    for found in launchers.load(made.launcher).check(launch.launcher_settings(made), made.gpus, made.nodes):
        forced = made.launcher == "local" and made.setting("FORCE_LOCAL") and found.level == "FAIL"
        level = "warn" if forced else found.level
        yield found._replace(level=level, what=f"launcher {made.launcher}: {found.what}")
    if made.launcher == "local":
        from autoresearch.running import devices

        for process in devices.foreign_ray():
            detail = f"a Ray that is not ours runs here (pid {process.pid})"
            yield Finding("warn", "Ray", detail, "a run without RAY_ADDRESS=local could attach itself to it")


def _program(made: Plan) -> Iterator[Finding]:
    if made.launcher == "local":
        yield Finding("ok", "command", command.program(command.check(made.command)))


def _needs(made: Plan) -> Iterator[Finding]:
    for path in made.require:
        there = os.path.exists(os.path.join(made.repository, path))
        yield Finding("ok", "required", path) if there else Finding("FAIL", "required", f"{path} is gone", "fetch it")
    for key in experiment.missing_secrets(made):
        fix = f"add a line {key}=... to {made.repository}/.env, mode 600"
        yield Finding("FAIL", "secrets", f"the plan needs {key}, which has no value", fix)
    if not (made.recipe_timeout_s or made.rules.keys() & {"each_s", "total_s", "until"}):
        fix = f"make plan CAMPAIGN={made.campaign} STOP='..., 1h each', then make approve"
        yield Finding("warn", "limit", "nothing ends a run that hangs", fix)
    for remark in made.notes:
        yield Finding("warn", "recipe", remark)


def _scratch(top: str) -> Iterator[Finding]:
    wanted = knobs.text("SCRATCH")
    try:
        planned = campaign.find().scratch
    except AutoresearchError:
        planned = ""
    scratch, source = paths.scratch_root(top, wanted or planned)
    source = "as planned" if planned and not wanted else source
    yield Finding("ok", "scratch", f"{scratch}: {source}")
    for label, path in (("disk of the repository", top), ("disk of scratch", scratch)):
        space = disk.free(path)
        why = disk.shortage(space, 10.0, 5.0)
        detail = f"{space.free_gb:.1f} GB and {space.inodes_pct:.0f} % of inodes free"
        yield Finding("FAIL", label, why, "free some space") if why else Finding("ok", label, detail)


def _secrets(top: str) -> Iterator[Finding]:
    file = os.path.join(top, ".env")
    if not os.path.lexists(file):
        yield Finding("ok", ".env", f"{file} does not exist; needed only for runs that must log in somewhere")
        return
    names = ", ".join(key for key in campaign.secret_keys() if os.environ.get(key)) or "no keys"
    yield Finding("ok", ".env", f"{file}: {names}")
    for warning in dotenv_file.warnings(file):
        yield Finding("warn", ".env", warning)  # it ends with the remedy
    yield from guarded(".env", lambda: _known_to_git(top))


def _known_to_git(top: str) -> Iterator[Finding]:
    """Look whether git has the file, or would take it at the user's next `git add -A`."""
    git = Git(top, drop_env_keys=campaign.secret_keys())
    if git.run("ls-files", "-z", "--", ".env"):
        fix = f"git -C {shlex.quote(top)} rm --cached .env, and new keys where it was pushed"
        yield Finding("warn", ".env", "git tracks it: whoever gets a branch gets the secrets", fix)
    elif git.run("ls-files", "-z", "--others", "--exclude-standard", "--", ".env"):
        exclude = os.fsdecode(git.run("rev-parse", "--path-format=absolute", "--git-path", "info/exclude")[:-1])
        fix = f"echo /.env >>{shlex.quote(exclude)}"
        yield Finding("warn", ".env", "git does not ignore it: `git add -A` takes it", fix)


def _locks() -> Iterator[Finding]:
    """Try the one thing that network disks often lack: a lock that a second process respects."""
    from autoresearch import files

    try:
        where = campaign.find()
    except AutoresearchError:
        return
    if not os.path.isdir(where.state):
        return
    probe = os.path.join(where.state, "doctor.lock")
    with files.locked(probe, wait_s=5.0):
        pid = os.fork()
        if pid == 0:
            os._exit(0 if files.is_locked(probe) else 1)
        held = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.unlink(probe)
    detail = f"flock works in {where.state}" if held else f"flock has no effect in {where.state}"
    yield Finding("ok" if held else "FAIL", "locks", detail, "keep the repository on a local disk")
