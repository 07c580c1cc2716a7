"""How far changes were told, and who waits for more."""

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from duckicelake.errors import BadInput
from duckicelake.pipeline.changes import ChangesRequest, follow_changes
from duckicelake.pipeline.history import Step
from duckicelake.pipeline.outlets import Bookmark, JsonLines, Reached
from duckicelake.pipeline.reporting import Silent
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.connection import Connection


def test_bookmark_says_how_far_a_table_was_told_and_is_no_other_tables(tmp_path: Path) -> None:
    path = tmp_path / "state"
    bookmark = Bookmark(path, "one")
    assert bookmark.read() is None
    bookmark.write(Reached(7, 2))
    assert bookmark.read() == Reached(7, 2)
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(BadInput, match="is of another table"):
        Bookmark(path, "other").read()
    path.write_text('{"snapshot-id": 7}')
    with pytest.raises(BadInput, match="can't be read"):
        bookmark.read()


def test_snapshot_that_only_moves_rows_is_passed_over_and_takes_no_ordinal(tmp_path: Path) -> None:
    bookmark, unread = Bookmark(tmp_path / "state", "one"), object()
    bookmark.write(Reached(7, 2))
    lines = JsonLines(io.StringIO(), bookmark)
    lines.take(Step(8, 7, only_moves=True), unread)  # type: ignore[arg-type]
    assert lines.reached == bookmark.read() == Reached(8, 2)
    assert Reached.by(Step(9, 8), lines.reached) == Reached(9, 3)
    assert Reached.by(Step(9, 8), None) == Reached(9, 1)


class Heard(Silent):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


def test_follower_waits_for_a_catalog_that_is_away() -> None:
    client, heard = CatalogClient(Connection("http://127.0.0.1:1")), Heard()
    looks: Iterator[Any] = iter((None, KeyboardInterrupt))

    def wait() -> None:
        if found := next(looks):
            raise found

    no_spark: Any = None
    with pytest.raises(KeyboardInterrupt):
        follow_changes(no_spark, client, ChangesRequest(("ns",), "t"), JsonLines(io.StringIO()), heard, wait)
    assert len(heard.lines) == 2
    assert all(
        re.fullmatch("http://127.0.0.1:1 doesn't answer .*; it goes on when it is back", line) for line in heard.lines
    )
