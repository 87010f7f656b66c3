"""What is measured on: seeded repositories, approved campaigns in them, ideas recorded as if they had run."""

from __future__ import annotations

import os
import random
import subprocess
from typing import NamedTuple

from tests.bench import measure
from tests.bench.measure import Cost

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PYTHON = os.path.join(ROOT, ".venv", "bin", "python")
CAMPAIGN = "bench"
METRIC = "val_accuracy"
SECRETS = "".join(f"SERVICE_{n}_KEY='a value of some length, number {n}'\n" for n in range(5))
CONFIG = "[user]\n\tname = A Researcher\n\temail = researcher@example.org\n[init]\n\tdefaultBranch = main\n"


def environment(home: str) -> dict[str, str]:
    """Return the environment of every measured command: nothing of the caller's but PATH."""
    os.makedirs(home, exist_ok=True)
    config = os.path.join(home, ".gitconfig")
    with open(config, "w", encoding="utf-8") as file:
        file.write(CONFIG)
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": home,
        "USER": "bench",
        "AUTORESEARCH_DEVICES": os.path.join(home, "devices"),  # or it would wait for others' runs on this machine
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": config,
    }


def generate(path: str, files: int, env: dict[str, str], seed: int = 1) -> None:
    """Make a repository of `files` small text files, up to four directories deep; the same for the same seed."""
    draw = random.Random(seed)
    words = [f"word{n}" for n in range(400)]
    for number in range(files):
        folder = os.path.join(path, *(f"part{draw.randrange(8)}" for _ in range(draw.randrange(4))))
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"module{number}.py"), "w", encoding="utf-8") as file:
            for line in range(draw.randrange(10, 60)):
                file.write(f"value_{line} = {draw.choice(words)!r}  # {' '.join(draw.choices(words, k=4))}\n")
    with open(os.path.join(path, "settings.py"), "w", encoding="utf-8") as file:
        file.write("rate = 0.1\n")
    with open(os.path.join(path, "go.sh"), "w", encoding="utf-8") as file:
        file.write(f"echo {METRIC}: 0.5\n")
    git(path, env, "init", "-q")
    git(path, env, "add", "-A")
    git(path, env, "commit", "-q", "-m", "first")
    git(path, env, "gc", "-q")


def git(path: str, env: dict[str, str], *words: str, data: bytes | None = None) -> str:
    """Run git and return what it prints."""
    done = subprocess.run(["git", "-C", path, *words], env=env, input=data, capture_output=True, check=True)
    return done.stdout.decode().strip()


class World(NamedTuple):
    """A repository with an approved campaign that has its baseline."""

    repository: str
    scratch: str
    env: dict[str, str]

    def verb(self, name: str, *words: str, codes: tuple[int, ...] = (0,)) -> Cost:
        """Run a program of bin/ in the repository and return what it cost."""
        argv = [os.path.join(ROOT, "bin", name), f"CAMPAIGN={CAMPAIGN}", *words]
        log = f"{self.scratch}/last-output"
        try:
            return measure.command(argv, self.env, cwd=self.repository, codes=codes, output=log)
        except measure.Failed as failure:
            with open(log, encoding="utf-8", errors="replace") as file:
                raise measure.Failed(f"{failure}: {file.read()[-600:]}") from None

    @property
    def records(self) -> str:
        """The campaign's small records."""
        return os.path.join(self.repository, "reports", "auto_research", CAMPAIGN)

    @property
    def output(self) -> str:
        """The campaign's directory on scratch."""
        return os.path.join(self.scratch, "nemo-rl", "bench", "nemo-rl-auto-research", CAMPAIGN)

    @property
    def ledger(self) -> str:
        """The ledger."""
        return os.path.join(self.records, "results.tsv")


def campaign(place: str, files: int, *, dotenv: bool = True, cmd: str = "", more: tuple[str, ...] = ()) -> World:
    """Make a repository below `place`, plan and approve a campaign in it, and run the baseline."""
    env = environment(os.path.join(place, "home"))
    repository, scratch = os.path.join(place, "repository"), os.path.join(place, "scratch")
    for path in (repository, scratch):
        os.makedirs(path)
    generate(repository, files, env)
    if dotenv:
        with open(os.path.join(repository, ".env"), "w", encoding="utf-8") as file:
            file.write(SECRETS)
        os.chmod(file.name, 0o600)
        git(repository, env, "update-index", "--refresh")
        with open(os.path.join(repository, ".git", "info", "exclude"), "a", encoding="utf-8") as file:
            file.write("/.env\n")
    world = World(repository, scratch, env)
    line = cmd or f"echo {METRIC}: 0.5"
    words = (f"CMD={line}", f"METRIC=log:{METRIC}", "DIRECTION=max", "STOP=1000000 experiments, 1h each")
    world.verb("plan", *words, f"SCRATCH={scratch}", "PREFIX=ideas", *more)
    world.verb("approve", "YES=1")
    world.verb("baseline")
    return world


