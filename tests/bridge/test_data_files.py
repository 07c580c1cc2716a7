"""Which bounds a manifest may promise (docs/metrics.md)."""

import pytest

from duckicelake.bridge.data_files import MetricsContract
from duckicelake.iceberg.manifest.entry import FileContent
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.iceberg.values import to_bytes

DATA = FileContent.DATA
NAN = float("nan")


def schema(*fields):
    return Schema.model_validate({"type": "struct", "schema-id": 0, "fields": fields})


def field(field_id, kind):
    return {"id": field_id, "name": f"c{field_id}", "required": False, "type": kind}


def metrics(kind, low, high, **counts):
    type_ = PrimitiveType.parse(kind)
    stored = {name: {"7": to_bytes(type_, value).hex()} for name, value in (("lower", low), ("upper", high))}
    found = {"column_sizes": {}, "lower_bounds": stored["lower"], "upper_bounds": stored["upper"]}
    return found | {f"{name}_value_counts": {"7": count} for name, count in counts.items()}


def published(kind, given):
    found = MetricsContract([schema(field(7, kind))]).publish_bounds(DATA, given)
    return tuple(found[name].get("7") for name in ("lower_bounds", "upper_bounds"))


def stored(kind, *values):
    type_ = PrimitiveType.parse(kind)
    return tuple(None if value is None else to_bytes(type_, value).hex() for value in values)


@pytest.mark.parametrize(("kind", "values", "counts", "expected"), [
    ("int", (1, 2), {"null": 0}, (1, 2)),
    ("int", (1, 2), {"null": 5}, (1, 2)),
    ("int", (1, 2), {}, (None, None)),
    ("double", (1.0, 2.0), {"null": 0}, (None, None)),
    ("double", (1.0, 2.0), {"null": 0, "nan": -1}, (None, None)),
    ("double", (1.0, 2.0), {"nan": 0}, (None, None)),
    ("double", (1.0, 2.0), {"null": 0, "nan": 0}, (1.0, 2.0)),
    ("double", (1.0, 2.0), {"null": 0, "nan": 3}, (1.0, None)),
    ("double", (NAN, 2.0), {"null": 0, "nan": 0}, (None, 2.0)),
    ("double", (0.0, -0.0), {"null": 0, "nan": 0}, (-0.0, 0.0)),
    ("float", (0.0, -0.0), {"null": 0, "nan": 0}, (-0.0, 0.0)),
    ("float", (1.0, NAN), {"null": 0, "nan": 0}, (1.0, None)),
    ("string", ("a", "b"), {"null": 0}, ("a", "b")),
    ("binary", (b"a", b"b"), {"null": 0}, (b"a", b"b")),
])  # fmt: skip
def test_bound_is_published_only_beside_counts_that_clients_need(kind, values, counts, expected):
    assert published(kind, metrics(kind, *values, **counts)) == stored(kind, *expected)


def test_float_that_became_a_double_is_judged_by_its_length():
    given = metrics("float", 0.0, -0.0, null=0, nan=0)

    assert published("double", given) == stored("float", -0.0, 0.0)


def test_metrics_that_promise_nothing_else_are_the_same_object():
    given = metrics("int", 1, 2, null=0)

    assert MetricsContract([schema(field(7, "int"))]).publish_bounds(DATA, given) is given


def listed(field_id, element):
    return {"type": "list", "element-id": field_id, "element": element, "element-required": False}


@pytest.mark.parametrize("kind", [
    listed(7, "int"), listed(6, {"type": "struct", "fields": [field(7, "int")]}), "uuid",
    {"type": "map", "key-id": 7, "key": "int", "value-id": 8, "value": "int", "value-required": False},
])  # fmt: skip
def test_uuids_and_what_is_in_lists_and_maps_have_no_bounds(kind):
    found = MetricsContract([schema(field(5, kind) if kind != "uuid" else field(7, kind))]).publish_bounds(
        DATA, metrics("int", 1, 2, null=0)
    )

    assert (found["lower_bounds"], found["upper_bounds"]) == ({}, {})


def test_fields_of_structs_have_bounds():
    kind = {"type": "struct", "fields": [field(7, "int")]}
    given = metrics("int", 1, 2, null=0)

    assert MetricsContract([schema(field(5, kind))]).publish_bounds(DATA, given) is given


def test_position_deletes_keep_their_bounds_and_get_sizes():
    given = {"lower_bounds": {"2147483546": "2f61"}}

    assert MetricsContract([]).publish_bounds(FileContent.POSITION_DELETES, given) == {"column_sizes": {}, **given}


def test_column_is_of_the_type_that_it_has_now():
    before, after = schema(field(7, "float")), schema(field(7, "double"))

    found = MetricsContract([before, after]).publish_bounds(DATA, metrics("double", 1.0, 2.0, null=0))

    assert (found["lower_bounds"], found["upper_bounds"]) == ({}, {})
