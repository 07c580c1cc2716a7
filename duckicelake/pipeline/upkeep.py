"""Run one attempt of a maintenance job by Iceberg's actions or by the catalog."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from duckicelake.errors import JobConflictError
from duckicelake.maintenance.layout import RowOrder
from duckicelake.maintenance.task import DUCKLAKE_SNAPSHOT, TaskOutcome, UpkeepTask
from duckicelake.pipeline.destination import format_sql_name
from duckicelake.pipeline.java import Jvm, iterate_java
from duckicelake.pipeline.job import PipelineJob
from duckicelake.properties import COMPRESSION_CODEC, DUCKLAKE_ID
from duckicelake.rest.client import CatalogClient, encode_namespace, encode_segment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SESSION_CODEC_SETTING: Final = "spark.sql.iceberg.compression-codec"
"""Wins over the table's."""
_ORPHAN_BATCH_FILES: Final = 1_000
"""Few, so that little happens between the last look at the catalog and the deletion."""
_MAX_PARTIAL_COMMITS: Final = "10"
"""A large rewrite is committed in so many parts: what is done stays done, and conflicts cost a part."""
_PARTIAL_KINDS: Final = frozenset({"sort", "compact"})
"""Iceberg only logs it if none of the parts could be committed."""
_KINDS_WITHOUT_SNAPSHOTS: Final = frozenset({"statistics", "expire"})


class IcebergTable:
    """The table as it is when this is made. summary: what goes into that of each snapshot that actions make."""

    def __init__(self, spark: SparkSession, namespace: tuple[str, ...], table: str, summary: Mapping[str, str]) -> None:
        self.spark = spark
        self.jvm = Jvm(spark)
        self.jvm.make_active()
        self._summary = summary
        self._name = format_sql_name(namespace, table)
        self.java = self.jvm.table(self._name)
        self.head = self._head()
        self.head_ducklake_id = 0 if self.head is None else int(self._read_summary()[DUCKLAKE_ID])

    def _read_summary(self) -> dict[str, str]:
        return dict(self.java.currentSnapshot().summary())

    def _head(self) -> int | None:
        snapshot = self.java.currentSnapshot()
        return None if snapshot is None else int(snapshot.snapshotId())

    def list_made(self) -> list[dict[str, str]]:
        """List the summaries of the job's snapshots on main since then, newest first, with their `snapshot-id`."""
        self.java.refresh()
        found = []
        for snapshot in self._since():
            summary = dict(snapshot.summary())
            if self._summary.items() <= summary.items():
                found.append({**summary, "snapshot-id": str(snapshot.snapshotId())})
        return found

    def is_behind(self) -> bool:
        """Return whether main has moved since then, as far as `made` saw."""
        return self._head() != self.head

    def _since(self) -> Iterator[Any]:
        snapshot = self.java.currentSnapshot()
        while snapshot is not None and snapshot.snapshotId() != self.head:
            yield snapshot
            parent = snapshot.parentId()
            snapshot = None if parent is None else self.java.snapshot(parent)

    def rewrite(
        self, order: RowOrder | None, codec: str, options: Mapping[str, str], where: str | None = None
    ) -> dict[str, int]:
        """Rewrite data files, sorted if there is an order; what conflicts with others' commits isn't committed.

        codec: packs them if the table doesn't say how; by itself Iceberg would take gzip. where: a condition in Spark's
        SQL; only files that may hold such rows are rewritten.
        """
        action = self._stamp(self._actions(codec).rewriteDataFiles(self.java)).options(options)
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
        result = self._stamp(self._actions().rewritePositionDeletes(self.java)).execute()
        return {
            "rewritten delete files": result.rewrittenDeleteFilesCount(),
            "added delete files": result.addedDeleteFilesCount(),
        }

    def pack_manifests(self) -> dict[str, int]:
        """Write manifests of few files anew, together, by partition; those of each partition spec by themselves."""
        rewritten = added = 0
        for spec_id in sorted(self.java.specs()):
            action = self._stamp(self._actions().rewriteManifests(self.java)).specId(spec_id)
            result = action.execute()
            rewritten += _count_items(result.rewrittenManifests())
            added += _count_items(result.addedManifests())
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
        """Yield the files below the table's location that were last written before a moment."""
        location = self.java.location().rstrip("/")
        for file in iterate_java(self.java.io().listPrefix(f"{location}/")):
            if file.createdAtMillis() < before_ms:
                yield {"location": file.location(), "size": file.size(), "modified-ms": file.createdAtMillis()}

    def delete_file(self, location: str) -> None:
        self.java.io().deleteFile(location)

    def _actions(self, codec: str | None = None) -> Any:
        session = self.jvm.session
        if codec is not None and not self.java.properties().containsKey(COMPRESSION_CODEC):
            session = session.cloneSession()  # others use this one at the same time
            session.conf().set(_SESSION_CODEC_SETTING, codec)
        return self.jvm.iceberg.spark.actions.SparkActions.get(session)

    def _stamp(self, action: Any) -> Any:
        for key, value in self._summary.items():
            action.snapshotProperty(key, value)
        return action

    def _sort_order(self, order: RowOrder) -> Any:
        builder = self.jvm.iceberg.SortOrder.builderFor(self.java.schema())
        nulls = self.jvm.iceberg.NullOrder
        for key in order.keys:
            add = builder.desc if key.descending else builder.asc
            add(key.part.name, nulls.NULLS_FIRST if key.nulls_first else nulls.NULLS_LAST)
        return builder.build()


