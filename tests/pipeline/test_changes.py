"""How far changes were told, and who waits for more."""

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from duckicelake.errors import BadInputError
from duckicelake.pipeline.changes import Bookmark, ChangePosition, ChangesRequest, JsonLinesOutlet, follow_changes
from duckicelake.pipeline.main_history import SnapshotStep
from duckicelake.pipeline.progress import SilentReporter
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.connection import Connection


def test_bookmark_says_how_far_a_table_was_reported_and_is_no_other_tables(tmp_path: Path) -> None:
    path = tmp_path / "state"
    bookmark = Bookmark(path, "one")
    assert bookmark.read() is None
    bookmark.write(ChangePosition(7, 2))
    assert bookmark.read() == ChangePosition(7, 2)
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(BadInputError, match="is of another table"):
        Bookmark(path, "other").read()
    assert Bookmark(path, "one", after=7).read() == ChangePosition(7, 2)
    with pytest.raises(BadInputError, match=f"goes on behind 7; --from 6 .*leave out --from, or remove {path}"):
        Bookmark(path, "one", after=6).read()
    path.write_text('{"snapshot-id": 7}')
    with pytest.raises(BadInputError, match="can't be read"):
        bookmark.read()


def test_snapshot_that_only_moves_rows_is_passed_over_and_takes_no_ordinal(tmp_path: Path) -> None:
    bookmark, unread = Bookmark(tmp_path / "state", "one"), object()
    bookmark.write(ChangePosition(7, 2))
    lines = JsonLinesOutlet(io.StringIO(), bookmark)
    lines.take(SnapshotStep(8, 7, only_moves=True), unread)  # type: ignore[arg-type]
    assert lines.reached == bookmark.read() == ChangePosition(8, 2)
    assert ChangePosition.from_step(SnapshotStep(9, 8), lines.reached) == ChangePosition(9, 3)
    assert ChangePosition.from_step(SnapshotStep(9, 8), None) == ChangePosition(9, 1)


class Heard(SilentReporter):
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
        follow_changes(no_spark, client, ChangesRequest(("ns",), "t"), JsonLinesOutlet(io.StringIO()), heard, wait)
    assert len(heard.lines) == 2
    assert all(
        re.fullmatch("http://127.0.0.1:1 doesn't answer .*; it goes on when it is back", line) for line in heard.lines
    )
