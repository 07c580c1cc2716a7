"""PURE. A table's columns at one schema version, with readers, encoders and checks of their values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import compress
from typing import TYPE_CHECKING, Any, TypeAlias

from duckicelake.bridge.values.types import INTEGER_LIMITS, is_cut_by_duckdb
from duckicelake.extras import DeferredModule
from duckicelake.iceberg.types import ListType, PrimitiveType, StructType
from duckicelake.rows.columns import TICKS, RowColumn, is_storable, select_stored, to_arrow_type
from duckicelake.rows.inlined_values import Encoder, make_encoder
from duckicelake.rows.json_columns import JsonColumn
from duckicelake.rows.json_values import COARSE, check_json_text, check_time_range
from duckicelake.rows.limits import can_widen, count_column_values
from duckicelake.rows.problems import MisfitError, OnUnknown

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = DeferredModule("pyarrow")


Check: TypeAlias = Callable[[Any], None]
"""Checks a value that isn't null; MisfitError."""


def make_check(column: RowColumn) -> Check | None:
    """Make the check of a column's values, nested ones too; None if all are valid."""
    if isinstance(column.type, PrimitiveType):
        return _make_primitive_check(column, column.type)
    parts = [_make_nullable_check(child) for child in select_stored(column.children)]
    if isinstance(column.type, StructType):
        names = [child.name for child in select_stored(column.children)]
        return _make_struct_check(names, parts) if any(parts) else None
    if isinstance(column.type, ListType):
        return _make_list_check(parts[0]) if parts[0] else None
    return _make_map_check(parts[1])


def _make_nullable_check(column: RowColumn) -> Check | None:
    """Make the check of values that may be null if the column is optional."""
    check, required = make_check(column), column.required
    if check is None and not required:
        return None

    def check_value(value: Any) -> None:
        if value is not None:
            if check:
                check(value)
        elif required:
            raise MisfitError(None, "the field is required")

    return check_value


def _make_primitive_check(column: RowColumn, kind: PrimitiveType) -> Check | None:
    if column.declared in INTEGER_LIMITS:
        return _make_range_check(*INTEGER_LIMITS[column.declared])
    if column.declared in COARSE:
        return _make_integer_check(column.declared, kind)
    if column.declared == "json":
        return check_json_text
    return (lambda value: check_time_range(kind, value, value)) if kind.name in TICKS else None


def _make_range_check(least: int, most: int) -> Check:
    def check(value: Any) -> None:
        if not least <= value <= most:
            raise MisfitError(value, f"the column holds whole numbers from {least} to {most}")

    return check


def _make_integer_check(declared: str, kind: PrimitiveType) -> Check:
    def check(value: int) -> None:
        check_time_range(kind, value, value)
        if value % COARSE[declared]:
            raise MisfitError(value, f"the column is a {declared}, which can't say these microseconds")

    return check


def _make_struct_check(names: Sequence[str], parts: Sequence[Check | None]) -> Check:
    def check(values: Sequence[Any]) -> None:
        for name, part, value in zip(names, parts, values, strict=True):
            if part:
                _check_inside(f".{name}", part, value)

    return check


def _make_list_check(part: Check) -> Check:
    def check(values: Sequence[Any]) -> None:
        for index, value in enumerate(values):
            _check_inside(f"[{index}]", part, value)

    return check


def _make_map_check(part: Check | None) -> Check:
    def check(pairs: Sequence[tuple[Any, Any]]) -> None:
        keys = [key for key, _ in pairs]
        if len(set(map(repr, keys))) < len(keys):
            raise MisfitError(keys, "a key comes twice")
        for key, value in pairs:
            if part:
                _check_inside(f"[{key!r}]", part, value)

    return check


def _check_inside(where: str, check: Check, value: Any) -> None:
    try:
        check(value)
    except MisfitError as misfit:
        raise misfit.prepend_path(where) from misfit


class Layout:
    """The columns of a table at one schema version, and what reads and writes their values.

    It is slow to make. Threads may share it.
    """

    def __init__(self, columns: Sequence[RowColumn]) -> None:
        self.columns = tuple(columns)
        self.is_stored = list(map(is_storable, columns))
        self.stored = tuple(compress(columns, self.is_stored))
        """The columns that can have values. Others are null in every row, and neither inlined nor in files."""
        self.arrow_schema = pa.schema([pa.field(column.name, to_arrow_type(column)) for column in self.stored])
        self.encoders: list[Encoder] = list(map(make_encoder, self.stored))
        self.checks: list[Check | None] = list(map(make_check, self.stored))
        """Checks of the stored columns' values that came as Arrow."""
        self.width = sum(map(count_column_values, columns))
        """The number of values of a row, null or not, without those inside lists and maps."""
        self.nested = [column for column in columns if column.children]
        self.widening = list(filter(can_widen, columns))
        self._json: dict[OnUnknown, dict[str, JsonColumn]] = {}

    @cached_property
    def obstacle(self) -> str | None:
        """Why no row of the table can be inlined, so that every batch becomes a file; None if rows can.

        It considers the columns' types. For their names, `InsertTarget.limit` is 0.
        """
        return next(filter(None, map(_find_obstacle, self.columns)), None)

    @cached_property
    def exact_numbers(self) -> bool:
        """Whether a column holds decimals, so that JSON numbers must not become floats."""
        return any(map(_has_decimal, self.stored))

    def json_columns(self, on_unknown: OnUnknown) -> dict[str, JsonColumn]:
        """Make the readers of JSON values of all columns, by name."""
        if on_unknown not in self._json:
            self._json[on_unknown] = {column.name: JsonColumn(column, on_unknown) for column in self.columns}
        return self._json[on_unknown]


def _has_decimal(column: RowColumn) -> bool:
    return str(column.type).startswith("decimal") or any(map(_has_decimal, column.children))


def _find_obstacle(column: RowColumn) -> str | None:
    if not column.children and not is_storable(column) and column.declared != "unknown":
        return f"DuckLake inlines no rows of a table with a column of type {column.type}"
    if isinstance(column.type, PrimitiveType) and is_cut_by_duckdb(column.type):
        return f"DuckDB keeps microseconds of column {column.name}, a {column.type}, in rows, but not in files"
    if isinstance(column.type, ListType) and column.children[0].declared == "json":
        return f"DuckDB can't read lists of JSON that are inlined, as in column {column.name}"
    return next(filter(None, map(_find_obstacle, column.children)), None)
