"""SQL of new DuckLake snapshots and what they added or removed, read in one transaction with the write."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import sql

from duckicelake.changelog.entries import AWAITED_KEY, LoggedChange, LogPosition
from duckicelake.lake.ducklake.snapshots import LOCK_KEY
from duckicelake.lake.formats import INLINED_ALIAS
from duckicelake.postgres.pipeline import json_param, split_batches
from duckicelake.postgres.queries import Transaction, load_queries

_SQL = load_queries("changelog", "entries")
FOLLOWER_KEY: Final = LOCK_KEY + 2
_ADDED_SQL = f"SELECT _dl_begin, count(*) FROM {{}} {INLINED_ALIAS} WHERE _dl_begin = ANY(%(at)s) GROUP BY 1"
_REMOVED_SQL = f"SELECT _dl_end, count(*) FROM {{}} {INLINED_ALIAS} WHERE _dl_end = ANY(%(at)s) GROUP BY 1"
_DELETED_SQL = "SELECT begin_snapshot, file_id, count(*) FROM {} WHERE begin_snapshot <= %(upto)s GROUP BY 1, 2"


class ChangelogProgress(NamedTuple):
    """The position of the changelog, and the counter of files after that snapshot."""

    position: LogPosition
    next_file_id: int


class IcebergSnapshot(NamedTuple):
    table_id: int
    snapshot_id: int
    summary: Mapping[str, str]


class AuditedRequest(NamedTuple):
    """An entry of the audit trail about a change."""

    principal: str
    request_id: str
    operation: str
    resource: str
    detail: Mapping[str, Any] | None
    client: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class LakeSnapshot:
    """A DuckLake snapshot, with its own texts. next_file_id: the counter of files after it.

    iceberg: the Iceberg snapshots of this one. entries: of the audit trail.
    """

    snapshot_id: int
    at: datetime
    next_file_id: int
    changes_made: str | None
    author: str | None
    message: str | None
    iceberg: Sequence[IcebergSnapshot]
    entries: Sequence[AuditedRequest]


@dataclass(frozen=True, slots=True)
class LakeNews:
    """The position of the changelog, and the next snapshots. is_awaited: a reader waits for them.

    has_unplaced: there are changes without a snapshot.
    """

    progress: ChangelogProgress
    is_awaited: bool
    has_unplaced: bool
    snapshots: Sequence[LakeSnapshot]


class CountedFile(NamedTuple):
    """Data files of one table whose ids a snapshot took. begin: the oldest snapshot that sees them."""

    table_id: int
    begin: int
    files: int
    records: int
    bytes: int


class EndedFile(NamedTuple):
    """A data file that left its table at a snapshot."""

    at: int
    table_id: int
    data_file_id: int
    records: int
    bytes: int


class CountedDeletes(NamedTuple):
    """A delete file: all deleted rows of a data file. begin: snapshot of the oldest deletes."""

    table_id: int
    begin: int
    data_file_id: int
    rows: int


class NewFiles(NamedTuple):
    """Data files and delete files, each with the number, from 1, of the snapshot that took its id."""

    added: list[tuple[int, CountedFile]]
    deleted: list[tuple[int, CountedDeletes]]


class InlinedChange(NamedTuple):
    """Rows in Postgres that a table gained or lost at a snapshot. data_file_id: for deletes of rows of that file."""

    at: int
    table_id: int
    added: int
    removed: int
    data_file_id: int | None = None


def is_follower_free(cursor: Transaction) -> bool:
    """Return whether no process writes the changelog now."""
    return cursor.execute(_SQL.is_free, {"key": FOLLOWER_KEY}).fetchone() == (True,)


def take_lead(cursor: Transaction) -> bool:
    """Try to become the writer of the changelog for this session; False if another process is."""
    return cursor.execute(_SQL.lead, {"key": FOLLOWER_KEY}).fetchone() == (True,)


@contextmanager
def open_state(cursor: Transaction) -> Iterator[None]:
    """Open the only transaction that writes the changelog; all its statements see the same state.

    The cursor's connection must be in none. Beginning and waiting for the lock take one round trip.
    """
    try:
        cursor.execute(_SQL.fold_alone, prepare=False)
        yield
    except BaseException:
        with suppress(psycopg.Error):
            cursor.execute("ROLLBACK")
        raise
    cursor.execute("COMMIT")


def read_news(cursor: Transaction, limit: int) -> LakeNews:
    """Read the position of the changelog, and up to `limit` next snapshots."""
    rows = cursor.execute(_SQL.news, {"awaited": AWAITED_KEY, "limit": limit}).fetchall()
    snapshot_id, ordinal, next_file_id, is_not_awaited, has_unplaced, *_ = rows[0]
    progress = ChangelogProgress(LogPosition(snapshot_id, ordinal), next_file_id)
    snapshots = [_build_snapshot(*row[5:]) for row in rows if row[5] is not None]
    return LakeNews(progress, not is_not_awaited, has_unplaced, snapshots)


def _build_snapshot(*row: Any) -> LakeSnapshot:
    *own, iceberg, entries = row
    own += [
        [IcebergSnapshot(*snapshot) for snapshot in iceberg or ()],
        [AuditedRequest(*entry) for entry in entries or ()],
    ]
    return LakeSnapshot(*own)


def take_unplaced(cursor: Transaction, limit: int) -> list[tuple[datetime, AuditedRequest]]:
    """Read changes of the audit trail without a snapshot that the changelog doesn't have yet."""
    rows = cursor.execute(_SQL.unplaced, {"limit": limit}).fetchall()
    return [(at, AuditedRequest(*entry)) for at, *entry in rows]


