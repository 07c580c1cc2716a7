"""Lines to paste into Spark, PyIceberg and DuckDB."""

ICEBERG_VERSION = "1.12.0"
_SPARK_PACKAGE = f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{ICEBERG_VERSION}"


def spark(uri: str) -> str:
    return f"""\
spark-sql --packages {_SPARK_PACKAGE} \\
  --conf spark.sql.extensions=org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions \\
  --conf spark.sql.catalog.lake=org.apache.iceberg.spark.SparkCatalog \\
  --conf spark.sql.catalog.lake.type=rest \\
  --conf spark.sql.catalog.lake.uri={uri} \\
  --conf spark.sql.catalog.lake.cache-enabled=false \\
  --conf spark.sql.defaultCatalog=lake"""


def pyiceberg(uri: str) -> str:
    return f"""\
from pyiceberg.catalog import load_catalog
catalog = load_catalog("lake", type="rest", uri="{uri}")"""


def duckdb(attach_source: str) -> str:
    quoted = attach_source.replace("'", "''")
    return f"""\
INSTALL ducklake; INSTALL postgres;
ATTACH '{quoted}' AS lake;"""
