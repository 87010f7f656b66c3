"""hypothesis.py: patches, and trees edited by hand."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from autoresearch.errors import Refused
from autoresearch.git import eviction, repository, treerecords
from autoresearch.git.trees import Pool, Tree
from tests.conftest import git, snapshot
from tests.test_commit_building import FILES, build, changes, edited, parent_with, show


@pytest.fixture
def repo(make_repo: Callable[..., Path]) -> Path:
    """A repository with nested files."""
    return make_repo(FILES)


def diff(repo: Path, tmp_path: Path, path: str, text: str) -> str:
    """Return the path of a diff that sets a file's text, with the checkout as it was."""
    old = (repo / path).read_text() if (repo / path).exists() else None
    (repo / path).write_text(text)
    git(repo, "add", "-N", path)
    out = git(repo, "diff", "--", path)
    git(repo, "reset", "-q")
    if old is None:
        (repo / path).unlink()
    else:
        (repo / path).write_text(old)
    (tmp_path / "x.diff").write_text(out + "\n")
    return str(tmp_path / "x.diff")


def test_a_patch(repo: Path, tmp_path: Path) -> None:
    patch = diff(repo, tmp_path, "train.py", edited(3, "patched"))
    made = build(repo, patch=patch)
    assert made.paths == ("train.py",)
    assert "patched" in show(repo, made.commit, "train.py")


def test_a_patch_onto_a_parent_with_other_changes(repo: Path, tmp_path: Path) -> None:
    patch = diff(repo, tmp_path, "train.py", edited(3, "patched"))
    parent = parent_with(repo, "train.py", edited(17, "theirs"))
    text = show(repo, build(repo, patch=patch, parent=parent).commit, "train.py")
    assert "patched" in text
    assert "theirs" in text


def test_a_patch_that_does_not_apply_names_the_place(repo: Path, tmp_path: Path) -> None:
    patch = diff(repo, tmp_path, "train.py", edited(3, "patched"))
    parent = parent_with(repo, "train.py", edited(3, "theirs"))
    with pytest.raises(Refused, match=r"train\.py:1"):
        build(repo, patch=patch, parent=parent)


def test_a_patch_that_is_in_there_already(repo: Path, tmp_path: Path) -> None:
    """The same call again, after a launch that was cut off behind its branch."""
    patch = Path(diff(repo, tmp_path, "train.py", edited(3, "patched")))
    plain = [line for line in patch.read_text().split("\n") if not line.startswith("index ")]
    patch.write_text("\n".join(plain))
    tip = build(repo, patch=str(patch)).commit
    assert build(repo, patch=str(patch), parent=tip, allow_empty=True).paths == ()
    with pytest.raises(Refused, match="changes nothing"):
        build(repo, patch=str(patch), parent=tip)


@pytest.mark.parametrize("path", [".env", "conf/.env.prod", "large"])
def test_a_patch_with_what_may_not_be_committed(repo: Path, tmp_path: Path, path: str) -> None:
    patch = diff(repo, tmp_path, path, "x" * (11 * 1024 * 1024 if path == "large" else 3) + "\n")
    with pytest.raises(Refused, match="never committed"):
        build(repo, patch=patch)


@pytest.mark.parametrize("text", ["", "no diff at all\n", "--- a/../../x\n+++ b/../../x\n@@ -0,0 +1 @@\n+x\n"])
def test_no_patch(repo: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "x.diff").write_text(text)
    with pytest.raises(Refused):
        build(repo, patch=str(tmp_path / "x.diff"))
    with pytest.raises(Refused, match="cannot read"):
        build(repo, patch=str(tmp_path / "missing"))
    assert not (repo.parent.parent / "x").exists()


def test_files_and_a_patch(repo: Path, tmp_path: Path) -> None:
    patch = diff(repo, tmp_path, "train.py", edited(3, "patched"))
    (repo / "train.py").write_text(edited(15, "mine"))
    (repo / "new").write_text("n\n")
    made = build(repo, patch=patch, files=["train.py", "new"])
    assert sorted(made.paths) == ["new", "train.py"]
    assert "patched" in show(repo, made.commit, "train.py")
    assert "mine" in show(repo, made.commit, "train.py")


