"""A new idea, or a fix of one: its parent, its commit, and what runs of it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from autoresearch import confirming, contents, experiment, knobs, names, parents, reservation, talk
from autoresearch.campaign import Campaign, named_secrets, refuse_secrets, secret_values
from autoresearch.errors import Refused
from autoresearch.git import hypothesis
from autoresearch.git.hypothesis import Hypothesis
from autoresearch.git.trees import Tree
from autoresearch.parents import Parent
from autoresearch.reservation import Draft
from autoresearch.rows import Row, places


class Start(NamedTuple):
    """Where an idea stands before this call: new, started in a tree, or run before."""

    name: str
    parent: Parent  # what it is judged against
    tip: str  # the commit its branch points to; empty when there is no branch yet
    last: Row | None  # its newest row
    smoked: Row | None  # its newest plumbing row
    tree: Tree | None  # the tree that `start` gave out
    adopted: bool = False  # its commit is there, from a launch that was cut off or withdrawn before it ran


def draft(opened: Campaign, *, adopt: bool = False) -> tuple[Draft, reservation.Publish]:
    """Return what `experiment` is to run, and what makes or advances its branch.

    Args:
        opened: an open campaign.
        adopt: go on from the branch that a launch left which was cut off before it ran.

    Raises:
        Refused: there is nothing to run, nothing changed, or the change cannot be committed.
    """
    name = names.check_experiment(knobs.required("NAME", "y"))
    rows = opened.rows()
    parents.require_baseline(opened, rows)
    start = adopted(opened, rows, name) if adopt else find(opened, rows, name)
    check_parent(opened, rows, start)
    overrides = chosen_overrides(opened, start)
    made = commit(opened, start, overrides)
    notes = remarks(opened, start, made, overrides)
    measured = parents.judged(rows, start.tip) if made is None and start.last else None
    if measured and not (knobs.get("REPEATS") or knobs.flag("SMOKE")):
        waiting = confirming.unconfirmed(rows, start.tip)
        if waiting and opened.plan.confirm:
            return confirming.next_run(opened, rows, waiting, opened.plan.confirm), experiment.nothing
        if confirming.failed(measured):
            measured = None  # looked at as at first, it has its gain confirmed anew
    repeat = measured is not None
    return (
        Draft(
            experiment=name,
            commit=made.commit if made else start.tip,
            parent_commit=start.parent.commit,
            parent=start.parent.experiment,
            description=description(start, name),
            overrides=overrides,
            lines_delta=None if made is None or made.paths else 0,
            smoke=knobs.flag("SMOKE"),
            role="repeat" if repeat else "idea",
            confirms=picked(opened, rows, start) if repeat else "",
            more=experiment.check_repeats(),
            notes=notes,
        ),
        publisher(opened, start, made, overrides),
    )


def picked(opened: Campaign, rows: Sequence[Row], start: Start) -> str:
    """Return the attempt whose luck a repeat looks at, where the plan has each keep measured afresh; else empty."""
    kept = parents.judged(rows, start.tip)
    if kept is None or kept.status != "keep" or opened.plan.repeats < 2:
        return ""
    of_commit = [rows[at] for at in places(rows, "commit", kept.commit)]
    if {row.id for row in of_commit} & {parents.confirms(row) for row in of_commit}:
        return ""  # fresh pairs have looked at it
    return parents.named(kept, parents.FRESH) or kept.id


def find(opened: Campaign, rows: Sequence[Row], name: str) -> Start:
    """Return where an idea stands."""
    last = parents.latest(rows, name)
    smoked = parents.latest(opened.rows(smoke=True), name)
    tree = opened.pool().find(name)
    known = last or smoked
    if known is None and tree is None:
        # No branch is looked for: creating it fails when there is one, and costs nothing before.
        return Start(name, parents.choose(opened, rows, knobs.text("PARENT")), "", None, None, None)
    tip = experiment.existing_tip(opened, opened.branch(name))
    if not tip:
        lost, at = opened.branch(name), known.commit if known else "COMMIT"
        raise Refused("branch", f"{lost} is gone", f"git branch {lost} {at}, or choose another NAME")
    if known is not None:
        owner = parents.owner_of(rows, known.parent_commit)
        parent = Parent(known.parent_commit, owner.experiment if owner else "")
    elif parents.owner_of(rows, tip) is None and parents.hypothesis_below(opened, tip, name):
        return adopted(opened, rows, name)._replace(tree=tree)
    else:  # not the tip: commits may have been made in the tree by hand
        at = tree.commit if tree else tip
        owner = parents.owner_of(rows, at)
        parent = Parent(at, owner.experiment if owner else "")
    return Start(name, parent, tip, last, smoked, tree)


def check_parent(opened: Campaign, rows: Sequence[Row], start: Start) -> None:
    """Refuse a PARENT that contradicts where an idea stands."""
    parent, wanted = start.parent, knobs.text("PARENT")
    if start.tip and wanted and parents.choose(opened, rows, wanted).commit != parent.commit:
        why = f"{start.name!r} started from {parent.experiment or parent.commit[:12]} already"
        raise Refused("PARENT", why, "leave PARENT out, or choose another NAME")


def adopted(opened: Campaign, rows: Sequence[Row], name: str) -> Start:
    """Return an idea whose branch is there although it never ran, its parent as the commit says."""
    tip = experiment.existing_tip(opened, opened.branch(name))
    parent = parents.owner_of(rows, tip)
    if parent is not None and parent.experiment != name:  # `start` has made it there, and its tree is gone
        return Start(name, Parent(tip, parent.experiment), tip, None, None, None)
    own = parents.hypothesis_below(opened, tip, name) or experiment.own_tip(opened, name)
    # Not `own^`: an idea that was withdrawn twice has two commits of its own.
    form = "--format=%(trailers:key=Parent,valueonly)"
    commit = opened.git.commit(opened.git.run("show", "-s", "--no-notes", form, own, "--").decode().strip())
    owner = parents.owner_of(rows, commit)
    return Start(name, Parent(commit, owner.experiment if owner else ""), tip, None, None, None, adopted=True)


def chosen_overrides(opened: Campaign, start: Start) -> list[str]:
    """Return the words for the command: the parent's (or the idea's own of before), this call's last."""
    own = knobs.words("OVERRIDES")
    refuse_secrets("OVERRIDES", own)  # they are in the commit, the row and its note
    if start.last or start.smoked or start.adopted:
        before = parents.recorded_overrides(opened, start.tip)
    else:
        before = parents.overrides_of(opened, start.parent)
    words = merge(before, own)
    if own and start.last and words != before:
        inherited = parents.overrides_of(opened, start.parent)
        stay = [word for word in words[: -len(own)] if word not in inherited]
        if stay:
            talk.note(f"{shlex.join(stay)} of its earlier attempt stays: another NAME starts without")
    if own and opened.plan.recipe:
        from autoresearch import recipes

        tree = start.tree.path if start.tree else ""
        recipes.check_overrides(opened, words, commit=start.tip or start.parent.commit, tree=tree)
    return words


