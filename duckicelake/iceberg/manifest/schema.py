"""Avro schemas of manifests and manifest lists in format versions 1 to 3, as Java writes them."""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from duckicelake.iceberg.model import Json
from duckicelake.iceberg.types import PrimitiveType, StructType
from duckicelake.iceberg.values import compute_fixed_size

PARTITION_RECORD: Final = "r102"
_ALL: Final = frozenset({1, 2, 3})
_FROM_2: Final = frozenset({2, 3})
_FROM_3: Final = frozenset({3})
_DELETES_REFERENCE: Final = "Fully qualified location (URI with FS scheme) of a data file that all deletes reference"


def _make_field(field_id: int, name: str, kind: Json, doc: str = "") -> dict[str, Json]:
    described = {"doc": doc} if doc else {}
    return {"name": name, "type": kind, **described, "field-id": field_id}


def _make_optional(field_id: int, name: str, kind: Json, doc: str = "") -> dict[str, Json]:
    return {**_make_field(field_id, name, ["null", kind], doc), "default": None}


def _make_list(element_id: int, items: Json) -> Json:
    return {"type": "array", "items": items, "element-id": element_id}


def _make_map(key_id: int, value_id: int, value: str) -> Json:
    pair = (_make_field(key_id, "key", "int"), _make_field(value_id, "value", value))
    record = {"type": "record", "name": f"k{key_id}_v{value_id}", "fields": list(pair)}
    return {"type": "array", "items": record, "logicalType": "map"}


_DATA_FILE: Final = (
    (
        _FROM_2,
        _make_field(134, "content", "int", "Contents of the file: 0=data, 1=position deletes, 2=equality deletes"),
    ),
    (_ALL, _make_field(100, "file_path", "string", "Location URI with FS scheme")),
    (_ALL, _make_field(101, "file_format", "string", "File format name: avro, orc, or parquet")),
    (_ALL, _make_field(102, "partition", None, "Partition data tuple, schema based on the partition spec")),
    (_ALL, _make_field(103, "record_count", "long", "Number of records in the file")),
    (_ALL, _make_field(104, "file_size_in_bytes", "long", "Total file size in bytes")),
    (frozenset({1}), _make_field(105, "block_size_in_bytes", "long")),
    (_ALL, _make_optional(108, "column_sizes", _make_map(117, 118, "long"), "Map of column id to total size on disk")),
    (
        _ALL,
        _make_optional(
            109, "value_counts", _make_map(119, 120, "long"), "Map of column id to total count, including null and NaN"
        ),
    ),
    (
        _ALL,
        _make_optional(110, "null_value_counts", _make_map(121, 122, "long"), "Map of column id to null value count"),
    ),
    (
        _ALL,
        _make_optional(
            137,
            "nan_value_counts",
            _make_map(138, 139, "long"),
            "Map of column id to number of NaN values in the column",
        ),
    ),
    (_ALL, _make_optional(125, "lower_bounds", _make_map(126, 127, "bytes"), "Map of column id to lower bound")),
    (_ALL, _make_optional(128, "upper_bounds", _make_map(129, 130, "bytes"), "Map of column id to upper bound")),
    (_ALL, _make_optional(131, "key_metadata", "bytes", "Encryption key metadata blob")),
    (_ALL, _make_optional(132, "split_offsets", _make_list(133, "long"), "Splittable offsets")),
    (_FROM_2, _make_optional(135, "equality_ids", _make_list(136, "int"), "Equality comparison field IDs")),
    (_ALL, _make_optional(140, "sort_order_id", "int", "Sort order ID")),
    (
        _FROM_3,
        _make_optional(142, "first_row_id", "long", "The first row ID assigned to the first row in the data file"),
    ),
    (_FROM_2, _make_optional(143, "referenced_data_file", "string", _DELETES_REFERENCE)),
    (_FROM_3, _make_optional(144, "content_offset", "long", "The offset in the file where the content starts")),
    (
        _FROM_3,
        _make_optional(145, "content_size_in_bytes", "long", "The length of referenced content stored in the file"),
    ),
)
_SUMMARY: Final = {
    "type": "record",
    "name": "r508",
    "fields": [
        _make_field(509, "contains_null", "boolean", "True if any file has a null partition value"),
        _make_optional(518, "contains_nan", "boolean", "True if any file has a nan partition value"),
        _make_optional(510, "lower_bound", "bytes", "Partition lower bound for all files"),
        _make_optional(511, "upper_bound", "bytes", "Partition upper bound for all files"),
    ],
}
_PARTITIONS: Final = _make_optional(507, "partitions", _make_list(508, _SUMMARY), "Summary for each partition")
_COUNTS: Final = {
    504: ("added_files_count", "int", "Added entry count"),
    505: ("existing_files_count", "int", "Existing entry count"),
    506: ("deleted_files_count", "int", "Deleted entry count"),
    512: ("added_rows_count", "long", "Added rows count"),
    513: ("existing_rows_count", "long", "Existing rows count"),
    514: ("deleted_rows_count", "long", "Deleted rows count"),
}
_FIRST_ROW_ID: Final = _make_optional(
    520, "first_row_id", "long", "Starting row ID to assign to new rows in ADDED data files"
)


