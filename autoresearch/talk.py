"""What a person or an agent reads: lines to stdout and stderr, questions, tables. Control characters never pass."""

from __future__ import annotations

import re
import sys

# C0 and C1 controls but tab and newline: a training's text must not move the cursor or pose as ours.
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f-\x9f]")

SHORTEST = 6  # characters of a secret, of one of its lines or of its beginning, that are worth masking
_CUT = re.compile(r"\.{3,}|…")

_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")  # RFC 3986


def plain(text: str) -> str:
    """Return `text` without escape sequences and control characters (tab and newline stay)."""
    return _CONTROL.sub("", text)


def one_line(text: str, limit: int = 0) -> str:
    """Return `text` as one line without control characters, cut to `limit` characters when given."""
    # Nearly every text is one already: printable, with single blanks inside.
    is_one = text.isprintable() and "  " not in text and text == text.strip()
    line = text if is_one else " ".join(plain(text).split())
    return line if not limit or len(line) <= limit else line[: limit - 1] + "…"


def masked(text: str, secrets: list[str]) -> str:
    """Return `text` with every secret value replaced, also URL-encoded, in base64, or where it is cut off."""
    forms = {form for secret in secrets if secret for form in _forms(secret)}
    found = {form for form in forms if form in text}
    if found:
        shapes = "|".join(re.escape(form) for form in sorted(found, key=len, reverse=True))
        text = re.sub(shapes, "[secret]", text)
    if "..." in text or "…" in text:
        for form in forms:
            if form[:SHORTEST] in text:
                text = _without_starts(text, form)
    return text


def _without_starts(text: str, form: str) -> str:
    """Replace the beginning of a secret right before the mark of a cut: a line was shortened in the middle of it."""
    out, done = [], 0
    for mark in _CUT.finditer(text):
        body = text[done : mark.start()]
        for length in range(min(len(form), len(body)), SHORTEST - 1, -1):
            if body.endswith(form[:length]):
                body = f"{body[:-length]}[secret]"
                break
        out += [body, mark[0]]
        done = mark.end()
    return "".join([*out, text[done:]])


def _forms(secret: str) -> tuple[str, ...]:
    """Return a secret as it may stand in a text: plain, in JSON, URL-encoded, in base64 with and without its padding.

    A private key has several lines, which a log shows, and we join, one by one.

    By hand, since urllib.parse and base64 take 2 ms to load.
    """
    from binascii import b2a_base64

    raw = secret.encode("utf-8", "surrogateescape")
    quoted = "".join(chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in raw)
    encoded = b2a_base64(raw, newline=False).decode("ascii")
    escaped = secret.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    lines = [line for line in map(str.strip, secret.split("\n")) if len(line) >= SHORTEST] if "\n" in secret else []
    return secret, quoted, escaped, encoded, encoded.rstrip("="), *lines


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
