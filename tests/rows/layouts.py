"""Tables as rows come into them, made from Iceberg's types as JSON."""

from dataclasses import replace
from itertools import count
from typing import Any

import pyarrow as pa

from duckicelake.bridge.values.columns import to_columns
from duckicelake.iceberg.schema import Schema
from duckicelake.rows.columns import build_row_columns
from duckicelake.rows.layout import Layout

JSON = "application/json"
NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
_ids = count(10**6, -1)
"""What is inside is made first, and needs the higher ids."""


def schema_of(*fields: dict[str, Any]) -> Schema:
    """Fields without an id are numbered from 1; those that don't say so aren't required."""
    numbered = [{"id": number, "required": False} | field for number, field in enumerate(fields, start=1)]
    return Schema.model_validate({"type": "struct", "schema-id": 0, "fields": numbered})


def layout_of(*fields: dict[str, Any]) -> Layout:
    schema = schema_of(*fields)
    return Layout(build_row_columns(schema, to_columns(schema)))


def column(kind: Any, **more: Any) -> Layout:
    """A table of one column `a`."""
    return layout_of({"name": "a", "type": kind} | more)


def narrow(kind: str, declared: str) -> Layout:
    """A table of one column `a` that DuckDB declared narrower than Iceberg knows it."""
    return Layout([replace(column(kind).columns[0], declared=declared)])


def list_of(element: Any, required: bool = False) -> dict[str, Any]:
    return {"type": "list", "element-id": next(_ids), "element": element, "element-required": required}


def map_of(key: Any, value: Any, required: bool = False) -> dict[str, Any]:
    return {
        "type": "map",
        "key-id": next(_ids),
        "key": key,
        "value-id": next(_ids),
        "value": value,
        "value-required": required,
    }


def struct_of(**fields: Any) -> dict[str, Any]:
    """A struct; a type in a tuple is required."""
    return {
        "type": "struct",
        "fields": [
            {"id": next(_ids), "name": name, "required": type(kind) is tuple}
            | {"type": kind[0] if type(kind) is tuple else kind}
            for name, kind in fields.items()
        ],
    }


def ipc(table: pa.Table, compression: str | None = None, chunk: int | None = None) -> bytes:
    """A table as an IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=chunk)
    return bytes(sink.getvalue())
