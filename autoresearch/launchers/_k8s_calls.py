"""kubectl and nrl-k8s as programs: how they are called and what their answers mean.

Only names of secrets and of their keys are ever asked for, never a value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from autoresearch.launchers import Finding
from autoresearch.launchers._calls import Answer, call
from autoresearch.launchers._k8s_manifest import Claims

KUBECTL_S = 30.0
NRL_S = 180.0
MISSING = re.compile(r"\(NotFound\)|not found", re.IGNORECASE)
# Ray's client obeys these above the address that nrl-k8s gives it: it would read the log of some other cluster.
ELSEWHERE = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS")
KEYS = '{{range $key, $value := .data}}{{$key}}{{"\\n"}}{{end}}'


class Found(NamedTuple):
    """An object of the cluster; `data` is None when there is none or the cluster did not answer (`away`)."""

    data: dict[str, Any] | None
    away: str = ""


class Cluster:
    """One namespace.

    Args:
        namespace: where everything of ours lives.
        env: the environment of the programs (KUBECONFIG, PATH).
        nrl: the program `nrl-k8s`.
    """

    def __init__(self, namespace: str, env: Mapping[str, str], nrl: str = "nrl-k8s") -> None:
        self.namespace, self.nrl = namespace, nrl
        kept = {key: value for key, value in env.items() if key not in ELSEWHERE}
        self.env = {**kept, "LC_ALL": "C", "NO_COLOR": "1"}

    def kubectl(self, *words: str, stdin: str = "", timeout_s: float = KUBECTL_S) -> Answer:
        """Run kubectl in the namespace."""
        argv = ["kubectl", "-n", self.namespace, f"--request-timeout={timeout_s * 0.8:.0f}s", *words]
        return call(argv, timeout_s=timeout_s, env=self.env, stdin=stdin)

    def run(self, *words: str, cwd: str | None = None) -> Answer:
        """Run nrl-k8s."""
        return call([self.nrl, *words], timeout_s=NRL_S, env=self.env, cwd=cwd)

    def get(self, kind: str, name: str) -> Found:
        """One object."""
        answer = self.kubectl("get", kind, name, "-o", "json")
        if answer.code != 0:
            return Found(None, "" if MISSING.search(answer.err) else answer.text)
        try:
            return Found(json.loads(answer.out))
        except ValueError:
            return Found(None, "kubectl gave no JSON")

    def clusters_of(self, rayjob: str) -> list[str] | None:
        """Names of the RayClusters that a RayJob made, None when the cluster does not answer."""
        label = f"ray.io/originated-from-cr-name={rayjob}"
        answer = self.kubectl("get", "rayclusters.ray.io", "-l", label, "-o", "name")
        return answer.out.split() if answer.code == 0 else None

    def delete(self, rayjob: str) -> None:
        """Delete one RayJob, which takes its cluster and pods along; nothing else."""
        self.kubectl("delete", "rayjobs.ray.io", rayjob, "--ignore-not-found", "--wait=false")

    def delete_claimed(self, objects: Sequence[str]) -> list[str]:
        """Delete what nrl-k8s made for the claims of one RayJob (`KIND/NAME`); returns what is still there."""
        left = []
        for kind, _, name in (entry.partition("/") for entry in objects):
            self.kubectl("delete", kind, name, "--ignore-not-found", "--wait=false")
            found = self.kubectl("get", kind, name, "--ignore-not-found", "-o", "name")
            if found.code != 0 or found.out.strip():
                left.append(f"{kind}/{name}")
        return left

    def pods_trouble(self, raycluster: str) -> str:
        """Why pods of a cluster do not run, in a few words; empty when there is nothing to say."""
        if not raycluster:
            return ""
        answer = self.kubectl("get", "pods", "-l", f"ray.io/cluster={raycluster}", "-o", "json")
        if answer.code != 0:
            return ""
        try:
            pods = json.loads(answer.out).get("items") or []
        except ValueError:
            return ""
        for pod in pods:
            status = pod.get("status") or {}
            for state in status.get("containerStatuses") or []:
                waiting = (state.get("state") or {}).get("waiting") or {}
                if waiting.get("reason"):
                    return f"{waiting['reason']} in {pod['metadata']['name']}"
            for condition in status.get("conditions") or []:
                if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                    return f"{condition.get('reason')}: {str(condition.get('message', ''))[:120]}"
        return ""


def present(cluster: Cluster, wanted: Claims, needs: Sequence[str]) -> list[Finding]:
    """Look whether everything that the pods refer to is there, and whether the secrets hold the keys needed."""
    findings = []
    allowed = cluster.kubectl("auth", "can-i", "create", "rayjobs.ray.io")
    if allowed.out.strip() != "yes":
        why = allowed.text if allowed.code not in (0, 1) else "may not create RayJobs"
        return [Finding("FAIL", f"namespace {cluster.namespace}", why, "look at: kubectl auth can-i --list")]
    for kind, names in (("pvc", wanted.volumes), ("secret", wanted.secrets), ("serviceaccount", wanted.accounts)):
        for name in names:
            answer = cluster.kubectl("get", kind, name, "-o", "jsonpath={.status.phase}" if kind == "pvc" else "name")
            if answer.code != 0:
                findings.append(Finding("FAIL", f"{kind} {name}", answer.text, f"create it in {cluster.namespace}"))
            elif kind == "pvc" and answer.out.strip() != "Bound":
                findings.append(Finding("FAIL", f"pvc {name}", f"is {answer.out.strip()}, not Bound", ""))
    supplied = set(wanted.supplied)
    for name in (*wanted.secrets, *wanted.optional_secrets):
        supplied.update(cluster.kubectl("get", "secret", name, "-o", f"go-template={KEYS}").out.split())
    missing = [key for key in needs if key not in supplied]
    if missing:
        why = f"no secret of the pods holds {', '.join(missing)}"
        findings.append(
            Finding("FAIL", "secrets", why, "add them to the user's secret, or name what is needed in SECRETS")
        )
    return findings or [Finding("ok", f"namespace {cluster.namespace}", "claims, secrets and accounts are there")]
