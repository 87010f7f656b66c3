"""What a person or an agent reads: lines to stdout and stderr, questions, tables. Control characters never pass."""

from __future__ import annotations

import re
import sys

# C0 and C1 controls but tab and newline: a training's text must not move the cursor or pose as ours.
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain(text: str) -> str:
    """Return `text` without escape sequences and control characters (tab and newline stay)."""
    return _CONTROL.sub("", text)


def one_line(text: str, limit: int = 0) -> str:
    """Return `text` as one line without control characters, cut to `limit` characters when given."""
    line = " ".join(plain(text).split())
    return line if not limit or len(line) <= limit else line[: limit - 1] + "…"


def masked(text: str, secrets: list[str]) -> str:
    """Return `text` with every secret value, also URL-encoded or base64, replaced."""
    if not any(secrets):
        return text
    import base64
    from urllib.parse import quote

    forms = set()
    for secret in secrets:
        if secret:
            encoded = base64.b64encode(secret.encode()).decode()
            forms |= {secret, quote(secret, safe=""), encoded, encoded.rstrip("=")}
    pattern = "|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True))
    return re.sub(pattern, "[secret]", text)


def out(text: str = "") -> None:
    """Print data for the caller."""
    print(text)


def note(text: str) -> None:
    """Say something to the person; stdout stays data."""
    print(f"autoresearch: {text}", file=sys.stderr, flush=True)


def confirmed(question: str) -> bool:
    """Return the answer to a yes/no question; no terminal means no, never yes."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def table(rows: list[list[str]], headers: list[str]) -> str:
    """Return a table; numbers stay as they are written (number parsing turns an id 1234e56 into a float)."""
    from tabulate import tabulate

    return str(tabulate(rows, headers=headers, disable_numparse=True))


def pairs(items: list[tuple[str, str]]) -> str:
    """Return `name  value` lines with aligned values."""
    width = max((len(name) for name, _ in items), default=0)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in items)


def size(count: float) -> str:
    """Return bytes as people read them: `1.5 MiB`, `12.3 GiB`."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"
