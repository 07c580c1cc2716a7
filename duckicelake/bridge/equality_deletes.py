"""PURE. The data files that an equality delete, or a filter, may concern (table spec, "Equality Delete Files")."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from duckicelake.bridge.values.types import is_cut_by_duckdb, to_lake_type
from duckicelake.errors import InvalidRequestError, UnsupportedError
from duckicelake.iceberg.expressions import ColumnTest, ConstantPredicate, Junction, NotPredicate, Predicate
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.name_mapping import NamePath, collect_schema_names, parse_name_mapping
from duckicelake.iceberg.partition import PartitionSpec
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import NestedField, PrimitiveType, StructType
from duckicelake.iceberg.values import from_bytes
from duckicelake.lake.state import FileRow
from duckicelake.lake.types import LAKE_TYPES


@dataclass(frozen=True, slots=True)
class EqualityKey:
    """A delete column: the newest field of its id, with the ids of the structs it is in, outermost first."""

    field: NestedField
    parents: tuple[int, ...]
    duckdb_type: str


class ColumnRange(NamedTuple):
    """What metrics say of a delete column; the bounds order as the values do, None is unknown."""

    values: int | None
    nulls: int | None
    lower: Any
    upper: Any


@dataclass(frozen=True, slots=True)
class EqualityDeletes:
    """An equality delete file of a table."""

    file: FileRow
    keys: tuple[EqualityKey, ...]
    is_global: bool
    ranges: Mapping[int, ColumnRange]

    def may_delete_from(self, data: FileRow) -> bool:
        """Return whether the file applies to a data file, as far as sequence numbers, partitions and metrics show."""
        return (
            data.sequence_number < self.file.sequence_number
            and (self.is_global or (data.spec_id, data.partition) == (self.file.spec_id, self.file.partition))
            and all(
                _may_share_value(self.ranges[key.field.id], find_range(data, key))
                for key in self.keys
                if not key.parents
            )
        )


def build_equality_deletes(file: FileRow, table: TableMetadata) -> EqualityDeletes:
    """Return the delete file with what it deletes by.

    Raises InvalidRequestError or UnsupportedError if rows can't be compared so.
    """
    ids = sorted(set(file.metrics.get("equality_ids") or ()))
    if not ids:
        raise InvalidRequestError(f"{file.path} holds equality deletes, but names no equality-ids to delete by")
    keys = tuple(find_equality_key(field_id, table, file.path) for field_id in ids)
    return EqualityDeletes(
        file=file,
        keys=keys,
        is_global=_is_unpartitioned(table.spec(file.spec_id)),
        ranges={key.field.id: find_range(file, key) for key in keys},
    )


@dataclass(frozen=True, slots=True)
class FieldNames:
    """Field ids by name for files that have none: the table's name mapping, else the schema they were added under."""

    table: TableMetadata
    mapped: Mapping[NamePath, int] | None
    by_schema: Mapping[int | None, Mapping[NamePath, int]]

    def find_in_file(self, file: FileRow) -> Mapping[NamePath, int]:
        """Return the names for one data file."""
        if self.mapped is not None:
            return self.mapped
        snapshot = self.table.snapshot(file.added_snapshot_id)
        return self.by_schema.get(snapshot.schema_id if snapshot else None, self.by_schema[None])


def build_field_names(table: TableMetadata) -> FieldNames:
    """Return the names of a table's fields; InvalidRequestError if its name mapping is none."""
    by_schema: dict[int | None, Mapping[NamePath, int]] = {None: collect_schema_names(table.schema())}
    by_schema |= {schema.schema_id: collect_schema_names(schema) for schema in table.schemas}
    return FieldNames(table, parse_name_mapping(table.properties), by_schema)


def find_missing_values(file: FileRow, keys: Iterable[EqualityKey], table: TableMetadata) -> dict[int, str | None]:
    """Return what delete columns hold that a data file lacks, as DuckDB's texts (table spec, "Column Projection")."""
    fields = table.spec(file.spec_id).fields
    identical = {
        field.source_id: value
        for field, value in zip(fields, file.partition, strict=True)
        if field.transform.name == "identity"
    }
    return {key.field.id: _format_text(key, identical.get(key.field.id, key.field.initial_default)) for key in keys}


def find_equality_key(field_id: int, table: TableMetadata, who: str) -> EqualityKey:
    """Return the field of the id as a delete column.

    Raises InvalidRequestError or UnsupportedError, saying who deletes by it.
    """
    schema = _find_newest_schema(field_id, table)
    if schema is None:
        raise InvalidRequestError(f"{who} deletes by field {field_id}, which the table never had")
    field, parents = schema.map_fields_by_id()[field_id], _find_parents(schema, field_id)
    structs = all(isinstance(schema.map_fields_by_id()[parent].type, StructType) for parent in parents)
    duckdb_type = _map_duckdb_type(field.type) if isinstance(field.type, PrimitiveType) and structs else None
    if duckdb_type is None:
        raise InvalidRequestError(
            f"{who} deletes by {schema.full_names()[field_id]}: delete columns have a primitive type that has an "
            "order, and aren't in lists or maps"
        )
    return EqualityKey(field, parents, duckdb_type)


