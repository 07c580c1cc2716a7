"""What people write for partitions and sort orders, and the same in a table's metadata."""

import pytest

from duckicelake.errors import BadInputError
from duckicelake.maintenance.layout import (
    RowOrder,
    RowSortKey,
    TransformedColumn,
    parse_order,
    parse_partitions,
    parse_sort_keys,
    read_partitions,
    read_sort_keys,
)

METADATA = {
    "current-schema-id": 1,
    "schemas": [
        {"schema-id": 0, "fields": []},
        {
            "schema-id": 1,
            "fields": [
                {"id": 1, "name": "id", "type": "long"},
                {"id": 2, "name": "s", "type": {"type": "struct", "fields": [{"id": 3, "name": "at", "type": "date"}]}},
            ],
        },
    ],
    "default-spec-id": 2,
    "partition-specs": [
        {"spec-id": 0, "fields": []},
        {
            "spec-id": 2,
            "fields": [
                {"source-id": 3, "transform": "month"},
                {"source-id": 1, "transform": "void"},
                {"source-id": 1, "transform": "bucket[8]"},
            ],
        },
    ],
    "default-sort-order-id": 1,
    "sort-orders": [
        {
            "order-id": 1,
            "fields": [{"source-id": 1, "transform": "identity", "direction": "desc", "null-order": "nulls-last"}],
        }
    ],
}


def test_partitions_are_read_as_iceberg_names_them_and_said_as_spark_does() -> None:
    parts = parse_partitions("months(s.at), Bucket(8, id), truncate(3,`a b`), plain")
    assert parts == (
        TransformedColumn(("s", "at"), "month"), TransformedColumn(("id",), "bucket[8]"),
        TransformedColumn(("a b",), "truncate[3]"), TransformedColumn(("plain",)),
    )  # fmt: skip
    assert [part.sql for part in parts] == ["months(`s`.`at`)", "bucket(8, `id`)", "truncate(3, `a b`)", "`plain`"]


def test_orders_have_the_nulls_where_sql_has_them_unless_they_say() -> None:
    keys = parse_sort_keys("a, day(b) desc, c DESC NULLS FIRST, d asc nulls last")
    assert [tuple(key.to_json().values()) for key in keys] == [
        ("a", "identity", "asc", "nulls-first"), ("b", "day", "desc", "nulls-last"),
        ("c", "identity", "desc", "nulls-first"), ("d", "identity", "asc", "nulls-last"),
    ]  # fmt: skip


def test_layout_of_a_table_is_what_would_have_been_written_for_it() -> None:
    assert read_partitions(METADATA) == parse_partitions("month(s.at), bucket(8, id)")
    assert (
        read_sort_keys(METADATA) == parse_sort_keys("id desc") == (RowSortKey(TransformedColumn(("id",)), True, False),)
    )


def test_orders_of_files_are_read_as_people_write_them() -> None:
    day, id_, x, y = (TransformedColumn((name,)) for name in ("day", "id", "x", "y"))
    assert parse_order("day DESC, id") == RowOrder((RowSortKey(day, True, False), RowSortKey(id_, False, True)))
    assert parse_order("id asc nulls last") == RowOrder((RowSortKey(id_, False, False),))
    assert (
        parse_order("zorder(x, y)")
        == parse_order("Z-Order (x,y)")
        == RowOrder((RowSortKey(x), RowSortKey(y)), is_zorder=True)
    )
    assert [str(parse_order(text)) for text in ("s.at desc, id", "zorder(x,y)")] == ["s.at DESC, id", "zorder(x, y)"]


@pytest.mark.parametrize("text", ["zorder(x DESC)", "x sideways", "day(at)", "zorder(bucket(2, id))", "a,,b", ""])
def test_what_is_no_order_of_files_is_refused(text: str) -> None:
    with pytest.raises(BadInputError):
        parse_order(text)


@pytest.mark.parametrize("text", ["bucket(id)", "month(3, at)", "upper(id)", "a b", "a,,b", ""])
def test_what_is_no_layout_is_refused(text: str) -> None:
    with pytest.raises(BadInputError):
        parse_partitions(text)
