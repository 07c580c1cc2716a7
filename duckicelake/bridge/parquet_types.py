"""PURE. DuckLake columns as DuckDB's types and field ids, with which inlined rows are written to Parquet.

Iceberg clients read these files, so there are no unsigned integers and no milliseconds in them.
"""

from collections.abc import Collection, Sequence

from duckicelake.errors import Unsupported
from duckicelake.lake.model import Column, children_of

_PLAIN = {
    "boolean": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "uint8": "INTEGER",
    "uint16": "INTEGER",
    "uint32": "BIGINT",
    "uint64": "DECIMAL(20, 0)",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "date": "DATE",
    "time": "TIME",
    "timestamp": "TIMESTAMP",
    "timestamp_us": "TIMESTAMP",
    "timestamp_s": "TIMESTAMP",
    "timestamp_ms": "TIMESTAMP",
    "timestamp_ns": "TIMESTAMP_NS",
    "timestamptz": "TIMESTAMPTZ",
    "varchar": "VARCHAR",
    "json": "VARCHAR",
    "blob": "BLOB",
    "uuid": "UUID",
}

_UNREAD = {
    "int128": "HUGEINT",
    "uint128": "UHUGEINT",
    "timetz": "TIMETZ",
    "interval": "INTERVAL",
}
"""Types that Iceberg can't read, of fields that a table once had."""


def duckdb_type(column: Column, columns: Sequence[Column], gone: Collection[int] = ()) -> str:
    """The SQL type of a column, nested ones with all their parts; Unsupported names a column Iceberg can't read.

    gone: ids of fields that Iceberg needn't read.
    """
    parts = children_of(columns, column.column_id)
    match column.column_type:
        case "struct":
            fields = (f"{quoted(part.column_name)} {duckdb_type(part, columns, gone)}" for part in parts)
            return f"STRUCT({', '.join(fields)})"
        case "list":
            return f"{duckdb_type(parts[0], columns, gone)}[]"
        case "map":
            return f"MAP({duckdb_type(parts[0], columns, gone)}, {duckdb_type(parts[1], columns, gone)})"
        case text if text.startswith("decimal("):
            return text.upper()
        case text if text in _PLAIN:
            return _PLAIN[text]
        case text if text in _UNREAD and column.column_id in gone:
            return _UNREAD[text]
        case text:
            raise Unsupported(
                "ducklake-types",
                f"Column {column.column_name} has the DuckLake type {text}, which Iceberg can't read exactly",
            )


def field_ids(column: Column, columns: Sequence[Column]) -> str:
    """The column's field ids as COPY takes them: a number, or a struct of the parts' with the column's own."""
    parts = children_of(columns, column.column_id)
    if not parts:
        return str(column.column_id)
    nested = (f"{quoted(part.column_name)}: {field_ids(part, columns)}" for part in parts)
    return f"{{__duckdb_field_id: {column.column_id}, {', '.join(nested)}}}"


def path_of(column: Column, columns: Sequence[Column]) -> str:
    """The names of a column and what it is in, quoted and joined by dots, as DuckDB says of what it wrote."""
    parent = next((each for each in columns if each.column_id == column.parent_column), None)
    own = quoted(column.column_name)
    return own if parent is None else f"{path_of(parent, columns)}.{own}"


def quoted(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
