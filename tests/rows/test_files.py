"""Batches as Parquet files: what DuckDB and PyIceberg read of them, their partitions, order and statistics."""

import io
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import pyarrow_to_schema

from duckicelake.bridge.values.columns import to_columns
from duckicelake.bridge.values.partitions import to_partition_keys
from duckicelake.errors import InvalidRequestError, UnsupportedError
from duckicelake.iceberg.partition import UNPARTITIONED, PartitionSpec
from duckicelake.iceberg.sort import UNSORTED, SortOrder
from duckicelake.lake.model import PartitionKey
from duckicelake.rows.bodies import read_batch
from duckicelake.rows.columns import build_row_columns
from duckicelake.rows.files import RowFile, write_row_files
from duckicelake.rows.layout import Layout
from duckicelake.rows.row_batch import Batch, build_column_stats
from tests.rows.layouts import JSON, list_of, map_of, schema_of, struct_of

ROWS: list[dict[str, Any]] = [
    {
        "i": 3,
        "b": True,
        "f": "NaN",
        "d": "-0.5",
        "day": "2026-01-02",
        "t": "01:02:03",
        "s": "ü",
        "n": "2026-01-01T00:00",
    },
    {
        "i": None,
        "b": False,
        "f": -1.5,
        "d": "9.25",
        "day": "1969-12-31",
        "t": None,
        "s": "",
        "u": "f" * 8 + "-0000" * 3 + "-" + "0" * 12,
    },
    {"i": -2, "ts": "1969-12-31T23:59:59.9Z", "l": [1, None], "m": {"k": {"x": "y"}}, "bin": "00ff", "fix": "0102"},
]
SCHEMA = schema_of(
    *(
        {"name": name, "type": kind}
        for name, kind in {"i": "int", "b": "boolean", "f": "double", "d": "decimal(9, 2)"}.items()
    ),
    *(
        {"name": name, "type": kind}
        for name, kind in {"day": "date", "t": "time", "s": "string", "n": "timestamp_ns"}.items()
    ),
    *(
        {"name": name, "type": kind}
        for name, kind in {"u": "uuid", "ts": "timestamptz", "bin": "binary", "fix": "fixed[2]"}.items()
    ),
    {"name": "l", "type": list_of("long")},
    {"name": "v", "type": "variant"},
    {"name": "m", "type": map_of("string", struct_of(x="string", w="unknown"))},
)
LAYOUT = Layout(build_row_columns(SCHEMA, to_columns(SCHEMA)))
IDS = {field.name: field.id for field in SCHEMA.fields}


def batch_of(rows: list[dict[str, Any]], layout: Layout = LAYOUT) -> Batch:
    return read_batch(orjson.dumps(rows), JSON, layout)


def spec_of(*fields: tuple[str, str]) -> PartitionSpec:
    named = [
        {"source-id": IDS[source], "field-id": 1000 + index, "name": f"p{index}", "transform": transform}
        for index, (source, transform) in enumerate(fields)
    ]
    return PartitionSpec.model_validate({"spec-id": 1, "fields": named})


def files_of(
    rows: list[dict[str, Any]], *fields: tuple[str, str], keys: list[PartitionKey] | None = None
) -> list[RowFile]:
    spec = spec_of(*fields)
    known = to_partition_keys(spec, SCHEMA, with_buckets=True) if keys is None else keys
    return write_row_files(batch_of(rows), known, spec, UNSORTED)


def column_in(file: RowFile, name: str) -> list[Any]:
    return pq.read_table(io.BytesIO(file.data), columns=[name]).column(0).to_pylist()


def test_file_reads_right_and_knows_its_fields(tmp_path: Path) -> None:
    batch = batch_of(ROWS)
    (file,) = write_row_files(batch, (), UNPARTITIONED, UNSORTED)
    assert (file.record_count, file.partition_values) == (3, ())
    path = tmp_path / "file.parquet"
    path.write_bytes(file.data)
    with duckdb.connect() as duck:
        duck.execute("SET TimeZone = 'UTC'")
        described = {name: kind for name, kind, *_ in duck.execute(f"DESCRIBE FROM '{path}'").fetchall()}
        read = duck.execute(f"SELECT to_json(COLUMNS(* EXCLUDE (bin, fix))), bin, fix FROM '{path}'").fetchall()
    assert described == {
        "i": "INTEGER",
        "b": "BOOLEAN",
        "f": "DOUBLE",
        "d": "DECIMAL(9,2)",
        "day": "DATE",
        "t": "TIME",
        "s": "VARCHAR",
        "n": "TIMESTAMP_NS",
        "u": "UUID",
        "ts": "TIMESTAMP WITH TIME ZONE",
        "bin": "BLOB",
        "fix": "BLOB",
        "l": "BIGINT[]",
        "m": "MAP(VARCHAR, STRUCT(x VARCHAR))",
    }
    assert read[2][9] == '"1969-12-31 23:59:59.9+00"'
    assert (read[2][10:12], read[2][-2:]) == (("[1,null]", '{"k":{"x":"y"}}'), (b"\0\xff", b"\1\2"))
    fields = pyarrow_to_schema(pq.read_schema(io.BytesIO(file.data)), format_version=3)
    known = {field_id: field.name for field_id, field in SCHEMA.map_fields_by_id().items()}
    assert {field.field_id: field.name for field in fields._lazy_id_to_field.values()} == {
        field_id: name for field_id, name in known.items() if name not in {"v", "w"}
    }


