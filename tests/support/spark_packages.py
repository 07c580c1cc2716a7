"""Fetches Spark's packages, one Spark at a time: two that fill one empty cache of Ivy's take files from each other."""

from pyspark.sql import SparkSession

from scripts.demo_job.connect import ICEBERG, stop
from tests.delta.corpus.session import DELTA, SPARK_HAS_THEM

if __name__ == "__main__":
    wanted = {"spark.jars.packages": f"{ICEBERG},{DELTA}", "spark.jars.excludes": SPARK_HAS_THEM}
    stop(SparkSession.builder.master("local[1]").config(map={**wanted, "spark.ui.enabled": "false"}).getOrCreate())
