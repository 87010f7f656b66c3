"""hypothesis.py: one signed-off commit from FILES, a PATCH or both, with the user's checkout untouched."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from autoresearch.errors import AutoresearchError, Refused, Usage
from autoresearch.git import Git, hypothesis
from autoresearch.git.hypothesis import Hypothesis
from tests.conftest import git, snapshot

FILES = {
    "train.py": "".join(f"line {n}\n" for n in range(20)),
    "conf/a.yaml": "a: 1\n",
    "conf/deep/b.yaml": "b: 1\n",
    "tool.sh": "#!/bin/sh\n",
}


@pytest.fixture
def repo(make_repo: Callable[..., Path]) -> Path:
    """A repository with nested files."""
    return make_repo(FILES)


def build(repo: Path, **more: object) -> Hypothesis:
    """Build with sensible defaults, and check that the checkout stays the same and the objects are sound."""
    head = git(repo, "rev-parse", "HEAD")
    before = snapshot(repo)
    try:
        return hypothesis.build(Git(str(repo)), **{"parent": head, "base": head, "subject": "area: change", **more})  # type: ignore[arg-type]
    finally:
        assert snapshot(repo) == before
        git(repo, "fsck", "--strict", "--no-dangling")


def show(repo: Path, commit: str, path: str) -> str:
    """Return the content of a file of a commit."""
    return git(repo, "show", f"{commit}:{path}")


def changes(repo: Path, commit: str) -> list[str]:
    """Return `STATUS\tpath` of a commit against its parent."""
    return git(repo, "diff", "--no-renames", "--name-status", f"{commit}^", commit).splitlines()


def test_files_edited_new_deleted_executable_and_links(repo: Path) -> None:
    (repo / "train.py").write_text("edited\n")
    (repo / "conf/deep/b.yaml").unlink()
    (repo / "conf/deep").rmdir()
    (repo / "tool.sh").chmod(0o755)
    (repo / "new dir/é '\"").mkdir(parents=True)
    (repo / "new dir/é '\"/x\t$y").write_text("new\n")
    (repo / '"quoted').write_text("q\n")
    (repo / "link").symlink_to("train.py")
    (repo / "not named").write_text("x")
    names = ["train.py", "conf/deep/b.yaml", "tool.sh", "new dir/é '\"/x\t$y", '"quoted', "link"]
    made = build(repo, files=names)
    assert sorted(made.paths) == sorted(names)
    out = git(repo, "diff", "--no-renames", "--raw", "-z", f"{made.commit}^", made.commit)
    assert git(repo, "ls-tree", made.commit, "--", "tool.sh").startswith("100755")
    assert git(repo, "ls-tree", made.commit, "--", "link").startswith("120000")
    assert show(repo, made.commit, "link") == "train.py"
    assert show(repo, made.commit, "new dir/é '\"/x\t$y") == "new"
    assert show(repo, made.commit, '"quoted') == "q"
    assert "not named" not in out
    assert git(repo, "ls-tree", "-d", made.commit, "--", "conf/") == git(repo, "ls-tree", "-d", "HEAD", "--", "nothing")
    assert made.tree == git(repo, "rev-parse", f"{made.commit}^{{tree}}")
    assert hypothesis.lines(Git(str(repo)), made.parent, made.commit) == (4, 21)


def test_few_processes(repo: Path) -> None:
    (repo / "conf/deep/b.yaml").write_text("b: 2\n")
    one, head = Git(str(repo)), git(repo, "rev-parse", "HEAD")
    hypothesis.build(one, parent=head, base=head, subject="a: b", files=["conf/deep/b.yaml"])
    assert one.count == 5  # var, cat-file, hash-object, mktree, commit-tree


def test_the_message(repo: Path) -> None:
    trailers = [("Campaign", "c"), ("Command", "python x.py 'a b' \\ \n# $(id) `id`\tend"), ("Overrides", "")]
    made = build(repo, subject="# optim:  two\n lines\0 é", trailers=trailers, allow_empty=True)
    text = git(repo, "log", "-1", "--format=%B", made.commit)
    assert text == (
        "# optim: two lines é\n\nCampaign: c\n"
        "Command: python x.py 'a b' \\\\ \\n# $(id) `id`\\tend\nOverrides:\n"
        "Signed-off-by: A Researcher <researcher@example.org>\n"
    ).rstrip("\n")
    parsed = git(repo, "log", "-1", "--format=%(trailers:key=Command,valueonly)", made.commit)
    assert parsed.rstrip("\n") == "python x.py 'a b' \\\\ \\n# $(id) `id`\\tend"
    with pytest.raises(Usage, match="empty"):
        build(repo, subject=" \n", allow_empty=True)


def test_nothing_new_is_refused(repo: Path) -> None:
    with pytest.raises(Refused, match="no FILES, PATCH"):
        build(repo)
    with pytest.raises(Refused, match=r"nothing in train\.py differs"):
        build(repo, files=["train.py"])
    made = build(repo, allow_empty=True)
    assert (made.paths, made.tree) == ((), git(repo, "rev-parse", "HEAD^{tree}"))
    (repo / "train.py").write_text("x")
    assert build(repo, files=["train.py", "tool.sh"]).unchanged == ("tool.sh",)


def test_a_directory_means_what_changed_in_it(repo: Path) -> None:
    (repo / ".git/info/exclude").write_text("*.log\n")
    (repo / "conf/a.yaml").write_text("a: 2\n")
    (repo / "conf/new.yaml").write_text("new\n")
    (repo / "conf/run.log").write_text("ignored\n")
    (repo / "conf/.env").write_text("SECRET=x\n")
    (repo / "conf/deep/b.yaml").unlink()
    (repo / "train.py").write_text("not named\n")
    made = build(repo, files=["conf/"])
    assert changes(repo, made.commit) == ["M\tconf/a.yaml", "D\tconf/deep/b.yaml", "A\tconf/new.yaml"]
    everything = build(repo, files=["."])
    assert sorted(everything.paths) == ["conf/a.yaml", "conf/deep/b.yaml", "conf/new.yaml", "train.py"]


def test_a_deleted_directory(repo: Path) -> None:
    (repo / "conf/deep/b.yaml").unlink()
    (repo / "conf/deep").rmdir()
    assert build(repo, files=["conf/deep"]).paths == ("conf/deep/b.yaml",)


def test_a_file_in_the_place_of_a_directory(repo: Path) -> None:
    (repo / "conf/deep/b.yaml").unlink()
    (repo / "conf/deep").rmdir()
    (repo / "conf/deep").write_text("new\n")
    for named in ("conf/deep", "conf", "."):
        made = build(repo, files=[named])
        assert changes(repo, made.commit) == ["A\tconf/deep", "D\tconf/deep/b.yaml"]


def test_an_ignored_file_that_is_named_is_taken(repo: Path) -> None:
    (repo / ".git/info/exclude").write_text("local.yaml\n")
    (repo / "local.yaml").write_text("x\n")
    assert build(repo, files=["local.yaml"]).paths == ("local.yaml",)


def test_staged_content_does_not_count_only_the_file_does(repo: Path) -> None:
    (repo / "train.py").write_text("staged\n")
    git(repo, "add", "train.py")
    (repo / "train.py").write_text("on disk\n")
    git(repo, "update-index", "--assume-unchanged", "tool.sh")
    (repo / "tool.sh").write_text("hidden\n")
    made = build(repo, files=["train.py", "tool.sh"])
    assert show(repo, made.commit, "train.py") == "on disk"
    assert show(repo, made.commit, "tool.sh") == "hidden"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("../x", Usage),
        ("/etc/passwd", Usage),
        ("", Usage),
        ("conf/../../x", Usage),
        ("no/such", Usage),
        (".git/config", Refused),
        ("conf/.GIT/x", Refused),
        ("a\nb", Refused),
        (".env", Refused),
        ("conf/.env.local", Refused),
        ("fifo", Refused),
        ("large", Refused),
        ("through/a.yaml", Refused),
        ("inner/x", Refused),
        ("inner", Refused),
        ("--output=x", Usage),
        (":(top)train.py", Usage),
        ("*.py", Usage),
    ],
)
def test_paths_that_are_refused(repo: Path, path: str, kind: type[AutoresearchError]) -> None:
    (repo / ".env").write_text("SECRET=1\n")
    (repo / "conf/.env.local").write_text("SECRET=1\n")
    os.mkfifo(repo / "fifo")
    with (repo / "large").open("wb") as file:
        file.truncate(10 * 1024 * 1024 + 1)
    (repo / "through").symlink_to("conf")
    git(repo, "init", "-q", "inner")
    (repo / "inner/x").write_text("x")
    with pytest.raises(kind):
        build(repo, files=[path])
    assert b"SECRET" not in Git(str(repo)).run("cat-file", "--batch-all-objects", "--batch")


def test_pathspec_magic_is_a_name(repo: Path) -> None:
    for name in (":(top)x", "*.py", ":!y"):
        (repo / name).write_text(name)
    made = build(repo, files=[":(top)x", "*.py", ":!y"])
    assert sorted(made.paths) == ["*.py", ":!y", ":(top)x"]


def test_an_absolute_path_inside_is_fine(repo: Path) -> None:
    (repo / "train.py").write_text("x\n")
    assert build(repo, files=[str(repo / "train.py"), "conf/../train.py"]).paths == ("train.py",)


def test_ten_megabytes_are_taken(repo: Path) -> None:
    with (repo / "large").open("wb") as file:
        file.truncate(10 * 1024 * 1024)
    assert build(repo, files=["large"]).paths == ("large",)


def parent_with(repo: Path, path: str, text: str) -> str:
    """Return a commit on top of HEAD with one file changed, made without the checkout."""
    temporary = repo.parent / "content"
    temporary.write_text(text)
    blob = git(repo, "hash-object", "-w", "--no-filters", str(temporary))
    env = {**os.environ, "GIT_INDEX_FILE": str(repo.parent / "index")}
    git(repo, "read-tree", "HEAD", env=env)
    git(repo, "update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", env=env)
    return git(repo, "commit-tree", "-p", "HEAD", "-m", "parent", git(repo, "write-tree", env=env))


def edited(line: int, text: str) -> str:
    """Return train.py with one line changed."""
    rows = FILES["train.py"].splitlines(keepends=True)
    rows[line] = text + "\n"
    return "".join(rows)


def test_three_ways_onto_a_parent_that_changed_the_file(repo: Path) -> None:
    parent = parent_with(repo, "train.py", edited(2, "theirs"))
    (repo / "train.py").write_text(edited(15, "mine"))
    (repo / "train.py").chmod(0o755)
    made = build(repo, files=["train.py"], parent=parent)
    text = show(repo, made.commit, "train.py")
    assert "theirs" in text
    assert "mine" in text
    assert git(repo, "ls-tree", made.commit, "--", "train.py").startswith("100755")
    assert git(repo, "rev-parse", f"{made.commit}^") == parent


def test_a_conflict_is_a_refusal_with_the_name(repo: Path) -> None:
    parent = parent_with(repo, "train.py", edited(2, "theirs"))
    (repo / "train.py").write_text(edited(2, "mine"))
    with pytest.raises(Refused, match=r"'train\.py' conflicts"):
        build(repo, files=["train.py"], parent=parent)
    (repo / "train.py").unlink()
    with pytest.raises(Refused, match=r"'train\.py' conflicts"):
        build(repo, files=["train.py"], parent=parent)
    added = parent_with(repo, "both", "theirs\n")
    (repo / "both").write_text("mine\n")
    with pytest.raises(Refused, match="'both' conflicts"):
        build(repo, files=["both"], parent=added)


def test_what_the_parent_has_already_is_nothing_new(repo: Path) -> None:
    parent = parent_with(repo, "train.py", edited(2, "same"))
    (repo / "train.py").write_text(edited(2, "same"))
    with pytest.raises(Refused, match="differs from the base or the parent"):
        build(repo, files=["train.py"], parent=parent)


def test_only_what_changed_since_the_base_is_carried(repo: Path) -> None:
    """The parent's change of a file that the user named but did not edit stays."""
    parent = parent_with(repo, "train.py", edited(2, "theirs"))
    (repo / "tool.sh").write_text("mine\n")
    made = build(repo, files=["train.py", "tool.sh"], parent=parent)
    assert made.paths == ("tool.sh",)
    assert "theirs" in show(repo, made.commit, "train.py")


