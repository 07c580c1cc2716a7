"""Manifests and lists in the format version of the snapshot that lists them, whatever the table's is by now."""

from dataclasses import replace

import pytest

from duckicelake.bridge.artifacts import ManifestDefinitions, encode_manifest, encode_manifest_list
from duckicelake.bridge.data_files import to_data_file
from duckicelake.iceberg.manifest.entry import (
    EntryStatus,
    FileContent,
    ManifestContent,
    ManifestEntry,
    inherit_all_numbers,
)
from duckicelake.iceberg.manifest.reader import read_manifest, read_manifest_list
from duckicelake.iceberg.manifest.writer import write_manifest
from duckicelake.iceberg.partition import UNPARTITIONED, PartitionSpec, build_partition_type
from duckicelake.iceberg.schema import Schema
from duckicelake.lake.state import FileRow, ManifestRow, Packed, SnapshotRow

SCHEMA = Schema.model_validate(
    {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "x", "required": False, "type": "int"}]}
)
KNOWN = ManifestDefinitions("01a1fe90-0000-7000-8000-000000000000", "/t", (SCHEMA,), {0: UNPARTITIONED})
DATA = FileRow(1, FileContent.DATA, "/a", "PARQUET", 0, [], 10, 100, {}, 7, 9, 9, 40, 1)
VECTOR = DATA._replace(
    file_id=3,
    content=FileContent.POSITION_DELETES,
    path="/dv",
    file_format="PUFFIN",
    first_row_id=None,
    metrics={"referenced_data_file": "/a", "content_offset": 4, "content_size_in_bytes": 40},
)
SNAPSHOT = SnapshotRow(7, None, 7, None, 9, 1, 0, 100, 10, None, {}, (), None)


def manifest(format_version: int, *files: FileRow, status: int = EntryStatus.ADDED) -> ManifestRow:
    """A manifest of the files, written."""
    content = ManifestContent.DELETES if files and files[0].content else ManifestContent.DATA
    row = ManifestRow(1, content, format_version, 0, 0, 9, 9, 7, len(files), None, None, None)
    artifact = encode_manifest(row, [(status, file) for file in files], KNOWN)
    return replace(row, path=artifact.row.path, length=len(artifact.data), facts=artifact.row.facts)


def test_manifest_of_rows_is_that_of_their_entries_byte_for_byte() -> None:
    spec = PartitionSpec.model_validate(
        {"spec-id": 1, "fields": [{"field-id": 1000, "source-id": 1, "name": "x", "transform": "identity"}]}
    )
    metrics = {
        **{name: {"10": 5, "9": 1 << 40, "1": 0} for name in ("column_sizes", "value_counts", "nan_value_counts")},
        "null_value_counts": {},
        **{name: {"9": "", "10": "ff00", "1": "07000000"} for name in ("lower_bounds", "upper_bounds")},
        "key_metadata": "0a",
        "split_offsets": [4, 1 << 33],
        "equality_ids": [],
        "sort_order_id": 0,
        "content_offset": 4,
        "content_size_in_bytes": 40,
        "referenced_data_file": "/a",
    }
    rows = [
        (status, DATA._replace(file_id=status, spec_id=1, partition=[value], metrics=each))
        for status, (value, each) in enumerate(((7, metrics), (None, {}), (-1, Packed(metrics))))
    ]
    type_ = build_partition_type(spec, SCHEMA)
    entries = [
        ManifestEntry(EntryStatus(status), 8 if status == 2 else 7, 9, 9, to_data_file(row, type_))
        for status, row in rows
    ]
    manifest_row = ManifestRow(1, 0, 2, 1, 0, 9, 9, 8, 2, None, None, None)
    content, known, encoded = ManifestContent.DATA, replace(KNOWN, specs={1: spec}), dict[tuple[int, int], bytes]()
    data = write_manifest(format_version=2, content=content, schema=SCHEMA, spec=spec, entries=entries)
    for files in (None, encoded, encoded):
        assert encode_manifest(manifest_row, rows, known, files).data == data


def test_manifest_of_version_3_is_listed_with_a_row_id_so_that_its_files_keep_theirs() -> None:
    files = (DATA, DATA._replace(path="/b", first_row_id=5), DATA._replace(path="/c", first_row_id=70))
    row = manifest(3, *files)
    (line,) = read_manifest_list(encode_manifest_list(SNAPSHOT, [row], KNOWN).data)
    assert line.first_row_id == 5
    entries = list(zip((1, 1, 0), files, strict=True))
    written = read_manifest(encode_manifest(replace(row, path=None), entries, KNOWN).data)
    assert [entry.data_file.first_row_id for entry in inherit_all_numbers(written.entries, line)] == [40, 5, 70]


def test_manifest_without_row_ids_is_not_given_new_ones() -> None:
    gone = manifest(3, DATA._replace(first_row_id=None), status=EntryStatus.DELETED)
    lines = read_manifest_list(encode_manifest_list(SNAPSHOT, [gone, manifest(3)], KNOWN).data)
    assert [line.first_row_id for line in lines] == [0, 0]


def test_manifest_of_deletes_has_no_row_id() -> None:
    row = manifest(3, VECTOR)
    (line,) = read_manifest_list(encode_manifest_list(SNAPSHOT, [row], KNOWN).data)
    assert (line.content, line.first_row_id) == (ManifestContent.DELETES, None)


@pytest.mark.parametrize(
    ("snapshot", "rows", "format_version"),
    [
        (SNAPSHOT, (manifest(3, DATA),), 3),
        (SNAPSHOT, (), 3),
        (replace(SNAPSHOT, first_row_id=0), (manifest(3, DATA), manifest(2, VECTOR)), 3),
        (replace(SNAPSHOT, first_row_id=None), (manifest(2, DATA), manifest(1, DATA)), 2),
        (replace(SNAPSHOT, first_row_id=None), (manifest(1, DATA),), 2),
        (replace(SNAPSHOT, first_row_id=None, sequence_number=0), (manifest(1, DATA),), 1),
        (replace(SNAPSHOT, first_row_id=None, sequence_number=0), (manifest(2, DATA),), 2),
    ],
)
def test_list_has_the_format_version_of_its_snapshot(
    snapshot: SnapshotRow, rows: tuple[ManifestRow, ...], format_version: int
) -> None:
    data = encode_manifest_list(snapshot, rows, KNOWN).data
    assert f"format-version\x02{format_version}".encode() in data
    assert len(read_manifest_list(data)) == len(rows)
