"""PURE. SQL that stands in for a view's query in an engine whose dialect it isn't written in.

The engine lists the view and knows its columns; whatever is asked of the rows fails and says why. Running the SQL of
another dialect instead would be wrong without a word: to Spark, DuckDB's identifier "name" is a string, ^ is xor, and
log() has another base.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

_UNSAFE = str.maketrans("'\\", "  ")
"""Engines escape these in different ways."""


@dataclass(frozen=True, slots=True)
class Engine:
    """How an engine raises an error, quotes identifiers and spells types; types that it lacks are `text`."""

    name: str
    raising: str
    quote: str
    text: str
    types: Mapping[str, str]
    array: str
    map: str
    struct: str
    member: str


DUCKDB = Engine(
    name="DuckDB",
    raising="error",
    quote='"',
    text="VARCHAR",
    types={
        "boolean": "BOOLEAN",
        "int": "INTEGER",
        "long": "BIGINT",
        "float": "FLOAT",
        "double": "DOUBLE",
        "date": "DATE",
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
SPARK = Engine(
    name="Spark",
    raising="raise_error",
    quote="`",
    text="STRING",
    types={
        "boolean": "BOOLEAN",
        "int": "INT",
        "long": "BIGINT",
        "float": "FLOAT",
        "double": "DOUBLE",
        "date": "DATE",
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


def placeholder(engine: Engine, schema: Schema, dialects: Sequence[str]) -> str:
    """The engine's stand-in for a view that has these columns and is written in these dialects.

    Without the condition count(*) would be 1; with constants as columns a filter on them might be pruned to no rows.
    """
    has = f"only for {', '.join(dialects)}" if dialects else "nor for any other engine"
    message = f"This view has no SQL for {engine.name}, {has}: replace it by a version that has the dialect"
    error = f"{engine.raising}('{message.translate(_UNSAFE)}')"
    columns = [f"CAST({error} AS {_type(engine, field.type)}) AS {_quoted(engine, field)}" for field in schema.fields]
    return f"SELECT {', '.join(columns) or error} WHERE {error} IS NULL"


def _type(engine: Engine, kind: IcebergType) -> str:
    match kind:
        case StructType():
            members = (engine.member.format(_quoted(engine, each), _type(engine, each.type)) for each in kind.fields)
            return engine.struct.format(", ".join(members))
        case ListType():
            return engine.array.format(_type(engine, kind.element))
        case MapType():
            return engine.map.format(_type(engine, kind.key), _type(engine, kind.value))
        case PrimitiveType(name="decimal"):
            return f"DECIMAL({kind.precision}, {kind.scale})"
        case _:
            return engine.types.get(kind.name, engine.text)


def _quoted(engine: Engine, field: NestedField) -> str:
    return engine.quote + field.name.replace(engine.quote, engine.quote * 2) + engine.quote
