"""`clean-campaign`: remove this campaign's scratch output after showing it."""

from __future__ import annotations

import os

from autoresearch import attempts, campaign, knobs, names, recovery, removal, report, talk
from autoresearch.campaign import Campaign
from autoresearch.errors import Refused
from autoresearch.git import eviction
from autoresearch.sessions import session


def run() -> int:
    """Show what goes and its size, ask, remove; ledger, summary, notes, branches and shared caches stay."""
    opened = campaign.open_any()
    name = names.check("NAME", knobs.text("NAME")) if knobs.get("NAME") else ""
    if not os.path.isdir(opened.where.root):
        talk.note(f"{opened.where.root} does not exist: nothing to clean")
        return 0
    recovery.finish(opened)
    _refuse_running(opened, name)
    targets = _targets(opened, name)
    for path in targets:
        removal.check(opened.where, path)
    if not targets:
        talk.note("nothing to clean")
        return 0
    sizes = [(path, report.directory_size(path)) for path in targets]
    talk.out(talk.table([[path, talk.size(size)] for path, size in sizes], ["goes", "size"]))
    talk.out("stays: ledger, summary, session notes, git branches and notes, shared caches")
    if not (knobs.flag("YES") or talk.confirmed(f"Remove these {len(targets)} directories?")):
        meant = f"CAMPAIGN={opened.name}" + (f" NAME={name}" if name else "")  # as typed back, it removes no more
        raise Refused("clean-campaign", "no yes was given", f"make clean-campaign {meant} YES=1")
    _remove(opened, targets, name)
    freed = talk.size(sum(size for _, size in sizes))
    session.checkpoint(opened.where, f"{session.CLEANED} {name or 'the campaign'}", f"{freed} freed")
    talk.note(f"{freed} freed")
    return 0


def _refuse_running(opened: Campaign, name: str) -> None:
    alive = [state for state in attempts.every(opened.where) if name in ("", state.experiment)]
    if alive:
        fix = f"make stop NAME={alive[0].experiment}, or wait for it"
        raise Refused("clean-campaign", f"{alive[0].id} is running", fix)


def _targets(opened: Campaign, name: str) -> list[str]:
    """Return what is removed: one experiment's directory, or every directory of the campaign but a ledger in it."""
    root = opened.where.root
    removal.finish_trash(root)
    if name:
        path = opened.where.experiment(name)
        return [path] if os.path.isdir(path) else []
    found = []
    for entry in sorted(os.scandir(root), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False) or entry.is_symlink():
            found.append(entry.path)
    return found


def _remove(opened: Campaign, targets: list[str], name: str) -> None:
    if not name:
        # Worktrees go through git first, or its records of them would stay; unsaved edits are a refusal.
        eviction.evict(opened.pool())
    for path in targets:
        if os.path.isdir(path):
            removal.remove(opened.where, path)
