"""The change stream of tables whose rows equality deletes replace, as Flink's upserts do, with Iceberg's Java."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

from duckicelake.pipeline.changes import ChangesRequest, read_changes
from duckicelake.pipeline.foreign_catalog import attach_source
from duckicelake.pipeline.importer import ImportRequest, import_tables
from duckicelake.pipeline.java import Jvm
from duckicelake.pipeline.progress import SILENT
from duckicelake.rest.client import CatalogClient
from scripts.demo_job.server import RunningLake
from tests.engines.engines import Engines

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark]

Row = tuple[str, str]
OTHER_ROWS = Counter([("DELETE", "b", "2"), ("INSERT", "b", "two"), ("DELETE", "e", "5"), ("INSERT", "f", "6")])
UPDATES = Counter(
    [("UPDATE_BEFORE", "b", "2"), ("UPDATE_AFTER", "b", "two"), ("DELETE", "e", "5"), ("INSERT", "f", "6")]
)
"""What `upsert` does to a table that has the rows a 1, b 2 and e 5."""
AGAIN = Counter([("UPDATE_BEFORE", "b", "two"), ("UPDATE_AFTER", "b", "II"), ("DELETE", "f", "6")])


def upsert(spark: SparkSession, name: str, gone: Sequence[str], rows: Sequence[Row]) -> None:
    """Delete all rows with these ids, and add rows, in one snapshot."""
    jvm = Jvm(spark)
    table, iceberg = jvm.table(name), jvm.iceberg
    columns = table.schema()
    key = columns.select(jvm.strings(["id"]))
    ids = jvm.array(spark._jvm.int, [columns.findField("id").fieldId()])  # type: ignore[union-attr]
    builder = getattr(iceberg.data, "GenericFileWriterFactory$Builder")(table)
    factory = builder.equalityFieldIds(ids).equalityDeleteRowSchema(key).build()
    places = iceberg.io.OutputFileFactory.builderFor(table, 1, 1).build()

    def written(writer: Any, schema: Any, records: Sequence[Sequence[str]]) -> Any:
        for values in records:
            record = iceberg.data.GenericRecord.create(schema)
            for place, value in enumerate(values):
                record.set(place, value)
            writer.write(record)
        writer.close()
        return writer

    delta = table.newRowDelta()
    deletes = factory.newEqualityDeleteWriter(places.newOutputFile(), table.spec(), None)
    delta.addDeletes(written(deletes, key, [(each,) for each in gone]).toDeleteFile())
    if rows:
        added = factory.newDataWriter(places.newOutputFile(), table.spec(), None)
        delta.addRows(written(added, columns, rows).toDataFile())
    delta.commit()


def told(
    spark: SparkSession, client: CatalogClient, namespace: str, keys: Sequence[str] = ()
) -> list[Counter[tuple[Any, ...]]]:
    """What each snapshot changed."""
    request = ChangesRequest((namespace,), "t", keys=keys)
    return [
        Counter((row[0], row.id, row.v) for row in rows.collect()) for _, rows in read_changes(spark, client, request)
    ]


@pytest.mark.parametrize("version", [2, 3])
def test_rows_that_are_replaced_by_equality_deletes_are_updates_by_key_and_else_other_rows(
    engines: Engines, client: CatalogClient, namespace: str, version: int
) -> None:
    spark, table = engines.spark, f"lake.{namespace}.t"
    spark.sql(f"CREATE TABLE {table} (id string NOT NULL, v string) TBLPROPERTIES ('format-version' = '{version}')")
    spark.sql(f"INSERT INTO {table} VALUES ('a', '1'), ('b', '2')")
    engines.duck.execute(f"INSERT INTO {table} VALUES ('e', '5')")  # stays in Postgres
    upsert(spark, table, ["b", "e", "nobody"], [("b", "two"), ("f", "6")])
    upsert(spark, table, ["b", "f"], [("b", "II")])
    assert told(spark, client, namespace)[-2] == OTHER_ROWS
    assert told(spark, client, namespace, ["id"])[-2:] == [UPDATES, AGAIN]
    spark.sql(f"ALTER TABLE {table} SET IDENTIFIER FIELDS id")
    assert told(spark, client, namespace)[-2] == (UPDATES if version == 2 else OTHER_ROWS)
    assert {tuple(row) for row in spark.table(table).collect()} == {("a", "1"), ("b", "II")}


@pytest.mark.usefixtures("lake_in_a_folder")
def test_history_with_equality_deletes_that_came_with_a_table_is_reported(
    spark: SparkSession, client: CatalogClient, lake: RunningLake, namespace: str
) -> None:
    warehouse = lake.folder / "warehouse" / "data" / "elsewhere" / namespace
    source = {"type": "hadoop", "warehouse": f"file://{warehouse}"}
    theirs = f"{attach_source(spark, source)}.{namespace}.t"
    spark.sql(f"CREATE TABLE {theirs} (id string NOT NULL, v string) USING iceberg")
    spark.sql(f"INSERT INTO {theirs} VALUES ('a', '1'), ('b', '2'), ('e', '5')")
    upsert(spark, theirs, ["b", "e", "nobody"], [("b", "two"), ("f", "6")])
    assert import_tables(spark, client, ImportRequest(source), SILENT).failed == 0
    upsert(spark, f"lake.{namespace}.t", ["b", "f"], [("b", "II")])
    assert told(spark, client, namespace, ["id"])[1:] == [UPDATES, AGAIN]
    assert told(spark, client, namespace)[1] == OTHER_ROWS