def test_line_ends_and_filters_apply(repo: Path) -> None:
    git(repo, "config", "core.autocrlf", "input")
    git(repo, "config", "filter.up.clean", "tr a-z A-Z")
    (repo / ".git/info/attributes").write_text("*.up filter=up\n")
    (repo / "conf/a.yaml").write_bytes(b"a: 2\r\nb\r\n")
    (repo / "x.up").write_text("text\n")
    made = build(repo, files=["conf/a.yaml", "x.up"])
    assert git(repo, "cat-file", "-s", f"{made.commit}:conf/a.yaml") == "7"
    assert show(repo, made.commit, "x.up") == "TEXT"


def test_sparse_files_are_not_deletions(repo: Path) -> None:
    git(repo, "sparse-checkout", "set", "--no-cone", "/train.py")
    assert not (repo / "conf").exists()
    (repo / "train.py").write_text("x\n")
    made = build(repo, files=["train.py", "conf", "tool.sh"])
    assert made.paths == ("train.py",)


def test_without_execute_bits_on_the_disk(repo: Path) -> None:
    git(repo, "config", "core.fileMode", "false")
    (repo / "train.py").chmod(0o755)
    (repo / "train.py").write_text("x\n")
    made = build(repo, files=["train.py"])
    assert git(repo, "ls-tree", made.commit, "--", "train.py").startswith("100644")


