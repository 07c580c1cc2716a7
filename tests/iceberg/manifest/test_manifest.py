import io
import json
import math
import random
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pyiceberg.manifest as oracle
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import PartitionSpec as OracleSpec
from pyiceberg.schema import Schema as OracleSchema
from pyiceberg.typedef import Record
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.manifest.entry import (
    UNASSIGNED,
    DataFile,
    EntryStatus,
    FieldSummary,
    FileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    inherit_all_numbers,
    inherit_numbers,
)
from duckicelake.iceberg.manifest.reader import read_manifest, read_manifest_list
from duckicelake.iceberg.manifest.writer import (
    assign_row_ids,
    summarize_partitions,
    write_manifest,
    write_manifest_list,
)
from duckicelake.iceberg.partition import PartitionSpec, build_partition_type
from duckicelake.iceberg.schema import Schema

# type, transform, two values of the partition field
PARTITIONS: dict[str, tuple[str, str, Any, Any]] = {
    "boolean": ("boolean", "identity", True, False),
    "int": ("int", "identity", -(2**31), 2**31 - 1),
    "long": ("long", "identity", -(2**63), 2**63 - 1),
    "float": ("float", "identity", 1.5, -0.25),
    "double": ("double", "identity", 2.0**-40, -(2.0**100)),  # PyIceberg reads doubles through a C float
    "date": ("date", "identity", 20_000, -1),
    "time": ("time", "identity", 0, 86_399_999_999),
    "timestamp": ("timestamp", "identity", 1_700_000_000_123_456, -1),
    "timestamptz": ("timestamptz", "identity", 1_700_000_000_123_456, -1),
    "string": ("string", "identity", "", "naïve 🦆"),
    "uuid": ("uuid", "identity", UUID(int=1), UUID(int=2**128 - 1)),
    "fixed": ("fixed[3]", "identity", b"abc", b"\x00\xff\x80"),
    "binary": ("binary", "identity", b"", b"\x00\xff"),
    "decimal": ("decimal(9, 2)", "identity", Decimal("-1234567.89"), Decimal("0.01")),
    "wide decimal": ("decimal(38, 0)", "identity", Decimal(10**38 - 1), Decimal(-(10**38) + 1)),
    "bucket": ("string", "bucket[16]", 0, 15),
    "truncate": ("string", "truncate[4]", "abcd", "é"),
    "year": ("date", "year", 50, -1),
    "month": ("timestamp", "month", 600, -1),
    "day": ("timestamptz", "day", 19_000, -1),
    "hour": ("timestamp", "hour", 450_000, -1),
}
PARTITIONS_BEYOND_PYICEBERG = {
    "double": ("double", "identity", 0.1, -1e300),
    "timestamp_ns": ("timestamp_ns", "identity", 1_700_000_000_123_456_789, -1),
    "timestamptz_ns": ("timestamptz_ns", "identity", 1_700_000_000_123_456_789, -1),
}


def schema_json(*types: str) -> dict[str, Any]:
    fields = [
        {"id": number, "name": f"column {number}", "required": False, "type": kind}
        for number, kind in enumerate(types, start=1)
    ]
    return {"type": "struct", "schema-id": 4, "fields": fields}


def spec_json(*transforms: str) -> dict[str, Any]:
    fields = [
        {"source-id": number, "field-id": 999 + number, "name": f"part-{number}", "transform": transform}
        for number, transform in enumerate(transforms, start=1)
    ]
    return {"spec-id": 3, "fields": fields}


def schema_and_spec(*cases: tuple[str, str, Any, Any]) -> tuple[Schema, PartitionSpec]:
    types, transforms = [case[0] for case in cases], [case[1] for case in cases]
    return Schema.model_validate(schema_json(*types)), PartitionSpec.model_validate(spec_json(*transforms))


def data_file(partition: tuple[Any, ...] = (), **changes: Any) -> DataFile:
    file = DataFile(
        content=FileContent.DATA,
        file_path="s3://b/t/data/é 1.parquet",
        file_format="PARQUET",
        partition=partition,
        record_count=100,
        file_size_in_bytes=2**40,
        column_sizes={1: 10, 2: 2**35},
        value_counts={1: 100, 2: 100},
        null_value_counts={1: 0, 2: 100},
        nan_value_counts={2: 1},
        lower_bounds={1: b"\x00", 2: b""},
        upper_bounds={1: b"\xff" * 300},
        key_metadata=b"key",
        split_offsets=(4, 2**33),
        sort_order_id=0,
    )
    return replace(file, **changes)


BARE = {
    "column_sizes": None,
    "value_counts": None,
    "null_value_counts": None,
    "nan_value_counts": {},
    "lower_bounds": None,
    "upper_bounds": {},
    "key_metadata": None,
    "split_offsets": None,
    "sort_order_id": None,
}


