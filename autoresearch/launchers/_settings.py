"""Settings that every engine shares: how patient to be."""

from __future__ import annotations

from collections.abc import Mapping

from autoresearch.launchers._waiting import Limits


def limits_from(settings: Mapping[str, str], default: Limits) -> Limits:
    """The limits of a plan: QUEUE_LIMIT (pending at most) and ENGINE_PATIENCE (a silent engine at most).

    Raises:
        Usage: one of them is not a duration such as `30m` or `2h`.
    """
    changed: dict[str, float] = {}
    for knob, field in (("QUEUE_LIMIT", "queue_s"), ("ENGINE_PATIENCE", "away_s")):
        if settings.get(knob):
            from autoresearch.durations import parse

            changed[field] = parse(settings[knob])
    return default._replace(**changed) if changed else default
