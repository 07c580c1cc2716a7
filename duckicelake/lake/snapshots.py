"""How every write to the lake begins: DuckLake's commit protocol, which DuckDB clients follow too.

The primary key of ducklake_snapshot is DuckLake's concurrency control. Our own writers queue on an advisory lock first,
so that only DuckDB clients compete for the next id.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import psycopg
from psycopg import Cursor

from duckicelake.errors import Unavailable
from duckicelake.lake.database import Row, is_retryable
from duckicelake.lake.queries import queries

LOCK_KEY = 0x6475636B6963656C  # "duckicel"
QUEUE_KEY = LOCK_KEY + 1
ATTEMPTS = 20

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NewSnapshot:
    """A DuckLake snapshot that the running transaction owns; ids from `first_*` on are its to hand out."""

    id: int
    schema_version: int
    first_catalog_id: int
    first_file_id: int
    time: datetime


def lock(cursor: Cursor[Row]) -> None:
    """Wait until no other duckicelake transaction writes; released by COMMIT or ROLLBACK. May be taken repeatedly."""
    cursor.execute(queries("snapshots").lock, {"key": LOCK_KEY})


def queue(cursor: Cursor[Row]) -> None:
    """Wait while another commit has the queue to itself; taken before `lock`, released with the transaction."""
    cursor.execute(queries("snapshots").queue, {"key": QUEUE_KEY})


def queue_alone(cursor: Cursor[Row]) -> None:
    """Keep all other commits in the queue until this transaction ends; the commit itself goes through another one."""
    cursor.execute(queries("snapshots").queue_alone, {"key": QUEUE_KEY})


def begin_snapshot(cursor: Cursor[Row], *, schema_change: bool, catalog_ids: int = 0, file_ids: int = 0) -> NewSnapshot:
    """Insert the next ducklake_snapshot row, after which no other writer can commit until we do.

    What was read earlier in the transaction may be stale by now; what is read later is not. Several in one transaction
    get contiguous ids. Any change of rows or statistics must raise `file_ids` by at least one: DuckDB caches by it.
    """
    lock(cursor)
    parameters = {"schema_changes": int(schema_change), "catalog_ids": catalog_ids, "file_ids": file_ids}
    for _ in range(ATTEMPTS):
        # A DuckDB client holding this id makes the insert wait; if that client commits, nothing is inserted.
        row = cursor.execute(queries("snapshots").insert_snapshot, parameters).fetchone()
        if row is not None:
            return NewSnapshot(*row)
    raise Unavailable(f"DuckDB clients took the next {ATTEMPTS} snapshot ids; nothing was written, try again")


def record_changes(
    cursor: Cursor[Row],
    snapshot_id: int,
    changes: Sequence[str],
    *,
    author: str | None = None,
    message: str | None = None,
    extra_info: str | None = None,
) -> None:
    """Write what the snapshot changed, by which others detect conflicts with it; no changes are legal, no row is not.

    `changes` are tokens such as `created_schema:"s1"` or `altered_table:2`. DuckDB clients fail on unknown kinds, and
    on empty text too once another snapshot's stands beside it: no changes are NULL.
    """
    parameters = {
        "snapshot_id": snapshot_id,
        "changes": ",".join(changes) or None,
        "author": author,
        "message": message,
        "extra_info": extra_info,
    }
    cursor.execute(queries("snapshots").insert_changes, parameters)


def quoted(*names: str) -> str:
    """Spell a name as `changes_made` does: `"schema"."table"`, with quotes inside doubled."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def retrying(function: Callable[[], T]) -> T:
    """Call a function that runs one whole transaction again while it loses to other writers; then Unavailable."""
    for attempt in range(ATTEMPTS):
        try:
            return function()
        except psycopg.Error as error:
            if not is_retryable(error):
                raise
            last = error
        pause = min(0.25, 0.005 * 2**attempt)
        time.sleep(random.uniform(pause / 2, pause))  # noqa: S311 - spreads retries, guards nothing
    raise Unavailable(f"other writers won {ATTEMPTS} times in a row; nothing was written, try again") from last