def _find_newest_schema(field_id: int, table: TableMetadata) -> Schema | None:
    older = sorted(table.schemas, key=lambda schema: schema.schema_id, reverse=True)
    return next((schema for schema in (table.schema(), *older) if field_id in schema.map_fields_by_id()), None)


def _find_parents(schema: Schema, field_id: int) -> tuple[int, ...]:
    parents, found = schema.parents(), list[int]()
    parent = parents[field_id]
    while parent is not None:
        found.insert(0, parent)
        parent = parents[parent]
    return tuple(found)


def _map_duckdb_type(type_: PrimitiveType) -> str | None:
    if is_cut_by_duckdb(type_):
        raise UnsupportedError("equality-deletes", f"Rows can't be deleted by a {type_}: DuckDB reads its microseconds")
    if type_.name == "decimal":
        return f"DECIMAL(38,{type_.scale})"
    return None if type_.traits.is_opaque else LAKE_TYPES[to_lake_type(type_)].duckdb


def _is_unpartitioned(spec: PartitionSpec) -> bool:
    return all(field.transform.name == "void" for field in spec.fields)


def _format_text(key: EqualityKey, value: Any) -> str | None:
    """Return a JSON single value as the text that DuckDB casts; it takes long years without a sign."""
    if value is None or isinstance(value, str):
        return value.removeprefix("+") if value and key.duckdb_type.startswith(("DATE", "TIMESTAMP")) else value
    return str(value).lower() if isinstance(value, bool) else repr(value)


def find_range(file: FileRow, key: EqualityKey) -> ColumnRange:
    """Return what a file's metrics say of a delete column that is in no struct."""
    metrics, name = file.metrics, str(key.field.id)
    counts = (metrics.get(kind, {}).get(name) for kind in ("value_counts", "null_value_counts"))
    bounds = (_parse_bound(key, metrics.get(kind, {}).get(name)) for kind in ("lower_bounds", "upper_bounds"))
    return ColumnRange(*counts, *bounds)


def _parse_bound(key: EqualityKey, text: str | None) -> Any:
    """Return a bound as it orders; None for what is unknown, and for floats, whose bounds leave NaN out."""
    type_ = key.field.type
    if text is None or not isinstance(type_, PrimitiveType) or type_.traits.family == "float":
        return None
    try:
        value = from_bytes(type_, bytes.fromhex(text))
    except InvalidRequestError:
        return None
    return to_ordered(value)


def to_ordered(value: Any) -> Any:
    """Return a value as it orders among others of its type."""
    return value.encode() if isinstance(value, str) else value


def _may_share_value(deletes: ColumnRange, data: ColumnRange) -> bool:
    """Return whether two columns may have a value, or null, in common."""
    if deletes.nulls != 0 and data.nulls != 0:
        return True
    if is_null(deletes) or is_null(data):
        return False
    bounds = (deletes.lower, deletes.upper, data.lower, data.upper)
    if None in bounds or deletes.lower > deletes.upper or data.lower > data.upper:
        return True
    return bool(deletes.lower <= data.upper and data.lower <= deletes.upper)


def is_null(column: ColumnRange) -> bool:
    """Return whether the column is known to hold nothing but null."""
    return column.nulls is not None and column.nulls == column.values


def may_match(predicate: Predicate, ranges: Mapping[int, ColumnRange]) -> bool:
    """Return whether a bound predicate may hold of a row; `ranges` are of its columns, those that are in no struct."""
    match predicate:
        case ConstantPredicate():
            return predicate.holds
        case NotPredicate():
            return True
        case Junction():
            parts = (may_match(part, ranges) for part in (predicate.left, predicate.right))
            return all(parts) if predicate.operator == "and" else any(parts)
    assert isinstance(predicate.column, int)
    return _may_test(predicate, ranges[predicate.column])


def _may_test(test: ColumnTest, data: ColumnRange) -> bool:
    if test.operator == "is-null":
        return data.nulls != 0
    if test.operator.startswith("not-") or test.operator == "is-nan":
        return test.operator != "not-null" or not is_null(data)
    return not is_null(data) and _may_match_values(test.operator, [to_ordered(value) for value in test.values], data)


def _may_match_values(operator: str, values: Sequence[Any], data: ColumnRange) -> bool:
    lower, upper = data.lower, data.upper
    if lower is None or upper is None or lower > upper:
        return True
    match operator:
        case "eq" | "in":
            return any(lower <= value <= upper for value in values)
        case "lt":
            return bool(lower < values[0])
        case "lt-eq":
            return bool(lower <= values[0])
        case "gt":
            return bool(upper > values[0])
        case "gt-eq":
            return bool(upper >= values[0])
    return True
