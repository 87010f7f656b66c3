"""How a plan comes about: the knobs, what an earlier plan said, what the recipe says, and a look at what is there."""

from __future__ import annotations

import os
import re
import shlex
import time
from typing import Any

from autoresearch import campaign, clock, command, knobs, metrics, names, paths
from autoresearch.errors import Refused, Usage
from autoresearch.git import Git
from autoresearch.plan import Plan, read_approval
from autoresearch.rules import explicit, noise, plumbing, standing, stop

TEXTS = {"OBJECTIVE": "objective", "METRIC_AT": "metric_at", "GUARD": "guard", "SMOKE_OVERRIDES": "smoke_overrides"}
LISTS = {"SECRETS": "secrets", "REQUIRE": "require", "PROTECT": "protect"}
# Knobs the plan only carries: limits of a run, and settings of one launcher.
SETTINGS = (
    *("GPUS", "SLOTS", "GRACE_S", "WAIT", "STALL_MIN", "STALL_STOP", "DISK_RESERVE_GB", "DISK_CHECK_S", "LOG_MAX_GB"),
    *("PROGRESS_S", "CLEAN_CACHE", "UV_CACHE", "FORCE_LOCAL", "QUEUE_LIMIT", "ENGINE_PATIENCE"),
    *("SLURM_ARGS", "SLURM_SCRIPT", "SLURM_CONTAINER", "SLURM_MOUNTS", "SLURM_ENV", "SLURM_STARTUP"),
    *("RAY_ADDRESS", "RAY_SECRETS", "RAY_GPUS", "RAY_CPUS", "K8S_INFRA", "K8S_NAMESPACE", "K8S_PATHS", "NRL_K8S"),
)
# What may not change under a campaign that has rows: its numbers would no longer compare.
FIXED = (
    *("base", "prefix", "recipe", "command", "metric", "metric_at", "metric_options", "direction"),
    *("scratch", "repository", "ledger"),
)


def make(where: paths.Campaign, old: Plan | None) -> Plan:
    """Return the plan of this call: the knobs over what an earlier plan said, then a look at the repository.

    Args:
        where: the campaign's places; its scratch is not known yet.
        old: the plan as it was, None for a new campaign.

    Raises:
        Usage: a knob is malformed or missing.
        Refused: something that the campaign needs is not there.
    """
    made = old or Plan(campaign=where.name, repository=where.repository)
    made = _texts(made._replace(campaign=where.name, repository=where.repository))  # it may be the copy of another
    git = Git(where.repository, drop_env_keys=campaign.secret_keys())
    made = _places(made, where, git)
    made = _what_runs(made, where)
    made = _metric(made)
    made = made._replace(launcher=_launcher(made), created_at=clock.stamp(clock.now()))
    made = _rules(made)
    _check_secrets(made)
    check_needs(made)
    _check_program(made, git)
    remarks = [*_taken_as_words(made), *_unknown_to_git(made, git), *_other_python(made), *_unprotected(made, git)]
    if (made.repeats > 1 or made.confirm) and (remark := command.same_seed(made.command)):
        remarks.append(remark)
    return made._replace(notes=[*made.notes, *remarks])


def _taken_as_words(made: Plan) -> list[str]:
    """Return remarks on what in the command looks meant for a shell, or for us, and reaches the program as it is."""
    found = []
    for word in command.check(made.command):
        if re.fullmatch(r"[|&;]+|<|[0-9]*>>?(&?[0-9]|[\w./-]*)|\$\{?[A-Za-z_]\w*\}?", word, re.ASCII):
            found.append(f"CMD: no shell reads it, so the program gets `{word}` as a word: start a script for that")
        for name in set(re.findall(r"\{([a-z_]+)\}", word)) - set(command.PLACEHOLDERS):
            found.append(f"CMD: `{{{name}}}` is not replaced, only: {' '.join(command.PLACEHOLDERS)}")
    return found


def _unknown_to_git(made: Plan, git: Git) -> list[str]:
    """Return remarks on files that the tracked code needs but no tree would have."""
    from autoresearch.git import untracked

    argv = command.check(made.command)
    missing = [
        path
        for path in untracked.needed(git, made.repository, made.base, [*argv, made.recipe])
        if not _is_required(made, path)
    ]
    scripts = [word for word in argv if re.fullmatch(r"[^-/{=][^{=]*\.(py|sh)", word)]
    nowhere = [
        path
        for path in scripts
        if not os.path.lexists(os.path.join(made.repository, path))
        and git.call("cat-file", "-e", f"{made.base}:{os.path.normpath(path)}").code
    ]
    return [
        *(
            f"git does not know {path}, which the code seems to need: commit it, or add it to REQUIRE"
            for path in missing
        ),
        *(f"CMD: there is no file {path}, neither in BASE nor in the checkout" for path in nowhere),
    ]


