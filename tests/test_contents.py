"""contents.py: which content was tried before; a hint that a broken file cannot turn into a failure."""

from __future__ import annotations

from pathlib import Path

from autoresearch import contents, paths


def where(at: Path) -> paths.Campaign:
    """Return the places of a campaign with its state directory."""
    found = paths.Campaign(str(at), str(at), "c")
    Path(found.state).mkdir(parents=True)
    return found


def test_an_earlier_idea_of_the_same_content_is_named(hostile: Path) -> None:
    here = where(hostile)
    key = contents.key("a" * 40, ["lr=1", "x y"])
    assert contents.earlier(here, key, "two") == ""
    contents.add(here, key, "one")
    contents.add(here, contents.key("b" * 40, []), "other")
    assert contents.earlier(here, key, "two") == "one"
    assert contents.earlier(here, key, "one") == ""


def test_files_and_words_both_count(hostile: Path) -> None:
    keys = {contents.key(tree, words) for tree in ("a", "b") for words in ([], ["x"], ["x", "y"], ["x y"], ["y", "x"])}
    assert len(keys) == 10


def test_a_torn_line_is_no_failure(hostile: Path) -> None:
    here = where(hostile)
    key = contents.key("a", [])
    (Path(here.state) / "contents").write_text(key[:30])
    assert contents.earlier(here, key, "two") == ""
    contents.add(here, key, "one")
    assert contents.earlier(here, key, "two") == "one"
    (Path(here.state) / "contents").write_text(key)
    contents.earlier(here, key, "two")
