"""Begin snapshots by DuckLake's commit protocol, which DuckDB's clients follow too."""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

import psycopg
from psycopg import Cursor

from duckicelake.errors import UnavailableError
from duckicelake.lake.formats import LakeFormat, get_format
from duckicelake.postgres.failures import is_retryable
from duckicelake.postgres.lease import LEASE_USES, LeaseKeeper
from duckicelake.postgres.pipeline import Write, check_gate_open, execute_no_result
from duckicelake.postgres.queries import Row, load_queries

_SQL = load_queries("lake", "snapshots")

LOCK_KEY = 0x6475636B6963656C  # "duckicel"
QUEUE_KEY = LOCK_KEY + 1
TABLE_LOCK_KEY = 0x6475636B  # "duck"; a key of two parts, the other is the table
MAX_ATTEMPTS = 20
RETRY_SECONDS = 20.0
"""Seconds after which no further attempt begins, even if there were fewer than MAX_ATTEMPTS."""
ROWS_CHECKED_JSON: Final = '{"rows":"checked"}'
"""Extra information of a DuckLake snapshot whose rows were checked, also by their tables' constraints, beforehand."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SnapshotCounters:
    """A `ducklake_snapshot` row: the snapshot, and the counters from which the next one goes on."""

    snapshot_id: int
    time: datetime
    schema_version: int
    next_catalog_id: int
    next_file_id: int


@dataclass(frozen=True, slots=True)
class SnapshotAllocation:
    """A DuckLake snapshot of the running transaction, which may hand out ids from `first_*` on."""

    id: int
    schema_version: int
    first_catalog_id: int
    first_file_id: int


def lock_writers(cursor: Cursor[Row]) -> None:
    """Wait until no other duckicelake transaction writes; released by COMMIT or ROLLBACK. May be taken repeatedly.

    Raises UnavailableError while the process may not write the lake: see `pipeline.WriteGate`.
    """
    check_gate_open(cursor)
    cursor.execute(_SQL.lock, {"key": LOCK_KEY})


def lock_in_queue(cursor: Cursor[Row]) -> None:
    """Take `lock_writers` after a commit that holds the queue alone; COMMIT or ROLLBACK releases it."""
    check_gate_open(cursor)
    cursor.execute(_SQL.queue, {"queue": QUEUE_KEY, "lock": LOCK_KEY})


@contextmanager
def hold_queue(cursor: Cursor[Row]) -> Iterator[None]:
    """Keep all other commits waiting in the queue, without a transaction: the session holds the lock."""
    with _hold_session_lock(
        cursor,
        _SQL.queue_alone,
        _SQL.leave_queue,
        {"key": QUEUE_KEY},
    ):
        yield


@contextmanager
def hold_table_lock(cursor: Cursor[Row], table_id: int) -> Iterator[None]:
    """Exclude other sessions from the same lock on the table, without a transaction."""
    parameters = {"key": TABLE_LOCK_KEY, "table_id": table_id % 2**31}
    with _hold_session_lock(cursor, _SQL.keep_lane, _SQL.leave_lane, parameters):
        yield


@contextmanager
def _hold_session_lock(cursor: Cursor[Row], take: str, leave: str, parameters: Mapping[str, int]) -> Iterator[None]:
    """Hold a lock of the session. If it can't be released, the session ends; work done in the block stays.

    Postgres also ends the session once it is idle for as long as a statement may take. A process that hangs, or has
    vanished with its machine, does not hold the lock for ever.
    """
    try:
        cursor.execute(take, parameters)
        yield
    finally:
        try:
            cursor.execute(leave, parameters)
        except psycopg.Error:
            cursor.connection.close()


@contextmanager
def try_session_lock(cursor: Cursor[Row], take: str, leave: str, parameters: Mapping[str, int]) -> Iterator[bool]:
    """Hold a lock of the session if it is free; yield whether it is held.

    The block may take any time, without the session. A process that is frozen, or has vanished with its machine, loses
    the lock. So does one whose Postgres restarts: its block goes on, and what it commits must check what it replaces.
    """
    ((is_held, limit_ms),) = cursor.execute(take, parameters).fetchall()
    keeper: LeaseKeeper | None = None
    try:
        if is_held and limit_ms:
            keeper = LeaseKeeper(cursor.connection, limit_ms / 1000 / LEASE_USES)
        with keeper.keep() if keeper else nullcontext():
            yield is_held
    finally:
        if keeper:
            keeper.end()
        if is_held:
            try:
                cursor.execute(leave, parameters)
            except psycopg.Error:
                cursor.connection.close()


@dataclass(frozen=True, slots=True)
class DuckDBContention:
    """Whether a DuckDB client waits for this transaction's snapshot id, and whether one probably lost its own."""

    is_waiting: bool
    has_lost: bool


