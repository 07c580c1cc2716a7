"""Snapshot numbers: with DUCKICELAKE_SNAPSHOT_IDS=ducklake every Iceberg snapshot has its DuckLake snapshot's id."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from scripts.demo_job.connect import duckdb_lake, pyiceberg_catalog
from scripts.demo_job.server import running_lake
from tests.engines.engines import Engines, Model, append, assert_same, duck, number_of, pyiceberg, spark
from tests.engines.sequences import BIG, CREATE, MORE, SMALL, overwrite_odd

pytestmark = [pytest.mark.engine, pytest.mark.spark]

STEPS = (
    spark(CREATE),
    spark(SMALL),
    duck(MORE),
    append((6, "six", 6)),
    pyiceberg(
        overwrite_odd, "DELETE FROM {t} WHERE id IN (3, 5); INSERT INTO {t} VALUES (3,'three',33), (9,'nine',99)"
    ),
    duck("UPDATE {t} SET amount = 1 WHERE id = 1"),
    spark("DELETE FROM {t} WHERE id = 2"),
    duck(BIG),
    spark("UPDATE {t} SET amount = 0 WHERE id = 104"),
)


@pytest.fixture
def numbered(spark: SparkSession, folder: Path) -> Iterator[Engines]:
    """Engines on a second server, which numbers as DuckLake does. Spark's catalog `lake` is pointed there meanwhile."""
    settings = {"DUCKICELAKE_SNAPSHOT_IDS": "ducklake"}
    with (
        running_lake(folder / "lake", folder / "server.log", settings) as lake,
        pyiceberg_catalog(lake) as catalog,
        duckdb_lake(lake) as duck_connection,
    ):
        session = spark.newSession()
        session.conf.set("spark.sql.catalog.lake.uri", lake.uri)
        yield Engines(session, catalog, duck_connection)


def test_every_snapshot_is_numbered_by_ducklake(numbered: Engines) -> None:
    numbered.catalog.create_namespace("ns")
    model = Model()
    for step in STEPS:
        numbered.do(step, "ns.t")
        model.do(step)
        assert_same(numbered, "ns.t", model)
    table = numbered.catalog.load_table("ns.t")
    ids = [snapshot.snapshot_id for snapshot in table.snapshots()]
    assert len(ids) >= len(STEPS) - 1
    assert ids == [number_of(snapshot) for snapshot in table.snapshots()]
    assert ids == [snapshot.sequence_number for snapshot in table.snapshots()]
    assert table.properties["ducklake.snapshot-id"] == str(ids[-1])
    last = numbered.duck.execute("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')").fetchall()
    assert [(ids[-1],)] == last
