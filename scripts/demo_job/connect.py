"""How each engine gets to a lake: what a user would type, and nothing of ours on the engine's side."""

import duckdb
from duckdb_extensions import import_extension
from pyiceberg.catalog.rest import RestCatalog
from pyspark.sql import SparkSession

ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


def spark_session(uri: str) -> SparkSession:
    """A stock Spark with the catalog `lake`. Spark's own table cache is off: others write to these tables too."""
    settings: dict[str, str | bool | float | None] = {
        "spark.jars.packages": ICEBERG,
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "rest",
        "spark.sql.catalog.lake.uri": uri,
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
    return builder.config(map=settings).getOrCreate()


def pyiceberg_catalog(uri: str) -> RestCatalog:
    return RestCatalog("lake", uri=uri)


def duckdb_lake(attach: str) -> duckdb.DuckDBPyConnection:
    """DuckDB with the real `ducklake` extension; `attach` is the string that `duckicelake info` prints."""
    for extension in ("ducklake", "postgres_scanner"):
        import_extension(extension)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"ATTACH '{attach}' AS lake")
    return connection
