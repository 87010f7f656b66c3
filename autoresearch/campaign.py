"""An open campaign: its plan, places, ledger, and git; and the campaign a call means."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from autoresearch import clock, files, knobs, ledger, names, paths, plan
from autoresearch.errors import Refused, Usage
from autoresearch.git import Git
from autoresearch.rows import Row, column

TYPE_CHECKING = False
if TYPE_CHECKING:
    from autoresearch.git.trees import Pool

CLOCK_SET_S = 2.0  # the clock is moved in small steps all the time; a jump is more than that
# Keys that are secrets wherever they come from, also when there is no .env.
SECRET_KEYS = ("WANDB_API_KEY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL")


def repository() -> str:
    """Return the repository of this call, as bin/ resolved it.

    Raises:
        Usage: the core was started without bin/.
    """
    found = os.environ.get("AR_REPO")
    if not found:
        raise Usage("repository", "AR_REPO is not set", "call the programs in bin/, not the core")
    return found


def secret_keys() -> tuple[str, ...]:
    """Return the names of the environment's secrets: every key of .env, and the well-known ones."""
    return tuple(dict.fromkeys([*os.environ.get("AR_DOTENV_KEYS", "").split(), *SECRET_KEYS]))


def secret_values(repository: str = "") -> list[str]:
    """Return the values that must never be shown; short ones are left out, or `1` would be blanked everywhere.

    Args:
        repository: its .env is read by a verb whose wrapper did not load it; empty for the one of this call.
    """
    return [value for _, value in _secrets(repository)]


def refuse_secrets(what: str, texts: Sequence[str]) -> None:
    """Refuse texts that are to be written down although they hold a secret; the message names its key only.

    The names of projects and paths may stand in a .env too: only the values of keys that are called like a secret, or
    well known as one, are refused.

    Args:
        what: the knob they come from.
    """
    joined = "\0".join(texts)
    for key, value in named_secrets():
        if value in joined:
            raise Refused(what, f"it holds the value of {key}", "leave it out: the run has it in its environment")


def named_secrets() -> list[tuple[str, str]]:
    """Return the keys that are called like a secret, or known as one, with their values; not what may be a word."""
    return [
        (key, value)
        for key, value in _secrets()
        if len(value) >= 8 and (key in SECRET_KEYS or any(word in key for word in SECRET_WORDS))
    ]


def _secrets(repository: str = "") -> list[tuple[str, str]]:
    pairs = [(key, os.environ.get(key, "")) for key in secret_keys()]
    repository = repository or os.environ.get("AR_REPO", "")
    if "AR_DOTENV_KEYS" not in os.environ and repository:
        pairs += _dotenv_pairs(os.path.join(repository, ".env"))
    return [pair for pair in pairs if len(pair[1]) >= 6]


def _dotenv_pairs(file: str) -> list[tuple[str, str]]:
    if not os.path.exists(file):
        return []
    from autoresearch import dotenv_file
    from autoresearch.errors import AutoresearchError

    try:
        return list(dotenv_file.load(file).items())
    except AutoresearchError:
        pass
    try:  # a .env that is refused for one line still holds secrets in the others
        with open(file, encoding="utf-8", errors="replace") as handle:
            parts = [line.partition("=") for line in handle]
    except OSError:
        return []
    return [(key.split()[-1] if key.split() else "", value.strip().strip("'\"")) for key, _, value in parts]


class Campaign:
    """One campaign, opened for a verb."""

    def __init__(self, where: paths.Campaign, approval: plan.Approval) -> None:
        self.where = where
        self.approval = approval
        self.plan = approval.plan
        self.git = Git(where.repository, drop_env_keys=secret_keys())

    @property
    def name(self) -> str:
        """The campaign's name."""
        return self.where.name

    def renew_rules(self) -> None:
        """Take over the stop rules that were approved since: a run may have waited for hours, or be one of many."""
        approval = plan.read_approval(self.where)
        if approval is not None:
            made = approval.plan
            self.plan = self.plan._replace(stop=made.stop, rules=made.rules, understood=made.understood)

    @property
    def ledger_path(self) -> str:
        """Where results.tsv really lies (LEDGER=scratch leaves a pointer in the repository)."""
        return self.where.scratch_ledger if self.plan.ledger == "scratch" else self.where.ledger

    def rows(self, *, smoke: bool = False) -> Sequence[Row]:
        """Return the ledger's rows, oldest first; no lock is taken."""
        return ledger.read(self.where.smoke_ledger if smoke else self.ledger_path).rows

    def has_lost_rows(self) -> bool:
        """Return whether git has rows of this campaign while its ledger holds none: somebody emptied or removed it."""
        if self.rows():
            return False
        from autoresearch.git import notes

        return next(notes.read_all(self.git, self.name), None) is not None

    def branch(self, experiment: str) -> str:
        """Return the branch of an experiment."""
        return f"{self.plan.prefix}/{experiment}"

    def pool(self) -> Pool:
        """Return the campaign's pool of worktrees."""
        from autoresearch.git.trees import Pool

        return Pool(self.git, self.where.trees)

    @contextmanager
    def locked(self, wait_s: float = 60.0) -> Iterator[None]:
        """Hold the campaign's lock: stop-rule check, index, attempt number and branch are one transaction."""
        with files.locked(self.where.lock, wait_s=wait_s):
            yield

    def started(self) -> tuple[float, float] | None:
        """Return the first launch and the deadline (epoch seconds, 0.0 for none), None before the first launch.

        Both are told by the clock as it is now: where it was set since (and not by a reboot), a total time is still
        the time that has passed, and nothing else.
        """
        first = self._first_launch()
        return None if first is None else (first, self._deadline(first))

    def _first_launch(self) -> float | None:
        try:
            with open(self.where.started, "rb") as file:
                fields = json.loads(file.read())
            first = float(fields["first_launch"])
        except (FileNotFoundError, ValueError, KeyError):
            rows = [at for text in column(self.rows(), "started_at") if (at := clock.epoch(text)) is not None]
            return min(rows, default=None)
        shift = _shift(fields)
        return first if abs(shift) < CLOCK_SET_S else first + shift

    def _deadline(self, first_launch: float) -> float:
        """Return the end by the rule as it is approved now, whichever was when the clock started."""
        from autoresearch.rules import stop

        return stop.deadline(stop.Rules.from_json(self.plan.rules), first_launch) or 0.0

    def write_started(self, first_launch: float) -> None:
        """Keep the campaign's clock and the deadline that it gives; the caller holds the campaign's lock."""
        from autoresearch.running import processes

        fields = {"first_launch": first_launch, "deadline": self._deadline(first_launch)}
        origin = {"boot": processes.boot_id(), "booted_at": clock.now() - clock.since_boot()}
        files.replace(self.where.started, json.dumps({**fields, **origin}).encode())


