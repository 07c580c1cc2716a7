"""Neither side's cleaners delete what the other side needs, at any age (design §6.1, §6.2)."""

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import TableNotFoundError
from pyspark.sql import SparkSession

from scripts.demo_job.connect import duckdb_lake, pyiceberg_catalog
from scripts.demo_job.server import running_lake
from tests.engines.engines import Engines, Model, Row, append, assert_same, duck, sorted_rows
from tests.engines.engines import spark as by_spark
from tests.engines.sequences import BIG, CREATE, MORE, SMALL

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark]

STEPS = (
    by_spark(CREATE),
    by_spark(SMALL),
    duck(MORE),
    duck(BIG),
    append((6, "six", 60)),
    duck("DELETE FROM {t} WHERE id > 120"),
    duck("UPDATE {t} SET amount = 7 WHERE id = 1"),
    by_spark("DELETE FROM {t} WHERE id = 4"),
)


def test_cleaners_of_both_sides_leave_every_needed_file(folder: Path, spark: SparkSession) -> None:
    """On a lake of its own: expiry and cleanup in DuckDB take all tables of a lake."""
    with (
        running_lake(folder / "lake", folder / "server.log") as lake,
        pyiceberg_catalog(lake) as catalog,
        duckdb_lake(lake) as connection,
    ):
        catalog.create_namespace("ns")
        session = spark.newSession()
        session.conf.set("spark.sql.catalog.lake.uri", lake.uri)
        engines = Engines(session, catalog, connection)
        tagged = write_and_tag(engines)
        clean_with_duckdb(engines)
        check(engines, tagged)
        clean_with_spark(engines.spark)
        check(engines, tagged)


def write_and_tag(engines: Engines) -> tuple[Model, Model]:
    """The rows of today and those of the tag."""
    now, then = Model(), Model()
    for number, step in enumerate(STEPS):
        engines.do(step, "ns.t")
        now.do(step)
        if number < 4:
            then.do(step)
        if number == 3:
            engines.spark.sql("ALTER TABLE lake.ns.t CREATE TAG before")
    assert_same(engines, "ns.t", now)
    engines.catalog.load_table("ns.t").transaction().set_properties({"delta.enabled": "true"}).commit_transaction()
    return now, then


def clean_with_duckdb(engines: Engines) -> None:
    engines.duck.execute("CALL ducklake_flush_inlined_data('lake')")
    engines.catalog.load_table("ns.t").scan().to_arrow()
    engines.duck.execute("CALL ducklake_merge_adjacent_files('lake')")
    engines.duck.execute("CALL ducklake_expire_snapshots('lake', older_than => now())")
    engines.catalog.load_table("ns.t").scan().to_arrow()
    engines.duck.execute("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    engines.duck.execute("CALL ducklake_delete_orphaned_files('lake', cleanup_all => true)")
    engines.duck.execute("CHECKPOINT lake")


def clean_with_spark(session: SparkSession) -> None:
    """`remove_orphan_files` refuses young files; the action beneath it takes any age."""
    jvm: Any = session.sparkContext._jvm
    table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session._jsparkSession, "lake.ns.t")
    action = jvm.org.apache.iceberg.spark.actions.SparkActions.get(session._jsparkSession).deleteOrphanFiles(table)
    action.usePrefixListing(table.location().startswith("s3"))  # Hadoop, which lists else, knows local files only
    action.olderThan(jvm.java.lang.System.currentTimeMillis() + 1000).execute()


def check(engines: Engines, models: tuple[Model, Model]) -> None:
    now, then = models
    engines.spark.sql("REFRESH TABLE lake.ns.t")
    assert_same(engines, "ns.t", now)
    tagged = engines.spark.sql("SELECT * FROM lake.ns.t VERSION AS OF 'before'").toArrow()
    assert sorted_rows(tagged) == then.rows()
    table = engines.catalog.load_table("ns.t")
    assert sorted_rows(table.scan(snapshot_id=table.refs()["before"].snapshot_id).to_arrow()) == then.rows()
    for snapshot in table.snapshots():
        table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
    if table.location().startswith("file:"):
        check_delta(table.location().removeprefix("file:"), now)


def check_delta(folder: str, now: Model) -> None:
    """Delta's readers read the table, once the server has told them of what it is."""
    until = time.monotonic() + 30
    while (rows := rows_of_delta(folder)) != now.rows():
        assert time.monotonic() < until, rows


def rows_of_delta(folder: str) -> list[Row] | None:
    try:
        found = QueryBuilder().register("t", DeltaTable(folder)).execute("SELECT * FROM t")
    except TableNotFoundError:
        return None
    return sorted_rows(pa.table(found))