def entries_of(first: tuple[Any, ...], second: tuple[Any, ...]) -> tuple[ManifestEntry, ...]:
    return (
        ManifestEntry(EntryStatus.ADDED, 7, None, None, data_file(first)),
        ManifestEntry(EntryStatus.EXISTING, 2**62, 3, 2, data_file(second, **BARE)),
        ManifestEntry(EntryStatus.DELETED, 7, 1, 1, data_file((None,) * len(first), file_path="/gone")),
    )


def as_stored(entry: ManifestEntry, format_version: int) -> ManifestEntry:
    """The entry without what the version's files don't hold."""
    return replace(entry, sequence_number=None, file_sequence_number=None) if format_version == 1 else entry


def oracle_manifest(path: Path, **changes: Any) -> Any:
    fields: dict[str, Any] = {
        "manifest_path": str(path),
        "manifest_length": path.stat().st_size,
        "partition_spec_id": 3,
        "content": oracle.ManifestContent.DATA,
        "sequence_number": 9,
        "min_sequence_number": 1,
        "added_snapshot_id": 7,
        "added_files_count": 1,
        "existing_files_count": 1,
        "deleted_files_count": 1,
        "added_rows_count": 100,
        "existing_rows_count": 100,
        "deleted_rows_count": 100,
        "partitions": None,
        "key_metadata": None,
    }
    return oracle.ManifestFile.from_args(_table_format_version=2, **(fields | changes))


def assert_same_file(ours: DataFile, theirs: Any) -> None:
    assert theirs.content == int(ours.content)
    assert theirs.file_format.value == ours.file_format
    partition = [theirs.partition[position] for position in range(len(theirs.partition))]
    assert in_uuid_bytes(partition) == in_uuid_bytes(ours.partition)
    names = ["file_path", "record_count", "file_size_in_bytes", "column_sizes", "value_counts", "null_value_counts"]
    names += ["nan_value_counts", "lower_bounds", "upper_bounds", "key_metadata", "sort_order_id"]
    for name in names:
        assert getattr(theirs, name) == getattr(ours, name), name
    for name in ("split_offsets", "equality_ids"):
        theirs_list, ours_tuple = getattr(theirs, name), getattr(ours, name)
        assert (None if theirs_list is None else tuple(theirs_list)) == ours_tuple, name


def in_uuid_bytes(values: Iterable[Any]) -> tuple[Any, ...]:
    """PyIceberg gives uuids in partitions as bytes or as UUID."""
    return tuple(value.bytes if isinstance(value, UUID) else value for value in values)


@pytest.mark.parametrize("format_version", [1, 2, 3])
@pytest.mark.parametrize("case", [*PARTITIONS, "all of them", "unpartitioned"])
def test_pyiceberg_reads_our_manifest(tmp_path: Path, case: str, format_version: int) -> None:
    cases = [PARTITIONS[case]] if case in PARTITIONS else list(PARTITIONS.values()) * (case == "all of them")
    schema, spec = schema_and_spec(*cases)
    ours = entries_of(tuple(each[2] for each in cases), tuple(each[3] for each in cases))
    path = tmp_path / "m.avro"
    path.write_bytes(
        write_manifest(
            format_version=format_version, content=ManifestContent.DATA, schema=schema, spec=spec, entries=ours
        )
    )
    theirs = oracle_manifest(path).fetch_manifest_entry(PyArrowFileIO(), discard_deleted=False)
    assert len(theirs) == 3
    for mine, their in zip(ours, theirs, strict=True):
        assert (their.status.value, their.snapshot_id) == (mine.status, mine.snapshot_id)
        assert_same_file(mine.data_file, their.data_file)
        if format_version > 1:
            assert their.sequence_number == (9 if mine.sequence_number is None else mine.sequence_number)


@pytest.mark.parametrize("format_version", [1, 2, 3])
@pytest.mark.parametrize("case", [*PARTITIONS, *(f"{name}!" for name in PARTITIONS_BEYOND_PYICEBERG)])
def test_manifest_is_read_back(case: str, format_version: int) -> None:
    one = PARTITIONS_BEYOND_PYICEBERG[case[:-1]] if case.endswith("!") else PARTITIONS[case]
    schema, spec = schema_and_spec(one, one)
    ours = entries_of((one[2], one[3]), (one[3], None))
    data = write_manifest(
        format_version=format_version, content=ManifestContent.DATA, schema=schema, spec=spec, entries=ours
    )
    manifest = read_manifest(data)
    assert manifest.entries == tuple(as_stored(entry, format_version) for entry in ours)
    assert (manifest.format_version, manifest.content) == (format_version, ManifestContent.DATA)
    assert (manifest.schema_id, manifest.spec_id, manifest.partition_fields) == (4, 3, (1000, 1001))
    assert read_manifest(data.replace(b"partition-spec-id", b"partition_spec_id")) == replace(manifest, spec_id=None)
    values = [type(value) for value in manifest.entries[0].data_file.partition]
    assert values == [type(one[2]), type(one[3])]


