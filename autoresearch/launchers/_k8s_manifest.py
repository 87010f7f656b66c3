"""What goes into an infra file for nrl-k8s, and what its dry run says about the job before it is launched.

In RayJob mode only `infra.launch.entrypoint` reaches the pods: neither the recipe argument nor overrides do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from autoresearch.launchers import Finding

LONGEST_NAME = 47  # KubeRay's limit for the name of a RayJob
GPU = "nvidia.com/gpu"
CLAIMS = {  # of nrl-k8s: what it makes for a claim of that name, and how it calls it
    "compute-domain-channel": ("computedomains.resource.nvidia.com", "compute-domain-"),
    "roce-channel": ("resourceclaimtemplates.resource.k8s.io", "roce-"),
}


def rayjob_name(job_id: str, token: str) -> str:
    """A Kubernetes name that is readable and unique: lower case, dashes, at most 47 characters, a letter first."""
    plain = re.sub(r"[^a-z0-9]+", "-", job_id.lower()).strip("-")
    if not plain[:1].isalpha():
        plain = f"r-{plain}"
    return f"{plain[: LONGEST_NAME - len(token) - 1].rstrip('-')}-{token}"


def escaped(text: str) -> str:
    r"""`text` so that OmegaConf gives it back unchanged: `${` becomes `\${`, backslashes before it are doubled."""
    return re.sub(r"(\\*)\$\{", lambda found: found[1] * 2 + r"\${", text)


def entrypoint(script: str, token: str) -> str:
    """A script for bash as the one command that Ray starts with /bin/sh; neither end is blank (nrl-k8s strips)."""
    return f"exec bash -s <<'AUTORESEARCH-{token}'\n{script.strip()}\nAUTORESEARCH-{token}"


def infra_file(base: str, wrapped: bool, name: str, command: str, namespace: str) -> str:
    """The text of an infra file that inherits from the user's and changes what is the attempt's.

    Args:
        base: absolute path of the user's infra file.
        wrapped: that file has its content under a key `infra`.
        name: the unique name of the RayJob and of what is made for it.
        command: the entrypoint, not yet escaped.
        namespace: empty to leave it as it is.
    """
    import yaml

    body: dict[str, Any] = {"launch": {"entrypoint": escaped(command)}, "kuberay": {"training": {"name": name}}}
    if namespace:
        body["namespace"] = namespace
    content = {"defaults": base, **({"infra": body} if wrapped else body)}
    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=False, width=10**9))


class Claims(NamedTuple):
    """What a manifest refers to in its namespace."""

    volumes: tuple[str, ...]
    secrets: tuple[str, ...]  # that must exist
    optional_secrets: tuple[str, ...]
    accounts: tuple[str, ...]
    supplied: tuple[str, ...]  # variables that come from a secret's key by name


def parse(text: str) -> dict[str, Any]:
    """The manifest of a dry run, empty when that is not a mapping."""
    import yaml

    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        return {}
    return found if isinstance(found, dict) else {}


def pod_specs(manifest: Mapping[str, Any]) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Each kind of pod: its name (`head` or the worker group's), how many, its spec."""
    cluster = (manifest.get("spec") or {}).get("rayClusterSpec") or {}
    head = ((cluster.get("headGroupSpec") or {}).get("template") or {}).get("spec")
    if isinstance(head, dict):
        yield "head", 1, head
    for group in cluster.get("workerGroupSpecs") or []:
        spec = ((group.get("template") or {}).get("spec")) or {}
        yield str(group.get("groupName", "workers")), int(group.get("replicas") or 0), spec


def gpus_of(spec: Mapping[str, Any]) -> int:
    """GPUs that one pod of that spec asks for."""
    total = 0
    for container in spec.get("containers") or []:
        resources = container.get("resources") or {}
        asked = (resources.get("limits") or {}).get(GPU) or (resources.get("requests") or {}).get(GPU) or 0
        total += int(asked)
    return total


def check_gpus(manifest: Mapping[str, Any], gpus_needed: int, nodes: int) -> Finding:
    """Do the pods have the GPUs that the recipe counts on? nrl-k8s itself does not compare them."""
    pods = [(gpus_of(spec), count) for _, count, spec in pod_specs(manifest) if gpus_of(spec)]
    each, count = sorted({gpus for gpus, _ in pods}), sum(count for _, count in pods)
    have = f"{count} pods with {'/'.join(map(str, each)) or 'no'} GPUs"
    if gpus_needed and (each != [gpus_needed] or count != max(nodes, 1)):
        wants = f"the recipe wants {max(nodes, 1)} x {gpus_needed}"
        return Finding("FAIL", "GPUs per pod", f"{have}, {wants}", "make the infra file and the recipe agree")
    return Finding("ok", "GPUs per pod", have)