@dataclass(frozen=True, slots=True)
class SnapshotClaim:
    """The amounts that a snapshot takes from the counters."""

    schema_change: bool
    catalog_ids: int = 0
    file_ids: int = 0

    def apply_to(self, last: SnapshotCounters) -> tuple[SnapshotAllocation, SnapshotCounters]:
        """Return the snapshot after the last one, and its row."""
        version = last.schema_version + self.schema_change
        made = SnapshotAllocation(last.snapshot_id + 1, version, last.next_catalog_id, last.next_file_id)
        catalog_id, file_id = last.next_catalog_id + self.catalog_ids, last.next_file_id + self.file_ids
        return made, SnapshotCounters(made.id, last.time, version, catalog_id, file_id)

    def revert_from(self, claimed: SnapshotCounters, time: datetime) -> SnapshotCounters:
        """Return the row before: `apply_to` makes the claimed row of it. time: that row's."""
        return SnapshotCounters(
            claimed.snapshot_id - 1,
            time,
            claimed.schema_version - self.schema_change,
            claimed.next_catalog_id - self.catalog_ids,
            claimed.next_file_id - self.file_ids,
        )


def begin_snapshot(
    cursor: Cursor[Row], *, schema_change: bool, catalog_ids: int = 0, file_ids: int = 0
) -> SnapshotAllocation:
    """Take the lock and insert the next ducklake_snapshot row. No other writer can commit before this transaction.

    Reads from before may be stale; later ones are not. Several snapshots in one transaction get contiguous ids. Every
    change of rows or statistics must raise `file_ids` by at least one: DuckDB caches by it.
    """
    lock_writers(cursor)
    wanted = SnapshotClaim(schema_change, catalog_ids, file_ids)
    _, before, _ = claim_snapshot(cursor, wanted, lambda: None)
    return wanted.apply_to(before)[0]


def claim_snapshot(
    cursor: Cursor[Row], wanted: SnapshotClaim, ask: Callable[[], T]
) -> tuple[SnapshotCounters, SnapshotCounters, T]:
    """Insert the next ducklake_snapshot row under `lock_writers`; return it, the row before it, and the answer.

    ask: sends further questions once the row is there; in a pipeline one wait serves both.
    """
    parameters = {
        "schema_changes": int(wanted.schema_change),
        "catalog_ids": wanted.catalog_ids,
        "file_ids": wanted.file_ids,
    }
    check_gate_open(cursor)
    for _ in _iterate_attempts():
        # A DuckDB client holding this id makes the insert wait; if that client commits, nothing is inserted.
        tried = cursor.connection.cursor().execute(_SQL.claim_snapshot, parameters)
        asked = ask()
        row = tried.fetchone()
        if row is not None:
            claimed = SnapshotCounters(*row[:5])
            return claimed, wanted.revert_from(claimed, row[5]), asked
    raise UnavailableError("DuckDB clients took the next snapshot ids again and again; nothing was written, try again")


def insert_snapshots(cursor: Cursor[Row], claimed: SnapshotCounters, rows: Sequence[SnapshotCounters]) -> None:
    """Write these rows in place of the claimed one and after it."""
    if rows[0] != claimed:
        own = rows[0]
        parameters: dict[str, object] = {
            "id": own.snapshot_id,
            "schema_version": own.schema_version,
            "catalog_id": own.next_catalog_id,
            "file_id": own.next_file_id,
        }
        execute_no_result(cursor, _SQL.correct_snapshot, parameters)
    if rows[1:]:
        parameters = {
            "time": claimed.time,
            "ids": [row.snapshot_id for row in rows[1:]],
            "schema_versions": [row.schema_version for row in rows[1:]],
            "catalog_ids": [row.next_catalog_id for row in rows[1:]],
            "file_ids": [row.next_file_id for row in rows[1:]],
        }
        cursor.execute(_SQL.insert_snapshots, parameters)


