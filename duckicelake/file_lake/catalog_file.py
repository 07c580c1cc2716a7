"""Read a DuckLake catalog from a DuckDB or SQLite file, each value as the text that Postgres reads."""

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import duckdb

from duckicelake.errors import InvalidRequestError
from duckicelake.lake.model import Column

Value: TypeAlias = str | bytes | None
"""A text that Postgres reads as the column's type, or the bytes of a bytea."""
METADATA_TABLE: Final = "ducklake_metadata"
_NAME_PATTERN: Final = re.compile(r"ducklake_[a-z0-9_]+")
"""Names of DuckLake's tables; others aren't the catalog's."""
INLINED_PATTERN: Final = re.compile(r"ducklake_inlined_data_\d+_\d+")
_SQLITE_MAGIC: Final = b"SQLite format 3\0"
_DUCKDB_MAGIC: Final = b"DUCK"
_DUCKDB_MAGIC_OFFSET: Final = 8
_FETCHED_ROWS: Final = 10_000
_BYTE_TYPES: Final = frozenset({"varchar", "json", "blob"})
_UNQUOTED_TYPES: Final = frozenset(
    {
        *("boolean", "tinyint", "smallint", "integer", "bigint", "hugeint"),
        *("utinyint", "usmallint", "uinteger", "ubigint", "uhugeint", "float", "double", "decimal"),
    }
)
"""Types whose texts need no quotes within lists, structs and maps."""
_LIST_DUCKDB_SQL: Final = (
    "SELECT schema_name, table_name FROM duckdb_tables() WHERE starts_with(table_name, 'ducklake_') ORDER BY ALL"
)
_LIST_SQLITE_SQL: Final = "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'ducklake\\_%' ESCAPE '\\'"
_COLUMNS_SQL: Final = """
SELECT column_id, parent_column, column_name, column_type
FROM {columns} c
JOIN {versions} v ON v.table_id = c.table_id AND v.schema_version = {schema_version}
WHERE c.table_id = {table_id} AND c.begin_snapshot <= v.begin_snapshot
  AND (c.end_snapshot IS NULL OR v.begin_snapshot < c.end_snapshot)
ORDER BY column_id
"""


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table of the file: its columns in their order, and how many rows it has."""

    name: str
    columns: tuple[str, ...]
    row_count: int

    @property
    def has_inlined_rows(self) -> bool:
        """Whether its columns are those of a table of the lake."""
        return INLINED_PATTERN.fullmatch(self.name) is not None


class CatalogFile(Protocol):
    """A DuckLake catalog in a file, open for reading. Nothing in it changes while it is open."""

    path: Path

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a query. A name in braces, as `{ducklake_table}`, stands for that table."""
        ...

    def list_tables(self) -> list[SourceTable]:
        """List DuckLake's tables, those of inlined rows among them, by name."""
        ...

    def read_rows(self, table: SourceTable, start: int, limit: int) -> Iterator[tuple[int, Sequence[Value]]]:
        """Read at most `limit` rows from number `start` on, in order; yield the number and the values of each."""
        ...

    def close(self) -> None: ...


class DuckDBCatalogFile:
    """A catalog in a DuckDB database. schema: the one that has the catalog; needed only where several have one."""

    def __init__(self, path: Path, schema: str | None = None) -> None:
        """Open the file. Raises InvalidRequestError if it can't be read or has no catalog."""
        self.path = path
        with _translate_errors(path):
            self._connection = duckdb.connect(str(path), read_only=True)
            self._connection.execute("SET TimeZone = 'UTC'")
            found = self._connection.execute(_LIST_DUCKDB_SQL).fetchall()
        self._schema = _choose_schema(path, [row[0] for row in found if row[1] == METADATA_TABLE], schema)
        self._names = [name for own, name in found if own == self._schema and _NAME_PATTERN.fullmatch(name)]

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with _translate_errors(self.path):
            return self._connection.execute(sql.format_map(_TableNames(self._schema))).fetchall()

    def list_tables(self) -> list[SourceTable]:
        found = []
        for name in self._names:
            ((count,),) = self.query(f"SELECT count(*) FROM {{{name}}}")
            found.append(SourceTable(name, tuple(self._types(name)), count))
        return found

    def read_rows(self, table: SourceTable, start: int, limit: int) -> Iterator[tuple[int, Sequence[Value]]]:
        values = ", ".join(
            _build_text_sql(_quote(name), type_, has_bytes=table.has_inlined_rows)
            for name, type_ in self._types(table.name).items()
        )
        name = f"{_quote(self._schema)}.{_quote(table.name)}"
        query = f"SELECT rowid, {values} FROM {name} WHERE rowid >= {start} ORDER BY rowid LIMIT {limit}"
        with _translate_errors(self.path):
            cursor = self._connection.execute(query)
            while rows := cursor.fetchmany(_FETCHED_ROWS):
                for row in rows:
                    yield row[0], row[1:]

    def close(self) -> None:
        self._connection.close()

    def _types(self, table: str) -> dict[str, Any]:
        relation = self._connection.sql(f"FROM {_quote(self._schema)}.{_quote(table)}")
        return dict(zip(relation.columns, relation.types, strict=True))


