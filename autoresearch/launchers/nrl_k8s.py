"""Kubernetes through NeMo-RL's nrl-k8s: one RayJob an attempt, followed by kubectl to its one outcome.

Settings of the plan: K8S_INFRA (the infra file), K8S_NAMESPACE, K8S_PATHS (`/here=/there` where pods see the shared
volume elsewhere), NRL_K8S (the program), SECRETS, QUEUE_LIMIT, ENGINE_PATIENCE. A long-lived cluster is used
through the launcher `ray`.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from autoresearch.errors import Refused, TryAgain, Usage
from autoresearch.launchers import Finding, Job, Outcome, Watch
from autoresearch.launchers import _k8s_manifest as manifests
from autoresearch.launchers._calls import MISSING, TIMED_OUT, refuse_secrets
from autoresearch.launchers._k8s_calls import Cluster, present
from autoresearch.launchers._k8s_canary import run_canary
from autoresearch.launchers._k8s_engine import RayJobEngine
from autoresearch.launchers._remote import Remote, limits_from
from autoresearch.launchers._script import cancel_by_file, read_state, render, second_line_s, token_of, write
from autoresearch.launchers._waiting import Engine, Limits

NOT_ON_POD = ("RAY_ADDRESS", "RAY_TMPDIR", "TMPDIR")
EMPTY_RECIPE = "{}\n"
SETTLE_S = 15.0  # a nrl-k8s that outlived its supervisor has made the RayJob by then
TTL_S = 600  # KubeRay keeps the cluster, with its GPUs, this long when we are not there to delete it
WANDB = re.compile(r"https://wandb\.ai/\S+/runs/\w+")
GENERATION = re.compile(r"Generating responses|Processed prompts|rollout", re.IGNORECASE)


def script_path(job: Job) -> str:
    """The script of an attempt, beside its logs; the same text is the RayJob's entrypoint."""
    return f"{job.logs}/k8s.sh"


def state_path(job: Job) -> str:
    """What that script notes, on the volume that the pods share with us."""
    return f"{job.logs}/k8s.state"


def cluster_of(settings: Mapping[str, str], env: Mapping[str, str], namespace: str = "") -> Cluster:
    """The namespace of a plan, reached with the caller's kubeconfig."""
    return Cluster(namespace or settings.get("K8S_NAMESPACE") or "default", env, settings.get("NRL_K8S") or "nrl-k8s")


def infra_of(settings: Mapping[str, str], tree: str = "") -> str:
    """The user's infra file.

    Raises:
        Usage: K8S_INFRA is missing or not a file.
    """
    name = settings.get("K8S_INFRA", "")
    for root in (tree, settings.get("REPO", ""), ""):
        path = os.path.abspath(os.path.join(root, name))
        if name and os.path.isfile(path):
            return path
    raise Usage("K8S_INFRA", f"{name or 'nothing'!r} is not an infra file", "give the YAML file for nrl-k8s --infra")


def pod_script(job: Job, token: str) -> str:
    """The attempt's script as a pod runs it: its paths there, its public exports, nothing secret."""
    pairs = manifests.mapping(job.settings.get("K8S_PATHS", ""))
    exports = {key: manifests.told_on_pod(value, pairs) for key, value in job.exports.items() if key not in NOT_ON_POD}
    refuse_secrets(job, "the command", job.argv)
    refuse_secrets(job, "the run's exports", exports.values())
    there = job._replace(
        tree=manifests.on_pod(job.tree, pairs),
        log_path=manifests.on_pod(job.log_path, pairs),
        argv=[manifests.told_on_pod(word, pairs) for word in job.argv],
        env={},
    )
    text = render(
        there,
        token,
        manifests.on_pod(state_path(job), pairs),
        redirect=True,
        exports=exports,
        needs=needed(job),
        proof=proof_of(job.tree),
        limit_s=second_line_s(job),
    )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Refused("the command", "holds bytes that are not UTF-8", "Kubernetes cannot carry them") from None
    return text


def proof_of(tree: str) -> str:
    """The content of a worktree's `.git` file, empty where there is none."""
    try:
        with open(os.path.join(tree, ".git"), encoding="utf-8") as file:
            return file.read().rstrip("\n")
    except OSError:
        return ""


