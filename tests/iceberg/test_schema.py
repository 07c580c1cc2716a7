from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema as OracleSchema
from pyiceberg.schema import assign_fresh_schema_ids

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.model import parse
from duckicelake.iceberg.schema import Schema, assign_fresh_ids, check_schema
from duckicelake.iceberg.types import NestedField

Json = Any


def field(field_id: int, name: str, kind: Json = "int", required: bool = False, **more: Json) -> Json:
    return {"id": field_id, "name": name, "required": required, "type": kind} | more


def struct(*fields: Json) -> Json:
    return {"type": "struct", "fields": list(fields)}


def schema(*fields: Json, identifiers: tuple[int, ...] = ()) -> Schema:
    return parse(Schema, struct(*fields) | {"schema-id": 0, "identifier-field-ids": list(identifiers)}, "schema")


kinds = st.recursive(
    st.sampled_from(["int", "long", "string", "decimal(9, 2)", "timestamptz"]),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda types: ("struct", types)),
        inner.map(lambda kind: ("list", kind)),
        st.tuples(inner, inner).map(lambda pair: ("map", *pair)),
    ),
    max_leaves=8,
)


class Numbered:
    """Builds JSON types whose ids are scattered, so that fresh ones differ."""

    def __init__(self) -> None:
        self.last = 1000

    def next(self) -> int:
        self.last -= 7
        return self.last

    def kind(self, shape: Json) -> Json:
        if isinstance(shape, str):
            return shape
        if shape[0] == "struct":
            return struct(*(field(self.next(), f"f{at}", self.kind(each)) for at, each in enumerate(shape[1])))
        if shape[0] == "list":
            element = {"element-id": self.next(), "element-required": True, "element": self.kind(shape[1])}
            return {"type": "list"} | element
        ids = {"key-id": self.next(), "value-id": self.next(), "value-required": False}
        return {"type": "map", "key": self.kind(shape[1]), "value": self.kind(shape[2])} | ids


schemas = st.lists(kinds, min_size=1, max_size=4).map(lambda shapes: Numbered().kind(("struct", shapes)))


@given(schemas)
def test_fresh_ids_are_those_of_pyiceberg(data: Json) -> None:
    ours, ids = assign_fresh_ids(parse(Schema, data, "schema"))
    oracle = assign_fresh_schema_ids(OracleSchema.model_validate(data))
    assert OracleSchema.model_validate(ours.to_json()).as_struct() == oracle.as_struct()
    assert sorted(ids.values()) == list(range(1, len(ids) + 1))
    assert ours.highest_field_id() == len(ids)


@given(schemas)
def test_schema_written_and_read_is_the_same(data: Json) -> None:
    read = parse(Schema, data, "schema")
    read.map_fields_by_id()
    assert parse(Schema, read.to_json(), "schema") == read


@given(schemas)
def test_lookups_by_id_agree_with_pyiceberg(data: Json) -> None:
    ours, oracle = parse(Schema, data, "schema"), OracleSchema.model_validate(data)
    names = ours.full_names()
    assert {each: oracle.find_column_name(each) for each in names} == names
    assert ours.highest_field_id() == oracle.highest_field_id
    assert {key: str(kind) for key, kind in ours.leaves().items()} == {
        key: str(found.field_type) for key, found in oracle._lazy_id_to_field.items() if found.field_type.is_primitive
    }
    assert {key: value for key, value in ours.parents().items() if value is not None} == oracle._lazy_id_to_parent


def test_fresh_ids_translate_identifier_fields() -> None:
    fresh, ids = assign_fresh_ids(schema(field(7, "a"), field(9, "b", required=True), identifiers=(9,)), start=5)
    assert ids == {7: 5, 9: 6}
    assert fresh.identifier_field_ids == (6,)


def test_fresh_ids_of_a_schema_with_one_id_twice_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="id 1"):
        assign_fresh_ids(schema(field(1, "a"), field(1, "b")))


def test_schemas_that_differ_in_id_only_are_the_same() -> None:
    one = schema(field(1, "a"))
    assert one.same_as(one.replace_fields(schema_id=4))
    assert not one.same_as(schema(field(1, "a", doc="other")))
    assert not one.same_as(schema(field(1, "a", required=True), identifiers=(1,)))