def oracle_file(partition: tuple[Any, ...], **changes: Any) -> Any:
    ours = data_file(partition)
    names = ["file_path", "record_count", "file_size_in_bytes", "column_sizes", "value_counts", "null_value_counts"]
    names += ["nan_value_counts", "lower_bounds", "upper_bounds", "key_metadata", "sort_order_id"]
    fields: dict[str, Any] = {name: getattr(ours, name) for name in names}
    fields |= {"content": oracle.DataFileContent.DATA, "file_format": oracle.FileFormat.PARQUET}
    fields |= {"partition": Record(*partition), "split_offsets": [4, 2**33], "equality_ids": None}
    return oracle.DataFile.from_args(**(fields | changes))


@pytest.mark.parametrize("format_version", [1, 2])
@pytest.mark.parametrize("compression", ["null", "deflate"])
@pytest.mark.parametrize("case", [*PARTITIONS, "two uuids", "unpartitioned"])
def test_we_read_what_pyiceberg_writes(tmp_path: Path, case: str, format_version: Any, compression: Any) -> None:
    cases = [PARTITIONS[case]] if case in PARTITIONS else [PARTITIONS["uuid"]] * 2 * (case == "two uuids")
    first, second = tuple(each[2] for each in cases), tuple(each[3] for each in cases)
    schema = OracleSchema.model_validate(schema_json(*(each[0].replace(" ", "") for each in cases)))
    spec = OracleSpec.model_validate(spec_json(*(each[1] for each in cases)))
    output = PyArrowFileIO().new_output(str(tmp_path / "m.avro"))
    with oracle.write_manifest(format_version, spec, schema, output, 7, compression) as writer:
        for partition, changes in ((first, {}), (second, BARE)):
            file = oracle_file(partition, **changes)
            writer.add(
                oracle.ManifestEntry.from_args(
                    status=oracle.ManifestEntryStatus.ADDED,
                    snapshot_id=7,
                    sequence_number=5,
                    file_sequence_number=None,
                    data_file=file,
                )
            )
    manifest = read_manifest((tmp_path / "m.avro").read_bytes())
    assert (manifest.format_version, manifest.spec_id, manifest.schema_id) == (format_version, 3, 4)
    entries = (
        ManifestEntry(EntryStatus.ADDED, 7, 5, None, data_file(first)),
        ManifestEntry(EntryStatus.ADDED, 7, 5, None, data_file(second, **BARE)),
    )
    assert manifest.entries == tuple(as_stored(entry, format_version) for entry in entries)


LINE = ManifestFile(
    manifest_path="s3://b/t/metadata/é-m0.avro",
    manifest_length=2**33,
    partition_spec_id=3,
    content=ManifestContent.DATA,
    sequence_number=9,
    min_sequence_number=2,
    added_snapshot_id=7,
    added_files_count=1,
    existing_files_count=2,
    deleted_files_count=3,
    added_rows_count=2**40,
    existing_rows_count=5,
    deleted_rows_count=6,
    partitions=(FieldSummary(True, False, b"\x00", b"\xff"), FieldSummary(False)),
    key_metadata=b"key",
)
LINES = (LINE, replace(LINE, manifest_path="/second", partitions=None, key_metadata=None))
DELETES = replace(LINE, manifest_path="/deletes", content=ManifestContent.DELETES)


def write_list(format_version: int, *lines: ManifestFile, first_row_id: int | None = None) -> bytes:
    return write_manifest_list(
        format_version=format_version,
        snapshot_id=7,
        parent_snapshot_id=6,
        sequence_number=9,
        manifests=lines,
        first_row_id=first_row_id,
    )


def assert_same_line(ours: ManifestFile, theirs: Any, format_version: int) -> None:
    names = ["manifest_path", "manifest_length", "partition_spec_id", "added_snapshot_id", "key_metadata"]
    names += [f"{kind}_{what}_count" for kind in ("added", "existing", "deleted") for what in ("files", "rows")]
    if format_version > 1:
        names += ["sequence_number", "min_sequence_number"]
        assert theirs.content.value == ours.content
    for name in names:
        assert getattr(theirs, name) == getattr(ours, name), name
    if ours.partitions is None:
        assert theirs.partitions is None
    else:
        for mine, their in zip(ours.partitions, theirs.partitions, strict=True):
            found = (their.contains_null, their.contains_nan, their.lower_bound, their.upper_bound)
            assert found == (mine.contains_null, mine.contains_nan, mine.lower_bound, mine.upper_bound)


@pytest.mark.parametrize("format_version", [1, 2, 3])
def test_pyiceberg_reads_our_manifest_list(tmp_path: Path, format_version: int) -> None:
    lines = (*LINES, DELETES) if format_version > 1 else LINES
    path = tmp_path / "list.avro"
    path.write_bytes(write_list(format_version, *lines, first_row_id=1000 if format_version > 2 else None))
    theirs = list(oracle.read_manifest_list(PyArrowFileIO().new_input(str(path))))
    for mine, their in zip(lines, theirs, strict=True):
        assert_same_line(mine, their, format_version)


