"""Plays kubectl and nrl-k8s from a folder of state; a call it does not know is an error and is written down.

Usage: kubernetes_double.py FOLDER kubectl|nrl-k8s ARG...

In FOLDER: `calls` (all calls), `unknown` (those it does not know), `pod-env` (environment of pods, JSON), `rayjob`
(the one that lives), `status` (the status it has, else what its script noted decides), `down` (nothing answers),
`cluster` (how many looks the RayCluster of a deleted RayJob stays), `dra` (what was made for the claims of pods),
`refuse` (nrl-k8s fails when it applies), `pod` (the canary that lives), `say` (answers by the words of a call, JSON),
`driver-log` (what `job logs` tells), `cut` (after how many bytes its connection is lost, once), `forwards` (processes
of each). A RayJob's entrypoint really runs, by /bin/sh as Ray does it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import yaml
from omegaconf import OmegaConf

OmegaConf.register_new_resolver("user", lambda: "me")
HOME, ME, ARGV = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
MISSING = 'Error from server (NotFound): "x" not found\n'
DRA = {
    "compute-domain-channel": ("computedomains.resource.nvidia.com", "compute-domain-"),
    "roce-channel": ("resourceclaimtemplates.resource.k8s.io", "roce-"),
}
KNOWN = {"secret": ("pull", "user-secrets"), "serviceaccount": ("runner",)}
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no GPUs"}


def note(name: str) -> None:
    with open(HOME / name, "a") as file:
        file.write(json.dumps([ME, *ARGV]) + "\n")


def unknown() -> NoReturn:
    note("unknown")
    sys.exit("error: the double does not know this call")


def answer(text: str = "", code: int = 0, err: str = "") -> NoReturn:
    sys.stdout.write(text)
    sys.stderr.write(err)
    sys.exit(code)


def rayjob() -> dict[str, Any]:
    path = HOME / "rayjob"
    return json.loads(path.read_text()) if path.exists() else {}


def manifest(infra: str) -> dict[str, Any]:
    body = yaml.safe_load(Path(infra).read_text())
    base = yaml.safe_load(Path(body["defaults"]).read_text()) if "defaults" in body else body
    told = {"name": body["kuberay"]["training"]["name"], "entrypoint": body["launch"]["entrypoint"]}
    told = OmegaConf.to_container(OmegaConf.create(told), resolve=True)
    meta, entry = {"name": told["name"], "namespace": base["namespace"]}, told["entrypoint"].strip()
    spec = {"entrypoint": entry, "rayClusterSpec": base["kuberay"]["training"]["spec"]}
    for claim in claims(spec):
        claim["resourceClaimTemplateName"] = f"{DRA[claim['name']][1]}{meta['name']}-training"
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": meta, "spec": spec}


def claims(spec: dict[str, Any]) -> list[dict[str, str]]:
    groups = spec["rayClusterSpec"]["workerGroupSpecs"]
    return [claim for group in groups for claim in group["template"]["spec"].get("resourceClaims") or []]


def dra() -> set[str]:
    path = HOME / "dra"
    return set(path.read_text().split()) if path.exists() else set()


def canary_pod() -> str:
    return (HOME / "pod").read_text() if (HOME / "pod").exists() else ""


def job_logs(ray_id: str, cluster: str) -> NoReturn:
    """Tells the driver's log from its beginning until the job has ended, with a kubectl of its own beside it."""
    made = rayjob()
    told = status(made) if made else {}
    if told.get("jobId") != ray_id or cluster != f"infra.kuberay.training.name={told.get('rayClusterName')}":
        answer(code=1, err="error: no head pod found\n")
    if os.environ.keys() & {"RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"}:
        answer("the log of another cluster\n")
    none = subprocess.DEVNULL
    port_forward = subprocess.Popen(["sleep", "600"], stdin=none, stdout=none, stderr=none)
    with open(HOME / "forwards", "a") as file:
        file.write(f"{os.getpid()} {port_forward.pid}\n")
    cut = int((HOME / "cut").read_text()) if (HOME / "cut").exists() else None
    (HOME / "cut").unlink(missing_ok=True)
    with open(HOME / "driver-log", "rb") as log:
        while True:
            over = status(made)["jobStatus"] != "RUNNING"
            data = log.read(-1 if cut is None else cut - log.tell())
            os.write(1, data)
            if log.tell() == cut or (HOME / "down").exists():
                os.write(1, b"\n[tail error: WebSocket connection closed unexpectedly with close code 1006]\n")
                break
            if over and not data:
                break
            time.sleep(0.05)
    port_forward.kill()
    answer()


