"""PURE. What main became, as the next version of a Delta log."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final
from uuid import UUID, uuid5

from duckicelake.bridge.delta.out_stats import stats_text
from duckicelake.delta.actions import AddFile, Commit, DeletionVector, Metadata, Protocol, RemoveFile, Txn
from duckicelake.delta.vector_writing import VectorFile, vector_file
from duckicelake.iceberg.schema import Schema
from duckicelake.lake.state import FileRow, SnapshotRow

_OPERATIONS: Final = {"append": "WRITE", "overwrite": "MERGE", "delete": "DELETE", "replace": "OPTIMIZE"}
_METRICS: Final = {
    "added-data-files": "numAddedFiles",
    "deleted-data-files": "numRemovedFiles",
    "added-records": "numOutputRows",
    "added-position-deletes": "numDeletedRows",
}
_TXN: Final = "delta.txn."
_APP_ID, _APP_VERSION = "txn.app-id", "txn.version"
_NUMBER: Final = re.compile("[0-9]{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Held:
    """A data file in a state of main; `positions`: the bitmap of those deleted, empty for none."""

    file: FileRow
    positions: bytes = b""

    @property
    def digest(self) -> bytes:
        return sha256(self.positions).digest()


@dataclass(frozen=True, slots=True)
class KnownVector:
    """The vector that a data file has in the log, and the hash of its positions."""

    digest: bytes
    vector: DeletionVector


@dataclass(frozen=True, slots=True)
class Moment:
    """Which version it is, of which log, and when. snapshot: what main names since; None if only metadata changed.

    is_alone: what main was before it isn't in the log.
    """

    version: int
    log_id: str
    timestamp_ms: int
    snapshot: SnapshotRow | None
    is_alone: bool = False

    @property
    def is_change(self) -> bool:
        """Whether rows may be others than before."""
        is_rewrite = self.snapshot is not None and self.snapshot.summary.get("operation") == "replace"
        return self.version == 0 or self.is_alone or not is_rewrite


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A version to record. vectors: what data files get by their paths, None for those that have none any more."""

    commit: Commit
    file: VectorFile | None
    vectors: Mapping[str, KnownVector | None]


@dataclass(frozen=True, slots=True)
class Files:
    """The data files that differ, or may, by path: as the log has them, and as they are."""

    before: Mapping[str, AddFile]
    after: Mapping[str, Held]
    vectors: Mapping[str, KnownVector]


@dataclass(frozen=True, slots=True)
class Said:
    """What a version says besides files; None for what stays as it was."""

    schema: Schema
    physical: Mapping[int, str]
    metadata: Metadata | None
    protocol: Protocol | None


def next_version(moment: Moment, files: Files, said: Said) -> NewVersion:
    """The version that leads from the one before to this state."""
    vectors, written = _vectors(moment, files)
    adds = {
        path: AddFile(
            path,
            {},
            held.file.file_size_in_bytes,
            moment.timestamp_ms,
            moment.is_change,
            stats_text(held.file, said.schema, said.physical),
            vectors[path].vector if path in vectors else None,
        )
        for path, held in sorted(files.after.items())
    }
    kept = {path for path, add in adds.items() if path in files.before and files.before[path].key == add.key}
    gone = [add for path, add in sorted(files.before.items()) if path not in kept]
    commit = Commit(
        moment.version,
        moment.timestamp_ms,
        adds=tuple(add for path, add in adds.items() if path not in kept),
        removes=tuple(_removed(add, moment.timestamp_ms, is_change=moment.is_change) for add in gone),
        metadata=said.metadata,
        protocol=said.protocol,
        txns=tuple(_txns(moment.snapshot)),
        info=_info(moment),
    )
    ended = {add.path: None for add in gone if add.deletion_vector is not None}
    begun = {path: vector for path, vector in vectors.items() if path not in kept}
    return NewVersion(commit, written, {**ended, **begun})


def _vectors(moment: Moment, files: Files) -> tuple[dict[str, KnownVector], VectorFile | None]:
    """The vector of each data file that has one, as before where it is the same, and the file of the new ones."""
    deleted = {path: held for path, held in sorted(files.after.items()) if held.positions}
    known = {path: files.vectors[path] for path in deleted if path in files.vectors}
    same = {path: vector for path, vector in known.items() if vector.digest == deleted[path].digest}
    new = [path for path in deleted if path not in same]
    if not new:
        return same, None
    unique = uuid5(UUID(moment.log_id), f"vectors {moment.version}")
    written = vector_file(unique, [deleted[path].positions for path in new])
    begun = {path: KnownVector(deleted[path].digest, vector) for path, vector in zip(new, written.vectors, strict=True)}
    return same | begun, written


def _removed(add: AddFile, timestamp_ms: int, *, is_change: bool) -> RemoveFile:
    return RemoveFile(add.path, is_change, timestamp_ms, add.size, add.partition_values, add.deletion_vector)


def _txns(snapshot: SnapshotRow | None) -> Iterator[Txn]:
    """What the summary keeps of counts of applications, in Delta's words or ours (docs/delta.md)."""
    summary = snapshot.summary if snapshot else {}
    counts = {name.removeprefix(_TXN): value for name, value in summary.items() if name.startswith(_TXN)}
    if _APP_ID in summary and _APP_VERSION in summary:
        counts[summary[_APP_ID]] = summary[_APP_VERSION]
    for app_id, version in sorted(counts.items()):
        if _NUMBER.fullmatch(version):
            yield Txn(app_id, int(version))


def _info(moment: Moment) -> dict[str, Any]:
    summary = moment.snapshot.summary if moment.snapshot else {}
    operation = summary.get("operation", "")
    ids = {} if moment.snapshot is None else {"iceberg.snapshot-id": str(moment.snapshot.snapshot_id)}
    return {
        "timestamp": moment.timestamp_ms,
        "inCommitTimestamp": moment.timestamp_ms,
        "operation": _OPERATIONS.get(operation, "SET TBLPROPERTIES"),
        "operationParameters": ids,
        "isBlindAppend": operation == "append",
        "operationMetrics": {_METRICS[key]: value for key, value in sorted(summary.items()) if key in _METRICS},
        "engineInfo": "duckicelake",
        "txnId": str(uuid5(UUID(moment.log_id), f"version {moment.version}")),
    }