@pytest.mark.parametrize("format_version", [1, 2])
def test_we_read_the_manifest_list_that_pyiceberg_writes(tmp_path: Path, format_version: Any) -> None:
    path = tmp_path / "list.avro"
    path.write_bytes(b"")
    summary = oracle.PartitionFieldSummary.from_args
    theirs = [
        oracle_manifest(path, partitions=[summary(contains_null=True, contains_nan=False, lower_bound=b"a")]),
        oracle_manifest(path, manifest_path="/deletes"),
    ]
    output = PyArrowFileIO().new_output(str(path))
    with oracle.write_manifest_list(format_version, output, 7, None, 9, "deflate") as writer:
        writer.add_manifests(theirs)
    ours = read_manifest_list(path.read_bytes())
    assert [line.manifest_path for line in ours] == [str(path), "/deletes"]
    assert ours[0].partitions == (FieldSummary(True, False, b"a", None),)
    for mine, their in zip(ours, theirs, strict=True):
        assert_same_line(mine, their, format_version)


@pytest.mark.parametrize("format_version", [2, 3])
def test_manifest_list_is_read_back(format_version: int) -> None:
    line = replace(LINE, first_row_id=77 if format_version == 3 else None)
    assert read_manifest_list(write_list(format_version, line, DELETES)) == (line, DELETES)
    assert read_manifest_list(write_list(format_version)) == ()


def test_line_of_a_path_that_was_read_before_says_what_it_says_now() -> None:
    others = [
        replace(LINE, manifest_length=LINE.manifest_length + 1),
        replace(LINE, manifest_path=f"{LINE.manifest_path}2"),
        replace(LINE, manifest_path=LINE.manifest_path[:-1]),
        replace(LINE, partitions=None),
        replace(LINE, key_metadata=b"other"),
        LINE,
    ]
    for line in others:
        assert read_manifest_list(write_list(2, LINE, line, DELETES)) == (LINE, line, DELETES)
        assert read_manifest_list(write_list(2, line)) == (line,)


def test_version_1_list_is_read_with_the_specs_defaults() -> None:
    counts = {f"{kind}_{what}_count": None for kind in ("added", "existing", "deleted") for what in ("files", "rows")}
    line = replace(LINE, **counts)
    assert read_manifest_list(write_list(1, line)) == (replace(line, sequence_number=0, min_sequence_number=0),)


def test_list_gives_unassigned_manifests_the_snapshots_sequence_number() -> None:
    new = replace(LINE, sequence_number=UNASSIGNED, min_sequence_number=UNASSIGNED)
    carried = replace(new, min_sequence_number=4)
    written = read_manifest_list(write_list(2, new, carried))
    assert [(line.sequence_number, line.min_sequence_number) for line in written] == [(9, 9), (9, 4)]
    with pytest.raises(InvalidRequestError, match="of snapshot 8 has no sequence number"):
        write_list(2, replace(new, added_snapshot_id=8))


def test_version_3_list_assigns_row_ids_to_data_manifests_in_order() -> None:
    known = replace(LINE, first_row_id=3)
    small = replace(LINE, added_rows_count=10, existing_rows_count=5)
    lines, next_row_id = assign_row_ids((small, DELETES, known, small), 1000)
    assert [line.first_row_id for line in lines] == [1000, None, 3, 1015]
    assert next_row_id == 1030
    assert read_manifest_list(write_list(3, small, DELETES, known, small, first_row_id=1000)) == lines


DELETE_FILES = (
    data_file(content=FileContent.EQUALITY_DELETES, equality_ids=(1, 2), file_path="/eq"),
    data_file(content=FileContent.POSITION_DELETES, referenced_data_file="/data", file_path="/pos"),
)
VECTOR = data_file(
    content=FileContent.POSITION_DELETES,
    file_format="PUFFIN",
    referenced_data_file="/data",
    content_offset=4,
    content_size_in_bytes=44,
    file_path="/dv",
)


CONTENT = (b"\x0econtent", b"\x0enothing")
"""Makes the content in a manifest's header one that no one knows."""


@pytest.mark.parametrize("format_version", [2, 3])
def test_fastavro_reads_our_delete_manifest(format_version: int) -> None:
    schema, spec = schema_and_spec()
    files = (*DELETE_FILES, VECTOR) if format_version == 3 else DELETE_FILES
    entries = tuple(ManifestEntry(EntryStatus.ADDED, 7, None, None, file) for file in files)
    data = write_manifest(
        format_version=format_version, content=ManifestContent.DELETES, schema=schema, spec=spec, entries=entries
    )
    assert read_manifest(data).entries == entries
    assert read_manifest(data).content is ManifestContent.DELETES
    assert read_manifest(data.replace(*CONTENT)).content is None
    avro = fastavro.reader(io.BytesIO(data))
    assert avro.metadata["content"] == "deletes"
    rows = [row["data_file"] for row in avro]
    assert [row["equality_ids"] for row in rows][:2] == [[1, 2], None]
    assert [row["referenced_data_file"] for row in rows][:2] == [None, "/data"]
    if format_version == 3:
        assert (rows[2]["file_format"], rows[2]["content_offset"], rows[2]["content_size_in_bytes"]) == (
            "PUFFIN",
            4,
            44,
        )
        assert rows[2]["first_row_id"] is None


