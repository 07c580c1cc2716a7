"""Which data files an equality delete file may delete from, and by which columns."""

from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from duckicelake.bridge.equality_deletes import build_equality_deletes
from duckicelake.errors import InvalidRequestError, UnsupportedError
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.iceberg.values import to_bytes
from tests.support.equality_cases import Column, Json, new_file, table_metadata

INSIDE: list[Json] = [
    {"id": 7, "name": "inner", "type": "int", "required": False},
    {"id": 8, "name": "tags", "required": False}
    | {"type": {"type": "list", "element-id": 9, "element": "string", "element-required": False}},
    {"id": 10, "name": "deep", "required": False}
    | {"type": {"type": "struct", "fields": [{"id": 11, "name": "x", "type": "uuid", "required": True}]}},
]


def metrics(kind: str, lower: Any = None, upper: Any = None, values: int | None = 2, nulls: int | None = 0) -> Json:
    """The metrics of column 1; None is unknown."""
    known = {
        "value_counts": values,
        "null_value_counts": nulls,
        "lower_bounds": None if lower is None else to_bytes(PrimitiveType.parse(kind), lower).hex(),
        "upper_bounds": None if upper is None else to_bytes(PrimitiveType.parse(kind), upper).hex(),
    }
    return {name: {"1": value} for name, value in known.items() if value is not None}


def may_delete(kind: str, delete: Json, data: Json) -> bool:
    table = table_metadata("file:///t", [Column(1, "c", kind)])
    file = new_file(101, "file:///t/d.parquet", 2, equality_ids=(1,), metrics=delete)
    return build_equality_deletes(file, table).may_delete_from(new_file(1, "file:///t/a.parquet", 1, metrics=data))


@pytest.mark.parametrize(
    ("kind", "low", "middle", "high"),
    [
        ("int", -1, 0, 1),
        ("boolean", False, False, True),
        ("decimal(9, 2)", Decimal("-0.01"), Decimal("0.00"), Decimal("256.00")),
        ("date", -1, 0, 300),
        ("timestamptz", -1, 0, 300),
        ("string", "Z", "a", "\U0001f986"),
        ("string", "a", "\uffff", "\U00010000"),
        ("binary", b"", b"\x7f", b"\x80"),
        ("uuid", UUID(int=1), UUID(int=2), UUID(int=2**127)),
    ],
)
def test_files_whose_bounds_dont_meet_are_passed_over(kind: str, low: Any, middle: Any, high: Any) -> None:
    assert may_delete(kind, metrics(kind, low, middle), metrics(kind, middle, high))
    assert may_delete(kind, metrics(kind, low, high), metrics(kind, middle, middle))
    assert not may_delete(kind, metrics(kind, low, middle), metrics(kind, high, high))
    assert not may_delete(kind, metrics(kind, high, high), metrics(kind, low, middle))


def test_bounds_from_before_a_promotion_are_understood() -> None:
    assert not may_delete("long", metrics("int", 1, 2), metrics("long", 3, 4))
    assert may_delete("long", metrics("int", 1, 2), metrics("long", 2, 4))
    assert not may_delete("timestamp", metrics("date", 0, 0), metrics("timestamp", 1, 1))
    assert may_delete("timestamp", metrics("date", 0, 1), metrics("timestamp", 1, 1))


@pytest.mark.parametrize(
    ("delete", "data", "may"),
    [
        (metrics("int", 1, 1), metrics("int", 2, 2, nulls=1), False),
        (metrics("int", 1, 1, nulls=1), metrics("int", 2, 2), False),
        (metrics("int", 1, 1, nulls=1), metrics("int", 2, 2, nulls=1), True),
        (metrics("int", nulls=2), metrics("int", nulls=2), True),
        (metrics("int", nulls=2), metrics("int", 1, 1), False),
        (metrics("int", 1, 1), metrics("int", nulls=2), False),
        (metrics("int", 1, 1), metrics("int", nulls=1), True),
        (metrics("int", 1, 1, nulls=None), metrics("int", 2, 2, nulls=None), True),
        (metrics("int", 1, 1, nulls=None), metrics("int", 2, 2), False),
        (metrics("int", 1, 1), {}, True),
        ({}, metrics("int", 1, 1), True),
        (metrics("int", 3, 1), metrics("int", 9, 9), True),
        (metrics("int", 1, 1), {**metrics("int", 2, 2), "upper_bounds": {"1": "ff"}}, True),
    ],
)
def test_nulls_and_unknown_metrics(delete: Json, data: Json, may: bool) -> None:
    assert may_delete("int", delete, data) is may


def test_bounds_of_floats_say_nothing_of_nan() -> None:
    assert may_delete("double", metrics("double", 1.0, 1.0), metrics("double", 2.0, 2.0))
    assert not may_delete("double", metrics("double", 1.0, 1.0), metrics("double", nulls=2))


def test_metrics_of_nested_columns_arent_trusted() -> None:
    """Writers differ in whether a null struct counts as a null of its fields."""
    table = table_metadata("file:///t", [Column(1, "c", "int", nested=True)])
    delete = new_file(101, "file:///t/d.parquet", 2, equality_ids=(1,), metrics=metrics("int", nulls=2))
    data = new_file(1, "file:///t/a.parquet", 1, metrics=metrics("int", 1, 1))
    assert build_equality_deletes(delete, table).may_delete_from(data)


def test_delete_columns_are_found_in_structs_with_what_they_are_in() -> None:
    schemas = [{"type": "struct", "schema-id": 0, "fields": INSIDE}]
    table = table_metadata("file:///t", [], schemas=schemas)
    deletes = build_equality_deletes(new_file(101, "file:///t/d.parquet", 2, equality_ids=(11, 7, 7)), table)
    keys = [(key.field.name, key.parents, key.duckdb_type) for key in deletes.keys]
    assert keys == [("inner", (), "INTEGER"), ("x", (10,), "UUID")]


@pytest.mark.parametrize("field_id", [8, 9, 10, 12, 13])
def test_columns_that_have_no_equality_are_refused(field_id: int) -> None:
    more = [
        {"id": i, "name": f"c{i}", "type": kind, "required": False} for i, kind in [(12, "variant"), (13, "geometry")]
    ]
    table = table_metadata("file:///t", [], schemas=[{"type": "struct", "schema-id": 0, "fields": [*INSIDE, *more]}])
    with pytest.raises(InvalidRequestError, match=r"d\.parquet deletes by .*: delete columns have a primitive type"):
        build_equality_deletes(new_file(101, "file:///t/d.parquet", 2, equality_ids=(field_id,)), table)


def test_unknown_and_absent_ids_are_refused() -> None:
    table = table_metadata("file:///t", [Column(1, "c", "int")])
    with pytest.raises(InvalidRequestError, match="field 5, which the table never had"):
        build_equality_deletes(new_file(101, "file:///t/d.parquet", 2, equality_ids=(5,)), table)
    with pytest.raises(InvalidRequestError, match="names no equality-ids"):
        build_equality_deletes(new_file(101, "file:///t/d.parquet", 2), table)


def test_nanoseconds_with_zone_are_unsupported() -> None:
    table = table_metadata("file:///t", [Column(1, "c", "timestamptz_ns")])
    with pytest.raises(UnsupportedError, match="equality-deletes"):
        build_equality_deletes(new_file(101, "file:///t/d.parquet", 2, equality_ids=(1,)), table)
