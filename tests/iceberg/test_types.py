import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from pyiceberg.types import IcebergType as OracleType

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.model import parse
from duckicelake.iceberg.types import PLAIN_TYPES, MapType, NestedField, PrimitiveType, StructType, walk_fields

texts = st.one_of(
    st.sampled_from(sorted(PLAIN_TYPES)),
    st.integers(1, 10_000).map(lambda length: f"fixed[{length}]"),
    st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: f"decimal({p}, {s})")),
    st.sampled_from(["geometry(EPSG:3857)", "geography(EPSG:4267)", "geography(OGC:CRS84, karney)"]),
)


@given(texts)
def test_primitive_type_written_and_read_is_the_same(text: str) -> None:
    parsed = PrimitiveType.parse(text)
    assert str(parsed) == text
    assert PrimitiveType.parse(str(parsed)) == parsed


@given(st.integers(1, 38).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, p))))
def test_decimal_is_spelled_as_pyiceberg_spells_it(numbers: tuple[int, int]) -> None:
    text = f"decimal({numbers[0]},{numbers[1]})"
    assert str(PrimitiveType.parse(text)) == str(TypeAdapter(OracleType).validate_python(text))


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("decimal(9,2)", "decimal(9, 2)"),
        ("DECIMAL( 9 , 2 )", "decimal(9, 2)"),
        ("fixed[ 16 ]", "fixed[16]"),
        ("geometry(OGC:CRS84)", "geometry"),
        ("geometry('srid:3857')", "geometry(srid:3857)"),
        ("geography(, spherical)", "geography(OGC:CRS84, spherical)"),
        ("Timestamptz", "timestamptz"),
    ],
)
def test_type_text_of_any_spelling_is_written_in_one(text: str, written: str) -> None:
    assert str(PrimitiveType.parse(text)) == written


@pytest.mark.parametrize(
    "text",
    ["integer", "decimal(39, 2)", "decimal(0, 0)", "decimal(5, 6)", "fixed[-1]", "geography(x, flat)", "", "list"],
)
def test_unknown_type_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        PrimitiveType.parse(text)
    assert text in str(refused.value)


def test_nested_type_in_json_is_read_and_written_exactly() -> None:
    data = {
        "id": 1,
        "name": "m",
        "required": True,
        "type": {
            "type": "map",
            "key-id": 2,
            "key": "string",
            "value-id": 3,
            "value": {
                "type": "list",
                "element-id": 4,
                "element": {"type": "struct", "fields": [{"id": 5, "name": "x", "required": False, "type": "int"}]},
                "element-required": False,
            },
            "value-required": True,
        },
        "doc": "nested",
    }
    field = parse(NestedField, data, "field")
    assert field.to_json() == data
    assert isinstance(field.type, MapType)
    assert [(each.id, each.name, parent) for each, parent in walk_fields(StructType(fields=(field,)))] == [
        (1, "m", None),
        (2, "key", 1),
        (3, "value", 1),
        (4, "element", 3),
        (5, "x", 4),
    ]


def test_nulls_inside_a_default_are_kept_while_null_keys_are_left_out() -> None:
    data = {"id": 1, "name": "a", "required": False, "type": "string", "doc": None, "write-default": {"k": None}}
    assert parse(NestedField, data, "field").to_json() == {key: value for key, value in data.items() if key != "doc"}


@pytest.mark.parametrize(
    "data",
    [
        {"id": "1", "name": "a", "required": True, "type": "int"},
        {"id": True, "name": "a", "required": True, "type": "int"},
        {"id": 2**31, "name": "a", "required": True, "type": "int"},
        {"id": 1, "name": "a", "required": True, "type": {"type": "tuple"}},
        {"id": 1, "name": "a", "required": True, "type": 7},
        {"id": 1, "name": "a", "required": True},
        [],
    ],
)
def test_malformed_field_is_an_invalid_request(data: object) -> None:
    with pytest.raises(InvalidRequestError):
        parse(NestedField, data, "field")


def test_type_nested_deeper_than_any_stack_is_an_invalid_request() -> None:
    kind: object = "int"
    for _ in range(600):
        kind = {"type": "list", "element-id": 1, "element": kind, "element-required": True}
    with pytest.raises(InvalidRequestError):
        parse(NestedField, {"id": 1, "name": "a", "required": True, "type": kind}, "field")


@pytest.mark.parametrize("kind", [{"type": "list"}, ["list"], 1, None, "x" * 500])
def test_type_that_is_no_name_of_a_nested_type_is_refused_in_a_few_words(kind: object) -> None:
    field = {"id": 1, "name": "a", "required": False, "type": {"type": kind}}
    with pytest.raises(InvalidRequestError, match="unknown type") as refused:
        parse(NestedField, field, "field")
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("text", ["geometry(" + " " * 100_000, "geography(" + "x " * 100_000, " " * 100_000 + "int"])
def test_text_on_which_patterns_would_dwell_is_refused_at_once(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="no type is that long"):
        PrimitiveType.parse(text)
