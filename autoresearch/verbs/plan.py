"""`plan`: write and print the plan of a campaign; nothing is created in git, nothing runs."""

from __future__ import annotations

import os

from autoresearch import campaign, files, knobs, names, paths, plan, planning, talk
from autoresearch.git import Git
from autoresearch.sessions import session


def run() -> int:
    """Write plan.toml from the knobs and an earlier plan, print it, name the next step."""
    top = campaign.repository()
    name = names.check("CAMPAIGN", knobs.required("CAMPAIGN", "x"))
    where = paths.Campaign(top, "", name)
    old = plan.load(where.plan)[0] if os.path.exists(where.plan) else None
    made = planning.make(where, old)
    where = where._replace(scratch=made.scratch, account=made.account)
    planning.check_under_rows(where, made)
    _exclude_records(where)
    if old is None or _agreed(old) != _agreed(made):
        plan.save(where, made)
    campaign.remember(where)
    if os.path.dirname(top) != os.path.realpath(paths.demo_root(made.scratch)):
        _remember_repository(top)
    session.checkpoint(where, session.PLANNED, made.objective or made.command)
    show(where, made)
    talk.note(f"written to {where.plan}; nothing runs before your yes: make approve CAMPAIGN={name}")
    return 0


def _agreed(made: plan.Plan) -> plan.Plan:
    """Return what an approval is about, so that planning the same again does not ask for a new one."""
    return made._replace(created_at="", notes=[])


def _exclude_records(where: paths.Campaign) -> None:
    """Keep our records out of the user's git before the first of them is written."""
    from autoresearch.git import repository

    repository.exclude(Git(where.repository), paths.EXCLUDED)


def _remember_repository(top: str) -> None:
    home = paths.config_home()
    os.makedirs(home, mode=0o700, exist_ok=True)
    files.replace(os.path.join(home, "repository"), f"{top}\n".encode())


def show(where: paths.Campaign, made: plan.Plan) -> None:
    """Print a plan for the person who is to approve it."""
    from autoresearch.git import repository

    lines = [
        ("campaign", where.name),
        ("objective", made.objective or "(none given: OBJECTIVE='...')"),
        ("repository", made.repository),
        ("base", made.base),
        ("branches", f"{made.prefix}/<experiment>"),
        ("recipe", made.recipe or "none"),
        ("command", made.command),
        *((("recipe overrides", " ".join(made.recipe_overrides)),) if made.recipe_overrides else ()),
        ("metric", f"{made.metric} ({' '.join((made.metric_at, *made.metric_options))})"),
        (
            "direction",
            f"{made.direction}: {'higher' if made.direction == 'max' else 'lower'} is better ({made.direction_source})",
        ),
        ("stop rule", made.stop or "none given: the baseline and at most three experiments, then a question"),
        *((f"  {key}", value) for key, value in made.understood.items()),
        ("launcher", made.launcher),
        ("scratch", f"{made.scratch} ({made.scratch_source})"),
        ("machine", "Brev: bulk output goes to /ephemeral only" if paths.is_brev(made.repository) else "not Brev"),
        ("secrets", " ".join(made.secrets) or "none needed"),
        ("required", " ".join(made.require) or "nothing"),
        *((key, str(value)) for key in ("noise", "repeats", "confirm") if (value := getattr(made, key))),
        *((key, value) for key, value in (("guard", made.guard), ("protect", " ".join(made.protect))) if value),
        *((("smoke overrides", made.smoke_overrides),) if made.smoke_overrides else ()),
        *((name, value) for name, value in sorted(made.settings.items())),
    ]
    talk.out(talk.pairs([(key, talk.one_line(value)) for key, value in lines]))
    for remark in made.notes:
        talk.out(f"note: {talk.one_line(remark)}")
    changes = repository.user_changes(Git(made.repository))
    if changes:
        talk.out(f"your uncommitted changes, which are left alone ({len(changes)}):")
        for change in changes[:10]:
            talk.out(f"  {change.code} {talk.one_line(change.path)}")
        if len(changes) > 10:
            talk.out(f"  ... and {len(changes) - 10} more")
