"""What whoever follows the lake reads of it, and adds to the chronicle, in one transaction that sees one state."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from psycopg import IsolationLevel

from duckicelake.lake.chronicle import Change, Position
from duckicelake.lake.database import Transaction
from duckicelake.lake.documents import batches, document
from duckicelake.lake.queries import queries
from duckicelake.lake.snapshots import LOCK_KEY

_SQL = queries("chronicle")
FOLLOWER_KEY: Final = LOCK_KEY + 2


class Progress(NamedTuple):
    """How far the chronicle is, and where the counter of files stood after that snapshot."""

    position: Position
    next_file_id: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A DuckLake snapshot in its own words; next_file_id: the counter of files after it."""

    snapshot_id: int
    at: datetime
    next_file_id: int
    changes_made: str | None
    author: str | None
    message: str | None


@dataclass(frozen=True, slots=True)
class Heard:
    """An entry of the audit trail about something that was done."""

    audit_id: int
    at: datetime
    principal: str
    request_id: str
    operation: str
    resource: str
    snapshot_id: int | None
    detail: Mapping[str, Any] | None
    client: Mapping[str, str] | None


class Added(NamedTuple):
    """Data files that a snapshot took ids for, of one table; begin: the oldest snapshot that sees them."""

    table_id: int
    files: int
    records: int
    bytes: int
    begin: int


class Ended(NamedTuple):
    """A data file that left its table at a snapshot."""

    at: int
    table_id: int
    data_file_id: int
    records: int
    bytes: int


class Deleted(NamedTuple):
    """A delete file: all deleted rows of a data file, of which the oldest were deleted at `begin`."""

    table_id: int
    data_file_id: int
    begin: int
    rows: int


class InlinedChange(NamedTuple):
    """Rows in Postgres that a table got or lost at a snapshot; data_file_id: of rows of that file, lost."""

    at: int
    table_id: int
    added: int
    removed: int
    data_file_id: int | None = None


class IcebergSnapshot(NamedTuple):
    table_id: int
    ducklake_id: int
    snapshot_id: int
    summary: Mapping[str, str]


def is_free(cursor: Transaction) -> bool:
    """Whether nobody follows the lake at this moment."""
    return cursor.execute(_SQL.is_free, {"key": FOLLOWER_KEY}).fetchone() == (True,)


def lead(cursor: Transaction) -> bool:
    """Be the one that follows the lake for as long as the session lasts; False if another is."""
    return cursor.execute(_SQL.lead, {"key": FOLLOWER_KEY}).fetchone() == (True,)


@contextmanager
def one_state(cursor: Transaction) -> Iterator[None]:
    """A transaction to fold in: nobody else does meanwhile, and every statement sees the same state."""
    cursor.connection.isolation_level = IsolationLevel.REPEATABLE_READ
    with cursor.connection.transaction():
        cursor.execute(_SQL.fold_alone)
        yield


def progress(cursor: Transaction) -> Progress:
    """How far the chronicle is."""
    row = cursor.execute(_SQL.progress).fetchone()
    assert row is not None
    return Progress(Position(row[0], row[1]), row[2])


def snapshots(cursor: Transaction, after: int, limit: int) -> list[Snapshot]:
    """Those after one, in order."""
    rows = cursor.execute(_SQL.snapshots, {"after": after, "limit": limit}).fetchall()
    return [Snapshot(*row) for row in rows]


def entries(cursor: Transaction, first: int, upto: int) -> list[Heard]:
    """What the audit trail says of snapshots."""
    return [Heard(*row) for row in cursor.execute(_SQL.entries, {"first": first, "upto": upto}).fetchall()]


def take_unplaced(cursor: Transaction, limit: int) -> list[Heard]:
    """What the audit trail says of changes that made no snapshot, and that have no place in the chronicle until now."""
    return [Heard(*row) for row in cursor.execute(_SQL.unplaced, {"limit": limit}).fetchall()]


def iceberg_snapshots(cursor: Transaction, first: int, upto: int) -> list[IcebergSnapshot]:
    """Those for which clients of Iceberg had DuckLake snapshots made."""
    rows = cursor.execute(_SQL.iceberg_snapshots, {"first": first, "upto": upto}).fetchall()
    return [IcebergSnapshot(*row) for row in rows]


def added_files(cursor: Transaction, bounds: Sequence[int]) -> list[tuple[int, Added]]:
    """Data files with the number of their snapshot, from 1. bounds: the file counter before the first and after each.

    Only ids tell: DuckDB's flushes and merges make files that earlier snapshots see, too.
    """
    return [(number, Added(*row)) for number, *row in _of_counter(cursor, _SQL.added_files, bounds)]


def delete_files(cursor: Transaction, bounds: Sequence[int]) -> list[tuple[int, Deleted]]:
    """Delete files with the number of their snapshot, as `added_files`, in the order of their ids."""
    return [(number, Deleted(*row)) for number, *row in _of_counter(cursor, _SQL.delete_files, bounds)]


def _of_counter(cursor: Transaction, query: str, bounds: Sequence[int]) -> list[tuple[Any, ...]]:
    if bounds[0] == bounds[-1]:
        return []
    parameters = {"bounds": list(bounds), "first": bounds[0], "upto": bounds[-1]}
    return cursor.execute(query, parameters).fetchall()


def ended_files(cursor: Transaction, ended: Sequence[tuple[int, int]]) -> list[Ended]:
    """Data files that left tables, by (snapshot, table)."""
    if not ended:
        return []
    parameters = {"at": [at for at, _ in ended], "table_ids": [table_id for _, table_id in ended]}
    return [Ended(*row) for row in cursor.execute(_SQL.ended_files, parameters).fetchall()]


def deleted_rows(cursor: Transaction, data_file_ids: Iterable[int]) -> dict[int, int]:
    """How many rows of data files were deleted by the last snapshot that the chronicle told of; only what is known."""
    wanted = sorted(data_file_ids)
    return dict(cursor.execute(_SQL.deleted_rows, {"ids": wanted}).fetchall()) if wanted else {}


def know_deleted_rows(cursor: Transaction, known: Mapping[int, int], gone: Iterable[int]) -> None:
    """Remember how many rows of data files are deleted; and forget files that are gone themselves."""
    if known:
        cursor.execute(_SQL.know_deleted_rows, {"ids": list(known), "counts": list(known.values())})
    if forgotten := sorted(gone):
        cursor.execute(_SQL.forget_deleted_rows, {"ids": forgotten})


def write(cursor: Transaction, changes: Sequence[Change], position: Position, next_file_id: int) -> None:
    """Add changes, and note how far the chronicle is; who waits for it is told once the transaction is committed."""
    for part in batches(changes):
        cursor.execute(_SQL.write, {"changes": document(part)})
    parameters = {**position._asdict(), "next_file_id": next_file_id}
    cursor.execute(_SQL.advance, parameters)