def _unprotected(made: Plan, git: Git) -> list[str]:
    """Return remarks on paths in PROTECT that protect nothing: BASE has no such file, or a link in its place."""
    if not made.protect:
        return []
    listed = os.fsdecode(git.run("ls-tree", "-r", "-z", "--full-tree", made.base)).split("\0")[:-1]
    modes = {path: head.split(" ")[0] for head, _, path in (line.partition("\t") for line in listed)}
    found = []
    for word in made.protect:
        paths = plumbing.protected(modes, plumbing.protected_patterns(shlex.quote(word)))
        links = [path for path in paths if modes[path] == "120000"]
        if not paths:
            found.append(f"PROTECT: BASE has no file {word}, so that it protects only what an idea would add there")
        if links:
            found.append(f"PROTECT: {links[0]} is a link, and what it leads to is not protected: name that too")
    return found


def _is_required(made: Plan, path: str) -> bool:
    return any(path == known.rstrip("/") or path.startswith(known.rstrip("/") + "/") for known in made.require)


def _texts(made: Plan) -> Plan:
    changes: dict[str, Any] = {field: knobs.text(knob) for knob, field in TEXTS.items() if knobs.get(knob)}
    changes |= {field: knobs.words(knob) for knob, field in LISTS.items() if knobs.get(knob) is not None}
    if knobs.get("METRIC_OPTIONS") is not None:
        changes["metric_options"] = knobs.text("METRIC_OPTIONS").replace(",", " ").split()
    plumbing.protected_patterns(knobs.text("PROTECT"))
    if knobs.get("NOISE") is not None:
        noise.known(knobs.text("NOISE"), [])
        changes["noise"] = knobs.text("NOISE").strip()
    if knobs.get("CONFIRM") is not None:
        changes["confirm"] = knobs.count("CONFIRM", 0, least=0)
    if knobs.get("REPEATS") is not None:
        changes["repeats"] = knobs.count("REPEATS", 0, least=0)
    if knobs.get("LEDGER") is not None:
        if knobs.text("LEDGER") not in ("scratch", ""):
            raise Usage("LEDGER", f"{knobs.text('LEDGER')!r} is not a place", "write LEDGER=scratch, or leave it out")
        changes["ledger"] = knobs.text("LEDGER")
    settings = {**made.settings, **{name: knobs.text(name) for name in SETTINGS if knobs.get(name) is not None}}
    changes["settings"] = {name: value for name, value in settings.items() if value}
    _check_settings(changes["settings"])
    return made._replace(**changes)


def _check_settings(settings: dict[str, str]) -> None:
    from autoresearch import durations

    for name in ("GRACE_S", "STALL_MIN", "DISK_RESERVE_GB", "DISK_CHECK_S", "LOG_MAX_GB", "PROGRESS_S", "SLOTS"):
        if name in settings:
            knobs.parse_number(name, settings[name])
    if "WAIT" in settings:
        durations.parse(settings["WAIT"])
    if settings.get("UV_CACHE", "default") != "default":
        raise Usage("UV_CACHE", f"{settings['UV_CACHE']!r} is not known", "write UV_CACHE=default, or leave it out")


def _places(made: Plan, where: paths.Campaign, git: Git) -> Plan:
    from autoresearch.git import repository

    prefix = knobs.text("PREFIX") or made.prefix or f"autoresearch/{time.strftime('%Y-%m-%d')}-{where.name}"
    names.check_prefix(prefix)
    start = made.base if made.base and not knobs.get("BASE") else knobs.text("BASE", "HEAD")
    # It looks at the repository first: one without a commit gets its own remedy.
    remarks = repository.check(git, prefix, start)
    base = git.commit(start)
    scratch, source = paths.scratch_root(where.repository, knobs.text("SCRATCH") or made.scratch)
    if made.scratch and not knobs.get("SCRATCH"):
        source = made.scratch_source
    _check_apart(scratch, where.repository)
    made = made._replace(scratch=scratch, scratch_source=source, account=made.account or paths.account_name())
    campaign.check_marker(where._replace(scratch=scratch, account=made.account))
    return made._replace(prefix=prefix, base=base, notes=remarks)


