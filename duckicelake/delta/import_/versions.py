"""PURE. What a Delta version changes of the version before, and its Iceberg snapshot."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final

from duckicelake.bridge.snapshots import SnapshotNumbers, SnapshotTotals, summarize_snapshot
from duckicelake.delta.log.actions import AddFile, DeltaCommit, DeltaSnapshot, Metadata, Txn
from duckicelake.iceberg.manifest.entry import FileContent
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.snapshot import Snapshot
from duckicelake.lake.state import FileRow
from duckicelake.properties import DELTA_TXN_PREFIX

_MAX_SUMMARY_CHARS: Final = 2_000
"""Characters of another writer's text that a summary repeats."""


@dataclass(slots=True)
class DeltaVersion:
    """A version, with the files by path that the one before hasn't, or has with another deletion vector.

    gone: removed paths, some of which may never have been there. metadata: None if unchanged. is_rewrite: its rows
    stay.
    """

    version: int
    timestamp_ms: int
    added: dict[str, AddFile] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    metadata: Metadata | None = None
    txns: dict[str, Txn] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)
    is_rewrite: bool = True

    def take(self, commit: DeltaCommit) -> None:
        """Apply the next version."""
        self.version, self.timestamp_ms, self.info = commit.version, commit.timestamp_ms, commit.info
        for removed in commit.removes:
            self.added.pop(removed.path, None)
            self.gone.add(removed.path)
        for added in commit.adds:
            self.added[added.path] = added
        self.gone -= self.added.keys()
        self.metadata = commit.metadata or self.metadata
        self.txns.update((txn.app_id, txn) for txn in commit.txns)
        if any(add.data_change for add in commit.adds) or any(remove.data_change for remove in commit.removes):
            self.is_rewrite = False


def build_first_version(snapshot: DeltaSnapshot, info: Mapping[str, Any]) -> DeltaVersion:
    """Build a table's first imported version, with all of its files."""
    files = {file.path: file for file in snapshot.files.values()}
    txns = dict(snapshot.txns)
    return DeltaVersion(
        snapshot.version, snapshot.timestamp_ms, files, set(), snapshot.metadata, txns, info, is_rewrite=False
    )


@dataclass(slots=True)
class ReadableVersions:
    """Yields, in order, the versions whose files all exist.

    missing: finds the missing files of paths. left_out: versions that can't be read any more. absent: missing files of
    the newest version, by path.
    """

    missing: AbstractSet[str]
    left_out: list[int] = field(default_factory=list)
    absent: set[str] = field(default_factory=set)

    def of(self, first: DeltaVersion, commits: Iterable[DeltaCommit]) -> Iterator[DeltaVersion]:
        """Yield the readable versions, each with its changes since the readable one before."""
        self._look(first.added, ())
        if self.absent:
            self.left_out.append(first.version)
        else:
            yield first
            first = DeltaVersion(first.version, first.timestamp_ms)
        yield from self.after(first, commits)

    def after(self, waiting: DeltaVersion, commits: Iterable[DeltaCommit]) -> Iterator[DeltaVersion]:
        """Yield the readable versions after one that is imported, or waits for a readable one."""
        for commit in commits:
            waiting.take(commit)
            self._look((add.path for add in commit.adds), (remove.path for remove in commit.removes))
            if self.absent:
                self.left_out.append(commit.version)
            else:
                yield waiting
                waiting = DeltaVersion(commit.version, commit.timestamp_ms)

    def _look(self, added: Iterable[str], removed: Iterable[str]) -> None:
        self.absent.difference_update(removed)
        if self.missing:
            self.absent.update(path for path in added if path in self.missing)


def build_summary(version: DeltaVersion) -> dict[str, str]:
    """Build the snapshot summary of a Delta version."""
    info = version.info
    summary: dict[str, object] = {
        "delta.version": version.version,
        "delta.timestamp": version.timestamp_ms,
        "delta.operation": info.get("operation"),
        "delta.user-metadata": info.get("userMetadata"),
        "delta.engine-info": info.get("engineInfo"),
        **{
            f"{DELTA_TXN_PREFIX}{app_id}": txn.version
            for app_id, txn in version.txns.items()
            if len(app_id) <= _MAX_SUMMARY_CHARS and "\0" not in app_id
        },
    }
    return {
        key: str(value)[:_MAX_SUMMARY_CHARS].replace("\0", "\ufffd")
        for key, value in summary.items()
        if value is not None
    }


def name_operation(version: DeltaVersion, *, adds: bool, removes: bool) -> str:
    """Name Iceberg's operation of a change; a version that changes no file is an append."""
    if version.is_rewrite and adds and removes:
        return "replace"
    if removes:
        return "overwrite" if adds else "delete"
    return "append"


def build_snapshot(
    version: DeltaVersion,
    numbers: SnapshotNumbers,
    metadata: TableMetadata,
    parent: Snapshot | None,
    added: Sequence[FileRow],
    removed: Sequence[FileRow],
) -> Snapshot:
    """Build the snapshot on its parent. Its time is never before its parent's."""
    data = [file for file in added if file.content == FileContent.DATA]
    operation = name_operation(version, adds=bool(data), removes=bool(removed) or len(data) < len(added))
    totals = SnapshotTotals.from_parent(parent)
    return Snapshot(
        snapshot_id=numbers.snapshot_id,
        parent_snapshot_id=parent.snapshot_id if parent else None,
        sequence_number=numbers.sequence_number,
        timestamp_ms=max(version.timestamp_ms, parent.timestamp_ms if parent else 0),
        manifest_list="",
        summary={**summarize_snapshot(operation, added, removed, totals), **build_summary(version)},
        schema_id=metadata.current_schema_id,
        first_row_id=metadata.next_row_id,
        added_rows=None if metadata.next_row_id is None else sum(file.record_count for file in data),
    )
