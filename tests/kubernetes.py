"""A namespace of Kubernetes as the launcher tests see it: the strict double of kubectl and nrl-k8s, and jobs for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from autoresearch.launchers import Job
from tests.launching import make_job

INFRA = """
namespace: team
image: example.org/nemo-rl:1
imagePullSecrets: [pull]
serviceAccount: runner
launch: {entrypoint: "echo replaced ${user:}"}
kuberay:
  training:
    name: ${user:}-shared
    spec:
      headGroupSpec:
        rayStartParams: {num-gpus: "0"}
        template: {spec: {containers: [{name: head, envFrom: [{secretRef: {name: user-secrets}}],
          volumeMounts: [{name: shared, mountPath: SHARED}]}],
          volumes: [{name: shared, persistentVolumeClaim: {claimName: work}}]}}
      workerGroupSpecs:
        - groupName: gpu
          replicas: 2
          template: {spec: {containers: [{name: worker, resources: {limits: {nvidia.com/gpu: "4"}},
            volumeMounts: [{name: shared, mountPath: SHARED}]}],
            resourceClaims: [{name: compute-domain-channel, resourceClaimTemplateName: x},
              {name: roce-channel, resourceClaimTemplateName: y}],
            volumes: [{name: shared, persistentVolumeClaim: {claimName: work}}]}}
"""


def infra_text(shared: Path) -> str:
    return INFRA.replace("SHARED", json.dumps(str(shared)))


class Fake:
    """The double's folder; `job()` makes a job whose tree and logs lie on the shared volume."""

    def __init__(self, root: Path, home: Path) -> None:
        self.root, self.home = root, home
        (root / "infra.yaml").write_text(infra_text(root))
        (root / "recipe.yaml").write_text("{}\n")
        (home / "pod-env").write_text(json.dumps({"API_TOKEN": "on-the-pod"}))

    def job(self, argv: list[str], **more: Any) -> Job:
        settings = {"K8S_INFRA": str(self.root / "infra.yaml"), "GPUS_NEEDED": "4", "NODES": "2"}
        settings.update(more.pop("settings", {}))
        job = make_job(self.root, argv, settings=settings, **more)
        job = job._replace(env={**job.env, "RAY_ADDRESS": "local"})  # as a launch has it
        Path(job.tree, ".git").write_text("gitdir: /somewhere/.git/worktrees/1\n")
        return job

    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.home / "calls").read_text().splitlines()]
