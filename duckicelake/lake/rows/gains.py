"""What tables get by rows: how many they have then, and statistics that are true of all of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from psycopg import Cursor

from duckicelake.lake.changes import TableStats
from duckicelake.lake.model import ColumnStats, Extent
from duckicelake.lake.postgres.database import Row
from duckicelake.lake.postgres.documents import document
from duckicelake.lake.postgres.queries import queries
from duckicelake.lake.rows.batches import RowBatch
from duckicelake.lake.rows.tables import TableNow
from duckicelake.lake.writing import files

_SQL = queries("rows")


@dataclass(frozen=True)
class Gain:
    """What a table gets. stats: exact ones of each part of the rows."""

    state: TableNow
    batches: Sequence[RowBatch]
    stats: Sequence[Sequence[ColumnStats | Extent]]

    @property
    def rows(self) -> int:
        return sum(batch.count for batch in self.batches)

    @property
    def size(self) -> int:
        """Bytes of the files."""
        return sum(file.file_size_bytes for batch in self.batches for file in batch.files)

    @cached_property
    def widened(self) -> dict[int, ColumnStats | None]:
        """The table's statistics then."""
        return self.batches[0].widen(self.state.stats, self.stats)

    @property
    def after(self) -> TableNow:
        """What the table is then."""
        return self.state.after(self.rows, self.size, self.widened)


def write_gains(cursor: Cursor[Row], gains: Sequence[Gain]) -> None:
    """Write what the tables' counts and statistics are then."""
    for gain in gains:
        if not gain.state.has_rows:
            stats = TableStats(gain.rows, gain.rows, gain.size, gain.widened)
            files.write_stats(cursor, gain.state.table_id, stats)
    known = [gain for gain in gains if gain.state.has_rows]
    if not known:
        return
    wider, unknown = _changed(known)
    tables = [{"table_id": each.state.table_id, "count": each.rows, "size": each.size} for each in known]
    parameters = {"tables": document(tables), "columns": document(wider)}
    cursor.execute(_SQL.count_rows, parameters)
    if unknown:
        table_ids, column_ids = zip(*unknown, strict=True)
        cursor.execute(_SQL.forget_columns, {"table_ids": list(table_ids), "column_ids": list(column_ids)})


def _changed(gains: Sequence[Gain]) -> tuple[list[dict[str, Any]], list[tuple[int, int]]]:
    """(the column statistics that have become wider, tables and columns of which none are known any more)."""
    wider: list[dict[str, Any]] = []
    unknown: list[tuple[int, int]] = []
    for gain in gains:
        state = gain.state
        assert state.stats is not None
        for column, row in gain.widened.items():
            if row is None:
                unknown.append((state.table_id, column))
            elif row is not state.stats[column]:
                wider.append({"table_id": state.table_id, "column_id": column, **_values(row)})
    return wider, unknown


def _values(row: ColumnStats) -> dict[str, bool | str | None]:
    return {
        "contains_null": row.contains_null,
        "contains_nan": row.contains_nan,
        "min_value": row.min_value,
        "max_value": row.max_value,
    }
