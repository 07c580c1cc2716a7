"""PURE. A data file's statistics as a Delta log has them (protocol, "Per-file Statistics").

They say `tightBounds: false`: bounds that rows reach or not, as deletes leave them, and as Iceberg's may be cut.
"""

import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import orjson

from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import NestedField, PrimitiveType, StructType
from duckicelake.iceberg.values import from_bytes
from duckicelake.lake.state import FileRow

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_BOUNDED: Final = frozenset(("int", "long", "float", "double", "decimal", "date", "timestamp", "timestamptz", "string"))
Json = dict[str, Any]


def stats_text(file: FileRow, schema: Schema, physical: Mapping[int, str]) -> str:
    """The text of an `add`'s `stats`; names are those in the files."""
    columns = schema.fields
    values = {
        "numRecords": file.record_count,
        "minValues": _nested(columns, physical, lambda field: _bound(file, field, "lower_bounds")),
        "maxValues": _nested(columns, physical, lambda field: _bound(file, field, "upper_bounds")),
        "nullCount": _nested(columns, physical, lambda field: _nulls(file, field)),
        "tightBounds": False,
    }
    return orjson.dumps({name: value for name, value in values.items() if value != {}}).decode()


def _nested(
    fields: tuple[NestedField, ...], physical: Mapping[int, str], value_of: Callable[[NestedField], Any]
) -> Json:
    """Values of the columns and of what is in structs; those of lists and maps are none of Delta's."""
    found: Json = {}
    for field in fields:
        kind = field.type
        value = None
        if isinstance(kind, StructType):
            value = _nested(kind.fields, physical, value_of) or None
        elif isinstance(kind, PrimitiveType):
            value = value_of(field)
        if value is not None:
            found[physical.get(field.id, field.name)] = value
    return found


def _nulls(file: FileRow, field: NestedField) -> int | None:
    count: int | None = (file.metrics.get("null_value_counts") or {}).get(str(field.id))
    return count


def _bound(file: FileRow, field: NestedField, which: str) -> Any:
    text = (file.metrics.get(which) or {}).get(str(field.id))
    assert isinstance(field.type, PrimitiveType)
    if text is None or field.type.name not in _BOUNDED:
        return None
    if field.type.name in {"float", "double"} and _may_have_nans(file, field):
        return None
    try:
        return _json(field.type, from_bytes(field.type, bytes.fromhex(text)))
    except (InvalidRequest, OverflowError, ValueError):
        return None


def _may_have_nans(file: FileRow, field: NestedField) -> bool:
    """For Delta's readers NaN is the greatest of all, in bounds, too."""
    return (file.metrics.get("nan_value_counts") or {}).get(str(field.id)) != 0


def _json(kind: PrimitiveType, value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return orjson.Fragment(format(value, "f"))
    if kind.name == "date":
        return date.fromordinal(value + _EPOCH.toordinal()).isoformat()
    if kind.name in {"timestamp", "timestamptz"}:
        at = (_EPOCH + timedelta(microseconds=value)).isoformat(timespec="microseconds").removesuffix("+00:00")
        return at + ("Z" if kind.name == "timestamptz" else "")
    return value
