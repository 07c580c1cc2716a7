"""Read the rows that a snapshot changed."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from duckicelake.errors import BadColumnError
from duckicelake.pipeline.columns import index_by_name
from duckicelake.pipeline.destination import format_sql_name
from duckicelake.pipeline.java import Jvm, iterate_java, plan_tasks
from duckicelake.pipeline.main_history import SnapshotStep
from duckicelake.rest.names import Namespace, format_name, quote_name

TYPE_COLUMN: Final = "_change_type"
ORDINAL_COLUMN: Final = "_change_ordinal"
SNAPSHOT_COLUMN: Final = "_commit_snapshot_id"
"""Iceberg's names of what its changelogs tell."""
ROW_ID_COLUMN: Final = "_changed_row_id"
"""Spark's `_row_id`, which no column of a table may be called."""
_MICROSECOND_FORMAT: Final = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
JSON_OPTIONS: Final = {
    "ignoreNullFields": "false",
    "timestampFormat": f"{_MICROSECOND_FORMAT}XXX",
    "timestampNTZFormat": _MICROSECOND_FORMAT,
}
"""How rows are JSON that are the same only if their values are."""
_BEFORE_SIDE: Final = -1
_AFTER_SIDE: Final = 1
_WHOLE_WINDOW: Final = (Window.unboundedPreceding, Window.unboundedFollowing)
ScanTasks = Mapping[tuple[str, ...], Any]
"""Iceberg's scan tasks, by the files that they read: a data file and what is deleted from it."""


class RowChanges:
    """The changes of a table, in the columns that it has now; what comes later needs another.

    keys: what identifies rows; none: row ids where a snapshot and the one before have them, else the identifier fields
    of the table, else nothing. BadColumnError for a key that isn't there.
    """

    def __init__(self, spark: SparkSession, namespace: Namespace, table: str, keys: Sequence[str]) -> None:
        self._spark, self._jvm, self._name = spark, Jvm(spark), format_sql_name(namespace, table)
        schema = spark.table(self._name).schema
        self._table = self._jvm.table(self._name)
        self._has_row_ids = int(self._table.operations().current().formatVersion()) > 2
        has = index_by_name(schema)
        if missing := [key for key in keys if key.lower() not in has]:
            raise BadColumnError(f"--key {', '.join(missing)}: {format_name(namespace, table)} has no such column")
        self._columns = [F.col(quote_name(name)) for name in schema.names]
        self._keys = [F.col(quote_name(has[key.lower()].name)) for key in keys]
        self._identifiers = [
            F.col(quote_name(name) if name in schema.names else name)
            for name in sorted(iterate_java(self._table.schema().identifierFieldNames()))
        ]
        self._last: tuple[int | None, ScanTasks] = (None, {})

    @contextmanager
    def read_step(self, step: SnapshotStep, ordinal: int) -> Iterator[DataFrame]:
        """Yield the rows that a step changed, for reading within the block: kind, time, row id and columns."""
        gone, come = self._tasks(step)
        with self._rows(step, _BEFORE_SIDE, gone) as before, self._rows(step, _AFTER_SIDE, come) as after:
            if step.only_adds:
                yield self._describe(after.withColumn("is_update", F.lit(0) == 1), step, ordinal)
                return
            both = before.unionByName(after).repartition("key")
            changed = _pair_rows(both, "key", "same").where(~F.col("is_update"))
            yield self._describe(_pair_rows(changed, "key"), step, ordinal)

    def _tasks(self, step: SnapshotStep) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return what must be read of the state before, and of the one after."""
        if step.only_moves:
            return (), ()
        if step.only_adds:
            scan = self._table.newIncrementalAppendScan().fromSnapshotInclusive(step.snapshot_id)
            return (), list(plan_tasks(scan.toSnapshot(step.snapshot_id)))
        before, after = self._all_tasks(step.parent_id), self._all_tasks(step.snapshot_id)
        self._last = (step.snapshot_id, after)
        gone = [before[key] for key in before.keys() - after.keys()]
        return gone, [after[key] for key in after.keys() - before.keys()]

    def _all_tasks(self, snapshot_id: int | None) -> ScanTasks:
        """List the tasks of a scan, and keep the last list: it takes calls of Java for each file."""
        if snapshot_id is None:
            return {}
        if snapshot_id == self._last[0]:
            return self._last[1]
        found: dict[tuple[str, ...], Any] = {}
        with closing(plan_tasks(self._table.newScan().useSnapshot(snapshot_id))) as tasks:
            for task in tasks:
                deletes = sorted(f"{file.location()}@{file.contentOffset()}" for file in task.deletes())
                found[str(task.file().location()), *deletes] = task
        return found

    @contextmanager
    def _rows(self, step: SnapshotStep, side: int, tasks: Sequence[Any]) -> Iterator[DataFrame]:
        if not tasks:
            yield self._shape(step, side, self._spark.table(self._name).limit(0))
            return
        with self._jvm.stage_tasks(self._table, tasks) as name:
            yield self._shape(step, side, self._spark.read.format("iceberg").load(name))

    def _shape(self, step: SnapshotStep, side: int, rows: DataFrame) -> DataFrame:
        """Return rows with their identity (`key`), and whether they are unchanged (`same`)."""
        key, same = self._identity(step)
        return rows.select(
            F.lit(side).alias("side"),
            F.struct(*self._columns).alias("row"),
            key.alias("key"),
            same.alias("same"),
            *([F.col("_row_id").alias(ROW_ID_COLUMN)] if self._has_row_ids else []),
        )

    def _identity(self, step: SnapshotStep) -> tuple[Column, Column]:
        if step.by_row_id and not self._keys:
            return F.col("_row_id"), F.col("_last_updated_sequence_number")
        text = F.to_json(F.struct(*self._columns), JSON_OPTIONS)
        keys = self._keys or self._identifiers
        return (F.struct(*keys) if keys else text), text

    def _describe(self, rows: DataFrame, step: SnapshotStep, ordinal: int) -> DataFrame:
        is_before = F.col("side") == _BEFORE_SIDE
        update = F.when(is_before, "UPDATE_BEFORE").otherwise("UPDATE_AFTER")
        other = F.when(is_before, "DELETE").otherwise("INSERT")
        return rows.select(
            F.when(F.col("is_update"), update).otherwise(other).alias(TYPE_COLUMN),
            F.lit(ordinal).alias(ORDINAL_COLUMN),
            F.lit(step.snapshot_id).cast("long").alias(SNAPSHOT_COLUMN),
            *([ROW_ID_COLUMN] if self._has_row_ids else []),
            "row.*",
        )


def _pair_rows(rows: DataFrame, *by: str) -> DataFrame:
    """Return rows with `is_update`: whether the other side has a row with the same values of `by`."""
    ordered = Window.partitionBy(*by).orderBy("side")
    whole = ordered.rowsBetween(*_WHOLE_WINDOW)
    before, after = (F.count_if(F.col("side") == side).over(whole) for side in (_BEFORE_SIDE, _AFTER_SIDE))
    number = F.row_number().over(ordered)
    place = F.when(F.col("side") == _BEFORE_SIDE, number).otherwise(number - before)
    return rows.withColumn("is_update", place <= F.least(before, after))
