"""PURE. What is known of a table's rows before any come."""

from collections.abc import Sequence
from functools import cached_property
from itertools import compress
from typing import Final

import pyarrow as pa

from duckicelake.iceberg.types import ListType
from duckicelake.lake.model import folded
from duckicelake.rows.bounds import widens, width
from duckicelake.rows.checks import Check, check_of
from duckicelake.rows.columns import RowColumn
from duckicelake.rows.encoding import Encoder, encoder
from duckicelake.rows.json_columns import JsonColumn
from duckicelake.rows.kinds import arrow_type, is_storable
from duckicelake.rows.problems import OnUnknown

_RESERVED: Final = frozenset({"row_id", "begin_snapshot", "end_snapshot"})
_LONGEST_NAME: Final = 63
"""Bytes of a Postgres identifier."""


class Layout:
    """The columns of a table at one schema version, and what reads and writes their values.

    It is dear to make and free to use again, by any number of threads.
    """

    def __init__(self, columns: Sequence[RowColumn]) -> None:
        self.columns = tuple(columns)
        self.is_stored = list(map(is_storable, columns))
        self.stored = tuple(compress(columns, self.is_stored))
        """The columns that rows have values in; the others are null in every row, and neither inlined nor in files."""
        self.arrow_schema = pa.schema([pa.field(column.name, arrow_type(column)) for column in self.stored])
        self.encoders: list[Encoder] = list(map(encoder, self.stored))
        self.checks: list[Check | None] = list(map(check_of, self.stored))
        """What checks the values of the stored columns that came as Arrow."""
        self.width = sum(map(width, columns))
        """The values of a row, null or not, but for those inside lists and maps."""
        self.nested = [column for column in columns if column.children]
        self.widening = list(filter(widens, columns))
        self._json: dict[OnUnknown, dict[str, JsonColumn]] = {}

    @cached_property
    def obstacle(self) -> str | None:
        """Why no row of the table can be inlined, so that every batch becomes a file; None if they can."""
        return next(filter(None, map(_obstacle, self.columns)), None)

    @cached_property
    def exact_numbers(self) -> bool:
        """Whether there is a decimal somewhere, so that numbers must not become floats on their way."""
        return any(map(_has_decimal, self.stored))

    def json_columns(self, on_unknown: OnUnknown) -> dict[str, JsonColumn]:
        """What reads JSON values of all columns, by name."""
        if on_unknown not in self._json:
            self._json[on_unknown] = {column.name: JsonColumn(column, on_unknown) for column in self.columns}
        return self._json[on_unknown]


def _has_decimal(column: RowColumn) -> bool:
    return str(column.type).startswith("decimal") or any(map(_has_decimal, column.children))


def _obstacle(column: RowColumn) -> str | None:
    if folded(column.name) in _RESERVED or len(column.name.encode()) > _LONGEST_NAME:
        return f"DuckLake inlines no rows of a table with a column named {column.name}"
    return _obstacle_inside(column)


def _obstacle_inside(column: RowColumn) -> str | None:
    if not column.children and not is_storable(column) and column.declared != "unknown":
        return f"DuckLake inlines no rows of a table with a column of type {column.type}"
    if str(column.type) == "timestamptz_ns":
        return f"DuckDB keeps microseconds of column {column.name}, a timestamptz_ns, in rows, but not in files"
    if isinstance(column.type, ListType) and column.children[0].declared == "json":
        return f"DuckDB can't read lists of JSON that are inlined, as in column {column.name}"
    return next(filter(None, map(_obstacle_inside, column.children)), None)