def nrl_k8s() -> NoReturn:
    if ARGV[:2] == ["job", "logs"] and ARGV[5:6] == ["--infra"] and ARGV[7:] == ["--role", "training", "-f"]:
        job_logs(ARGV[2], ARGV[4])
    if not Path(ARGV[1]).is_file() and ARGV[0] != "job":
        answer(code=2, err="Error: Invalid value for 'RECIPE': it does not exist.\n")
    if ARGV[:1] == ["check"] and ARGV[2] == "--infra" and len(ARGV) == 4:
        answer("namespace: team\n")
    if ARGV[:1] != ["run"] or ARGV[2] != "--infra":
        unknown()
    if ARGV[4:] == ["--rayjob", "--dry-run"]:
        answer(yaml.safe_dump(manifest(ARGV[3])))
    if ARGV[4:] != ["--rayjob", "--no-wait", "--shutdown", "--ttl", "600"]:
        unknown()
    made = manifest(ARGV[3])
    objects = {f"{DRA[one['name']][0]}/{one['resourceClaimTemplateName']}" for one in claims(made["spec"])}
    (HOME / "dra").write_text("\n".join(sorted(dra() | objects)))
    if (HOME / "refuse").exists():
        answer(code=1, err="error: rayjob apply failed\n")
    pid = 0
    if not (HOME / "status").exists():
        none = subprocess.DEVNULL
        env = {**os.environ, **json.loads((HOME / "pod-env").read_text())}
        argv = ["/bin/sh", "-c", made["spec"]["entrypoint"]]
        pid = subprocess.Popen(argv, start_new_session=True, stdin=none, stdout=none, stderr=none, env=env).pid
    (HOME / "rayjob").write_text(json.dumps({"name": made["metadata"]["name"], "pid": pid, "infra": ARGV[3]}))
    answer("[run --rayjob] applying RayJob\n")


def status(job: dict[str, Any]) -> dict[str, str]:
    if (HOME / "status").exists():
        return json.loads((HOME / "status").read_text())
    noted = Path(job["infra"]).parent / "k8s.state"
    lines = noted.read_text().splitlines() if noted.exists() else []
    ended = [line.split() for line in lines if line.startswith(("ended", "failed"))]
    if not ended:
        return {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING", "rayClusterName": "c"}
    if ended[-1][0] == "ended" and ended[-1][3] == "0":
        return {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}
    return {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED"}


def kubectl(argv: list[str]) -> NoReturn:
    job = rayjob()
    told = json.loads((HOME / "say").read_text()) if (HOME / "say").exists() else {}
    if " ".join(argv) in told:
        answer(told[" ".join(argv)])
    match argv:
        case ["auth", "can-i", "create", "rayjobs.ray.io"]:
            answer("yes\n")
        case ["get", "pvc", name, "-o", "jsonpath={.status.phase}"]:
            answer(*(("Bound",) if name == "work" else ("", 1, MISSING)))
        case ["get", ("secret" | "serviceaccount") as kind, name, "-o", "name"]:
            answer(*((f"{kind}/{name}\n",) if name in KNOWN[kind] else ("", 1, MISSING)))
        case ["get", "secret", name, "-o", template] if template.startswith("go-template={{range $key"):
            answer("API_TOKEN\n" if name == "user-secrets" else "")
        case ["get", "rayjobs.ray.io", name, "-o", "json"]:
            answer(*((json.dumps({"status": status(job)}),) if job.get("name") == name else ("", 1, MISSING)))
        case ["get", "rayclusters.ray.io", "-l", label, "-o", "name"] if label.startswith(
            "ray.io/originated-from-cr-name="
        ):
            looks = int((HOME / "cluster").read_text()) if (HOME / "cluster").exists() else 0
            if looks and not job:
                (HOME / "cluster").write_text(str(looks - 1))
            answer("raycluster.ray.io/left\n" if looks else "")
        case ["delete", "rayjobs.ray.io", name, "--ignore-not-found", "--wait=false"]:
            if job.get("name") == name:
                if job["pid"]:
                    subprocess.run(["kill", "-TERM", str(job["pid"])], stderr=subprocess.DEVNULL, check=False)
                (HOME / "rayjob").unlink()
            answer()
        case ["delete", kind, name, "--ignore-not-found", "--wait=false"] if kind in dict(DRA.values()):
            (HOME / "dra").write_text("\n".join(sorted(dra() - {f"{kind}/{name}"})))
            answer()
        case ["get", kind, name, "--ignore-not-found", "-o", "name"] if kind in dict(DRA.values()):
            answer(f"{kind}/{name}\n" if f"{kind}/{name}" in dra() else "")
        case ["get", "pods", "-l", _, "-o", "json"]:
            pod = {"metadata": {"name": "w"}, "status": {"conditions": [UNSCHEDULABLE]}}
            answer(json.dumps({"items": [pod]}))
        case ["create", "-f", "-"]:
            made = json.load(sys.stdin)
            container = made["spec"]["containers"][0]
            assert "nvidia.com/gpu" not in json.dumps(container)
            env = {**os.environ, **json.loads((HOME / "pod-env").read_text())}
            done = subprocess.run(container["command"], capture_output=True, text=True, check=False, env=env)
            (HOME / "canary").write_text(done.stdout)
            (HOME / "pod").write_text(made["metadata"]["name"])
            answer("pod/x created\n")
        case ["get", "pod", name, "-o", "jsonpath={.status.phase}"] if name == canary_pod():
            answer("Succeeded")
        case ["logs", name] if name == canary_pod():
            answer((HOME / "canary").read_text())
        case ["delete", "pod", name, "--ignore-not-found", "--wait=false"] if name == canary_pod():
            (HOME / "pod").unlink()
            answer()
    unknown()


def main() -> NoReturn:
    note("calls")
    if (HOME / "down").exists():
        answer(code=1, err="Unable to connect to the server: dial tcp: connection refused\n")
    if ME == "nrl-k8s":
        nrl_k8s()
    if ARGV[:2] != ["-n", "team"] or not ARGV[2].startswith("--request-timeout="):
        unknown()
    kubectl(ARGV[3:])


try:
    main()
except BrokenPipeError:  # whoever listened was killed
    raise
except Exception:
    note("unknown")
    raise
