"""PURE. Columns of JSON values as columns of values in memory: nulls, defaults, nested values, and what is wrong."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, Final

from duckicelake.iceberg.primitives import TypeFamily
from duckicelake.iceberg.types import ListType, PrimitiveType, StructType
from duckicelake.rows.columns import RowColumn, is_storable
from duckicelake.rows.json_values import RANGES, Read, make_primitive_reader, to_float32
from duckicelake.rows.problems import (
    MAX_NAMED_ROWS,
    MISSING,
    MisfitError,
    OnUnknown,
    RowProblem,
    make_problem,
    render_value,
)

_AS_THEY_ARE: Final[Mapping[TypeFamily, type]] = {"boolean": bool, "integer": int, "float": float, "string": str}
"""Families whose JSON values are the values in memory, except for their range."""
_SINGLE_BYTES: Final = 4

_NUMBERS: Final = {float, int}


class JsonColumn:
    """Reads the values of one column. A column that can hold nothing accepts only nulls."""

    def __init__(self, column: RowColumn, on_unknown: OnUnknown) -> None:
        self.name = column.name
        self._read = _make_reader(column, on_unknown)
        self._default = _get_default(column)
        self._required = column.required
        traits = column.type.traits if isinstance(column.type, PrimitiveType) else None
        self._is_narrow = traits is not None and traits.family == "float" and traits.size == _SINGLE_BYTES
        is_plain = traits is not None and not self._is_narrow and column.declared != "json"
        plain = _AS_THEY_ARE.get(traits.family) if traits and is_plain else None
        self._plain = {plain} if column.required else {plain, type(None)}
        self._range = RANGES.get(column.declared)

    def read(self, value: Any) -> Any:
        """Read one value; MisfitError: it doesn't fit."""
        if value is None:
            if self._required:
                raise MisfitError(None, "the column is required")
            return None
        return self._default() if value is MISSING else self._read(value)

    def read_all(self, values: Sequence[Any], problems: list[RowProblem]) -> list[Any]:
        """Read the column's values of all rows. Problems are added to `problems`."""
        if self.takes(values):
            return list(values)
        if self._is_narrow and set(map(type, values)) <= _NUMBERS:
            with suppress(OverflowError):  # the value of one row; the loop below finds it
                return to_float32(values)
        read, found, most = [], 0, MAX_NAMED_ROWS
        for row, value in enumerate(values):
            try:
                read.append(self.read(value))
            except MisfitError as misfit:
                problems.append(make_problem(row, self.name, misfit))
                found += 1
                if found > most:
                    break
        return read

    def takes(self, values: Sequence[Any]) -> bool:
        """Return whether all values are valid as they are: most are, and this check takes a fraction of the time."""
        kinds = set(map(type, values))
        if not kinds <= self._plain:
            return False
        if self._range is None:
            return True
        numbers = values if type(None) not in kinds else [value for value in values if value is not None]
        return not numbers or (self._range[0] <= min(numbers) and max(numbers) <= self._range[1])


def describe_unknown_name(name: str, columns: Mapping[str, object]) -> str:
    """Describe an unknown name, with the column that was probably meant."""
    lowered = {column.lower(): column for column in columns}
    near = get_close_matches(name.lower(), lowered, n=1)
    return f"did you mean {lowered[near[0]]!r}?" if near else f"there are {', '.join(list(columns)[:20])}"


def _get_default(column: RowColumn) -> Callable[[], Any]:
    """Make a function that gives the value of a missing column."""
    if column.computed_default is not None:
        expression = column.computed_default
        return _make_missing_error(
            f"it isn't there, and only DuckDB computes the column's default {expression}: send a value"
        )
    if column.default is not None:
        read, default = _make_reader(column, "reject"), column.default
        return lambda: read(default)
    if column.required:
        return _make_missing_error("it isn't there, and the column is required and has no default")
    return lambda: None


def _make_missing_error(right: str) -> Callable[[], Any]:
    def raise_missing() -> Any:
        raise MisfitError(MISSING, right)

    return raise_missing


def _make_reader(column: RowColumn, on_unknown: OnUnknown) -> Read:
    if not is_storable(column):
        return _make_unstorable_reader(column)
    if isinstance(column.type, PrimitiveType):
        return make_primitive_reader(column)
    parts = [JsonColumn(child, on_unknown) for child in column.children]
    if isinstance(column.type, StructType):
        return _make_struct_reader(column, parts, on_unknown)
    return (
        _make_list_reader(parts[0])
        if isinstance(column.type, ListType)
        else _make_map_reader(column, parts[0], parts[1])
    )


def _make_unstorable_reader(column: RowColumn) -> Read:
    def read(value: Any) -> Any:
        raise MisfitError(value, f"no values of the column's type can be stored so: leave it out ({column.declared})")

    return read


def _make_struct_reader(column: RowColumn, parts: Sequence[JsonColumn], on_unknown: OnUnknown) -> Read:
    names = {part.name: part for part in parts}
    kept = [is_storable(child) for child in column.children]

    def read(value: Any) -> tuple[Any, ...]:
        if type(value) is not dict:
            raise MisfitError(value, f"write an object of {', '.join(names)}")
        if not value.keys() <= names.keys():
            check_names(value, names, on_unknown)
        values = [_read_within(f".{part.name}", part, value.get(part.name, MISSING)) for part in parts]
        return tuple(item for item, keep in zip(values, kept, strict=True) if keep)

    return read


def check_names(value: Mapping[str, Any], names: Mapping[str, object], on_unknown: OnUnknown) -> None:
    """Raise MisfitError for an unknown name, unless unknown names are ignored.

    A name that differs only in case is never ignored.
    """
    lowered = {name.lower() for name in names}
    for name in (element for element in value if element not in names):
        if on_unknown == "reject" or name.lower() in lowered:
            raise MisfitError(name, f"the table has no such column: {describe_unknown_name(name, names)}")


def _make_list_reader(element: JsonColumn) -> Read:
    def read(value: Any) -> list[Any]:
        if type(value) is not list:
            raise MisfitError(value, "write an array")
        if element.takes(value):
            return value
        return [_read_within(f"[{index}]", element, item) for index, item in enumerate(value)]

    return read


def _make_map_reader(column: RowColumn, key: JsonColumn, item: JsonColumn) -> Read:
    texts = str(column.children[0].type) == "string"
    right = "write {'keys': [...], 'values': [...]}, both as long" + (", or an object" if texts else "")

    def read(value: Any) -> list[tuple[Any, Any]]:
        if type(value) is not dict:
            raise MisfitError(value, right)
        keys, items = value.get("keys"), value.get("values")
        if not (len(value) == 2 and type(keys) is list and type(items) is list and len(keys) == len(items)):
            if not texts:
                raise MisfitError(value, right)
            keys, items = list(value), list(value.values())
        names = [_read_within(".key", key, map_key) for map_key in keys]
        if len(set(map(repr, names))) < len(names):
            raise MisfitError(keys, "a key comes twice")
        values = [
            _read_within(f"[{render_value(name)}]", item, map_value)
            for name, map_value in zip(keys, items, strict=True)
        ]
        return list(zip(names, values, strict=True))

    return read


def _read_within(part: str, column: JsonColumn, value: Any) -> Any:
    try:
        return column.read(value)
    except MisfitError as misfit:
        raise misfit.prepend_path(part) from misfit
