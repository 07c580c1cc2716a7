"""PURE. A Delta table's definition as Iceberg's metadata and properties: the first, and each later one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from duckicelake.bridge.definitions import COMMENT
from duckicelake.catalog.context.hooks import build_row_check, check_features
from duckicelake.delta.import_.columns import ColumnIds, TableColumns, read_columns
from duckicelake.delta.log.actions import Metadata
from duckicelake.delta.log.schema import DeltaArray, DeltaMap, DeltaStruct, DeltaType, parse_schema
from duckicelake.errors import InvalidRequestError, UnsupportedError
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, TableMetadata
from duckicelake.iceberg.name_mapping import NamePath, build_name_mapping
from duckicelake.iceberg.partition import (
    FIRST_PARTITION_FIELD_ID,
    PartitionField,
    PartitionSpec,
    Transform,
    rename_clashing_fields,
)
from duckicelake.iceberg.schema import Schema, check_schema
from duckicelake.iceberg.schema_evolution import can_promote
from duckicelake.iceberg.sort import UNSORTED
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.properties import (
    COMPRESSION_CODEC,
    CONSTRAINT_PREFIX,
    DELTA_ENABLED,
    GC_ENABLED,
    NAME_MAPPING,
    is_option,
)

_CONSTRAINTS: Final = "delta.constraints."
_FIELDS: Final = "delta.column-metadata"
"""Delta's metadata of columns that Iceberg lacks, as JSON by dotted name: generated values, defaults…"""
_NAME: Final = "delta.name"
_ROW_TRACKING: Final = (
    "delta.rowTracking.materializedRowIdColumnName",
    "delta.rowTracking.materializedRowCommitVersionColumnName",
)
_UNKNOWN_COLUMN: Final = 2_000_000_000
"""The first id for columns that no schema has."""
_MAPPED: Final = ("delta.columnMapping.", "comment")
_IDENTITY: Final = Transform.parse("identity")
_OWN_PROPERTIES: Final = {COMPRESSION_CODEC: "zstd"}


def build_properties(metadata: Metadata, schema: Schema, ids: ColumnIds) -> dict[str, str]:
    """Build the table's properties at a version, with `gc.enabled=false`."""
    own = {
        key: value for key, value in metadata.configuration.items() if key.startswith("delta.") and key != DELTA_ENABLED
    }
    others = {key: value for key, value in metadata.configuration.items() if _is_free(key)}
    made = {
        GC_ENABLED: "false",
        NAME_MAPPING: build_name_mapping({**_build_name_mapping(metadata), **ids.by_path}),
    }
    if metadata.description:
        made[COMMENT] = metadata.description
    if metadata.name:
        made[_NAME] = metadata.name
    kept = _keep_json(parse_schema(metadata.schema_string))
    if kept:
        made[_FIELDS] = orjson.dumps(kept, option=orjson.OPT_SORT_KEYS).decode()
    return {**others, **own, **_keep_constraints(metadata, schema), **made}


def _build_name_mapping(metadata: Metadata) -> dict[NamePath, int]:
    """Build the name mapping for columns that files may have and the table lacks, under ids of no schema.

    PyIceberg needs all names of a file.
    """
    named = (metadata.configuration.get(key) for key in _ROW_TRACKING)
    return {(name,): _UNKNOWN_COLUMN + at for at, name in enumerate(("_change_type", *named)) if name}


def _is_free(key: str) -> bool:
    """Return whether a user's property has no meaning for the catalog."""
    return not key.startswith(
        ("delta.", "ducklake.", "write.", "gc.", "commit.", "schema.", CONSTRAINT_PREFIX, "format-version")
    )


