"""Statistics and partition values of Delta logs as both sides' rows."""

from typing import Any

import orjson
import pytest

from duckicelake.bridge.snapshots import SnapshotNumbers
from duckicelake.delta.import_.columns import ColumnIds, read_columns
from duckicelake.delta.import_.files import (
    FileTranslator,
    PartitionColumn,
    TranslatedFile,
    find_folder_keys,
    format_linked_folder,
)
from duckicelake.delta.import_.stats import StatsWidening
from duckicelake.delta.import_.values import parse_partition_value
from duckicelake.delta.log.actions import AddFile, Metadata
from duckicelake.errors import DamagedLogError, UnsupportedError
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.lake.model import ColumnStats


def definition(types: dict[str, Any], partition_by: tuple[str, ...] = ()) -> Metadata:
    fields = [{"name": name, "type": type_, "nullable": True, "metadata": {}} for name, type_ in types.items()]
    return Metadata("m", orjson.dumps({"type": "struct", "fields": fields}).decode(), partition_by)


def translated(
    types: dict[str, Any], stats: dict[str, Any] | None, values: dict[str, str | None] | None = None
) -> tuple[TranslatedFile, dict[int, ColumnStats | None]]:
    values = values or {}
    columns = read_columns(definition(types, tuple(values)), ColumnIds(), 0)
    wide = StatsWidening()
    translator = FileTranslator(columns, 0, lambda path: f"/r/{path}", {"f": 7}.get)
    text = None if stats is None else orjson.dumps(stats).decode()
    made = translator.of(AddFile("f", values, 1, 1, True, text), 5, SnapshotNumbers(1, 1), wide)
    return made, wide.rows(columns.schema.leaves())


def test_bounds_are_what_both_sides_keep() -> None:
    inner = {"type": "struct", "fields": [{"name": "y", "type": "integer", "nullable": True, "metadata": {}}]}
    made, wide = translated(
        {"n": "long", "s": "string", "x": inner},
        {
            "numRecords": 10,
            "minValues": {"n": -1, "s": "a", "x": {"y": 1}},
            "maxValues": {"n": 2, "s": "b", "x": {"y": 3}},
            "nullCount": {"n": 0, "s": 10, "x": {"y": 4}},
        },
    )
    assert made.file.record_count == 10
    assert made.file.metrics["lower_bounds"] == {"1": "ffffffffffffffff", "4": "01000000"}
    assert made.file.metrics["null_value_counts"] == {"1": 0, "2": 10, "4": 4}
    assert [(row.column_id, row.min_value, row.max_value, row.value_count) for row in made.stats] == [
        (1, "-1", "2", 10), (2, None, None, 0), (4, "1", "3", 6)
    ]  # fmt: skip
    assert {column: row and (row.min_value, row.contains_null) for column, row in wide.items()} == {
        1: ("-1", False), 2: (None, True), 4: ("1", True)
    }  # fmt: skip


def test_times_are_cut_to_milliseconds_so_their_bounds_are_wider_and_not_exact() -> None:
    stats = {"numRecords": 1, "minValues": {"t": "2024-01-01T00:00:00.123Z"},
             "maxValues": {"t": "2024-01-01T00:00:00.123+01:00"}, "nullCount": {"t": 0}}  # fmt: skip
    made, wide = translated({"t": "timestamp"}, stats)
    (row,) = made.stats
    assert (row.min_value, row.max_value) == ("2024-01-01 00:00:00.123+00", "2023-12-31 23:00:00.123999+00")
    assert wide == {1: None}


@pytest.mark.parametrize(
    ("type_", "low", "high"),
    [
        ("double", 1.5, "NaN"),
        ("double", None, 2.0),
        ("decimal(20,2)", 12345678901234567.89, 12345678901234567.89),
        ("decimal(5,2)", 1.234, 2.0),
        ("long", "1", "2"),
        ("string", {"a": 1}, ["b"]),
        ("date", "yesterday", "2024-01-01"),
        ("binary", "a", "b"),
    ],
)
def test_what_does_not_bound_exactly_is_left_out(type_: str, low: Any, high: Any) -> None:
    stats = {"numRecords": 3, "minValues": {"c": low}, "maxValues": {"c": high}, "nullCount": {"c": 1}}
    made, wide = translated({"c": type_}, stats)
    assert tuple(made.stats) == ()
    assert wide == {1: None}


