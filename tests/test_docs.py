"""The documents: every command in them exists, the README's loop runs as it stands, links resolve, tables are true."""

from __future__ import annotations

import importlib.util
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import ModuleType

import pytest

from autoresearch import command, ledger, metrics
from autoresearch.metrics import signals
from autoresearch.rows import COLUMNS, Row
from tests.conftest import ROOT, git

DOCS = [ROOT / "README.md", ROOT / "README.ja.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
LATER = ("launchers.md", "performance.md")  # written with their parts
GUIDES = [path for path in DOCS if path.name not in ("CHANGELOG.md", "reference.md")]
# A training whose constants, words and output are what the README's loop edits, passes and reads.
TRAIN = """\
import argparse

LR = 0.02
DEPTH = 4
words = argparse.ArgumentParser()
words.add_argument("--lr", type=float, default=LR)
words.add_argument("--steps", type=int, default=10)
words.add_argument("--width", type=int, default=256)
given = words.parse_args()
for step in range(given.steps):
    print(f"step {step} | loss: {3.0 / (step + 1):.4f}")
print("---")
print(f"val_bpb:          {1.2 - given.lr - DEPTH / 1000 - given.steps / 1000 - given.width / 1e5:.6f}")
"""


def load_generator() -> ModuleType:
    """Return docs/generate.py as a module."""
    found = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


HEADERS = load_generator().headers()
BY_TARGET = {head.target: head for head in HEADERS}
BY_PROGRAM = {head.program: head for head in HEADERS}


def blocks(path: Path, language: str) -> list[tuple[str, str]]:
    """Return the fenced blocks of a language as (mark, text); the mark is that of a `<!-- runs: MARK -->` above."""
    pattern = rf"(?:<!-- runs: ([\w-]+) -->\n)?^```{language}\n(.*?)^```$"
    return [(mark or "", text) for mark, text in re.findall(pattern, path.read_text(), re.M | re.S)]


def marked(path: Path, mark: str) -> str:
    """Return the one block with a mark."""
    found = [text for language in ("sh", "crontab") for name, text in blocks(path, language) if name == mark]
    assert len(found) == 1, f"{path}: {mark}"
    return found[0]


def calls(text: str) -> list[list[str]]:
    """Return every call of make or of a program in bin/ in some shell text, as words."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        for part in re.split(r"&&|;|\||\$\(", re.sub(r"(^|\s)#.*", "", line)):
            cut = re.search(r"(?<![\w/.-])(?:make\s|(?!\.venv)(?:\S*/)?bin/\w)", part)
            if cut is None:
                continue
            try:
                words = shlex.split(part[cut.start() :])
            except ValueError:  # the end of a substitution: `"$(bin/start NAME=y)"`
                words = shlex.split(part[cut.start() :].replace('"', "").replace("'", "").replace(")", " "))
            found.append([word.rstrip(")") for word in words])
    return found


def fault(words: list[str]) -> str:
    """Return what is wrong with a call, empty when each of its words exists."""
    if words[0] == "make":
        words = words[3:] if words[1:2] == ["-C"] else words[1:]
        targets = [word for word in words if re.fullmatch(r"[a-z][a-z-]*", word)]
        if not targets:
            return ""
        if targets[0] not in make_targets():
            return f"no target {targets[0]}"
        head = BY_TARGET.get(targets[0])
    else:
        name = words[0].rpartition("bin/")[2].strip("\"'")
        head = BY_PROGRAM.get(name)
        if head is None:
            return f"no program {name}"
    known = {knob.partition("=")[0] for knob, _ in head.knobs} if head else set()
    given = [match[1] for word in words if (match := re.match(r"([A-Z][A-Z0-9_]*)=", word))]
    wrong = [name for name in given if head and name not in known]
    return f"{head.program if head else ''} has no knob {wrong[0]}" if wrong else ""


def make_targets() -> set[str]:
    """Return the targets of the Makefile."""
    text = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    found = re.search(r"^VERBS := (.*)$", text, re.M)
    assert found is not None
    return {*found[1].split(), *re.findall(r"^([a-z][a-z-]*): ;", text, re.M)}


def test_the_reference_is_current() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "generate.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_changed_header_makes_the_reference_out_of_date(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    generator = load_generator()
    stale = tmp_path / "reference.md"
    stale.write_text(generator.render(HEADERS).replace("## baseline", "## baselin"))
    monkeypatch.setattr(generator, "TARGET", stale)
    monkeypatch.setattr(generator, "ROOT", tmp_path)
    monkeypatch.setattr(generator, "headers", lambda: HEADERS)
    assert generator.main(["--check"]) == 1
    assert generator.main([]) == 0
    assert generator.main(["--check"]) == 0
    assert generator.main(["--what"]) == 2


def test_every_program_has_its_section_and_its_line() -> None:
    reference = (ROOT / "docs" / "reference.md").read_text()
    table = (ROOT / "README.md").read_text()
    for head in HEADERS:
        assert f"\n## {head.target}\n" in reference
        assert f"`{head.target}`" in table, head.target
        for knob, _ in head.knobs:
            assert f"| `{knob}` |" in reference


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.name)
def test_every_command_exists(path: Path) -> None:
    shell = "\n".join(text for language in ("sh", "crontab") for _, text in blocks(path, language))
    prose = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.M | re.S)
    inline = re.findall(r"`((?:make|bin/)[^`\n]*)`", prose)
    found = [words for text in [shell, *inline] for words in calls(text) if "bin/VERB" not in words[0]]
    wrong = {" ".join(words): why for words in found if (why := fault(words))}
    assert not wrong


def test_the_check_of_commands_finds_a_wrong_one() -> None:
    assert [fault(words) for words in calls("make plam CAMPAIGN=x")] == ["no target plam"]
    assert [fault(words) for words in calls('cd "$(bin/start NAM=y)" && make wait')] == ["start has no knob NAM", ""]
    assert [fault(words) for words in calls("make -C x stop NAME='a b' TEXT=1")] == ["stop has no knob TEXT"]


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_links_between_documents_resolve(path: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.M | re.S)
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        file, _, anchor = link.partition("#")
        if "://" in link or file.rpartition("/")[2] in LATER:
            continue
        target = path.parent / file if file else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


def anchors(path: Path) -> set[str]:
    """Return the anchors of a document's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", path.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("name", ["README.md", "README.ja.md"])
def test_the_table_of_exit_codes_is_that_of_the_headers(name: str) -> None:
    written = {int(code) for code in re.findall(r"^\| (\d+) \|", (ROOT / name).read_text(), re.M)}
    assert written == {code for head in HEADERS for code, _ in head.codes}


@pytest.mark.parametrize("name", ["README.md", "README.ja.md"])
def test_the_columns_are_those_of_the_ledger(name: str) -> None:
    assert tuple(blocks(ROOT / name, "text")[0][1].split()) == COLUMNS


def test_the_readme_in_japanese_has_the_same_commands_and_targets() -> None:
    english, japanese = ROOT / "README.md", ROOT / "README.ja.md"
    for language in ("sh", "crontab", "text"):
        bare = [
            [(mark, re.sub(r"\s*(?<=\s)#.*|^#.*", "", text, flags=re.M)) for mark, text in blocks(path, language)]
            for path in (english, japanese)
        ]
        assert bare[0] == bare[1]
    links = [set(re.findall(r"\]\((docs/[^)]+)\)", path.read_text())) for path in (english, japanese)]
    assert links[0] == links[1]
    rows = [re.findall(r"^\| ((?:`[a-z-]+` ?)+)\|", path.read_text(), re.M) for path in (english, japanese)]
    assert rows[0] == rows[1]


def test_guides_name_every_knob_form_and_placeholder() -> None:
    plan, forms = ((ROOT / "docs" / name).read_text() for name in ("plan.md", "metrics.md"))
    missing = [knob for knob, _ in BY_TARGET["plan"].knobs if f"`{knob.partition('=')[0]}" not in plan]
    assert [knob for knob in missing if knob not in ("CAMPAIGN=x", "REPO=DIR", "STOP=RULE")] == []
    assert [name for name in command.PLACEHOLDERS if f"`{{{name}}}`" not in plan] == []
    assert [name for name in metrics.SOURCES if f"`{name}:" not in forms] == []
    assert [name for name in signals.TAGS if name not in forms] == []


def test_no_document_names_a_machine() -> None:
    for path in DOCS:
        assert not re.search(r"/home/(?!ubuntu\b)|/root/|/tmp/(?!ar-UID)", path.read_text()), path


def on_a_terminal(script: str, typed: bytes) -> tuple[int, str]:
    """Run a script of bash on a terminal of its own where `typed` was typed; return its status and what was shown."""
    master, slave = pty.openpty()
    shown: list[bytes] = []

    def listen() -> None:
        try:
            while data := os.read(master, 65536):
                shown.append(data)
        except OSError:
            pass  # the last writer has gone

    child = subprocess.Popen(["bash", "-euo", "pipefail", "-c", script], stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    os.write(master, typed)
    try:
        status = child.wait(120)
    finally:
        child.kill()
        listener.join(5)
        os.close(master)
    return status, b"".join(shown).decode("utf-8", "replace")


def rows_of(trainer: Path) -> dict[str, Row]:
    """Return the newest row of each experiment."""
    found = ledger.read(str(trainer / "reports" / "auto_research" / "bpb" / "results.tsv")).rows
    return {row.experiment: row for row in found}


def test_the_readme_runs_as_it_stands(hermetic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = hermetic / "trainer"
    trainer.mkdir()
    (hermetic / "autoresearch").symlink_to(ROOT)
    (trainer / "train.py").write_text(TRAIN)
    git(trainer, "init", "-q")
    git(trainer, "add", "-A")
    git(trainer, "commit", "-q", "-m", "first")
    monkeypatch.setenv("USER", "somebody")
    status, shown = on_a_terminal(marked(ROOT / "README.md", "loop"), b"y\n")
    assert status == 0, shown
    assert "Approve this plan" in shown
    rows = rows_of(trainer)
    assert {name: row.status for name, row in rows.items()} == {
        **dict.fromkeys(("baseline", "higher-lr", "deeper", "longer"), "keep")
    }
    assert rows["baseline"].attempt == "3"
    assert float(rows["longer"].metric_value) < float(rows["deeper"].metric_value)
    assert "stop condition not yet met: 4/20 attempted" in shown
    run_in_tmux(marked(ROOT / "README.md", "tmux"), trainer, monkeypatch)
    run_as_cron_does(marked(ROOT / "README.md", "crontab"), hermetic)
    night = [row for name, row in rows_of(trainer).items() if name.startswith("night-")]
    assert [row.end_cause for row in night] == ["ok"]
    # cron sets no USER: the campaign stays where its plan put it.
    assert Path(night[0].log_path).parents[2] == Path(rows["baseline"].log_path).parents[3]
    assert git(trainer, "status", "--porcelain") == " M train.py"  # the README's own edit
    assert (trainer / "train.py").read_text() == TRAIN.replace("LR = 0.02", "LR = 0.05")


def run_in_tmux(line: str, trainer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Type the tmux line, on a server of our own, and wait for the row of its experiment."""
    if shutil.which("tmux") is None:
        words = shlex.split(line)
        assert words[:5] == ["tmux", "new-session", "-d", "-s", "night"]
        assert fault(words[5:]) == ""
        return
    with tempfile.TemporaryDirectory(dir="/tmp") as sockets:
        monkeypatch.setenv("TMUX_TMPDIR", sockets)
        monkeypatch.delenv("TMUX", raising=False)
        try:
            subprocess.run(["bash", "-euc", line], check=True, timeout=30)
            limit = time.monotonic() + 60
            while "wider" not in rows_of(trainer):
                assert time.monotonic() < limit
                time.sleep(0.1)
        finally:
            subprocess.run(["tmux", "kill-server"], check=False, capture_output=True, timeout=30)
    assert rows_of(trainer)["wider"].command.endswith("--width 512")


def run_as_cron_does(crontab: str, home: Path) -> None:
    """Run the line of a crontab with cron's environment: `\\%` is `%`, a bare `%` would end the command."""
    setting, line = crontab.splitlines()
    typed = re.fullmatch(r"(?:[\d*,/-]+ ){5}(.*)", line)
    assert typed is not None
    assert not re.search(r"(?<!\\)%", typed[1])
    env = {"HOME": str(home), "LOGNAME": "somebody", "SHELL": "/bin/sh", "PATH": setting.removeprefix("PATH=")}
    done = subprocess.run(["/bin/sh", "-c", typed[1].replace("\\%", "%")], env=env, cwd=home, timeout=120, check=False)
    assert done.returncode == 0, (home / "night.log").read_text()
    assert "stop condition not yet met: 6/20 attempted" in (home / "night.log").read_text()
