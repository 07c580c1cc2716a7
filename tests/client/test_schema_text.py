"""Columns and partition fields as people write them, read by Iceberg's own rules."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckicelake.client.models import format_type, parse_column
from duckicelake.client.schema_text import parse_columns, parse_partition_fields
from duckicelake.errors import BadInputError
from duckicelake.iceberg.model import parse
from duckicelake.iceberg.schema import Schema
from tests.iceberg.test_types import texts as primitive_texts

names = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=8)


def nest(types: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    fields = st.lists(st.tuples(names, types), min_size=1, max_size=3, unique_by=lambda field: field[0])
    return st.one_of(
        types.map(lambda element: f"list<{element}>"),
        st.tuples(types, types).map(lambda pair: f"map<{pair[0]}, {pair[1]}>"),
        fields.map(lambda some: f"struct<{', '.join(f'{quote(name)}: {type_}' for name, type_ in some)}>"),
    )


def quote(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def count_ids(node: Any) -> list[int]:
    """All field ids of a schema."""
    if isinstance(node, dict):
        own = [value for key, value in node.items() if key in {"id", "element-id", "key-id", "value-id"}]
        return own + [number for value in node.values() for number in count_ids(value)]
    return [number for value in node for number in count_ids(value)] if isinstance(node, list) else []


@given(st.lists(st.tuples(names, st.recursive(primitive_texts, nest, max_leaves=5), st.booleans(), names), min_size=1))
def test_written_columns_are_read_as_they_are(columns: list[tuple[str, str, bool, str]]) -> None:
    text = ", ".join(
        f"{quote(name)} {type_}{' NOT NULL' * is_required} COMMENT '{doc.replace(chr(39), 2 * chr(39))}'"
        for name, type_, is_required, doc in columns
    )
    schema = parse_columns(text)
    found = [parse_column(field) for field in schema["fields"]]
    assert [(one.name, one.is_required, one.comment) for one in found] == [
        (name, is_required, doc) for name, _, is_required, doc in columns
    ]
    plain = [(one.type, type_) for one, (_, type_, *_) in zip(found, columns, strict=True) if "<" not in type_]
    assert all(own == type_.lower() for own, type_ in plain)
    ids = count_ids(schema)
    assert sorted(ids) == list(range(1, len(ids) + 1))


def test_nested_columns_are_a_schema_of_iceberg() -> None:
    schema = parse_columns("id bigint not null, m map<string, list<struct<a: decimal(9, 2), b timestamptz not null>>>")
    assert parse(Schema, {**schema, "schema-id": 0}, "schema").fields[1].name == "m"
    assert format_type(schema["fields"][1]["type"]) == "map<string, list<struct<a: decimal(9, 2), b: timestamptz>>>"


def test_partition_fields_are_a_spec() -> None:
    schema = parse_columns("id long, time timestamp, `a.b` string")
    spec = parse_partition_fields("day(time), bucket(16, id), Truncate(3, `a.b`), id", schema)
    assert [(field["name"], field["transform"], field["source-id"]) for field in spec["fields"]] == [
        ("time_day", "day", 2),
        ("id_bucket", "bucket[16]", 1),
        ("a.b_truncate", "truncate[3]", 3),
        ("id", "identity", 1),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "No columns"),
        ("id", "at the end: expected a type"),
        ("id long name string", "at 'name string': expected ',' or the end"),
        ("id list<int", "at the end: expected '>'"),
        ("id map<int>", "at '>': expected ','"),
        ("s struct<a: int, b>", "at '>': expected a type"),
        ("1d long", "at '1d long': expected the name of a column"),
        ("id long not", "at the end: expected 'null'"),
        ("id long comment 5", "at '5': expected a text in single quotes"),
        ("id long comment 'x", "expected a text in single quotes"),
        ("`id long", "expected the name of a column"),
    ],
)
def test_wrong_columns_are_refused_with_the_place(text: str, message: str) -> None:
    with pytest.raises(BadInputError, match=message.replace("(", r"\(")):
        parse_columns(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [("day(x)", "no column 'x'"), ("day time", "Invalid partition field at 'day time'"), ("bucket(id,4)", "Invalid")],
)
def test_wrong_partition_fields_are_refused(text: str, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        parse_partition_fields(text, parse_columns("id long, time date"))
