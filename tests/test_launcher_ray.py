"""The Ray launcher against a head played by an HTTP server that fails on requests it does not know."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from autoresearch.errors import Refused, TryAgain, Usage
from autoresearch.launchers import Job, ray
from autoresearch.launchers._ray_api import Api, address_of, token_of
from autoresearch.launchers._waiting import Clock, Limits
from autoresearch.launchers.ray import Ray, RayEngine
from tests.launching import SECRET, Recorder, make_job


class Head:
    """`routes` maps (method, path) to a function of the body that returns (status, answer)."""

    def __init__(self) -> None:
        self.routes: dict[tuple[str, str], Callable[[Any], tuple[int, Any]]] = {}
        self.seen: list[tuple[str, str, Any, str]] = []
        self.unknown: list[tuple[str, str]] = []
        head = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                body = json.loads(raw) if raw else None
                head.seen.append((self.command, self.path, body, self.headers.get("Authorization", "")))
                route = head.routes.get((self.command, self.path))
                if route is None:
                    head.unknown.append((self.command, self.path))
                    status, told = 599, "the double does not know this request"
                else:
                    status, told = route(body)
                if status == 0:  # take it and say nothing
                    self.connection.close()
                    return
                data = (told if isinstance(told, str) else json.dumps(told)).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = answer

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def head() -> Iterator[Head]:
    played = Head()
    yield played
    played.server.shutdown()
    played.server.server_close()
    assert played.unknown == []


@pytest.fixture
def job(head: Head, tmp_path: Path) -> Job:
    return make_job(tmp_path, ["python", "train.py"], settings={"RAY_ADDRESS": head.address})


def engine(head: Head, job: Job) -> RayEngine:
    return RayEngine(Api(job.settings, {}), "x", ray.state_path(job), Clock())


@pytest.mark.parametrize(
    ("record", "phase", "cause", "code"),
    [
        ({"status": "PENDING"}, "pending", "", None),
        ({"status": "RUNNING", "start_time": 1000}, "running", "", None),
        ({"status": "SUCCEEDED", "driver_exit_code": 0}, "ended", "ok", 0),
        ({"status": "FAILED", "driver_exit_code": 3}, "ended", "exit 3", 3),
        ({"status": "FAILED", "driver_exit_code": 137}, "ended", "signal 9", 137),
        ({"status": "FAILED", "driver_exit_code": -9}, "ended", "signal 9", 137),
        ({"status": "FAILED", "message": "runtime env\nfailed"}, "ended", "launcher", None),
        ({"status": "STOPPED"}, "ended", "cancelled", None),
    ],
)
def test_what_the_head_says(head: Head, job: Job, record: Any, phase: str, cause: str, code: int | None) -> None:
    head.routes["GET", "/api/jobs/x"] = lambda body: (200, record)
    sight = engine(head, job).look()
    assert (sight.phase, sight.cause, sight.exit_code) == (phase, cause, code)


@pytest.mark.parametrize("code", [143, None])
def test_a_pending_job_that_ray_places_after_a_stop_was_stopped(head: Head, job: Job, code: int | None) -> None:
    record = {"status": "FAILED", "driver_exit_code": code, "message": "Traceback", "start_time": 1000}
    head.routes["GET", "/api/jobs/x"] = lambda body: (200, record)
    head.routes["POST", "/api/jobs/x/stop"] = lambda body: (200, {"stopped": True})
    one = engine(head, job)
    one.end(False)
    sight = one.look()
    assert (sight.cause, sight.started_at, sight.detail) == ("cancelled", None, "")


def test_gone_and_away_and_the_runs_own_notes(head: Head, job: Job) -> None:
    head.routes["GET", "/api/jobs/x"] = lambda body: (404, "no such job")
    assert engine(head, job).look().phase == "gone"
    for status in (500, 502, 401):
        head.routes["GET", "/api/jobs/x"] = lambda body, status=status: (status, "trouble")
        assert engine(head, job).look().phase == "away"
    Path(ray.state_path(job)).write_text("began 100.0 7 n\nended 160.0 7 4\n")
    assert engine(head, job).look().cause == "exit 4"
    Path(ray.state_path(job)).write_text("began 100.0 7 n\nstopped 150.0 7 1\nended 160.0 7 143\n")
    assert engine(head, job).look().cause == "launcher"
    head.routes["GET", "/api/jobs/x"] = lambda body: (502, "trouble")
    Path(ray.state_path(job)).write_text("began 100.0 7 n\nended 160.0 7 0\n")
    sight = RayEngine(Api(job.settings, {}), "x", ray.state_path(job), Clock(now=lambda: 161.0)).look()
    assert (sight.phase, sight.finished_at) == ("away", 160.0)


def test_what_is_submitted(head: Head, job: Job) -> None:
    head.routes["POST", "/api/jobs/"] = lambda body: (200, {"submission_id": body["submission_id"]})
    recorder = Recorder()
    env = {**job.env, "RAY_AUTH_TOKEN": "t0ken-of-the-head", "RAY_ADDRESS": "local"}
    exports = {**job.exports, "RAY_ADDRESS": "local", "RAY_TMPDIR": "/tmp/x"}
    made = job._replace(env=env, exports=exports, settings={**job.settings, "RAY_GPUS": "1"}, cap_s=5.0)
    job_id = Ray().submit(made._replace(secret_keys=("API_TOKEN", "RAY_AUTH_TOKEN")), recorder.watch())
    assert recorder.ids == [job_id]
    _, _, body, authorization = head.seen[0]
    assert authorization == "Bearer t0ken-of-the-head"
    assert body == {
        "entrypoint": f"exec bash {job.logs}/ray.sh",
        "submission_id": job_id,
        "runtime_env": {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "8"}},
        "metadata": {"job_name": "camp-idea"},
        "entrypoint_num_gpus": 1.0,
    }
    script = Path(ray.script_path(job)).read_text()
    assert SECRET not in script
    assert "t0ken" not in script
    assert "${API_TOKEN+set}" in script
    assert "RAY_AUTH_TOKEN" not in script
    assert "RAY_ADDRESS" not in script


def test_an_answer_that_got_lost_starts_nothing_twice(head: Head, job: Job) -> None:
    taken: list[str] = []

    def post(body: Any) -> tuple[int, Any]:
        taken.append(body["submission_id"])
        head.routes["GET", f"/api/jobs/{taken[0]}"] = lambda body: (200, {"status": "PENDING"})
        return (0, "") if len(taken) == 1 else (500, "already exists")

    head.routes["POST", "/api/jobs/"] = post
    recorder = Recorder()
    assert Ray().submit(job, recorder.watch()) == taken[0]
    assert taken == recorder.ids
    assert Ray().submit(job, recorder.watch()) == taken[0]  # a recovery that does not know the id
    assert len(taken) == 1


@pytest.mark.parametrize(("status", "error"), [(401, Refused), (400, Refused), (503, TryAgain)])
def test_a_head_that_says_no(head: Head, job: Job, status: int, error: type[Exception]) -> None:
    def post(body: Any) -> tuple[int, Any]:
        head.routes["GET", f"/api/jobs/{body['submission_id']}"] = lambda body: (404, "unknown")
        return status, "no"

    head.routes["POST", "/api/jobs/"] = post
    with pytest.raises(error):
        Ray(clock=Clock(sleep=lambda seconds: None)).submit(job, Recorder().watch())


@pytest.mark.parametrize("told", [b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", b"nothing of HTTP\r\n\r\n"])
def test_an_answer_that_is_torn_is_none(job: Job, told: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            caller, _ = server.accept()
            with caller:
                caller.recv(1 << 16)
                caller.sendall(told)

        threading.Thread(target=answer, daemon=True).start()
        api = Api({"RAY_ADDRESS": f"http://127.0.0.1:{server.getsockname()[1]}"}, {})
        assert RayEngine(api, "x", ray.state_path(job), Clock()).look().phase == "away"


def test_nobody_listens(job: Job) -> None:
    settings = {"RAY_ADDRESS": "http://127.0.0.1:9"}
    with pytest.raises(TryAgain, match="nothing was submitted"):
        Ray().submit(job._replace(settings=settings), Recorder().watch())
    assert [finding.level for finding in Ray().check(settings, 0, 1)] == ["FAIL"]


def test_a_pending_job_that_cannot_be_stopped(head: Head, job: Job) -> None:
    head.routes["GET", "/api/jobs/x"] = lambda body: (200, {"status": "PENDING"})
    head.routes["POST", "/api/jobs/x/stop"] = lambda body: (200, {"stopped": True})
    now = [0.0]
    looked = RayEngine(Api(job.settings, {}), "x", ray.state_path(job), Clock(monotonic=lambda: now[0]))
    looked.end(False)
    assert looked.look().phase == "pending"
    now[0] = 7.0
    assert (looked.look().phase, looked.look().cause) == ("ended", "cancelled")
    assert Path(ray.state_path(job) + ".cancelled").exists()


def test_check_and_describe(head: Head) -> None:
    settings = {"RAY_ADDRESS": head.address}
    head.routes["GET", "/api/jobs/"] = lambda body: (403, "token")
    assert Ray().check(settings, 0, 1)[0].what == "Ray token"
    head.routes["GET", "/api/jobs/"] = lambda body: (200, [])
    head.routes["GET", "/api/version"] = lambda body: (200, {"ray_version": "2.56.1"})
    head.routes["GET", "/api/cluster_status?format=1"] = lambda body: (200, {"data": " 0.0/16.0 GPU\n 0/8 CPU"})
    assert [finding.level for finding in Ray().check(settings, 8, 2)] == ["ok", "ok"]
    assert Ray().check(settings, 8, 3)[-1].level == "FAIL"
    head.routes["GET", "/api/jobs/y"] = lambda body: (200, {"status": "PENDING", "message": "waits\nfor GPUs"})
    assert Ray().describe("y", settings) == "job y: PENDING (waits for GPUs)"


@pytest.mark.parametrize("settings", [{"RAY_GPUS": "two"}, {"RAY_CPUS": "-1"}, {"RAY_GPUS": "nan"}])
def test_what_is_no_number_is_found_before_the_launch(head: Head, settings: dict[str, str]) -> None:
    (found,) = Ray().check({"RAY_ADDRESS": head.address, **settings}, 0, 1)
    assert (found.level, found.what) == ("FAIL", next(iter(settings)))


def test_what_ray_kept_comes_home(head: Head, job: Job) -> None:
    head.routes["GET", "/api/jobs/x"] = lambda body: (200, {"status": "FAILED", "message": "no runtime env"})
    head.routes["GET", "/api/jobs/x/logs"] = lambda body: (200, {"logs": "first\n"})
    outcome = Ray(Limits()).follow(job, "x", Recorder().watch())
    assert outcome.end_cause == "launcher"
    assert Path(job.log_path).read_text() == "first\nno runtime env\n"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("head:8265", "http://head:8265"),
        ("https://x/ray/", "https://x/ray"),
        ("ray://head:10001", None),
        ("auto", None),
        ("local", None),
        ("", None),
        ("http://me:pass@head:8265", None),
        ("http://[::1", None),
    ],
)
def test_addresses(text: str, address: str | None) -> None:
    if address is None:
        with pytest.raises(Usage, match="RAY_ADDRESS") as refusal:
            address_of({"RAY_ADDRESS": text})
        assert "pass@" not in str(refusal.value)
    else:
        assert address_of({"RAY_ADDRESS": text}) == address


def test_tokens(tmp_path: Path) -> None:
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("from-home\n")
    (tmp_path / "token").write_text("from-file\n")
    env = {"HOME": str(tmp_path)}
    assert token_of(env) == "from-home"
    assert token_of({**env, "RAY_AUTH_TOKEN_PATH": str(tmp_path / "token")}) == "from-file"
    assert token_of({**env, "RAY_AUTH_TOKEN": "direct"}) == "direct"
    assert token_of({**env, "RAY_AUTH_MODE": "disabled"}) == ""
