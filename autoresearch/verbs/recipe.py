"""`recipe`: all that a recipe says, with the file and line each came from."""

from __future__ import annotations

from autoresearch import campaign, knobs, recipes, talk


def run() -> int:
    """Print the facts of RECIPE."""
    from autoresearch.nemo_rl import describe

    found = recipes.inspect(campaign.repository(), knobs.required("RECIPE", "examples/configs/grpo_math_1B.yaml"))
    for line in describe.describe(found):
        talk.out(line)
    return 0