def mounts(spec: Mapping[str, Any], parts: bool) -> list[str]:
    """Paths of a pod that outlive it: volume claims and directories of the node, not empty or secret volumes.

    Args:
        parts: count mounts of a part of a volume (subPath) too: whose path here is only known by K8S_PATHS.
    """
    shared = {
        volume.get("name")
        for volume in spec.get("volumes") or []
        if any(volume.get(kind) for kind in ("persistentVolumeClaim", "hostPath", "nfs", "csi"))
    }
    return [
        str(mount.get("mountPath", "")).rstrip("/")
        for container in (spec.get("containers") or [])[:1]
        for mount in container.get("volumeMounts") or []
        if mount.get("name") in shared and (parts or not mount.get("subPath")) and not mount.get("readOnly")
    ]


def carries(manifest: Mapping[str, Any], paths: Sequence[str], mapped: bool = False) -> Finding:
    """Can the pods see the tree with the commit that is tested? An image or an upload cannot carry it."""
    for kind, _, spec in pod_specs(manifest):
        have = mounts(spec, mapped)
        for path in paths:
            if not any(path == mount or path.startswith(mount + "/") for mount in have):
                return Finding(
                    "FAIL",
                    "code on the pods",
                    f"{kind} pods do not mount {path} (they mount {', '.join(have) or 'nothing shared'})",
                    "put SCRATCH on a shared volume that the pods mount, or map it with K8S_PATHS=/here=/there",
                )
    return Finding("ok", "code on the pods", "the attempt's tree lies on a volume that all pods mount")


def claims(manifest: Mapping[str, Any]) -> Claims:
    """Volume claims, secrets and service accounts that have to exist."""
    volumes, secrets, optional, accounts, supplied = (set[str]() for _ in range(5))
    for _, _, spec in pod_specs(manifest):
        accounts.update([spec["serviceAccountName"]] if spec.get("serviceAccountName") else [])
        secrets.update(entry["name"] for entry in spec.get("imagePullSecrets") or [] if entry.get("name"))
        for volume in spec.get("volumes") or []:
            claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            volumes.update([claim] if claim else [])
            secret = volume.get("secret") or {}
            (optional if secret.get("optional") else secrets).update(
                [secret["secretName"]] if secret.get("secretName") else []
            )
        for container in spec.get("containers") or []:
            for entry in container.get("envFrom") or []:
                ref = entry.get("secretRef") or {}
                (optional if ref.get("optional") else secrets).update([ref["name"]] if ref.get("name") else [])
            for entry in container.get("env") or []:
                ref = (entry.get("valueFrom") or {}).get("secretKeyRef") or {}
                if ref.get("name"):
                    (optional if ref.get("optional") else secrets).add(ref["name"])
                    supplied.add(str(entry.get("name")))
    return Claims(*(tuple(sorted(found)) for found in (volumes, secrets, optional, accounts, supplied)))


def claimed(manifest: Mapping[str, Any], name: str) -> list[str]:
    """What nrl-k8s makes beside a RayJob of that name for the claims of its pods, as `KIND/NAME` of kubectl.

    It takes them away only when it waits for the end itself.
    """
    found = []
    for _, _, spec in pod_specs(manifest):
        for claim in spec.get("resourceClaims") or []:
            kind, prefix = CLAIMS.get(str(claim.get("name")), ("", ""))
            if kind and claim.get("resourceClaimTemplateName") == f"{prefix}{name}-training":
                found.append(f"{kind}/{prefix}{name}-training")
    return sorted(set(found))


def mapping(text: str) -> list[tuple[str, str]]:
    """K8S_PATHS (`/here=/there /a=/b`) as pairs, the longest prefix first."""
    pairs = [tuple(word.split("=", 1)) for word in text.split() if "=" in word]
    return sorted(((a.rstrip("/"), b.rstrip("/")) for a, b in pairs), key=lambda pair: -len(pair[0]))


def on_pod(path: str, pairs: Sequence[tuple[str, str]]) -> str:
    """A path as the pods see it."""
    for here, there in pairs:
        if path == here or path.startswith(here + "/"):
            return there + path[len(here) :]
    return path


def told_on_pod(text: str, pairs: Sequence[tuple[str, str]]) -> str:
    """A word of a command or a variable with every path in it as the pods see it: `key=/here/x`, `/here/a:/here/b`."""
    known = dict(pairs)
    here = "|".join(re.escape(path) for path, _ in pairs if path)
    if not here:
        return on_pod(text, pairs)
    return re.sub(rf"(?<![\w./~-])(?:{here})(?=[/:,;'\"\s\])}}]|$)", lambda found: known[found[0]], text)


def is_wrapped(path: str) -> bool:
    """Has an infra file its content under a top-level key `infra`?"""
    with open(path, encoding="utf-8", errors="replace") as file:
        return any(re.match(r"infra\s*:", line) for line in file)


def recipe_of(settings: Mapping[str, str], tree: str, argv: Sequence[str]) -> str:
    """The recipe that nrl-k8s is shown: the plan's, else what follows --config, empty when there is none."""
    name = settings.get("RECIPE", "")
    for place, word in enumerate(argv):
        if not name and word == "--config" and place + 1 < len(argv):
            name = argv[place + 1]
        elif not name and word.startswith("--config="):
            name = word.partition("=")[2]
    path = os.path.join(tree, name)
    return path if name and os.path.isfile(path) else ""