def merge(before: list[str], own: list[str]) -> list[str]:
    """Return inherited words, without those that an own word sets again, then the own ones."""
    if own and before[-len(own) :] == own:
        return before  # the same call once more
    keys = {word.partition("=")[0].lstrip("+~") for word in own if "=" in word}
    return [word for word in before if word.partition("=")[0].lstrip("+~") not in keys] + own


def commit(opened: Campaign, start: Start, overrides: list[str]) -> Hypothesis | None:
    """Return the commit of the hypothesis; None when the branch's tip is to be run as it is.

    Raises:
        Refused: nothing changed and no repeat was asked for.
    """
    given = knobs.is_given("FILES", "PATCH", "OVERRIDES")
    is_known = bool(start.last or start.smoked or start.adopted)
    if not given and start.tree is None and is_known:
        run_the_tip(start)
        return None
    made = hypothesis.build(
        opened.git,
        parent=start.tip or start.parent.commit,
        base=opened.plan.base,
        files=knobs.words("FILES"),
        patch=knobs.text("PATCH"),
        tree=start.tree,
        pool=opened.pool(),
        subject=subject(start),
        trailers=experiment.trailers(opened, start.name, start.parent.commit, overrides),
        allow_empty="OVERRIDES" in given or knobs.flag("ALLOW_EMPTY") or is_known,
    )
    if made.unchanged:
        talk.note(f"warning: FILES has nothing new in {', '.join(made.unchanged)}")
    is_same = is_known and made.parent == start.tip and (not made.paths or is_committed(opened, start, made))
    if is_same and overrides == parents.recorded_overrides(opened, start.tip):
        run_the_tip(start)
        return None
    return made


def is_committed(opened: Campaign, start: Start, made: Hypothesis) -> bool:
    """Return whether what was edited is the tip's content already; its tree is told so, as a kill came before that."""
    if not start.adopted or start.tree is None:
        return False
    if opened.git.run("rev-parse", f"{start.tip}^{{tree}}").decode().strip() != made.tree:
        return False
    if made.private_index:
        opened.pool().settle(start.tree, start.tip, made.private_index)
    return True


def run_the_tip(start: Start) -> None:
    """Decide for the commit that is there: nothing was given that would make another one."""
    if start.last and start.last.commit == start.tip:  # else a launch of a fix was cut off, or it was plumbing
        check_repeat(start)


