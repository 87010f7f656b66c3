"""The nrl-k8s launcher: pure parts, strict doubles of kubectl and nrl-k8s, and dry runs of the real nrl-k8s."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from autoresearch.errors import Refused
from autoresearch.launchers import Job, _k8s_engine, nrl_k8s
from autoresearch.launchers import _k8s_manifest as manifests
from autoresearch.launchers._k8s_calls import Cluster
from autoresearch.launchers.nrl_k8s import NrlK8s
from tests.kubernetes import Fake, infra_text
from tests.launching import SECRET, Recorder, Run, make_job, wait_until

pytest_plugins = ("tests.kubernetes_fixtures",)
SOURCE = os.environ.get("NRL_K8S_SRC", "")


@given(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs", "Cc"])))
@settings(max_examples=60)
def test_escaping_comes_back_unchanged(text: str) -> None:
    body = yaml.safe_load(yaml.safe_dump({"x": manifests.escaped(text + "${a}" + text)}, allow_unicode=False))
    assert OmegaConf.create(body)["x"] == text + "${a}" + text


@given(st.text(max_size=90))
def test_names_fit_kubernetes(text: str) -> None:
    name = manifests.rayjob_name(text, "0a1b2c3d")
    assert len(name) <= 47
    assert name[0].isalpha()
    assert all(c.isdigit() or "a" <= c <= "z" or c == "-" for c in name)
    assert name.endswith("-0a1b2c3d")


def test_paths_on_the_pod() -> None:
    pairs = manifests.mapping("/lustre=/mnt /lustre/me=/home/me/")
    assert manifests.on_pod("/lustre/me/x", pairs) == "/home/me/x"
    assert manifests.on_pod("/lustre/other", pairs) == "/mnt/other"
    assert manifests.on_pod("/lustrely", pairs) == "/lustrely"
    for text, told in {
        "/lustre/me/x": "/home/me/x",
        "logger.log_dir=/lustre/me/logs": "logger.log_dir=/home/me/logs",
        "++a=[/lustre,'/lustre/me/x']": "++a=[/mnt,'/home/me/x']",
        "/lustre/me/t:/lustre/me/t/src:/usr/lib": "/home/me/t:/home/me/t/src:/usr/lib",
        "cd /lustre/me && ls": "cd /home/me && ls",
        "x=/lustrely y=/data/lustre /a/lustre/me": "x=/lustrely y=/data/lustre /a/lustre/me",
    }.items():
        assert manifests.told_on_pod(text, pairs) == told
    assert manifests.told_on_pod("/x", manifests.mapping("/=/other")) == "/other/x"
    assert manifests.told_on_pod("a=/x", []) == "a=/x"


def test_the_script_holds_no_path_of_this_machine(tmp_path: Path) -> None:
    argv = ["run", f"log_dir={tmp_path}/x", f"cd {tmp_path} && ls"]
    job = make_job(tmp_path, argv, settings={"K8S_PATHS": f"{tmp_path}=/pod"})
    exports = {**job.exports, "PYTHONPATH": f"{job.tree}:{job.tree}/src"}
    text = nrl_k8s.pod_script(job._replace(exports=exports), "0a1b2c3d")
    assert str(tmp_path) not in text
    assert "log_dir=/pod/x" in text


def test_success_secret_by_reference_and_teardown(launcher: NrlK8s, fake: Fake) -> None:
    words = ["", "a b", "$(id)", "${x}", "\\${x}", "l1\nl2", "'\"`", "é😀"]
    code = (
        "import json,os,sys;print(json.dumps([sys.argv[1:],os.getcwd(),os.environ['API_TOKEN'],os.environ['HF_HOME']]))"
    )
    code += ";print('Generating responses');print('https://wandb.ai/team/p/runs/abc123')"
    job = fake.job([sys.executable, "-c", code, *words], cap_s=60.0)
    run = Run(launcher, job)
    outcome = run.result()
    assert (outcome.end_cause, outcome.exit_code) == ("ok", 0)
    assert outcome.reason == "https://wandb.ai/team/p/runs/abc123; teardown seen"
    told = json.loads(Path(job.log_path).read_text().splitlines()[0])
    assert told == [words, job.tree, "on-the-pod", job.exports["HF_HOME"]]
    assert not (fake.home / "rayjob").exists()
    assert SECRET not in (fake.home / "calls").read_text()
    for file in Path(job.logs).iterdir():
        assert SECRET not in file.read_text()
    deleted = {tuple(call[5:7]) for call in fake.calls() if call[4:5] == ["delete"]}
    assert deleted == {
        ("rayjobs.ray.io", run.job_id),
        ("computedomains.resource.nvidia.com", f"compute-domain-{run.job_id}-training"),
        ("resourceclaimtemplates.resource.k8s.io", f"roce-{run.job_id}-training"),
    }


def test_the_teardown_is_waited_for(launcher: NrlK8s, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    (fake.home / "cluster").write_text("2")
    assert Run(launcher, fake.job(["true"])).result().reason.endswith("teardown seen")
    assert (fake.home / "cluster").read_text() == "0"
    (fake.home / "cluster").write_text("1000")
    monkeypatch.setattr(_k8s_engine, "TEARDOWN_S", 1.0)
    outcome = Run(launcher, fake.job(["true"], name="two")).result()
    assert (outcome.end_cause, outcome.reason.split("; ")[-1]) == ("ok", "STILL THERE: raycluster.ray.io/left")
    (fake.home / "dra").unlink()


def test_a_launch_that_fails_leaves_nothing(launcher: NrlK8s, fake: Fake) -> None:
    (fake.home / "refuse").touch()
    with pytest.raises(Refused, match="apply failed"):
        Run(launcher, fake.job(["true"])).result()
    assert any(call[4:6] == ["delete", "computedomains.resource.nvidia.com"] for call in fake.calls())


def test_a_launch_that_was_cut_off_leaves_nothing(
    launcher: NrlK8s, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything of ours was killed while nrl-k8s was at work, and that came as far as the claims."""
    monkeypatch.setattr(nrl_k8s, "SETTLE_S", 1.0)
    job = fake.job(["true"])
    (fake.home / "refuse").touch()
    monkeypatch.setattr(Cluster, "delete_claimed", lambda self, objects: [])
    with pytest.raises(Refused):
        Run(launcher, job).result()
    monkeypatch.undo()
    monkeypatch.setenv("PATH", f"{fake.home / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(nrl_k8s, "SETTLE_S", 1.0)
    assert (fake.home / "dra").read_text()
    outcome = launcher.collect(job, "")
    assert outcome is not None
    assert (outcome.end_cause, outcome.reason) == ("launcher", "the job never reached nrl-k8s")


def test_a_rayjob_that_comes_a_little_later_is_found(launcher: NrlK8s, fake: Fake) -> None:
    """Its nrl-k8s outlived everything of ours."""
    (fake.home / "status").write_text(json.dumps({"jobDeploymentStatus": "Initializing", "rayClusterName": "c"}))
    job = fake.job(["true"])
    name = launcher.first(job, Recorder().watch())
    made, hidden = fake.home / "rayjob", fake.home / "hidden"
    made.rename(hidden)
    threading.Timer(1.5, lambda: hidden.rename(made)).start()
    assert launcher.lost_id(job) == name
    launcher.cancel(job, name)


def test_cancel_takes_everything_away(launcher: NrlK8s, fake: Fake) -> None:
    job = fake.job(["sleep", "60"])
    run = Run(launcher, job)
    run.wait_started()
    launcher.cancel(job, run.job_id)
    assert not (fake.home / "dra").read_text()
    assert run.result().end_cause == "stopped"


@pytest.mark.parametrize(
    ("call", "said", "words"),
    [
        ("auth can-i create rayjobs.ray.io", "no\n", "may not create RayJobs"),
        ("get pvc work -o jsonpath={.status.phase}", "Pending", "is Pending, not Bound"),
    ],
)
def test_a_namespace_that_is_not_ready(launcher: NrlK8s, fake: Fake, call: str, said: str, words: str) -> None:
    (fake.home / "say").write_text(json.dumps({call: said}))
    with pytest.raises(Refused, match=words):
        Run(launcher, fake.job(["true"])).result()
    assert not any("--no-wait" in call for call in fake.calls())


def test_failure(launcher: NrlK8s, fake: Fake) -> None:
    outcome = Run(launcher, fake.job(["sh", "-c", "exit 3"], name="one")).result()
    assert (outcome.end_cause, outcome.exit_code) == ("exit 3", 3)


@pytest.mark.slow
def test_cap_deletes_the_rayjob(launcher: NrlK8s, fake: Fake) -> None:
    outcome = Run(launcher, fake.job(["sleep", "60"], cap_s=2.0)).result()
    assert outcome.end_cause == "timeout"
    assert not (fake.home / "rayjob").exists()


def test_a_pending_rayjob_tells_why_and_can_be_stopped(launcher: NrlK8s, fake: Fake) -> None:
    (fake.home / "status").write_text(json.dumps({"jobDeploymentStatus": "Initializing", "rayClusterName": "c"}))
    run = Run(launcher, fake.job(["touch", "began"], settings={"K8S_INFRA": str(fake.root / "infra.yaml")}))
    wait_until(lambda: any("Unschedulable: no GPUs" in said for said in run.recorder.said) or run.error is not None)
    run.recorder.stop()
    assert run.result().end_cause == "stopped"
    assert not (fake.home / "rayjob").exists()


@pytest.mark.slow
def test_a_cluster_that_is_away(launcher: NrlK8s, fake: Fake) -> None:
    run = Run(launcher, fake.job(["sh", "-c", "sleep 4; exit 5"]))
    run.wait_started()
    (fake.home / "down").touch()
    wait_until(lambda: any(said.startswith("away") for said in run.recorder.said))
    (fake.home / "down").unlink()
    assert run.result().end_cause == "exit 5"


@pytest.mark.slow
def test_recovery_finds_the_rayjob_by_its_name(launcher: NrlK8s, fake: Fake) -> None:
    job = fake.job(["sh", "-c", "sleep 3; exit 6"])
    run = Run(launcher, job)
    run.wait_started()
    again = Run(launcher, job)
    assert again.result().end_cause == "exit 6"
    assert again.recorder.ids == run.recorder.ids
    assert run.result().end_cause == "exit 6"
    assert sum(call[:2] == ["nrl-k8s", "run"] and "--no-wait" in call for call in fake.calls()) == 1


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda job: job._replace(settings={**job.settings, "GPUS_NEEDED": "8"}), "GPUs per pod"),
        (lambda job: job._replace(settings={**job.settings, "NODES": "3"}), "GPUs per pod"),
        (lambda job: job._replace(settings={**job.settings, "SECRETS": "HF_TOKEN"}), "HF_TOKEN"),
        (lambda job: job._replace(argv=["run", f"--key={SECRET}"]), "API_TOKEN"),
        (lambda job: job._replace(argv=["run", "\udcff"]), "UTF-8"),
        (lambda job: job._replace(settings={**job.settings, "K8S_PATHS": "/=/other"}), "code on the pods"),
    ],
)
def test_refusals_submit_nothing(launcher: NrlK8s, fake: Fake, spoil: Callable[[Job], Job], words: str) -> None:
    job = spoil(fake.job(["true"]))
    with pytest.raises(Refused, match=words) as refusal:
        Run(launcher, job).result()
    assert SECRET not in str(refusal.value)
    assert not (fake.home / "rayjob").exists()