def build_manifest_schema(format_version: int, partition_type: StructType) -> Json:
    """Build the Avro schema of a manifest's entries."""
    snapshot_id = _make_field if format_version == 1 else _make_optional
    numbers = (
        _make_optional(3, "sequence_number", "long"),
        _make_optional(4, "file_sequence_number", "long"),
    )
    fields = (
        _make_field(0, "status", "int"),
        snapshot_id(1, "snapshot_id", "long"),
        *(numbers if format_version > 1 else ()),
        _make_field(2, "data_file", _build_data_file(format_version, partition_type)),
    )
    return {"type": "record", "name": "manifest_entry", "fields": list(fields)}


@lru_cache(maxsize=3)
def build_manifest_list_schema(format_version: int) -> Json:
    """Build the Avro schema of a manifest list's lines."""
    counted = _make_optional if format_version == 1 else _make_field
    counts = {field_id: counted(field_id, *rest) for field_id, rest in _COUNTS.items()}
    rows = [counts[field_id] for field_id in (512, 513, 514)]
    numbers = (
        _make_field(517, "content", "int", "Contents of the manifest: 0=data, 1=deletes"),
        _make_field(515, "sequence_number", "long", "Sequence number when the manifest was added"),
        _make_field(516, "min_sequence_number", "long", "Lowest sequence number in the manifest"),
    )
    fields = (
        _make_field(500, "manifest_path", "string", "Location URI with FS scheme"),
        _make_field(501, "manifest_length", "long", "Total file size in bytes"),
        _make_field(502, "partition_spec_id", "int", "Spec ID used to write"),
        *(numbers if format_version > 1 else ()),
        _make_field(503, "added_snapshot_id", "long", "Snapshot ID that added the manifest"),
        *(counts[field_id] for field_id in (504, 505, 506)),
        *((_PARTITIONS, *rows) if format_version == 1 else (*rows, _PARTITIONS)),
        _make_optional(519, "key_metadata", "bytes", "Encryption key metadata blob"),
        *((_FIRST_ROW_ID,) if format_version > 2 else ()),
    )
    return {"type": "record", "name": "manifest_file", "fields": list(fields)}


def _build_data_file(format_version: int, partition_type: StructType) -> Json:
    partition = {"type": "record", "name": PARTITION_RECORD, "fields": list(_build_partition_fields(partition_type))}
    fields = [field for versions, field in _DATA_FILE if format_version in versions]
    return {
        "type": "record",
        "name": "r2",
        "fields": [{**field, "type": partition} if field["field-id"] == 102 else field for field in fields],
    }


def _build_partition_fields(partition_type: StructType) -> Iterator[dict[str, Json]]:
    names = _make_distinct((field.id, _escape_avro_name(field.name)) for field in partition_type.fields)
    types: set[str] = set()
    for field, name in zip(partition_type.fields, names, strict=True):
        renamed = {} if name == field.name else {"iceberg-field-name": field.name}
        assert isinstance(field.type, PrimitiveType), "partition values are primitives"
        kind = _map_partition_type(field.type)
        if isinstance(kind, dict) and "name" in kind:
            kind["name"] = kind["name"] if kind["name"] not in types else f"{kind['name']}_{field.id}"
            types.add(kind["name"])
        make = _make_field if kind == "null" else _make_optional
        yield make(field.id, name, kind) | renamed


def _make_distinct(names: Iterable[tuple[int, str]]) -> Iterator[str]:
    """Yield names that differ: a name that is taken gets its field id appended."""
    taken: set[str] = set()
    for field_id, name in names:
        distinct = f"{name}_{field_id}" if name in taken else name
        taken.add(distinct)
        yield distinct


def _escape_avro_name(name: str) -> str:
    """Escape characters that Avro doesn't allow in names as _x and their code, as the Java library does."""
    escaped = re.sub(r"[^A-Za-z0-9_]", lambda match: f"_x{ord(match[0]):X}", name)
    return f"_{escaped}" if escaped[:1].isdigit() else escaped


def _map_partition_type(kind: PrimitiveType) -> Json:
    match kind.name:
        case "decimal":
            precision, scale = kind.precision or 1, kind.scale or 0
            shape = {"type": "fixed", "name": f"decimal_{precision}_{scale}", "size": compute_fixed_size(precision)}
            return {**shape, "logicalType": "decimal", "precision": precision, "scale": scale}
        case "fixed":
            return {"type": "fixed", "name": f"fixed_{kind.length}", "size": kind.length}
    avro = kind.traits.avro
    return dict(avro) if isinstance(avro, dict) else avro
