"""First row ids, in the numbers of the specification's own example (Row Lineage)."""

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestListWriterV2,
)
from pyiceberg.table.snapshots import Snapshot

from duckicelake.pyiceberg_v3.commit import assign_row_ids
from duckicelake.pyiceberg_v3.manifest_io import (
    ManifestListWriterV3,
    copy_manifest,
    get_first_row_id,
    get_manifest_first_row_id,
    inherit_row_ids,
)

ADDED, EXISTING, DELETED = ManifestEntryStatus.ADDED, ManifestEntryStatus.EXISTING, ManifestEntryStatus.DELETED


def manifest(added, existing, first=None, content=ManifestContent.DATA):
    counts = {"added_rows_count": added, "existing_rows_count": existing, "deleted_rows_count": 0}
    files = {"added_files_count": 1, "existing_files_count": 1, "deleted_files_count": 0}
    names = {"manifest_path": "m.avro", "manifest_length": 9, "partition_spec_id": 0, "added_snapshot_id": 1}
    record = ManifestFile.from_args(
        content=content, sequence_number=1, min_sequence_number=1, **names, **files, **counts
    )
    return record if first is None else copy_manifest(record, first)


def entry(status, record_count, first=None):
    file = DataFile.from_args(3, file_path="f.parquet", record_count=record_count, first_row_id=first)
    return ManifestEntry.from_args(3, status=status, sequence_number=7, data_file=file)


def test_new_data_manifests_take_the_next_ids_for_added_and_existing_rows():
    listed = [
        manifest(75, 0, first=925),
        manifest(100, 25),
        manifest(5, 0, content=ManifestContent.DELETES),
        manifest(0, 100),
        manifest(125, 25),
    ]
    assigned, taken = assign_row_ids(listed, 1000)
    assert [get_manifest_first_row_id(each) for each in assigned] == [925, 1000, None, 1125, 1225]
    assert taken == 375


def test_assigning_row_ids_leaves_the_records_that_pyiceberg_keeps():
    (listed,) = [manifest(1, 0)]
    assign_row_ids([listed], 5)
    assert get_manifest_first_row_id(listed) is None


def test_manifest_without_row_counts_is_refused():
    with pytest.raises(ValueError, match=r"m\.avro has no row counts"):
        assign_row_ids([manifest(None, 0)], 0)


def test_live_files_without_a_first_row_id_inherit_it():
    others = entry(DELETED, 10), entry(ADDED, 50), entry(EXISTING, 50), entry(ADDED, 1)
    inherited = inherit_row_ids([entry(EXISTING, 25, first=800), *others], manifest(51, 75, first=1000))
    assert [get_first_row_id(each.data_file) for each in inherited] == [800, None, 1000, 1050, 1100]


def test_files_of_a_manifest_without_a_first_row_id_inherit_none():
    (inherited,) = inherit_row_ids([entry(ADDED, 50)], manifest(50, 0))
    assert get_first_row_id(inherited.data_file) is None


def test_list_of_version_3_is_read_as_it_is_whatever_an_older_list_said(tmp_path):
    """As after an upgrade: the manifest is the same file, only the new list knows a first row id."""
    older = listed(tmp_path / "older.avro", ManifestListWriterV2, manifest(3, 0), compression="deflate")
    newer = listed(tmp_path / "newer.avro", ManifestListWriterV3, manifest(3, 0, first=4), avro_compression="deflate")
    snapshots = (
        Snapshot(snapshot_id=1, manifest_list=older),
        Snapshot(snapshot_id=1, manifest_list=newer, first_row_id=4),
    )
    read = [snapshot.manifests(PyArrowFileIO()) for snapshot in snapshots]
    assert [get_manifest_first_row_id(each) for (each,) in read] == [None, 4]


def listed(path, writer, record, **named):
    location = f"file://{path}"
    output = PyArrowFileIO().new_output(location)
    with writer(output_file=output, snapshot_id=1, parent_snapshot_id=None, sequence_number=1, **named) as manifests:
        manifests.add_manifests([record])
    return location