def test_a_detached_head_and_a_stash_stay(repo: Path) -> None:
    (repo / "train.py").write_text("stashed\n")
    git(repo, "stash")
    git(repo, "checkout", "-q", "--detach")
    (repo / "train.py").write_text("x\n")
    (repo / "staged").write_text("x\n")
    git(repo, "add", "staged")
    assert build(repo, files=["train.py"]).paths == ("train.py",)


def test_a_held_index_lock_does_not_matter(repo: Path) -> None:
    (repo / ".git/index.lock").touch()
    (repo / "train.py").write_text("x\n")
    build(repo, files=["train.py"])
    assert (repo / ".git/index.lock").exists()


def test_a_file_in_the_middle_of_a_merge(repo: Path) -> None:
    git(repo, "checkout", "-q", "-b", "other")
    (repo / "train.py").write_text(edited(1, "other"))
    git(repo, "commit", "-qam", "other")
    git(repo, "checkout", "-q", "main")
    (repo / "train.py").write_text(edited(1, "main"))
    git(repo, "commit", "-qam", "main")
    with pytest.raises(subprocess.CalledProcessError):
        git(repo, "merge", "other")
    (repo / "tool.sh").write_text("fine\n")
    with pytest.raises(Refused, match="middle of a merge"):
        build(repo, files=["train.py", "tool.sh"])
    assert build(repo, files=["tool.sh"]).paths == ("tool.sh",)