def test_version_3_manifest_keeps_row_ids() -> None:
    schema, spec = schema_and_spec()
    entry = ManifestEntry(EntryStatus.ADDED, 7, None, None, data_file(first_row_id=2**50))
    data = write_manifest(format_version=3, content=ManifestContent.DATA, schema=schema, spec=spec, entries=[entry])
    assert read_manifest(data).entries == (entry,)


@pytest.mark.parametrize("format_version", [1, 2])
def test_manifest_before_version_3_leaves_row_ids_out(format_version: int) -> None:
    schema, spec = schema_and_spec()

    def write(file: DataFile) -> bytes:
        entry = ManifestEntry(EntryStatus.ADDED, 7, None, None, file)
        return write_manifest(
            format_version=format_version, content=ManifestContent.DATA, schema=schema, spec=spec, entries=[entry]
        )

    assert write(data_file(first_row_id=2**50)) == write(data_file())


def avro_header(data: bytes) -> tuple[Any, dict[str, str]]:
    avro: Any = fastavro.reader(io.BytesIO(data))
    return json.loads(avro.metadata["avro.schema"]), avro.metadata


def test_manifest_header_has_the_specs_keys() -> None:
    schema, spec = schema_and_spec(PARTITIONS["int"])
    keys = {}
    for version in (1, 2, 3):
        data = write_manifest(
            format_version=version, content=ManifestContent.DATA, schema=schema, spec=spec, entries=[]
        )
        keys[version] = avro_header(data)[1]
    found = keys[2]
    assert json.loads(found["schema"]) == schema_json("int")
    assert json.loads(found["partition-spec"]) == spec_json("identity")["fields"]
    assert [found[key] for key in ("schema-id", "partition-spec-id", "format-version", "content")] == [
        "4",
        "3",
        "2",
        "data",
    ]
    assert "content" not in keys[1]
    assert keys[3]["format-version"] == "3"


def test_manifest_list_header_has_the_keys_that_java_writes() -> None:
    assert {
        key: value for key, value in avro_header(write_list(3, first_row_id=5))[1].items() if key[:4] != "avro"
    } == {
        "snapshot-id": "7",
        "parent-snapshot-id": "6",
        "sequence-number": "9",
        "first-row-id": "5",
        "format-version": "3",
    }
    assert "sequence-number" not in avro_header(write_list(1))[1]


@pytest.mark.parametrize("format_version", [1, 2, 3])
def test_manifest_schema_is_pyicebergs_field_for_field(format_version: Any) -> None:
    schema, spec = schema_and_spec(*PARTITIONS.values())
    data = write_manifest(
        format_version=format_version, content=ManifestContent.DATA, schema=schema, spec=spec, entries=[]
    )
    ours = AvroSchemaConversion().avro_to_iceberg(avro_header(data)[0])
    oracle_schema = OracleSchema.model_validate(
        schema_json(*(case[0].replace(" ", "") for case in PARTITIONS.values()))
    )
    oracle_spec = OracleSpec.model_validate(spec_json(*(case[1] for case in PARTITIONS.values())))
    theirs = oracle.manifest_entry_schema_with_data_file(
        format_version,
        oracle.data_file_with_partition(oracle_spec.partition_type(oracle_schema), format_version),
    )
    assert flat(ours) == flat(theirs)


def test_manifest_list_schema_is_pyicebergs_field_for_field() -> None:
    for version in (1, 2, 3):
        ours = AvroSchemaConversion().avro_to_iceberg(avro_header(write_list(version))[0])
        assert flat(ours) == flat(oracle.MANIFEST_LIST_FILE_SCHEMAS[version])


ORACLE_DIFFERS = {
    136: "the spec has equality ids as int, PyIceberg as long",
    143: "PyIceberg's version 2 lacks it, the spec has it",
    520: "PyIceberg's version 3 list lacks it",
}


def flat(schema: Any) -> dict[int, tuple[str, str, bool]]:
    """Id -> name, type, required of every field at any depth."""
    found = {}

    def visit(field_id: int, name: str, kind: Any, required: bool) -> None:
        nested = kind.is_struct or type(kind).__name__ in {"ListType", "MapType"}
        found[field_id] = (name, type(kind).__name__ if nested else str(kind), required)
        for field in getattr(kind, "fields", ()):
            visit(field.field_id, field.name.replace("-", "_x2D"), field.field_type, field.required)

    visit(-1, "", schema.as_struct(), True)
    for field_id in list(ORACLE_DIFFERS):
        found.pop(field_id, None)
    return found


