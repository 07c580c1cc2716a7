"""The table that rows go to: made if it isn't there, changed so that its columns take what comes."""

from collections.abc import Iterable

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from duckicelake.errors import BadColumn, BadInput
from duckicelake.pipeline.columns import Change, by_name, columns_sql
from duckicelake.pipeline.destination import Target
from duckicelake.pipeline.layout import Part, parse_partitions, parse_sort_keys, partitions_of, sort_keys_of
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
    """Make the table, and its namespace, if somebody else hasn't just done so. BadInput, BadColumn before that."""
    if not columns.fields:
        raise BadInput(f"{target} can't be made of nothing: the source has no columns")
    partitions = () if target.partition_by is None else parse_partitions(target.partition_by)
    keys = () if target.sort_by is None else parse_sort_keys(target.sort_by)
    _check("--partition-by", target.partition_by, partitions, columns)
    _check("--sort-by", target.sort_by, [key.part for key in keys], columns)
    client.make_namespace(target.namespace)
    partitioned = f" PARTITIONED BY ({', '.join(part.sql for part in partitions)})" if partitions else ""
    spark.sql(f"CREATE TABLE IF NOT EXISTS {target.sql} ({', '.join(columns_sql(columns))}) USING iceberg{partitioned}")
    if keys:
        spark.sql(f"ALTER TABLE {target.sql} WRITE ORDERED BY {', '.join(key.sql for key in keys)}")


def _check(option: str, text: str | None, parts: Iterable[Part], columns: StructType) -> None:
    """BadColumn unless there are the columns that the parts are of."""
    missing = [part.name for part in parts if part.column[0].lower() not in by_name(columns)]
    if missing:
        names = ", ".join(columns.names)
        raise BadColumn(f"{option} {text}: the source has no column {missing[0]}, but {names}")


def change(spark: SparkSession, target: Target, changes: list[Change]) -> None:
    """Add and widen columns."""
    for each in changes:
        spark.sql(each.sql(target.sql))