def opened(repo: Path, pool: Pool) -> Tree:
    """Return a tree of `start` for experiment `y` on its branch."""
    head = git(repo, "rev-parse", "HEAD")
    repository.create_branch(pool.git, "ar/c/y", head)
    return pool.open_for("y", head, "ar/c/y")


def test_an_edited_tree(repo: Path, pool: Pool) -> None:
    before = snapshot(repo)
    (repo / ".git/info/exclude").write_text("*.log\nforced\n")
    tree = opened(repo, pool)
    path = Path(tree.path)
    assert git(path, "symbolic-ref", "HEAD") == "refs/heads/ar/c/y"
    assert pool.open_for("y", tree.commit, "ar/c/y") == tree
    (path / "train.py").write_text("edited\n")
    git(path, "update-index", "--assume-unchanged", "tool.sh")
    (path / "tool.sh").write_text("hidden edit\n")
    (path / "conf/a.yaml").unlink()
    (path / "new\nline é").write_text("n\n")
    (path / "run.log").write_text("ignored\n")
    (path / "forced").write_text("f\n")
    git(path, "add", "-f", "forced")
    made = build(repo, tree=tree, pool=pool)
    assert sorted(made.paths) == ["conf/a.yaml", "forced", "new\nline é", "tool.sh", "train.py"]
    repository.move_branch(pool.git, "ar/c/y", made.commit, tree.commit)
    pool.settle(tree, made.commit, made.private_index)
    assert git(path, "status", "--porcelain") == ""
    assert git(path, "rev-parse", "HEAD") == made.commit
    with pytest.raises(Refused, match="nothing was edited"):
        build(repo, tree=pool.find("y"), pool=pool, parent=made.commit)
    (path / "train.py").write_text("edited again\n")
    again = build(repo, tree=pool.find("y"), pool=pool, parent=made.commit)
    assert changes(repo, again.commit) == ["M\ttrain.py"]
    after = snapshot(repo)
    assert {key: after[key] for key in after if key != "status"} == {k: before[k] for k in before if k != "status"}


@pytest.mark.parametrize("to", ["file", "link", "directory"])
def test_a_file_that_became_a_directory_and_a_directory_that_became_a_file(repo: Path, pool: Pool, to: str) -> None:
    tree = opened(repo, pool)
    path = Path(tree.path)
    gone = path / ("train.py" if to == "directory" else "conf")
    below = [str(found.relative_to(path)) for found in gone.rglob("*") if found.is_file()]
    gone.unlink() if to == "directory" else shutil.rmtree(gone)
    if to == "directory":
        (gone / "deep").mkdir(parents=True)
        (gone / "deep/new").write_text("n\n")
        below = ["train.py/deep/new"]
    elif to == "link":
        gone.symlink_to("train.py")
    else:
        gone.write_text("file\n")
    made = build(repo, tree=tree, pool=pool)
    assert sorted(made.paths) == sorted([str(gone.relative_to(path)), *below])
    repository.move_branch(pool.git, "ar/c/y", made.commit, tree.commit)
    pool.settle(tree, made.commit, made.private_index)
    assert git(path, "status", "--porcelain") == ""


def test_a_merge_under_way_in_a_tree_is_refused(repo: Path, pool: Pool) -> None:
    """Its conflict marks would be committed and run."""
    tree = opened(repo, pool)
    theirs = parent_with(repo, "train.py", edited(3, "theirs"))
    (Path(tree.path) / "train.py").write_text(edited(3, "mine"))
    git(Path(tree.path), "commit", "-qam", "mine")
    with pytest.raises(subprocess.CalledProcessError):
        git(Path(tree.path), "merge", theirs)
    with pytest.raises(Refused, match="a merge is not finished in"):
        build(repo, tree=tree, pool=pool)


def test_a_tree_that_was_removed_by_hand_is_made_anew(repo: Path, pool: Pool) -> None:
    tree = opened(repo, pool)
    shutil.rmtree(tree.path)
    assert pool.find("y") is None
    assert Path(pool.open_for("y", tree.commit, "ar/c/y").path, "train.py").exists()
    assert len(pool.trees()) == 1
    eviction.evict(pool)
    assert git(repo, "worktree", "list").count("\n") == 0


