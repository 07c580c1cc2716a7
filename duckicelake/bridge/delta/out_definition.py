"""PURE. What a table is, but for its files, as Delta's `metaData` and `protocol`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from duckicelake.bridge.delta.out_schema import delta_schema
from duckicelake.delta.actions import Metadata, Protocol
from duckicelake.delta.schema import (
    DeltaArray,
    DeltaMap,
    DeltaPrimitive,
    DeltaStruct,
    DeltaType,
    parse_schema,
    schema_text,
)
from duckicelake.errors import InvalidRequest, Unsupported
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.schema import Schema

ENABLED: Final = "delta.enabled"
DELETION_VECTORS: Final = "deletionVectors"
ONLY_READ: Final = "writtenByDuckicelake"
"""A feature that no other writer has, so that all refuse to write, or to vacuum, what they may well read."""
_NAME_MAPPING: Final = "schema.name-mapping.default"
_CONSTRAINT: Final = "constraint."
_DELTA_CONSTRAINT: Final = "delta.constraints."
_READER, _WRITER = 3, 7


def is_enabled(properties: Mapping[str, str]) -> bool:
    """Whether the table wants a Delta log beside it; InvalidRequest unless it says true or false."""
    text = properties.get(ENABLED, "false")
    if text not in {"true", "false"}:
        raise InvalidRequest(f"The table property {ENABLED} is {text!r}: write true or false")
    return text == "true"


def check_sayable(metadata: TableMetadata, base: TableMetadata | None = None) -> None:
    """Unsupported if the table wants a Delta log and Delta, or one of its readers, would not read it right.

    base: what it was before a commit, which is to blame for what it changes only.
    """
    if is_enabled(metadata.properties) and (base is None or _asked(metadata) != _asked(base)):
        if _NAME_MAPPING in metadata.properties:
            raise Unsupported(
                "delta-out",
                f"The table has a name mapping ({_NAME_MAPPING}) for files without field ids, by which Delta's readers "
                "are told where columns are; a Delta table that was imported has its own log already",
            )
        delta_schema(metadata.schema(), {})


def _asked(metadata: TableMetadata) -> tuple[str | None, bool, Schema]:
    properties = metadata.properties
    return properties.get(ENABLED), _NAME_MAPPING in properties, metadata.schema()


def delta_metadata(
    metadata: TableMetadata, schema: Schema, physical: Mapping[int, str], log_id: str, created_ms: int
) -> Metadata:
    """The `metaData` of a version whose rows have this schema."""
    properties = metadata.properties
    constraints = {
        f"{_DELTA_CONSTRAINT}{name.removeprefix(_CONSTRAINT)}": text
        for name, text in properties.items()
        if name.startswith(_CONSTRAINT)
    }
    configuration = {
        "delta.columnMapping.mode": "id",
        "delta.columnMapping.maxColumnId": str(metadata.last_column_id),
        "delta.enableInCommitTimestamps": "true",
        "delta.enableExpiredLogCleanup": "false",
        **constraints,
    }
    text = schema_text(delta_schema(schema, physical))
    comment = properties.get("comment")
    return Metadata(log_id, text, (), configuration, description=comment, created_ms=created_ms)


def protocol_for(metadata: Metadata, *, has_vectors: bool, before: Protocol | None) -> Protocol:
    """The features that the table uses, or has used: who reads the log sees all versions of it."""
    columns = parse_schema(metadata.schema_string)
    reader = {"columnMapping"}
    reader |= {"timestampNtz"} if _has_ntz(columns) else set()
    reader |= {DELETION_VECTORS} if has_vectors else set()
    writer = {"inCommitTimestamp", ONLY_READ}
    writer |= set() if all(column.nullable for column in columns.fields) else {"invariants"}
    writer |= {"checkConstraints"} if any(_DELTA_CONSTRAINT in key for key in metadata.configuration) else set()
    if before is not None:
        reader |= before.reader_features or set()
        writer |= before.writer_features or set()
    return Protocol(_READER, _WRITER, frozenset(reader), frozenset(reader | writer))


def _has_ntz(kind: DeltaType) -> bool:
    return any(each == DeltaPrimitive("timestamp_ntz") for each in _leaves([kind]))


def _leaves(kinds: Sequence[DeltaType]) -> Iterable[DeltaType]:
    for kind in kinds:
        match kind:
            case DeltaStruct():
                yield from _leaves([field.type for field in kind.fields])
            case DeltaArray():
                yield from _leaves([kind.element])
            case DeltaMap():
                yield from _leaves([kind.key, kind.value])
            case _:
                yield kind


def as_before(metadata: Metadata, before: Metadata | None) -> Metadata:
    """The same with the time at which the log began."""
    return metadata if before is None else replace(metadata, id=before.id, created_ms=before.created_ms)