class SQLiteCatalogFile:
    """A catalog in an SQLite database. One read transaction lasts as long as the file is open."""

    def __init__(self, path: Path, schema: str | None = None) -> None:
        """Open the file. Raises InvalidRequestError if it can't be read or has no catalog."""
        self.path = path
        if schema is not None:
            raise InvalidRequestError(f"{path} is an SQLite file, which has no schemas: leave out --schema")
        with _translate_errors(path):
            self._connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
            self._connection.execute("BEGIN")
            names = sorted(name for (name,) in self._connection.execute(_LIST_SQLITE_SQL))
            self._names = list(filter(_NAME_PATTERN.fullmatch, names))
        _choose_schema(path, ["main"] * (METADATA_TABLE in self._names), None)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with _translate_errors(self.path):
            return self._connection.execute(sql.format_map(_TableNames("main"))).fetchall()

    def list_tables(self) -> list[SourceTable]:
        found = []
        for name in self._names:
            columns = tuple(row[1] for row in self.query(f"PRAGMA table_info({_quote(name)})"))
            ((count,),) = self.query(f"SELECT count(*) FROM {{{name}}}")
            found.append(SourceTable(name, columns, count))
        return found

    def read_rows(self, table: SourceTable, start: int, limit: int) -> Iterator[tuple[int, Sequence[Value]]]:
        columns = ", ".join(map(_quote, table.columns))
        query = f"SELECT rowid, {columns} FROM {_quote(table.name)} WHERE rowid >= {start} ORDER BY rowid LIMIT {limit}"
        with _translate_errors(self.path):
            for row in self._connection.execute(query):
                yield row[0], [value if value is None or isinstance(value, bytes) else str(value) for value in row[1:]]

    def close(self) -> None:
        self._connection.close()


def open_catalog_file(path: Path, schema: str | None = None) -> CatalogFile:
    """Open the catalog in a file, which is DuckDB's or SQLite's; close it after use. Raises InvalidRequestError."""
    try:
        with path.open("rb") as file:
            head = file.read(len(_SQLITE_MAGIC))
    except OSError as error:
        raise InvalidRequestError(f"{path} can't be read: {error.strerror}") from error
    if head == _SQLITE_MAGIC:
        return SQLiteCatalogFile(path, schema)
    if head[_DUCKDB_MAGIC_OFFSET:].startswith(_DUCKDB_MAGIC):
        return DuckDBCatalogFile(path, schema)
    raise InvalidRequestError(
        f"{path} is neither a DuckDB nor an SQLite database: name the file of DuckDB's ATTACH 'ducklake:…'"
    )


def read_catalog_options(source: CatalogFile) -> dict[str, str]:
    """Read the options that hold for the whole lake: version, data_path, encrypted and others."""
    return dict(source.query("SELECT key, value FROM {ducklake_metadata} WHERE scope IS NULL"))


def read_columns_of(source: CatalogFile, table_id: int, schema_version: int) -> list[Column]:
    """Read the columns that a table had at one of its schema versions; none if the version isn't known."""
    query = _COLUMNS_SQL.format(
        columns="{ducklake_column}",
        versions="{ducklake_schema_versions}",
        table_id=table_id,
        schema_version=schema_version,
    )
    return [
        Column(column, parent, name, type_, nulls_allowed=True) for column, parent, name, type_ in source.query(query)
    ]


