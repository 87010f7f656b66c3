"""repository.py: what cannot carry a campaign is refused with a remedy before anything is made."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from autoresearch.errors import Refused
from autoresearch.git import Git, repository, untracked
from tests.conftest import git, snapshot


def refusal(path: Path, prefix: str = "ar/c") -> str:
    """Return the message of the refusal that `check` gives for a repository."""
    with pytest.raises(Refused) as caught:
        repository.check(Git(str(path)), prefix)
    assert caught.value.fix
    return str(caught.value)


def test_a_good_repository_passes_and_stays_the_same(repo: Path) -> None:
    (repo / "train.py").write_text("edited")
    (repo / "new").write_text("x")
    before = snapshot(repo)
    assert repository.check(Git(str(repo)), "ar/c") == []
    assert snapshot(repo) == before


def test_look_says_where_everything_is(repo: Path) -> None:
    place = repository.look(Git(str(repo)))
    assert place.top == str(repo)
    assert place.common == place.directory == str(repo / ".git")
    assert place.branch == "refs/heads/main"
    git(repo, "checkout", "-q", "--detach")
    assert repository.look(Git(str(repo))).branch == ""


def test_a_symlinked_path_gives_physical_ones(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(repo)
    assert repository.look(Git(str(tmp_path / "link"))).top == str(repo)


def test_not_a_repository(tmp_path: Path) -> None:
    assert "not a git repository" in refusal(tmp_path)


def test_unborn_branch(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert "no commit yet" in refusal(tmp_path)


def test_bare(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "b.git")
    assert "is bare" in refusal(tmp_path / "b.git")


def test_git_directory_itself(repo: Path) -> None:
    assert "checkout" in refusal(repo / ".git")


def conflict(repo: Path) -> None:
    """Make `other` and `main` change the same line."""
    git(repo, "checkout", "-q", "-b", "other")
    (repo / "train.py").write_text("other\n")
    git(repo, "commit", "-qam", "other")
    git(repo, "checkout", "-q", "main")
    (repo / "train.py").write_text("main\n")
    git(repo, "commit", "-qam", "main")


@pytest.mark.parametrize(
    ("command", "word"),
    [
        ("merge", "a merge"),
        ("rebase", "a rebase"),
        ("cherry-pick", "a cherry-pick"),
        ("revert", "a revert"),
        ("bisect", "a bisection"),
    ],
)
def test_half_done(repo: Path, command: str, word: str) -> None:
    conflict(repo)
    if command == "bisect":
        git(repo, "bisect", "start")
    else:
        target = "HEAD~1" if command == "revert" else "other"
        if command == "revert":
            (repo / "train.py").write_text("third\n")
            git(repo, "commit", "-qam", "third")
        subprocess.run(["git", "-C", repo, command, target], capture_output=True, check=False)
    assert f"{word} is not finished" in refusal(repo)


def test_no_identity(repo: Path, hermetic: Path) -> None:
    (hermetic / ".gitconfig").write_text("[user]\n\tuseConfigOnly = true\n")
    assert "git config --global user.name" in refusal(repo)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's repository")
def test_another_users_repository(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in [repo, *repo.rglob("*")]:
        os.lchown(path, 1, 1)
    assert "sudo -u daemon" in refusal(repo)
    # With sudo git itself lets root in; its objects would lock the owner out.
    monkeypatch.setenv("SUDO_UID", "1")
    assert "sudo -u daemon" in refusal(repo)


@pytest.mark.parametrize(
    ("branch", "prefix", "word"),
    [
        ("ar", "ar/c", "is in the way"),
        ("ar/c", "ar/c", "is in the way"),
        ("ar/c/baseline/x", "ar/c", "is in the way"),
        ("AR/x", "ar/c", "only in case"),
        ("ar/café/x", "ar/cafe\u0301", "only in case or accents"),
    ],
)
def test_a_branch_in_the_way(repo: Path, branch: str, prefix: str, word: str) -> None:
    git(repo, "branch", branch)
    assert word in refusal(repo, prefix)
    git(repo, "pack-refs", "--all")
    assert word in refusal(repo, prefix)


@pytest.mark.parametrize("prefix", ["a..b", "-x", "a b", "x.lock", "a/"])
def test_a_prefix_git_would_not_take(repo: Path, prefix: str) -> None:
    assert "git takes no branch" in refusal(repo, prefix)


def test_other_branches_are_no_obstacle(repo: Path) -> None:
    for branch in ("arx", "ar/d/x", "ar/c/old", "x/AR"):
        git(repo, "branch", branch)
    assert repository.check(Git(str(repo)), "ar/c") == [
        "1 branches below ar/c/ exist already; they are left as they are"
    ]


def test_remarks(repo: Path, tmp_path: Path) -> None:
    git(repo, "config", "commit.gpgSign", "true")
    (repo / ".git/index.lock").touch()
    remarks = repository.check(Git(str(repo)), "ar/c")
    assert len(remarks) == 2
    assert "index.lock" in remarks[0]
    assert "not signed" in remarks[1]
    assert (repo / ".git/index.lock").exists()


def test_branches_are_created_once(repo: Path) -> None:
    head = git(repo, "rev-parse", "HEAD")
    results: list[str] = []

    def create() -> None:
        try:
            repository.create_branch(Git(str(repo)), "ar/c/x", head)
            results.append("made")
        except Refused as error:
            results.append(error.why)

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results.count("made") == 1
    assert results.count("ar/c/x exists already") == 7
    with pytest.raises(Refused, match="in the way"):
        repository.create_branch(Git(str(repo)), "ar/c/x/y", head)
    with pytest.raises(Refused, match="in the way"):
        repository.create_branch(Git(str(repo)), "ar/c", head)


def test_branches_move_only_from_where_they_were(repo: Path) -> None:
    one = Git(str(repo))
    first = git(repo, "rev-parse", "HEAD")
    second = git(repo, "commit-tree", "-p", "HEAD", "-m", "x", "HEAD^{tree}")
    repository.create_branch(one, "ar/c/x", first)
    repository.move_branch(one, "ar/c/x", second, first)
    with pytest.raises(Refused, match="no longer at"):
        repository.move_branch(one, "ar/c/x", first, first)
    assert git(repo, "rev-parse", "ar/c/x") == second


@pytest.mark.parametrize("linked", [False, True])
def test_a_branch_that_the_user_works_on_is_refused(repo: Path, hostile: Path, linked: bool) -> None:
    """Moved below a checkout, it would show there as changes that nobody made."""
    one, pool = Git(str(repo)), hostile / "p"
    git(repo, "branch", "ar/c/x")
    git(repo, "worktree", "add", "-q", "-b", "ar/c/y", str(pool / "1"))
    git(repo, "worktree", "add", "-q", "-b", "ar/c/gone", str(hostile / "gone"))
    shutil.rmtree(hostile / "gone")
    for branch in ("ar/c/x", "ar/c/y", "ar/c/gone", "ar/c/none"):
        repository.refuse_checked_out(one, branch, str(pool))
    if linked:
        git(repo, "worktree", "add", "-q", str(hostile / "linked"), "ar/c/x")
    else:
        git(repo, "switch", "-q", "ar/c/x")
    with pytest.raises(Refused, match="ar/c/x is checked out in") as caught:
        repository.refuse_checked_out(one, "ar/c/x", str(pool))
    subprocess.run(["sh", "-c", caught.value.fix], check=True)
    repository.refuse_checked_out(one, "ar/c/x", str(pool))


def test_exclude_once_and_whole(repo: Path) -> None:
    one, path = Git(str(repo)), repo / ".git/info/exclude"
    path.write_text("# mine\n*.o")
    path.chmod(0o640)
    threads = [
        threading.Thread(target=repository.exclude, args=(one, [f"/r{n % 4}/", "/session/", "/a b é/"]))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = path.read_text().splitlines()
    assert lines[:2] == ["# mine", "*.o"]
    assert sorted(lines[2:]) == ["/a b é/", "/r0/", "/r1/", "/r2/", "/r3/", "/session/"]
    assert path.stat().st_mode & 0o777 == 0o640


def test_exclude_from_a_worktree_and_without_the_file(repo: Path, tmp_path: Path) -> None:
    (repo / ".git/info/exclude").unlink()
    git(repo, "worktree", "add", "-q", str(tmp_path / "w"))
    repository.exclude(Git(str(tmp_path / "w")), ["/session/"])
    assert (repo / ".git/info/exclude").read_text() == "/session/\n"


def test_user_changes(repo: Path) -> None:
    (repo / "train.py").write_text("x")
    (repo / "staged é\n'").write_text("x")
    git(repo, "add", "staged é\n'")
    (repo / "many").mkdir()
    (repo / "many/a").write_text("")
    before = snapshot(repo)
    changes = repository.user_changes(Git(str(repo)))
    assert changes == [("A ", "staged é\n'"), (" M", "train.py"), ("??", "many/")]
    assert snapshot(repo) == before


def test_files_that_code_needs_but_git_does_not_know(make_repo: Callable[..., Path]) -> None:
    repo = make_repo(
        {
            "train.py": "import helper, os\nfrom pkg import tool\nfrom fresh.deep import x\nimport known\n",
            "pkg/__init__.py": "",
            "pkg/a.py": "from . import sibling\nfrom .other import (x,\n  y)\nfrom ..top import z\n",
            "src/lib/__init__.py": "    from lib.hidden import q\n",
            "known.py": "",
            ".gitignore": "helper.py\n.venv/\n",
        }
    )
    modules = ("helper.py", "pkg/tool.py", "pkg/sibling.py", "pkg/other.py", "top.py", "fresh/deep.py", "unused.py")
    for name in (*modules, "src/lib/hidden.py", "recipes/mine.yaml", "data/x.jsonl", ".venv/os.py"):
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_text("")
    head = git(repo, "rev-parse", "HEAD")
    before = snapshot(repo)
    found = untracked.needed(
        Git(str(repo)), str(repo), head, ["python", "train.py", "recipes/mine.yaml", "d=data/x.jsonl"]
    )
    assert found == [
        *("data/x.jsonl", "fresh/deep.py", "helper.py", "pkg/other.py", "pkg/sibling.py", "pkg/tool.py"),
        *("recipes/mine.yaml", "src/lib/hidden.py", "top.py"),
    ]
    assert snapshot(repo) == before
