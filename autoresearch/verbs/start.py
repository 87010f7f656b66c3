"""`start`: branch and worktree for an idea; the tree is this experiment's until it is released."""

from __future__ import annotations

from autoresearch import campaign, experiment, knobs, names, parents, recovery, talk
from autoresearch.errors import Refused
from autoresearch.git import repository
from autoresearch.sessions import session


def run() -> int:
    """Make the branch at its parent and a tree on it; print the tree's path."""
    opened = campaign.open_approved()
    name = names.check_experiment(knobs.required("NAME", "y"))
    recovery.finish(opened)
    rows = opened.rows()
    parents.require_baseline(opened, rows)
    pool, branch = opened.pool(), opened.branch(name)
    tree = pool.find(name)
    if tree is None:
        experiment.check_disk(opened)
        tip = experiment.existing_tip(opened, branch)
        if tip and knobs.get("PARENT"):
            raise Refused(
                "PARENT", f"{branch} exists already, at {tip[:12]}", "leave PARENT out, or choose another NAME"
            )
        if tip:
            repository.refuse_checked_out(opened.git, branch, pool.directory)
        campaign.make_root(opened.where)
        if not tip:
            tip = parents.choose(opened, rows, knobs.text("PARENT")).commit
            try:
                repository.create_branch(opened.git, branch, tip)
            except repository.BranchExists:
                if experiment.existing_tip(opened, branch) != tip:
                    raise  # else another call of the same moment has made it
        tree = pool.open_for(name, tip, branch, opened.plan.require)
        session.checkpoint(opened.where, f"{session.STARTED} {name} on {branch}", f"from {tip[:12]}")
    talk.out(tree.path)
    talk.note(f"edit there, then: make experiment NAME={name} HYPOTHESIS='area: change'")
    return 0
