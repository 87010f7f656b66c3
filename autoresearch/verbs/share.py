"""`share`: print, and with YES=1 run, the push of the campaign's branches and notes; nothing else ever pushes."""

from __future__ import annotations

from autoresearch import campaign, command, knobs, recovery, talk
from autoresearch.errors import Refused
from autoresearch.git import notes, reason

SHOWN = 12  # lines of what git says to a push that failed


def run() -> int:
    """Show the push; run it with YES=1. Never forced: a remote that went on is a refusal by git itself."""
    opened = campaign.open_any()
    recovery.finish(opened)
    remote = knobs.text("REMOTE", "origin")
    if remote not in opened.git.run("remote").decode().split():
        raise Refused("REMOTE", f"{remote!r} is not a remote of {opened.where.repository}", "git remote -v lists them")
    refs = f"refs/heads/{opened.plan.prefix}/*"
    words = ["push", remote, f"{refs}:{refs}", f"{notes.REF}:{notes.REF}"]
    talk.out(command.show(["git", "-C", opened.where.repository, *words]))
    if not knobs.flag("YES"):
        talk.note("nothing was pushed; YES=1 runs it")
        return 0
    # The push is the user's own: their pre-push hook looks for secrets, or brings the files of Git LFS along.
    done = opened.git.call(*words, timeout=600, hooks=True)
    if done.code:
        for line in done.err.splitlines()[:SHOWN]:
            talk.note(f"| {reason(line)}")
        fix = "put that right"
        refused = [line for line in done.err.splitlines() if f"{notes.REF} -> {notes.REF} (".encode() in line]
        if any(b"[rejected]" in line for line in refused):  # by git here: somebody has shared notes since
            git = command.show(["git", "-C", opened.where.repository])
            into = "refs/notes/theirs"
            fix = f"{git} fetch {remote} {notes.REF}:{into} && {git} notes --ref={notes.REF} merge {into}, then again"
        raise Refused("share", f"git push to {remote} failed, see above", f"{fix}; nothing is ever forced")
    talk.note(f"pushed to {remote}")
    return 0