def test_commits_made_by_hand_in_the_tree_count(repo: Path, pool: Pool) -> None:
    tree = opened(repo, pool)
    path = Path(tree.path)
    (path / "train.py").write_text("by hand\n")
    git(path, "commit", "-qam", "by hand")
    by_hand = git(path, "rev-parse", "HEAD")
    (path / "new").write_text("n\n")
    made = build(repo, tree=tree, pool=pool)
    assert made.parent == by_hand
    assert sorted(made.paths) == ["new", "train.py"]
    assert changes(repo, made.commit) == ["A\tnew"]


def test_only_commits_made_by_hand(repo: Path, pool: Pool) -> None:
    tree = opened(repo, pool)
    Path(tree.path, "train.py").write_text("by hand\n")
    git(Path(tree.path), "commit", "-qam", "by hand")
    tip = git(repo, "rev-parse", "ar/c/y")
    made = build(repo, tree=tree, pool=pool, parent=tip)
    assert (made.parent, made.paths) == (tip, ("train.py",))
    assert changes(repo, made.commit) == []
    repository.move_branch(pool.git, "ar/c/y", made.commit, tip)
    pool.settle(tree, made.commit, made.private_index)
    with pytest.raises(Refused, match="nothing was edited"):
        build(repo, tree=tree, pool=pool, parent=made.commit)


def test_files_on_top_of_an_edited_tree_reach_the_tree(repo: Path, pool: Pool) -> None:
    tree = opened(repo, pool)
    (repo / "tool.sh").write_text("mine\n")
    Path(tree.path, "train.py").write_text("edited\n")
    made = build(repo, tree=tree, pool=pool, files=["tool.sh"])
    assert sorted(made.paths) == ["tool.sh", "train.py"]
    repository.move_branch(pool.git, "ar/c/y", made.commit, tree.commit)
    pool.settle(tree, made.commit, made.private_index)
    assert Path(tree.path, "tool.sh").read_text() == "mine\n"
    assert git(Path(tree.path), "status", "--porcelain") == ""
    Path(tree.path, "train.py").write_text("edited again\n")
    again = build(repo, tree=tree, pool=pool, parent=made.commit)
    assert again.paths == ("train.py",)
    assert show(repo, again.commit, "tool.sh") == "mine"


def test_a_tree_elsewhere_is_refused(repo: Path, pool: Pool) -> None:
    tree = opened(repo, pool)
    git(Path(tree.path), "checkout", "-q", "--orphan", "odd")
    git(Path(tree.path), "commit", "-qm", "unrelated")
    with pytest.raises(Refused, match="does not come from"):
        build(repo, tree=tree, pool=pool)
    with pytest.raises(Refused, match="does not belong to"):
        build(repo, tree=tree._replace(owner="z"), pool=pool)


def test_a_recorded_commit_that_was_amended_in_its_tree_comes_back(repo: Path, pool: Pool) -> None:
    tree = opened(repo, pool)
    path = Path(tree.path)
    (path / "train.py").write_text("first\n")
    made = build(repo, tree=tree, pool=pool)
    repository.move_branch(pool.git, "ar/c/y", made.commit, tree.commit)
    pool.settle(tree, made.commit, made.private_index)
    (path / "train.py").write_text("second\n")
    git(path, "commit", "-q", "-a", "--amend", "-m", "amended")
    with pytest.raises(Refused, match="on top of that") as caught:
        build(repo, tree=pool.find("y"), pool=pool)
    subprocess.run(["sh", "-c", caught.value.fix.partition(": ")[2]], check=True)
    assert git(repo, "rev-parse", "ar/c/y") == made.commit
    again = build(repo, tree=pool.find("y"), pool=pool)
    assert (again.parent, show(repo, again.commit, "train.py")) == (made.commit, "second")


