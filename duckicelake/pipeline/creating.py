"""A table made with its first rows, in one commit: nobody sees it without them, and where they fail nothing is left."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final
from uuid import uuid4

import orjson
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, StructType

from duckicelake.errors import BadColumn, BadInput, PipelineError
from duckicelake.pipeline.columns import by_name
from duckicelake.pipeline.destination import Target
from duckicelake.pipeline.layout import Part, SortKey, parse_partitions, parse_sort_keys
from duckicelake.pipeline.session import stamped_with
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.json_http import Json
from duckicelake.rest.names import Namespace, quoted

_SORT_ORDER: Final = "duckicelake.sort-order"
"""By this property the catalog gives a new table its order, for which Spark's CREATE TABLE has no word."""
_DISTRIBUTION: Final = "write.distribution-mode"


def create(
    client: CatalogClient, target: Target, columns: StructType, rows: DataFrame, summary: Mapping[str, str]
) -> None:
    """Make the table, and its namespace, with the rows, which may lack columns; their snapshot has the summary.

    BadInput, BadColumn before the rows are computed. Java's AlreadyExistsException if somebody else was faster.
    """
    parts = () if target.partition_by is None else parse_partitions(target.partition_by)
    keys = () if target.sort_by is None else parse_sort_keys(target.sort_by)
    if not columns.fields:
        raise BadInput(f"{target} can't be made of nothing: the source has no columns")
    _check("--partition-by", target.partition_by, parts, columns)
    _check("--sort-by", target.sort_by, [key.part for key in keys], columns)
    whole = rows.select([F.col(quoted(each.name)) if each.name in rows.columns else _lacking(each) for each in columns])
    partitioned = f" PARTITIONED BY ({', '.join(part.sql for part in parts)})" if parts else ""
    sorted_by = f" TBLPROPERTIES ({_properties(keys)})" if keys else ""
    spark, view = rows.sparkSession, f"first_{uuid4().hex}"
    whole.createOrReplaceTempView(view)
    try:
        with namespace_for(client, target), stamped_with(spark, summary):
            spark.sql(f"CREATE TABLE {target.sql} USING iceberg{partitioned}{sorted_by} AS SELECT * FROM {view}")
    finally:
        spark.catalog.dropTempView(view)


@contextmanager
def namespace_for(client: CatalogClient, target: Target) -> Iterator[None]:
    """Make the table's namespace unless it is there; if the block fails, it goes again unless others use it by then."""
    made = client.namespace_properties(target.namespace) if client.make_namespace(target.namespace) else None
    try:
        yield
    except BaseException:
        if made is not None:
            with suppress(PipelineError):
                _drop_unused(client, target.namespace, made)
        raise


def _drop_unused(client: CatalogClient, namespace: Namespace, made: Json) -> None:
    """Drop it unless it has something in it, or other properties than it was made with."""
    if client.namespace_properties(namespace) == made:
        client.drop_namespace(namespace)


def _lacking(column: StructField) -> Column:
    return F.lit(None).cast(column.dataType).alias(column.name)


def _properties(keys: Sequence[SortKey]) -> str:
    """As Spark's `ALTER TABLE … WRITE ORDERED BY` would set them."""
    order = orjson.dumps({"fields": [key.to_json() for key in keys]}).decode()
    told = {_SORT_ORDER: order.replace("\\", "\\\\").replace("'", "\\'"), _DISTRIBUTION: "range"}
    return ", ".join(f"'{name}' = '{value}'" for name, value in told.items())


def _check(option: str, text: str | None, parts: Iterable[Part], columns: StructType) -> None:
    """BadColumn unless there are the columns that the parts are of."""
    missing = [part.name for part in parts if part.column[0].lower() not in by_name(columns)]
    if missing:
        names = ", ".join(columns.names)
        raise BadColumn(f"{option} {text}: the source has no column {missing[0]}, but {names}")
