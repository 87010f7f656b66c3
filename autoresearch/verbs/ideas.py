"""`ideas`: what fits the campaign next, each as an experiment line to edit."""

from __future__ import annotations

import json
from typing import Any

from autoresearch import campaign, knobs, talk
from autoresearch.sessions import session_text
from autoresearch.suggestions import ideas

SHOWN = 12


def run() -> int:
    """Print the ideas, the best first; JSON=1 gives all of them."""
    opened = campaign.open_any()
    found = session_text.public(ideas.find(opened), session_text.secrets_of(opened.where))
    if knobs.flag("JSON"):
        talk.out(json.dumps(found, indent=2, allow_nan=False))
        return 0
    for line in lines(found):
        talk.out(line)
    return 0


def lines(found: dict[str, Any]) -> list[str]:
    """Return the ideas as lines: what was seen, then two lines an idea."""
    machine = f"{found['gpus']} GPUs" if found["gpus"] else "no GPU asked for"
    start = found["starts_from"] or "the baseline"
    out = [f"{found['algorithm'] or 'no known algorithm'}, {machine}, next idea starts from {start}"]
    if found["recipe_trouble"]:
        out.append(f"the recipe could not be read: {talk.one_line(found['recipe_trouble'], 200)}")
    out += [f"seen  {one['symptom']}: {talk.one_line(one['detail'], 160)}" for one in found["seen"]]
    for idea in found["ideas"][:SHOWN]:
        answers = f" (answers {', '.join(idea['answers'])})" if idea["answers"] else ""
        out.append(f"# gain {idea['gain']}, cost {idea['cost']}{answers}: {idea['why']}")
        out.append(f"  {idea['line']}")
    more = len(found["ideas"]) - SHOWN
    left = ", ".join(f"{count} {why}" for why, count in found["left_out"].items() if count)
    out.append(f"left out: {left or 'none'}" + (f"; {more} more with JSON=1" if more > 0 else ""))
    return [*out, f"next: {found['next']}"]
