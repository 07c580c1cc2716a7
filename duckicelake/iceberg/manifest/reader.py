"""Read manifests and manifest lists of any writer, resolved by field id."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from sys import intern
from typing import Any, Final, TypeAlias

import orjson

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.avro_decoder import (
    AvroReader,
    Container,
    compile_reader,
    decode_all,
    read_container,
    remember_records,
)
from duckicelake.iceberg.manifest.entry import (
    DataFile,
    EntryStatus,
    FieldSummary,
    FileContent,
    Manifest,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)
from duckicelake.iceberg.manifest.schema import build_manifest_list_schema, build_manifest_schema
from duckicelake.iceberg.types import StructType

AvroRow: TypeAlias = Mapping[int | str, Any]
_ENTRY: Final = compile_reader(build_manifest_schema(3, StructType(fields=())))
_LINE: Final = compile_reader(build_manifest_list_schema(3))
_ENTRY_NEEDS: Final = {0: "status", 2: "data_file"}
_FILE_NEEDS: Final = {
    100: "file_path",
    101: "file_format",
    102: "partition",
    103: "record_count",
    104: "file_size_in_bytes",
}
_LINE_NEEDS: Final = {500: "manifest_path", 501: "manifest_length", 502: "partition_spec_id", 503: "added_snapshot_id"}
_SUMMARY_NEEDS: Final = {509: "contains_null"}
_MAX_CACHED_BYTES: Final = 16 << 10
MAX_RECORDS: Final = 200_000
MAX_ITEMS: Final = 8_000_000
_PRIMITIVE_SHAPES: Final = frozenset({"null", "boolean", "integer", "float", "string", "bytes", "decimal", "uuid"})


Keep: TypeAlias = Callable[[Iterator[ManifestEntry]], Iterable[ManifestEntry]]


def read_manifest(data: bytes, keep: Keep = tuple) -> Manifest:
    """Read a manifest of format version 1, 2 or 3. InvalidRequestError: it is malformed.

    Entries have no inherited numbers: `inherit_all_numbers` fills them in.

    keep: collects the entries, which are made one by one.
    """
    try:
        return _read_manifest(data, keep)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"the manifest can't be read: {error}") from error


def read_manifest_list(data: bytes) -> tuple[ManifestFile, ...]:
    """Read a manifest list of format version 1, 2 or 3. InvalidRequestError: it is malformed."""
    try:
        return _read_manifest_list(data)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"the manifest list can't be read: {error}") from error


def _read_manifest(data: bytes, keep: Keep) -> Manifest:
    container = read_container(data)
    rows = _get_reader(container)
    _check_fields(rows, _ENTRY, _ENTRY_NEEDS)
    _check_fields(rows.fields[2], _ENTRY.fields[2], _FILE_NEEDS)
    partition = _read_partition_fields(rows.fields[2].fields[102])
    format_version = _read_format_version(container)
    return Manifest(
        format_version=format_version,
        content=_read_content(container, format_version),
        schema_id=_read_schema_id(container),
        spec_id=_read_number(container, "partition-spec-id", 0) if "partition-spec-id" in container.metadata else None,
        partition_fields=partition,
        entries=tuple(keep(map(_build_entry, _limit_items(decode_all(container, rows, MAX_RECORDS))))),
    )


def _read_manifest_list(data: bytes) -> tuple[ManifestFile, ...]:
    container = read_container(data)
    text = container.schema_text
    lines = (
        _get_line_cache(text) if len(text) <= _MAX_CACHED_BYTES else _make_line_reader(compile_reader(container.schema))
    )
    return tuple(decode_all(container, lines, MAX_RECORDS))


@lru_cache(maxsize=16)
def _get_line_cache(schema_text: bytes) -> AvroReader:
    return _make_line_reader(_compile_cached(schema_text))


def _make_line_reader(rows: AvroReader) -> AvroReader:
    """Make a reader of a list's lines that caches them: most lines of a list are those of the list before."""
    _check_fields(rows, _LINE, _LINE_NEEDS)
    if 507 in rows.fields:
        _check_fields(rows.fields[507], _LINE.fields[507], _SUMMARY_NEEDS)
    return remember_records(rows, _build_line)


def _get_reader(container: Container) -> AvroReader:
    """Compile the container's schema. Schemas of usual length are cached: a writer's files begin alike."""
    text = container.schema_text
    return _compile_cached(text) if len(text) <= _MAX_CACHED_BYTES else compile_reader(container.schema)


@lru_cache(maxsize=256)
def _compile_cached(schema_text: bytes) -> AvroReader:
    return compile_reader(Container(schema_text, {}, ()).schema)


def _limit_items(rows: Iterator[AvroRow]) -> Iterator[AvroRow]:
    """Yield the entries; InvalidRequestError at the limits of metrics and offsets.

    In memory these take thirty times their bytes.
    """
    items = 0
    for row in rows:
        file = row.get(2)
        if isinstance(file, dict):
            items += sum(len(value) for value in file.values() if isinstance(value, dict | tuple))
        if items > MAX_ITEMS:
            raise InvalidRequestError(f"its entries have more than {MAX_ITEMS} metrics, offsets and ids in all")
        yield row


