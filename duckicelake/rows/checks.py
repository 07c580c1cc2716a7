"""PURE. What a column asks of its values that their Arrow type doesn't say, on values in memory."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from duckicelake.bridge.narrow import LIMITS
from duckicelake.iceberg.types import ListType, PrimitiveType, StructType
from duckicelake.rows.columns import RowColumn
from duckicelake.rows.json_values import COARSE, check_json, check_range
from duckicelake.rows.kinds import TICKS, stored
from duckicelake.rows.problems import MisfitError

Check: TypeAlias = Callable[[Any], None]
"""Of a value that isn't null; MisfitError."""


def check_of(column: RowColumn) -> Check | None:
    """What checks a column's values, those inside them too; None if all are right."""
    if isinstance(column.type, PrimitiveType):
        return _primitive(column, column.type)
    parts = [_nullable(child) for child in stored(column.children)]
    if isinstance(column.type, StructType):
        names = [child.name for child in stored(column.children)]
        return _struct(names, parts) if any(parts) else None
    if isinstance(column.type, ListType):
        return _list(parts[0]) if parts[0] else None
    return _map(parts[1])


def _nullable(column: RowColumn) -> Check | None:
    """The same for values that may be null, if the column is not required."""
    check, required = check_of(column), column.required
    if check is None and not required:
        return None

    def checked(value: Any) -> None:
        if value is not None:
            if check:
                check(value)
        elif required:
            raise MisfitError(None, "the field is required")

    return checked


def _primitive(column: RowColumn, kind: PrimitiveType) -> Check | None:
    if column.declared in LIMITS:
        return _within(*LIMITS[column.declared])
    if column.declared in COARSE:
        return _whole(column.declared, kind)
    if column.declared == "json":
        return check_json
    return (lambda value: check_range(kind, value, value)) if kind.name in TICKS else None


def _within(least: int, most: int) -> Check:
    def check(value: Any) -> None:
        if not least <= value <= most:
            raise MisfitError(value, f"the column holds whole numbers from {least} to {most}")

    return check


def _whole(declared: str, kind: PrimitiveType) -> Check:
    def check(value: int) -> None:
        check_range(kind, value, value)
        if value % COARSE[declared]:
            raise MisfitError(value, f"the column is a {declared}, which can't say these microseconds")

    return check


def _struct(names: Sequence[str], parts: Sequence[Check | None]) -> Check:
    def check(values: Sequence[Any]) -> None:
        for name, part, value in zip(names, parts, values, strict=True):
            if part:
                _inside(f".{name}", part, value)

    return check


def _list(part: Check) -> Check:
    def check(values: Sequence[Any]) -> None:
        for index, value in enumerate(values):
            _inside(f"[{index}]", part, value)

    return check


def _map(part: Check | None) -> Check:
    def check(pairs: Sequence[tuple[Any, Any]]) -> None:
        keys = [key for key, _ in pairs]
        if len(set(map(repr, keys))) < len(keys):
            raise MisfitError(keys, "a key comes twice")
        for key, value in pairs:
            if part:
                _inside(f"[{key!r}]", part, value)

    return check


def _inside(where: str, check: Check, value: Any) -> None:
    try:
        check(value)
    except MisfitError as misfit:
        raise misfit.within(where) from misfit
