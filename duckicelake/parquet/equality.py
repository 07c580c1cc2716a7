"""Find rows that equality delete files delete; DuckDB reads the delete columns only."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb

from duckicelake.errors import InvalidRequestError
from duckicelake.parquet.footer import check_footer, limit_time
from duckicelake.parquet.local_copies import is_write_failure, open_temporary_folder, translate_disk_errors
from duckicelake.parquet.schema import NamePath, ParquetField, ParquetFields, read_fields

_SMALL_INTEGERS: Final = frozenset({"TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT"})
_READABLE_TYPES: Final = {
    "BOOLEAN": frozenset({"BOOLEAN"}),
    "INTEGER": _SMALL_INTEGERS,
    "BIGINT": _SMALL_INTEGERS | {"UINTEGER", "BIGINT"},
    "FLOAT": frozenset({"FLOAT"}),
    "DOUBLE": frozenset({"FLOAT", "DOUBLE"}),
    "DATE": frozenset({"DATE"}),
    "TIME": frozenset({"TIME", "TIME WITH TIME ZONE"}),
    "TIMESTAMP": frozenset({"DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"}),
    "TIMESTAMP_NS": frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_NS"}),
    "TIMESTAMP WITH TIME ZONE": frozenset({"TIMESTAMP", "TIMESTAMP WITH TIME ZONE"}),
    "VARCHAR": frozenset({"VARCHAR", "JSON", "BLOB"}),
    "BLOB": frozenset({"BLOB", "VARCHAR"}),
    "UUID": frozenset({"UUID", "BLOB"}),
}
"""Types in a file for each column type: promoted ones, and those that writers other than Iceberg's don't annotate."""
_DECIMAL: Final = re.compile(r"DECIMAL\(\d+, ?(\d+)\)")
_FLOAT_TYPES: Final = frozenset({"FLOAT", "DOUBLE"})
_TEXT_DECODERS: Final = {"BLOB": "unhex({})"}
_CONVERSIONS: Final = {("BLOB", "VARCHAR"): "decode({})", ("VARCHAR", "BLOB"): "encode({})"}
MAX_BLOOM_KEYS: Final = 64
"""Keys looked up in Bloom filters, one by one, a fifth of a millisecond each."""
BLOOM_TYPES: Final = frozenset({"INTEGER", "BIGINT", "VARCHAR"})
"""DuckDB's types of columns whose Bloom filters are used."""
_FILTERED_COLUMNS_SQL = """
SELECT path_in_schema FROM parquet_metadata($file)
GROUP BY path_in_schema HAVING bool_and(bloom_filter_offset IS NOT NULL)
"""
_EXCLUDES_SQL = (
    "SELECT coalesce(bool_and(bloom_filter_excludes), false) FROM parquet_bloom_probe($file, $column, $value)"
)
_DUCKDB_SETTINGS: Final[dict[str, str | bool | int | float | list[str]]] = {
    "threads": 2,
    "memory_limit": "512MB",
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
_TIMEOUT_SECONDS: Final = 600


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A delete column: its type as DuckDB spells it, and the ids of its structs, outermost first."""

    field_id: int
    parents: tuple[int, ...]
    type: str

    @property
    def types(self) -> tuple[str, ...]:
        """The types of the compared values."""
        return (self.type, "BOOLEAN") if self.type in _FLOAT_TYPES else (self.type,)

    def list_compared(self, value: str) -> tuple[str, ...]:
        """List the compared values of an expression; DuckDB alone would take -0.0 for 0.0."""
        return (value, f"({value} = 0 AND signbit({value}))") if self.type in _FLOAT_TYPES else (value,)

    def read(self, field: ParquetField) -> str:
        """Build the expression of the column in a file that has it; InvalidRequestError: it has another type there."""
        if field.type is None or not self._reads(field.type):
            raise InvalidRequestError(f"column {'.'.join(field.names)} is a {field.type or 'group'}, not a {self.type}")
        conversion = _CONVERSIONS.get((field.type, self.type), f"CAST({{}} AS {self.type})")
        return conversion.format(field.expression)

    def substitute(self, fields: Mapping[int, ParquetField], text: str) -> str:
        """Build the expression of the column in a file that lacks it, from an expression of its text.

        Null in a struct that is null.
        """
        value = f"CAST({_TEXT_DECODERS.get(self.type, '{}').format(text)} AS {self.type})"
        if not self.parents:
            return value
        struct = fields.get(self.parents[-1])
        return f"CASE WHEN {'false' if struct is None else f'{struct.expression} IS NOT NULL'} THEN {value} END"

    def _reads(self, type_: str) -> bool:
        wanted, found = _DECIMAL.fullmatch(self.type), _DECIMAL.fullmatch(type_)
        if wanted and found:
            return wanted[1] == found[1]
        return type_ in _READABLE_TYPES.get(self.type, ())


def rule_out_keys(
    connection: duckdb.DuckDBPyConnection, file: Path, columns: Mapping[int, str], keys: Sequence[tuple[Any, ...]]
) -> bool:
    """Return whether the file's Bloom filters rule out all keys; they never rule out nulls.

    columns: top-level columns of `BLOOM_TYPES`, by their place in a key. At most `MAX_BLOOM_KEYS` keys are looked up.
    """
    if not columns or len(keys) > MAX_BLOOM_KEYS:
        return False
    filtered = {name for (name,) in connection.execute(_FILTERED_COLUMNS_SQL, {"file": str(file)}).fetchall()}
    probed = {place: name for place, name in columns.items() if name in filtered}
    return bool(probed) and all(_is_excluded(connection, file, probed, key) for key in keys)


def _is_excluded(
    connection: duckdb.DuckDBPyConnection, file: Path, columns: Mapping[int, str], key: tuple[Any, ...]
) -> bool:
    parameters = ({"file": str(file), "column": name, "value": key[place]} for place, name in columns.items())
    return any(
        parameter["value"] is not None and connection.execute(_EXCLUDES_SQL, parameter).fetchall() == [(True,)]
        for parameter in parameters
    )


@dataclass(frozen=True, slots=True)
class DeleteRows:
    """An equality delete file at a local path. Errors name its location."""

    file_id: int
    location: str
    path: Path
    keys: tuple[KeyColumn, ...]


@dataclass(frozen=True, slots=True)
class DataRows:
    """A data file at a local path, with the ids of the delete files that apply to it.

    names: field ids by name, for a file that has none. values: by field id, the values of delete columns that the file
    lacks, as texts that DuckDB casts, bytes as hex.
    """

    file_id: int
    location: str
    path: Path
    deletes: frozenset[int]
    names: Mapping[NamePath, int]
    values: Mapping[int, str | None]


def find_deleted(deletes: Sequence[DeleteRows], files: Sequence[DataRows]) -> dict[int, dict[int, frozenset[int]]]:
    """Find the deleted positions by delete file and data file; files without any are left out.

    InvalidRequestError names the file: it isn't Parquet, lacks a delete column, or has it of another type.
    """
    found: dict[int, dict[int, frozenset[int]]] = {delete.file_id: {} for delete in deletes}
    paths = [*(delete.path for delete in deletes), *(file.path for file in files)]
    with connect_confined(paths) as connection, translate_disk_errors():
        tables = [_DeleteTable(connection, keys, group) for keys, group in _group_by_keys(deletes).items()]
        for file in files:
            with translate_read_errors(file.location, file.path):
                fields = read_fields(connection, file.path)
                for table in tables:
                    for delete_id, positions in table.matches(file, fields):
                        found[delete_id][file.file_id] = frozenset(positions)
    return found


class _DeleteTable:
    """The rows of all delete files that have the same delete columns."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, keys: tuple[KeyColumn, ...], deletes: Sequence[DeleteRows]
    ) -> None:
        self._connection, self._keys = connection, keys
        self._deletes = {delete.file_id for delete in deletes}
        self._places = [sum(len(key.types) for key in keys[:place]) for place in range(len(keys))]
        self._name = "_".join(["deletes", *(str(key.field_id) for key in keys)])
        types = [type_ for key in keys for type_ in key.types]
        self._columns = [f"k{number}" for number in range(len(types))]
        columns = [f"{column} {type_}" for column, type_ in zip(self._columns, types, strict=True)]
        connection.execute(f"CREATE TABLE {self._name} (delete_id BIGINT, {', '.join(columns)})")
        for delete in deletes:
            with translate_read_errors(delete.location, delete.path):
                self._load(delete)
        self._is_null = " OR ".join(f"d.{column} IS NULL" for column in self._columns)
        self._has_nulls = self._count_rows(f"{self._name} AS d WHERE {self._is_null}") > 0
        self._few = self._some(MAX_BLOOM_KEYS + 1)

    def _load(self, delete: DeleteRows) -> None:
        fields = read_fields(self._connection, delete.path)
        known = fields.by_id()
        for key in self._keys:
            if key.field_id not in known:
                raise InvalidRequestError(f"it has no column of field id {key.field_id}, by which it deletes")
        values = ", ".join(part for key in self._keys for part in key.list_compared(key.read(known[key.field_id])))
        query = f"INSERT INTO {self._name} SELECT DISTINCT $delete_id, {values} FROM {fields.source}"
        self._connection.execute(query, {"delete_id": delete.file_id, "file": str(delete.path)})

    def matches(self, file: DataRows, fields: ParquetFields) -> list[tuple[int, list[int]]]:
        """Return (delete file, positions in the data file)."""
        deletes = file.deletes & self._deletes
        if not deletes:
            return []
        if self._is_ruled_out(file, fields):
            return []
        values, texts = build_values(self._keys, file, fields)
        parts = [part for key, value in zip(self._keys, values, strict=True) for part in key.list_compared(value)]
        return self._join(fields.source, parts, {"file": str(file.path), "deletes": sorted(deletes), **texts})

    def _join(self, source: str, parts: Sequence[str], parameters: Mapping[str, object]) -> list[tuple[int, list[int]]]:
        """Join the file with the keys, nulls apart.

        By `=` DuckDB skips row groups by the file's statistics, but it never finds nulls.
        """
        values = ", ".join(f"{part} AS {column}" for part, column in zip(parts, self._columns, strict=True))
        joined = f"""
            SELECT delete_id, position
            FROM (SELECT file_row_number AS position, {values} FROM {source}) AS data
            JOIN {self._name} AS d ON {{equal}}
            WHERE list_contains($deletes, delete_id)
        """
        found = joined.format(equal=self._equal("="))
        if self._has_nulls:
            nulls = joined.format(equal=self._equal("IS NOT DISTINCT FROM"))
            found = f"{found} UNION ALL {nulls} AND ({self._is_null})"
        query = f"SELECT delete_id, list(position) FROM ({found}) GROUP BY delete_id"
        return self._connection.execute(query, parameters).fetchall()

    def _equal(self, operator: str) -> str:
        return " AND ".join(f"data.{column} {operator} d.{column}" for column in self._columns)

    def _count_rows(self, rows: str) -> int:
        ((count,),) = self._connection.execute(f"SELECT count(*) FROM {rows}").fetchall()
        return int(count)

    def _some(self, count: int) -> list[tuple[Any, ...]]:
        """Return `count` keys, of any delete file."""
        query = f"SELECT DISTINCT {', '.join(self._columns)} FROM {self._name} LIMIT {count}"
        return self._connection.execute(query).fetchall()

    def _is_ruled_out(self, file: DataRows, fields: ParquetFields) -> bool:
        """Return whether the file's Bloom filters rule out all keys, which must be few enough to look up each."""
        known = fields.by_id(file.names)
        columns: dict[int, str] = {}
        for place, key in enumerate(self._keys):
            field = known.get(key.field_id)
            if field is not None and len(field.names) == 1 and field.type == key.type in BLOOM_TYPES:
                columns[self._places[place]] = field.names[0]
        return rule_out_keys(self._connection, file.path, columns, self._few)


