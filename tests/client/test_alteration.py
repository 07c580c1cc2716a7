"""Changes of a table's columns, partitions and order, as people write them."""

from typing import Any

import pytest
from pydantic import TypeAdapter

from duckicelake.client.alteration import build_alteration
from duckicelake.client.models import format_type
from duckicelake.client.query_result import QueryResult
from duckicelake.client.schema_text import parse_columns
from duckicelake.errors import BadInputError
from duckicelake.iceberg.requirements import TableRequirement
from duckicelake.iceberg.updates import TableUpdate

COLUMNS = "id long not null, `a.b` string comment 'x', s struct<city: string, zip: int>, tags list<struct<n: int>>"


def build_metadata() -> Any:
    schema = parse_columns(COLUMNS) | {"schema-id": 3, "identifier-field-ids": [1]}
    field = {"source-id": 1, "field-id": 1000, "name": "shard", "transform": "bucket[4]"}
    return {
        "table-uuid": "u",
        "schemas": [schema],
        "current-schema-id": 3,
        "last-column-id": 8,
        "partition-specs": [{"spec-id": 1, "fields": [field]}],
        "default-spec-id": 1,
        "last-partition-id": 1000,
        "default-sort-order-id": 0,
    }


def alter(*clauses: str) -> Any:
    """The schema after the clauses."""
    built = build_alteration(build_metadata(), clauses)
    TypeAdapter(list[TableRequirement]).validate_python(built["requirements"])
    return next(update["schema"] for update in built["updates"] if update["action"] == "add-schema")


def write(schema: Any) -> list[str]:
    return [f"{field['name']} {format_type(field['type'])}" for field in schema["fields"]]


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ("add column `x y` map<string, int> comment 'it''s' first", "x y map<string, int>"),
        ("ADD COLUMN s.street string after city", "s struct<city: string, street: string, zip: int>"),
        ("add column tags.element.m long", "tags list<struct<n: int, m: long>>"),
        ("rename column `a.b` to c", "c string"),
        ("alter column s.zip type long", "s struct<city: string, zip: long>"),
        ("drop column s.city", "s struct<zip: int>"),
    ],
)
def test_columns_change_by_their_path(clause: str, expected: str) -> None:
    assert expected in write(alter(clause))


def test_changes_follow_one_another_and_new_ids_are_above_the_last() -> None:
    clauses = ("add column n int not null default -5", "alter column n first", "rename column n to m", "drop column id")
    changed = alter(*clauses)
    first = changed["fields"][0]
    assert (first["name"], first["id"], first["initial-default"], first["write-default"]) == ("m", 9, -5, -5)
    assert "identifier-field-ids" not in changed


def test_null_comment_and_keys_change() -> None:
    changed = alter("alter column id drop not null", "alter column `a.b` comment ''", "identifier fields nothing")
    assert not changed["fields"][0]["required"]
    assert "doc" not in changed["fields"][1]
    assert "identifier-field-ids" not in changed
    assert alter("drop column tags", "identifier fields s.zip, id")["identifier-field-ids"] == [5, 1]


def test_partition_field_that_stays_keeps_its_name_and_order_has_nulls() -> None:
    built = build_alteration(
        build_metadata(), ["partition by bucket(4, id), truncate(2, `a.b`)", "order by s.city desc, id nulls last"]
    )
    TypeAdapter(list[TableUpdate]).validate_python(built["updates"])
    spec, _, order, _ = built["updates"]
    assert [field["name"] for field in spec["spec"]["fields"]] == ["shard", "a.b_truncate"]
    kinds = [(field["direction"], field["null-order"]) for field in order["sort-order"]["fields"]]
    assert kinds == [("desc", "nulls-last"), ("asc", "nulls-last")]
    cleared = build_alteration(build_metadata(), ["partition by nothing", "order by nothing"])["updates"]
    assert (cleared[0]["spec"]["fields"], cleared[2]["sort-order"]) == ([], {"order-id": 0, "fields": []})


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        ("", "Invalid change ''"),
        ("ad column x int", "expected add column"),
        ("add x int", "expected 'column'"),
        ("add column id int", "There is a column 'id' already"),
        ("add column id.x int", "id is no struct"),
        ("add column x int after nope", "No column 'nope' beside 'x'"),
        ("add column x int default", "expected a default"),
        ("drop column nope", "No column 'nope'; the columns are id"),
        ("drop column id now", "at 'now': expected nothing more"),
        ("rename column id to tags", "There is a column 'tags' already"),
        ("alter column id set not null", "expected type, comment"),
        ("partition by", "expected fields"),
        ("partition by day(nope)", "no column 'nope'"),
        ("partition by id desc", "partitions have no order"),
        ("order by id up", "Invalid sort field at 'id up'"),
        ("identifier fields a b", "Invalid column 'a b'"),
    ],
)
def test_wrong_change_is_refused_in_words(clause: str, message: str) -> None:
    with pytest.raises(BadInputError) as refused:
        alter(clause)
    assert message in str(refused.value)


def test_columns_of_a_query_are_a_schema() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    kinds = {
        "a": pyarrow.int16(),
        "b": pyarrow.decimal128(9, 2),
        "c": pyarrow.timestamp("us", "UTC"),
        "d": pyarrow.list_(pyarrow.struct([("x", pyarrow.date32())])),
        "e": pyarrow.map_(pyarrow.string(), pyarrow.time64("us")),
        "f": pyarrow.timestamp("ns"),
    }
    assert write(QueryResult(pyarrow.schema(kinds.items()).empty_table()).to_schema()) == [
        "a int",
        "b decimal(9, 2)",
        "c timestamptz",
        "d list<struct<x: date>>",
        "e map<string, time>",
        "f timestamp_ns",
    ]
    with pytest.raises(BadInputError, match="cast the column"):
        QueryResult(pyarrow.schema([("u", pyarrow.uint64())]).empty_table()).to_schema()
