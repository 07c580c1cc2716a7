"""What DuckLake is told of files without field ids."""

import pytest

from duckicelake.bridge.file_schema import build_name_map
from duckicelake.errors import UnsupportedError
from duckicelake.iceberg.metadata import TableMetadata, parse_table_metadata
from duckicelake.lake.model import MappedName
from duckicelake.lake.state import FileRow

IDS = {("id",): 1, ("day",): 2, ("DAY",): 2, ("s",): 3, ("s", "x"): 4, ("l",): 5, ("l", "element"): 6}
TYPES = {"day": "date", "n": "int", "flag": "boolean", "amount": "decimal(4, 2)", "name": "string"}


def table(type_: str = "date") -> TableMetadata:
    columns = [(1, "id", "long"), (2, "day", type_)]
    fields = [{"id": n, "name": name, "type": kind, "required": False} for n, name, kind in columns]
    return parse_table_metadata(
        {
            "format-version": 2,
            "table-uuid": "00000000-0000-0000-0000-000000000000",
            "location": "file:///t",
            "last-updated-ms": 0,
            "last-column-id": 6,
            "last-partition-id": 1000,
            "last-sequence-number": 0,
            "current-schema-id": 0,
            "schemas": [{"type": "struct", "schema-id": 0, "fields": fields}],
            "default-spec-id": 1,
            "partition-specs": [
                {"spec-id": 0, "fields": []},
                {
                    "spec-id": 1,
                    "fields": [{"source-id": 2, "field-id": 1000, "name": "day", "transform": "identity"}],
                },
            ],
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
        }
    )


def file(path: str, *partition: object) -> FileRow:
    return FileRow(1, 0, path, "PARQUET", len(partition), list(partition), 1, 1, {}, 1, 1, 1)


def test_fields_are_mapped_with_what_they_are_in_and_unknown_ones_left_out() -> None:
    names = [("s",), ("s", "y"), ("s", "x"), ("z",), ("z", "x"), ("l",), ("l", "element"), ("id",)]
    found = build_name_map(
        file("/f"), [(path, "list" if path[-1] == "element" else path[-1]) for path in names], IDS, table()
    )
    assert found.names == (
        MappedName("s", 3),
        MappedName("x", 4, 0),
        MappedName("l", 5),
        MappedName("list", 6, 2),
        MappedName("id", 1),
    )


@pytest.mark.parametrize(
    ("type_", "folder", "value"),
    [
        ("date", "DAY=2024-01-02", "2024-01-02"),
        ("int", "day=01", 1),
        ("boolean", "day=TRUE", True),
        ("decimal(4, 2)", "day=1.50", "1.50"),
        ("string", "x=1/day=a%2Fb%20c", "a/b c"),
        ("string", "day=__HIVE_DEFAULT_PARTITION__", None),
    ],
)
def test_partition_column_that_a_file_lacks_is_in_its_folders(type_: str, folder: str, value: object) -> None:
    found = build_name_map(file(f"file:///t/{folder}/f.parquet", value), [(("id",), "id")], IDS, table(type_))
    key = folder.rpartition("/")[2].partition("=")[0]
    assert found.names == (MappedName("id", 1), MappedName(key, 2, is_partition=True))


def test_partition_column_in_the_file_counts_more_than_the_folder() -> None:
    found = build_name_map(file("/day=2020-01-01/f", "2024-01-02"), [(("day",), "day")], IDS, table())
    assert found.names == (MappedName("day", 2),)


def test_missing_null_partition_column_needs_no_folder() -> None:
    assert build_name_map(file("/f", None), [(("id",), "id")], IDS, table()).names == (MappedName("id", 1),)


@pytest.mark.parametrize("path", ["/f", "/day=2024-01-03/f", "/day=/f", "/week=2024-01-02/f"])
def test_partition_column_that_nothing_says_is_refused(path: str) -> None:
    with pytest.raises(UnsupportedError, match="has no column day"):
        build_name_map(file(path, "2024-01-02"), [(("id",), "id")], IDS, table())
