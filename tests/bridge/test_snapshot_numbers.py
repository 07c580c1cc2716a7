"""The numbers of native snapshots in every format version and mode (design D3)."""

from typing import Literal

import pytest

from duckicelake.bridge.snapshots import SnapshotNumbers, build_numbering, find_data_sequence_number, find_next_row_id
from duckicelake.iceberg.metadata import TableMetadata, parse_table_metadata
from duckicelake.lake.model import LakeFile
from duckicelake.lake.state import FileRow

Mode = Literal["client", "ducklake"]


def metadata(format_version: int, last_sequence_number: int = 0) -> TableMetadata:
    document = {
        "format-version": format_version,
        "table-uuid": "01a1fe90-0000-7000-8000-000000000000",
        "location": "/t",
        "last-sequence-number": last_sequence_number,
        "last-updated-ms": 1,
        "last-column-id": 1,
        "schemas": [{"schema-id": 0, "type": "struct", "fields": []}],
        "current-schema-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "default-spec-id": 0,
        "last-partition-id": 999,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        **({"next-row-id": 0} if format_version > 2 else {}),
    }
    return parse_table_metadata(document)


@pytest.mark.parametrize(
    ("format_version", "mode", "last", "expected"),
    [
        (1, "client", 0, 0),
        (1, "ducklake", 0, 0),
        (2, "client", 4, 5),
        (2, "ducklake", 4, 17),
        (2, "ducklake", 40, 41),
        (3, "client", 4, 17),
        (3, "client", 40, 41),
        (3, "ducklake", 4, 17),
    ],
)
def test_snapshot_has_ducklakes_id_and_a_growing_number(
    format_version: int, mode: Mode, last: int, expected: int
) -> None:
    assert build_numbering(metadata(format_version, last), 17, mode, ()) == SnapshotNumbers(17, expected)


@pytest.mark.parametrize(
    ("begin", "last", "number", "expected"),
    [
        (12, 10, 17, 12),  # folded: written by a DuckLake snapshot between the two of Iceberg
        (3, 10, 17, 11),  # merged: DuckLake dates it back to its first source
        (17, 10, 17, 17),
        (17, 4, 5, 5),  # a table that counts its own numbers
        (17, 40, 41, 41),  # a table whose numbers are ahead of DuckLake's
        (17, 0, 0, 0),
    ],
)
def test_data_file_is_dated_between_its_snapshot_and_the_one_before(
    begin: int, last: int, number: int, expected: int
) -> None:
    file = LakeFile(1, None, begin, None, "/f", "parquet", 1, 1)
    assert find_data_sequence_number(file, metadata(2, last), SnapshotNumbers(17, number)) == expected


def new_file(first_row_id: int | None, record_count: int) -> FileRow:
    return FileRow(1, 0, "/f", "PARQUET", 0, [], record_count, 1, {}, 1, 1, 1, first_row_id)


def test_row_ids_are_used_up_by_what_is_added_and_no_further_than_ducklake_went() -> None:
    files = [new_file(10, 5), new_file(0, 3), new_file(None, 99)]
    assert find_next_row_id(files, 100) == 15
    assert find_next_row_id(files, 12) == 12
    assert find_next_row_id([], 12) == 0
