"""What policies come to for one principal, and for the schema that a table has by now."""

from typing import Any

import pytest

from duckicelake.iceberg.model import parse
from duckicelake.iceberg.read_restrictions import NO_ROWS, HeldPolicy, Mask, Restriction, build_restrictions
from duckicelake.iceberg.schema import Schema


def build_test(column: int, value: Any = "EU") -> dict[str, Any]:
    return {
        "type": "eq",
        "left": {"type": "reference", "id": column},
        "right": {"type": "literal", "value": value},
    }


def build_schema(*fields: tuple[int, str, str, bool]) -> Schema:
    columns = [
        {"id": id_, "name": name, "type": kind, "required": is_required} for id_, name, kind, is_required in fields
    ]
    return parse(Schema, {"type": "struct", "fields": columns}, "schema")


SCHEMA = build_schema((1, "region", "string", False), (2, "email", "string", False), (3, "id", "long", True))


def test_filters_add_up_and_the_strictest_mask_counts() -> None:
    held = [
        HeldPolicy(7, filter=build_test(1)),
        HeldPolicy(7, 2, "email", Mask.FIRST_4),
        HeldPolicy(7, 2, "email", Mask.SHA_256),
        HeldPolicy(7, 2, "email", Mask.LAST_4),
        HeldPolicy(7, filter=build_test(3, 5)),
        HeldPolicy(8, 1, "a", Mask.NULL),
    ]
    found = build_restrictions(held)
    assert found == {
        7: Restriction((build_test(1), build_test(3, 5)), {2: Mask.SHA_256}, {2: "email"}),
        8: Restriction((), {1: Mask.NULL}, {1: "a"}),
    }
    assert found[7].fit(SCHEMA).to_json() == {
        "required-column-projections": [{"action": "sha-256-global", "field-id": 2}],
        "required-row-filter": {"type": "and", "left": build_test(1), "right": build_test(3, 5)},
    }
    assert Restriction().to_json() == {}


@pytest.mark.parametrize(
    ("mask", "kind", "is_required", "expected"),
    [
        (Mask.LAST_4, "string", True, Mask.LAST_4),
        (Mask.LAST_4, "long", False, Mask.NULL),
        (Mask.YEAR, "long", True, Mask.FIXED_VALUE),
        (Mask.NULL, "string", True, Mask.FIXED_VALUE),
        (Mask.FIXED_VALUE, "variant", False, Mask.NULL),
    ],
)
def test_a_mask_that_a_type_does_not_fit_hides_more(mask: Mask, kind: str, is_required: bool, expected: Mask) -> None:
    schema = build_schema((2, "email", kind, is_required))
    assert Restriction((), {2: mask}).fit(schema) == Restriction((), {2: expected})


def test_a_table_whose_column_no_mask_hides_shows_no_rows() -> None:
    assert Restriction((), {2: Mask.NULL}).fit(build_schema((2, "v", "variant", True))) == Restriction((NO_ROWS,))


def test_a_column_in_the_place_of_a_masked_one_shows_nothing() -> None:
    schema = build_schema((1, "region", "string", False), (9, "EMail", "string", False))
    assert Restriction((), {2: Mask.LAST_4}, {2: "email"}).fit(schema) == Restriction((), {9: Mask.NULL})


def test_a_renamed_column_keeps_its_mask_and_the_new_one_of_its_name_none() -> None:
    schema = build_schema((2, "address", "string", False), (9, "email", "string", False))
    assert Restriction((), {2: Mask.LAST_4}, {2: "email"}).fit(schema) == Restriction((), {2: Mask.LAST_4})


def test_a_column_of_a_former_schema_keeps_its_mask() -> None:
    now = build_schema((1, "region", "string", False), (9, "email", "string", False))
    found = Restriction((), {2: Mask.LAST_4}, {2: "email"}).fit(now, [SCHEMA, now])
    assert found == Restriction((), {2: Mask.LAST_4, 9: Mask.NULL})


@pytest.mark.parametrize("filters", [(build_test(4),), (build_test(1), {"type": "not", "child": build_test(4)})])
def test_a_filter_on_a_column_that_is_gone_leaves_no_rows(filters: tuple[Any, ...]) -> None:
    assert Restriction(filters, {2: Mask.NULL}).fit(SCHEMA) == Restriction((NO_ROWS,), {2: Mask.NULL})


def build_nested(person: Any, street: int = 6) -> Schema:
    homes = {
        "type": "list",
        "element-id": 5,
        "element-required": True,
        "element": {"type": "struct", "fields": [build_field(street, "street", "string")]},
    }
    fields = [build_field(1, "id", "long"), build_field(2, "person", person), build_field(4, "homes", homes)]
    return parse(Schema, {"type": "struct", "fields": fields}, "schema")


def build_field(id_: int, name: str, kind: Any) -> dict[str, Any]:
    return {"id": id_, "name": name, "type": kind, "required": False}


def build_struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": [*fields]}


EMAIL = build_field(3, "email", "string")
NAMES = {3: "person.email", 6: "homes.element.street"}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (build_nested(build_struct(EMAIL)), {3: Mask.LAST_4, 6: Mask.SHA_256}),
        (build_nested(build_struct(build_field(3, "mail", "string"))), {3: Mask.LAST_4, 6: Mask.SHA_256}),
        (build_nested(build_struct(build_field(3, "email", "long"))), {3: Mask.NULL, 6: Mask.SHA_256}),
        (build_nested(build_struct(build_field(9, "Email", "string"))), {9: Mask.NULL, 6: Mask.SHA_256}),
        (build_nested(build_struct(build_field(9, "age", "int"))), {6: Mask.SHA_256}),
        (build_nested("string"), {2: Mask.NULL, 6: Mask.SHA_256}),
        (build_nested(build_struct(EMAIL), street=9), {3: Mask.LAST_4, 9: Mask.NULL}),
    ],
)
def test_masks_of_fields_follow_them_and_hide_what_takes_their_place(schema: Schema, expected: dict[int, Mask]) -> None:
    assert Restriction((), {3: Mask.LAST_4, 6: Mask.SHA_256}, NAMES).fit(schema) == Restriction((), expected)


def test_mask_of_a_whole_covers_those_of_its_fields() -> None:
    schema = build_nested(build_struct(EMAIL))
    masks = {3: Mask.LAST_4, 2: Mask.FIXED_VALUE, 4: Mask.NULL, 6: Mask.SHA_256}
    assert Restriction((), masks).fit(schema) == Restriction((), {2: Mask.FIXED_VALUE, 4: Mask.NULL})
