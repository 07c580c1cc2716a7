"""PURE. Whether data files have the columns of their table: by their metrics, and by the schema in their footers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from duckicelake.bridge.entries import UploadedFile
from duckicelake.bridge.realise import AnyFile
from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import NestedField, PrimitiveType, StructType

ENFORCEMENT: Final = "schema.enforcement"
"""The table property by which the footers of new files are read at their commit: `strict`, or `metrics` as without."""
_LEVELS: Final = frozenset({"metrics", "strict"})
_RESERVED: Final = 2_147_483_446
"""The field ids of Iceberg's metadata columns are above (table spec, "Reserved Field IDs")."""
_STORED: Final[Mapping[str, frozenset[str]]] = {
    "boolean": frozenset({"BOOLEAN"}),
    "int": frozenset({"INTEGER", "SMALLINT", "TINYINT"}),
    "long": frozenset({"BIGINT", "INTEGER", "SMALLINT", "TINYINT"}),
    "float": frozenset({"FLOAT"}),
    "double": frozenset({"DOUBLE", "FLOAT"}),
    "date": frozenset({"DATE"}),
    "time": frozenset({"TIME"}),
    "timestamp": frozenset({"TIMESTAMP", "DATE"}),
    "timestamptz": frozenset({"TIMESTAMP WITH TIME ZONE"}),
    "timestamp_ns": frozenset({"TIMESTAMP_NS", "DATE"}),
    "timestamptz_ns": frozenset({"TIMESTAMP WITH TIME ZONE", "TIMESTAMP_NS"}),
    "string": frozenset({"VARCHAR"}),
    "uuid": frozenset({"UUID", "BLOB"}),
    "fixed": frozenset({"BLOB"}),
    "binary": frozenset({"BLOB"}),
}
"""What DuckDB calls the types under which values of a type may be stored, those that it was promoted from included."""


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column of a file, or a part of a struct in it; `type` is DuckDB's, None for what has parts."""

    path: tuple[str, ...]
    field_id: int | None
    type: str | None


def is_strict(properties: Mapping[str, str]) -> bool:
    """Whether footers are read; InvalidRequest if the property says something else."""
    level = properties.get(ENFORCEMENT, "metrics")
    if level not in _LEVELS:
        raise InvalidRequest(f"The table property {ENFORCEMENT} is {level!r}: write strict or metrics")
    return level == "strict"


def check_field_ids(file: UploadedFile, last_column_id: int) -> None:
    """InvalidRequest for a file whose metrics are of a column that the table never had."""
    if last_column_id < file.highest_field <= _RESERVED:
        raise InvalidRequest(
            f"{file.file_path} has metrics of field {file.highest_field}, but the table's columns end at field "
            f"{last_column_id}: add the column to the table first, or write the file by the table's field ids"
        )


def check_required(files: Iterable[AnyFile], schema: Schema) -> None:
    """InvalidRequest for a file whose metrics count nulls in a required column.

    Fields inside of others are left out: writers don't agree whether those of a null struct count.
    """
    required = {str(field.id): field.name for field in schema.fields if field.required}
    for file in files if required else ():
        nulls: Mapping[str, int] = file.metrics.get("null_value_counts") or {}
        for key in required.keys() & nulls.keys():
            if nulls[key]:
                raise InvalidRequest(
                    f"{file.path} has {nulls[key]} rows without a value of {required[key]}, which is required"
                )


def problems(schema: Schema, columns: Sequence[StoredColumn]) -> Iterator[str]:
    """What of a file's columns doesn't fit the schema; those without field ids go by their names."""
    by_id = any(column.field_id is not None for column in columns)
    found = {_key(column, by_id=by_id): column for column in columns}
    wanted = {_named(path, field, by_id=by_id): (path, field) for path, field in _fields(schema)}
    for key, column in found.items():
        if key not in wanted:
            what = f"field {column.field_id}" if by_id else "no field id"
            yield f"its column {'.'.join(column.path)} ({what}) is none of the table's"
            continue
        path, field = wanted[key]
        if column.type is not None and not holds(field, column.type):
            yield f"its column {'.'.join(column.path)} is stored as {column.type}, but {'.'.join(path)} is {field.type}"
    for key, (path, field) in wanted.items():
        if len(path) == 1 and field.required and field.initial_default is None and key not in found:
            yield f"it has no column {field.name}, which is required"


def holds(field: NestedField, stored: str) -> bool:
    """Whether values of the field may be stored as what DuckDB calls a type."""
    if not isinstance(field.type, PrimitiveType):
        return False
    if field.type.name == "decimal":
        precision, _, scale = stored.removeprefix("DECIMAL(").removesuffix(")").partition(",")
        is_decimal = stored.startswith("DECIMAL(") and scale.strip() == str(field.type.scale)
        return is_decimal and int(precision) <= (field.type.precision or 0)
    return stored in _STORED.get(field.type.name, frozenset({stored}))


def _fields(schema: Schema) -> Iterator[tuple[tuple[str, ...], NestedField]]:
    """The fields outside of lists and maps, with their names."""
    waiting: list[tuple[tuple[str, ...], NestedField]] = [((field.name,), field) for field in schema.fields]
    for path, field in waiting:
        yield path, field
        if isinstance(field.type, StructType):
            waiting += [((*path, part.name), part) for part in field.type.fields]


def _key(column: StoredColumn, *, by_id: bool) -> object:
    return column.field_id if by_id else tuple(name.lower() for name in column.path)


def _named(path: tuple[str, ...], field: NestedField, *, by_id: bool) -> object:
    return field.id if by_id else tuple(name.lower() for name in path)
