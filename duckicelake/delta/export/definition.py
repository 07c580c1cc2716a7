"""PURE. A table's schema and properties as Delta's `metaData` and `protocol`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from duckicelake.catalog.context.hooks import CommitRule
from duckicelake.delta.log.actions import Metadata, Protocol
from duckicelake.delta.log.schema import (
    COMMENT,
    FIELD_ID,
    PHYSICAL_NAME,
    DeltaArray,
    DeltaDecimal,
    DeltaField,
    DeltaMap,
    DeltaPrimitive,
    DeltaStruct,
    DeltaType,
    format_schema,
    parse_schema,
)
from duckicelake.errors import InvalidRequestError, UnsupportedError
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType
from duckicelake.properties import DELTA_ENABLED, NAME_MAPPING, read_constraint_texts

_TYPES: Final = {
    "boolean": "boolean",
    "int": "integer",
    "long": "long",
    "float": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
    "string": "string",
    "binary": "binary",
}
DELETION_VECTORS: Final = "deletionVectors"
READ_ONLY_PROPERTY: Final = "writtenByDuckicelake"
"""A writer feature that no other writer has: all refuse to write or vacuum, and can still read."""
_DELTA_CONSTRAINT: Final = "delta.constraints."
_READER_FEATURES, _WRITER_FEATURES = 3, 7


def build_delta_schema(schema: Schema, physical: Mapping[int, str]) -> DeltaStruct:
    """Build Delta's schema. physical: names of fields in the files, by id.

    UnsupportedError names what Delta lacks.
    """
    names = schema.full_names()
    for field in schema.map_fields_by_id().values():
        _check_default(field, names[field.id])
    return DeltaStruct(tuple(_build_field(field, physical, names) for field in schema.fields))


def _check_default(field: NestedField, name: str) -> None:
    if field.initial_default is not None:
        raise UnsupportedError(
            "delta-out",
            f"Column {name} reads as {field.initial_default!r} in rows of before it was added, "
            "and as null for Delta's readers, which know no such default",
        )


def _build_field(field: NestedField, physical: Mapping[int, str], names: Mapping[int, str]) -> DeltaField:
    metadata = {FIELD_ID: field.id, PHYSICAL_NAME: physical.get(field.id, field.name)}
    comment = {} if field.doc is None else {COMMENT: field.doc}
    kind = _build_type(field.type, names[field.id], physical, names)
    return DeltaField(field.name, kind, not field.required, {**metadata, **comment})


def _build_type(kind: IcebergType, name: str, physical: Mapping[int, str], names: Mapping[int, str]) -> DeltaType:
    match kind:
        case StructType():
            return DeltaStruct(tuple(_build_field(field, physical, names) for field in kind.fields))
        case ListType():
            return DeltaArray(_build_type(kind.element, f"{name}.element", physical, names), not kind.element_required)
        case MapType():
            key = _build_type(kind.key, f"{name}.key", physical, names)
            return DeltaMap(key, _build_type(kind.value, f"{name}.value", physical, names), not kind.value_required)
    return _build_primitive(kind, name)


def _build_primitive(kind: PrimitiveType, name: str) -> DeltaType:
    if kind.name == "decimal":
        return DeltaDecimal(kind.precision or 0, kind.scale or 0)
    if kind.name not in _TYPES:
        raise UnsupportedError("delta-out", f"Column {name} has the type {kind}, which Delta lacks")
    return DeltaPrimitive(_TYPES[kind.name])


def is_enabled(properties: Mapping[str, str]) -> bool:
    """Return whether `delta.enabled` is true; InvalidRequestError unless it is true or false."""
    text = properties.get(DELTA_ENABLED, "false")
    if text not in {"true", "false"}:
        raise InvalidRequestError(f"The table property {DELTA_ENABLED} is {text!r}: write true or false")
    return text == "true"


def check_delta_writable(metadata: TableMetadata, base: TableMetadata | None = None) -> None:
    """Raise UnsupportedError if a table with `delta.enabled` would be read wrong by Delta or one of its readers.

    base: the metadata before the commit, whose own changes alone count.
    """
    if is_enabled(metadata.properties) and (base is None or _read_wish(metadata) != _read_wish(base)):
        if NAME_MAPPING in metadata.properties:
            raise UnsupportedError(
                "delta-out",
                f"The table has a name mapping ({NAME_MAPPING}) for files without field ids, by which Delta's readers "
                "have the paths of columns; a Delta table that was imported has its own log already",
            )
        build_delta_schema(metadata.schema(), {})


def _read_wish(metadata: TableMetadata) -> tuple[str | None, bool, Schema]:
    properties = metadata.properties
    return properties.get(DELTA_ENABLED), NAME_MAPPING in properties, metadata.schema()


def build_delta_metadata(
    metadata: TableMetadata, schema: Schema, physical: Mapping[int, str], log_id: str, created_ms: int
) -> Metadata:
    """Build the `metaData` of a version whose rows have this schema."""
    properties = metadata.properties
    constraints = {f"{_DELTA_CONSTRAINT}{name}": text for name, text in read_constraint_texts(properties).items()}
    configuration = {
        "delta.columnMapping.mode": "id",
        "delta.columnMapping.maxColumnId": str(metadata.last_column_id),
        "delta.enableInCommitTimestamps": "true",
        "delta.enableExpiredLogCleanup": "false",
        **constraints,
    }
    text = format_schema(build_delta_schema(schema, physical))
    comment = properties.get("comment")
    return Metadata(log_id, text, (), configuration, description=comment, created_ms=created_ms)


def build_protocol(metadata: Metadata, *, has_vectors: bool, before: Protocol | None) -> Protocol:
    """Build the protocol with all features that the table uses or has used: readers see all versions of the log."""
    columns = parse_schema(metadata.schema_string)
    reader = {"columnMapping"}
    reader |= {"timestampNtz"} if _has_ntz(columns) else set()
    reader |= {DELETION_VECTORS} if has_vectors else set()
    writer = {"inCommitTimestamp", READ_ONLY_PROPERTY}
    writer |= set() if all(column.nullable for column in columns.fields) else {"invariants"}
    writer |= {"checkConstraints"} if any(_DELTA_CONSTRAINT in key for key in metadata.configuration) else set()
    if before is not None:
        reader |= before.reader_features or set()
        writer |= before.writer_features or set()
    return Protocol(_READER_FEATURES, _WRITER_FEATURES, frozenset(reader), frozenset(reader | writer))


def _has_ntz(kind: DeltaType) -> bool:
    return any(leaf == DeltaPrimitive("timestamp_ntz") for leaf in _iterate_leaves([kind]))


def _iterate_leaves(kinds: Sequence[DeltaType]) -> Iterable[DeltaType]:
    for kind in kinds:
        match kind:
            case DeltaStruct():
                yield from _iterate_leaves([field.type for field in kind.fields])
            case DeltaArray():
                yield from _iterate_leaves([kind.element])
            case DeltaMap():
                yield from _iterate_leaves([kind.key, kind.value])
            case _:
                yield kind


def keep_unchanged(metadata: Metadata, before: Metadata | None) -> Metadata:
    """Keep unchanged metadata's time, at which the log began."""
    return metadata if before is None else replace(metadata, id=before.id, created_ms=before.created_ms)


class DeltaRule(CommitRule):
    """The commit rule that a table with a Delta log has only columns that Delta's readers understand."""

    feature = "delta"

    def check_definition(self, target: TableMetadata, base: TableMetadata | None) -> None:
        """Check the definition by `check_delta_writable`."""
        check_delta_writable(target, base)


RULE: Final = DeltaRule()