def _count_items(iterable: Any) -> int:
    return sum(1 for _ in iterate_java(iterable))


def attempt_job(
    spark: SparkSession | None, client: CatalogClient, planned: UpkeepTask, job: PipelineJob
) -> TaskOutcome:
    """Try once, on the table as it is now. What conflicts raises something that `failures.is_conflict` knows."""
    if planned.kind == "flush":
        return _flush(client, planned)
    if planned.is_the_catalogs:
        return _expire_shared(client, planned)
    assert spark is not None, planned
    table = IcebergTable(spark, planned.namespace, planned.table, job.summary)
    if table.head is None:
        return TaskOutcome("unchanged", "the table is empty")
    if planned.kind == "remove-orphans":
        return _remove_orphans(table, client, planned, job)
    counts = _ACTIONS[planned.kind](table, planned)
    made = table.list_made()
    if not made and (counts.get("failed files") or (planned.kind in _PARTIAL_KINDS and table.is_behind())):
        raise JobConflictError("others changed the same files, so that nothing could be committed")
    if planned.kind == "sort" and planned.where is None and made and not counts["failed files"]:
        counts[DUCKLAKE_SNAPSHOT] = table.head_ducklake_id  # what others append meanwhile is unsorted
    changed = bool(made) or (planned.kind in _KINDS_WITHOUT_SNAPSHOTS and any(counts.values()))
    snapshot_ids = tuple(int(summary["snapshot-id"]) for summary in reversed(made))
    return TaskOutcome("done" if changed else "unchanged", None, snapshot_ids, counts)


def _flush(client: CatalogClient, planned: UpkeepTask) -> TaskOutcome:
    """Return the catalog does it, from which the rows would have to be fetched otherwise, to be written and put back.

    It is asked for the table before, so that what DuckDB did until now is listed, one snapshot for each, while its
    files are as they were.
    """
    client.load_table(planned.namespace, planned.table, "refs")
    found = client.flush_rows(planned.namespace, planned.table)
    if found["snapshot-id"] is None:
        return TaskOutcome("unchanged", "no rows are in Postgres any more")
    counts = {
        "rows in Postgres": found["rows"],
        "deletes in Postgres": found["deletes"],
        "added files": found["files"],
    }
    return TaskOutcome("done", None, (found["snapshot-id"],), counts)


def _expire_shared(client: CatalogClient, planned: UpkeepTask) -> TaskOutcome:
    """Return the catalog does it, as engines don't know which files another table needs."""
    before_ms = time.time_ns() // 1_000_000 - planned.policy.snapshot_age
    path = f"/v1/namespaces/{encode_namespace(planned.namespace)}/tables/{encode_segment(planned.table)}/expire"
    found = client.post(path, {"older-than-ms": before_ms, "retain-last": planned.policy.snapshots_kept})
    return TaskOutcome(
        "done" if found["snapshots"] else "unchanged", None, (), {"expired snapshots": found["snapshots"]}
    )


def _compact(table: IcebergTable, planned: UpkeepTask) -> dict[str, int]:
    policy = planned.policy
    more = {"min-input-files": str(max(policy.min_files, 2)), "delete-ratio-threshold": str(policy.delete_ratio)}
    return table.rewrite(policy.order, policy.codec, _build_rewrite_options(planned) | more, planned.where)


def _sort(table: IcebergTable, planned: UpkeepTask) -> dict[str, int]:
    policy = planned.policy
    return table.rewrite(
        policy.order, policy.codec, _build_rewrite_options(planned) | {"rewrite-all": "true"}, planned.where
    )


def _build_rewrite_options(planned: UpkeepTask) -> dict[str, str]:
    return {
        "target-file-size-bytes": str(planned.target_size),
        "partial-progress.enabled": "true",
        "partial-progress.max-commits": _MAX_PARTIAL_COMMITS,
        "remove-dangling-deletes": "true",
    }


def _expire(table: IcebergTable, planned: UpkeepTask) -> dict[str, int]:
    before_ms = time.time_ns() // 1_000_000 - planned.policy.snapshot_age
    return table.expire(before_ms, planned.policy.snapshots_kept)


_ACTIONS: Final[Mapping[str, Callable[[IcebergTable, UpkeepTask], dict[str, int]]]] = {
    "sort": _sort,
    "compact": _compact,
    "rewrite-deletes": lambda table, _: table.rewrite_deletes(),
    "pack-manifests": lambda table, _: table.pack_manifests(),
    "statistics": lambda table, _: table.compute_statistics(),
    "expire": _expire,
}


def _remove_orphans(table: IcebergTable, client: CatalogClient, planned: UpkeepTask, job: PipelineJob) -> TaskOutcome:
    before_ms = time.time_ns() // 1_000_000 - planned.policy.orphan_age
    path = client.pipeline(planned.namespace, planned.table, "orphans")
    counts = {"files looked at": 0, "deleted files": 0, "deleted bytes": 0}
    old = table.files_below(before_ms)
    while files := list(islice(old, _ORPHAN_BATCH_FILES)):
        sizes = {file["location"]: file["size"] for file in files}
        counts["files looked at"] += len(files)
        job.check()
        for location in client.post(path, {"files": files})["files"]:
            table.delete_file(location)
            counts["deleted files"] += 1
            counts["deleted bytes"] += sizes[location]
    return TaskOutcome("done" if counts["deleted files"] else "unchanged", None, (), counts)
