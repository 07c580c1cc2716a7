"""One attempt of each kind of job that keeps a table in shape."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal

from duckicelake.errors import JobConflict
from duckicelake.pipeline.iceberg_table import IcebergTable
from duckicelake.pipeline.plan import PlannedJob
from duckicelake.pipeline.running import Job
from duckicelake.rest.client import CatalogClient, encoded, segment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ASKED_AT_ONCE: Final = 1_000
"""Few, so that little happens between the last look at the catalog and the deletion."""
DUCKLAKE_SNAPSHOT: Final = "ducklake-snapshot"
"""Among the counts of a sort: DuckLake's snapshot in which all was sorted."""
_COMMITS: Final = "10"
"""A large rewrite is committed in so many parts: what is done stays done, and conflicts cost a part."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a job."""

    result: Literal["done", "unchanged", "skipped"]
    message: str | None = None
    snapshot_ids: tuple[int, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)


def act(spark: SparkSession | None, client: CatalogClient, planned: PlannedJob, job: Job) -> Outcome:
    """Try once, on the table as it is now. What conflicts raises something that `failures.is_conflict` knows."""
    if planned.kind == "flush":
        return _flush(client, planned)
    if planned.is_the_catalogs:
        return _expire_shared(client, planned)
    assert spark is not None, planned
    table = IcebergTable(spark, planned.namespace, planned.table, job.summary)
    if table.head is None:
        return Outcome("unchanged", "the table is empty")
    if planned.kind == "remove-orphans":
        return _remove_orphans(table, client, planned, job)
    counts = _ACTS[planned.kind](table, planned)
    made = table.made()
    if not made and (counts.get("failed files") or (planned.kind in _IN_PARTS and table.is_behind())):
        raise JobConflict("others changed the same files, so that nothing could be committed")
    if planned.kind == "sort" and planned.where is None and made and not counts["failed files"]:
        counts[DUCKLAKE_SNAPSHOT] = int(made[0]["ducklake.snapshot-id"])
    changed = bool(made) or (planned.kind in _WITHOUT_SNAPSHOTS and any(counts.values()))
    snapshot_ids = tuple(int(summary["snapshot-id"]) for summary in reversed(made))
    return Outcome("done" if changed else "unchanged", None, snapshot_ids, counts)


def _flush(client: CatalogClient, planned: PlannedJob) -> Outcome:
    """The catalog does it, from which the rows would have to be fetched otherwise, to be written and put back.

    It is asked for the table before, so that what DuckDB did until now is listed, one snapshot for each, while its
    files are as they were.
    """
    client.load_table(planned.namespace, planned.table, "refs")
    told = client.flush_rows(planned.namespace, planned.table)
    if told["snapshot-id"] is None:
        return Outcome("unchanged", "no rows are in Postgres any more")
    counts = {"rows in Postgres": told["rows"], "deletes in Postgres": told["deletes"], "added files": told["files"]}
    return Outcome("done", None, (told["snapshot-id"],), counts)


def _expire_shared(client: CatalogClient, planned: PlannedJob) -> Outcome:
    """The catalog does it, as engines don't know which files another table needs."""
    before_ms = time.time_ns() // 1_000_000 - planned.policy.snapshot_age
    path = f"/v1/namespaces/{encoded(planned.namespace)}/tables/{segment(planned.table)}/expire"
    told = client.post(path, {"older-than-ms": before_ms, "retain-last": planned.policy.snapshots_kept})
    return Outcome("done" if told["snapshots"] else "unchanged", None, (), {"expired snapshots": told["snapshots"]})


def _compact(table: IcebergTable, planned: PlannedJob) -> dict[str, int]:
    policy = planned.policy
    more = {"min-input-files": str(max(policy.min_files, 2)), "delete-ratio-threshold": str(policy.delete_ratio)}
    return table.rewrite(policy.order, policy.codec, _options(planned) | more, planned.where)


def _sort(table: IcebergTable, planned: PlannedJob) -> dict[str, int]:
    policy = planned.policy
    return table.rewrite(policy.order, policy.codec, _options(planned) | {"rewrite-all": "true"}, planned.where)


def _options(planned: PlannedJob) -> dict[str, str]:
    return {
        "target-file-size-bytes": str(planned.target_size),
        "partial-progress.enabled": "true",
        "partial-progress.max-commits": _COMMITS,
        "remove-dangling-deletes": "true",
    }


def _expire(table: IcebergTable, planned: PlannedJob) -> dict[str, int]:
    before_ms = time.time_ns() // 1_000_000 - planned.policy.snapshot_age
    return table.expire(before_ms, planned.policy.snapshots_kept)


_ACTS: Final[Mapping[str, Callable[[IcebergTable, PlannedJob], dict[str, int]]]] = {
    "sort": _sort,
    "compact": _compact,
    "rewrite-deletes": lambda table, _: table.rewrite_deletes(),
    "pack-manifests": lambda table, _: table.pack_manifests(),
    "statistics": lambda table, _: table.compute_statistics(),
    "expire": _expire,
}
_IN_PARTS: Final = frozenset({"sort", "compact"})
"""Iceberg only logs it if none of the parts could be committed."""
_WITHOUT_SNAPSHOTS: Final = frozenset({"statistics", "expire"})


def _remove_orphans(table: IcebergTable, client: CatalogClient, planned: PlannedJob, job: Job) -> Outcome:
    before_ms = time.time_ns() // 1_000_000 - planned.policy.orphan_age
    path = f"/pipeline/v1/namespaces/{encoded(planned.namespace)}/tables/{segment(planned.table)}/orphans"
    counts = {"files looked at": 0, "deleted files": 0, "deleted bytes": 0}
    old = table.files_below(before_ms)
    while files := list(islice(old, _ASKED_AT_ONCE)):
        sizes = {file["location"]: file["size"] for file in files}
        counts["files looked at"] += len(files)
        job.check()
        for location in client.post(path, {"files": files})["files"]:
            table.delete_file(location)
            counts["deleted files"] += 1
            counts["deleted bytes"] += sizes[location]
    return Outcome("done" if counts["deleted files"] else "unchanged", None, (), counts)
