"""`install-skill`: link the skill where a coding agent looks for it."""

from __future__ import annotations

import os

from autoresearch import knobs, talk
from autoresearch.errors import Refused
from autoresearch.sessions import session


def run() -> int:
    """Make DIR/autoresearch a link to the skill; nothing that is there is replaced."""
    directory = os.path.abspath(os.path.expanduser(knobs.required("DIR", "~/.claude/skills")))
    source = os.path.dirname(session.SKILL)
    link = os.path.join(directory, "autoresearch")
    if os.path.realpath(link) == os.path.realpath(source):
        talk.out(f"{link} is there already")
    elif os.path.lexists(link):
        raise Refused("DIR", f"{link} exists and is something else", "remove it yourself, or give another DIR")
    else:
        os.makedirs(directory, exist_ok=True)
        os.symlink(source, link)
        talk.out(f"{link} -> {source}")
    talk.out("next: start the agent anew, so that it finds the skill `autoresearch`")
    return 0