def _shift(fields: dict[str, Any]) -> float:
    """Return by how many seconds the wall clock was set since the campaign's clock was written, 0.0 after a reboot."""
    from autoresearch.running import processes

    if fields.get("boot") != processes.boot_id():
        return 0.0
    return clock.now() - clock.since_boot() - float(fields["booted_at"])


def find() -> paths.Campaign:
    """Return the places of the campaign this call means, approved or not: CAMPAIGN, else the one last used here.

    Raises:
        Usage: no campaign is named and none was used before.
        Refused: it has no plan.
    """
    top = repository()
    name = knobs.text("CAMPAIGN") or _last(top)
    if not name:
        raise Usage("CAMPAIGN", f"no campaign in {top} yet", "make plan CAMPAIGN=x ...")
    names.check("CAMPAIGN", name)
    where = paths.Campaign(top, "", name)
    approval = plan.read_approval(where)
    if approval:
        return where._replace(scratch=approval.plan.scratch, account=approval.plan.account)
    made = plan.load(where.plan)[0]
    return where._replace(scratch=made.scratch, account=made.account)


def _last(top: str) -> str:
    try:
        with open(paths.last_campaign(top), encoding="utf-8") as file:
            return file.read().strip()
    except FileNotFoundError:
        return ""


def remember(where: paths.Campaign) -> None:
    """Make this campaign the one meant when CAMPAIGN is left out."""
    if _last(where.repository) != where.name:
        files.replace(paths.last_campaign(where.repository), f"{where.name}\n".encode())


def approve(where: paths.Campaign, made: plan.Plan, data: bytes, by: str) -> Campaign:
    """Record the yes to a plan, whose rule the deadline follows; the caller holds the campaign's lock."""
    opened = Campaign(where, plan.approve(where, made, data, by))
    if os.path.exists(where.started) and (started := opened.started()):
        opened.write_started(started[0])
    return opened


def open_approved() -> Campaign:
    """Return the campaign for a verb that branches or launches.

    Raises:
        Refused: its plan is not approved or another campaign's, or its scratch directory belongs to another repository.
    """
    where = find()
    campaign = Campaign(where, plan.approved(where))
    if campaign.plan.campaign != where.name:  # records that were copied: its runs would go to the other's branches
        why = f"{where.plan} is that of campaign {campaign.plan.campaign!r}"
        raise Refused("plan", why, f"make plan CAMPAIGN={where.name} PREFIX=... makes it one of its own")
    check_marker(where)
    remember(where)
    return campaign


def open_any() -> Campaign:
    """Return the campaign for a verb that only looks; an approval that no longer binds is good enough.

    Raises:
        Refused: the plan was never approved, so there is nothing to look at.
    """
    where = find()
    approval = plan.read_approval(where)
    if approval is None:
        raise Refused("campaign", f"{where.name!r} is planned but not approved", f"make approve CAMPAIGN={where.name}")
    return Campaign(where, approval)


def check_marker(where: paths.Campaign) -> bool:
    """Return whether the campaign's scratch directory is there and ours.

    Raises:
        Refused: the same name is in use by another repository.
    """
    try:
        with open(where.marker, encoding="utf-8") as file:
            owner = file.readline().rstrip("\n")
    except FileNotFoundError:
        return False
    if owner != where.repository:
        fix = "choose another name for this repository"
        if not os.path.isdir(owner):
            fix = f"if that is this repository, moved: move it back; else {fix}"
        raise Refused("CAMPAIGN", f"{where.name!r} on this scratch belongs to {owner}", fix)
    return True


def make_root(where: paths.Campaign) -> None:
    """Create the campaign's scratch directory with its marker; harmless when it is there."""
    if check_marker(where):
        return
    try:
        paths.make_shared(where.scratch)
        os.makedirs(where.root, mode=0o700, exist_ok=True)
    except PermissionError as error:
        fix = f"ask its owner for: chmod 1777 {os.path.join(where.scratch, 'nemo-rl')}; or plan with SCRATCH=DIR"
        raise Refused("scratch", f"{error.filename} cannot be made by this account", fix) from None
    files.replace(where.marker, f"{where.repository}\n{where.name}\n".encode())
