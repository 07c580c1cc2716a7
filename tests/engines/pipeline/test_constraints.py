"""Constraints and idempotent writes with a real Spark: refused batches fail at once, with the catalog's own words."""

import math
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from duckicelake.constraints.definition import parse_constraint
from duckicelake.constraints.duckdb_check import render_condition
from duckicelake.pipeline.quarantine import build_violation_test
from duckicelake.rest.client import CatalogClient
from tests.constraints.test_conditions import ARROW, CONSTANTS, OTHER_TEXTS, SCHEMA
from tests.engines.pipeline.test_ingest import Ingests

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark]

DDL = "i INT, l BIGINT, d DOUBLE, f FLOAT, m DECIMAL(9, 2), s STRING, b BOOLEAN, day DATE, t TIMESTAMP_NTZ, z TIMESTAMP"
ROWS: dict[str, list[Any]] = {
    "i": [-4, 0, 1, 3, None],
    "l": [4, -1, 0, 2**20, None, -3],
    "d": [-1.5, -0.0, 0.1, 0.5, math.nan, math.inf, None],
    "f": [-1.5, 0.0, 0.5, math.nan, None],
    "m": [Decimal("-1.25"), Decimal("0.00"), Decimal("0.01"), Decimal("3.50"), None],
    "s": ["", "a", "ab", "abc", "b", "é", "a" * 16 + "zz", "\U0001f600" * 3, None],
    "b": [True, False, None],
    "day": [date(1969, 12, 31), date(2020, 1, 1), date(2020, 2, 28), None],
    "t": [datetime(2020, 1, 1), datetime(2020, 1, 1, 0, 0, 0, 1), None],
    "z": [datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, 1, tzinfo=UTC), None],
}


def texts() -> Iterator[str]:
    """Conditions of every kind over every column."""
    for name, constants in CONSTANTS.items():
        for number, constant in enumerate(constants):
            yield from (f"{name} {sign} {constant}" for sign in ("<", "<=", ">", ">=", "=", "<>", "<=>"))
            yield f"NOT ({constant} < {name} OR {name} IN ({constant}, {constants[number - 1]}))"
            yield f"{name} BETWEEN {constants[number - 1]} AND {constant} OR {name} IS NULL"
            yield f"coalesce({name}, {constant}) = {constant}"
    yield from OTHER_TEXTS
    for sign in "+-*":
        yield from (f"{left} {sign} {right} > 1" for left in ("i", "length(s)", "abs(l)") for right in ("l", "i", "-3"))
    yield from (f"{value} % 3 = {rest}" for value in ("l", "i", "-l", "length(s)") for rest in (-1, 0, 1, 2))


@pytest.fixture
def ingests(spark: SparkSession, client: CatalogClient, namespace: str, tmp_path: Path) -> Ingests:
    """Ingest into a table with constraints."""
    checks = "'constraint.positive'='id > 0', 'constraint.odd'='v % 2 = 1 OR v IS NULL'"
    spark.sql(f"CREATE TABLE lake.{namespace}.t (id BIGINT, v INT) TBLPROPERTIES ({checks})")
    return Ingests(spark, client, namespace, tmp_path)


def newest(ingests: Ingests) -> dict[str, Any]:
    metadata = ingests.client.load_table((ingests.namespace,), "t")["metadata"]
    found: dict[str, Any] = {each["snapshot-id"]: each for each in metadata["snapshots"]}[
        metadata["current-snapshot-id"]
    ]["summary"]
    return found


def append(ingests: Ingests, version: int, *rows: tuple[int, int | None]) -> None:
    frame = ingests.spark.createDataFrame(list(rows), "id BIGINT, v INT").coalesce(1)
    writer = frame.writeTo(f"lake.{ingests.namespace}.t")
    keys = {"txn.app-id": "stream", "txn.version": str(version)}
    for key, value in keys.items():
        writer = writer.option(f"snapshot-property.{key}", value)
    writer.append()


def test_record_with_which_a_constraint_can_not_be_computed_goes_to_quarantine(ingests: Ingests) -> None:
    ingests.spark.sql(f"ALTER TABLE lake.{ingests.namespace}.t SET TBLPROPERTIES ('constraint.next'='v + 1 > 0')")
    result = ingests.run(ingests.file("1.csv", "id,v\n1,2147483647\n2,5\n"))
    assert (result.rows, result.quarantined) == (1, 1)
    assert ingests.rows() == [(2, 5)]
    assert ingests.rows("t_quarantine", "record, reason") == [
        ('{"id":1,"v":2147483647}', "it violates the constraint next (v + 1 > 0)")
    ]


def test_records_that_violate_a_constraint_go_to_quarantine(ingests: Ingests) -> None:
    result = ingests.run(ingests.file("1.csv", "id,v\n1,1\n-2,1\n3,2\n4,\n,1\n"))
    assert (result.rows, result.quarantined) == (2, 3)
    assert ingests.rows() == [(1, 1), (4, None)]
    reasons = dict(ingests.rows("t_quarantine", "record, reason"))
    assert reasons == {
        '{"id":-2,"v":1}': "it violates the constraint positive (id > 0)",
        '{"id":3,"v":2}': "it violates the constraint odd (v % 2 = 1 OR v IS NULL)",
        '{"v":1}': "it violates the constraint positive (id > 0)",
    }


def test_append_that_violates_is_refused_and_a_batch_is_applied_once(ingests: Ingests) -> None:
    with pytest.raises(Py4JJavaError, match=r"constraint positive \(id > 0\) is violated") as refused:
        append(ingests, 1, (5, 1), (-5, 1))
    assert "CommitStateUnknown" not in str(refused.value)
    append(ingests, 1, (5, 1), (6, None))
    assert newest(ingests)["constraints.unverified"] == "odd"
    with pytest.raises(Py4JJavaError, match=r"Version 1 of stream was already applied \(latest: 1\)") as known:
        append(ingests, 1, (7, 1))
    assert "code: 422, type: AlreadyAppliedException" in str(known.value)
    append(ingests, 2, (7, 1))
    assert [id_ for id_, _ in ingests.rows()] == [5, 6, 7]


def test_spark_and_duckdb_take_every_constraint_for_the_same(spark: SparkSession) -> None:
    count = 30
    table = {name: [values[row % len(values)] for row in range(count)] for name, values in ROWS.items()}
    rows = list(zip(*table.values(), strict=True))
    every = list(texts())
    frame = spark.createDataFrame(rows, DDL).coalesce(1)
    by_spark = [
        tuple(row)
        for row in frame.select(*(build_violation_test(text).alias(f"c{n}") for n, text in enumerate(every))).collect()
    ]
    r = pa.table({name: pa.array(values, ARROW[name]) for name, values in table.items()})
    conditions = (render_condition(parse_constraint("c", text, SCHEMA).condition) for text in every)
    found = duckdb.sql(f"SELECT {', '.join(f'({each}) IS NOT TRUE' for each in conditions)} FROM r").fetchall()
    assert r.num_rows == count
    differing = [
        text
        for text, ours, theirs in zip(every, zip(*found, strict=True), zip(*by_spark, strict=True), strict=True)
        if ours != theirs
    ]
    assert differing == []
    assert len(every) > 300