def record(world: World, count: int, *, directories: bool = True) -> None:
    """Bring a campaign to `count` ideas besides the baseline: rows, branches, notes, commits, what runs left on disk.

    Written straight into the files, in the form that runs leave; only the git objects lie in one pack here.
    """
    with open(world.ledger, encoding="utf-8") as file:
        header, first = file.read().splitlines()[:2]
    columns, base = header.split("\t"), dict(zip(header.split("\t"), first.split("\t"), strict=True))
    names = [f"idea-{number}" for number in range(count)]
    commits = _commits(world, names, base["commit"])
    draw = random.Random(2)
    rows = []
    for number, (name, commit) in enumerate(zip(names, commits, strict=True), 2):
        status = draw.choices(("discard", "keep", "crash"), (6, 1, 1))[0]
        value = "0.000000" if status == "crash" else f"{0.5 - draw.random() / 4:.6f}"
        fields = {
            **base,
            "index": str(number),
            "experiment": name,
            "branch": f"ideas/{name}",
            "commit": commit,
            "parent_commit": base["commit"],
            "metric_value": value,
            "status": status,
            "metric_source": "" if status == "crash" else base["metric_source"],
            "parent_metric": "0.5",
            "description": f"part{number % 7}: change number {number} of the settings",
            "reason": "worse than its parent",
            "log_path": base["log_path"].replace("/baseline/", f"/{name}/"),
            "checkpoint_path": base["checkpoint_path"].replace("/baseline/", f"/{name}/"),
            "artifacts_path": base["artifacts_path"].replace("/baseline/", f"/{name}/"),
        }
        rows.append(fields)
    with open(world.ledger, "a", encoding="utf-8") as file:
        file.writelines("\t".join(row[column] for column in columns) + "\n" for row in rows)
    _notes(world, rows)
    if directories:
        for name in names:
            _leave_output(world, name)


def _commits(world: World, names: list[str], parent: str) -> list[str]:
    """Make a branch with a commit of its own for each name; returns the commits."""
    stream = []
    for number, name in enumerate(names, 1):
        message = f"part: change\n\nCampaign: {CAMPAIGN}\nExperiment: {name}\n"
        who = f"A Researcher <researcher@example.org> {1700000000 + number} +0000"
        text = f"rate = 0.1{number}\n"
        stream.append(
            f"commit refs/heads/ideas/{name}\nmark :{number}\ncommitter {who}\ndata {len(message)}\n{message}"
            f"from {parent}\nM 100644 inline settings.py\ndata {len(text)}\n{text}\n"
        )
    marks = os.path.join(world.scratch, "marks")
    git(
        world.repository,
        world.env,
        *("fast-import", "--quiet", f"--export-marks={marks}"),
        data="".join(stream).encode(),
    )
    with open(marks, encoding="ascii") as file:
        found = dict(line.split() for line in file)
    return [found[f":{number}"] for number in range(1, len(names) + 1)]


def _notes(world: World, rows: list[dict[str, str]]) -> None:
    import json

    ref = "refs/notes/autoresearch"
    old = git(world.repository, world.env, "rev-parse", "--verify", ref)
    stream = [
        f"commit {ref}\ncommitter A Researcher <researcher@example.org> 1700000000 +0000\ndata 5\nnotes\nfrom {old}\n"
    ]
    for row in rows:
        text = json.dumps({"campaign": CAMPAIGN, **row}) + "\n"
        stream.append(f"N inline {row['commit']}\ndata {len(text)}\n{text}")
    git(world.repository, world.env, "fast-import", "--quiet", data="".join(stream).encode())


def _leave_output(world: World, name: str) -> None:
    home = os.path.join(world.output, name)
    for kind in ("logs", "checkpoints", "artifacts", "ray", "tmp", "wandb"):
        os.makedirs(os.path.join(home, kind))
    for file in ("run.log", "run.json", "command.sh", "supervisor.log"):
        with open(os.path.join(home, "logs", file), "w", encoding="utf-8") as handle:
            handle.write(f"{METRIC}: 0.5\n")
