"""The plan of a campaign: what was agreed, as TOML for people; the approval that binds to its exact content."""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

from autoresearch import clock, files, paths
from autoresearch.errors import Refused

HEADING = """\
# The plan of campaign {name}. Read it, then: make approve CAMPAIGN={name}
# The approval binds to exactly this text; after any change, also by hand, it is asked for again.

"""


class Plan(NamedTuple):
    """Everything that was agreed. Lists and texts as the user gave them; `rules` is the stop rule as understood."""

    campaign: str
    repository: str
    objective: str = ""
    base: str = ""  # 40 hex
    prefix: str = ""
    recipe: str = ""
    command: str = ""  # one line, split into words without a shell
    metric: str = ""
    metric_at: str = "last"
    metric_options: list[str] = []
    direction: str = ""  # max or min
    direction_source: str = ""  # who said so: DIRECTION, the recipe, or a guess the approval confirms
    stop: str = ""
    rules: dict[str, Any] = {}
    understood: dict[str, str] = {}  # the stop rule in explicit values, for the reader
    launcher: str = "local"
    scratch: str = ""
    scratch_source: str = ""
    account: str = ""  # whose directory on scratch it is
    secrets: list[str] = []
    require: list[str] = []
    noise: str = ""  # declared standard deviation of the metric; empty when unknown
    confirm: int = 0
    repeats: int = 0  # runs of the baseline, and further runs of each keep; 0 and 1: one run each
    guard: str = ""
    protect: list[str] = []
    smoke_overrides: str = ""
    recipe_overrides: list[str] = []  # what keeps the recipe's output out of the checkout, same for every run
    recipe_timeout_s: float = 0.0  # the recipe's own limit, 0 when it has none
    must_save_by: str = ""  # the key that tells the recipe when to save and stop by itself
    model: str = ""  # the model that the recipe trains
    gpus: int = 0
    nodes: int = 1
    ledger: str = ""  # "scratch" when the ledger lives there
    settings: dict[str, str] = {}  # knobs of limits and launchers, by name
    code_paths: list[str] = []  # the code worth reading for this recipe
    notes: list[str] = []  # what `plan` found worth saying
    created_at: str = ""

    def setting(self, name: str, default: str = "") -> str:
        """Return a setting recorded in the plan."""
        return self.settings.get(name) or default


class Approval(NamedTuple):
    """The user's yes: to which text, when, by whom; and the stop rules that were agreed before."""

    digest: str
    approved_at: str
    by: str
    plan: Plan
    history: list[dict[str, str]]


def digest(data: bytes) -> str:
    """Return the identity of a plan's exact text."""
    return files.digest(data)


def dump(plan: Plan) -> bytes:
    """Return the plan as TOML; empty fields are left out, except those a reader expects."""
    import tomli_w

    fields = {key: value for key, value in plan._asdict().items() if value or key in ("objective", "stop")}
    for key in ("rules", "settings", "understood"):  # tables go last in TOML
        if key in fields:
            fields[key] = fields.pop(key)
    return (HEADING.format(name=plan.campaign) + tomli_w.dumps(fields)).encode()


def load(path: str) -> tuple[Plan, bytes]:
    """Return the plan in a TOML file, and its exact bytes.

    Raises:
        Refused: no such file, not TOML, or a field of another kind than the plan's.
    """
    import tomllib

    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        raise Refused("plan", f"{path} does not exist", "make plan CAMPAIGN=x ...") from None
    try:
        fields = tomllib.loads(data.decode())
        return _plan(fields), data
    except (ValueError, TypeError) as error:
        raise Refused("plan", f"{path} cannot be read ({error})", "correct it, or run make plan again") from None


def _plan(fields: dict[str, Any]) -> Plan:
    for key, value in fields.items():
        if key not in Plan._fields:
            raise ValueError(f"unknown field {key!r}")
        default = Plan._field_defaults.get(key, "")
        wanted = (int, float) if isinstance(default, float) else type(default)
        if not isinstance(value, wanted):
            raise ValueError(f"{key} is of the wrong kind")
    return Plan(**fields)


def save(where: paths.Campaign, plan: Plan) -> bytes:
    """Write the plan into the repository's records and return its text."""
    os.makedirs(where.records, mode=0o700, exist_ok=True)
    data = dump(plan)
    files.replace(where.plan, data)
    return data


def approve(where: paths.Campaign, plan: Plan, data: bytes, by: str) -> Approval:
    """Record the yes to the plan text `data` and compile what the hot path needs of it."""
    old = read_approval(where)
    history = list(old.history) if old else []
    if old and old.plan.stop != plan.stop:
        history.append({"stop": old.plan.stop, "approved_at": old.approved_at, "by": old.by})
    approval = Approval(digest(data), clock.stamp(clock.now()), by, plan, history)
    text = json.dumps({**approval._asdict(), "plan": plan._asdict()}, allow_nan=False)
    files.replace(where.approval, text.encode())
    if plan.ledger == "scratch":
        pointer = f"The ledger of this campaign is kept on scratch: {where.scratch_ledger}\n"
        files.replace(f"{where.ledger}.location", pointer.encode())
    return approval


def read_approval(where: paths.Campaign) -> Approval | None:
    """Return the recorded approval, also when the plan has changed since; None when there is none."""
    try:
        with open(where.approval, "rb") as file:
            fields = json.loads(file.read())
        return Approval(**{**fields, "plan": Plan(**fields["plan"])})
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError):
        from shlex import quote

        fix = f"mv {quote(where.approval)} {quote(where.approval)}.broken && make approve CAMPAIGN={where.name}"
        raise Refused("approval", f"{where.approval} cannot be read", fix) from None


def binds(where: paths.Campaign, approval: Approval) -> bool:
    """Return whether the plan is still, byte for byte, what was approved."""
    try:
        with open(where.plan, "rb") as file:
            return digest(file.read()) == approval.digest
    except OSError:
        return False


def approved(where: paths.Campaign) -> Approval:
    """Return the approval that binds to the plan as it is now.

    Raises:
        Refused: there is no plan, no approval, or the plan changed since.
    """
    remedy = f"make approve CAMPAIGN={where.name}"
    try:
        with open(where.plan, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        raise Refused("plan", f"campaign {where.name!r} has none", f"make plan CAMPAIGN={where.name} ...") from None
    found = read_approval(where)
    if found is None:
        raise Refused("approval", f"the plan of {where.name!r} is not approved yet", remedy)
    if found.digest != digest(data):
        raise Refused("approval", f"the plan of {where.name!r} changed since it was approved", remedy)
    return found
