"""One RayJob, as the common loop sees it: its status by kubectl, its log, its teardown."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from autoresearch.launchers._k8s_calls import Cluster
from autoresearch.launchers._k8s_log import Forward
from autoresearch.launchers._script import CANNOT_START, Noted, cancel_by_file, read_state
from autoresearch.launchers._slurm_calls import when
from autoresearch.launchers._waiting import Clock, Sight, cause_of

TEARDOWN_S = 180.0
REATTACH_S = 10.0
QUIET_S = 30.0  # a run whose log has not come over the shared volume by then is followed through the dashboard
NOTED_S = 60.0
LAST_TRIES = 4


class RayJobEngine:
    """A RayJob of ours.

    Args:
        name: its name in the cluster, unique to this attempt.
        state: the file in which the script notes its start and end.
        log_path: the run's log.
        recipe, infra: what nrl-k8s needs to find the job for its log.
        claimed: what nrl-k8s made beside it, as `KIND/NAME`.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        state: str,
        log_path: str,
        recipe: str,
        infra: str,
        clock: Clock,
        claimed: Sequence[str] = (),
    ) -> None:
        self.claimed = claimed
        self.cluster, self.name, self.state, self.log_path = cluster, name, state, log_path
        self.recipe, self.infra, self.clock = recipe, infra, clock
        self.forward = Forward(log_path, cluster.env)
        self.next_attach: float | None = None
        self.brought = False
        self.noted = Noted()
        self.raycluster = self.ray_id = ""

    def look(self) -> Sight:
        """The RayJob's status; deleted ones count as gone only when their cluster is gone as well."""
        found, noted = self.cluster.get("rayjobs.ray.io", self.name), read_state(self.state)
        self.noted = noted
        if found.away:
            away = Sight("away", found.away, started_at=noted.began, finished_at=noted.ended)
            return self._by_notes(noted, NOTED_S) or away
        if found.data is None:
            left = self.cluster.clusters_of(self.name)
            if left:
                return Sight("running", f"{left[0]} is being taken down", started_at=noted.began)
            return self._by_notes(noted, 0.0) or Sight("gone")
        status = found.data.get("status") or {}
        self.raycluster = str(status.get("rayClusterName") or "")
        self.ray_id = str(status.get("jobId") or "")
        deployment, job = str(status.get("jobDeploymentStatus") or ""), str(status.get("jobStatus") or "")
        if job in ("SUCCEEDED", "FAILED", "STOPPED") or deployment in ("Complete", "Failed"):
            self._bring_rest(status)
            return self._ended(status, deployment, job, noted)
        if job == "RUNNING" or noted.began is not None:
            if noted.began is None:
                self._follow_log()
            else:
                self.forward.close()
            began = noted.began or _time(status.get("startTime"))
            return Sight("running", f"rayjob {self.name}", started_at=began, host=noted.host)
        trouble = self.cluster.pods_trouble(self.raycluster) or str(status.get("message") or "")
        return Sight("pending", f"{deployment or 'new'} {trouble}".strip())

    def end(self, force: bool) -> None:
        """Delete the RayJob, which takes its own cluster along; the file reaches a script that outlives it."""
        cancel_by_file(self.state)
        self.cluster.delete(self.name)

    def tear_down(self) -> str:
        """Delete the RayJob and wait until its cluster and what was made for its claims are gone.

        Returns what is still there, empty when nothing is.
        """
        until = self.clock.monotonic() + TEARDOWN_S
        self.cluster.delete(self.name)
        while True:
            gone = self.cluster.get("rayjobs.ray.io", self.name)
            left = self.cluster.clusters_of(self.name)
            if gone.data is None and not gone.away and left == []:
                left = self.cluster.delete_claimed(self.claimed)
                if not left:
                    return ""
            if self.clock.monotonic() >= until:
                return ", ".join(left or []) or f"rayjob {self.name}" + (f" ({gone.away})" if gone.away else "")
            self.clock.sleep(2.0)

    def let_go(self) -> None:
        """End the forward of the log; whoever looks again starts it again."""
        self.forward.close()

    def _bring_rest(self, status: dict[str, Any]) -> None:
        """After the end: where nothing came over the shared volume, ask until the log was told to its end."""
        shared = self.noted.began is not None or self.noted.failed != ""
        if self.brought or (shared and self._has_log()):
            return
        self.brought = True
        for attempt in range(LAST_TRIES if self.ray_id and self.raycluster else 0):
            if attempt:
                self.clock.sleep(REATTACH_S)
            self._attach()
            if self.forward.wait():
                break
        text = ""
        if not self._has_log() and self.raycluster:
            label = f"ray.io/cluster={self.raycluster},ray.io/node-type=head"
            text = self.cluster.kubectl("logs", "-l", label, "--tail=200").out + str(status.get("message") or "")
        if text:
            with open(self.log_path, "a", encoding="utf-8") as log:
                log.write(text.rstrip("\n") + "\n")

    def _has_log(self) -> bool:
        return os.path.exists(self.log_path) and os.path.getsize(self.log_path) > 0

    def _follow_log(self) -> None:
        """Keep `nrl-k8s job logs -f` running when nothing comes over the shared volume; a dead forward is replaced."""
        now = self.clock.monotonic()
        if self.next_attach is None:
            self.next_attach = now + QUIET_S
        if now >= self.next_attach and self.ray_id and self.raycluster and not self.forward.alive():
            self.next_attach = now + REATTACH_S
            self._attach()

    def _attach(self) -> None:
        # nrl-k8s asks the head service of the cluster it is told; KubeRay has named that one, not we.
        cluster = f"infra.kuberay.training.name={self.raycluster}"
        words = [self.ray_id, self.recipe, cluster, "--infra", self.infra, "--role", "training", "-f"]
        self.forward.attach([self.cluster.nrl, "job", "logs", *words])

    def _ended(self, status: dict[str, Any], deployment: str, job: str, noted: Noted) -> Sight:
        started, over = noted.began or _time(status.get("startTime")), noted.ended or _time(status.get("endTime"))
        message = " ".join(str(status.get("message") or "").split())[:300]
        end = Sight("ended", message, "", None, started if noted.began else None, over, noted.host)
        if noted.failed:
            return end._replace(cause="launcher", exit_code=CANNOT_START, detail=noted.failed)
        if job == "SUCCEEDED":
            return end._replace(cause="ok", exit_code=0, detail="", started_at=started)
        if job == "STOPPED" or noted.stopped:
            return end._replace(cause="cancelled", detail=message or "stopped in the cluster", started_at=started)
        if status.get("reason") == "DeadlineExceeded":
            return end._replace(cause="timeout", detail=message or "the RayJob's own deadline")
        told = re.search(r"exit(?:ed with)? code:? (-?\d+)", message)
        code = noted.exit_code if noted.exit_code is not None else int(told[1]) if told else None
        if code:
            code = 128 - code if code < 0 else code
            return end._replace(cause=cause_of(code), exit_code=code, detail="", started_at=started)
        reason = str(status.get("reason") or deployment)
        return end._replace(cause="launcher", detail=f"{reason}: {message}".strip(": "))

    def _by_notes(self, noted: Noted, wait_s: float) -> Sight | None:
        if noted.ended is None or noted.exit_code is None or self.clock.now() - noted.ended < wait_s:
            return None
        end = Sight("ended", "by the job's notes", "", noted.exit_code, noted.began, noted.ended, noted.host)
        if noted.failed:
            return end._replace(cause="launcher", detail=noted.failed)
        if noted.stopped:
            return end._replace(cause="cancelled", detail="its RayJob was deleted")
        return end._replace(cause=cause_of(noted.exit_code))


def _time(text: object) -> float | None:
    return when(str(text).removesuffix("Z")) if text else None
