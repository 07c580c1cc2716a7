"""Names of partition fields beside columns and each other, by the rules of Java's library."""

import pytest

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.partition import (
    PartitionField,
    PartitionSpec,
    Transform,
    check_column_names,
    rename_clashing_fields,
)
from duckicelake.iceberg.schema import Schema


def schema(*fields):
    return Schema.model_validate(
        {"fields": [{"id": i, "name": name, "required": False, "type": kind} for i, name, kind in fields]}
    )


def spec(spec_id, *fields):
    return PartitionSpec(
        spec_id=spec_id,
        fields=tuple(
            PartitionField(field_id=field_id, source_id=source, name=name, transform=Transform.parse(transform))
            for field_id, source, name, transform in fields
        ),
    )


def names(specs):
    return [[field.name for field in each.fields] for each in specs]


LIST = {
    "type": "list",
    "element-id": 5,
    "element-required": False,
    "element": {"type": "struct", "fields": [{"id": 6, "name": "x", "required": False, "type": "int"}]},
}


@pytest.mark.parametrize(
    ("columns", "specs", "expected"),
    [
        ([(1, "a", "int")], [spec(0, (1000, 1, "a", "identity"))], [["a"]]),
        ([(1, "b", "int"), (2, "a", "int")], [spec(0, (1000, 1, "a", "identity"))], [["a_1000"]]),
        (
            [(1, "id", "int"), (2, "id_bucket", "int")],
            [spec(0, (1000, 1, "id_bucket", "bucket[4]"))],
            [["id_bucket_4"]],
        ),
        (
            [(1, "id", "int")],
            [spec(0, (1000, 1, "id_bucket", "bucket[4]")), spec(1, (1001, 1, "id_bucket", "bucket[8]"))],
            [["id_bucket"], ["id_bucket_8"]],
        ),
        (
            [(1, "id", "int"), (2, "ID_bucket_8", "int")],
            [spec(0, (1000, 1, "id_bucket", "bucket[4]")), spec(1, (1001, 1, "id_bucket", "bucket[8]"))],
            [["id_bucket"], ["id_bucket_1001"]],
        ),
        (
            [(2, "a", "int")],
            [spec(0, (1000, 1, "a", "identity")), spec(1, (1001, 2, "a", "identity"))],
            [["a_1000"], ["a"]],
        ),
        ([(1, "a", "int"), (4, "l", LIST)], [spec(0, (1000, 1, "l.x", "identity"))], [["l.x_1000"]]),
        (  # one name for an id in all specs, though the newest had another
            [(1, "a", "int"), (2, "old", "int")],
            [spec(0, (1000, 1, "old", "identity")), spec(1, (1000, 1, "new", "identity"))],
            [["new"], ["new"]],
        ),
    ],
)
def test_fields_get_names_of_their_own(columns, specs, expected):
    known = schema(*columns)
    found = rename_clashing_fields(specs, known)

    assert names(found) == expected
    assert rename_clashing_fields(found, known) == found
    assert check_column_names(found, known) is False


def test_a_new_column_by_a_partition_fields_name_is_refused():
    specs = [spec(0, (1000, 1, "id_bucket", "bucket[4]"))]

    with pytest.raises(InvalidRequestError, match="sourced from different field in schema: id_bucket"):
        check_column_names(specs, schema((1, "id", "int"), (2, "id_bucket", "int")))
    assert check_column_names(specs, schema((2, "id_bucket", "int"))) is True  # its source has left the schema
    assert check_column_names(specs, schema((1, "id", "int"), (2, "ID_BUCKET", "int"))) is False