def _keep_constraints(metadata: Metadata, schema: Schema) -> dict[str, str]:
    """Keep Delta's constraints that the server can check."""
    found: dict[str, str] = {}
    for key, text in metadata.configuration.items():
        if key.startswith(_CONSTRAINTS):
            kept = {f"{CONSTRAINT_PREFIX}{key.removeprefix(_CONSTRAINTS)}": text}
            check_features(metadata.name or metadata.id, kept)
            try:
                build_row_check(kept, schema)
            except InvalidRequestError:
                continue
            found |= kept
    return found


def _keep_json(type_: DeltaType, inside: str = "") -> dict[str, Any]:
    match type_:
        case DeltaStruct(fields):
            found: dict[str, Any] = {}
            for column in fields:
                name = f"{inside}{column.name}"
                facts = {key: value for key, value in column.metadata.items() if not key.startswith(_MAPPED)}
                found |= ({name: facts} if facts else {}) | _keep_json(column.type, f"{name}.")
            return found
        case DeltaArray(element):
            return _keep_json(element, f"{inside}element.")
        case DeltaMap(key, value):
            return _keep_json(key, f"{inside}key.") | _keep_json(value, f"{inside}value.")
        case _:
            return {}


@dataclass(frozen=True, slots=True)
class DeltaState:
    """State for the translation of the next version. known: column ids by physical path."""

    metadata: Metadata
    known: Mapping[tuple[str, ...], int]
    is_mapped: bool

    @staticmethod
    def of(metadata: Metadata, ids: ColumnIds) -> "DeltaState":
        """Return the state after a version with this definition."""
        return DeltaState(metadata, dict(ids.by_path), ids.is_mapped)

    def ids(self) -> ColumnIds:
        """Return the column ids, from which new ones go on."""
        return ColumnIds(dict(self.known), self.is_mapped)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that is stored with the table."""
        own = self.metadata
        return {
            "columns": [[list(path), field_id] for path, field_id in self.known.items()],
            "is-mapped": self.is_mapped,
            "metadata": {
                "id": own.id,
                "schema-string": own.schema_string,
                "partition-columns": list(own.partition_columns),
                "configuration": dict(own.configuration),
                "name": own.name,
                "description": own.description,
            },
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "DeltaState":
        """Read the JSON of `to_json`."""
        own = data["metadata"]
        metadata = Metadata(
            own["id"],
            own["schema-string"],
            tuple(own["partition-columns"]),
            own["configuration"],
            own["name"],
            own["description"],
        )
        return DeltaState(metadata, {tuple(path): field_id for path, field_id in data["columns"]}, data["is-mapped"])


def build_first_metadata(
    delta: Metadata, ids: ColumnIds, table_uuid: str, location: str, format_version: int, now_ms: int
) -> tuple[TableMetadata, TableColumns]:
    """Build the metadata of a table without snapshots, and its columns.

    Raises UnsupportedError, InvalidRequestError, DamagedLogError.
    """
    columns = read_columns(delta, ids, 0)
    check_schema(columns.schema, format_version)
    spec = _find_spec(columns, (), 0)
    metadata = TableMetadata(
        format_version=format_version,  # type: ignore[arg-type]  # 2 or 3
        table_uuid=table_uuid,
        location=location,
        last_sequence_number=0,
        last_updated_ms=now_ms,
        last_column_id=ids.last,
        schemas=(columns.schema,),
        current_schema_id=0,
        partition_specs=(spec,),
        default_spec_id=0,
        last_partition_id=spec.highest_field_id(),
        sort_orders=(UNSORTED,),
        default_sort_order_id=UNSORTED.order_id,
        properties=_OWN_PROPERTIES | build_properties(delta, columns.schema, ids),
        next_row_id=0 if format_version >= ROW_LINEAGE_VERSION else None,
    )
    return metadata, columns


def redefine(metadata: TableMetadata, delta: Metadata, ids: ColumnIds) -> tuple[TableMetadata, TableColumns]:
    """Apply a `metaData` action; return the metadata and the columns. Raises as `build_first_metadata`."""
    columns = read_columns(delta, ids, max(schema.schema_id for schema in metadata.schemas) + 1)
    check_schema(columns.schema, metadata.format_version)
    known = next((schema for schema in metadata.schemas if schema.same_as(columns.schema)), None)
    schemas = metadata.schemas if known else (*metadata.schemas, columns.schema)
    spec = _find_spec(columns, metadata.partition_specs, metadata.last_partition_id)
    specs = metadata.partition_specs if spec in metadata.partition_specs else (*metadata.partition_specs, spec)
    options = {name: text for name, text in metadata.properties.items() if is_option(name)}
    changed = metadata.replace_fields(
        schemas=schemas,
        current_schema_id=(known or columns.schema).schema_id,
        last_column_id=max(metadata.last_column_id, ids.last),
        partition_specs=rename_clashing_fields(specs, columns.schema),
        default_spec_id=spec.spec_id,
        last_partition_id=max(metadata.last_partition_id, spec.highest_field_id()),
        properties=_OWN_PROPERTIES | options | build_properties(delta, columns.schema, ids),
    )
    return changed, columns


def find_replaced_columns(before: TableMetadata, after: TableMetadata) -> frozenset[int]:
    """Find columns whose older files can't be read as their present types.

    Raises UnsupportedError if one partitioned the table.
    """
    old, new = before.schema().map_fields_by_id(), after.schema().map_fields_by_id()
    version = after.format_version
    changed = {i for i in old.keys() & new.keys() if not _can_read(old[i].type, new[i].type, version)}
    partitioned = {field.source_id for spec in before.partition_specs for field in spec.fields}
    for field_id in changed & partitioned:
        raise UnsupportedError(
            "delta-type-changes",
            f"Column {new[field_id].name}, by which the table is or was partitioned, changed from {old[field_id].type} "
            f"to {new[field_id].type}, and Iceberg has one type for it in all history: leave the versions before out",
        )
    return frozenset(changed)


def check_no_files_left(replaced: Iterable[int], metadata: TableMetadata, path: str) -> None:
    """Raise UnsupportedError if an older file that stays in the table can't be read as the columns' types."""
    fields = metadata.schema().map_fields_by_id()
    names = ", ".join(sorted(fields[field_id].name for field_id in replaced))
    raise UnsupportedError(
        "delta-type-changes",
        f"{path} was written before {names} got another type, one that Iceberg doesn't promote the old one to: rewrite "
        "the table in Delta first (in Spark: REORG TABLE ... APPLY (UPGRADE UNIFORM), or an overwrite)",
    )


def _can_read(before: Any, after: Any, version: int) -> bool:
    if isinstance(before, PrimitiveType) and isinstance(after, PrimitiveType):
        return can_promote(before, after, version)
    return type(before) is type(after)


def _find_spec(columns: TableColumns, specs: tuple[PartitionSpec, ...], last_field_id: int) -> PartitionSpec:
    """Find the spec of these partition columns: a known one, else a new one, with known field ids."""
    names = columns.schema.map_fields_by_id()
    known = {field.source_id: field.field_id for spec in specs for field in spec.fields}
    following = max(last_field_id, FIRST_PARTITION_FIELD_ID - 1)
    fields: list[PartitionField] = []
    for source_id in columns.partition_ids:
        if source_id not in known:
            following += 1
            known[source_id] = following
        fields.append(
            PartitionField(
                source_id=source_id, field_id=known[source_id], name=names[source_id].name, transform=_IDENTITY
            )
        )
    made = PartitionSpec(spec_id=max((s.spec_id for s in specs), default=-1) + 1, fields=tuple(fields))
    return next((spec for spec in specs if spec.same_as(made)), made)


def needs_version(schemas: Iterable[Schema], *, has_vectors: bool) -> int:
    """Return the format version that a table with these schemas needs; deletion vectors need version 3."""
    return max([ROW_LINEAGE_VERSION if has_vectors else 2, *(schema.find_lowest_version() for schema in schemas)])
