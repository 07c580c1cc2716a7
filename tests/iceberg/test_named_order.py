"""A sort order by names of columns: the ids of the schema's fields, or one line that says what is wrong."""

import pytest

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.sort import parse_named_order

SCHEMA = Schema.model_validate(
    {
        "type": "struct",
        "schema-id": 0,
        "fields": [
            {"id": 3, "name": "Id", "type": "long", "required": False},
            {
                "id": 5,
                "name": "place",
                "required": False,
                "type": {
                    "type": "struct",
                    "fields": [{"id": 7, "name": "lat", "type": "double", "required": False}],
                },
            },
        ],
    }
)
FIELD = '{{"column": "{}", "transform": "identity", "direction": "asc", "null-order": "nulls-first"}}'


def test_columns_are_found_regardless_of_case_and_inside_structs() -> None:
    order = parse_named_order(f'{{"fields": [{FIELD.format("iD")}, {FIELD.format("PLACE.lat")}]}}', SCHEMA)
    assert [field.source_id for field in order.fields] == [3, 7]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{oops", "in property duckicelake.sort-order: Invalid JSON: key must be a string at line 1 column 2"),
        ("{}", "Invalid sort order in property duckicelake.sort-order: fields: Field required"),
        (f'{{"fields": [{FIELD.format("nowhere")}]}}', "Cannot find column 'nowhere'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(text: str, said: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        parse_named_order(text, SCHEMA)
    assert str(refused.value).endswith(said)
    assert "\n" not in str(refused.value)
