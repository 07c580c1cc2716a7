"""Live data files that a task couldn't read, as rows of `duckicelake_unreadable_file`."""

from collections.abc import Sequence
from typing import Final

from duckicelake.postgres.queries import Transaction, load_queries

_SQL = load_queries("lake", "unreadable_files")
_NOTED_DAYS: Final = 1
"""For which a note holds: a task that ended is planned again after as long, whatever its table does."""


def note_unreadable(cursor: Transaction, data_file_ids: Sequence[int]) -> None:
    """Note that live data files can't be read, and forget notes that hold no more."""
    cursor.execute(_SQL.forget, {"days": _NOTED_DAYS})
    cursor.execute(_SQL.note, {"data_file_ids": list(data_file_ids)})


def read_unreadable(cursor: Transaction, table_ids: Sequence[int]) -> dict[int, list[int]]:
    """Read the ids of live data files of some tables that are noted, by table."""
    parameters = {"table_ids": list(table_ids), "days": _NOTED_DAYS}
    return dict(cursor.execute(_SQL.unreadable, parameters).fetchall())
