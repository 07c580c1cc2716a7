"""A table in Spark's JVM, with Iceberg's own actions on it. Each commit carries the job's keys in its summary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from duckicelake.pipeline.java import Jvm, each
from duckicelake.pipeline.layout import Order
from duckicelake.pipeline.spark_names import sql_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TABLES_CODEC: Final = "write.parquet.compression-codec"
_SESSIONS_CODEC: Final = "spark.sql.iceberg.compression-codec"
"""Wins over the table's."""


class IcebergTable:
    """The table as it is when this is made. summary: what goes into that of each snapshot that actions make."""

    def __init__(self, spark: SparkSession, namespace: tuple[str, ...], table: str, summary: Mapping[str, str]) -> None:
        self.spark = spark
        self.jvm = Jvm(spark)
        self.jvm.make_active()
        self._summary = summary
        self._name = sql_name(namespace, table)
        self.java = self.jvm.table(self._name)
        self.head = self._head()

    def _head(self) -> int | None:
        snapshot = self.java.currentSnapshot()
        return None if snapshot is None else int(snapshot.snapshotId())

    def made(self) -> list[dict[str, str]]:
        """The summaries of main's snapshots since then that the job made, newest first, each with its `snapshot-id`."""
        self.java.refresh()
        found = []
        for snapshot in self._since():
            summary = dict(snapshot.summary())
            if self._summary.items() <= summary.items():
                found.append({**summary, "snapshot-id": str(snapshot.snapshotId())})
        return found

    def is_behind(self) -> bool:
        """Whether main has moved since then, as far as `made` saw."""
        return self._head() != self.head

    def _since(self) -> Iterator[Any]:
        snapshot = self.java.currentSnapshot()
        while snapshot is not None and snapshot.snapshotId() != self.head:
            yield snapshot
            parent = snapshot.parentId()
            snapshot = None if parent is None else self.java.snapshot(parent)

    def rewrite(
        self, order: Order | None, codec: str, options: Mapping[str, str], where: str | None = None
    ) -> dict[str, int]:
        """Rewrite data files, sorted if there is an order; what conflicts with others' commits isn't committed.

        codec: packs them if the table doesn't say how; by itself Iceberg would take gzip. where: a condition in Spark's
        SQL; only files that may hold such rows are rewritten.
        """
        action = self._stamped(self._actions(codec).rewriteDataFiles(self.java)).options(options)
        if where is not None:
            action = action.filter(self.jvm.condition(self._name, where))
        if order is None:
            action = action.binPack()
        elif order.is_zorder:
            action = action.zOrder(self.jvm.strings(key.part.name for key in order.keys))
        else:
            action = action.sort(self._sort_order(order))
        result = action.execute()
        return {
            "rewritten files": result.rewrittenDataFilesCount(),
            "added files": result.addedDataFilesCount(),
            "rewritten bytes": result.rewrittenBytesCount(),
            "removed delete files": result.removedDeleteFilesCount(),
            "failed files": result.failedDataFilesCount(),
        }

    def rewrite_deletes(self) -> dict[str, int]:
        """Merge small files of position deletes, and drop those of rows that are gone."""
        result = self._stamped(self._actions().rewritePositionDeletes(self.java)).execute()
        return {
            "rewritten delete files": result.rewrittenDeleteFilesCount(),
            "added delete files": result.addedDeleteFilesCount(),
        }

    def pack_manifests(self) -> dict[str, int]:
        """Write manifests of few files anew, together, by partition; those of each partition spec by themselves."""
        rewritten = added = 0
        for spec_id in sorted(self.java.specs()):
            action = self._stamped(self._actions().rewriteManifests(self.java)).specId(spec_id)
            result = action.execute()
            rewritten += _length(result.rewrittenManifests())
            added += _length(result.addedManifests())
        return {"rewritten manifests": rewritten, "added manifests": added}

    def compute_statistics(self) -> dict[str, int]:
        """Write sketches of each column's distinct values for the current snapshot, from all of its rows."""
        file = self._actions().computeTableStats(self.java).execute().statisticsFile()
        return {} if file is None else {"columns": len(file.blobMetadata())}

    def expire(self, before_ms: int, keep: int) -> dict[str, int]:
        """Forget snapshots of before a moment, but the newest and what branches and tags keep; delete their files."""
        action = self._actions().expireSnapshots(self.java).expireOlderThan(before_ms).retainLast(keep)
        result = action.execute()
        return {
            "deleted data files": result.deletedDataFilesCount(),
            "deleted delete files": result.deletedPositionDeleteFilesCount(),
            "deleted manifests": result.deletedManifestsCount() + result.deletedManifestListsCount(),
        }

    def files_below(self, before_ms: int) -> Iterator[dict[str, Any]]:
        """The files below the table's location that were last written before a moment."""
        location = self.java.location().rstrip("/")
        for file in each(self.java.io().listPrefix(f"{location}/")):
            if file.createdAtMillis() < before_ms:
                yield {"location": file.location(), "size": file.size(), "modified-ms": file.createdAtMillis()}

    def delete_file(self, location: str) -> None:
        self.java.io().deleteFile(location)

    def _actions(self, codec: str | None = None) -> Any:
        session = self.jvm.session
        if codec is not None and not self.java.properties().containsKey(_TABLES_CODEC):
            session = session.cloneSession()  # others use this one at the same time
            session.conf().set(_SESSIONS_CODEC, codec)
        return self.jvm.iceberg.spark.actions.SparkActions.get(session)

    def _stamped(self, action: Any) -> Any:
        for key, value in self._summary.items():
            action.snapshotProperty(key, value)
        return action

    def _sort_order(self, order: Order) -> Any:
        builder = self.jvm.iceberg.SortOrder.builderFor(self.java.schema())
        nulls = self.jvm.iceberg.NullOrder
        for key in order.keys:
            add = builder.desc if key.descending else builder.asc
            add(key.part.name, nulls.NULLS_FIRST if key.nulls_first else nulls.NULLS_LAST)
        return builder.build()


def _length(iterable: Any) -> int:
    return sum(1 for _ in each(iterable))