def test_changed_copy_of_a_schema_forgets_what_was_looked_up() -> None:
    one = schema(field(1, "a"))
    assert one.full_names() == {1: "a"}
    assert one.replace_fields(fields=schema(field(2, "b")).fields).full_names() == {2: "b"}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ([field(1, "id"), field(2, "ID")], "differ only by case"),
        ([field(1, "id"), field(2, "id")], "twice"),
        ([field(1, "s", struct(field(2, "x"), field(3, "X")))], "differ only by case"),
        ([field(1, "a"), field(1, "b")], "have the id 1"),
        ([field(1, "")], "no name"),
        ([field(2147483448, "a")], "out of range"),
        ([field(1, "s", struct(field(2, "x"))), field(3, "s.x")], "full name 's.x'"),
        ([field(1, "g", "geometry", **{"write-default": "POINT (1 1)"})], "must be null"),
        ([field(1, "u", "unknown", required=True)], "must be optional"),
        ([field(1, "n", "int", **{"initial-default": "seven"})], "int"),
        ([field(1, "s", struct(field(2, "x")), **{"initial-default": {"2": 1}})], "null or {}"),
    ],
)
def test_schema_that_breaks_a_rule_is_refused(fields: list[Json], said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        check_schema(schema(*fields), 3)


@pytest.mark.parametrize(
    "kind", ["variant", "unknown", "timestamp_ns", "timestamptz_ns", "geometry", "geography", "geography(EPSG:4267)"]
)
def test_type_of_version_3_is_refused_before_it(kind: str) -> None:
    inside = schema(field(1, "s", struct(field(2, "deep", kind))))
    check_schema(inside, 3)
    with pytest.raises(InvalidRequestError, match="not supported until v3"):
        check_schema(inside, 2)


@pytest.mark.parametrize("default", ["initial-default", "write-default"])
def test_default_is_refused_before_version_3(default: str) -> None:
    with_default = schema(field(1, "a", **{default: 0}))
    check_schema(with_default, 3)
    with pytest.raises(InvalidRequestError, match="not supported until v3"):
        check_schema(with_default, 2)


@pytest.mark.parametrize(
    ("fields", "identifier", "said"),
    [
        ([field(1, "a", required=True)], 2, "doesn't exist"),
        ([field(1, "a")], 1, "not required"),
        ([field(1, "a", "double", required=True)], 1, "double"),
        ([field(1, "s", struct(field(2, "x", required=True)), required=True)], 1, "not a primitive"),
        ([field(1, "s", struct(field(2, "x", required=True)))], 2, "not a required struct"),
        (
            [
                field(
                    1, "l", {"type": "list", "element-id": 2, "element": "int", "element-required": True}, required=True
                )
            ],
            2,
            "not a required struct",
        ),
    ],
)
def test_field_that_cannot_identify_rows_is_refused(fields: list[Json], identifier: int, said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        check_schema(schema(*fields, identifiers=(identifier,)), 2)


def test_required_field_in_required_structs_may_identify_rows() -> None:
    check_schema(schema(field(1, "s", struct(field(2, "x", required=True)), required=True), identifiers=(2,)), 2)


def test_fields_are_looked_up_once_for_all_identifier_fields() -> None:
    class Counting(Schema):
        looked_up: ClassVar[int] = 0

        def map_fields_by_id(self) -> dict[int, NestedField]:
            Counting.looked_up += 1
            return super().map_fields_by_id()

    ids = range(1, 100)
    fields = [field(number, f"f{number}", required=True) for number in ids]
    check_schema(parse(Counting, struct(*fields) | {"identifier-field-ids": list(ids)}, "schema"), 2)
    assert Counting.looked_up < 5


def test_what_is_made_of_a_schema_is_made_once_and_is_no_part_of_it() -> None:
    made: list[Schema] = []

    def count(each: Schema) -> int:
        made.append(each)
        return len(each.fields)

    known, equal = (schema(field(1, "a"), field(2, "b")) for _ in range(2))
    assert [known.compute_once(count) for _ in range(3)] == [2, 2, 2]
    assert made == [known]
    assert known == equal
    assert hash(known) == hash(equal)
    assert known.to_json() == equal.to_json()
    shorter = known.replace_fields(fields=known.fields[:1])
    assert shorter.compute_once(count) == 1
    assert made == [known, shorter]
