"""Delta's schemas, read and written."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckicelake.delta.log.schema import (
    DeltaArray,
    DeltaDecimal,
    DeltaField,
    DeltaMap,
    DeltaPrimitive,
    DeltaStruct,
    DeltaType,
    format_schema,
    parse_schema,
)
from duckicelake.errors import DamagedLogError

LONG = DeltaPrimitive("long")


def extended(parts: st.SearchStrategy[DeltaType]) -> st.SearchStrategy[DeltaType]:
    names = st.text(min_size=1).filter(lambda name: "\0" not in name)
    fields = st.builds(DeltaField, names, parts, st.booleans(), st.just({"delta.columnMapping.id": 3}))
    return (
        st.builds(DeltaArray, parts, st.booleans())
        | st.builds(DeltaMap, parts, parts, st.booleans())
        | st.builds(lambda found: DeltaStruct(tuple(found)), st.lists(fields, max_size=3))
    )


PLAIN: st.SearchStrategy[DeltaType] = st.sampled_from(
    [LONG, DeltaPrimitive("timestamp_ntz"), DeltaPrimitive("variant"), DeltaPrimitive("interval day to second")]
) | st.builds(DeltaDecimal, st.integers(1, 38), st.integers(0, 38))


@given(st.recursive(PLAIN, extended, max_leaves=8))
def test_schema_is_read_as_it_was_written(kind: DeltaType) -> None:
    schema = DeltaStruct((DeltaField("c", kind, nullable=False, metadata={"comment": "ä\n"}),))
    assert parse_schema(format_schema(schema)) == schema


def text(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "struct", "fields": [{"nullable": True, "metadata": {}, **field} for field in fields]})


def test_what_columns_say_of_themselves() -> None:
    parsed = parse_schema(
        text(
            {
                "name": "a",
                "type": "long",
                "metadata": {
                    "delta.columnMapping.id": 7,
                    "delta.columnMapping.physicalName": "col-1",
                    "comment": "no",
                    "CURRENT_DEFAULT": "1 + 1",
                },
            },
            {
                "name": "m",
                "type": {"type": "map", "keyType": "string", "valueType": "decimal(10,4)", "valueContainsNull": True},
                "metadata": {
                    "__CHAR_VARCHAR_TYPE_STRING": "map<char(3),int>",
                    "delta.columnMapping.nested.ids": {"m.key": 9, "m.value": 10},
                },
            },
            {"name": "i", "type": "decimal"},
        )
    )
    a, m, i = parsed.fields
    assert (a.id, a.physical_name, a.comment, a.default) == (7, "col-1", "no", "1 + 1")
    assert (m.characters, m.nested_ids) == ("map<char(3),int>", {"m.key": 9, "m.value": 10})
    assert (i.type, i.id, i.physical_name) == (DeltaDecimal(10, 0), None, "i")


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("{", "can't be read"),
        ('"long"', "isn't a struct"),
        ('{"type":"struct"}', "lacks 'fields'"),
        (text({"name": "a"}), "lacks 'type'"),
        (text({"name": 7, "type": "long"}), "Invalid name 7"),
        (text({"name": "a", "type": {"type": "array", "elementType": "long"}}), "lacks 'containsNull'"),
        (text({"name": "a", "type": 7}), "can't be read"),
        ('{"type":"struct","fields":[' * 5000, "can't be read"),
        (text({"name": "", "type": "long"}), "Invalid name ''"),
        (text({"name": "a\0", "type": "long"}), "Invalid name"),
        (text({"name": "a", "type": "long", "metadata": [1]}), "can't be read"),
        (text({"name": "a", "type": "long", "metadata": {"comment": 7}}), "comment of column a is 7"),
        (text({"name": "a", "type": "long", "metadata": {"delta.columnMapping.physicalName": 7}}), "Invalid name 7"),
        (text({"name": "a", "type": "long", "metadata": {"delta.columnMapping.id": "7"}}), "has the id '7'"),
        (text({"name": "a", "type": "long", "metadata": {"delta.columnMapping.id": 2**31}}), "has the id 2147483648"),
        (text({"name": "a", "type": "long", "metadata": {"delta.columnMapping.nested.ids": {"a": "7"}}}), "the id '7'"),
    ],
)
def test_what_is_no_schema_is_refused(schema: str, why: str) -> None:
    with pytest.raises(DamagedLogError, match=why):
        parse_schema(schema)


def test_types_are_nested_as_deep_as_json_may_be() -> None:
    def nested(levels: int) -> str:
        opening = '{"type":"struct","fields":[{"name":"f","nullable":true,"metadata":{},"type":'
        return f'{opening * levels}"long"{"}]}" * levels}'

    parsed = parse_schema(nested(64))
    assert parse_schema(format_schema(parsed)) == parsed
    with pytest.raises(DamagedLogError, match="nested more than 64 levels deep"):
        parse_schema(nested(300))
