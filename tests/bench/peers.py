"""One experiment with other tools, each as its documentation starts one, in repositories like ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable

from tests.bench import experiments, measure, worlds
from tests.bench.measure import Cost
from tests.bench.results import Figure

VENV, GUILD_VENV = os.path.join(worlds.ROOT, ".venv.peers"), os.path.join(worlds.ROOT, ".venv.peers.guild")
# Guild and MLflow cannot share one environment (pydantic 1 and 2); mlflow-skinny is MLflow without its server;
# wandb 0.19 is the last one whose reader of offline files is in Python.
PACKAGES = {
    VENV: ("dvc", "sacred", "mlflow-skinny", "tensorboard", "wandb<0.20", "setuptools<81"),
    GUILD_VENV: ("guildai", "pydantic<2", "setuptools<81"),
}
SACRED = """import subprocess
from sacred import Experiment
from sacred.observers import FileStorageObserver
ex = Experiment("bench")
ex.observers.append(FileStorageObserver("runs"))
@ex.automain
def main():
    said = subprocess.run(["sh", "go.sh"], capture_output=True, text=True, check=True).stdout
    ex.log_scalar("val_accuracy", float(said.split()[-1]))
"""
MLFLOW = """import subprocess
import mlflow
mlflow.set_tracking_uri("file:./runs")
with mlflow.start_run():
    said = subprocess.run(["sh", "go.sh"], capture_output=True, text=True, check=True).stdout
    mlflow.log_metric("val_accuracy", float(said.split()[-1]))
"""
DVC = """stages:
  train:
    cmd: sh go.sh >metrics.yaml
    deps: [settings.py, go.sh]
    metrics: [{metrics.yaml: {cache: false}}]
"""
GUILD = "- operations:\n    go:\n      exec: sh go.sh\n"


def install() -> None:
    """Make the peers' own venvs, once; the table says which of them cannot be used."""
    uv = shutil.which("uv", path=os.path.join(worlds.ROOT, ".venv", "bin") + os.pathsep + os.environ["PATH"])
    for venv, packages in PACKAGES.items():
        ready, python = os.path.join(venv, "ready"), os.path.join(venv, "bin", "python")
        if os.path.exists(ready):
            continue
        measure.said(f"installing {' '.join(packages)} into {venv} (once)")
        make = [uv, "venv", "-q", "--allow-existing", venv] if uv else [sys.executable, "-m", "venv", venv]
        add = [uv, "pip", "install", "-q", "--python", python] if uv else [python, "-m", "pip", "install", "-q"]
        subprocess.run(make, check=True, stdout=sys.stderr)
        if subprocess.run([*add, *packages], check=False, stdout=sys.stderr).returncode == 0:
            with open(ready, "w", encoding="ascii"):
                pass


def figures(place: str, files: int, count: int) -> list[Figure]:
    """Measure each peer at one size of repository, and ours and the same by hand in the same turns."""
    ours = experiments.ours(worlds.campaign(f"{place}/ours{files}", files))
    sides: dict[str, Callable[[], Cost]] = {"autoresearch": ours, "by hand": experiments.bare(f"{place}/hand", files)}
    found = []
    for name, prepare in PEERS.items():
        measure.said(f"{name}, {files} files")
        try:
            side = prepare(f"{place}/{name}", files)
            side()
            sides[name] = side
        except (measure.Failed, OSError, subprocess.CalledProcessError) as failure:
            measure.said(f"{name}: {failure}")
            found.append(Figure(f"one experiment with {name}, {files:,} files", None, note=str(failure)[:70]))
    costs = measure.turns(sides, count)
    hand = costs["by hand"].wall_ms
    return [
        Figure(
            f"one experiment with {name}, {files:,} files",
            cost.wall_ms,
            yardstick="by hand",
            theirs=hand,
            cpu_ms=cost.cpu_ms,
            best=cost.best_ms,
        )
        for name, cost in costs.items()
        if name != "by hand"
    ] + found


def _side(
    place: str, files: int, argv: list[str], texts: dict[str, str], first: list[list[str]], venv: str = VENV
) -> Callable[[], Cost]:
    """Return what runs one experiment of a peer, after a change of one file, in a repository prepared for it."""
    env = worlds.environment(os.path.join(place, "home"))
    env |= {
        "PATH": f"{venv}/bin{os.pathsep}{env['PATH']}",
        "DVC_NO_ANALYTICS": "1",
        "GUILD_HOME": os.path.join(place, "guild"),
        "GIT_PYTHON_REFRESH": "quiet",
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    repository = os.path.join(place, "repository")
    os.makedirs(repository)
    os.makedirs(env["GUILD_HOME"])
    worlds.generate(repository, files, env)
    for path, text in texts.items():
        with open(os.path.join(repository, path), "w", encoding="utf-8") as file:
            file.write(text)
    with open(os.path.join(repository, ".git", "info", "exclude"), "a", encoding="utf-8") as file:
        file.write("/runs/\n")
    for words in first:
        subprocess.run(words, cwd=repository, env=env, check=True, capture_output=True)
    worlds.git(repository, env, "add", "-A")
    worlds.git(repository, env, "commit", "-q", "-m", "peer", "--allow-empty")
    number = [0]

    def one() -> Cost:
        number[0] += 1
        experiments.edit(repository, number[0])
        log = os.path.join(place, "last-output")
        try:
            return measure.command(argv, env, cwd=repository, output=log)
        except measure.Failed as failure:
            with open(log, encoding="utf-8", errors="replace") as file:
                raise measure.Failed(f"{failure}: {file.read()[-400:]}") from None

    return one


PEERS: dict[str, Callable[[str, int], Callable[[], Cost]]] = {
    "DVC": lambda place, files: _side(
        place, files, ["dvc", "exp", "run", "-q"], {"dvc.yaml": DVC}, [["dvc", "init", "-q"]]
    ),
    "Guild": lambda place, files: _side(
        place, files, ["guild", "run", "-y", "go"], {"guild.yml": GUILD}, [], GUILD_VENV
    ),
    "Sacred": lambda place, files: _side(place, files, ["python", "peer.py"], {"peer.py": SACRED}, []),
    "MLflow": lambda place, files: _side(place, files, ["python", "peer.py"], {"peer.py": MLFLOW}, []),
}