def _check_fields(found: AvroReader, known: AvroReader, needed: Mapping[int, str]) -> None:
    """Check that needed fields exist and known ones have their type. Unknown fields are read and dropped."""
    for field_id, name in needed.items():
        if field_id not in found.fields:
            raise InvalidRequestError(f"its records have no field {field_id} ({name})")
    for key, expected in known.fields.items():
        actual = found.fields.get(key, expected)
        if actual.shape != expected.shape:
            raise InvalidRequestError(f"its field {key} is a {actual.shape}, not a {expected.shape}")


def _read_partition_fields(partition: AvroReader) -> tuple[int, ...]:
    for key, value in partition.fields.items():
        if not isinstance(key, int) or value.shape not in _PRIMITIVE_SHAPES:
            raise InvalidRequestError(f"its partition field {key!r} has no field-id or isn't a primitive")
    return tuple(key for key in partition.fields if isinstance(key, int))


def _read_format_version(container: Container) -> int:
    version = _read_number(container, "format-version", 1)
    if version not in {1, 2, 3}:
        raise InvalidRequestError(f"its format version is {version}; this server reads 1, 2 and 3")
    return version


def _read_schema_id(container: Container) -> int:
    if "schema-id" in container.metadata or "schema" not in container.metadata:
        return _read_number(container, "schema-id", 0)
    try:
        schema = orjson.loads(container.metadata["schema"])
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError("its header's schema isn't JSON") from error
    schema_id = schema.get("schema-id", 0) if isinstance(schema, dict) else 0
    return schema_id if isinstance(schema_id, int) else 0


def _read_number(container: Container, key: str, default: int) -> int:
    text = container.metadata.get(key, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 11):
        raise InvalidRequestError(f"its header's {key} is {text[:40]!r}, not a number")
    return int(text)


def _read_content(container: Container, format_version: int) -> ManifestContent | None:
    match container.metadata.get("content"):
        case None:
            return ManifestContent.DATA if format_version == 1 else None
        case "data":
            return ManifestContent.DATA
        case "deletes":
            return ManifestContent.DELETES
        case other:
            raise InvalidRequestError(f"its content is {other[:40]!r}, not data or deletes")


def _require_fields(row: AvroRow, needed: Mapping[int, str]) -> tuple[Any, ...]:
    values = tuple(row[field_id] for field_id in needed)
    if None in values:
        raise InvalidRequestError(f"{list(needed.values())[values.index(None)]} of a record is null")
    return values


def _parse_member(kind: Any, value: int | None) -> Any:
    try:
        return kind(value or 0)
    except ValueError as error:
        raise InvalidRequestError(f"{value} isn't a {kind.__name__}") from error


def _build_entry(row: AvroRow) -> ManifestEntry:
    status, file = _require_fields(row, _ENTRY_NEEDS)
    return ManifestEntry(_parse_member(EntryStatus, status), row.get(1), row.get(3), row.get(4), _build_data_file(file))


def _build_data_file(row: AvroRow) -> DataFile:
    path, file_format, partition, record_count, size = _require_fields(row, _FILE_NEEDS)
    for name in (path, row.get(143) or path):
        if not name or "\0" in name:
            raise InvalidRequestError(f"{name!r} isn't the name of a file")
    if record_count < 0 or size < 0:
        raise InvalidRequestError(f"a file {path!r} has {record_count} records in {size} bytes")
    get = row.get
    return DataFile(
        content=_parse_member(FileContent, get(134)),
        file_path=path,
        file_format=intern(file_format.upper()),
        partition=tuple(partition.values()),
        record_count=record_count,
        file_size_in_bytes=size,
        column_sizes=get(108),
        value_counts=get(109),
        null_value_counts=get(110),
        nan_value_counts=get(137),
        lower_bounds=get(125),
        upper_bounds=get(128),
        key_metadata=get(131),
        split_offsets=get(132),
        equality_ids=get(135),
        sort_order_id=get(140),
        first_row_id=get(142),
        referenced_data_file=get(143),
        content_offset=get(144),
        content_size_in_bytes=get(145),
    )


def _build_line(row: AvroRow) -> ManifestFile:
    path, length, spec_id, snapshot_id = _require_fields(row, _LINE_NEEDS)
    if not path or "\0" in path or length < 0:
        raise InvalidRequestError(f"a manifest {path!r} has {length} bytes")
    get = row.get
    summaries = get(507)
    return ManifestFile(
        manifest_path=path,
        manifest_length=length,
        partition_spec_id=spec_id,
        content=_parse_member(ManifestContent, get(517)),
        sequence_number=get(515) or 0,
        min_sequence_number=get(516) or 0,
        added_snapshot_id=snapshot_id,
        added_files_count=get(504),
        existing_files_count=get(505),
        deleted_files_count=get(506),
        added_rows_count=get(512),
        existing_rows_count=get(513),
        deleted_rows_count=get(514),
        partitions=None if summaries is None else tuple(_build_summary(summary) for summary in summaries),
        key_metadata=get(519),
        first_row_id=get(520),
    )


def _build_summary(row: AvroRow) -> FieldSummary:
    (contains_null,) = _require_fields(row, _SUMMARY_NEEDS)
    return FieldSummary(contains_null, row.get(518), row.get(510), row.get(511))
