"""PURE. Statistics that a checkpoint has as columns (`stats_parsed`), as the JSON that commits have them in."""

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import orjson
import pyarrow.parquet as pq

from duckicelake.delta.actions import AddFile

_COLUMN = "stats_parsed"


def with_parsed_stats(file: pq.ParquetFile, adds: Sequence[AddFile]) -> list[AddFile]:
    """The adds of a checkpoint's file, those without `stats` with what the columns say, where it has them."""
    if "add" not in file.schema_arrow.names or _COLUMN not in file.schema_arrow.field("add").type.names:
        return list(adds)
    found: list[AddFile] = []
    for batch in file.iter_batches(columns=["add.path", f"add.{_COLUMN}"]):
        column = batch.column("add").drop_null()
        parsed = column.flatten()[column.type.get_field_index(_COLUMN)]
        these = adds[len(found) : len(found) + len(column)]
        found += [_with(add, row) for add, row in zip(these, parsed.to_pylist(), strict=True)]
    return found


def _with(add: AddFile, row: dict[str, Any] | None) -> AddFile:
    return add if add.stats is not None or row is None else add._replace(stats=stats_text(row))


def stats_text(row: dict[str, Any]) -> str:
    """Statistics as JSON: nulls left out, dates and times as ISO 8601, decimals as numbers of as many digits."""
    return orjson.dumps(_struct(row)).decode()


def _struct(row: dict[str, Any]) -> dict[str, Any]:
    return {name: _value(value) for name, value in row.items() if value is not None}


def _value(value: Any) -> Any:
    match value:
        case dict():
            return _struct(value)
        case datetime():
            return _moment(value)
        case date():
            return value.isoformat()
        case Decimal():
            return orjson.Fragment(f"{value:f}")
        case float() if not math.isfinite(value):
            return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
        case _:
            return value


def _moment(value: datetime) -> str:
    digits = "microseconds" if value.microsecond % 1000 else "milliseconds"
    if value.tzinfo is None:
        return value.isoformat(timespec=digits)
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=digits) + "Z"
