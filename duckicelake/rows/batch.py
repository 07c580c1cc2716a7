"""PURE. Rows that fit a table: what reading makes, and everything else here takes."""

from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import Any, Final

import pyarrow as pa

from duckicelake.errors import InvalidRequest
from duckicelake.rows.encoding import Encoded
from duckicelake.rows.kinds import values_of
from duckicelake.rows.layout import Layout

MAX_ROWS: Final = 1 << 20
MAX_VALUES: Final = 1 << 25
"""Nulls and defaults included, which take no bytes in a request and eight or more in memory."""


def check_count(rows: int, layout: Layout) -> None:
    """InvalidRequest for more rows than a batch takes."""
    most = min(MAX_ROWS, MAX_VALUES // layout.width)
    if rows > most:
        raise InvalidRequest(f"A batch takes up to {most} rows of this table, not {rows}: send several")


class Batch:
    """Rows that were found to fit a layout; read as JSON they have values first, as Arrow a table."""

    def __init__(
        self, layout: Layout, num_rows: int, values: list[list[Any]] | None = None, table: pa.Table | None = None
    ) -> None:
        self.layout = layout
        self.num_rows = num_rows
        self._table = table
        self._values: list[list[Any] | None] = [*values] if values is not None else [None] * len(layout.stored)
        self._encoded: dict[int, list[Encoded]] = {}

    def column(self, index: int) -> list[Any]:
        """The values in memory (see `kinds`) of one of the stored columns."""
        values = self._values[index]
        if values is None:
            assert self._table is not None
            column = self.layout.stored[index]
            values = [value for chunk in self._table.column(index).chunks for value in values_of(chunk, column)]
            self._values[index] = values
        return values

    @property
    def values(self) -> list[list[Any]]:
        """Those of all stored columns."""
        return list(map(self.column, range(len(self._values))))

    @cached_property
    def table(self) -> pa.Table:
        """The stored columns with the layout's Arrow schema."""
        if self._table is not None:
            return self._table
        schema = self.layout.arrow_schema
        arrays = [pa.array(each, kind) for each, kind in zip(self.values, schema.types, strict=True)]
        return pa.Table.from_arrays(arrays, schema=schema)

    def encoded(self, index: int) -> list[Encoded]:
        """The values of one of the stored columns as Postgres holds them inlined (see `encoding`)."""
        if index not in self._encoded:
            self._encoded[index] = self.layout.encoders[index](self.column(index))
        return self._encoded[index]


def joined(batches: Sequence[Batch]) -> Batch:
    """The rows of batches of one layout, in their order."""
    first = batches[0]
    if len(batches) == 1:
        return first
    values = [list(chain.from_iterable(parts)) for parts in zip(*(batch.values for batch in batches), strict=True)]
    return Batch(first.layout, sum(batch.num_rows for batch in batches), values=values)