def test_signing_is_not_asked_for(repo: Path) -> None:
    git(repo, "config", "commit.gpgSign", "true")
    git(repo, "config", "gpg.program", "/bin/false")
    build(repo, allow_empty=True)


def test_sha256(hostile: Path) -> None:
    repo = hostile / "s"
    repo.mkdir()
    git(repo, "init", "-q", "--object-format=sha256")
    (repo / "d").mkdir()
    (repo / "d/a").write_text("1")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "x")
    (repo / "d/a").write_text("2")
    assert len(build(repo, files=["d/a"]).commit) == 64


def test_a_missing_identity(repo: Path, hermetic: Path) -> None:
    (hermetic / ".gitconfig").write_text("[user]\n\tuseConfigOnly = true\n")
    with pytest.raises(Refused, match=r"user\.name"):
        build(repo, allow_empty=True)


def test_fewer_lines_of_prose_or_data_are_no_simpler_code(repo: Path) -> None:
    for name in ("README.md", "data é.JSONL", "t.csv", "conf.yaml"):
        (repo / name).write_text("a\n" * 9)
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "more")
    before = git(repo, "rev-parse", "HEAD")
    for name in ("README.md", "data é.JSONL", "t.csv", "conf.yaml"):
        (repo / name).write_text("a\n")
    git(repo, "commit", "-q", "-a", "-m", "less")
    assert hypothesis.lines(Git(str(repo)), before, git(repo, "rev-parse", "HEAD")) == (0, 8)


def test_the_lines_of_a_change(repo: Path) -> None:
    before = git(repo, "rev-parse", "HEAD")
    (repo / "a.yaml").write_text("- x\n-- y\n++ z")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "more")
    middle = git(repo, "rev-parse", "HEAD")
    (repo / "a.yaml").write_text("- x\n@@ y\n++ z\n")
    git(repo, "commit", "-q", "-a", "-m", "less")
    one, after = Git(str(repo)), git(repo, "rev-parse", "HEAD")
    assert hypothesis.changed_lines(one, before, middle) == ["- x", "-- y", "++ z"]
    assert hypothesis.changed_lines(one, middle, after) == ["-- y", "++ z", "@@ y", "++ z"]
    assert hypothesis.changed_lines(one, after, after) == []