def _check_apart(scratch: str, repository: str) -> None:
    """Refuse a scratch inside the checkout: bulk output there is what the Brev rules forbid."""
    if os.path.commonpath([os.path.realpath(scratch), os.path.realpath(repository)]) == os.path.realpath(repository):
        raise Refused("SCRATCH", f"{scratch} lies inside the repository", "choose a directory outside of it")


def _what_runs(made: Plan, where: paths.Campaign) -> Plan:
    recipe = knobs.text("RECIPE") or made.recipe
    if knobs.get("RECIPE"):
        recipe = _relative(recipe, where.repository)
    if recipe != made.recipe and made.recipe:
        from autoresearch import recipes

        made = recipes.without(made)
    line = knobs.text("CMD") or made.command
    if not recipe and not line:
        raise Usage("plan", "neither RECIPE nor CMD says what to run", "CMD='python train.py {overrides}', for example")
    made = made._replace(recipe=recipe, command=line)
    if recipe and not os.path.isfile(os.path.join(where.repository, recipe)):
        raise Refused("RECIPE", f"{recipe!r} is not a file in {where.repository}", "give it relative to the repository")
    if recipe.endswith((".yaml", ".yml")):
        from autoresearch import recipes

        made = recipes.into(made, guess_command=not line)
    knobs.split("SMOKE_OVERRIDES", made.smoke_overrides)
    if not made.command:
        raise Usage(
            "CMD", f"the recipe {recipe!r} does not say what runs it", "CMD='python train.py --config {recipe}'"
        )
    command.check(made.command)
    return made


def _relative(recipe: str, repository: str) -> str:
    """Return a recipe's path relative to the repository, wherever the caller stands."""
    for start in (repository, os.getcwd()):
        full = os.path.realpath(os.path.join(start, recipe))
        if os.path.isfile(full):
            inside = os.path.relpath(full, os.path.realpath(repository))
            if inside.startswith(".."):
                raise Usage("RECIPE", f"{recipe!r} lies outside the repository", "copy it into the repository")
            return inside
    from autoresearch.nemo_rl import resolve

    try:
        return resolve.relative(os.path.realpath(repository), resolve.find_recipe(repository, recipe))
    except Usage as error:
        raise Refused(error.what, error.why, error.fix) from None


def _metric(made: Plan) -> Plan:
    metric = knobs.text("METRIC") or made.metric
    if not metric:
        raise Usage("METRIC", "it is missing and no recipe names it", "METRIC=val_accuracy, the number to improve")
    direction, source = made.direction, made.direction_source
    if knobs.get("DIRECTION"):
        direction, source = knobs.text("DIRECTION"), "DIRECTION"
    elif not direction or (knobs.get("METRIC") and source != "DIRECTION" and metric != made.metric):
        from autoresearch.direction import guess_direction

        direction, source = guess_direction(metric) or "", "guessed from the name: your approval confirms it"
    if direction not in ("max", "min"):
        why = (
            f"{direction!r} is neither max nor min" if direction else f"it is missing, and {metric!r} does not tell it"
        )
        raise Usage("DIRECTION", why, "DIRECTION=max when higher is better, DIRECTION=min when lower is")
    metrics.parse_spec(metric, direction, made.metric_at, tuple(made.metric_options))
    return made._replace(metric=metric, direction=direction, direction_source=source)


def _rules(made: Plan) -> Plan:
    if made.guard:
        from autoresearch.rules import guards

        guards.parse(made.guard)
    return with_rule(made, knobs.text("STOP") if knobs.get("STOP") is not None else made.stop)


def with_rule(made: Plan, text: str) -> Plan:
    """Return the plan with a stop rule, as understood now.

    Raises:
        Usage: it is not understood, or asks for what the campaign cannot tell.
    """
    rules = _understood(made, text, clock.now())
    if rules.gpu_hours is not None and not standing.gpus(made):
        why = "the plan does not say how many GPUs a run uses, so nobody could count GPU-hours"
        raise Usage("STOP", why, "say it with GPUS=0,1 or RAY_GPUS=8, take a recipe that says it, or write `10h total`")
    return made._replace(stop=text, rules=rules.to_json(), understood=dict(explicit.describe(rules)))


def _understood(made: Plan, text: str, now: float) -> stop.Rules:
    return explicit.resolve(stop.parse(text, now=now), metric=made.metric, direction=made.direction)


