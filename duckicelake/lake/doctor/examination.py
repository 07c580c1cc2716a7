"""What the checks of a whole lake read: table-wide and file statistics side by side, and the files that it needs."""

from collections.abc import Iterator
from dataclasses import dataclass

from duckicelake.lake.model import ColumnStats
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lake.postgres.queries import queries

_SQL = queries("damage")


@dataclass(frozen=True, slots=True)
class ColumnOfTable:
    """A live primitive column with its row of table-wide statistics. is_repeated: it is in a list or map."""

    table_id: int
    name: str
    type: str
    is_repeated: bool
    stats: ColumnStats


@dataclass(frozen=True, slots=True)
class NeededFile:
    """A file that somebody reads: `kind` is data or delete for those of DuckLake, and listed for those of Iceberg's."""

    table_id: int
    table: str
    kind: str
    file_id: int | None
    path: str
    size: int | None


def table_wide_statistics(cursor: Transaction) -> Iterator[ColumnOfTable]:
    """Of all live tables."""
    for table_id, name, type_, is_repeated, *row in cursor.execute(_SQL.table_wide_statistics).fetchall():
        yield ColumnOfTable(table_id, name, type_, is_repeated, ColumnStats(*row))


def file_statistics(
    cursor: Transaction,
) -> dict[tuple[int, int], tuple[bool | None, bool | None, list[str], list[str]]]:
    """(Holds nulls, holds NaN, lower bounds, upper bounds) of the live files, by table and column id."""
    rows = cursor.execute(_SQL.file_statistics).fetchall()
    return {(table_id, column_id): (nulls, nans, lows, highs) for table_id, column_id, nulls, nans, lows, highs in rows}


def needed_files(cursor: Transaction, names: dict[int, str]) -> list[NeededFile]:
    """The files of the current state, then those that only listed Iceberg snapshots have; each path once."""
    live = cursor.execute(_SQL.live_files).fetchall()
    listed = cursor.execute(_SQL.listed_files).fetchall()
    rows = [*live, *((table_id, "listed", None, path, size) for table_id, path, size in listed)]
    return [NeededFile(table_id, names[table_id], *row) for table_id, *row in rows if table_id in names]