def test_wide_bounds_skip_files_but_answer_nothing() -> None:
    stats = {"numRecords": 3, "tightBounds": False, "minValues": {"n": 1}, "maxValues": {"n": 2}, "nullCount": {"n": 0}}
    made, wide = translated({"n": "long"}, stats)
    assert [(row.min_value, row.max_value) for row in made.stats] == [("1", "2")]
    assert wide == {1: None}


def test_partition_columns_have_the_statistics_of_their_value() -> None:
    made, wide = translated({"n": "long", "p": "date", "q": "string"}, None, {"p": "2024-01-02", "q": None})
    assert (made.file.record_count, made.file.partition, made.partition_values) == (
        7,
        ["2024-01-02", None],
        ("2024-01-02", None),
    )
    assert {row.column_id: (row.min_value, row.null_count) for row in made.stats} == {
        2: ("2024-01-02", 0),
        3: (None, 7),
    }
    assert wide[1] is None
    assert wide[2] is not None


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        ("boolean", "true", True),
        ("int", "-5", -5),
        ("string", "", None),
        ("date", "1969-12-31", -1),
        ("timestamptz", "2024-01-01 00:00:00", 1704067200000000),
        ("timestamptz", "2024-01-01T00:00:00.000001Z", 1704067200000001),
        ("timestamp", "1969-12-31 23:59:59.5", -500000),
        ("binary", "\x00a", b"\x00a"),
    ],
)
def test_partition_values_are_read_as_the_protocol_writes_them(type_: str, text: str, value: Any) -> None:
    assert parse_partition_value(PrimitiveType.parse(type_), text, "p") == value


@pytest.mark.parametrize(
    ("type_", "text"), [("int", "1.5"), ("date", "2024"), ("boolean", "yes"), ("decimal(3, 1)", "x")]
)
def test_partition_value_of_another_type_names_the_column(type_: str, text: str) -> None:
    with pytest.raises(DamagedLogError, match="column p"):
        parse_partition_value(PrimitiveType.parse(type_), text, "p")


@pytest.mark.parametrize(
    ("folder", "type_", "value", "keys"),
    [
        ("/r/p=a%20b", "string", "a b", ("p",)),
        ("/r/col-1=5", "int", 5, ("col-1",)),
        ("/r/p=__HIVE_DEFAULT_PARTITION__", "int", None, ("p",)),
        ("/r/p=__HIVE_DEFAULT_PARTITION__", "string", "x", None),
        ("/r/p=NULL", "string", "NULL", None),
        ("/r/p=null", "string", None, ("p",)),
        ("/r/p=5", "int", 6, None),
        ("/r/Ab", "int", 5, None),
        ("/r/p=2024-01-01 00%3A00%3A00", "timestamptz", 1704067200000000, None),  # in which time zone?
        ("/r/p=2024-01-01 00%3A00%3A00", "timestamp", 1704067200000000, ("p",)),
    ],
)
def test_folders_count_only_if_duckdb_reads_the_very_value_in_them(
    folder: str, type_: str, value: Any, keys: tuple[str, ...] | None
) -> None:
    column = PartitionColumn(1, ("col-1", "p"), PrimitiveType.parse(type_))
    assert find_folder_keys(folder, (column,), (value,)) == keys


def test_links_say_what_duckdb_reads_as_the_value() -> None:
    column = PartitionColumn(1, ("col-1", "p"), PrimitiveType.parse("string"))
    for value in ("a/b=c%41", "é", None, "..", "null"):
        assert find_folder_keys(f"/r/{format_linked_folder((column,), (value,))}x", (column,), (value,)) == ("col-1",)
    with pytest.raises(UnsupportedError):
        format_linked_folder((column,), ("__HIVE_DEFAULT_PARTITION__",))
