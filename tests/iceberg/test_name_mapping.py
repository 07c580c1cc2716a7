"""Field ids by name."""

import json

import pytest

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.name_mapping import collect_schema_names, parse_name_mapping
from duckicelake.iceberg.schema import Schema
from duckicelake.properties import NAME_MAPPING


def test_mapping_of_the_specification() -> None:
    """The example of the table specification's appendix."""
    mapping = [
        {"field-id": 1, "names": ["id", "record_id"]},
        {"field-id": 2, "names": ["data"]},
        {
            "field-id": 3,
            "names": ["location"],
            "fields": [{"field-id": 4, "names": ["latitude", "lat"]}, {"field-id": 5, "names": ["longitude", "long"]}],
        },
    ]
    assert parse_name_mapping({NAME_MAPPING: json.dumps(mapping)}) == {
        ("id",): 1,
        ("record_id",): 1,
        ("data",): 2,
        ("location",): 3,
        ("location", "latitude"): 4,
        ("location", "lat"): 4,
        ("location", "longitude"): 5,
        ("location", "long"): 5,
    }


def test_names_without_a_field_are_left_out() -> None:
    mapping = [{"names": ["gone"], "fields": [{"field-id": 4, "names": ["x"]}]}, {"field-id": 5, "names": []}]
    assert parse_name_mapping({NAME_MAPPING: json.dumps(mapping)}) == {("gone", "x"): 4}


def test_no_mapping() -> None:
    assert parse_name_mapping({}) is None


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"names": ["a"], "field-id": 1.5}]', "[" * 100_000])
def test_malformed_mapping_is_the_clients_error(text: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"schema\.name-mapping\.default isn't a name mapping"):
        parse_name_mapping({NAME_MAPPING: text})


def test_names_of_a_schema_hold_every_field() -> None:
    inside = {"type": "struct", "fields": [{"id": 3, "name": "x", "type": "int", "required": True}]}
    value = {"type": "struct", "fields": [{"id": 7, "name": "y", "type": "int", "required": True}]}
    fields = [
        {"id": 1, "name": "a.b", "type": "int", "required": True},
        {"id": 2, "name": "s", "type": inside, "required": True},
        {"id": 4, "name": "m", "required": True}
        | {"type": {"type": "map", "key-id": 5, "key": "int", "value-id": 6, "value": value, "value-required": True}},
    ]
    assert collect_schema_names(Schema.model_validate({"type": "struct", "fields": fields})) == {
        ("a.b",): 1,
        ("s",): 2,
        ("s", "x"): 3,
        ("m",): 4,
        ("m", "key"): 5,
        ("m", "value"): 6,
        ("m", "value", "y"): 7,
    }
