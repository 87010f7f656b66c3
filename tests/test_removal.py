"""removal.py: only what is this campaign's goes; a link, a mount, another owner or another repository stop it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autoresearch import campaign, paths, removal
from autoresearch.errors import Refused
from tests.runs import root_only, tmpfs


@pytest.fixture
def where(hostile: Path) -> paths.Campaign:
    """A campaign with a marked directory on scratch."""
    (hostile / "repo").mkdir()
    (hostile / "scratch").mkdir()
    found = paths.Campaign(str(hostile / "repo"), str(hostile / "scratch"), "c")
    campaign.make_root(found)
    return found


def experiment(where: paths.Campaign, name: str = "y") -> Path:
    """Make an experiment's directory with something in it."""
    found = Path(where.experiment(name))
    (found / "logs").mkdir(parents=True)
    (found / "logs" / "run.log").write_text("x")
    (found / "checkpoints" / "a b").mkdir(parents=True)
    return found


def test_an_experiment_goes_and_its_neighbours_stay(where: paths.Campaign) -> None:
    gone, stays = experiment(where, "y"), experiment(where, "y2")
    removal.remove(where, str(gone))
    assert sorted(os.listdir(where.root)) == [".campaign", "y2"]
    assert (stays / "logs" / "run.log").exists()


def test_links_inside_are_removed_and_not_followed(where: paths.Campaign, hostile: Path) -> None:
    precious = hostile / "precious"
    precious.mkdir()
    (precious / "data").write_text("x")
    gone = experiment(where)
    (gone / "link").symlink_to(precious)
    (gone / "file").symlink_to(precious / "data")
    os.link(precious / "data", gone / "hard")
    removal.remove(where, str(gone))
    assert not gone.exists()
    assert (precious / "data").read_text() == "x"


@pytest.mark.parametrize("tail", ["", "/", "/."])
def test_a_link_in_the_place_of_an_experiment_is_refused(where: paths.Campaign, hostile: Path, tail: str) -> None:
    precious = hostile / "precious"
    precious.mkdir()
    (precious / "data").write_text("x")
    Path(where.experiment("y")).symlink_to(precious)
    with pytest.raises(Refused):
        removal.remove(where, where.experiment("y") + tail)
    assert (precious / "data").exists()


def test_a_link_to_a_neighbour_is_refused(where: paths.Campaign) -> None:
    real = experiment(where, "real")
    Path(where.experiment("y")).symlink_to(real)
    with pytest.raises(Refused):
        removal.remove(where, where.experiment("y"))
    assert (real / "logs").exists()


@pytest.mark.parametrize(
    "path", ["{root}/..", "{root}/../other", "/", "/tmp", "{home}", "{repo}", "{root}2", "{root}/y/../.."]
)
def test_what_lies_outside_is_refused(where: paths.Campaign, path: str) -> None:
    os.makedirs(where.root + "2")
    os.makedirs(os.path.join(os.path.dirname(where.root), "other"))
    experiment(where)
    full = path.format(root=where.root, home=os.environ["HOME"], repo=where.repository)
    with pytest.raises(Refused):
        removal.remove(where, full)
    assert os.path.exists(full)


def test_without_the_marker_nothing_is_removed(where: paths.Campaign) -> None:
    gone = experiment(where)
    for text in (None, "", "x\n", f"{where.repository}\n"):
        os.unlink(where.marker)
        if text is not None:
            Path(where.marker).write_text(text)
        with pytest.raises(Refused):
            removal.remove(where, str(gone))
        assert gone.exists()
        Path(where.marker).write_text("x")


@pytest.mark.parametrize("line", [0, 1])
def test_the_marker_of_another_stops_it(where: paths.Campaign, line: int) -> None:
    gone = experiment(where)
    lines = Path(where.marker).read_text().splitlines()
    lines[line] = ["/another/repository", "another"][line]
    Path(where.marker).write_text("\n".join(lines) + "\n")
    with pytest.raises(Refused):
        removal.remove(where, str(gone))
    assert gone.exists()