def test_another_tree_of_the_same_name_is_not_run(launcher: NrlK8s, fake: Fake) -> None:
    job = fake.job(["true"])
    text = nrl_k8s.pod_script(job, "0a1b2c3d")
    Path(job.tree, ".git").write_text("gitdir: /else\n")
    env = {**os.environ, "API_TOKEN": "x"}
    assert subprocess.run(["bash", "-c", text], env=env, check=False).returncode == 97
    assert "another tree" in Path(job.log_path).read_text()


def test_check_and_canary(launcher: NrlK8s, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", "x")
    settings = {"K8S_INFRA": str(fake.root / "infra.yaml"), "RECIPE": "recipe.yaml", "REPO": str(fake.root)}
    findings = launcher.check({**settings, "SCRATCH": str(fake.root), "SECRETS": "API_TOKEN"}, 4, 2)
    assert [finding.level for finding in findings] == ["ok"] * 4, findings
    assert "FAIL" in {finding.level for finding in launcher.check(settings, 8, 1)}
    assert nrl_k8s.canary(settings, str(fake.root), [str(fake.root)], ["API_TOKEN"]).level == "ok"
    assert nrl_k8s.canary(settings, str(fake.root), [str(fake.root / "none")]).level == "FAIL"
    del settings["RECIPE"]  # the pods get no recipe anyway
    assert len(launcher.check(settings, 4, 2)) == 3
    assert nrl_k8s.canary(settings, str(fake.root), [str(fake.root / "none")]).level == "FAIL"


@pytest.mark.engine
@pytest.mark.skipif(not SOURCE, reason="NRL_K8S_SRC does not name a checkout of NeMo-RL")
def test_the_real_nrl_k8s_takes_our_infra_file(tmp_path: Path, hostile: Path) -> None:
    program = shutil.which("nrl-k8s") or str(Path(SOURCE).parent / "venv" / "bin" / "nrl-k8s")
    program = os.environ.get("NRL_K8S", program)
    job = make_job(hostile, ["echo", "${x}", "\\${y}", "$z", "a\nb", "é😀", "\t", "# c", "'"], settings={})
    infra = tmp_path / "infra.yaml"
    infra.write_text(infra_text(hostile))
    text = nrl_k8s.pod_script(job, "0a1b2c3d")
    command = manifests.entrypoint(text, "0a1b2c3d")
    for wrapped in (False, True):
        base = tmp_path / f"base{wrapped}.yaml"
        body = infra_text(hostile)
        base.write_text("infra:\n" + "".join(f"  {line}\n" for line in body.splitlines()) if wrapped else body)
        assert manifests.is_wrapped(str(base)) is wrapped
        ours = tmp_path / f"ours{wrapped}.yaml"
        ours.write_text(manifests.infra_file(str(base), wrapped, "camp-idea-0a1b2c3d", command, "other"))
        recipe = tmp_path / "recipe.yaml"
        recipe.write_text("{}\n")
        argv = [program, "run", str(recipe), "--infra", str(ours), "--rayjob", "--dry-run"]
        dry = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
        assert dry.returncode == 0, dry.stderr
        manifest = manifests.parse(dry.stdout)
        assert manifest["spec"]["entrypoint"] == command
        assert manifest["metadata"]["name"] == "camp-idea-0a1b2c3d"
        assert manifest["metadata"]["namespace"] == "other"
        assert manifests.check_gpus(manifest, 4, 2).level == "ok"
        assert manifests.carries(manifest, [job.tree, job.logs]).level == "ok"
        assert manifests.claims(manifest).secrets == ("pull", "user-secrets")


@pytest.mark.engine
@pytest.mark.skipif(not SOURCE, reason="NRL_K8S_SRC does not name a checkout of NeMo-RL")
def test_a_shipped_example_is_understood(tmp_path: Path) -> None:
    program = os.environ.get("NRL_K8S") or shutil.which("nrl-k8s") or "nrl-k8s"
    recipe = "examples/configs/recipes/llm/performance/grpo-qwen3-30ba3b-4n4g-async-1off.yaml"
    base = Path(SOURCE, "infra/nrl_k8s/examples/qwen3_30b_math_4n_4gpu.gb300.infra.yaml")
    ours = tmp_path / "ours.yaml"
    ours.write_text(manifests.infra_file(str(base), manifests.is_wrapped(str(base)), "x-1", "exec true ${A}", ""))
    argv = [program, "run", str(Path(SOURCE, recipe)), "--infra", str(ours), "--rayjob", "--dry-run"]
    dry = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert dry.returncode == 0, dry.stderr
    manifest = manifests.parse(dry.stdout)
    assert manifest["spec"]["entrypoint"] == "exec true ${A}"
    assert manifests.check_gpus(manifest, 4, 4).level == "ok"
    assert manifests.check_gpus(manifest, 8, 4).level == "FAIL"
    assert manifests.carries(manifest, ["/mnt/rl-workspace/me/x"]).level == "ok"
    assert manifests.carries(manifest, ["/opt/nemo-rl/x"]).level == "FAIL"
    assert manifests.claims(manifest).volumes == ("rl-workspace",)