def test_statistics_are_those_of_small_batches_with_sizes() -> None:
    batch = batch_of(ROWS * 50)
    (file,) = write_row_files(batch, (), UNPARTITIONED, UNSORTED)
    plain = {
        row.column_id: (row.min_value, row.max_value, row.contains_nan, row.value_count, row.null_count)
        for row in file.stats
    }
    assert plain == {
        row.column_id: (row.min_value, row.max_value, row.contains_nan, row.value_count, row.null_count)
        for row in build_column_stats(batch)
    }
    assert all((row.column_size_bytes or 0) > 0 for row in file.stats)
    by_name = {name: plain.get(field_id) for name, field_id in IDS.items()}
    assert by_name["i"] == ("-2", "3", None, 100, 50)
    assert by_name["f"] == ("-1.5", "-1.5", True, 100, 50)
    assert by_name["b"] == ("0", "1", None, 100, 50)
    assert by_name["d"] == ("-0.50", "9.25", None, 100, 50)
    assert by_name["day"] == ("1969-12-31", "2026-01-02", None, 100, 50)
    assert by_name["s"] == ("", "ü", None, 100, 50)
    assert by_name["ts"] == ("1969-12-31 23:59:59.9+00",) * 2 + (None, 50, 100)
    assert by_name["bin"] is None
    assert sorted(set(plain) - set(IDS.values())) == sorted(set(leaf_ids()) - set(IDS.values()))


def leaf_ids() -> list[int]:
    return [field_id for field_id, type_ in SCHEMA.leaves().items() if type_.name not in {"unknown", "variant"}]


def test_column_of_nan_alone_has_no_bounds() -> None:
    (row,) = [row for row in build_column_stats(batch_of([{"f": "NaN"}])) if row.column_id == IDS["f"]]
    assert (row.min_value, row.max_value, row.contains_nan, row.contains_null) == (None, None, True, False)


def test_bound_with_a_nul_leaves_the_column_out() -> None:
    assert IDS["s"] not in {row.column_id for row in build_column_stats(batch_of([{"s": "a\0"}]))}


@pytest.mark.parametrize(
    ("source", "transform", "values", "wanted"),
    [
        ("s", "identity", ["b", "a", None, "b"], {("b",): 2, ("a",): 1, (None,): 1}),
        ("f", "identity", [0.0, -0.0, "NaN", "NaN"], {("0.0",): 1, ("-0.0",): 1, ("nan",): 2}),
        ("b", "identity", [True, False], {("true",): 1, ("false",): 1}),
        ("day", "month", ["2026-01-31", "2026-01-01", "1969-12-31"], {("2026", "1"): 2, ("1969", "12"): 1}),
        (
            "ts",
            "hour",
            ["1969-12-31T23:59:59.9Z", "1970-01-01T00:00:00Z"],
            {("1969", "12", "31", "23"): 1, ("1970", "1", "1", "0"): 1},
        ),
        ("i", "bucket[16]", [34, 34, None], {("3",): 2, (None,): 1}),
        ("s", "truncate[1]", ["ab", "ac", "b", None], {(): 2}),
    ],
)
def test_each_partition_is_a_file(source: str, transform: str, values: list[Any], wanted: dict[Any, int]) -> None:
    files = files_of([{source: value} for value in values], (source, transform))
    if transform.startswith("truncate"):
        assert sorted(map(repr, (column_in(file, source) for file in files))) == ["['ab', 'ac']", "['b']", "[None]"]
    else:
        assert {file.partition_values: file.record_count for file in files} == wanted


def test_buckets_of_types_that_ducklake_hashes_otherwise_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="partitioned by bucket\\(4\\) of a column of type uuid"):
        files_of([{"u": None}], keys=[PartitionKey(IDS["u"], "bucket(4)")])


def test_partition_with_a_nul_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="can't be the value of a partition"):
        files_of([{"s": "a\0"}], ("s", "identity"))


def test_too_many_partitions_are_refused() -> None:
    with pytest.raises(
        InvalidRequestError, match="The rows are of 1001 partitions; a batch takes up to 1000: send several"
    ):
        files_of([{"i": row} for row in range(1001)], ("i", "identity"))


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ([("i", "identity", "desc", "nulls-last")], [3, 2, 2, 1, None]),
        ([("day", "year", "asc", "nulls-first"), ("i", "identity", "asc", "nulls-last")], [None, 1, 2, 3, 2]),
        ([("l", "identity", "asc", "nulls-first")], [2, 3, None, 1, 2]),
    ],
)
def test_rows_are_sorted_as_the_table_is(fields: list[tuple[str, ...]], wanted: list[Any]) -> None:
    rows = [("2026-05-01", 2), ("2026-01-01", 3), (None, None), ("2026-04-01", 1), ("2027-01-01", 2)]
    keys = ("transform", "direction", "null-order")
    order = SortOrder.model_validate(
        {
            "order-id": 1,
            "fields": [{"source-id": IDS[name]} | dict(zip(keys, how, strict=True)) for name, *how in fields],
        }
    )
    batch = batch_of([{"day": day, "i": number} for day, number in rows])
    (file,) = write_row_files(batch, (), UNPARTITIONED, order)
    assert column_in(file, "i") == wanted
