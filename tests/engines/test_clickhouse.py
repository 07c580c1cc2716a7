"""A stock ClickHouse with what docs/clients.md gives it: it logs in, gets keys for S3 from the catalog, and works."""

from collections.abc import Iterator

import duckdb
import pytest

from scripts.backends_job.minio import Minio
from scripts.demo_job.connect import duckdb_lake
from scripts.demo_job.server import RunningLake
from scripts.engines_job.clickhouse import running_clickhouse
from scripts.engines_job.packages import EngineError
from scripts.engines_job.python import PythonProcess
from tests.engines.conftest import new_folder
from tests.engines.guarded import CREDENTIAL, guarded_lake
from tests.support.documents import snippets

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def lake(minio: Minio) -> Iterator[RunningLake]:
    with guarded_lake(minio, "for-clickhouse") as running:
        yield running


@pytest.fixture(scope="module")
def duck(lake: RunningLake) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb_lake(lake) as connection:
        connection.execute("CREATE SCHEMA lake.ns")
        yield connection


@pytest.fixture(scope="module")
def clickhouse(lake: RunningLake) -> Iterator[PythonProcess]:
    [snippet] = [each for each in snippets("docs/clients.md") if each.name == "clickhouse"]
    with new_folder() as folder, running_clickhouse(folder) as running:
        running.rows(snippet.placed({"http://localhost:8181": lake.uri, "engines:secret": CREDENTIAL}))
        running.rows("SET allow_insert_into_iceberg = 1")
        yield running


def test_a_table_of_duckdbs_is_read_and_written(clickhouse: PythonProcess, duck: duckdb.DuckDBPyConnection) -> None:
    duck.execute("CREATE TABLE lake.ns.born AS SELECT range AS id, 'r' || range AS name FROM range(1000)")
    duck.execute("DELETE FROM lake.ns.born WHERE id < 10")
    duck.execute("INSERT INTO lake.ns.born VALUES (5000, 'inlined')")
    assert clickhouse.rows("SELECT count(), sum(id) FROM lake.`ns.born`") == [[991, 504455]]
    clickhouse.rows("INSERT INTO lake.`ns.born` VALUES (6000, 'new'), (6001, NULL)")
    clickhouse.rows("ALTER TABLE lake.`ns.born` DELETE WHERE id < 500")
    clickhouse.rows("ALTER TABLE lake.`ns.born` UPDATE name = 'changed' WHERE id = 5000")
    read = "SELECT count(*), sum(id), max(name) FROM lake.{}"
    assert clickhouse.rows(read.format("`ns.born`")) == [[503, 391751, "r999"]]
    assert duck.sql(read.format("ns.born")).fetchall() == [(503, 391751, "r999")]
    assert duck.sql("SELECT name FROM lake.ns.born WHERE id >= 5000 ORDER BY id").fetchall() == [
        ("changed",),
        ("new",),
        (None,),
    ]


def test_an_empty_table_is_filled_and_its_columns_change(
    clickhouse: PythonProcess, duck: duckdb.DuckDBPyConnection
) -> None:
    duck.execute("CREATE TABLE lake.ns.empty (id BIGINT, name VARCHAR)")
    clickhouse.rows("INSERT INTO lake.`ns.empty` VALUES (1, 'a')")
    clickhouse.rows("ALTER TABLE lake.`ns.empty` ADD COLUMN more Nullable(Int32)")
    clickhouse.rows("ALTER TABLE lake.`ns.empty` RENAME COLUMN name TO called")
    clickhouse.rows("INSERT INTO lake.`ns.empty` VALUES (2, 'b', 7)")
    rows = [(1, "a", None), (2, "b", 7)]
    assert duck.sql("SELECT id, called, more FROM lake.ns.empty ORDER BY id").fetchall() == rows
    assert clickhouse.rows("SELECT id, called, more FROM lake.`ns.empty` ORDER BY id") == [list(row) for row in rows]
    history = "SELECT snapshot_id FROM system.iceberg_history WHERE table = 'ns.empty' ORDER BY made_current_at"
    [[first], _] = clickhouse.rows(history)
    assert clickhouse.rows(f"SELECT id FROM lake.`ns.empty` SETTINGS iceberg_snapshot_id = {first}") == [[1]]


def test_partitions_evolve(clickhouse: PythonProcess, duck: duckdb.DuckDBPyConnection) -> None:
    duck.execute("CREATE TABLE lake.ns.split (id BIGINT, kind VARCHAR)")
    for number, keys in enumerate(("kind", "bucket(4, id)")):
        duck.execute(f"ALTER TABLE lake.ns.split SET PARTITIONED BY ({keys})")
        duck.execute(f"INSERT INTO lake.ns.split VALUES ({number}, 'duck'), ({number + 10}, 'goose')")
        clickhouse.rows(f"INSERT INTO lake.`ns.split` VALUES ({number + 20}, 'duck'), ({number + 30}, NULL)")
        clickhouse.rows(f"ALTER TABLE lake.`ns.split` DELETE WHERE id = {number + 20}")
        with pytest.raises(EngineError, match="in another partition"):  # it was inlined
            clickhouse.rows(f"ALTER TABLE lake.`ns.split` DELETE WHERE id = {number + 10}")
    for kind, ids in (("= 'duck'", [0, 1]), ("= 'goose'", [10, 11]), ("IS NULL", [30, 31])):
        read = f"SELECT id FROM lake.{{}} WHERE kind {kind} ORDER BY id"
        assert clickhouse.rows(read.format("`ns.split`")) == [[each] for each in ids]
        assert duck.sql(read.format("ns.split")).fetchall() == [(each,) for each in ids]


def test_a_table_is_made_with_keys_of_ones_own_and_dropped(
    clickhouse: PythonProcess, duck: duckdb.DuckDBPyConnection, lake: RunningLake, minio: Minio
) -> None:
    clickhouse.rows("SET write_full_path_in_iceberg_metadata = 1")
    place = lake.backend.settings["DUCKICELAKE_WAREHOUSE"].replace("s3://", f"{minio.endpoint}/")
    engine = f"IcebergS3('{place}/data/ns/made', '{minio.access_key}', '{minio.secret_key}')"
    clickhouse.rows(f"CREATE TABLE lake.`ns.made` (id Int64, name Nullable(String)) ENGINE = {engine}")
    clickhouse.rows("INSERT INTO lake.`ns.made` VALUES (1, 'a'), (2, NULL)")
    assert duck.sql("FROM lake.ns.made ORDER BY id").fetchall() == [(1, "a"), (2, None)]
    with pytest.raises(EngineError, match="Table does not exist"):
        clickhouse.rows("DROP TABLE lake.`ns.made`")
    assert ["ns.made"] not in clickhouse.rows("SHOW TABLES FROM lake")