def test_awkward_partition_names_are_escaped_and_kept_apart() -> None:
    fields = [
        {"source-id": 1, "field-id": 1000 + number, "name": name, "transform": "identity"}
        for number, name in enumerate(["1st", "a-b", "a_x2Db", "ü"])
    ]
    schema, _ = schema_and_spec(PARTITIONS["uuid"])
    spec = PartitionSpec.model_validate({"spec-id": 0, "fields": fields})
    data = write_manifest(format_version=2, content=ManifestContent.DATA, schema=schema, spec=spec, entries=[])
    file = avro_header(data)[0]["fields"][-1]["type"]["fields"]
    partition = next(field for field in file if field["name"] == "partition")["type"]["fields"]
    assert [field["name"] for field in partition] == ["_1st", "a_x2Db", "a_x2Db_1002", "_xFC"]
    assert [field.get("iceberg-field-name") for field in partition] == ["1st", "a-b", "a_x2Db", "ü"]
    types = [field["type"][1]["name"] for field in partition]
    assert types == ["uuid_fixed", "uuid_fixed_1001", "uuid_fixed_1002", "uuid_fixed_1003"]


def test_partition_of_a_dropped_source_column_is_null(tmp_path: Path) -> None:
    spec = PartitionSpec.model_validate(spec_json("identity", "void"))
    schema = Schema.model_validate(schema_json())
    entry = ManifestEntry(EntryStatus.ADDED, 7, None, None, data_file((None, None)))
    data = write_manifest(format_version=2, content=ManifestContent.DATA, schema=schema, spec=spec, entries=[entry])
    assert read_manifest(data).entries == (entry,)
    (tmp_path / "m.avro").write_bytes(data)
    theirs = oracle_manifest(tmp_path / "m.avro").fetch_manifest_entry(PyArrowFileIO())
    assert theirs[0].data_file.file_path == entry.data_file.file_path


def sample() -> bytes:
    cases = list(PARTITIONS.values())
    schema, spec = schema_and_spec(*cases)
    entries = entries_of(tuple(each[2] for each in cases), tuple(each[3] for each in cases))
    return write_manifest(format_version=2, content=ManifestContent.DATA, schema=schema, spec=spec, entries=entries)


def test_same_values_give_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    assert sample() == sample()
    command = (
        "import importlib.util, sys; spec = importlib.util.spec_from_file_location('samples', sys.argv[1]);"
        "module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module);"
        "sys.stdout.write(module.sample().hex())"
    )
    path = f"{Path(__file__).parents[3]}"
    other = subprocess.run(
        [sys.executable, "-c", command, __file__],
        env={"PYTHONHASHSEED": "1", "PYTHONPATH": path},
        capture_output=True,
        check=True,
        timeout=120,
    )
    assert bytes.fromhex(other.stdout.decode()) == sample()


def test_order_in_which_metrics_were_collected_does_not_change_the_bytes() -> None:
    schema, spec = schema_and_spec()

    def write(file: DataFile) -> bytes:
        entry = ManifestEntry(EntryStatus.ADDED, 7, None, None, file)
        return write_manifest(format_version=2, content=ManifestContent.DATA, schema=schema, spec=spec, entries=[entry])

    turned = dict(reversed((data_file().column_sizes or {}).items()))
    assert write(data_file()) == write(data_file(column_sizes=turned))


def test_many_entries_go_into_several_blocks() -> None:
    schema, spec = schema_and_spec()
    entries = tuple(
        ManifestEntry(EntryStatus.ADDED, 7, None, None, data_file(file_path=f"/{number}" + "x" * 1000))
        for number in range(3000)
    )
    data = write_manifest(format_version=2, content=ManifestContent.DATA, schema=schema, spec=spec, entries=entries)
    assert read_manifest(data).entries == entries
    assert len(list(fastavro.block_reader(io.BytesIO(data)))) > 2


def write_one(format_version: int, content: ManifestContent, entry: ManifestEntry, *cases: Any) -> bytes:
    schema, spec = schema_and_spec(*cases)
    return write_manifest(format_version=format_version, content=content, schema=schema, spec=spec, entries=[entry])


