"""`env` (bin/show-env): the exports of a campaign or an experiment, and which secret keys are set."""

from __future__ import annotations

import os
import shlex

from autoresearch import campaign, environment, knobs, names, paths, plan, talk
from autoresearch.errors import AutoresearchError


def run() -> int:
    """Print the exports; EXPORT=1 prints lines a shell can evaluate, without secrets."""
    exports, where = _exports()
    if knobs.flag("EXPORT"):
        for key, value in exports.items():
            talk.out(f"export {key}={shlex.quote(value)}")
        return 0
    talk.out(talk.pairs([(key, talk.one_line(value)) for key, value in exports.items()]))
    talk.out("")
    talk.out(talk.pairs(_secrets(where)))
    return 0


def _exports() -> tuple[dict[str, str], paths.Campaign]:
    """Return the exports of what the knobs name; without a campaign only the shared caches."""
    top = campaign.repository()
    try:
        where = campaign.find()
        approval = plan.read_approval(where)
        made = approval.plan if approval else plan.load(where.plan)[0]
    except AutoresearchError:
        if knobs.get("CAMPAIGN") or knobs.get("NAME"):
            raise
        scratch = paths.scratch_root(top, knobs.text("SCRATCH"))[0]
        return paths.cache_exports(paths.cache_root(scratch)), paths.Campaign(top, scratch, "")
    if not knobs.get("NAME"):
        return paths.cache_exports(where.caches), where
    name = names.check("NAME", knobs.text("NAME"))
    links = {key: value for key, value in _live_links(where, name).items() if value}
    return environment.build(where, made, name, where.attempt(name, 1), "", links).exports, where


def _live_links(where: paths.Campaign, name: str) -> dict[str, str]:
    """Return the short socket links of a running attempt; they do not exist otherwise."""
    from autoresearch import attempts

    for state in attempts.every(where):
        if state.experiment == name:
            return state.links
    return {}


def _secrets(where: paths.Campaign) -> list[tuple[str, str]]:
    """Return one line a secret key: set or not, never a value."""
    from autoresearch import dotenv_file

    file = os.path.join(where.repository, ".env")
    keys = campaign.secret_keys()
    lines = [(".env", file if os.path.exists(file) else f"{file} does not exist")]
    lines += [(key, "set" if os.environ.get(key) else "not set") for key in keys]
    return lines + [("warning", text) for text in dotenv_file.warnings(file)]
