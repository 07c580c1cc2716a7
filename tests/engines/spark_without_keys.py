"""A Spark that has no keys for S3, run as a program of its own: `python -m tests.engines.spark_without_keys <uri>`.

What it knows of the store comes from the catalog: keys in catalog `vended`, signatures in catalog `signed`.
"""

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

from scripts.demo_job.connect import ICEBERG, ICEBERG_AWS, stop

CATALOGS = {"vended": "vended-credentials", "signed": "remote-signing"}


def session(uri: str) -> SparkSession:
    settings: dict[str, str | bool | float | None] = {
        "spark.jars.packages": f"{ICEBERG},{ICEBERG_AWS}",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
    }
    for catalog, wish in CATALOGS.items():
        name = f"spark.sql.catalog.{catalog}"
        settings |= {
            name: "org.apache.iceberg.spark.SparkCatalog",
            f"{name}.type": "rest",
            f"{name}.uri": uri,
            f"{name}.credential": sys.argv[2],
            f"{name}.header.X-Iceberg-Access-Delegation": wish,
            f"{name}.cache-enabled": "false",
        }
    return SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()


def work(spark: SparkSession, catalog: str) -> dict[str, Any]:
    """Write, change, read, clean up and drop; what was seen of it."""
    table = f"{catalog}.ns.{catalog}"
    told: dict[str, Any] = {}
    spark.sql(f"CREATE TABLE {table} (id bigint, day string) PARTITIONED BY (day) "
              "TBLPROPERTIES ('write.delete.mode'='merge-on-read', 'format-version'='2')")  # fmt: skip
    spark.sql(f"INSERT INTO {table} SELECT id, concat('day ', id % 3) FROM range(100)")
    spark.sql(f"DELETE FROM {table} WHERE id < 10")
    spark.sql(f"INSERT INTO {table} VALUES (1000, 'a=b/c+d')")
    told["rows"] = spark.sql(f"SELECT count(*), sum(id) FROM {table}").collect()[0]
    told["duckdb"] = spark.sql(f"SELECT count(*), sum(id) FROM {catalog}.ns.born_in_duckdb").collect()[0]
    spark.sql(
        f"CALL {catalog}.system.rewrite_data_files(table => 'ns.{catalog}', options => map('rewrite-all', 'true'))"
    )
    cleaned = spark.sql(
        f"CALL {catalog}.system.expire_snapshots(table => 'ns.{catalog}', retain_last => 1, "
        "older_than => TIMESTAMP '2100-01-01 00:00:00')"
    )
    told["cleaned"] = cleaned.collect()[0].asDict()
    told["rows after"] = spark.sql(f"SELECT count(*), sum(id) FROM {table}").collect()[0]
    spark.sql(f"CREATE TABLE {catalog}.ns.made_of_{catalog} USING iceberg AS SELECT * FROM {table}")
    told["made"] = spark.sql(f"SELECT count(*) FROM {catalog}.ns.made_of_{catalog}").collect()[0]
    return told


def main() -> None:
    spark = session(sys.argv[1])
    try:
        told = {catalog: work(spark, catalog) for catalog in CATALOGS}
    finally:
        stop(spark)
    print("TOLD " + json.dumps(told))


if __name__ == "__main__":
    main()