def build_values(
    keys: Sequence[KeyColumn], file: DataRows, fields: ParquetFields
) -> tuple[list[str], dict[str, str | None]]:
    """Build expressions for the key columns over a data file's source, and their parameters.

    Raises InvalidRequestError.
    """
    known, values, texts = fields.by_id(file.names), list[str](), dict[str, str | None]()
    for number, key in enumerate(keys):
        if key.field_id in known:
            values.append(key.read(known[key.field_id]))
        else:
            texts[f"text{number}"] = file.values.get(key.field_id)
            values.append(key.substitute(known, f"$text{number}"))
    return values, texts


def _group_by_keys(deletes: Sequence[DeleteRows]) -> dict[tuple[KeyColumn, ...], list[DeleteRows]]:
    groups: defaultdict[tuple[KeyColumn, ...], list[DeleteRows]] = defaultdict(list)
    for delete in deletes:
        groups[delete.keys].append(delete)
    return groups


@contextmanager
def connect_confined(files: Sequence[Path]) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a database in memory that may read and write these files and nothing else."""
    with (
        open_temporary_folder() as spilled,
        duckdb.connect(config={**_DUCKDB_SETTINGS, "temp_directory": str(spilled)}) as connection,
    ):
        paths = ", ".join("'" + str(file).replace("'", "''") + "'" for file in files)
        connection.execute(f"SET allowed_paths = [{paths}]")
        connection.execute("SET TimeZone = 'UTC'; SET enable_external_access = false; SET lock_configuration = true")
        with limit_time(connection, _TIMEOUT_SECONDS):
            yield connection


@contextmanager
def translate_read_errors(location: str, path: Path) -> Iterator[None]:
    """Translate DuckDB's errors about a file into InvalidRequestError that names it. Errors of temporary files pass."""
    check_footer(path, location)
    try:
        yield
    except (duckdb.Error, UnicodeDecodeError) as error:
        if isinstance(error, duckdb.IOException) and is_write_failure(error):
            raise
        reason = str(error).partition("\n")[0].replace(str(path), location)
        raise InvalidRequestError(f"{location} can't be read as Parquet: {reason}") from error
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{location}: {error}") from error
