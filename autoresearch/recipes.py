"""What a plan takes from a recipe; the facts themselves are found in autoresearch/nemo_rl."""

from __future__ import annotations

from autoresearch.plan import Plan


def into(made: Plan, *, guess_command: bool) -> Plan:
    raise NotImplementedError
