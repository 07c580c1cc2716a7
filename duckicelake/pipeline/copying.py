"""A table of another catalog, copied: the rows of its newest snapshot, in files of the lake's own; no history.

The copy has the table's schema, partitions, order and properties, and names its origin in a property. Its rows come in
one commit: a copy without snapshots is one that was interrupted, and gets them when the import is repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from duckicelake.pipeline.foreign import GC_ENABLED, ForeignCatalog, ForeignTable
from duckicelake.pipeline.running import Job
from duckicelake.pipeline.session import stamped
from duckicelake.pipeline.spark_names import CATALOG, sql_name
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORIGIN: Final = "duckicelake.copied-from"
"""The property of a copy: the uuid of the table that it is one of."""
_PLACES: Final = frozenset(
    {
        "write.data.path",
        "write.metadata.path",
        "write.object-storage.path",
        "write.folder-storage.path",
        "schema.name-mapping.default",  # by ids of fields, which are others here
        "write.format.default",
        "write.delete.format.default",
        "ducklake.snapshot-id",
        GC_ENABLED,
    }
)
"""Properties that say where and how the other catalog keeps its files."""


def origin(properties: Mapping[str, str]) -> str | None:
    """The uuid of the table that the one with these properties is a copy of."""
    return properties.get(ORIGIN)


def copy_table(
    spark: SparkSession, client: CatalogClient, source: ForeignCatalog, table: ForeignTable, job: Job
) -> int:
    """Make the copy, or go on with it; how many snapshots it has."""
    if not client.table_exists(table.namespace, table.name):
        _create(spark, source, table)
    if table.snapshot is None:
        job.ends("done", rows=0)
        return 0
    theirs = quoted(source.name, *table.namespace, table.name)
    job.check()
    with stamped(spark, job):  # a snapshot's number would bring the columns of when it was made
        spark.sql(f"INSERT INTO {sql_name(table.namespace, table.name)} BY NAME SELECT * FROM {theirs}")
    made = client.load_table(table.namespace, table.name, "refs")["metadata"]["snapshots"]
    rows = sum(int(each["summary"].get("added-records", 0)) for each in made)
    job.ends("done", snapshot_ids=[each["snapshot-id"] for each in made], rows=rows)
    return len(made)


def _create(spark: SparkSession, source: ForeignCatalog, table: ForeignTable) -> None:
    kept = {key: value for key, value in table.properties.items() if key not in _PLACES}
    model = source.java_table(table.namespace, table.name)
    lake = ForeignCatalog(spark, CATALOG)
    lake.create_like(table.namespace, table.name, model, table.format_version, {**kept, ORIGIN: table.uuid})