def check_by_hand(made: Plan) -> None:
    """Refuse to approve a plan that somebody has edited into what no `plan` would write.

    Raises:
        Usage: a field is malformed.
        Refused: the stop rule says one thing, and what was understood of it another.
    """
    if made.guard:
        from autoresearch.rules import guards

        guards.parse(made.guard)
    knobs.split("SMOKE_OVERRIDES", made.smoke_overrides)
    noise.known(made.noise, [])
    plumbing.protected_patterns(" ".join(map(shlex.quote, made.protect)))
    metrics.parse_spec(made.metric, made.direction, made.metric_at, tuple(made.metric_options))
    read = _understood(made, made.stop, clock.epoch(made.created_at) or clock.now()).to_json()
    until = {"until", "until_text"}  # by the zone of whoever planned it; which are there is compared
    if set(read) != set(made.rules) or any(read[key] != made.rules[key] for key in set(read) - until):
        why = "its text was edited by hand, and the values that are enforced are still those of another text"
        raise Refused("stop rule", why, f"make plan CAMPAIGN={made.campaign} STOP='...', which writes both")


def _launcher(made: Plan) -> str:
    wanted = knobs.text("LAUNCHER") or (made.launcher if made.created_at else "")
    from autoresearch import launchers

    if wanted:
        launchers.load(wanted)
        return wanted
    fails = [
        found for found in launchers.load("local").check(made.settings, made.gpus, made.nodes) if found.level == "FAIL"
    ]
    if fails:
        lacks = f"{fails[0].what}: {fails[0].detail}"
        why = f"the recipe does not fit this machine ({lacks}), so where it runs is a question"
        raise Refused("LAUNCHER", why, "add LAUNCHER=slurm, ray or nrl-k8s, or FORCE_LOCAL=1 LAUNCHER=local")
    return "local"


def _check_secrets(made: Plan) -> None:
    """Refuse a plan that holds a secret: it is written down, and its command goes into every commit and row."""
    for knob, text in (
        *(("OBJECTIVE", made.objective), ("CMD", made.command), ("METRIC", made.metric)),
        *(("SMOKE_OVERRIDES", made.smoke_overrides), *made.settings.items()),
    ):
        campaign.refuse_secrets(knob, [text])


def check_needs(made: Plan) -> None:
    """Refuse a plan, or a launch, whose data is not there."""
    for path in made.require:
        if os.path.isabs(path) or ".." in path.split("/"):
            raise Usage(
                "REQUIRE", f"{path!r} is not a path inside the repository", "give it relative to the repository"
            )
        if not os.path.exists(os.path.join(made.repository, path)):
            raise Refused("REQUIRE", f"{path!r} is not in {made.repository}", "fetch or make it, then call again")


def _check_program(made: Plan, git: Git) -> None:
    """Refuse a command whose program is not there, or is in the checkout alone and so in no tree of a run."""
    argv = command.check(made.command)
    if made.launcher == "local":
        command.program(argv, made.repository)
    path = os.path.normpath(argv[0])
    if "/" not in argv[0] or os.path.isabs(path) or _is_required(made, path):
        return
    full = os.path.join(made.repository, path)
    if os.path.exists(full) and git.call("cat-file", "-e", f"{made.base}:{path}").code:
        fix = f"name it in full: CMD={shlex.quote(shlex.join([full, *argv[1:]]))}"
        raise Refused("CMD", f"git does not know {path!r}, so no tree of a run has it", fix)


def _other_python(made: Plan) -> list[str]:
    """Return a remark when `python` is not that of the checkout's own environment, and no other one is active."""
    argv, own = command.check(made.command), os.path.join(made.repository, ".venv", "bin")
    if made.launcher != "local" or not argv[0].startswith("python") or not os.path.exists(os.path.join(own, argv[0])):
        return []
    found = command.program(argv)
    if os.path.samefile(os.path.dirname(found), own) or os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX"):
        return []
    return [f"{argv[0]} is {found}, not the one in {own}: activate that environment first, or name it in CMD"]


def check_under_rows(where: paths.Campaign, made: Plan) -> None:
    """Refuse a plan whose numbers would no longer compare with the rows that are there, or that would hide them.

    Args:
        where: the campaign's places, whatever scratch they name.
        made: the plan that is to take the place of the approved one.
    """
    approval = read_approval(where)
    if approval is None:
        return
    changed = changed_under_rows(approval.plan, made)
    there = where._replace(scratch=approval.plan.scratch, account=approval.plan.account)
    if changed and campaign.Campaign(there, approval).rows():
        why = f"{where.name!r} has rows already, and {', '.join(changed)} would change under them"
        raise Refused("plan", why, "plan a new campaign for that: make plan CAMPAIGN=other ...")


def changed_under_rows(old: Plan, new: Plan) -> list[str]:
    """Return the fields that differ although a campaign with rows must keep them."""
    return [field for field in FIXED if getattr(old, field) != getattr(new, field)]
