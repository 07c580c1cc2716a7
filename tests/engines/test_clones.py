"""Spark beside clones and restored tables: it deletes nothing that another table or main needs."""

import time
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from scripts.demo_job.connect import duckdb_lake, pyiceberg_catalog
from scripts.demo_job.server import running_lake

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark]

REFUSED = (
    "CALL lake.system.expire_snapshots(table => 'ns.t', older_than => TIMESTAMP '2999-01-01', retain_last => 1)",
    "CALL lake.system.remove_orphan_files(table => 'ns.t', older_than => TIMESTAMP '{now}')",
)


def rows(session: SparkSession, table: str) -> list[int]:
    return [row.id for row in session.sql(f"SELECT id FROM lake.ns.{table} ORDER BY id").collect()]


def expire_in_java(session: SparkSession, table: str) -> None:
    """What Flink, Trino and programs do: files that expired snapshots removed are deleted, without looking further."""
    jvm: Any = session.sparkContext._jvm
    loaded = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session._jsparkSession, f"lake.ns.{table}")
    loaded.expireSnapshots().expireOlderThan(int(time.time() * 1000)).retainLast(1).commit()


def clean_in_duckdb(connection: duckdb.DuckDBPyConnection) -> None:
    for cleaner in ("expire_snapshots", "cleanup_old_files", "delete_orphaned_files"):
        arguments = "older_than => now()" if cleaner == "expire_snapshots" else "cleanup_all => true"
        connection.execute(f"CALL ducklake_{cleaner}('lake', {arguments})").fetchall()


def test_spark_deletes_no_shared_file_and_expiry_none_that_was_restored(folder: Path, spark: SparkSession) -> None:
    with (
        running_lake(folder / "lake", folder / "server.log") as lake,
        pyiceberg_catalog(lake) as catalog,
        duckdb_lake(lake) as connection,
        httpx.Client(base_url=f"{lake.uri}/v1/namespaces/ns", headers=lake.login(), timeout=60) as http,
    ):
        catalog.create_namespace("ns")
        session = spark.newSession()
        session.conf.set("spark.sql.catalog.lake.uri", lake.uri)
        session.sql("CREATE TABLE lake.ns.t (id BIGINT) USING iceberg")
        session.sql("INSERT INTO lake.ns.t VALUES (1), (2), (3)")
        made = http.post("clone", json={"name": "c", "source": {"namespace": ["ns"], "name": "t"}})
        assert made.status_code == 200, made.text
        first = made.json()["metadata"]["current-snapshot-id"]
        session.sql("DELETE FROM lake.ns.t WHERE id > 0")
        session.sql("INSERT INTO lake.ns.t VALUES (4)")
        now = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
        for statement in REFUSED:
            with pytest.raises((PySparkException, Py4JJavaError), match="GC is disabled"):
                session.sql(statement.format(now=now)).collect()
        restored = http.post("tables/t/restore", json={"to": str(first)})
        assert restored.status_code == 200, restored.text
        assert rows(session, "t") == rows(session, "c") == [1, 2, 3]
        with pytest.raises(Py4JJavaError, match="Cannot purge table: GC is disabled"):
            session.sql("DROP TABLE lake.ns.c PURGE")
        assert http.delete("tables/c", params={"purgeRequested": "true"}).status_code == 204
        kept = http.base_url.copy_with(path="/v1/dropped")
        for item in http.get(kept).json()["dropped"]:  # as long as it can come back, both share files
            assert http.delete(f"{kept}/{item['kind']}/{item['id']}").status_code == 204
        clean_in_duckdb(connection)
        assert http.post("tables/t/expire", json={"older-than-ms": 0}).json()["snapshots"] == 0
        session.sql("REFRESH TABLE lake.ns.t")
        expire_in_java(session, "t")
        assert session.sql("SELECT * FROM lake.ns.t.snapshots").count() == 1
        assert rows(session, "t") == [1, 2, 3]
        clean_in_duckdb(connection)
        assert connection.sql("SELECT id FROM lake.ns.t ORDER BY id").fetchall() == [(1,), (2,), (3,)]
        session.sql("REFRESH TABLE lake.ns.t")
        assert rows(session, "t") == [1, 2, 3]
