"""What tables that get rows are once the snapshot id is taken, when nobody else can change them any more."""

from collections.abc import Callable, Sequence
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


class TableNow:
    """A table as it is once the snapshot id is taken; `stats` are None before its first rows."""

    def __init__(
        self,
        cursor: Cursor[Row],
        table_id: int,
        sizes: Sequence[Sequence[int | None]] | None,
        stats: Sequence[Sequence[object]] | None,
        registered: str | None,
        options: Options,
    ) -> None:
        self.table_id = table_id
        self.registered = registered
        self._options = options
        whole = sizes if sizes is not None and len(sizes) == 1 and None not in sizes[0] else None
        found = native.table_stats(cursor, table_id) if whole is None else None  # which says what is wrong
        self.has_rows = whole is not None or found is not None
        self.sizes: Sizes = (0, 0, 0)
        if whole is not None:
            records, next_row_id, size = whole[0]
            assert records is not None
            assert next_row_id is not None
            assert size is not None
            self.sizes = (records, next_row_id, size)
        rows = [ColumnStats(*row) for row in stats or ()]  # type: ignore[arg-type]
        self.stats = {row.column_id: row for row in rows} if self.has_rows else None

    def problem(self, batch: RowBatch, before: Counters) -> str | None:
        """Why the table isn't what the batch was prepared for, if so; `before` is the last snapshot."""
        target = batch.target
        if before.schema_version != target.lake_version:
            return f"schema version {before.schema_version} is newer than {target.lake_version}"
        if self._options != target.options:
            return "the options say otherwise how many rows are inlined"
        if target.inlined is not None and self.registered != target.inlined.registered:
            return f"{self.registered} takes the inlined rows of table {self.table_id}"
        return None


Asked = Callable[[], tuple[dict[int, TableNow], dict[Producer, int], set[UUID]]]


def ask(cursor: Cursor[Row], batches: Sequence[RowBatch]) -> Asked:
    """Ask what the tables are, how far the producers, and which requests have come before."""
    table_ids = sorted({batch.table_id for batch in batches})
    asked = cursor.connection.cursor().execute(_SQL.states, {"table_ids": table_ids})
    counted = producers.applied(cursor, [batch.producer for batch in batches if batch.producer is not None])
    known = idempotency.known(cursor, [batch.key for batch in batches if batch.key is not None])

    def answer() -> tuple[dict[int, TableNow], dict[Producer, int], set[UUID]]:
        return {row[0]: TableNow(cursor, *row[:5]) for row in asked.fetchall()}, counted(), known()

    return answer