def observe_duckdb(cursor: Cursor[Row]) -> Callable[[], DuckDBContention]:
    """Ask Postgres for signs of DuckDB clients that lose snapshot ids to this transaction and the last one.

    The server's writers wait for the lock, never for an id. In a pipeline the question costs no wait of its own.
    """
    asked = cursor.connection.cursor().execute(_SQL.duckdb_seen)
    return lambda: DuckDBContention(*(flag is True for flag in asked.fetchone() or ()))


def read_last_snapshot(cursor: Cursor[Row]) -> tuple[int, float]:
    """Read the newest snapshot's id, and how many seconds ago it was taken."""
    row = cursor.execute(_SQL.last_snapshot).fetchone()
    assert row is not None
    return int(row[0]), float(row[1])


def read_clock(cursor: Cursor[Row]) -> int:
    """Read Postgres's time, in milliseconds since the epoch: clocks of machines that ask may be wrong."""
    (row,) = cursor.execute(_SQL.clock).fetchall()
    return int(row[0])


def read_lake_format(cursor: Cursor[Row]) -> LakeFormat:
    """Read the format that the lake has in the caller's transaction: a migration changes it under a running server.

    A writer reads it after it has claimed its snapshot. Raises UnsupportedCatalogError for an unknown format.
    """
    row = cursor.execute(_SQL.version).fetchone()
    return get_format("" if row is None else row[0])


def record_changes(
    cursor: Cursor[Row],
    snapshot_id: int,
    changes: Sequence[str],
    *,
    author: str | None = None,
    message: str | None = None,
    extra_info: str | None = None,
) -> None:
    """Record a snapshot's changes, as `build_changes` builds them."""
    changed = build_changes(snapshot_id, changes, author=author, message=message, extra_info=extra_info)
    execute_no_result(cursor, *changed)


def build_changes(
    snapshot_id: int,
    changes: Sequence[str],
    *,
    author: str | None = None,
    message: str | None = None,
    extra_info: str | None = None,
) -> Write:
    """Build the record of a snapshot's changes, by which others detect conflicts. No changes are legal; no row is not.

    changes: tokens such as `created_schema:"s1"` or `altered_table:2`. DuckDB clients fail on unknown kinds, and on
    empty text beside the text of another snapshot. No changes are therefore NULL.
    """
    parameters = {
        "snapshot_id": snapshot_id,
        "changes": ",".join(changes) or None,
        "author": author,
        "message": message,
        "extra_info": extra_info,
    }
    return Write(_SQL.insert_changes, parameters)


def quote_name(*names: str) -> str:
    """Spell a name as `changes_made` does: `"schema"."table"`, with quotes inside doubled."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def retry_transaction(function: Callable[[], T], again: Callable[[BaseException], bool] = is_retryable) -> T:
    """Call a function that runs one transaction; call it again while it loses to other writers.

    Raises UnavailableError after that.

    again: whether to retry after an error of Postgres. No attempt begins later than RETRY_SECONDS after the first.
    """
    for attempt in _iterate_attempts():
        try:
            return function()
        except psycopg.Error as error:
            if not again(error):
                raise
            last = error
        pause = min(0.25, 0.005 * 2**attempt)
        time.sleep(random.uniform(pause / 2, pause))  # noqa: S311 - spreads retries, guards nothing
    raise UnavailableError(f"other writers won {attempt + 1} times in a row; nothing was written, try again") from last


def _iterate_attempts() -> Iterator[int]:
    """Yield the numbers of the attempts, as long as another one may begin."""
    until = time.monotonic() + RETRY_SECONDS
    yield 0
    for number in range(1, MAX_ATTEMPTS):
        if time.monotonic() > until:
            return
        yield number
