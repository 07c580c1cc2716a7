"""The table that rows go to: made if it isn't there, changed so that its columns take what comes."""

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from duckicelake.errors import BadInput
from duckicelake.pipeline.columns import Change, columns_sql
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
    return bool(partitions_of(client.load_table(target.namespace, target.table, "refs")["metadata"]))


def make(spark: SparkSession, client: CatalogClient, target: Target, columns: StructType) -> None:
    """Make the table, and its namespace, if somebody else hasn't just done so."""
    if not columns.fields:
        raise BadInput(f"{target} can't be made of nothing: the source has no columns")
    client.make_namespace(target.namespace)
    parts = "" if target.partition_by is None else ", ".join(part.sql for part in parse_partitions(target.partition_by))
    partitioned = f" PARTITIONED BY ({parts})" if parts else ""
    spark.sql(f"CREATE TABLE IF NOT EXISTS {target.sql} ({', '.join(columns_sql(columns))}) USING iceberg{partitioned}")
    if target.sort_by is not None:
        keys = ", ".join(key.sql for key in parse_sort_keys(target.sort_by))
        spark.sql(f"ALTER TABLE {target.sql} WRITE ORDERED BY {keys}")


def change(spark: SparkSession, target: Target, changes: list[Change]) -> None:
    """Add and widen columns."""
    for each in changes:
        spark.sql(each.sql(target.sql))
