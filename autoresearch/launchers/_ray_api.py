"""Ray's jobs API over HTTP, by urllib: nothing of Ray is imported.

Tokens come from the environment (RAY_AUTH_TOKEN, or the file that RAY_AUTH_TOKEN_PATH names, or Ray's own
`~/.ray/auth_token`) and go into a header, never into a URL or an argument list.
"""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any, NamedTuple

from autoresearch.errors import Refused, Usage

CALL_S = 15.0
LOCAL = ("127.0.0.1", "localhost", "::1")


class Reply(NamedTuple):
    """An answer of the head: `status` is the HTTP status, 0 when nothing answered. `sent` is False when the
    request surely never arrived."""

    status: int
    text: str
    sent: bool = True

    @property
    def data(self) -> dict[str, Any]:
        """The body as a JSON object, empty when it is none."""
        try:
            found = json.loads(self.text)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


def address_of(settings: Mapping[str, str]) -> str:
    """The dashboard's URL of the plan's RAY_ADDRESS.

    Raises:
        Usage: it is missing, or names something that does not take jobs.
    """
    text = settings.get("RAY_ADDRESS", "").strip().rstrip("/")
    fix = "give the dashboard's address, such as RAY_ADDRESS=http://head:8265"
    if not text or text in ("auto", "local"):
        raise Usage("RAY_ADDRESS", f"{text or 'nothing'!r} is not an address of a Ray head", fix)
    if "://" not in text:
        text = f"http://{text}"
    try:
        parts = urllib.parse.urlsplit(text)
    except ValueError as error:
        raise Usage("RAY_ADDRESS", f"{text!r}: {error}", fix) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Usage("RAY_ADDRESS", f"{parts.scheme}:// does not take jobs", fix)
    if parts.username or parts.password:
        raise Usage("RAY_ADDRESS", "holds a password, which would show in process lists", "use RAY_AUTH_TOKEN")
    return text


def token_of(env: Mapping[str, str]) -> str:
    """Ray's token from where Ray's own client looks, empty when there is none."""
    if env.get("RAY_AUTH_MODE") == "disabled":
        return ""
    if env.get("RAY_AUTH_TOKEN"):
        return env["RAY_AUTH_TOKEN"].strip()
    path = env.get("RAY_AUTH_TOKEN_PATH") or os.path.join(env.get("HOME", "/nonexistent"), ".ray", "auth_token")
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


class Api:
    """The API of one head.

    Args:
        settings: the plan's, for RAY_ADDRESS.
        env: where a token is looked for.
    """

    def __init__(self, settings: Mapping[str, str], env: Mapping[str, str]) -> None:
        self.address = address_of(settings)
        self._headers = {"Content-Type": "application/json"}
        token = token_of(env)
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        host = urllib.parse.urlsplit(self.address).hostname
        proxies = urllib.request.ProxyHandler({}) if host in LOCAL else urllib.request.ProxyHandler()
        self._opener = urllib.request.build_opener(proxies)

    def call(self, method: str, path: str, body: object = None, timeout_s: float = CALL_S) -> Reply:
        """One request; never raises for what the network or the head does."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data=data, headers=self._headers, method=method)
        try:
            try:
                answer = self._opener.open(request, timeout=timeout_s)
            except urllib.error.HTTPError as error:
                answer = error
            with answer:
                return Reply(answer.status, answer.read().decode("utf-8", "replace"))
        except urllib.error.URLError as error:
            refused = isinstance(error.reason, ConnectionRefusedError | OSError) and not isinstance(
                error.reason, TimeoutError | ConnectionResetError
            )
            return Reply(0, str(error.reason), sent=not refused)
        except (OSError, ValueError, http.client.HTTPException) as error:  # a time limit, or a torn answer
            return Reply(0, str(error) or type(error).__name__)

    def job(self, submission_id: str) -> Reply:
        """The job's record: status, driver_exit_code, message, start_time and end_time in ms."""
        return self.call("GET", f"/api/jobs/{urllib.parse.quote(submission_id)}")

    def stop(self, submission_id: str) -> Reply:
        """Ask for the job's end; answers at once, the job may take its time."""
        return self.call("POST", f"/api/jobs/{urllib.parse.quote(submission_id)}/stop")

    def logs(self, submission_id: str) -> str:
        """What the job wrote before its output went to our log; empty when that cannot be read."""
        reply = self.call("GET", f"/api/jobs/{urllib.parse.quote(submission_id)}/logs")
        return str(reply.data.get("logs") or "") if reply.status == 200 else ""


def denied(reply: Reply) -> bool:
    """Did the head want a token that we have not, or another one?"""
    return reply.status in (401, 403)


def refuse_denied(reply: Reply) -> None:
    """Raise Refused when the head does not accept our token."""
    if denied(reply):
        raise Refused("Ray", f"the head answers {reply.status}", "put its token into .env as RAY_AUTH_TOKEN")
