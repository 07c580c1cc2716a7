"""Spark keeps its word when answers get lost: it sends the request again with its key, and the change is made once."""

from collections.abc import Iterator

import pytest

from scripts.demo_job.server import RunningLake
from tests.engines.engines import Engines, sorted_rows
from tests.support.cutting_proxy import CuttingProxy, cutting

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark]


@pytest.fixture
def proxy(lake: RunningLake, engines: Engines) -> Iterator[CuttingProxy]:
    """The way to the lake of Spark's catalog `lossy`."""
    with cutting(lake.uri) as running:
        settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": running.uri}
        login = {f".{name}": value for name, value in lake.backend.catalog.items()}
        for name, value in {**settings, **login, ".cache-enabled": "false"}.items():
            engines.spark.conf.set(f"spark.sql.catalog.lossy{name}", value)
        yield running


def test_spark_writes_once_though_the_first_answer_to_every_change_is_lost(
    engines: Engines, namespace: str, proxy: CuttingProxy
) -> None:
    table = f"lossy.{namespace}.t"
    for statement in (
        f"CREATE TABLE {table} (id bigint, name string)",
        f"INSERT INTO {table} VALUES (1, 'one')",
        f"INSERT INTO {table} VALUES (2, 'two')",
        f"DELETE FROM {table} WHERE id = 1",
        f"ALTER TABLE {table} ADD COLUMN more int",
        f"ALTER TABLE {table} RENAME TO {namespace}.u",
        f"CREATE TABLE lossy.{namespace}.gone (id bigint)",
        f"DROP TABLE lossy.{namespace}.gone",
    ):
        engines.spark.sql(statement)
    assert set(proxy.seen.values()) == {2}
    assert len(proxy.lost) == 8
    assert engines.catalog.list_tables(namespace) == [(namespace, "u")]
    table_now = engines.catalog.load_table(f"{namespace}.u")
    assert len(table_now.snapshots()) == 3
    for engine, rows in engines.read(f"{namespace}.u").items():
        assert sorted_rows(rows) == [(2, "two", None)], engine
