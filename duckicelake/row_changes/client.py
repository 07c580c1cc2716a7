"""Read the changes of a table over HTTP, answer by answer, from a position that a file keeps."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, Final
from urllib.parse import urlencode

from duckicelake.client.query_result import JSON_LINES
from duckicelake.client.sender import RetryPolicy
from duckicelake.errors import BadInputError, CatalogUnreachableError
from duckicelake.rest.client import encode_namespace, encode_segment
from duckicelake.rest.names import parse_table
from duckicelake.row_changes.position import RowChangePosition, find_position

if TYPE_CHECKING:
    from pathlib import Path

    from duckicelake.client.lake import Lake

_ANSWER_SECONDS: Final = 300.0
_RETRY_SECONDS: Final = 600.0
"""For which a catalog may be away."""
_WAIT_SECONDS: Final = 30.0
"""For which one request waits for a change."""
TakeLine = Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class FollowedTable:
    """How far a reader is in a table's changes. position: None before the first."""

    table_uuid: str | None = None
    position: str | None = None


@dataclass(frozen=True, slots=True)
class StateFile:
    """A file that keeps how far a reader is; after a crash it has the old place or the new one."""

    path: Path

    def read(self) -> FollowedTable:
        """Read it. Raises BadInputError for a file that is none of these."""
        try:
            found = json.loads(self.path.read_text())
            place = FollowedTable(str(found["table-uuid"]), str(found["position"]))
        except FileNotFoundError:
            return FollowedTable()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadInputError(
                f"--state {self.path} can't be read ({error}): name a file of its own for it"
            ) from error
        if find_position(place.position or "") is None:
            raise BadInputError(f"--state {self.path} has no position: {place.position!r}")
        return place

    def write(self, place: FollowedTable) -> None:
        """Write it, safe from a crash."""
        new = self.path.with_name(f"{self.path.name}.new")
        with new.open("w") as file:
            json.dump({"table-uuid": place.table_uuid, "position": place.position}, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)


@dataclass(slots=True)
class ChangesReader:
    """Reads the changes of a table, and knows how far it is after each row.

    take: gets each row as a line. keep: is called with the place where an answer ended, cut or not.
    """

    lake: Lake
    name: str
    query: Mapping[str, str]
    take: TakeLine
    keep: Callable[[FollowedTable], object]
    place: FollowedTable = field(default_factory=FollowedTable)
    rows: int = 0

    def read(self, *, is_following: bool) -> None:
        """Read all changes that there are; following, all that come, until it is interrupted.

        A catalog that is away is asked again for ten minutes.
        """
        retry = RetryPolicy(_RETRY_SECONDS)
        while True:
            try:
                is_complete = self._read_answer()
                retry = RetryPolicy(_RETRY_SECONDS)
                if is_complete and not is_following:
                    return
                if is_complete:
                    self._wait()
            except CatalogUnreachableError:
                pause = retry.pause()
                if pause is None or self.place.position is None:
                    raise
                time.sleep(pause)

    def _read_answer(self) -> bool:
        """Read one answer; return whether it came to the end of what there is."""
        namespace, table = parse_table(self.name)
        client = self.lake.client
        path = client.iceberg("namespaces", encode_namespace(namespace), "tables", encode_segment(table), "changes")
        query = dict(self.query)
        query |= {"from": self.place.position} if self.place.position else {}
        query |= {"table-uuid": self.place.table_uuid} if self.place.table_uuid else {}
        try:
            asked = f"{path}?{urlencode(query)}"
            answer = client.get_streamed(asked, JSON_LINES, _ANSWER_SECONDS, self._read_lines)
        finally:
            if self.place.table_uuid is not None:
                self.keep(self.place)
        if self.place.table_uuid is None:
            self.place = replace(self.place, table_uuid=answer.headers["duckicelake-table"])
            self.keep(self.place)
        return bool(answer.content)

    def _read_lines(self, stream: BinaryIO) -> bool:
        for line in stream:
            row = json.loads(line)
            if "_position" in row:
                self.place = replace(self.place, position=row["_position"])
                return bool(row["_is_complete"])
            self.take(line)
            self._pass(row)
        raise CatalogUnreachableError("The server cut its answer")

    def _pass(self, row: Mapping[str, Any]) -> None:
        """Move the place behind a row."""
        self.rows += 1
        snapshot_id, before = row["_commit_snapshot_id"], find_position(self.place.position or "")
        is_same = before is not None and before.rows > 0 and before.snapshot_id == snapshot_id
        rows = before.rows + 1 if before is not None and is_same else 1
        self.place = replace(self.place, position=str(RowChangePosition(snapshot_id, rows, row["_change_ordinal"])))

    def _wait(self) -> None:
        """Wait for a change of the table, or half a minute: the place then moves on, before its snapshot expires."""
        found = find_position(self.place.position or "")
        after = None if found is None else str(found.snapshot_id)
        with suppress(BadInputError):  # the feed may be behind the lake, or be pruned
            self.lake.read_events(self.name, after=after, wait=_WAIT_SECONDS)


def open_reader(
    lake: Lake, name: str, query: Mapping[str, str], take: TakeLine, state: StateFile | None
) -> ChangesReader:
    """Open a reader that begins where a file says, else where the query says."""
    place = FollowedTable() if state is None else state.read()
    keep = (lambda _: None) if state is None else partial(_keep, state)
    return ChangesReader(lake, name, query, take, keep, place)


def _keep(state: StateFile, place: FollowedTable) -> None:
    if place.position is not None:
        state.write(place)
