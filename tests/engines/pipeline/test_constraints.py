"""Constraints and idempotent writes with a real Spark: refused batches fail at once, with the catalog's own words."""

from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from duckicelake.rest.client import CatalogClient
from tests.engines.pipeline.test_ingest import Ingests

pytestmark = [pytest.mark.engine, pytest.mark.spark]


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
    with pytest.raises(
        Py4JJavaError, match="Already applied: the last batch of stream in this table is version 1"
    ) as known:
        append(ingests, 1, (7, 1))
    assert "code: 422, type: AlreadyAppliedException" in str(known.value)
    append(ingests, 2, (7, 1))
    assert [id_ for id_, _ in ingests.rows()] == [5, 6, 7]
