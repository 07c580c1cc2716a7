"""PURE. SQL that stands in for a view that can't be translated to an engine's dialect."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

_UNSAFE = str.maketrans("'\\", "  ")
"""Engines escape these in different ways."""
_TYPES: Mapping[str, str] = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "date": "DATE",
}
"""Types that most engines call the same."""


@dataclass(frozen=True, slots=True)
class SqlEngine:
    """An engine's SQL for errors, identifiers and types. Types that it lacks are `text`.

    failing: the condition that an error is evaluated for.
    """

    name: str
    raising: str
    quote: str
    text: str
    types: Mapping[str, str]
    array: str
    map: str
    struct: str
    member: str
    failing: str = "{} IS NULL"


DUCKDB = SqlEngine(
    name="DuckDB",
    raising="error",
    quote='"',
    text="VARCHAR",
    types={
        **_TYPES,
        "time": "TIME",
        "timestamp": "TIMESTAMP",
        "timestamptz": "TIMESTAMPTZ",
        "timestamp_ns": "TIMESTAMP_NS",
        "timestamptz_ns": "TIMESTAMPTZ",
        "uuid": "UUID",
        "fixed": "BLOB",
        "binary": "BLOB",
    },
    array="{}[]",
    map="MAP({}, {})",
    struct="STRUCT({})",
    member="{} {}",
)
SPARK = SqlEngine(
    name="Spark",
    raising="raise_error",
    quote="`",
    text="STRING",
    types={
        **_TYPES,
        "timestamp": "TIMESTAMP_NTZ",
        "timestamptz": "TIMESTAMP",
        "timestamp_ns": "TIMESTAMP_NTZ",
        "timestamptz_ns": "TIMESTAMP",
        "fixed": "BINARY",
        "binary": "BINARY",
    },
    array="ARRAY<{}>",
    map="MAP<{}, {}>",
    struct="STRUCT<{}>",
    member="{}: {}",
)
TRINO = SqlEngine(
    name="Trino",
    raising="fail",
    quote='"',
    text="VARCHAR",
    types={
        **_TYPES,
        "float": "REAL",
        "time": "TIME(6)",
        "timestamp": "TIMESTAMP(6)",
        "timestamptz": "TIMESTAMP(6) WITH TIME ZONE",
        "timestamp_ns": "TIMESTAMP(9)",
        "timestamptz_ns": "TIMESTAMP(9) WITH TIME ZONE",
        "uuid": "UUID",
        "fixed": "VARBINARY",
        "binary": "VARBINARY",
    },
    array="ARRAY({})",
    map="MAP({}, {})",
    struct="ROW({})",
    member="{} {}",
    failing="CAST({} AS BOOLEAN) IS NULL",  # Trino plans no condition on an error that has no type
)
ENGINES: Mapping[str, SqlEngine] = {engine.name: engine for engine in (DUCKDB, SPARK, TRINO)}


def build_placeholder(engine: SqlEngine, schema: Schema, dialects: Sequence[str], obstacle: str = "") -> str:
    """Build an engine's query for a view that has these columns, and is written in these dialects.

    It fails with a message when it runs. obstacle: the construct that can't be translated.

    It needs its condition: otherwise count(*) would be 1. Its columns aren't constants: otherwise a filter on them
    might be pruned to no rows.
    """
    has = f"only for {', '.join(dialects)}" if dialects else "nor for any other engine"
    message = f"This view has no SQL for {engine.name}, {has}: replace it by a version that has the dialect"
    if obstacle:
        message += f", or by one without what can not be carried over: {obstacle}"
    error = f"{engine.raising}('{message.translate(_UNSAFE)}')"
    columns = [
        f"CAST({error} AS {format_type_name(engine, field.type)}) AS {_quote_field(engine, field)}"
        for field in schema.fields
    ]
    return f"SELECT {', '.join(columns) or error} WHERE {engine.failing.format(error)}"


def cast_query(engine: SqlEngine, query: str, schema: Schema) -> str:
    """Cast a query's columns, by place, to the schema's names and types."""
    names = [_quote_field(engine, field) for field in schema.fields]
    kinds = [format_type_name(engine, field.type) for field in schema.fields]
    columns = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in zip(names, kinds, strict=True))
    return f"SELECT {columns} FROM ({query}) AS {engine.quote}view{engine.quote}({', '.join(names)})"


def format_type_name(engine: SqlEngine, kind: IcebergType) -> str:
    match kind:
        case StructType():
            members = (
                engine.member.format(_quote_field(engine, field), format_type_name(engine, field.type))
                for field in kind.fields
            )
            return engine.struct.format(", ".join(members))
        case ListType():
            return engine.array.format(format_type_name(engine, kind.element))
        case MapType():
            return engine.map.format(format_type_name(engine, kind.key), format_type_name(engine, kind.value))
        case PrimitiveType(name="decimal"):
            return f"DECIMAL({kind.precision}, {kind.scale})"
        case _:
            return engine.types.get(kind.name, engine.text)


def _quote_field(engine: SqlEngine, field: NestedField) -> str:
    return engine.quote + field.name.replace(engine.quote, engine.quote * 2) + engine.quote
