"""The table that rows go to, as it is, and changed so that its columns take what comes."""

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from duckicelake.errors import BadInput
from duckicelake.pipeline.columns import Change
from duckicelake.pipeline.destination import Target
from duckicelake.pipeline.layout import parse_partitions, parse_sort_keys, partitions_of, sort_keys_of
from duckicelake.rest.client import CatalogClient


def columns_of(spark: SparkSession, client: CatalogClient, target: Target) -> StructType | None:
    """The table's columns, None if it isn't there. BadInput if it is laid out otherwise than was asked for."""
    partitions = None if target.partition_by is None else parse_partitions(target.partition_by)
    keys = None if target.sort_by is None else parse_sort_keys(target.sort_by)
    if not client.table_exists(target.namespace, target.table):
        return None
    metadata = client.load_table(target.namespace, target.table, "refs")["metadata"]
    if partitions is not None and partitions != partitions_of(metadata):
        raise BadInput(f"{target} is there and isn't partitioned by {target.partition_by}: leave --partition-by away")
    if keys is not None and keys != sort_keys_of(metadata):
        raise BadInput(f"{target} is there and isn't sorted by {target.sort_by}: leave --sort-by away")
    return spark.table(target.sql).schema


def is_partitioned(client: CatalogClient, target: Target) -> bool:
    """Whether the table is, or will be once it is there."""
    if target.partition_by is not None or not client.table_exists(target.namespace, target.table):
        return target.partition_by is not None
    return bool(partitions_of(client.load_table(target.namespace, target.table, "refs")["metadata"]))


def change(spark: SparkSession, target: Target, changes: list[Change]) -> None:
    """Add and widen columns."""
    for each in changes:
        spark.sql(each.sql(target.sql))