@root_only
def test_a_directory_of_another_account_is_refused(where: paths.Campaign) -> None:
    gone = experiment(where)
    os.chown(gone, 65534, 65534)
    with pytest.raises(Refused) as caught:
        removal.remove(where, str(gone))
    assert "another account" in str(caught.value)
    assert gone.exists()


@root_only
@pytest.mark.parametrize("kind", ["tmpfs", "bind"])
@pytest.mark.parametrize("below", ["", "checkpoints/a b"])
def test_a_mount_at_it_or_inside_is_refused(where: paths.Campaign, hostile: Path, kind: str, below: str) -> None:
    gone, precious = experiment(where), hostile / "precious"
    precious.mkdir()
    (precious / "data").write_text("x")
    point = str(gone / below) if below else str(gone)
    source = ["-t", "tmpfs", "tmpfs"] if kind == "tmpfs" else ["--bind", str(precious)]
    if subprocess.run(["mount", *source, point], capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        with pytest.raises(Refused) as caught:
            removal.remove(where, str(gone))
        assert "mounted" in str(caught.value) or "another disk" in str(caught.value)
    finally:
        subprocess.run(["umount", point], check=True)
    assert (precious / "data").exists()
    removal.remove(where, str(gone))
    assert not gone.exists()


@root_only
def test_a_mount_beside_it_is_no_obstacle(where: paths.Campaign, hostile: Path) -> None:
    gone = experiment(where)
    with tmpfs(Path(where.root) / "y2", "size=64k"):
        removal.remove(where, str(gone))
    assert not gone.exists()


def test_a_parent_that_is_swapped_for_a_link_leads_nowhere(
    where: paths.Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = experiment(where)
    other = Path(where.root + "-other")
    (other / "y").mkdir(parents=True)
    check = removal.check

    def swap(*args: object) -> None:
        check(*args)  # type: ignore[arg-type]
        os.rename(where.root, where.root + "-real")
        os.symlink(other, where.root)

    monkeypatch.setattr(removal, "check", swap)
    with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
        removal.remove(where, str(gone))
    assert (other / "y").exists()


CUT_OFF = """
import os, signal, sys
from autoresearch import paths, removal
real, count = os.unlink, [0]
def unlink(*args, **more):
    count[0] += 1
    if count[0] == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*args, **more)
os.unlink = unlink
removal.remove(paths.Campaign(*sys.argv[1:4]), sys.argv[4])
"""


def test_a_removal_that_was_killed_frees_the_name_and_is_finished_later(where: paths.Campaign) -> None:
    gone = experiment(where)
    for number in range(10):
        (gone / f"f{number}").write_text("x")
    done = subprocess.run([sys.executable, "-c", CUT_OFF, *where[:3], str(gone)])
    assert done.returncode == -9
    assert not gone.exists()
    assert [name for name in os.listdir(where.root) if name.startswith(removal.TRASH)]
    experiment(where)
    removal.finish_trash(where.root)
    assert sorted(os.listdir(where.root)) == [".campaign", "y"]


READ_ONLY = """
import sys
from autoresearch import paths, removal
removal.remove(paths.Campaign(*sys.argv[1:4]), sys.argv[4])
"""


@pytest.mark.parametrize("mode", [0o500, 0o600, 0o000])
def test_directories_without_permission_go_too(where: paths.Campaign, hostile: Path, mode: int) -> None:
    gone = experiment(where)
    (hostile / "precious").mkdir(mode=0o750)
    (gone / "checkpoints" / "link").symlink_to(hostile / "precious")
    (gone / "checkpoints" / "deep" / "er").mkdir(parents=True)
    (gone / "checkpoints" / "deep" / "er" / "file").write_text("x")
    for path in ("checkpoints/deep/er", "checkpoints/deep", "logs"):
        (gone / path).chmod(mode)
    words = [sys.executable, "-c", READ_ONLY, *where[:3], str(gone)]
    if os.geteuid() == 0:  # root passes every permission unless these two are given up
        words = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", *words]
        if subprocess.run([*words[:3], "true"], capture_output=True).returncode:
            pytest.skip("setpriv cannot drop capabilities here")
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.stderr == ""
    assert os.listdir(where.root) == [".campaign"]
    assert (hostile / "precious").stat().st_mode & 0o777 == 0o750
