"""What tables that get rows are once the snapshot id is taken, when nobody else can change them any more."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from psycopg import Cursor

from duckicelake.lake import idempotency, native
from duckicelake.lake.model import ColumnStats
from duckicelake.lake.postgres.database import Row
from duckicelake.lake.postgres.queries import queries
from duckicelake.lake.rows import producers
from duckicelake.lake.rows.batches import Options, RowBatch
from duckicelake.lake.rows.producers import Producer
from duckicelake.lake.snapshots import Counters

_SQL = queries("rows")
Sizes = tuple[int, int, int]
"""Rows that a table ever had, its next row id, and the bytes of its files."""


@dataclass(frozen=True, slots=True)
class TableNow:
    """A table as it is once the snapshot id is taken; `stats` are None before its first rows.

    registered: the table that takes its inlined rows. options: those that say how many rows are inlined.
    """

    table_id: int
    sizes: Sizes
    stats: Mapping[int, ColumnStats] | None
    registered: str | None
    options: Options

    @property
    def has_rows(self) -> bool:
        """Whether it ever had any."""
        return self.stats is not None

    def problem(self, batch: RowBatch, before: Counters) -> str | None:
        """Why the table isn't what the batch was prepared for, if so; `before` is the last snapshot."""
        target = batch.target
        if before.schema_version != target.lake_version:
            return f"schema version {before.schema_version} is newer than {target.lake_version}"
        if self.options != target.options:
            return "the options say otherwise how many rows are inlined"
        if target.inlined is not None and self.registered != target.inlined.registered:
            return f"{self.registered} takes the inlined rows of table {self.table_id}"
        return None

    def after(self, rows: int, size: int, stats: Mapping[int, ColumnStats | None]) -> "TableNow":
        """The same once so many rows and bytes of files have come, with the statistics then."""
        records, next_row_id, before = self.sizes
        known = {column: row for column, row in stats.items() if row is not None}
        return replace(self, sizes=(records + rows, next_row_id + rows, before + size), stats=known)


@dataclass(frozen=True, slots=True)
class Now:
    """What batches depend on. sequences: the last of each producer that has begun. keys: those that came before."""

    tables: dict[int, TableNow]
    sequences: dict[Producer, int]
    keys: set[UUID]


def ask(cursor: Cursor[Row], batches: Sequence[RowBatch]) -> Callable[[], Now]:
    """Ask what the tables are, how far the producers, and which requests have come before."""
    table_ids = sorted({batch.table_id for batch in batches})
    asked = cursor.connection.cursor().execute(_SQL.states, {"table_ids": table_ids})
    counted = producers.applied(cursor, [batch.producer for batch in batches if batch.producer is not None])
    known = idempotency.known(cursor, [batch.key for batch in batches if batch.key is not None])

    def answer() -> Now:
        return Now({row[0]: _table(cursor, *row[:5]) for row in asked.fetchall()}, counted(), known())

    return answer


def _table(
    cursor: Cursor[Row],
    table_id: int,
    sizes: Sequence[Sequence[int | None]] | None,
    stats: Sequence[Sequence[Any]] | None,
    registered: str | None,
    options: Options,
) -> TableNow:
    """A row of `states`; DamagedTable if the table has no row of sizes, or one that says too little."""
    is_whole = sizes is not None and len(sizes) == 1 and None not in sizes[0]
    found = sizes[0] if sizes is not None and is_whole else native.table_stats(cursor, table_id)
    if found is None:
        return TableNow(table_id, (0, 0, 0), None, registered, options)
    columns = {column: ColumnStats(column, *rest) for column, *rest in stats or ()}
    return TableNow(table_id, tuple(found), columns, registered, options)  # type: ignore[arg-type]
