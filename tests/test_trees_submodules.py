"""Submodules are filled from the user's own copy without network, LFS pointers are refused, sparse and shallow work."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from autoresearch.errors import Refused
from autoresearch.git import Git, eviction, hypothesis, repository, treerecords
from autoresearch.git.trees import Pool
from tests.conftest import git, snapshot

LOCAL = ("-c", "protocol.file.allow=always")


def nested(make_repo: Callable[..., Path]) -> Path:
    """Return a repository of two commits with a submodule `libs/sub` that has one of its own, `inner`."""
    inner = make_repo({"deep.py": "deep\n"}, name="inner-origin")
    sub = make_repo({"lib.py": "lib\n", ".gitignore": "*.log\n"}, name="sub-origin")
    git(sub, *LOCAL, "submodule", "--quiet", "add", str(inner), "inner")
    git(sub, "commit", "-qm", "inner")
    repo = make_repo({"train.py": "1\n"})
    git(repo, *LOCAL, "submodule", "--quiet", "add", str(sub), "libs/sub")
    git(repo, *LOCAL, "submodule", "--quiet", "update", "--init", "--recursive")
    git(repo, "commit", "-qm", "sub")
    (repo / "train.py").write_text("2\n")
    git(repo, "commit", "-qam", "second")
    return repo


@pytest.fixture
def repo(make_repo: Callable[..., Path]) -> Path:
    """A repository with nested submodules."""
    return nested(make_repo)


def test_filled_checked_used_again_and_removed(repo: Path, pool: Pool, tmp_path: Path) -> None:
    before, modules = snapshot(repo), (repo / ".git/modules/libs/sub/config").read_bytes()
    assert repository.check(pool.git, "ar/c") == []
    tree = pool.acquire(git(repo, "rev-parse", "HEAD~1"), "one")
    assert Path(tree.path, "libs/sub/lib.py").read_text() == "lib\n"
    assert Path(tree.path, "libs/sub/inner/deep.py").read_text() == "deep\n"
    assert git(Path(tree.path), "status", "--porcelain", "--ignored") == ""
    assert pool.give_back("one", str(tmp_path / "a")).reused
    again = pool.acquire(git(repo, "rev-parse", "HEAD"), "two")
    assert again.path == tree.path
    Path(tree.path, "libs/sub/run.log").write_text("ignored in the submodule\n")
    back = pool.give_back("two", str(tmp_path / "a"))
    assert back.moved == ["libs/sub/run.log"]
    assert (tmp_path / "a/left_in_tree/libs/sub/run.log").exists()
    assert len(eviction.evict(pool)) == 1
    assert git(repo / "libs/sub", "worktree", "list").count("\n") == 0
    assert git(repo / "libs/sub/inner", "worktree", "list").count("\n") == 0
    assert snapshot(repo) == before
    assert (repo / ".git/modules/libs/sub/config").read_bytes() == modules


def test_an_edit_in_a_submodule_retires_the_tree(repo: Path, pool: Pool, tmp_path: Path) -> None:
    head = git(repo, "rev-parse", "HEAD")
    tree = pool.acquire(head, "one")
    Path(tree.path, "libs/sub/inner/deep.py").write_text("edited\n")
    back = pool.give_back("one", str(tmp_path / "a"))
    assert (back.moved, back.reused) == (["libs/sub/inner/deep.py"], False)
    tree = pool.acquire(head, "two")
    pool.give_back("two", str(tmp_path / "a"))
    Path(tree.path, "libs/sub/lib.py").write_text("edited while free\n")
    assert pool.acquire(head, "three").path != tree.path
    assert eviction.tidy(pool) == []
    assert treerecords.listing(pool.directory) == {2: "retired", 3: "owner"}


def test_another_commit_of_the_submodule_means_a_fresh_tree(repo: Path, pool: Pool, tmp_path: Path) -> None:
    pool.acquire(git(repo, "rev-parse", "HEAD"), "one")
    pool.give_back("one", str(tmp_path / "a"))
    (repo / "libs/sub/lib.py").write_text("newer\n")
    git(repo / "libs/sub", "commit", "-qam", "newer")
    git(repo, "commit", "-qam", "bump")
    tree = pool.acquire(git(repo, "rev-parse", "HEAD"), "two")
    assert Path(tree.path, "libs/sub/lib.py").read_text() == "newer\n"
    assert tree.number == 2


def test_an_empty_submodule_is_refused_with_the_command(repo: Path, pool: Pool) -> None:
    git(repo, "submodule", "--quiet", "deinit", "-f", "libs/sub")
    for call in (
        lambda: repository.check(pool.git, "ar/c"),
        lambda: pool.acquire(git(repo, "rev-parse", "HEAD"), "one"),
    ):
        with pytest.raises(Refused, match="libs/sub is empty") as caught:
            call()
        assert "submodule update --init" in caught.value.fix
    assert git(repo, "worktree", "list").count("\n") == 0
    assert treerecords.listing(pool.directory) == {}


def test_a_missing_commit_of_a_submodule(repo: Path, pool: Pool) -> None:
    git(repo, "update-index", "--cacheinfo", f"160000,{'1' * 40},libs/sub")
    git(repo, "commit", "-qm", "not fetched")
    with pytest.raises(Refused, match="lacks the commit 1111"):
        repository.check(pool.git, "ar/c")


def test_files_in_a_submodule_are_refused(repo: Path) -> None:
    head = git(repo, "rev-parse", "HEAD")
    (repo / "libs/sub/lib.py").write_text("edited\n")
    for name in ("libs/sub/lib.py", "libs/sub"):
        with pytest.raises(Refused):
            hypothesis.build(Git(str(repo)), parent=head, base=head, subject="a: b", files=[name])


def test_an_edit_in_a_submodule_of_a_tree_is_refused_and_not_left_out(repo: Path, pool: Pool) -> None:
    head = git(repo, "rev-parse", "HEAD")
    tree = pool.open_for("y", head)
    Path(tree.path, "train.py").write_text("3\n")
    Path(tree.path, "libs/sub/__pycache__").mkdir()
    Path(tree.path, "libs/sub/__pycache__/lib.pyc").write_text("can be made again")
    whole = {"parent": head, "base": head, "subject": "a: b", "tree": tree, "pool": pool}
    assert hypothesis.build(pool.git, **whole).paths == ("train.py",)  # type: ignore[arg-type]
    for name in ("libs/sub/lib.py", "libs/sub/new.py", "libs/sub/inner/deep.py"):
        file = Path(tree.path, name)
        before = file.read_bytes() if file.exists() else None
        file.write_text("edited\n")
        with pytest.raises(Refused, match=name):
            hypothesis.build(pool.git, **whole)  # type: ignore[arg-type]
        file.unlink() if before is None else file.write_bytes(before)


POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12345\n"


def test_lfs_without_its_program_is_refused(make_repo: Callable[..., Path], tmp_path: Path) -> None:
    repo = make_repo({"sub/.gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n", "sub/x.bin": POINTER})
    with pytest.raises(Refused, match="LFS"):
        repository.check(Git(str(repo), base={**os.environ, "PATH": str(tmp_path)}), "ar/c")


def test_pointers_are_never_handed_out(make_repo: Callable[..., Path], tmp_path: Path) -> None:
    """Also where nothing is configured to fill them, which git passes over in silence."""
    repo = make_repo({".gitattributes": "*.bin filter=lfs\n", "x.bin": "real content\n", "text": POINTER})
    first = git(repo, "rev-parse", "HEAD")
    (repo / "x.bin").write_text(POINTER)
    git(repo, "commit", "-qam", "pointer")
    pool = Pool(Git(str(repo)), str(tmp_path / "p"))
    pool.acquire(first, "one")
    pool.give_back("one", str(tmp_path / "a"))
    for _ in range(2):  # by moving a warm tree, then by filling a fresh one
        with pytest.raises(Refused, match=r"x\.bin would be a pointer"):
            pool.acquire(git(repo, "rev-parse", "HEAD"), "two")
    assert pool.trees() == []
    assert pool.acquire(first, "three").number == 2


def test_content_that_a_filter_cannot_fetch_is_refused(make_repo: Callable[..., Path], tmp_path: Path) -> None:
    repo = make_repo({"x.bin": "real\n"})
    first = git(repo, "rev-parse", "HEAD")
    (repo / ".gitattributes").write_text("*.bin filter=big\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "filtered")
    (repo / "x.bin").write_text("other\n")
    git(repo, "commit", "-qam", "other")
    git(repo, "config", "filter.big.smudge", "exit 1")
    git(repo, "config", "filter.big.required", "true")
    pool = Pool(Git(str(repo)), str(tmp_path / "p"))
    pool.acquire(first, "one")
    pool.give_back("one", str(tmp_path / "a"))
    with pytest.raises(Refused, match="smudge filter"):
        pool.acquire(git(repo, "rev-parse", "HEAD"), "two")
    assert len(eviction.evict(pool)) == 1


def test_sparse_patterns_are_inherited(make_repo: Callable[..., Path], tmp_path: Path) -> None:
    repo = make_repo({"train.py": "1\n", "big/x": "x\n", "small/y": "y\n"})
    git(repo, "sparse-checkout", "set", "small")
    pool = Pool(Git(str(repo)), str(tmp_path / "p"))
    tree = pool.acquire(git(repo, "rev-parse", "HEAD"), "one")
    assert sorted(os.listdir(tree.path)) == [".git", "small", "train.py"]
    assert pool.give_back("one", str(tmp_path / "a")).reused
    assert pool.acquire(git(repo, "rev-parse", "HEAD"), "two").path == tree.path


def test_a_shallow_clone_works(make_repo: Callable[..., Path], tmp_path: Path) -> None:
    origin = make_repo({"train.py": "1\n"}, name="origin")
    (origin / "train.py").write_text("2\n")
    git(origin, "commit", "-qam", "second")
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{origin}", "clone")
    repo = tmp_path / "clone"
    assert "shallow" in repository.check(Git(str(repo)), "ar/c")[0]
    head = git(repo, "rev-parse", "HEAD")
    (repo / "train.py").write_text("3\n")
    made = hypothesis.build(Git(str(repo)), parent=head, base=head, subject="a: b", files=["train.py"])
    pool = Pool(Git(str(repo)), str(tmp_path / "p"))
    assert Path(pool.acquire(made.commit, "one").path, "train.py").read_text() == "3\n"


def test_every_recorded_commit_survives_gc(make_repo: Callable[..., Path], tmp_path: Path) -> None:
    repo = make_repo({"train.py": "1\n"})
    one, head = Git(str(repo)), git(repo, "rev-parse", "HEAD")
    (repo / "train.py").write_text("2\n")
    made = hypothesis.build(one, parent=head, base=head, subject="a: b", files=["train.py"])
    repository.create_branch(one, "ar/c/x", made.commit)
    pool = Pool(one, str(tmp_path / "p"))
    pool.acquire(made.commit, "x")
    pool.give_back("x", str(tmp_path / "a"))
    eviction.evict(pool)
    git(repo, "commit", "-q", "--amend", "-m", "rewritten")
    git(repo, "reflog", "expire", "--expire=now", "--all")
    git(repo, "gc", "-q", "--prune=now")
    assert git(repo, "cat-file", "-t", made.commit) == "commit"
    assert git(repo, "cat-file", "-t", head) == "commit"


def test_sockets_pipes_and_repositories_of_a_run_do_not_stay(repo: Path, pool: Pool, tmp_path: Path) -> None:
    """Git lists none of them: a server of the next idea would find its address in use."""
    tree = Path(pool.acquire(git(repo, "rev-parse", "HEAD"), "y").path)
    left = ("libs/sub/pipe", "libs/inner.git", "libs/.git/HEAD", "out/pipe", "server")
    for folder in ("out", "libs"):
        (tree / folder).mkdir(exist_ok=True)
    os.mkfifo(tree / "libs/sub/pipe")
    os.mkfifo(tree / "out/pipe")
    git(tree / "libs", "init", "-q")
    git(tree / "libs", "init", "-q", "--bare", "inner.git")
    os.mknod(tree / "server", 0o140600)
    back = pool.give_back("y", str(tmp_path / "a"))
    assert sorted(back.moved) == ["libs/.git", "libs/inner.git/", "libs/sub/pipe", "out/", "server"]
    assert not [path for path in left if os.path.lexists(tree / path)]
    assert all(os.path.lexists(os.path.join(back.where, path)) for path in left)
    assert back.reused
