import tracemalloc
from typing import Any

import pytest
from pydantic import TypeAdapter
from pyiceberg.transforms import parse_transform
from pyiceberg.types import IcebergType as OracleType

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.model import parse
from duckicelake.iceberg.partition import (
    PartitionSpec,
    Transform,
    UnboundPartitionSpec,
    build_partition_type,
    check_spec,
)
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.sort import SortOrder
from duckicelake.iceberg.types import PrimitiveType

Json = Any
TRANSFORMS = ["identity", "void", "year", "month", "day", "hour", "bucket[16]", "truncate[4]"]
# PyIceberg knows no sources of its own for these
TYPES = (
    (
        "boolean int long float double decimal(9, 2) date time timestamp timestamptz string uuid fixed[4] binary "
        "timestamp_ns timestamptz_ns"
    )
    .replace("(9, 2)", "(9,2)")
    .split()
)

SCHEMA = parse(
    Schema,
    {
        "fields": [
            {"id": 1, "name": "a", "required": False, "type": "int"},
            {
                "id": 2,
                "name": "s",
                "required": False,
                "type": {"type": "struct", "fields": [{"id": 3, "name": "x", "required": False, "type": "date"}]},
            },
            {
                "id": 4,
                "name": "l",
                "required": False,
                "type": {"type": "list", "element-id": 5, "element": "int", "element-required": True},
            },
            {"id": 6, "name": "g", "required": False, "type": "geometry"},
            {"id": 7, "name": "f", "required": False, "type": "double"},
        ]
    },
    "schema",
)


def spec(*fields: tuple[int, str, str]) -> PartitionSpec:
    items = [
        {"source-id": source, "field-id": 1000 + at, "name": name, "transform": transform}
        for at, (source, name, transform) in enumerate(fields)
    ]
    return parse(PartitionSpec, {"spec-id": 0, "fields": items}, "spec")


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transform_takes_what_pyiceberg_takes(transform: str, kind: str) -> None:
    ours, source = Transform.parse(transform), PrimitiveType.parse(kind)
    oracle, oracle_source = parse_transform(transform), TypeAdapter(OracleType).validate_python(kind)
    assert ours.accepts(source) == oracle.can_transform(oracle_source)
    if ours.accepts(source):
        assert str(ours.result_type(source)) == str(oracle.result_type(oracle_source))


@pytest.mark.parametrize("text", [*TRANSFORMS, "zorder(a, b)", "bucket", "Custom[3]"])
def test_transform_written_and_read_is_the_same(text: str) -> None:
    assert str(Transform.parse(text)) == text


@pytest.mark.parametrize("text", ["bucket[0]", "truncate[0]", "bucket[2147483648]"])
def test_transform_with_a_width_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="2147483647"):
        Transform.parse(text)


def test_long_texts_of_unknown_transforms_are_not_kept() -> None:
    tracemalloc.start()
    try:
        for number in range(20):
            Transform.parse(f"{number}{'x' * 1_000_000}")
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


def test_spec_in_json_is_read_and_written_exactly() -> None:
    data = {"spec-id": 3, "fields": [{"source-id": 1, "field-id": 1007, "name": "b", "transform": "bucket[16]"}]}
    assert parse(PartitionSpec, data, "spec").to_json() == data


def test_source_ids_of_version_3_with_one_source_are_read() -> None:
    data = {"spec-id": 0, "fields": [{"source-ids": [1], "field-id": 1000, "name": "a", "transform": "identity"}]}
    read = parse(PartitionSpec, data, "spec")
    assert read.to_json()["fields"] == [{"source-id": 1, "field-id": 1000, "name": "a", "transform": "identity"}]


@pytest.mark.parametrize("transform", ["zorder", "bucket[16]"])
def test_transform_of_several_sources_is_read_and_written_but_not_known(transform: str) -> None:
    data = {"spec-id": 0, "fields": [{"source-ids": [1, 3], "field-id": 1000, "name": "a", "transform": transform}]}
    read = parse(PartitionSpec, data, "spec")
    assert read.to_json() == data
    assert str(build_partition_type(read, SCHEMA).fields[0].type) == "string"
    with pytest.raises(InvalidRequestError, match=f"unknown transform '{transform}'".replace("[", r"\[")):
        check_spec(read, SCHEMA)
    order = {
        "order-id": 1,
        "fields": [{"source-ids": [1, 3], "transform": transform, "direction": "asc", "null-order": "nulls-last"}],
    }
    assert parse(SortOrder, order, "order").to_json() == order


def test_several_sources_of_a_transform_of_one_are_refused() -> None:
    data = {"fields": [{"source-ids": [1, 3], "name": "a", "transform": "identity"}]}
    with pytest.raises(InvalidRequestError, match="identity takes one source"):
        parse(UnboundPartitionSpec, data, "spec")


def test_specs_that_differ_in_ids_only_are_the_same() -> None:
    unbound = parse(UnboundPartitionSpec, {"fields": [{"source-id": 1, "name": "a", "transform": "identity"}]}, "spec")
    assert unbound.same_as(spec((1, "a", "identity")))
    assert not unbound.same_as(spec((1, "b", "identity")))
    assert not unbound.same_as(spec((1, "a", "identity"), (3, "x", "day")))


def test_partition_type_has_partition_field_ids_and_results() -> None:
    found = build_partition_type(
        spec((1, "a", "identity"), (3, "d", "month"), (99, "gone", "identity"), (98, "y", "year")), SCHEMA
    )
    assert [(each.id, each.name, str(each.type), each.required) for each in found.fields] == [
        (1000, "a", "int", False),
        (1001, "d", "int", False),
        (1002, "gone", "unknown", False),
        (1003, "y", "int", False),
    ]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ([(99, "x", "identity")], "doesn't exist"),
        ([(2, "x", "identity")], "doesn't take 's' of type struct"),
        ([(5, "x", "identity")], "a list or map"),
        ([(6, "x", "identity")], "doesn't take 'g'"),
        ([(7, "x", "bucket[4]")], "doesn't take 'f' of type double"),
        ([(1, "x", "identity"), (3, "x", "day")], "used twice"),
        ([(1, "", "bucket[4]")], "empty"),
        ([(1, "g", "bucket[4]")], "name of a column"),
        ([(1, "x", "zorder")], "unknown transform"),
    ],
)
def test_spec_that_breaks_a_rule_is_refused(fields: list[tuple[int, str, str]], said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        check_spec(spec(*fields), SCHEMA)


def test_spec_on_columns_inside_structs_and_of_dropped_sources_is_fine() -> None:
    check_spec(spec((1, "a", "identity"), (3, "x", "day"), (99, "gone", "void")), SCHEMA)
