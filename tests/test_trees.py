"""trees.py: a tree is handed on only when it equals a fresh checkout, and nothing in one is ever lost."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from autoresearch.errors import Refused
from autoresearch.git import Git, eviction, freshness, submodules, treerecords
from autoresearch.git.trees import Pool
from tests.conftest import git, snapshot
from tests.runs import root_only, tmpfs

FILES = {
    "train.py": "print(1)\n",
    "pkg/a.py": "a\n",
    "pkg/deep/b.py": "b\n",
    ".gitignore": "*.log\nignored/\n",
    "link-target": "t\n",
}


@pytest.fixture
def repo(make_repo: Callable[..., Path]) -> Path:
    """Two commits; the second changes one file, adds one and removes one."""
    repo = make_repo(FILES)
    (repo / "train.py").write_text("print(2)\n")
    (repo / "new.py").write_text("n\n")
    git(repo, "rm", "-q", "pkg/deep/b.py")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "second")
    return repo


@pytest.fixture
def artifacts(tmp_path: Path) -> Path:
    """Where strays go."""
    return tmp_path / "camp aign's" / "x" / "artifacts"


def head(repo: Path, name: str = "HEAD") -> str:
    """Return the commit of a name."""
    return git(repo, "rev-parse", name)


def content(path: str | Path) -> dict[str, object]:
    """Return every path of a tree with its type, execute bit and content; the `.git` file apart."""
    top, found = str(path), {}
    for folder, directories, names in os.walk(top):
        for name in [*directories, *names]:
            full = os.path.join(folder, name)
            relative = os.path.relpath(full, top)
            if relative != ".git":
                info = os.lstat(full)
                data = os.readlink(full) if os.path.islink(full) else ""
                if os.path.isfile(full) and not data:
                    data = Path(full).read_bytes().hex()
                found[relative] = (info.st_mode >> 12, bool(info.st_mode & 0o100) or os.path.isdir(full), data)
    return found


def fresh(repo: Path, tmp_path: Path, commit: str) -> dict[str, object]:
    """Return the content of a fresh checkout of a commit."""
    where = tmp_path / f"fresh-{commit}"
    if not where.exists():
        git(repo, "worktree", "add", "-q", "--detach", str(where), commit)
    return content(where)


def test_a_tree_equals_a_fresh_checkout_and_is_used_again(
    repo: Path, pool: Pool, artifacts: Path, tmp_path: Path
) -> None:
    before = snapshot(repo)
    first = pool.acquire(head(repo, "HEAD~1"), "one")
    assert content(first.path) == fresh(repo, tmp_path, head(repo, "HEAD~1"))
    assert pool.give_back("one", str(artifacts)).reused
    second = pool.acquire(head(repo), "two")
    assert second.path == first.path
    assert content(second.path) == fresh(repo, tmp_path, head(repo))
    assert git(Path(second.path), "status", "--porcelain", "--ignored") == ""
    assert git(Path(second.path), "rev-parse", "HEAD") == head(repo)
    assert snapshot(repo) == before
    assert not artifacts.exists()


def test_a_warm_tree_costs_few_processes(repo: Path, pool: Pool, artifacts: Path) -> None:
    pool.acquire(head(repo, "HEAD~1"), "one")
    before = pool.git.count
    pool.give_back("one", str(artifacts))
    assert pool.git.count - before == 1
    before = pool.git.count
    pool.acquire(head(repo), "two")
    assert pool.git.count - before == 4  # two by two: ls-files with diff-tree, read-tree with update-ref


def edit_hidden(tree: Path, flag: str) -> None:
    git(tree, "update-index", flag, "train.py")
    (tree / "train.py").write_text("hidden\n")


MUTATIONS: dict[str, Callable[[Path], object]] = {
    "edit": lambda tree: (tree / "train.py").write_text("x"),
    "edit of the same size and second": lambda tree: (tree / "train.py").write_text("print(9)\n"),
    "delete": lambda tree: (tree / "train.py").unlink(),
    "execute bit": lambda tree: (tree / "train.py").chmod(0o755),
    "untracked": lambda tree: (tree / "out.txt").write_text("x"),
    "untracked with odd name": lambda tree: (tree / "a\nb'\"é").write_text("x"),
    "ignored": lambda tree: (tree / "run.log").write_text("x"),
    "ignored directory": lambda tree: (tree / "ignored/deep").mkdir(parents=True),
    "empty directory": lambda tree: (tree / "pkg/empty").mkdir(),
    "assume-unchanged": lambda tree: edit_hidden(tree, "--assume-unchanged"),
    "skip-worktree": lambda tree: edit_hidden(tree, "--skip-worktree"),
    "staged": lambda tree: ((tree / "train.py").write_text("x"), git(tree, "add", "train.py")),
    "file became a directory": lambda tree: (
        (tree / "train.py").unlink(),
        (tree / "train.py").mkdir(),
        (tree / "train.py/x").write_text("x"),
    ),
    "file became a link": lambda tree: ((tree / "train.py").unlink(), (tree / "train.py").symlink_to("link-target")),
    "directory became a link": lambda tree: (
        (tree / "pkg").rename(tree.parent / "aside"),
        (tree / "pkg").symlink_to(tree.parent / "aside"),
    ),
    "nested repository": lambda tree: git(tree, "init", "-q", "inner"),
    "committed": lambda tree: ((tree / "train.py").write_text("x"), git(tree, "commit", "-qam", "by the run")),
    "other commit": lambda tree: git(tree, "checkout", "-q", "HEAD~1"),
    "git file removed": lambda tree: (tree / ".git").unlink(),
    "user settings that hide": lambda tree: (
        git(tree, "config", "core.fileMode", "false"),
        git(tree, "config", "core.trustctime", "false"),
        git(tree, "config", "core.checkStat", "minimal"),
        (tree / "train.py").chmod(0o755),
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_changed_tree_is_never_handed_on(repo: Path, pool: Pool, tmp_path: Path, name: str) -> None:
    free = pool.acquire(head(repo), "one")
    assert pool.give_back("one", str(tmp_path / "a")).reused
    MUTATIONS[name](Path(free.path))
    kept = content(free.path)
    other = pool.acquire(head(repo), "two")
    assert other.path != free.path
    assert content(other.path) == fresh(repo, tmp_path, head(repo))
    assert content(free.path) == kept  # retired as it is, never repaired
    assert treerecords.listing(pool.directory) == {1: "retired", 2: "owner"}


@pytest.mark.parametrize("name", MUTATIONS)
def test_what_a_run_leaves_is_kept_and_the_next_one_starts_clean(
    repo: Path, pool: Pool, artifacts: Path, tmp_path: Path, name: str
) -> None:
    tree = pool.acquire(head(repo), "one")
    MUTATIONS[name](Path(tree.path))
    after = content(tree.path)
    back = pool.give_back("one", str(artifacts))
    commit = fresh(repo, tmp_path, head(repo))
    if not back.stuck:
        lost = {path for path, what in after.items() if commit.get(path) != what}
        kept = content(back.where) if back.where else {}
        assert {path for path in lost if path not in kept and not path.startswith("inner/.git")} == set()
        for path in lost:
            assert kept[path] == after[path]
    second = pool.acquire(head(repo), "two")
    assert content(second.path) == commit


def test_strays_are_moved_and_named_and_caches_removed(repo: Path, pool: Pool, artifacts: Path) -> None:
    tree = Path(pool.acquire(head(repo), "one").path)
    (tree / "out/checkpoints").mkdir(parents=True)
    (tree / "out/checkpoints/model").write_text("weights")
    (tree / "pkg/__pycache__").mkdir()
    (tree / "pkg/__pycache__/a.pyc").write_text("x")
    (tree / ".venv").symlink_to(repo)
    back = pool.give_back("one", str(artifacts))
    assert back.moved == ["out/"]
    assert sorted(back.removed) == [".venv", "pkg/__pycache__/"]
    assert (artifacts / "left_in_tree/out/checkpoints/model").read_text() == "weights"
    assert (repo / "train.py").exists()
    assert back.reused
    tree = Path(pool.acquire(head(repo), "one.2").path)
    (tree / "out").write_text("again")
    back = pool.give_back("one.2", str(artifacts))
    assert back.where == str(artifacts / "left_in_tree.2")


def test_giving_back_twice_is_harmless(repo: Path, pool: Pool, artifacts: Path) -> None:
    pool.acquire(head(repo), "one")
    assert pool.give_back("one", str(artifacts)).reused
    assert pool.give_back("one", str(artifacts)) == ([], "", [], [], [], False)


def test_a_tree_whose_record_cannot_be_read_now_is_not_forgotten(
    repo: Path, pool: Pool, artifacts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(path: str, mode: str) -> None:
        raise OSError(errno.EIO, "Input/output error", path)

    pool.acquire(head(repo), "one")
    with monkeypatch.context() as disk:
        disk.setattr(treerecords, "open", fails, raising=False)
        with pytest.raises(OSError, match="Input/output error"):
            pool.give_back("one", str(artifacts))
    assert pool.give_back("one", str(artifacts)).reused


def test_a_tree_is_made_whole_or_not_at_all(
    repo: Path, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(path: str, mode: str, **given: Any) -> IO[Any]:
        looked.append(path)
        if [name.endswith("/.git") for name in looked].count(True) == 2:
            raise OSError(errno.EIO, "Input/output error", path)
        return open(path, mode, **given)

    looked: list[str] = []
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with monkeypatch.context() as disk:
        disk.setattr(submodules, "open", fails, raising=False)
        with pytest.raises(OSError, match="Input/output error"):
            pool.acquire(head(repo), "one")
    assert os.listdir(".") == []
    assert content(pool.acquire(head(repo), "two").path) == fresh(repo, tmp_path, head(repo))


@root_only
def test_the_full_disk_of_the_trees_is_named(repo: Path, tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", "size=64k") as disk:
        pool = Pool(Git(str(repo)), str(disk / ".trees"))
        (disk / ".trees").mkdir()
        with open(disk / "everything", "wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        with pytest.raises(OSError, match=r"No space left.*/\.trees/1\.owner'"):
            pool.acquire(head(repo), "one")


def test_all_trees_of_an_owner_come_back(repo: Path, pool: Pool, artifacts: Path) -> None:
    """A caller that was killed may have taken a second one for the same attempt."""
    for name in ("a", "b"):
        Path(pool.acquire(head(repo), "one").path, name).write_text("x")
    back = pool.give_back("one", str(artifacts))
    assert sorted(back.moved) == ["a", "b"]
    assert pool.trees() == []


def test_changed_attributes_mean_a_fresh_tree(make_repo: Callable[..., Path], tmp_path: Path) -> None:
    repo = make_repo({"a.txt": "1\n2\n", "sub/b.txt": "1\n"})
    (repo / "sub/.gitattributes").write_text("*.txt text eol=crlf\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "attributes")
    pool = Pool(Git(str(repo)), str(tmp_path / "p"))
    one = pool.acquire(head(repo, "HEAD~1"), "one")
    pool.give_back("one", str(tmp_path / "a"))
    two = pool.acquire(head(repo), "two")
    assert two.path != one.path
    assert Path(two.path, "sub/b.txt").read_bytes() == b"1\r\n"
    assert content(two.path) == fresh(repo, tmp_path, head(repo))
    from autoresearch.git import eviction

    assert eviction.tidy(pool) == []
    assert not os.path.exists(one.path)


@pytest.mark.parametrize("change", ["config", "info", "global"])
def test_changed_conversion_settings_mean_a_fresh_tree(
    repo: Path, pool: Pool, hermetic: Path, tmp_path: Path, change: str
) -> None:
    one = pool.acquire(head(repo), "one")
    pool.give_back("one", str(tmp_path / "a"))
    if change == "config":
        git(repo, "config", "core.autocrlf", "true")
    elif change == "info":
        (repo / ".git/info/attributes").write_text("*.py text eol=crlf\n")
    else:
        git(repo, "config", "--global", "core.eol", "crlf")
    two = pool.acquire(head(repo), "two")
    assert two.path != one.path
    assert content(two.path) == fresh(repo, tmp_path, head(repo))


def test_other_settings_keep_the_tree(repo: Path, pool: Pool, tmp_path: Path) -> None:
    one = pool.acquire(head(repo), "one")
    pool.give_back("one", str(tmp_path / "a"))
    git(repo, "config", "remote.origin.url", "https://example.org/x")
    assert pool.acquire(head(repo), "two").path == one.path


def test_the_repositorys_lock_is_waited_for_and_the_worktree_is_locked(repo: Path, pool: Pool) -> None:
    tree = pool.acquire(head(repo), "one")
    listed = git(repo, "worktree", "list", "--porcelain")
    assert "locked autoresearch: in use by a campaign" in listed
    (repo / ".git/index.lock").touch()  # of no concern to us
    assert pool.acquire(head(repo), "two").path != tree.path


def test_hooks_do_not_run(repo: Path, pool: Pool, artifacts: Path, tmp_path: Path) -> None:
    for hook in ("post-checkout", "reference-transaction", "post-index-change"):
        (repo / ".git/hooks" / hook).write_text(f"#!/bin/sh\ntouch '{tmp_path}/ran'\nexit 1\n")
        (repo / ".git/hooks" / hook).chmod(0o755)
    pool.acquire(head(repo), "one")
    pool.give_back("one", str(artifacts))
    pool.acquire(head(repo, "HEAD~1"), "two")
    assert not (tmp_path / "ran").exists()


def test_eight_at_once_get_eight_trees(repo: Path, pool: Pool, tmp_path: Path) -> None:
    pool.acquire(head(repo), "warm")
    pool.give_back("warm", str(tmp_path / "a"))
    before = snapshot(repo)
    code = (
        "import sys, time; from autoresearch.git import Git; from autoresearch.git.trees import Pool\n"
        "pool = Pool(Git(sys.argv[1]), sys.argv[2]); print(pool.acquire(sys.argv[3], sys.argv[4]).path)"
    )
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(repo), pool.directory, head(repo, "HEAD~1" if n % 2 else "HEAD"), f"e{n}"],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
        )
        for n in range(8)
    ]
    paths = [racer.communicate()[0].rstrip("\n") for racer in racers]
    assert all(racer.returncode == 0 for racer in racers)
    assert len(set(paths)) == 8
    for number, path in enumerate(paths):
        assert content(path) == fresh(repo, tmp_path, head(repo, "HEAD~1" if number % 2 else "HEAD"))
    git(repo, "fsck", "--strict")
    assert snapshot(repo) == before


def test_a_wiped_scratch_is_no_obstacle(repo: Path, pool: Pool, tmp_path: Path) -> None:
    import shutil

    tree = pool.acquire(head(repo), "one")
    shutil.rmtree(pool.directory)
    git(repo, "worktree", "prune")  # locked: stays
    again = pool.acquire(head(repo), "two")
    assert again.path == tree.path
    assert content(again.path) == fresh(repo, tmp_path, head(repo))


def test_required_data_is_linked_and_no_stray(make_repo: Callable[..., Path], tmp_path: Path) -> None:
    repo = make_repo({"train.py": "", "data/README": "", ".gitignore": "*.jsonl\n"})
    for name in ("data/train.jsonl", "ckpt/deep/model", "a/b/c.bin"):
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_text(name)
    before = snapshot(repo)
    pool = Pool(Git(str(repo)), str(tmp_path / "p"))
    need = ["data/", "ckpt/", "a/b/c.bin", "train.py", "missing", "../x", "/etc/passwd"]
    tree = Path(pool.acquire(head(repo), "one", need).path)
    assert (tree / "data/train.jsonl").read_text() == "data/train.jsonl"
    assert (tree / "ckpt/deep/model").read_text() == "ckpt/deep/model"
    assert (tree / "a/b/c.bin").is_symlink()
    assert not (tree / "train.py").is_symlink()
    assert not (tree / "data/README").is_symlink()
    (tree / "a/left").write_text("x")
    back = pool.give_back("one", str(tmp_path / "art"))
    assert (back.moved, back.reused) == (["a/"], True)
    assert content(tree) == fresh(repo, tmp_path, head(repo))
    assert snapshot(repo) == before


def test_a_stash_of_the_run_is_reported(repo: Path, pool: Pool, artifacts: Path) -> None:
    tree = Path(pool.acquire(head(repo), "one").path)
    (tree / "train.py").write_text("x")
    git(tree, "stash")
    assert "stash" in pool.give_back("one", str(artifacts)).remarks[0]


def test_a_stash_that_git_only_packed_meanwhile_is_no_change(repo: Path, pool: Pool, artifacts: Path) -> None:
    git(repo, "update-ref", "refs/stash", "HEAD")
    pool.acquire(head(repo), "one")
    git(repo, "pack-refs", "--all")
    assert pool.give_back("one", str(artifacts)).remarks == []


def test_commits_of_the_run_are_kept_and_its_tree_goes(repo: Path, pool: Pool, artifacts: Path) -> None:
    before = snapshot(repo)
    for number, how in enumerate((["--detach"], ["-b", "of-the-run"])):
        tree = Path(pool.acquire(head(repo), "one").path)
        git(tree, "checkout", "-q", *how)
        (tree / "train.py").write_text(f"{number}\n")
        git(tree, "commit", "-q", "-a", "-m", "by the run")
        made = head(tree)
        back = pool.give_back("one", str(artifacts))
        assert (back.stuck, back.reused) == ([], False)
        assert back.remarks == [f"it moved HEAD in its tree to {made[:12]}"]
        assert eviction.tidy(pool) == []
        assert not tree.exists()
        git(repo, "gc", "-q", "--prune=now")
        assert git(repo, "show", f"{made}:train.py") == str(number)
    git(repo, "branch", "-q", "-D", "of-the-run")
    assert eviction.evict(pool) == []
    assert snapshot(repo) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root can move everything")
def test_what_cannot_be_moved_retires_the_tree(repo: Path, pool: Pool, artifacts: Path) -> None:
    tree = Path(pool.acquire(head(repo), "one").path)
    (tree / "locked").mkdir()
    (tree / "locked/x").write_text("x")
    (tree / "locked").chmod(0o500)
    back = pool.give_back("one", str(artifacts))
    assert back.stuck
    assert not back.reused
    assert pool.acquire(head(repo), "two").path != str(tree)
    (tree / "locked").chmod(0o700)


def test_a_torn_record_costs_a_tree_and_nothing_else(repo: Path, pool: Pool, tmp_path: Path) -> None:
    one = pool.acquire(head(repo), "one")
    pool.give_back("one", str(tmp_path / "a"))
    Path(pool.directory, "1.free").write_text('{"commit": "abc')
    two = pool.acquire(head(repo), "two")
    assert two.path != one.path
    assert treerecords.listing(pool.directory)[1] == "retired"


def test_the_private_index_keeps_its_time(repo: Path, pool: Pool) -> None:
    tree = pool.acquire(head(repo), "one")
    record = treerecords.read(pool.directory, tree.number, "owner")
    assert record
    own, private = Path(record.directory, "index"), Path(treerecords.index(pool.directory, tree.number))
    assert own.read_bytes() == private.read_bytes()
    assert own.stat().st_mtime_ns == private.stat().st_mtime_ns


def test_one_listing_finds_what_clean_and_diff_files_find(repo: Path, pool: Pool, tmp_path: Path) -> None:
    for name, mutate in MUTATIONS.items():
        if name in ("git file removed", "directory became a link", "file became a directory") or "hidden" in name:
            continue
        tree = pool.acquire(head(repo), name.replace(" ", "-"))
        index = treerecords.index(pool.directory, tree.number)
        mutate(Path(tree.path))
        own = pool.git.at(tree.path)
        state = freshness.finish(freshness.start(own, index))
        assert state
        env = {"GIT_INDEX_FILE": index}
        expected = own.run("-c", "core.fileMode=true", "diff-files", "--name-only", "-z", env=env).split(b"\0")[:-1]
        assert sorted(map(os.fsencode, state.changed)) == sorted(expected), name
        cleaned = own.run("-c", "core.quotePath=false", "clean", "-ndxff", env=env).splitlines()
        assert len(state.strays) == len(cleaned), name


def test_a_refused_fill_leaves_nothing(make_repo: Callable[..., Path], tmp_path: Path) -> None:
    repo = make_repo({"a": ""})
    git(repo, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub")
    git(repo, "commit", "-qm", "gitlink")
    pool = Pool(Git(str(repo)), str(tmp_path / "p"))
    with pytest.raises(Refused, match="submodule"):
        pool.acquire(head(repo), "one")
    assert os.listdir(pool.directory) == ["lock"]
    assert git(repo, "worktree", "list").count("\n") == 0