def pass_snapshot(cursor: Transaction) -> int:
    """Skip the next snapshot; return its id."""
    (snapshot_id,) = cursor.execute(_SQL.pass_snapshot).fetchall()[0]
    return int(snapshot_id)


def read_new_files(cursor: Transaction, bounds: Sequence[int]) -> NewFiles:
    """Read files by ranges of the counter. bounds: its values before the first snapshot and after each.

    Only ids are reliable: DuckDB's flushes and merges make files that earlier snapshots see, too.
    """
    if bounds[0] == bounds[-1]:
        return NewFiles([], [])
    parameters = {"bounds": list(bounds), "first": bounds[0], "upto": bounds[-1]}
    found = NewFiles([], [])
    for number, table_id, begin, data_file_id, files, records, size, _ in cursor.execute(_SQL.new_files, parameters):
        if data_file_id is None:
            found.added.append((number, CountedFile(table_id, begin, files, records, size)))
        else:
            found.deleted.append((number, CountedDeletes(table_id, begin, data_file_id, records)))
    return found


def read_delete_file_begins(cursor: Transaction, asked: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
    """Read which of these (snapshot, table) a delete file begins with."""
    at, table_ids = zip(*asked, strict=True)
    parameters = {"at": list(at), "table_ids": list(table_ids)}
    return {(row[0], row[1]) for row in cursor.execute(_SQL.delete_file_begins, parameters).fetchall()}


def read_ended_files(cursor: Transaction, ended: Sequence[tuple[int, int]]) -> list[EndedFile]:
    """Read the data files that left tables, by (snapshot, table)."""
    if not ended:
        return []
    parameters = {"at": [at for at, _ in ended], "table_ids": [table_id for _, table_id in ended]}
    return [EndedFile(*row) for row in cursor.execute(_SQL.ended_files, parameters).fetchall()]


def read_deleted_rows(cursor: Transaction, data_file_ids: Iterable[int]) -> dict[int, int]:
    """Read the numbers of deleted rows of data files at the changelog's last snapshot, as far as known."""
    wanted = sorted(data_file_ids)
    return dict(cursor.execute(_SQL.deleted_rows, {"ids": wanted}).fetchall()) if wanted else {}


def record_deleted_rows(cursor: Transaction, known: Mapping[int, int], gone: Iterable[int]) -> None:
    """Store the numbers of deleted rows of data files, and delete those of files that are gone."""
    if known:
        cursor.execute(_SQL.know_deleted_rows, {"ids": list(known), "counts": list(known.values())})
    if forgotten := sorted(gone):
        cursor.execute(_SQL.forget_deleted_rows, {"ids": forgotten})


def write_entries(
    cursor: Transaction, changes: Sequence[LoggedChange], position: LogPosition, next_file_id: int
) -> None:
    """Write changes and the changelog's position. Postgres notifies readers at the commit."""
    for part in split_batches(changes) or [()]:
        parameters = {**position._asdict(), "next_file_id": next_file_id, "changes": json_param(part)}
        cursor.execute(_SQL.write, parameters)


def read_inlined_changes(cursor: Transaction, asked: Iterable[tuple[int, int]]) -> list[InlinedChange]:
    """Read changes of rows in Postgres for each (snapshot, table), and earlier deletes of rows of files.

    Rows that were flushed since are missing.
    """
    by_table: dict[int, list[int]] = {}
    for at, table_id in asked:
        by_table.setdefault(table_id, []).append(at)
    if not by_table:
        return []
    found = cursor.execute(_SQL.inlined_tables, {"ids": sorted(by_table)}).fetchall()
    return [
        change
        for table_id, name, has_rows in found
        for change in (_read_rows if has_rows else _read_deletes)(cursor, table_id, name, by_table[table_id])
    ]


def _read_rows(cursor: Transaction, table_id: int, name: str, at: Sequence[int]) -> list[InlinedChange]:
    table, parameters = sql.Identifier(name), {"at": list(at)}
    added = cursor.execute(sql.SQL(_ADDED_SQL).format(table), parameters).fetchall()
    removed = cursor.execute(sql.SQL(_REMOVED_SQL).format(table), parameters).fetchall()
    return [
        *(InlinedChange(snapshot, table_id, count, 0) for snapshot, count in added),
        *(InlinedChange(snapshot, table_id, 0, count) for snapshot, count in removed),
    ]


def _read_deletes(cursor: Transaction, table_id: int, name: str, at: Sequence[int]) -> list[InlinedChange]:
    rows = cursor.execute(sql.SQL(_DELETED_SQL).format(sql.Identifier(name)), {"upto": max(at)}).fetchall()
    return [InlinedChange(snapshot, table_id, 0, count, file_id) for snapshot, file_id, count in rows]