@pytest.mark.parametrize("name", [".env", "inner", "large"])
def test_an_edited_tree_with_what_may_not_be_committed(repo: Path, pool: Pool, name: str) -> None:
    tree = opened(repo, pool)
    path = Path(tree.path, name)
    if name == "inner":
        git(Path(tree.path), "init", "-q", "inner")
    elif name == "large":
        path.write_bytes(b"x" * (10 * 1024 * 1024 + 1))
    else:
        path.write_text("SECRET=1\n")
    with pytest.raises(Refused):
        build(repo, tree=tree, pool=pool)
    assert path.exists()


def test_required_data_stays_out(repo: Path, pool: Pool) -> None:
    (repo / "data").mkdir()
    (repo / "data/x.bin").write_text("x")
    tree = pool.open_for("y", git(repo, "rev-parse", "HEAD"), require=["data"])
    assert Path(tree.path, "data/x.bin").read_text() == "x"
    with pytest.raises(Refused, match="nothing was edited"):
        build(repo, tree=tree, pool=pool)
    Path(tree.path, "train.py").write_text("x")
    assert build(repo, tree=tree, pool=pool).paths == ("train.py",)


def test_release(repo: Path, pool: Pool, tmp_path: Path) -> None:
    (repo / ".git/info/exclude").write_text("*.log\n")
    tree = opened(repo, pool)
    path = Path(tree.path)
    (path / "train.py").write_text("edited\n")
    with pytest.raises(Refused, match=r"train\.py"):
        pool.release("y", str(tmp_path / "a"))
    with pytest.raises(Refused, match=r"train\.py"):
        eviction.evict(pool)
    git(path, "update-index", "--assume-unchanged", "train.py")
    with pytest.raises(Refused, match=r"train\.py"):
        pool.release("y", str(tmp_path / "a"))
    git(path, "checkout", "-q", "--detach")
    git(path, "update-index", "--no-assume-unchanged", "train.py")
    git(path, "commit", "-qam", "on no branch")
    with pytest.raises(Refused, match="commit "):
        pool.release("y", str(tmp_path / "a"))
    git(repo, "branch", "kept", git(path, "rev-parse", "HEAD"))
    (path / "mine.log").write_text("ignored, not lost\n")
    released = pool.release("y", str(tmp_path / "a"))
    assert released.moved == ["mine.log"]
    assert (tmp_path / "a/left_in_tree/mine.log").read_text() == "ignored, not lost\n"
    assert not path.exists()
    assert git(repo, "worktree", "list").count("\n") == 0
    with pytest.raises(Refused, match="has no tree: make start NAME=y"):
        pool.release("y", str(tmp_path / "a"))


def test_a_tree_of_start_is_never_handed_to_a_run(repo: Path, pool: Pool) -> None:
    tree = opened(repo, pool)
    assert pool.acquire(tree.commit, "y").path != tree.path
    assert not pool.give_back("y", "/nonexistent").stuck
    assert pool.find("y") == tree


def test_evict_removes_all_or_nothing(repo: Path, pool: Pool, tmp_path: Path) -> None:
    head = git(repo, "rev-parse", "HEAD")
    for owner in ("a", "b"):
        pool.acquire(head, owner)
    pool.give_back("a", str(tmp_path / "x"))
    with pytest.raises(Refused, match="belongs to the run b"):
        eviction.evict(pool)
    pool.give_back("b", str(tmp_path / "x"))
    (Path(pool.directory) / "2/late.txt").write_text("written while it was free")
    with pytest.raises(Refused, match=r"late\.txt"):
        eviction.evict(pool)
    assert treerecords.listing(pool.directory) == {1: "free", 2: "free"}
    (Path(pool.directory) / "2/late.txt").unlink()
    branches = git(repo, "branch", "--list")
    assert len(eviction.evict(pool)) == 2
    assert treerecords.listing(pool.directory) == {}
    assert git(repo, "worktree", "list").count("\n") == 0
    assert git(repo, "branch", "--list") == branches


def test_evict_of_a_wiped_scratch(repo: Path, pool: Pool) -> None:
    pool.open_for("y", git(repo, "rev-parse", "HEAD"))
    shutil.rmtree(pool.directory)
    assert eviction.evict(pool) == []
    assert git(repo, "worktree", "list").count("\n") == 0
