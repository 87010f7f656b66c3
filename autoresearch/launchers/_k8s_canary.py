"""The canary of Kubernetes: a pod without GPUs, made from the head's template, looks for our directories."""

from __future__ import annotations

import json
import re
import secrets
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autoresearch.launchers import Finding
from autoresearch.launchers._k8s_calls import Cluster
from autoresearch.launchers._k8s_manifest import pod_specs

KEPT = ("name", "image", "env", "envFrom", "volumeMounts", "securityContext")
POD_KEPT = ("volumes", "imagePullSecrets", "serviceAccountName", "nodeSelector", "tolerations", "securityContext")


def pod_of(manifest: Mapping[str, Any], name: str, command: str) -> dict[str, Any]:
    """A pod with the head's image, environment and volumes, its command, and hardly any resources."""
    head = next(spec for kind, _, spec in pod_specs(manifest) if kind == "head")
    container = {key: value for key, value in head["containers"][0].items() if key in KEPT}
    container |= {
        "command": ["/bin/sh", "-c", command],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
    }
    spec = {key: value for key, value in head.items() if key in POD_KEPT}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "autoresearch"}},
        "spec": {**spec, "containers": [container], "restartPolicy": "Never", "activeDeadlineSeconds": 1800},
    }


def run_canary(
    cluster: Cluster,
    manifest: Mapping[str, Any],
    paths: Sequence[str],
    secret_keys: Sequence[str],
    wait_s: float,
    stop: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = lambda text: None,
) -> Finding:
    """Run the pod and read its answer.

    Args:
        paths: the tree, then directories that must be writable, as the pods see them.
        stop: true once the canary is not wanted any more.
        say: told how it is.
    """
    tests = [f"test -d {shlex.quote(paths[0])} || echo missing {shlex.quote(paths[0])}"]
    tests += [f"test -w {shlex.quote(path)} || echo missing or read-only {shlex.quote(path)}" for path in paths[1:]]
    tests += [
        f'test -n "${{{key}+set}}" || echo no {key} there'
        for key in secret_keys
        if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key, re.ASCII)
    ]
    name = f"autoresearch-canary-{secrets.token_hex(4)}"
    made = cluster.kubectl(
        "create", "-f", "-", stdin=json.dumps(pod_of(manifest, name, "; ".join([*tests, "echo canary done"])))
    )
    if made.code != 0:
        return Finding("FAIL", "canary pod", made.text, "look at the namespace's quotas and policies")
    try:
        until, phase = time.monotonic() + wait_s, "Pending"
        while time.monotonic() < until and not stop() and phase in ("Pending", "Running"):
            time.sleep(1.0)
            phase = cluster.kubectl("get", "pod", name, "-o", "jsonpath={.status.phase}").out.strip() or phase
            say(f"canary pod: {phase}")
        told = cluster.kubectl("logs", name).out
    finally:
        cluster.kubectl("delete", "pod", name, "--ignore-not-found", "--wait=false")
    bad = [line for line in told.splitlines() if line.startswith(("missing ", "no "))]
    if bad:
        return Finding("FAIL", "canary pod", f"in the pod: {'; '.join(bad)}", "mount SCRATCH there, supply secrets")
    if "canary done" not in told:
        return Finding(
            "FAIL", "canary pod", f"{name} is {phase}, it has not answered", "look at the namespace's events"
        )
    return Finding("ok", "canary pod", f"{name} saw the tree and the directories")