ADDED = ManifestEntry(EntryStatus.ADDED, 7, None, None, data_file())


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda: write_one(2, ManifestContent.DELETES, ADDED), "a file of DATA in a manifest of DELETES"),
        (lambda: write_one(2, ManifestContent.DATA, replace(ADDED, status=EntryStatus.DELETED)), "sequence numbers"),
        (lambda: write_one(1, ManifestContent.DATA, replace(ADDED, snapshot_id=None)), "doesn't fit"),
        (lambda: write_one(2, ManifestContent.DATA, ADDED, PARTITIONS["int"]), "doesn't fit"),
        (
            lambda: write_one(1, ManifestContent.DELETES, replace(ADDED, data_file=replace(VECTOR, partition=()))),
            "no delete files",
        ),
        (lambda: write_list(1, DELETES), "no delete manifests"),
        (lambda: write_list(2, replace(LINE, added_files_count=None)), "doesn't fit"),
        (lambda: write_list(2, replace(LINE, manifest_length=2**64)), "64 bits"),
    ],
)
def test_what_does_not_belong_is_not_written(write: Callable[[], bytes], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        write()


@pytest.mark.parametrize("case", [case for case in PARTITIONS if case != "boolean"])
def test_partition_value_of_another_type_is_not_written(case: str) -> None:
    wrong: Any = "text" if not isinstance(PARTITIONS[case][2], str) else 5
    with pytest.raises(InvalidRequestError, match="doesn't fit"):
        write_one(2, ManifestContent.DATA, replace(ADDED, data_file=data_file((wrong,))), PARTITIONS[case])


def test_only_added_files_inherit_sequence_numbers() -> None:
    added = ManifestEntry(EntryStatus.ADDED, None, None, None, data_file())
    existing = replace(added, status=EntryStatus.EXISTING)
    explicit = ManifestEntry(EntryStatus.ADDED, 1, 2, 3, data_file())
    assert inherit_numbers(added, LINE) == ManifestEntry(EntryStatus.ADDED, 7, 9, 9, data_file())
    assert inherit_numbers(existing, LINE) == ManifestEntry(EntryStatus.EXISTING, 7, None, None, data_file())
    assert inherit_numbers(explicit, LINE) == explicit
    version_1 = replace(LINE, sequence_number=0)
    assert inherit_numbers(existing, version_1) == ManifestEntry(EntryStatus.EXISTING, 7, 0, 0, data_file())


def test_live_files_inherit_row_ids_in_order() -> None:
    schema, spec = schema_and_spec()
    known = replace(ADDED, data_file=data_file(first_row_id=5))
    deleted = ManifestEntry(EntryStatus.DELETED, 7, 1, 1, data_file())
    existing = replace(deleted, status=EntryStatus.EXISTING)
    manifest = read_manifest(
        write_manifest(
            format_version=3,
            content=ManifestContent.DATA,
            schema=schema,
            spec=spec,
            entries=[ADDED, known, deleted, existing],
        )
    )
    with_ids = inherit_all_numbers(manifest.entries, replace(LINE, first_row_id=1000))
    assert [entry.data_file.first_row_id for entry in with_ids] == [1000, 5, None, 1100]
    assert [entry.data_file.first_row_id for entry in inherit_all_numbers(manifest.entries, LINE)] == [None] * 4


@pytest.mark.parametrize("case", [case for case in PARTITIONS if case != "uuid"])
def test_partition_summary_is_pyicebergs(case: str) -> None:
    kind, transform, one, other = PARTITIONS[case]
    schema, spec = schema_and_spec(PARTITIONS[case])
    rows: list[tuple[Any, ...]] = [(one,), (None,), (other,), (one,)]
    theirs = oracle.construct_partition_summaries(
        OracleSpec.model_validate(spec_json(transform)),
        OracleSchema.model_validate(schema_json(kind.replace(" ", ""))),
        [Record(*row) for row in rows],
    )
    (ours,) = summarize_partitions(build_partition_type(spec, schema), rows) or ()
    assert (ours.contains_null, ours.contains_nan) == (True, False)
    assert (ours.lower_bound, ours.upper_bound) == (theirs[0].lower_bound, theirs[0].upper_bound)


def test_summary_leaves_nan_out_and_distinguishes_the_zeros() -> None:
    schema, spec = schema_and_spec(PARTITIONS["double"])
    kind = build_partition_type(spec, schema)
    values = [(0.0,), (math.nan,), (-0.0,)]
    for rows in (values, values[::-1]):
        (summary,) = summarize_partitions(kind, rows) or ()
        assert summary == FieldSummary(False, True, bytes(7) + b"\x80", bytes(8))
    assert summarize_partitions(kind, [(math.nan,), (None,)]) == (FieldSummary(True, True),)
    assert summarize_partitions(kind, []) == (FieldSummary(False, False),)


def test_uuids_that_java_orders_otherwise_leave_the_manifest_without_summary() -> None:
    schema, spec = schema_and_spec(PARTITIONS["uuid"])
    kind = build_partition_type(spec, schema)
    low, middle, high = UUID(int=1), UUID(int=2**64 + 5), UUID(int=2**128 - 1)
    assert summarize_partitions(kind, [(middle,), (low,), (None,)]) == (
        FieldSummary(True, False, low.bytes, middle.bytes),
    )
    assert summarize_partitions(kind, [(high,)]) == (FieldSummary(False, False, high.bytes, high.bytes),)
    assert summarize_partitions(kind, [(low,), (high,)]) is None


def test_summary_of_values_that_are_not_of_the_type_is_refused() -> None:
    schema, spec = schema_and_spec(PARTITIONS["int"])
    kind = build_partition_type(spec, schema)
    for rows in ([("x",)], [("x",), (1,)], [()], [(1, 2)]):
        with pytest.raises(InvalidRequestError, match=r"partition|value"):
            summarize_partitions(kind, rows)


def test_manifest_of_a_thousand_wide_files_is_read_back() -> None:
    schema, spec = schema_and_spec(PARTITIONS["int"])
    source = random.Random(1)

    def wide(number: int) -> ManifestEntry:
        counts = {column: source.randrange(2**30) for column in range(1, 21)}
        bounds = {column: source.randbytes(8) for column in range(1, 21)}
        file = data_file((number,), column_sizes=counts, value_counts=counts, lower_bounds=bounds, upper_bounds=bounds)
        return ManifestEntry(EntryStatus.ADDED, 7, None, None, file)

    entries = tuple(wide(number) for number in range(1000))
    data = write_manifest(format_version=3, content=ManifestContent.DATA, schema=schema, spec=spec, entries=entries)
    assert read_manifest(data).entries == entries


JAVA = Path(__file__).parents[1] / "testdata" / "java"


@pytest.mark.parametrize("format_version", [1, 2, 3])
def test_we_read_what_java_writes(format_version: int) -> None:
    manifest = read_manifest((JAVA / f"v{format_version}-m0.avro").read_bytes())
    full = DataFile(
        content=FileContent.DATA,
        file_path="s3://b/t/data/full.parquet",
        file_format="PARQUET",
        partition=(20_000, Decimal("-12.34"), UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7"), 19_000, 7),
        record_count=10,
        file_size_in_bytes=2**40,
        column_sizes={1: 100},
        value_counts={1: 10},
        null_value_counts={1: 0},
        nan_value_counts={},
        lower_bounds={1: (1).to_bytes(8, "little")},
        upper_bounds={1: (9).to_bytes(8, "little")},
        split_offsets=(4, 2**33),
        sort_order_id=0,
    )
    bare = DataFile(FileContent.DATA, "s3://b/t/data/bare.orc", "ORC", (None,) * 5, 1, 5, sort_order_id=0)
    entries = (
        ManifestEntry(EntryStatus.ADDED, 7, None, None, full),
        ManifestEntry(EntryStatus.EXISTING, 6, 3, 2, bare),
        ManifestEntry(EntryStatus.DELETED, 7, 3, 2, bare),
    )
    assert manifest.entries == tuple(as_stored(entry, format_version) for entry in entries)
    assert (manifest.format_version, manifest.schema_id, manifest.spec_id) == (format_version, 4, 3)
    (line,) = read_manifest_list((JAVA / f"v{format_version}-list.avro").read_bytes())
    assert line.manifest_path == f"s3://b/t/metadata/v{format_version}-m0.avro"
    assert (line.sequence_number, line.min_sequence_number) == ((9, 3) if format_version > 1 else (0, 0))
    assert (line.added_rows_count, line.existing_files_count) == (10, 1)
    assert line.first_row_id == (1000 if format_version == 3 else None)


@pytest.mark.parametrize("format_version", [2, 3])
def test_what_we_write_has_the_avro_schemas_of_java(format_version: int) -> None:
    java_schema, metadata = avro_header((JAVA / f"v{format_version}-m0.avro").read_bytes())
    schema = Schema.model_validate_json(metadata["schema"])
    fields = json.loads(metadata["partition-spec"])
    spec = PartitionSpec.model_validate({"spec-id": 3, "fields": fields})
    data = write_manifest(
        format_version=format_version, content=ManifestContent.DATA, schema=schema, spec=spec, entries=[]
    )
    ours, our_metadata = avro_header(data)
    assert ours == java_schema
    assert set(our_metadata) == set(metadata) - {"iceberg.schema"} | {"schema-id"}
    for key in ("schema", "partition-spec"):
        assert json.loads(our_metadata[key]) == json.loads(metadata[key])
    assert (
        avro_header(write_list(format_version))[0]
        == avro_header((JAVA / f"v{format_version}-list.avro").read_bytes())[0]
    )


def test_our_version_1_schemas_are_javas_but_for_a_required_snapshot_id() -> None:
    assert avro_header(write_list(1))[0] == avro_header((JAVA / "v1-list.avro").read_bytes())[0]
    ours, theirs = (avro_header(data)[0]["fields"] for data in (write_one_v1(), (JAVA / "v1-m0.avro").read_bytes()))
    assert (
        [field["name"] for field in ours]
        == [field["name"] for field in theirs]
        == ["status", "snapshot_id", "data_file"]
    )
    assert (ours[1]["type"], theirs[1]["type"]) == ("long", ["null", "long"])
    assert [each["name"] for each in ours[2]["type"]["fields"]] == [
        each["name"] for each in theirs[2]["type"]["fields"]
    ]


def write_one_v1() -> bytes:
    return write_one(1, ManifestContent.DATA, ADDED)
