"""How each engine gets to a lake: what a user would type, and nothing of ours on the engine's side."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import duckdb
from duckdb_extensions import import_extension
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyiceberg.catalog.rest import RestCatalog
from pyspark.sql import SparkSession

from duckicelake.pipeline.launcher import end_orphaned_jvm
from scripts.demo_job.server import RunningLake

STOP_SECONDS = 60
ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
ICEBERG_AWS = "org.apache.iceberg:iceberg-aws-bundle:1.12.0"


@contextmanager
def spark_session(lake: RunningLake) -> Iterator[SparkSession]:
    """A stock Spark with the catalog `lake`. Spark's own table cache is off: others write to these tables too."""
    settings: dict[str, str | bool | float | None] = {
        "spark.jars.packages": f"{ICEBERG},{ICEBERG_AWS}" if lake.backend.minio else ICEBERG,
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "rest",
        "spark.sql.catalog.lake.uri": lake.uri,
        **{f"spark.sql.catalog.lake.{name}": value for name, value in lake.backend.catalog.items()},
        "spark.sql.catalog.lake.cache-enabled": "false",
        "spark.sql.defaultCatalog": "lake",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master("local[2]").appName("duckicelake")
    with end_orphaned_jvm():
        session = builder.config(map=settings).getOrCreate()
    try:
        yield session
    finally:
        stop(session)


def stop(session: SparkSession) -> None:
    """Stop Spark and wait for its JVM, which ends with its standard input; an interrupted job may write until then."""
    process = session.sparkContext._gateway.proc  # type: ignore[union-attr] # noqa: SLF001
    with suppress(Py4JError, OSError):
        session.stop()
    process.stdin.close()
    process.wait(STOP_SECONDS)


def pyiceberg_catalog(lake: RunningLake) -> RestCatalog:
    login = {"oauth2-server-uri": f"{lake.uri}/v1/oauth/tokens"} if lake.backend.catalog else {}
    return RestCatalog("lake", uri=lake.uri, **login, **lake.backend.catalog)


def duckdb_lake(lake: RunningLake) -> duckdb.DuckDBPyConnection:
    """DuckDB with the real `ducklake` extension, attached as `duckicelake info` says."""
    for extension in ("ducklake", "postgres_scanner", *(("httpfs",) if lake.backend.minio else ())):
        import_extension(extension)
    connection = duckdb.connect()
    for statement in ("SET TimeZone = 'UTC'", *lake.backend.duckdb, f"ATTACH '{lake.ducklake_attach}' AS lake"):
        connection.execute(statement)
    return connection
