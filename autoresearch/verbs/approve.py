"""`approve`: record the user's yes to exactly this plan."""

from __future__ import annotations

import getpass
import os

from autoresearch import attempts, campaign, files, knobs, paths, plan, planning, talk
from autoresearch.errors import Refused
from autoresearch.plan import Plan
from autoresearch.sessions import session
from autoresearch.verbs import plan as plan_verb

ENGINES = ("SLURM_", "RAY_", "K8S_", "NRL_")  # settings that say where a job is found again


def run() -> int:
    """Show the plan, ask, record the yes; YES=1 is the yes where there is no terminal."""
    where = campaign.find()
    made, data = plan.load(where.plan)
    planning.check_by_hand(made)
    planning.check_under_rows(where, made)
    plan_verb.show(where, made)
    if not (knobs.flag("YES") or talk.confirmed(f"Approve this plan of campaign {where.name}?")):
        raise Refused("approval", "no yes was given", f"make approve CAMPAIGN={where.name} YES=1")
    with files.locked(where.lock):
        check_under_way(where, made)
        campaign.approve(where, made, data, by=user())
    session.checkpoint(where, f"{session.APPROVED} the plan", f"stop rule: {made.stop or 'none given'}")
    campaign.remember(where)
    begun = attempts.every(where) or os.path.exists(campaign.open_any().ledger_path)
    talk.note(f"approved; next: make {'status' if begun else 'baseline'} CAMPAIGN={where.name}")
    return 0


def check_under_way(where: paths.Campaign, made: Plan) -> None:
    """Refuse another launcher or scratch while runs are under way: after a kill nobody would find them again."""
    old = plan.read_approval(where)
    mine = [state.id for state in attempts.every(where)]
    if old is None or not mine:
        return
    moved = [name.upper() for name in ("launcher", "scratch") if getattr(old.plan, name) != getattr(made, name)]
    keys = sorted(key for key in {**old.plan.settings, **made.settings} if key.startswith(ENGINES))
    moved += [key for key in keys if old.plan.setting(key) != made.setting(key)]
    if moved:
        why = f"{' '.join(moved)} changed while {' '.join(mine[:4])} is under way"
        raise Refused("approval", why, f"make wait or make stop NAME={mine[0]} first")


def user() -> str:
    """Return who decides: the account's name, or its number where it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