def needed(job: Job) -> list[str]:
    """Secrets that the pods have to get from the cluster: those of SECRETS (`none` for none), else all that are set."""
    wanted = _wanted(job.settings)
    return [key for key in job.secret_keys if job.env.get(key)] if wanted is None else wanted


def _wanted(settings: Mapping[str, str]) -> list[str] | None:
    """What SECRETS names; None when it is empty."""
    text = settings.get("SECRETS", "")
    return None if not text else [] if text == "none" else text.replace(",", " ").split()


class NrlK8s(Remote):
    """The launcher `nrl-k8s`."""

    name = "nrl-k8s"
    defaults = Limits(away_s=3600.0, last_poll_s=10.0)

    def check(self, settings: Mapping[str, str], gpus_needed: int, nodes: int) -> list[Finding]:
        """Both programs, the infra file by `check` and a dry run, the manifest, and what it needs in the cluster."""
        cluster = cluster_of(settings, os.environ)
        for program in (cluster.nrl, "kubectl"):
            if not shutil.which(program):
                fix = "pip install <NeMo-RL>/infra/nrl_k8s" if program == cluster.nrl else "install kubectl"
                return [Finding("FAIL", program, "not installed", fix)]
        try:
            limits_from(settings, self.limits)
            infra = infra_of(settings)
        except Usage as error:
            return [Finding("FAIL", error.what, error.why, error.fix)]
        with _recipe(settings, settings.get("REPO", "")) as recipe:
            checked = cluster.run("check", recipe, "--infra", infra)
            if checked.code != 0:
                return [Finding("FAIL", "nrl-k8s check", checked.text, "correct the infra file")]
            dry = cluster.run("run", recipe, "--infra", infra, "--rayjob", "--dry-run")
        manifest = manifests.parse(dry.out)
        if dry.code != 0 or manifest.get("kind") != "RayJob":
            return [Finding("FAIL", "nrl-k8s run --dry-run", dry.text, "correct the infra file")]
        cluster = cluster_of(settings, os.environ, str(manifest["metadata"].get("namespace", "")))
        findings = [Finding("ok", "nrl-k8s", f"{infra} gives a RayJob in {cluster.namespace}")]
        findings.append(manifests.check_gpus(manifest, gpus_needed, nodes))
        if settings.get("SCRATCH"):
            pairs = manifests.mapping(settings.get("K8S_PATHS", ""))
            findings.append(manifests.carries(manifest, [manifests.on_pod(settings["SCRATCH"], pairs)], bool(pairs)))
        return [*findings, *present(cluster, manifests.claims(manifest), _wanted(settings) or [])]

    def describe(self, job_id: str, settings: Mapping[str, str]) -> str:
        """One line on the RayJob."""
        found = self._cluster(settings, os.environ).get("rayjobs.ray.io", job_id)
        if found.data is None:
            return f"rayjob {job_id}: {found.away or 'not in the cluster'}"
        status = found.data.get("status") or {}
        return f"rayjob {job_id}: {status.get('jobDeploymentStatus') or 'new'} {status.get('jobStatus') or ''}".strip()

    def script(self, job: Job) -> str:
        """The attempt's script."""
        return script_path(job)

    def engine(self, job: Job, job_id: str) -> Engine:
        """The RayJob of that name."""
        cluster = self._cluster(job.settings, job.env, job)
        recipe, infra = self._files(job)
        claimed = _noted(f"{job.logs}/k8s.claimed").split()
        return RayJobEngine(cluster, job_id, state_path(job), job.log_path, recipe, infra, self.clock, claimed)

    def let_go(self, engine: Engine) -> None:
        """A forward of the log ends with whoever looked at it."""
        assert isinstance(engine, RayJobEngine)
        engine.let_go()

    def lost_id(self, job: Job) -> str:
        """Names are ours: the script holds what makes one unique."""
        token = token_of(script_path(job))
        name = manifests.rayjob_name(job.id, token)
        cluster, until = self._cluster(job.settings, job.env, job), self.clock.monotonic() + SETTLE_S
        while token:
            found = cluster.get("rayjobs.ray.io", name)
            if found.data is not None or found.away or read_state(state_path(job)).began is not None:
                return name
            if self.clock.monotonic() >= until:
                break
            self.clock.sleep(1.0)
        return ""

    def first(self, job: Job, watch: Watch) -> str:
        """Look at the manifest and the cluster once more, then launch without waiting."""
        token = secrets.token_hex(4)
        name = manifests.rayjob_name(job.id, token)
        text = pod_script(job, token)
        command = manifests.entrypoint(text, token)
        base = infra_of(job.settings, job.tree)
        recipe, infra = self._files(job)
        body = manifests.infra_file(
            base, manifests.is_wrapped(base), name, command, job.settings.get("K8S_NAMESPACE", "")
        )
        write(infra, body)
        if not os.path.exists(recipe):
            write(recipe, EMPTY_RECIPE)
        cluster = self._cluster(job.settings, job.env)
        manifest = self._dry_run(cluster, job, recipe, infra)
        namespace = str(manifest["metadata"].get("namespace", ""))
        cluster = self._cluster(job.settings, job.env, namespace=namespace)
        self._refuse_unfit(cluster, job, manifest, name, command)
        write(f"{job.logs}/k8s.namespace", namespace + "\n")
        claimed = manifests.claimed(manifest, name)
        write(f"{job.logs}/k8s.claimed", "\n".join([*claimed, ""]))
        write(script_path(job), text)
        options = ["--rayjob", "--no-wait", "--shutdown", "--ttl", str(TTL_S)]
        answer = cluster.run("run", recipe, "--infra", infra, *options, cwd=job.tree)
        if answer.code != 0:
            found = cluster.get("rayjobs.ray.io", name)
            if found.data is None:
                cancel_by_file(state_path(job))  # should it come after all, it does not begin
                cluster.delete(name)
                cluster.delete_claimed(claimed)
            if found.data is None and (found.away or answer.code == TIMED_OUT):
                raise TryAgain("nrl-k8s run", answer.text, "the cluster does not answer")
            if found.data is None:
                raise Refused("nrl-k8s run", answer.text, f"look at it by hand: nrl-k8s run {recipe} --infra {infra}")
        watch.submitted(name)
        return name

    def cancel(self, job: Job, job_id: str) -> None:
        """End the job and take everything that was made for it away."""
        super().cancel(job, job_id)
        left = self._tear_down(job, job_id)
        if left:
            raise TryAgain("stop", f"{left} is still there", "try again later")

    def _never(self, job: Job) -> Outcome:
        outcome = super()._never(job)
        left = self._tear_down(job, "")
        return outcome._replace(reason=f"{outcome.reason}; STILL THERE: {left}") if left else outcome

    def _tear_down(self, job: Job, job_id: str) -> str:
        token = token_of(script_path(job))
        if not job_id and not token:
            return ""
        engine = self.engine(job, job_id or manifests.rayjob_name(job.id, token))
        assert isinstance(engine, RayJobEngine)
        return engine.tear_down()

    def finished(self, job: Job, job_id: str, outcome: Outcome) -> Outcome:
        """Take the RayJob down and see that its cluster is gone; name what its log shows."""
        left = self._tear_down(job, job_id)
        seen = [outcome.reason] if outcome.reason else []
        try:
            with open(job.log_path, encoding="utf-8", errors="replace") as file:
                text = file.read(4 << 20)
        except OSError:
            text = ""
        found = WANDB.search(text)
        seen += [found[0]] if found else []
        if outcome.end_cause == "ok" and not GENERATION.search(text):
            seen.append("no line of generation in the log")
        seen.append(f"STILL THERE: {left}" if left else "teardown seen")
        return outcome._replace(reason="; ".join(seen))

    def _cluster(
        self, settings: Mapping[str, str], env: Mapping[str, str], job: Job | None = None, namespace: str = ""
    ) -> Cluster:
        if job is not None and not namespace:
            namespace = _noted(f"{job.logs}/k8s.namespace").strip()
        return cluster_of(settings, env, namespace)

    @staticmethod
    def _files(job: Job) -> tuple[str, str]:
        """The recipe that nrl-k8s is shown, and the infra file of the attempt."""
        recipe = manifests.recipe_of(job.settings, job.tree, job.argv)
        return recipe or f"{job.logs}/k8s.recipe.yaml", f"{job.logs}/k8s.infra.yaml"

    @staticmethod
    def _dry_run(cluster: Cluster, job: Job, recipe: str, infra: str) -> dict[str, Any]:
        dry = cluster.run("run", recipe, "--infra", infra, "--rayjob", "--dry-run", cwd=job.tree)
        if dry.code == MISSING:
            raise Refused("nrl-k8s", "not installed", "pip install <NeMo-RL>/infra/nrl_k8s")
        manifest = manifests.parse(dry.out)
        if dry.code != 0 or manifest.get("kind") != "RayJob":
            raise Refused("nrl-k8s run --dry-run", dry.text, f"correct {job.settings.get('K8S_INFRA')}")
        refuse_secrets(job, "the manifest", [dry.out])
        return manifest

    @staticmethod
    def _refuse_unfit(cluster: Cluster, job: Job, manifest: Mapping[str, Any], name: str, command: str) -> None:
        """Refuse a manifest that would run something else, somewhere else, or without what it needs."""
        if manifest["spec"].get("entrypoint") != command or manifest["metadata"].get("name") != name:
            raise Refused(
                "the manifest", "nrl-k8s changed the command or the name", "look at k8s.infra.yaml in the logs"
            )
        pairs = manifests.mapping(job.settings.get("K8S_PATHS", ""))
        there = [manifests.on_pod(path, pairs) for path in (job.tree, job.logs)]
        settings = job.settings
        findings = [
            manifests.check_gpus(manifest, int(settings.get("GPUS_NEEDED") or 0), int(settings.get("NODES") or 1)),
            manifests.carries(manifest, there, bool(pairs)),
            *present(cluster, manifests.claims(manifest), needed(job)),
        ]
        for finding in findings:
            if finding.level == "FAIL":
                raise Refused(finding.what, finding.detail, finding.fix)


