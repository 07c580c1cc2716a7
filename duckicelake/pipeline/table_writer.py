"""Write rows to a table, or create it with them, in one commit that happens once."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final
from uuid import uuid4

import orjson
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, StructType

from duckicelake.errors import BadColumnError, BadInputError, JobConflictError, PipelineError
from duckicelake.maintenance.layout import RowSortKey, TransformedColumn, parse_partitions, parse_sort_keys
from duckicelake.pipeline.columns import index_by_name
from duckicelake.pipeline.destination import Target, WriteMode
from duckicelake.pipeline.epoch import CommittedRun, Epoch
from duckicelake.pipeline.failures import explain_failure
from duckicelake.pipeline.session import stamp_with
from duckicelake.properties import DISTRIBUTION_MODE, RUN_EPOCH_KEY, RUN_ID_KEY, SORT_ORDER
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.http import Json
from duckicelake.rest.names import Namespace, quote_name

"""By this property the catalog gives a new table its order, for which Spark's CREATE TABLE has no word."""
_MAX_ATTEMPTS: Final = 3


def create_table(
    client: CatalogClient, target: Target, columns: StructType, rows: DataFrame, summary: Mapping[str, str]
) -> None:
    """Make the table, and its namespace, with the rows, which may lack columns; their snapshot has the summary.

    BadInputError, BadColumnError before the rows are computed. Java's AlreadyExistsException if another writer was
    faster.
    """
    parts = () if target.partition_by is None else parse_partitions(target.partition_by)
    keys = () if target.sort_by is None else parse_sort_keys(target.sort_by)
    if not columns.fields:
        raise BadInputError(f"{target} can't be made of nothing: the source has no columns")
    _check_columns("--partition-by", target.partition_by, parts, columns)
    _check_columns("--sort-by", target.sort_by, [key.part for key in keys], columns)
    whole = rows.select(
        [
            F.col(quote_name(column.name)) if column.name in rows.columns else _build_null_column(column)
            for column in columns
        ]
    )
    partitioned = f" PARTITIONED BY ({', '.join(part.sql for part in parts)})" if parts else ""
    sorted_by = f" TBLPROPERTIES ({_format_sort_properties(keys)})" if keys else ""
    spark, view = rows.sparkSession, f"first_{uuid4().hex}"
    whole.createOrReplaceTempView(view)
    try:
        with ensure_namespace(client, target), stamp_with(spark, summary):
            spark.sql(f"CREATE TABLE {target.sql} USING iceberg{partitioned}{sorted_by} AS SELECT * FROM {view}")
    finally:
        spark.catalog.dropTempView(view)


@contextmanager
def ensure_namespace(client: CatalogClient, target: Target) -> Iterator[None]:
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


def _build_null_column(column: StructField) -> Column:
    return F.lit(None).cast(column.dataType).alias(column.name)


def _format_sort_properties(keys: Sequence[RowSortKey]) -> str:
    """Format the properties that Spark's `ALTER TABLE … WRITE ORDERED BY` would set."""
    order = orjson.dumps({"fields": [key.to_json() for key in keys]}).decode()
    sort_properties = {SORT_ORDER: order.replace("\\", "\\\\").replace("'", "\\'"), DISTRIBUTION_MODE: "range"}
    return ", ".join(f"'{name}' = '{value}'" for name, value in sort_properties.items())


def _check_columns(option: str, text: str | None, parts: Iterable[TransformedColumn], columns: StructType) -> None:
    """Raise BadColumnError unless there are the columns that the parts are of."""
    missing = [part.name for part in parts if part.column[0].lower() not in index_by_name(columns)]
    if missing:
        names = ", ".join(columns.names)
        raise BadColumnError(f"{option} {text}: the source has no column {missing[0]}, but {names}")


def write_once(
    client: CatalogClient,
    target: Target,
    rows: DataFrame,
    epoch: Epoch,
    mode: WriteMode,
    keys: Sequence[str] = (),
    *,
    made_of: StructType | None = None,
) -> tuple[CommittedRun, bool]:
    """Write the rows; the run as the catalog knows it, and whether Spark came to its end with it.

    It didn't if another process has committed the run, or if the answer to the commit got lost. JobConflictError if
    other writers were faster every time. BadInputError as `Epoch.done`. made_of: the columns of a table that isn't
    there; it is made with the rows, unless another writer is faster.
    """
    summary = {**epoch.summary, RUN_ID_KEY: epoch.run_id, RUN_EPOCH_KEY: str(epoch.number)}
    came_through = False
    for attempt in range(_MAX_ATTEMPTS):
        try:
            if made_of is not None and not client.table_exists(target.namespace, target.table):
                create_table(client, target, made_of, rows, summary)
            else:
                _write_rows(target, rows, summary, mode, keys)
            came_through = True
            break
        except Exception as error:
            if epoch.done(client, target) is not None:
                break
            failure = explain_failure(error)
            if not isinstance(failure, JobConflictError):
                raise
            if attempt == _MAX_ATTEMPTS - 1:
                raise failure from error
    found = epoch.done(client, target)
    if found is None:  # a merge of nothing makes no snapshot: an empty one says that the run has been
        _write_rows(target, rows.limit(0), summary, "append", ())
        found = epoch.done(client, target)
    assert found is not None
    return found, came_through


def _write_rows(
    target: Target, rows: DataFrame, summary: Mapping[str, str], mode: WriteMode, keys: Sequence[str]
) -> None:
    if mode == "merge":
        _merge_rows(target, rows, summary, keys)
        return
    writer = rows.writeTo(target.sql)
    for name, value in summary.items():
        writer = writer.option(f"snapshot-property.{name}", value)
    if mode == "append":
        writer.append()
    elif mode == "overwrite":
        writer.overwrite(F.lit(True))
    else:
        writer.overwritePartitions()


def _merge_rows(target: Target, rows: DataFrame, summary: Mapping[str, str], keys: Sequence[str]) -> None:
    spark, view = rows.sparkSession, f"merged_{uuid4().hex}"
    names = [quote_name(name) for name in rows.columns]
    same = " AND ".join(f"t.{quote_name(key)} = s.{quote_name(key)}" for key in keys)
    rows.createOrReplaceTempView(view)
    try:
        with stamp_with(spark, summary):
            spark.sql(
                f"MERGE INTO {target.sql} t USING {view} s ON {same} "
                f"WHEN MATCHED THEN UPDATE SET {', '.join(f't.{name} = s.{name}' for name in names)} "
                f"WHEN NOT MATCHED THEN INSERT ({', '.join(names)}) VALUES ({', '.join(f's.{name}' for name in names)})"
            )
    finally:
        spark.catalog.dropTempView(view)
