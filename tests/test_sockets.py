"""Short private links for long directories."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from autoresearch.errors import Refused
from autoresearch.running import sockets
from tests.runs import root_only


@pytest.fixture
def roots(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    base = f"/tmp/t{os.getpid()}"
    os.makedirs(base, exist_ok=True)
    yield (base,)  # type: ignore[misc]
    for where, names, files in os.walk(base, topdown=False):
        for name in files:
            os.unlink(os.path.join(where, name))
        for name in names:
            path = os.path.join(where, name)
            os.unlink(path) if os.path.islink(path) else os.rmdir(path)
    os.rmdir(base)


@pytest.fixture
def attempt(hostile: Path) -> tuple[str, str]:
    found = []
    for name in ("ray", "tmp"):
        path = hostile / ("long" * 20) / name
        path.mkdir(parents=True)
        found.append(str(path))
    return found[0], found[1]


def test_links_are_short_private_and_lead_there(attempt: tuple[str, str], roots: tuple[str, ...]) -> None:
    links = sockets.make(*attempt, roots=roots)
    assert len(os.fsencode(links.ray)) <= 39
    assert len(os.fsencode(links.tmp)) <= 70
    assert (os.readlink(links.ray), os.readlink(links.tmp)) == attempt
    home = os.path.dirname(links.ray)
    assert os.stat(home).st_mode & 0o777 == 0o700
    assert sockets.make(*attempt, roots=roots) == links
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{links.tmp}/{'x' * 36}")
    sockets.remove(links, *attempt)
    assert os.listdir(roots[0]) == []


def test_default_names_are_short_for_the_largest_user_number() -> None:
    assert len(f"/tmp/ar-{2**32 - 2}c/12345678" + "9") <= sockets.RAY_MAX


def test_short_directories_need_no_link(roots: tuple[str, ...]) -> None:
    ray = f"{roots[0]}/r"
    os.mkdir(ray)
    assert sockets.make(ray, ray, roots=roots) == sockets.Links(ray, ray)
    sockets.remove(sockets.Links(ray, ray), ray, ray)
    assert os.path.isdir(ray)


def test_a_link_that_leads_elsewhere_is_not_used_and_not_removed(
    attempt: tuple[str, str], roots: tuple[str, ...]
) -> None:
    links = sockets.make(*attempt, roots=roots)
    os.unlink(links.ray)
    os.symlink("/somewhere", links.ray)
    again = sockets.make(*attempt, roots=roots)
    assert again.ray == links.ray + "1"
    sockets.remove(links, *attempt)
    assert os.readlink(links.ray) == "/somewhere"
    sockets.remove(again, *attempt)
    os.unlink(links.ray)


def test_a_prepared_directory_is_not_trusted(attempt: tuple[str, str], roots: tuple[str, ...]) -> None:
    own = f"{roots[0]}/ar-{os.geteuid()}"
    os.mkdir(own, 0o755)
    os.chmod(own, 0o777)
    os.symlink("/somewhere", own + "a")
    links = sockets.make(*attempt, roots=roots)
    assert os.path.dirname(links.ray) == own + "b"
    os.symlink("/somewhere", own + "c")
    os.chmod(own + "b", 0o770)
    with pytest.raises(Refused, match="no private directory"):
        sockets.make(*attempt, roots=roots)


@root_only
def test_a_directory_of_another_user_is_not_trusted(attempt: tuple[str, str], roots: tuple[str, ...]) -> None:
    own = f"{roots[0]}/ar-0"
    os.mkdir(own, 0o700)
    os.chown(own, 65534, 65534)
    assert os.path.dirname(sockets.make(*attempt, roots=roots).ray) == own + "a"


def test_a_target_that_is_missing(tmp_path: Path, roots: tuple[str, ...]) -> None:
    with pytest.raises(Refused, match="not a directory"):
        sockets.make(str(tmp_path / ("x" * 90)), str(tmp_path), roots=roots)
