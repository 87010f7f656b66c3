"""Text that is safe in a note: one line, no secret, nothing that could pose as a heading, a fence or an instruction."""

from __future__ import annotations

import re
import time
from typing import Any

from autoresearch import paths, talk

LIMIT = 500
# Invisible characters and those that turn the reading direction: what is read must be what is there.
_UNSEEN = re.compile("[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]")
_MARKUP = re.compile(r"<(?=[!/?A-Za-z])")
# Shapes of well-known access tokens, for what is in no .env.
_TOKENS = (
    r"\b(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|sk-[A-Za-z0-9_-]{20,}"
    r"|AKIA[0-9A-Z]{16}|xox[baprs]-[A-Za-z0-9-]{10,}|AIza[0-9A-Za-z_-]{35})"
)


def clean(text: str, secrets: list[str], limit: int = LIMIT) -> str:
    """Return `text` as one harmless line.

    Args:
        text: whatever a person, a training or a file said.
        secrets: values to mask, see `secrets_of`.
        limit: characters to keep; what is cut off is marked by an ellipsis.
    """
    text = _UNSEEN.sub("", text)
    # Masked before and after the line is joined: a control character inside a secret must not hide it.
    line = talk.one_line(talk.masked(text, secrets))
    line = talk.masked(line, secrets) if secrets else line
    if "_" in line or "-" in line or "A" in line:
        line = re.sub(_TOKENS, "[secret]", line)
    line = _MARKUP.sub("‹", line.replace("`", "'").replace("~~~", "~ ~ ~"))
    return line if len(line) <= limit else line[: limit - 1] + "…"


def quoted(text: str, secrets: list[str], limit: int = LIMIT) -> str:
    """Return `text` cleaned and in double quotes: visibly somebody's words, never a statement of the notes."""
    line = clean(text, secrets, limit).replace('"', "'")
    return f'"{line}"' if line else ""


def public(value: Any, secrets: list[str]) -> Any:
    """Return data whose texts are one line each, without control characters and secrets, for a JSON answer."""
    if isinstance(value, str):
        return talk.masked(talk.one_line(talk.masked(value, secrets)), secrets)
    if isinstance(value, (list, tuple)):
        return [public(item, secrets) for item in value]
    if isinstance(value, dict):
        return {key: public(item, secrets) for key, item in value.items()}
    return value


def event(text: str, secrets: list[str]) -> str:
    """Return the name of an event: cleaned, without the separator of the timeline, and not starting like a block."""
    return clean(text, secrets, 200).replace("|", "/").replace('"', "'").lstrip("#>-*+=~ ") or "noted"


def secrets_of(where: paths.Campaign) -> list[str]:
    """Return the secret values of the repository, also for a verb whose wrapper did not load its .env."""
    from autoresearch import campaign

    return campaign.secret_values(where.repository)


def local_time(epoch: float) -> str:
    """Return epoch seconds in the machine's own zone with its offset: `2026-11-30 20:45:00 +01:00`."""
    text = time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(epoch))
    return f"{text[:-2]}:{text[-2:]}"
