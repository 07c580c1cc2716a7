"""Iceberg's own parsers read the labels of our loads: of tables, views and fields, of every text."""

import json
from typing import Any
from urllib.request import Request, urlopen

import orjson
import pytest
from pyspark.sql import SparkSession

from duckicelake.bridge.labels import build_table_labels
from duckicelake.iceberg.metadata import parse_table_metadata
from duckicelake.lake.model import ObjectTag
from scripts.demo_job.server import RunningLake
from tests.engines.engines import Engines

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark]

TEXTS = (
    "",
    " ",
    "a",
    'quote " and \\ and /',
    "ä\ufffd\U0001f600",
    "line\nline\ttab\x01\x7f",
    "</script>",
    "x" * 10_000,
)


def jvm(session: SparkSession) -> Any:
    assert session._jvm is not None
    return session._jvm


def get(lake: RunningLake, path: str) -> str:
    with urlopen(Request(f"{lake.uri}/v1/namespaces/{path}", headers=lake.login()), timeout=30) as answer:
        body: str = answer.read().decode()
    return body


def read_labels(labels: Any) -> dict[str, Any]:
    """Return what Java has of labels, as our answers have it."""
    found: dict[str, Any] = {}
    if labels.objectLabels():
        found["object-labels"] = dict(labels.objectLabels())
    if labels.fields():
        found["fields"] = [{"field-id": each.fieldId(), "labels": dict(each.labels())} for each in labels.fields()]
    return found


def parse(session: SparkSession, kind: str, body: str) -> Any:
    responses = jvm(session).org.apache.iceberg.rest.responses
    return getattr(responses, f"Load{kind}ResponseParser").fromJson(body)


def test_java_reads_the_labels_of_a_table_and_its_nested_fields(
    engines: Engines, lake: RunningLake, namespace: str
) -> None:
    name = f"lake.{namespace}.t"
    engines.duck.execute(f"CREATE TABLE {name} (id BIGINT, s STRUCT(a INTEGER, b VARCHAR))")
    engines.duck.execute(f"COMMENT ON TABLE {name} IS 'all \"orders\" ä'")
    engines.duck.execute(f"COMMENT ON COLUMN {name}.id IS ''")
    engines.spark.sql(f"ALTER TABLE {name} ALTER COLUMN s.b COMMENT 'nested \\\\ comment'")
    with engines.catalog.load_table(f"{namespace}.t").transaction() as transaction:
        transaction.set_properties({"owner": "finance"})  # which Spark sets only when it makes a table
    for path in (f"{namespace}/tables/t", f"{namespace}/tables/t?snapshots=refs"):
        body = get(lake, path)
        parsed = parse(engines.spark, "Table", body)
        assert read_labels(parsed.labels()) == json.loads(body)["labels"]
        assert read_labels(parsed.labels())["object-labels"] == {"comment": 'all "orders" ä', "owner": "finance"}
        again = json.loads(jvm(engines.spark).org.apache.iceberg.rest.responses.LoadTableResponseParser.toJson(parsed))
        assert again["labels"] == json.loads(body)["labels"]
    table = jvm(engines.spark).org.apache.iceberg.spark.Spark3Util.loadIcebergTable(engines.spark._jsparkSession, name)
    assert read_labels(table.labels()) == json.loads(body)["labels"]


def test_java_reads_the_labels_of_a_view(engines: Engines, lake: RunningLake, namespace: str) -> None:
    engines.spark.sql(f"CREATE VIEW lake.{namespace}.v (id COMMENT 'a key') COMMENT 'theirs' AS SELECT 1 AS id")
    body = get(lake, f"{namespace}/views/v")
    parsed = parse(engines.spark, "View", body)
    assert read_labels(parsed.labels()) == json.loads(body)["labels"]
    assert read_labels(parsed.labels())["object-labels"]["comment"] == "theirs"
    assert [each["labels"] for each in read_labels(parsed.labels())["fields"]] == [{"comment": "a key"}]


def test_java_reads_labels_of_every_text(engines: Engines, lake: RunningLake, namespace: str) -> None:
    engines.duck.execute(f"CREATE TABLE lake.{namespace}.t (id BIGINT)")
    answer = json.loads(get(lake, f"{namespace}/tables/t"))
    tags = [ObjectTag(column, text, text[::-1]) for column in (None, 1) for text in TEXTS]
    answer["labels"] = build_table_labels(parse_table_metadata(answer["metadata"]), tags)
    parsed = parse(engines.spark, "Table", orjson.dumps(answer).decode())
    expected = {text: text[::-1] for text in TEXTS}
    assert read_labels(parsed.labels()) == {
        "object-labels": expected,
        "fields": [{"field-id": 1, "labels": expected}],
    }


def test_java_sees_no_labels_where_there_are_none(engines: Engines, lake: RunningLake, namespace: str) -> None:
    engines.duck.execute(f"CREATE TABLE lake.{namespace}.t (id BIGINT)")
    engines.duck.execute(f"COMMENT ON TABLE lake.{namespace}.t IS 'soon gone'")
    engines.duck.execute(f"COMMENT ON COLUMN lake.{namespace}.t.id IS 'soon gone'")
    assert not parse(engines.spark, "Table", get(lake, f"{namespace}/tables/t")).labels().isEmpty()
    engines.duck.execute(f"COMMENT ON TABLE lake.{namespace}.t IS NULL")
    engines.duck.execute(f"COMMENT ON COLUMN lake.{namespace}.t.id IS NULL")
    assert parse(engines.spark, "Table", get(lake, f"{namespace}/tables/t")).labels().isEmpty()
    assert engines.spark.sql(f"SELECT count(*) FROM lake.{namespace}.t").collect() == [(0,)]
