"""PURE. One task of a table's upkeep: what it does, why, what it costs and gains, and what came of it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from duckicelake.maintenance.policy import OPT_IN_KINDS, MaintenancePolicy
from duckicelake.rest.names import format_name

_FILE_BYTES: Final = 4 * 1024 * 1024
"""What opening a file costs a scan, in bytes that it could read meanwhile; Iceberg's `read.split.open-file-cost`."""


DUCKLAKE_SNAPSHOT: Final = "ducklake-snapshot"
"""Among the counts of a sort: DuckLake's snapshot that it read. Later files are unsorted, but for those that the job's
own snapshots added.
"""
_PLURAL_PATTERN: Final = re.compile(r"branches and tags|\w\ws\b")


@dataclass(frozen=True, slots=True)
class TaskEstimate:
    """What a task costs and gains, by the catalog's statistics.

    Attributes:
        files_read: files that it reads, and
        bytes_read: their bytes. Rows in Postgres count as nothing.
        files_saved: files that scans and plans need no more afterwards.
        planning_speedup: how many times as fast scans are planned afterwards, where all files are planned.
        scan_speedup: how many times as fast a whole scan is afterwards.

    """

    files_read: int = 0
    bytes_read: int = 0
    files_saved: int = 0
    planning_speedup: float = 1.0
    scan_speedup: float = 1.0

    @property
    def rank(self) -> float:
        """Divide the gain by the cost: bytes that scans save for each byte that the task reads; the most first."""
        return (self.files_saved + 1) * _FILE_BYTES / (self.bytes_read + (self.files_read + 1) * _FILE_BYTES)

    def to_json(self) -> dict[str, Any]:
        """Return it as the API has it."""
        return {
            "files-read": self.files_read,
            "bytes-read": self.bytes_read,
            "files-saved": self.files_saved,
            "planning-speedup": round(self.planning_speedup, 2),
            "scan-speedup": round(self.scan_speedup, 2),
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "TaskEstimate":
        """Return what `to_json` made a JSON object of, without fields of newer versions."""
        known = {name.replace("_", "-"): name for name in cls.__dataclass_fields__}
        return cls(**{known[name]: value for name, value in fields.items() if name in known})


def estimate_rewrite(table_files: int, table_bytes: int, files: int, bytes_: int, files_left: int) -> TaskEstimate:
    """Compute what it costs and gains to rewrite some of a table's files into `files_left`."""
    saved = max(0, files - files_left)
    after = max(1, table_files - saved)
    scan, scan_after = table_bytes + table_files * _FILE_BYTES, table_bytes + after * _FILE_BYTES
    return TaskEstimate(files, bytes_, saved, max(1, table_files) / after, scan / scan_after)


@dataclass(frozen=True, slots=True)
class UpkeepTask:
    """Something to be done to one table, and why; `where`: only to files that may hold such rows.

    notes_order: whether the order of a sort is that of the table's policies, with which later plans compare it.
    """

    kind: str
    namespace: tuple[str, ...]
    table: str
    why: str
    policy: MaintenancePolicy
    target_size: int
    where: str | None = None
    estimate: TaskEstimate = field(default=TaskEstimate(), compare=False)
    notes_order: bool = True

    @property
    def is_the_catalogs(self) -> bool:
        """Whether the catalog does it itself, also for Spark's pipeline."""
        return self.kind == "flush" or (self.kind == "expire" and self.policy.shares_files)

    @property
    def parameters(self) -> dict[str, Any]:
        """What a job that does it is noted with: why, and the order that a later plan compares with the policy's."""
        is_noted = self.kind == "sort" and self.policy.order is not None and self.notes_order
        return {"why": self.why} | ({"order": str(self.policy.order)} if is_noted else {})

    @property
    def is_chosen(self) -> bool:
        """Whether a request for all that is due has it done: what deletes for ever needs a policy that was set."""
        return self.kind not in OPT_IN_KINDS or self.kind in self.policy.chosen

    def __str__(self) -> str:
        return f"{self.kind} {format_name(self.namespace, self.table)}: {self.why}"


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """What came of a task. snapshot_ids: Iceberg's. counts: of rows, files, bytes.

    parameters: what its job turned out to be about, for the list of jobs and for later plans. has_more: whether the
    task goes back to the queue for the rest, behind others that matter as much.
    """

    result: Literal["done", "unchanged", "skipped"]
    message: str | None = None
    snapshot_ids: tuple[int, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    has_more: bool = False


def format_counts(counts: Mapping[str, Any]) -> str:
    """Format what was counted, as `6 rewritten files, 1 row in Postgres`; without zeros and DuckLake's snapshot.

    Clients may have noted texts among the counts of their jobs.
    """
    return ", ".join(
        f"{format(count, ',') if isinstance(count, int) else count} "
        f"{name if count != 1 else _PLURAL_PATTERN.sub(_make_singular, name, count=1)}"
        for name, count in counts.items()
        if count and name != DUCKLAKE_SNAPSHOT
    )


def _make_singular(plural: re.Match[str]) -> str:
    return "branch or tag" if " " in plural[0] else plural[0][:-1]
