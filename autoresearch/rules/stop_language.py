"""The language of `STOP`, in English and Japanese: text to `Rules`, or a refusal that marks the place.

A text is a list of clauses joined by `or`, a comma or their Japanese twins. Each form of a clause is
one pattern; the longest that fits is taken, and a separator or the end must follow, so nothing is
ever half understood. Loaded only where a rule is read (plan, extend), never on a launch.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone, tzinfo
from itertools import pairwise
from typing import Any, NamedTuple

from autoresearch import durations
from autoresearch.carets import refusal
from autoresearch.rules.stop import DEFAULT_EXPERIMENTS, Rules

FLAGS = re.IGNORECASE | re.ASCII
LONGEST = 1000  # characters
MANY = 1_000_000

_DUR = f"(?P<length>{durations.PATTERN})"
_INT = r"(?P<count>[0-9]+)"
_REAL = r"(?P<amount>[0-9]+(?:\.[0-9]+)?)"
_VALUE = r"(?P<value>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?![A-Za-z0-9_%]|\.[0-9])"
_NAME = r"(?P<metric>[A-Za-z_][A-Za-z0-9_./:@-]*)"
_OP = r"(?P<op>>=|=>|<=|=<|>|<|≥|≧|≤|≦)"
_DATE = r"(?:(?P<year>[0-9]{4})(?:-|/|年)(?P<month>[0-9]{1,2})(?:-|/|月)(?P<day>[0-9]{1,2})日?\s*T?の?\s*)"
_CLOCK = r"(?P<hour>[0-9]{1,2})(?::(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2}))?|時(?:(?P<min>[0-9]{1,2})分)?)"
_ZONE = r"(?:\s*(?P<zone>Z|UTC|GMT|JST|[+-][0-9]{2}:?[0-9]{2}|[A-Z][A-Za-z_]+(?:/[A-Za-z0-9_+-]+)+)(?![A-Za-z0-9:]))?"
_WHEN = rf"{_DATE}?{_CLOCK}{_ZONE}"
_LEAD = (
    r"(?:(?:please|do|run|try|for|after|when|once|if|until|stop(?:\s+(?:after|at|when|if|once))?)\s+)?"
    r"(?:(?:at\s+most|up\s+to|max(?:imum)?|no\s+more\s+than|within)\s+)?"
)
_TAIL_JA = r"(?:まで|以内|に達したら停止|で停止|で終了|を?行う|を?実行)?"
_END = r"(?![A-Za-z0-9_]|\.[0-9])"
_THING = r"(?:experiments?|ideas?)"
_CRASH = r"(?:crash(?:es)?|failures?)"
_CRASH_JA = r"(?:クラッシュ|失敗)"
_PER = r"(?:(?:for\s+)?each(?:\s+(?:experiment|run|idea))?|apiece|per\s+(?:experiment|run|idea))"
_MOST = r"(?:\s+(?:at\s+most|max(?:imum)?))?"

FORMS: tuple[tuple[str, str], ...] = (  # of equally long matches the first is taken
    ("experiments", rf"{_LEAD}{_INT}\s*{_THING}(?:\s+(?:in\s+)?total)?{_MOST}{_END}"),
    ("experiments", rf"(?:合計)?実験(?:数|を|は)?\s*{_INT}\s*(?:回|件|個)?{_END}{_TAIL_JA}"),
    ("experiments", rf"(?:合計)?{_INT}\s*(?:回|件|個)?の?実験{_TAIL_JA}"),
    ("total_s", rf"{_LEAD}{_DUR}\s*(?:in\s+total|total|overall|altogether){_MOST}{_END}"),
    ("total_s", rf"{_LEAD}(?:total(?:\s+time)?|(?:time\s+)?budget)(?:\s+of)?\s*:?\s*{_DUR}{_END}"),
    ("total_s", rf"(?:合計|総計|全体|計)(?:時間)?(?:で|は|:)?\s*{_DUR}{_TAIL_JA}"),
    ("total_s", rf"{_DUR}\s*(?:合計|の合計){_TAIL_JA}"),
    ("each_s", rf"{_LEAD}{_DUR}\s*{_PER}{_MOST}{_END}"),
    ("each_s", rf"{_PER}\s*:?\s*(?:at\s+most\s+|max\s+)?{_DUR}{_END}"),
    (
        "each_s",
        rf"(?:各(?:実験|回)?|それぞれ|(?:1|一)?(?:実験|回)(?:あたり|ごとに?|につき)|1回)\s*:?\s*{_DUR}{_TAIL_JA}",
    ),
    ("until", rf"(?:stop\s+(?:at|by)|until|till|by|before|deadline(?:\s+is)?\s*:?)\s*{_WHEN}"),
    ("until", rf"(?:期限|締切|締め切り)(?:は|:)?\s*{_WHEN}(?:まで)?"),
    ("until", rf"{_WHEN}\s*まで"),
    ("target", rf"{_LEAD}(?:target(?:\s+of)?|目標値?(?:は)?)\s*:?\s*{_OP}?\s*{_VALUE}"),
    ("target", rf"{_LEAD}(?:(?:target|目標値?)\s*:?\s+)?{_NAME}\s*{_OP}\s*{_VALUE}"),
    (
        "target",
        rf"(?:目標値?は?\s*)?{_NAME}\s*(?:が|は)\s*{_VALUE}\s*(?P<word>以上|以下|未満|超|より大きい|より小さい)",
    ),
    ("plateau", rf"{_LEAD}plateau(?:\s+of|\s*:)?\s*{_INT}(?:\s+{_THING})?{_END}"),
    ("plateau", rf"{_LEAD}no\s+(?:new\s+best|improvement)\s+(?:in|for)\s+{_INT}\s+{_THING}{_END}"),
    ("plateau", rf"{_LEAD}{_INT}\s+{_THING}\s+without\s+(?:a\s+new\s+best|(?:an\s+)?improvement){_END}"),
    ("plateau", rf"(?:プラトー|停滞)\s*:?\s*{_INT}\s*回?{_END}"),
    ("plateau", rf"{_INT}\s*回?(?:連続で?)?(?:改善|更新)(?:なし|されない|しない)"),
    ("plateau", rf"(?:改善|更新)なし(?:が|で)?\s*{_INT}\s*回(?:連続|続いたら停止)?"),
    ("crashes_in_a_row", rf"{_LEAD}{_INT}\s+(?:{_CRASH}\s+in\s+a\s+row|consecutive\s+{_CRASH}){_END}"),
    ("crashes_in_a_row", rf"{_INT}\s*回?連続(?:で|の)?{_CRASH_JA}"),
    ("crashes_in_a_row", rf"{_CRASH_JA}(?:が|を)?\s*{_INT}\s*回?連続{_TAIL_JA}"),
    ("crashes_in_a_row", rf"連続{_CRASH_JA}\s*{_INT}\s*回?{_END}"),
    ("gpu_hours", rf"{_LEAD}{_REAL}\s*GPU[-\s]*(?:hours?|hrs?|h){_END}(?:\s+(?:in\s+)?total{_END})?"),
    ("gpu_hours", rf"(?:合計)?{_REAL}\s*GPU\s*時間{_TAIL_JA}"),
    ("gpu_hours", rf"(?:合計)?GPU時間(?:は|:)?\s*{_REAL}(?:時間)?{_END}{_TAIL_JA}"),
    ("gpu_hours", rf"(?:合計)?GPU\s*{_REAL}\s*時間{_TAIL_JA}"),
)
_OR_JA = r"(?:または|又は|もしくは|あるいは|か(?!つ))(?:\s*[,、])?"
_OR = rf"(?:[,、]\s*)?(?:(?<![A-Za-z0-9_])or(?![A-Za-z0-9_])|{_OR_JA})|[,、]"
_AND = r"(?:[,、]\s*)?(?:(?<![A-Za-z0-9_])(?:and|plus)(?![A-Za-z0-9_])|&&?|かつ|及び|および|と)"
SEPARATOR = re.compile(rf"\s*(?:(?P<all>{_AND})|(?P<any>{_OR}))\s*", FLAGS)
CLOSING = re.compile(
    r"\s*(?:,?\s*whichever\s+(?:comes|is|happens)\s+(?:first|earlier|sooner)|、?\s*(?:の?いずれか|の?どちらか)(?:早い方|先)?)?"
    r"\s*[.。]?\s*$",
    FLAGS,
)
_WORDS = re.compile(
    rf"(?:experiments?|ideas?|total|in|overall|altogether|time|budget|of|each|apiece|per|run|until|till|by|before|deadline|is"
    rf"|target|plateau|no|new|best|improvement|without|an?|{_CRASH}|row|consecutive|gpu|hours?|hrs?|h|please|do|try|for|after"
    rf"|when|once|if|stop|at|most|up|to|max(?:imum)?|more|than|within|{durations.PATTERN})",
    FLAGS,
)
# Things people write that have more than one meaning: the pattern of the whole clause, why, what to write.
HINTS: tuple[tuple[str, str, str], ...] = (
    (
        rf"{_LEAD}{durations.PATTERN}",
        "a length of time alone may be for all or for each",
        "write `10h total` or `1h each`",
    ),
    (rf"{_LEAD}[0-9]+", "a number alone says nothing of what it counts", "write `50 experiments` or `50h total`"),
    (r"[0-9]+\s*回", "a number alone says nothing of what it counts", "write 実験50回"),
    (
        rf"{_LEAD}[0-9]+\s*(?:runs?|attempts?|trials?|jobs?|steps?)",
        "ideas are counted, not their runs: a rerun or a repeat is not one more",
        "write `50 experiments`",
    ),
    (
        rf"{_LEAD}[0-9]+\s*{_CRASH}",
        "crashes spread over a campaign are no stop rule, a row of them is",
        "write `5 crashes in a row`",
    ),
    (rf"{_LEAD}{_DATE}", "a date alone leaves the time open", "write `until 2026-12-01T07:00+09:00`"),
    (rf"{_WHEN}", "a time alone does not say what it ends", "write `until 2026-12-01T07:00+09:00`"),
    (r".*[0-9]\s*%", "a per cent sign is not read", "write the value as the metric prints it, e.g. `target 0.8`"),
    (rf"{_LEAD}[0-9]+\.[0-9]+\s*{_THING}", "experiments are whole", "write `50 experiments`"),
)
FIX = "write it like `50 experiments or 10h total, 1h each` (docs/stop-rules.md has every form)"


def read(text: str, *, now: float, tz: str | None) -> Rules:
    """Return the rules that a text of `STOP` says; see `stop.parse`."""
    if len(text) > LONGEST:
        raise refusal("STOP", text, LONGEST, LONGEST + 10, f"longer than {LONGEST} characters", FIX)
    if not text.strip():
        return Rules(experiments=DEFAULT_EXPERIMENTS, default=True)
    reader = Reader(text, now, tz)
    clauses = reader.clauses()
    reader.joints(clauses)
    fields: dict[str, Any] = {}
    first: dict[str, Clause] = {}
    for clause in clauses:
        if clause.field in fields:
            again, before = clause.match[0].strip(), first[clause.field].match[0].strip()
            raise reader.bad(*clause.match.span(), f"`{again}` says again what `{before}` says", "keep one of the two")
        fields[clause.field], first[clause.field] = reader.value(clause), clause
    reader.contradictions(fields, first)
    if set(fields) == {"each_s"}:  # a cap ends no campaign: the default rule still does
        fields.update(experiments=DEFAULT_EXPERIMENTS, default=True)
    return Rules(**fields, until_text=reader.until_text)


class Clause(NamedTuple):
    """One understood clause: its field of `Rules`, the match, and the separator before it."""

    field: str
    match: re.Match[str]
    joint: str  # "" for the first clause, else any or all


class Reader:
    """Reads one text; it holds the text as given (for the marks) and made narrow (for the patterns)."""

    def __init__(self, text: str, now: float, tz: str | None) -> None:
        self.given, self.text, self.now, self.tz = text, durations.narrow(text), now, tz
        self.until_text = ""  # set by `moment`
        self.forms = [(field, re.compile(pattern, FLAGS)) for field, pattern in FORMS]

    def bad(self, start: int, end: int, why: str, fix: str = FIX) -> Exception:
        """Return the refusal for a place in the text."""
        return refusal("STOP", self.given, start, end, why, fix)

    def clauses(self) -> list[Clause]:
        """Split the text into understood clauses; raises at the first place that is not."""
        found: list[Clause] = []
        place = len(self.text) - len(self.text.lstrip())
        joint = ""
        while True:
            best: tuple[str, re.Match[str]] | None = None
            for field, pattern in self.forms:
                match = pattern.match(self.text, place)
                if match and (best is None or match.end() > best[1].end()):
                    best = field, match
            if best is None:
                raise self.lost(place)
            found.append(Clause(*best, joint))
            place = best[1].end()
            if CLOSING.match(self.text, place):
                return found
            separator = SEPARATOR.match(self.text, place)
            if separator is None:
                raise self.left_over(found[-1], place)
            joint = "all" if separator["all"] else "any"
            if separator.end() == len(self.text):
                raise self.bad(separator.start(), separator.end(), f"nothing follows `{separator[0].strip()}`")
            place = separator.end()

    def lost(self, start: int) -> Exception:
        """Return the refusal for a clause that no form fits: the usual slip, the first strange word, or all of it."""
        end = start + len(self.clause_at(start))
        clause = self.text[start:end]
        for pattern, why, fix in HINTS:
            if re.fullmatch(pattern, clause, FLAGS):
                return self.bad(start, end, f"`{clause}`: {why}", fix)
        place = start
        while place < end:
            known = _WORDS.match(self.text, place)
            if known and not re.match(r"[A-Za-z0-9_]", self.text[known.end() : known.end() + 1]):
                place = known.end()
            elif self.text[place] in " \t\r\n":
                place += 1
            elif number := re.compile(r"[0-9]+(?:\.[0-9]+)?(?![A-Za-z0-9_])", FLAGS).match(self.text, place):
                place = number.end()
            else:
                word = re.compile(r"[^\s,、]+").match(self.text, place)
                stop = min(word.end(), end) if word else place + 1
                return self.bad(place, stop, f"`{self.given[place:stop]}` is not understood")
        return self.bad(start, end, f"`{clause}` is not understood" if clause else "a rule is missing here")

    def clause_at(self, start: int) -> str:
        """Return the text from `start` to the next separator, without blanks and a full stop at its end."""
        separator = SEPARATOR.search(self.text, start)
        return self.text[start : separator.start() if separator else len(self.text)].rstrip(" \t\r\n.。")

    def left_over(self, clause: Clause, start: int) -> Exception:
        """Return the refusal for text that follows an understood clause without a separator."""
        start += len(self.text[start:]) - len(self.text[start:].lstrip())
        word = re.compile(r"[^\s,、]+").match(self.text, start)
        end = word.end() if word else len(self.text)
        shown = self.given[start:end]
        if clause.field == "until" and shown.isalpha():
            fix = "write the offset, e.g. `until 2026-12-01T07:00+09:00`, or a zone such as Asia/Tokyo"
            return self.bad(start, end, f"`{shown}` is not a zone that means one thing everywhere", fix)
        if any(pattern.match(self.text, start) for _, pattern in self.forms):
            fix = "put a comma or `or` before it"
            return self.bad(start, end, f"`{shown}` follows `{clause.match[0].strip()}` without a comma or `or`", fix)
        return self.bad(start, end, f"`{shown}` is not understood")

    def joints(self, clauses: list[Clause]) -> None:
        """Refuse `and` between triggers: any one that is met ends a campaign. Beside a per-run cap it is harmless."""
        if all(clause.joint != "all" for clause in clauses):
            return
        commas = any(clause.joint == "any" and not self.spelt_or(clause) for clause in clauses)
        for before, clause in pairwise(clauses):
            caps = clause.field == "each_s" or (before.field == "each_s" and before is clauses[0])
            if clause.joint == "all" and (not caps or commas):
                why = "`and` between rules is refused: the first rule that is met ends the campaign"
                fix = "join them with `or`; only a cap such as `1h each` may follow `and`"
                raise self.bad(before.match.end(), clause.match.start(), why, fix)

    def spelt_or(self, clause: Clause) -> bool:
        """Return whether the separator before a clause is a word, not a bare comma."""
        return not self.text[: clause.match.start()].rstrip().endswith((",", "、"))

    def contradictions(self, fields: dict[str, Any], first: dict[str, Clause]) -> None:
        """Refuse rules under which no run could ever start: a cap longer than all the time there is."""
        each = fields.get("each_s")
        for name, whole in (("total_s", fields.get("total_s")), ("until", fields.get("until", self.now) - self.now)):
            if each is not None and name in fields and each > whole:
                cap, limit = first["each_s"].match, first[name].match[0].strip()
                why = f"a run of `{cap[0].strip()}` does not fit into `{limit}`: none would ever start"
                raise self.bad(*cap.span(), why, "make the cap shorter or the total longer")

    def value(self, clause: Clause) -> Any:
        """Return the value of one clause for its field of `Rules`."""
        match, groups = clause.match, clause.match.groupdict()
        if clause.field in ("total_s", "each_s"):
            seconds, problem = durations.read(match["length"])
            if problem or not seconds:
                raise self.bad(
                    *match.span("length"),
                    f"`{match['length']}`: {problem or 'no time at all'}",
                    "write it like 90m or 1h30m",
                )
            return seconds
        if clause.field == "target":
            return self.target(match, groups)
        if clause.field == "until":
            return self.moment(match, groups)
        name = "count" if "count" in groups else "amount"
        if not 0 < float(match[name]) <= MANY:
            raise self.bad(*match.span(name), f"`{match[name]}` is not a number above 0 and up to {MANY}", "correct it")
        return int(match[name]) if name == "count" else float(match[name])

    def target(self, match: re.Match[str], groups: dict[str, str | None]) -> tuple[str, str, float]:
        """Return metric, op and value of a target; metric and op are "" where they are the campaign's own."""
        words = {"以上": ">=", "以下": "<=", "未満": "<", "超": ">", "より大きい": ">", "より小さい": "<"}
        signs = {"≥": ">=", "≧": ">=", "=>": ">=", "≤": "<=", "≦": "<=", "=<": "<="}
        word, sign = groups.get("word"), groups.get("op")
        value = float(match["value"])
        if value in (float("inf"), float("-inf")):
            raise self.bad(*match.span("value"), f"`{match['value']}` is too large for a number")
        return groups.get("metric") or "", words[word] if word else signs.get(sign or "", sign or ""), value

    def moment(self, match: re.Match[str], groups: dict[str, str | None]) -> float:
        """Return the deadline as epoch seconds; the local zone counts where none is written."""
        span = (match.start("year" if groups["year"] else "hour"), match.end())
        zone = self.zone(groups["zone"] or self.tz, match.span("zone") if groups["zone"] else span)
        hour, minute, second = (int(groups[key] or 0) for key in ("hour", "minute", "second"))
        minute = minute or int(groups["min"] or 0)
        today = datetime.fromtimestamp(self.now, zone)
        year, month, day = (int(groups[key] or 0) for key in ("year", "month", "day"))
        if not groups["year"]:
            year, month, day = today.year, today.month, today.day
        try:
            wall = datetime(year, month, day, hour, minute, second, tzinfo=zone)
            if not groups["year"] and wall.timestamp() <= self.now:
                wall += timedelta(days=1)
            early, late = wall.timestamp(), wall.replace(fold=1).timestamp()
            back = datetime.fromtimestamp(early, zone).replace(tzinfo=None)
        except (ValueError, OverflowError, OSError):
            raise self.bad(
                *span,
                f"`{self.text[slice(*span)]}` is no date and time",
                "write it like `until 2026-12-01T07:00+09:00`",
            ) from None
        if early != late:
            why = "does not exist" if back != wall.replace(tzinfo=None) else "happens twice"
            fix = "write the offset too, e.g. `+01:00`"
            raise self.bad(*span, f"`{self.text[slice(*span)]}` {why} where the clocks change", fix)
        self.until_text = explicit(early, zone)
        if early <= self.now:
            raise self.bad(
                *span, f"{self.until_text} has passed: it is {explicit(self.now, zone)}", "give a later time"
            )
        return early

    def zone(self, name: str | None, span: tuple[int, int]) -> tzinfo | None:
        """Return the zone called `name`; None (the machine's own) without a name."""
        if not name:
            return None
        fixed = {"Z": 0, "UTC": 0, "GMT": 0, "JST": 540}.get(name.upper())
        if offset := re.fullmatch(r"([+-])([0-9]{2}):?([0-5][0-9])", name, re.ASCII):
            fixed = int(f"{offset[1]}1") * (int(offset[2]) * 60 + int(offset[3]))
        if fixed is not None and abs(fixed) <= 14 * 60:
            return timezone(timedelta(minutes=fixed))
        from zoneinfo import ZoneInfo

        try:
            return ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            raise self.bad(*span, f"`{name}` is no time zone", "write an offset, e.g. +09:00") from None


def explicit(epoch: float, zone: tzinfo | None) -> str:
    """Return a moment with its offset, e.g. `2026-12-01T07:00:00+09:00`."""
    return datetime.fromtimestamp(epoch, zone).astimezone(zone).isoformat(timespec="seconds")
