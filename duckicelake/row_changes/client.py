"""Read the changes of a table over HTTP, answer by answer, from a position that a file keeps."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast
from urllib.parse import urlencode

from duckicelake.client.query_result import JSON_LINES
from duckicelake.errors import BadCredentialsError, CatalogUnreachableError, NotAllowedError, PipelineError
from duckicelake.rest.client import encode_namespace, encode_segment
from duckicelake.rest.names import parse_table
from duckicelake.rest.retry import RetryPolicy
from duckicelake.row_changes.position import RowChangePosition
from duckicelake.row_changes.sinks import ChangeSink, FollowedTable

if TYPE_CHECKING:
    from duckicelake.client.lake import Lake

_ANSWER_SECONDS: Final = 300.0
_RETRY_SECONDS: Final = 600.0
"""For which a catalog may be away."""
_WAIT_SECONDS: Final = 30.0
"""For which one request waits for a change."""
_UNKNOWN_SECONDS: Final = 1.0
"""Pause where the change feed can't say whether there is a change."""
_FEED_RETRY_SECONDS: Final = math.inf
"""For which the change feed alone may be away: the changes come all the same, at the pace of the pauses."""
_NOTED_SECONDS: Final = 2.0
"""After which it is noted that the change feed is away."""
_END_KEYS: Final = frozenset({"_position", "_is_complete"})
"""All that the last line of an answer has. A row has more, also one of a table with such columns."""


@dataclass(slots=True)
class ChangesReader:
    """Reads the changes of a table into a sink, and knows how far it is after each row.

    note: shows a person a line of text.
    """

    lake: Lake
    name: str
    query: Mapping[str, str]
    sink: ChangeSink
    place: FollowedTable = field(default_factory=FollowedTable)
    rows: int = 0
    note: Callable[[str], None] = field(default=lambda _: None)
    _seen: int | None = None
    """The newest snapshot of the lake when the answer began."""
    _is_taking: bool = False
    """Whether the sink was given a row, and hasn't said that it has it."""
    _feed_retry: RetryPolicy = field(default_factory=lambda: RetryPolicy(_FEED_RETRY_SECONDS))
    """Of its own: that the changes could be read says nothing of the change feed."""
    _away_since: float | None = None
    """When the change feed was first asked in vain."""
    _is_noted: bool = False

    def read(self, *, is_following: bool) -> None:
        """Read all changes that there are; following, all that come, until it is interrupted.

        A catalog that is away is asked again for ten minutes, which begin anew with each row that comes.
        """
        retry = RetryPolicy(_RETRY_SECONDS)
        while True:
            before = self.place.position
            try:
                is_complete = self._read_answer()
                retry = RetryPolicy(_RETRY_SECONDS)
                if is_complete and not is_following:
                    return
                if is_complete:
                    self._wait()
            except CatalogUnreachableError:
                retry = retry if self.place.position == before else RetryPolicy(_RETRY_SECONDS)
                pause = retry.pause()
                if pause is None or self.place.position is None:
                    raise
                time.sleep(pause)

    def _read_answer(self) -> bool:
        """Read one answer; return whether it came to the end of what there is.

        The place is kept whatever ends it, unless that ended the sink: the sink may have the row behind the place then.
        """
        namespace, table = parse_table(self.name)
        client = self.lake.client
        path = client.iceberg("namespaces", encode_namespace(namespace), "tables", encode_segment(table), "changes")
        query = dict(self.query)
        query |= {"from": self.place.position} if self.place.position else {}
        query |= {"table-uuid": self.place.table_uuid} if self.place.table_uuid else {}
        try:
            asked = f"{path}?{urlencode(query)}"
            return bool(client.get_streamed(asked, JSON_LINES, _ANSWER_SECONDS, self._read_lines).content)
        finally:
            if self.place.position is not None and not self._is_taking:
                self.sink.keep(self.place)

    def _read_lines(self, stream: BinaryIO) -> bool:
        headers = cast("Any", stream).headers
        seen = headers.get("duckicelake-seen")
        self._seen = None if seen is None else int(seen)
        if self.place.table_uuid is None:
            self.place = replace(self.place, table_uuid=headers["duckicelake-table"])
        for line in stream:
            row = json.loads(line)
            if row.keys() == _END_KEYS:
                self.place = replace(self.place, position=row["_position"])
                return bool(row["_is_complete"])
            place = self._find_place(row)
            self._is_taking = True
            self.sink.take(line, row, place)
            self.place, self._is_taking = place, False
            self.rows += 1
        raise CatalogUnreachableError("The server cut its answer")

    def _find_place(self, row: Mapping[str, Any]) -> FollowedTable:
        """Find the place behind a row."""
        snapshot_id, before = row["_commit_snapshot_id"], self.place.change
        is_same = before is not None and before.rows > 0 and before.snapshot_id == snapshot_id
        rows = before.rows + 1 if before is not None and is_same else 1
        position = RowChangePosition(snapshot_id, rows, row["_change_ordinal"], self._seen)
        return replace(self.place, position=str(position))

    def _wait(self) -> None:
        """Wait for a change of the table, or half a minute: the place then moves on, before its snapshot expires.

        While the change feed is away or behind the lake, the wait is a pause that grows to ten seconds.
        """
        began, found = time.monotonic(), self.place.change
        after = None if found is None else str(found.snapshot_id)
        try:
            self.lake.read_events(self.name, after=after, wait=_WAIT_SECONDS, has_retries=False)
        except CatalogUnreachableError as error:
            self._note_absence(began, error)
            pause = self._feed_retry.pause()
            if pause is None:
                raise
            time.sleep(pause)
        except (BadCredentialsError, NotAllowedError):
            raise
        except PipelineError:  # the feed is behind the lake, or was pruned
            time.sleep(_UNKNOWN_SECONDS)
        else:
            self._feed_retry = RetryPolicy(_FEED_RETRY_SECONDS)
            if self._is_noted:
                self.note("The change feed is there again")
            self._away_since, self._is_noted = None, False

    def _note_absence(self, began: float, error: CatalogUnreachableError) -> None:
        """Note once that the change feed is away. began: when it was asked."""
        self._away_since = began if self._away_since is None else self._away_since
        if not self._is_noted and time.monotonic() - self._away_since >= _NOTED_SECONDS:
            self._is_noted = True
            self.note(f"The change feed is away or behind, so changes come some seconds late: {error}")