@contextmanager
def _recipe(settings: Mapping[str, str], root: str) -> Iterator[str]:
    """The plan's recipe for a look at what nrl-k8s makes, an empty one where there is none: the pods get neither."""
    found = manifests.recipe_of(settings, root, ())
    if found:
        yield found
        return
    with tempfile.TemporaryDirectory(prefix="autoresearch-") as folder:
        path = os.path.join(folder, "recipe.yaml")
        write(path, EMPTY_RECIPE)
        yield path


def _noted(path: str) -> str:
    """What a launch noted beside the logs for whoever comes later, empty without it."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def canary(
    settings: Mapping[str, str],
    tree: str,
    directories: Sequence[str],
    secret_keys: Sequence[str] = (),
    wait_s: float = 1800.0,
    stop: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = lambda text: None,
) -> Finding:
    """Prove by a pod without GPUs, made from the head's template, that tree and directories are visible there.

    Args:
        tree: an attempt's worktree.
        directories: the experiment's directories, which must be writable.
        secret_keys: names of secrets that are set here; what of it the pod has to hold is up to SECRETS.
        wait_s: seconds that the pod may take; its image may have to be fetched.
        stop: true once the canary is not wanted any more.
        say: told how it is.
    """
    try:
        infra = infra_of(settings, tree)
    except Usage as error:
        return Finding("FAIL", error.what, error.why, error.fix)
    cluster = cluster_of(settings, os.environ)
    with _recipe(settings, tree) as recipe:
        dry = cluster.run("run", recipe, "--infra", infra, "--rayjob", "--dry-run")
    manifest = manifests.parse(dry.out)
    if dry.code != 0 or manifest.get("kind") != "RayJob":
        return Finding("FAIL", "nrl-k8s run --dry-run", dry.text, "correct the infra file")
    cluster = cluster_of(settings, os.environ, str(manifest["metadata"].get("namespace", "")))
    pairs = manifests.mapping(settings.get("K8S_PATHS", ""))
    there = [manifests.on_pod(path, pairs) for path in (tree, *directories)]
    wanted = _wanted(settings)
    return run_canary(cluster, manifest, there, secret_keys if wanted is None else wanted, wait_s, stop, say)


def launcher() -> NrlK8s:
    """The launcher called `nrl-k8s` in plans."""
    return NrlK8s()
