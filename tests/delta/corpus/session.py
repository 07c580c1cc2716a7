"""A Spark with Delta, in a JVM of its own: Iceberg's runtime and Delta's don't share one."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from scripts.demo_job.connect import stop

DELTA = "io.delta:delta-spark_4.1_2.13:4.3.0"
SPARK_HAS_THEM = ",".join(
    f"{group}:{artifact}"
    for group, artifacts in {
        "commons-logging": ("commons-logging",),
        "org.apache.hadoop": ("hadoop-client-api", "hadoop-client-runtime"),
        "org.apache.logging.log4j": ("log4j-api", "log4j-core", "log4j-slf4j2-impl"),
        "org.slf4j": ("slf4j-api",),
        "com.fasterxml.jackson.core": ("jackson-databind", "jackson-annotations", "jackson-core"),
    }.items()
    for artifact in artifacts
)
"""Not fetched again with Delta's jars."""


@contextmanager
def delta_session() -> Iterator[SparkSession]:
    """Small tables quickly: one partition, one thread of planning, no service of its own."""
    settings: dict[str, str | bool | float | None] = {
        "spark.jars.packages": DELTA,
        "spark.jars.excludes": SPARK_HAS_THEM,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.databricks.delta.vacuum.parallelDelete.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master("local[2]").appName("delta-corpus")
    session = builder.config(map=settings).getOrCreate()
    try:
        yield session
    finally:
        stop(session)
