"""PURE. Write by what DuckDB sorts the rows of a rewrite: a policy's order, a z-order, or the table's own."""

from collections.abc import Sequence
from typing import Final

from duckicelake.bridge.values.types import quote_identifier
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.sort import SortOrder
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.maintenance.layout import RowOrder
from duckicelake.rewrites.selection import RewriteGroup
from duckicelake.rewrites.source import RewrittenTable, write_rows

_CELLS: Final = 256
"""Of each column of a z-order: so many ranges of about as many rows each."""
_SAMPLE_ROWS: Final = 100_000


def has_order(metadata: TableMetadata, order: RowOrder) -> bool:
    """Return whether rows of a table can be in an order: it has the columns, with single values."""
    return {key.part.name.lower() for key in order.keys} <= _list_sortable(metadata).keys()


def write_order(table: RewrittenTable, group: RewriteGroup, order: RowOrder | None) -> tuple[list[str], str | None]:
    """Return (statements to run before, what to sort by): the order, else the table's own."""
    if order is None:
        return [], _write_own_order(table.metadata)
    columns = [_find_column(table.metadata, key.part.name) for key in order.keys]
    if order.is_zorder:
        return _write_zorder(table, group, columns)
    keys = []
    for key, column in zip(order.keys, columns, strict=True):
        nulls = "NULLS FIRST" if key.nulls_first else "NULLS LAST"
        keys.append(f"t.{column} {'DESC' if key.descending else 'ASC'} {nulls}")
    return [], ", ".join(keys)


def _write_own_order(metadata: TableMetadata) -> str | None:
    order: SortOrder = metadata.sort_order()
    names = {column.id: quote_identifier(column.name) for column in metadata.schema().fields}
    keys = []
    for part in order.fields:
        if str(part.transform) != "identity" or part.source_id not in names:
            return None
        nulls = part.null_order.replace("-", " ").upper()
        keys.append(f"t.{names[part.source_id]} {part.direction.upper()} {nulls}")
    return ", ".join(keys) or None


def _write_zorder(table: RewrittenTable, group: RewriteGroup, columns: Sequence[str]) -> tuple[list[str], str]:
    """Number the ranges of each column by a sample, and mix the bits of the numbers."""
    shares = ", ".join(str(number / _CELLS) for number in range(1, _CELLS))
    cuts = ", ".join(f"quantile_disc({column}, [{shares}]) AS cuts{at}" for at, column in enumerate(columns))
    sampled = f"SELECT * FROM {write_rows(table, group)} USING SAMPLE {_SAMPLE_ROWS} ROWS"
    before = [f"CREATE OR REPLACE TEMP TABLE cuts AS SELECT {cuts} FROM ({sampled})"]
    cells = [
        f"len(list_filter((SELECT cuts{at} FROM cuts), lambda cut: cut <= t.{column}))"
        for at, column in enumerate(columns)
    ]
    bits = _CELLS.bit_length() - 1
    mixed = [
        f"((coalesce({cell}, 0) >> {bit}) & 1) << {bit * len(cells) + at}"
        for bit in range(bits)
        for at, cell in enumerate(cells)
    ]
    return before, f"({' | '.join(f'({one})' for one in mixed)})"


def _find_column(metadata: TableMetadata, name: str) -> str:
    """Return a column as SQL has it; InvalidRequestError for one that rows can't be ordered by."""
    found = _list_sortable(metadata).get(name.lower())
    if found is None:
        raise InvalidRequestError(
            f"The order names {name}, which is no column of the table with single values: change maintenance.sort.order"
        )
    return quote_identifier(found)


def _list_sortable(metadata: TableMetadata) -> dict[str, str]:
    columns = metadata.schema().fields
    return {column.name.lower(): column.name for column in columns if isinstance(column.type, PrimitiveType)}