def check_repeat(start: Start) -> None:
    """Allow a run of what ran before only when it is asked for.

    Raises:
        Refused: it is not.
    """
    if not (knobs.flag("REPEAT") or knobs.get("REPEATS")):
        why = f"nothing changed since {start.name!r} ran"
        raise Refused("experiment", why, "edit its tree, or measure it again: REPEAT=1")


def hypothesis_given() -> str:
    """Return the hypothesis of this call as one line, secrets masked."""
    return talk.one_line(talk.masked(knobs.text("HYPOTHESIS"), secret_values()))


def subject(start: Start) -> str:
    """Return the subject of the commit: the hypothesis, else `experiment: NAME` or `fix: NAME`."""
    return hypothesis_given() or (f"fix: {start.name}" if start.last else f"experiment: {start.name}")


def description(start: Start, name: str) -> str:
    """Return what the row says of the idea: the hypothesis given now, else that of its first run."""
    given = hypothesis_given()
    known = start.last or start.smoked
    return given or (known.description if known else f"experiment: {name}")


def publisher(opened: Campaign, start: Start, made: Hypothesis | None, overrides: list[str]) -> reservation.Publish:
    """Return what puts the commit on its branch: created when new, advanced from the tip else, never moved back."""
    from autoresearch.git import repository

    branch = opened.branch(start.name)
    if made is None:
        return experiment.nothing
    if start.tip:
        repository.refuse_checked_out(opened.git, branch, opened.pool().directory)

    def publish() -> None:
        if start.tip:
            repository.move_branch(opened.git, branch, made.commit, start.tip)
        else:
            repository.create_branch(opened.git, branch, made.commit)
        if start.tree is not None and made.private_index:
            opened.pool().settle(start.tree, made.commit, made.private_index)
        contents.add(opened.where, contents.key(made.tree, overrides), start.name)

    return publish


def remarks(opened: Campaign, start: Start, made: Hypothesis | None, overrides: list[str]) -> list[str]:
    """Return what the row has to say of the change: protected paths, a seed alone, the content of an earlier idea.

    Raises:
        Refused: a protected path is changed without PROTECT_OK=1, or the change adds a secret.
    """
    from autoresearch.rules import plumbing

    if made is None:
        return protected_changes(opened, start.tip)
    refuse_secrets_inside(opened, start.tip or start.parent.commit, made)
    touched = plumbing.protected(made.paths, protected_patterns(opened))
    if touched and not knobs.flag("PROTECT_OK"):
        why = f"the change touches {', '.join(touched[:3])}"
        raise Refused("PROTECT", why, "leave it out, or add PROTECT_OK=1")
    notes = protected_changes(opened, made.commit)
    is_config = all(path.endswith(plumbing.CONFIG) for path in made.paths)
    lines = hypothesis.changed_lines(opened.git, made.parent, made.commit) if made.paths and is_config else []
    if plumbing.only_seed(knobs.words("OVERRIDES"), lines, other_changes=not is_config):
        notes.append("changes nothing but the seed")
        talk.note("warning: this changes nothing but the seed: REPEAT=1 measures the noise better")
    same = contents.earlier(opened.where, contents.key(made.tree, overrides), start.name)
    if same:
        notes.append(f"same content as {same}")
        talk.note(f"warning: {same} had the same files and the same command")
    return notes


def refuse_secrets_inside(opened: Campaign, since: str, made: Hypothesis) -> None:
    """Refuse a change that adds the value of a secret: a branch is there to be shared."""
    if not made.paths or not named_secrets():
        return
    form = ("diff-tree", "-p", "-U0", "--text", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames")
    lines = opened.git.run(*form, since, made.commit, "--").split(b"\n")
    added = b"\n".join(line[1:] for line in lines if line.startswith(b"+"))
    refuse_secrets("the change", [added.decode("utf-8", "surrogateescape")])


def protected_patterns(opened: Campaign) -> tuple[str, ...]:
    """Return what no idea may touch."""
    from autoresearch.rules import plumbing

    return plumbing.protected_patterns(" ".join(map(shlex.quote, opened.plan.protect)))


def protected_changes(opened: Campaign, commit: str) -> list[str]:
    """Return what a row has to say of a commit where protected paths are not what they are on BASE, whoever did it.

    A run that is repeated, a fix, and an idea that starts from such a commit measure with the same changed paths.
    """
    if not opened.plan.protect:
        return []
    from autoresearch.rules import plumbing

    form = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", opened.plan.base, commit, "--")
    changed = [os.fsdecode(path) for path in opened.git.run(*form).split(b"\0") if path]
    touched = plumbing.protected(changed, protected_patterns(opened))
    return [f"not comparable: it changes the protected {', '.join(touched[:3])}"] if touched else []