class _TableNames(Mapping[str, str]):
    """The quoted full names of the tables of a schema, for `str.format_map`."""

    def __init__(self, schema: str) -> None:
        self._schema = schema

    def __getitem__(self, name: str) -> str:
        return f"{_quote(self._schema)}.{_quote(name)}"

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _choose_schema(path: Path, schemas: Sequence[str], wanted: str | None) -> str:
    if not schemas:
        raise InvalidRequestError(f"{path} has no DuckLake catalog: name the file of DuckDB's ATTACH 'ducklake:…'")
    if wanted is None and len(schemas) == 1:
        return schemas[0]
    if wanted is None or wanted not in schemas:
        raise InvalidRequestError(f"{path} has catalogs in the schemas {', '.join(schemas)}: choose one with --schema")
    return wanted


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    """Raise InvalidRequestError for errors of the database in the file."""
    try:
        yield
    except (duckdb.Error, sqlite3.Error) as error:
        raise InvalidRequestError(
            f"{path} can't be read: {error}. Close programs that write to it, and check that it is whole"
        ) from error


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _build_text_sql(expression: str, type_: Any, *, has_bytes: bool) -> str:
    """Build the SQL for a top-level value as the text of an inlined row, or as bytes if Postgres keeps them as bytea.

    DuckDB's own cast of a struct to text loses quotes within strings; this text keeps them.

    Args:
        expression: the value.
        type_: its DuckDB type, a `DuckDBPyType`.
        has_bytes: whether the column of the inlined rows takes bytes.

    """
    if has_bytes and type_.id in _BYTE_TYPES:
        return f"CAST({expression} AS BLOB)" if type_.id == "blob" else f"encode(CAST({expression} AS VARCHAR))"
    if type_.id in ("struct", "list", "map", "array"):
        return f"CASE WHEN {expression} IS NOT NULL THEN {_build_part(expression, type_, 0)} END"
    return f"CAST({expression} AS VARCHAR)"


def _build_part(expression: str, type_: Any, depth: int) -> str:
    """Build the SQL for the text of a value within others. depth: of the lambdas around it, whose parameters differ."""
    if type_.id == "struct":
        return _or_null(expression, _build_struct(expression, type_, depth))
    if type_.id in ("list", "array"):
        (_, element), *_ = type_.children
        name = f"v{depth}"
        parts = f"list_transform({expression}, lambda {name}: {_build_part(name, element, depth + 1)})"
        return _or_null(expression, f"'[' || array_to_string({parts}, ', ') || ']'")
    if type_.id == "map":
        (_, key), (_, value) = type_.children
        name = f"v{depth}"
        pair = (
            f"{_build_part(f'{name}.key', key, depth + 1)} || '=' || {_build_part(f'{name}.value', value, depth + 1)}"
        )
        parts = f"list_transform(map_entries({expression}), lambda {name}: {pair})"
        return _or_null(expression, f"'{{' || array_to_string({parts}, ', ') || '}}'")
    text = f"CAST({expression} AS VARCHAR)"
    return _or_null(expression, text if type_.id in _UNQUOTED_TYPES else _build_quoted(text))


def _build_struct(expression: str, type_: Any, depth: int) -> str:
    """Bind the struct to a parameter once, so that the SQL doesn't repeat what computes it."""
    name = f"v{depth}"
    fields = [
        f"{_quote_literal(_build_quoted_name(field) + ': ')} || "
        + _build_part(f"struct_extract({name}, {_quote_literal(field)})", child, depth + 1)
        for field, child in type_.children
    ]
    text = " || ', ' || ".join(fields)
    return f"list_transform([{expression}], lambda {name}: '{{' || {text} || '}}')[1]"


def _or_null(expression: str, text: str) -> str:
    return f"CASE WHEN {expression} IS NULL THEN 'NULL' ELSE {text} END"


def _build_quoted(text: str) -> str:
    """Build the SQL for a text in single quotes, in which backslashes escape."""
    return f"'''' || replace(replace({text}, '\\', '\\\\'), '''', '\\''') || ''''"


def _build_quoted_name(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _quote_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
