"""Stand-ins for views without SQL: real DuckDB on its own; Spark's is run by the engine tests."""

import re

import duckdb
import pytest

from duckicelake.iceberg.model import parse
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import PLAIN_TYPES
from duckicelake.sql_dialects.placeholders import DUCKDB, SPARK, TRINO, build_placeholder

NESTED = {
    "list": {"type": "list", "element-id": 101, "element": "decimal(9, 2)", "element-required": True},
    "map": {"type": "map", "key-id": 102, "key": "string", "value-id": 103, "value": "uuid", "value-required": False},
    'a "struct"`': {
        "type": "struct",
        "fields": [{"id": 104, "name": 'in "it"`', "required": False, "type": "fixed[3]"}],
    },
}
KINDS = {name: name for name in sorted(PLAIN_TYPES)} | NESTED


def schema_of(kinds: dict[str, object]) -> Schema:
    fields = [
        {"id": number, "name": name, "required": False, "type": kind}
        for number, (name, kind) in enumerate(kinds.items())
    ]
    return parse(Schema, {"type": "struct", "fields": fields}, "schema")


def test_duckdb_knows_the_columns_of_every_type() -> None:
    with duckdb.connect() as connection:
        connection.execute(f"CREATE VIEW v AS {build_placeholder(DUCKDB, schema_of(KINDS), ['spark'])}")
        described = {row[0]: row[1] for row in connection.execute("DESCRIBE v").fetchall()}
    assert list(described) == list(KINDS)
    assert described["long"] == "BIGINT"
    assert described["list"] == "DECIMAL(9,2)[]"
    assert described["map"] == "MAP(VARCHAR, UUID)"
    assert described['a "struct"`'] == 'STRUCT("in ""it""`" BLOB)'


@pytest.mark.parametrize("dialects", [["spark"], ["a'b", "c\\"], []])
def test_duckdb_fails_with_the_message_whatever_the_dialects_are_called(dialects: list[str]) -> None:
    sql = build_placeholder(DUCKDB, schema_of({}), dialects)
    expected = "only for" if dialects else "nor for any other engine"
    with duckdb.connect() as connection, pytest.raises(duckdb.InvalidInputException, match=expected):
        connection.execute(sql).fetchall()


def test_sparks_is_in_sparks_spelling() -> None:
    sql = build_placeholder(SPARK, schema_of({"id": "long", "s": NESTED['a "struct"`'], **NESTED}), ["duckdb"])
    assert re.findall(r"AS ([^)]*(?:\([^)]*\)[^)]*)?)\) AS (`[^,]*`)", sql) == [
        ("BIGINT", "`id`"),
        ('STRUCT<`in "it"```: BINARY>', "`s`"),
        ("ARRAY<DECIMAL(9, 2)>", "`list`"),
        ("MAP<STRING, STRING>", "`map`"),
        ('STRUCT<`in "it"```: BINARY>', '`a "struct"```'),
    ]
    assert sql.endswith(" IS NULL")


def test_trinos_is_in_trinos_spelling() -> None:
    sql = build_placeholder(TRINO, schema_of({"id": "long", "ts": "timestamptz", **NESTED}), ["duckdb"])
    for column in (
        'AS BIGINT) AS "id"',
        'AS TIMESTAMP(6) WITH TIME ZONE) AS "ts"',
        'AS ARRAY(DECIMAL(9, 2))) AS "list"',
        'AS MAP(VARCHAR, UUID)) AS "map"',
        'AS ROW("in ""it""`" VARBINARY)) AS "a ""struct""`"',
    ):
        assert column in sql
    assert re.search(r"WHERE CAST\(fail\('[^']*'\) AS BOOLEAN\) IS NULL$", sql)
