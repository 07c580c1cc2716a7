"""What whoever follows the lake reads of it, and adds to the chronicle, in one transaction that sees one state."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

import psycopg

from duckicelake.lake.chronicle.entries import AWAITED_KEY, Change, Position
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lake.postgres.documents import batches, document
from duckicelake.lake.postgres.queries import queries
from duckicelake.lake.snapshots import LOCK_KEY

_SQL = queries("chronicle")
FOLLOWER_KEY: Final = LOCK_KEY + 2


class Progress(NamedTuple):
    """How far the chronicle is, and where the counter of files stood after that snapshot."""

    position: Position
    next_file_id: int


class IcebergSnapshot(NamedTuple):
    table_id: int
    snapshot_id: int
    summary: Mapping[str, str]


class Heard(NamedTuple):
    """An entry of the audit trail about something that was done."""

    principal: str
    request_id: str
    operation: str
    resource: str
    detail: Mapping[str, Any] | None
    client: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A DuckLake snapshot in its own words; next_file_id: the counter of files after it.

    iceberg: those for which clients of Iceberg had it made. entries: what the audit trail says of it.
    """

    snapshot_id: int
    at: datetime
    next_file_id: int
    changes_made: str | None
    author: str | None
    message: str | None
    iceberg: Sequence[IcebergSnapshot]
    entries: Sequence[Heard]


@dataclass(frozen=True, slots=True)
class News:
    """Up to where the chronicle is, and what comes next. is_awaited: somebody waits for the chronicle to tell it.

    has_unplaced: something has changed that made no snapshot.
    """

    progress: Progress
    is_awaited: bool
    has_unplaced: bool
    snapshots: Sequence[Snapshot]


class Added(NamedTuple):
    """Data files that a snapshot took ids for, of one table; begin: the oldest snapshot that sees them."""

    table_id: int
    begin: int
    files: int
    records: int
    bytes: int


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
    begin: int
    data_file_id: int
    rows: int


class NewFiles(NamedTuple):
    """Data files and delete files, each with the number of the snapshot that took their ids, from 1."""

    added: list[tuple[int, Added]]
    deleted: list[tuple[int, Deleted]]


class InlinedChange(NamedTuple):
    """Rows in Postgres that a table got or lost at a snapshot; data_file_id: of rows of that file, lost."""

    at: int
    table_id: int
    added: int
    removed: int
    data_file_id: int | None = None


def is_free(cursor: Transaction) -> bool:
    """Whether nobody follows the lake at this moment."""
    return cursor.execute(_SQL.is_free, {"key": FOLLOWER_KEY}).fetchone() == (True,)


def lead(cursor: Transaction) -> bool:
    """Be the one that follows the lake for as long as the session lasts; False if another is."""
    return cursor.execute(_SQL.lead, {"key": FOLLOWER_KEY}).fetchone() == (True,)


@contextmanager
def one_state(cursor: Transaction) -> Iterator[None]:
    """A transaction to fold in: nobody else does meanwhile, and every statement sees the same state.

    The cursor's connection is in none; it begins, and waits for its turn, in one round trip.
    """
    try:
        cursor.execute(_SQL.fold_alone, prepare=False)
        yield
    except BaseException:
        with suppress(psycopg.Error):
            cursor.execute("ROLLBACK")
        raise
    cursor.execute("COMMIT")


def news(cursor: Transaction, limit: int) -> News:
    """Up to where the chronicle is, and the next snapshots, `limit` at the most."""
    rows = cursor.execute(_SQL.news, {"awaited": AWAITED_KEY, "limit": limit}).fetchall()
    snapshot_id, ordinal, next_file_id, is_not_awaited, has_unplaced, *_ = rows[0]
    progress = Progress(Position(snapshot_id, ordinal), next_file_id)
    snapshots = [_snapshot(*row[5:]) for row in rows if row[5] is not None]
    return News(progress, not is_not_awaited, has_unplaced, snapshots)


def _snapshot(*row: Any) -> Snapshot:
    *own, iceberg, entries = row
    own += [[IcebergSnapshot(*each) for each in iceberg or ()], [Heard(*each) for each in entries or ()]]
    return Snapshot(*own)


def take_unplaced(cursor: Transaction, limit: int) -> list[tuple[datetime, Heard]]:
    """What the audit trail says of changes that made no snapshot, and that have no place in the chronicle until now."""
    rows = cursor.execute(_SQL.unplaced, {"limit": limit}).fetchall()
    return [(at, Heard(*entry)) for at, *entry in rows]


def pass_snapshot(cursor: Transaction) -> int:
    """Go on past the next snapshot, of which nothing is told; its id."""
    (snapshot_id,) = cursor.execute(_SQL.pass_snapshot).fetchall()[0]
    return int(snapshot_id)


def new_files(cursor: Transaction, bounds: Sequence[int]) -> NewFiles:
    """Files by the counter of files, which `bounds` tell from before the first snapshot and after each.

    Only ids tell: DuckDB's flushes and merges make files that earlier snapshots see, too.
    """
    if bounds[0] == bounds[-1]:
        return NewFiles([], [])
    parameters = {"bounds": list(bounds), "first": bounds[0], "upto": bounds[-1]}
    found = NewFiles([], [])
    for number, table_id, begin, data_file_id, files, records, size, _ in cursor.execute(_SQL.new_files, parameters):
        if data_file_id is None:
            found.added.append((number, Added(table_id, begin, files, records, size)))
        else:
            found.deleted.append((number, Deleted(table_id, begin, data_file_id, records)))
    return found


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
    for part in batches(changes) or [()]:
        parameters = {**position._asdict(), "next_file_id": next_file_id, "changes": document(part)}
        cursor.execute(_SQL.write, parameters)
