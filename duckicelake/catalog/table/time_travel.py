"""Resolve a snapshot of a table: by id, DuckLake's number, time, branch or tag, or Delta's version."""

import re
from collections.abc import Container, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from duckicelake.bridge.commit.renumber import find_aliases
from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.services import Services
from duckicelake.errors import ExpiredError, InvalidRequestError, NotFoundError
from duckicelake.iceberg.snapshot import Snapshot
from duckicelake.lake.ducklake import native
from duckicelake.lake.ducklake.native_window import has_changed_rows
from duckicelake.lake.model import LakeChange
from duckicelake.postgres.queries import Transaction

DELTA_VERSION: Final = "delta.version"
"""In the summary of a snapshot that a version of a Delta table made."""
_DELTA: Final = re.compile(r"v([0-9]{1,18})")
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_DEFINITION: Final = frozenset({"created_table", "altered_table"})
_UNKNOWN: Final = frozenset({"compacted_table"})
"""What a snapshot is said to have changed if others before it have expired."""


def resolve_snapshot(services: Services, table: TableVersion, wanted: str) -> Snapshot:
    """Return the snapshot: the head of a branch or tag, of Delta's version as `v7`, of a number, or main's at a time.

    A number is a snapshot's id or, if there is none of it, DuckLake's: main as DuckDB reads it `AT (VERSION => n)`.
    Raises NotFoundError, ExpiredError for what has expired, InvalidRequestError for what is none of these.
    """
    text, metadata = wanted.strip(), table.metadata
    if text in metadata.refs:
        return _find_known(table, metadata.refs[text].snapshot_id)
    if delta := _DELTA.fullmatch(text):
        return _of_delta(table, int(delta[1]))
    if not _NUMBER.fullmatch(text):
        return _at_time(table, _milliseconds(text), text)
    number = find_aliases(table.state.snapshots).get(int(text), int(text))
    return metadata.snapshot(number) or _of_ducklake(services, table, int(text))


def _find_known(table: TableVersion, snapshot_id: int) -> Snapshot:
    snapshot = table.metadata.snapshot(snapshot_id)
    if snapshot is None:
        raise ExpiredError(f"Snapshot {snapshot_id} of the table has expired")
    return snapshot


def _of_delta(table: TableVersion, version: int) -> Snapshot:
    made = [snapshot for snapshot in table.metadata.snapshots if snapshot.summary.get(DELTA_VERSION) == str(version)]
    if not made:
        raise NotFoundError(f"The table lists no snapshot of a Delta version {version}")
    return made[-1]


def _of_ducklake(services: Services, table: TableVersion, number: int) -> Snapshot:
    """Return main at a DuckLake snapshot: what the last change of its rows up to then made, if that is listed."""
    with services.database.reading() as cursor:
        created, newest = native.read_created_at(cursor, table.row.table_id), native.read_newest_snapshot(cursor)
        if created is None or not created <= number <= newest:
            raise NotFoundError(
                f"The table has no snapshot {number}, and DuckLake none of this number that has the table"
            )
        changes = native.read_changes(cursor, table.row.table_id, created - 1, number)
        times = [native.read_snapshot_time(cursor, change.snapshot_id) for change in changes[-1:]]
        made = _find_made(table)
        last = _find_last_move(cursor, table.row.table_id, changes, made)
    if last is None:
        raise NotFoundError(f"The table had no rows yet at DuckLake's snapshot {number}")
    if last in made:
        return _find_known(table, made[last])
    rolled_back = _find_rollback_target(table, last, times[-1])
    if rolled_back is None:
        raise ExpiredError(
            f"Iceberg lists no snapshot of what the table was at DuckLake's snapshot {number}, only {_nearest(table)}"
        )
    return rolled_back


def _find_made(table: TableVersion) -> dict[int, int]:
    """Find the last snapshot of main that each of DuckLake's made."""
    numbers = {row.snapshot_id: row.ducklake_id for row in table.state.snapshots}
    main = (entry.snapshot_id for entry in table.metadata.snapshot_log)
    return {numbers[snapshot_id]: snapshot_id for snapshot_id in main if snapshot_id in numbers}


def _find_last_move(
    cursor: Transaction, table_id: int, changes: Sequence[LakeChange], made: Container[int]
) -> int | None:
    """Find the last of these changes that left other rows than there were, or made a snapshot of Iceberg's."""
    for change in reversed(changes):
        at = change.snapshot_id
        if change.kinds <= _DEFINITION:
            continue
        if at in made or change.kinds & _UNKNOWN or has_changed_rows(cursor, table_id, at):
            return at
    return None


def _find_rollback_target(table: TableVersion, number: int, time_ms: int) -> Snapshot | None:
    """Return the older snapshot that main went back to with a DuckLake snapshot that made none itself."""
    log = [entry for entry in table.metadata.snapshot_log if entry.timestamp_ms <= time_ms]
    numbers = {row.snapshot_id: row.ducklake_id for row in table.state.snapshots}
    if len(log) < 2 or log[-1].snapshot_id not in numbers:
        return None
    before = numbers.get(log[-2].snapshot_id)
    is_older = before is not None and numbers[log[-1].snapshot_id] < before < number
    return table.metadata.snapshot(log[-1].snapshot_id) if is_older else None


def _at_time(table: TableVersion, time_ms: int, text: str) -> Snapshot:
    log = table.metadata.snapshot_log
    then = [entry.snapshot_id for entry in log if entry.timestamp_ms <= time_ms]
    if then:
        return _find_known(table, then[-1])
    since = f"its history begins at {_render(log[0].timestamp_ms)}" if log else "it never had any rows"
    raise NotFoundError(f"The table wasn't there at {text}, as far as is known: {since}")


def _milliseconds(text: str) -> int:
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequestError(
            f"{text!r} is no branch or tag of the table, and neither a snapshot's number, a time as "
            "2026-05-01T12:00, nor a version of a Delta table as v7"
        ) from None
    return round((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp() * 1000)


def _render(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _nearest(table: TableVersion) -> str:
    return _some(sorted({row.ducklake_id for row in table.state.snapshots}))


def _some(numbers: Iterable[int]) -> str:
    *_, last = listed = list(numbers)[-10:]
    return f"those of {', '.join(map(str, listed))}" if len(listed) > 1 else f"that of {last}"
