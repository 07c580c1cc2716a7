"""PURE. A new state of main as the next commit of a Delta log, with statistics of its files."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from hashlib import sha256
from typing import Any, Final
from uuid import UUID, uuid5

import orjson

from duckicelake.delta.log.actions import AddFile, DeletionVector, DeltaCommit, Metadata, Protocol, RemoveFile, Txn
from duckicelake.delta.log.vectors import VectorFile, build_vector_file
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import NestedField, PrimitiveType, StructType
from duckicelake.iceberg.values import from_bytes
from duckicelake.lake.state import FileRow, SnapshotRow
from duckicelake.lake.txn import parse_version
from duckicelake.properties import DELTA_TXN_PREFIX, TXN_APP_ID_KEY, TXN_VERSION_KEY

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_BOUNDED: Final = frozenset(("int", "long", "float", "double", "decimal", "date", "timestamp", "timestamptz", "string"))
Json = dict[str, Any]
_OPERATIONS: Final = {"append": "WRITE", "overwrite": "MERGE", "delete": "DELETE", "replace": "OPTIMIZE"}
_METRICS: Final = {
    "added-data-files": "numAddedFiles",
    "deleted-data-files": "numRemovedFiles",
    "added-records": "numOutputRows",
    "added-position-deletes": "numDeletedRows",
}


def format_stats(file: FileRow, schema: Schema, physical: Mapping[int, str]) -> str:
    """Format the `stats` of an `add`, with the names in the files."""
    columns = schema.fields
    values = {
        "numRecords": file.record_count,
        "minValues": _build_nested(columns, physical, lambda field: _encode_bound(file, field, "lower_bounds")),
        "maxValues": _build_nested(columns, physical, lambda field: _encode_bound(file, field, "upper_bounds")),
        "nullCount": _build_nested(columns, physical, lambda field: _sum_nulls(file, field)),
        "tightBounds": False,
    }
    return orjson.dumps({name: value for name, value in values.items() if value != {}}).decode()


def _build_nested(
    fields: tuple[NestedField, ...], physical: Mapping[int, str], value_of: Callable[[NestedField], Any]
) -> Json:
    """Collect values of columns and of fields in structs; Delta has none for lists and maps."""
    found: Json = {}
    for field in fields:
        kind = field.type
        value = None
        if isinstance(kind, StructType):
            value = _build_nested(kind.fields, physical, value_of) or None
        elif isinstance(kind, PrimitiveType):
            value = value_of(field)
        if value is not None:
            found[physical.get(field.id, field.name)] = value
    return found


def _sum_nulls(file: FileRow, field: NestedField) -> int | None:
    count: int | None = (file.metrics.get("null_value_counts") or {}).get(str(field.id))
    return count


def _encode_bound(file: FileRow, field: NestedField, which: str) -> Any:
    text = (file.metrics.get(which) or {}).get(str(field.id))
    assert isinstance(field.type, PrimitiveType)
    if text is None or field.type.name not in _BOUNDED:
        return None
    if field.type.name in {"float", "double"} and _may_have_nans(file, field):
        return None
    try:
        return _encode_value(field.type, from_bytes(field.type, bytes.fromhex(text)))
    except (InvalidRequestError, OverflowError, ValueError):
        return None


def _may_have_nans(file: FileRow, field: NestedField) -> bool:
    """Return whether a column may have NaN, which for Delta's readers is the greatest value, also in bounds."""
    return (file.metrics.get("nan_value_counts") or {}).get(str(field.id)) != 0


def _encode_value(kind: PrimitiveType, value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return orjson.Fragment(format(value, "f"))
    if kind.name == "date":
        return date.fromordinal(value + _EPOCH.toordinal()).isoformat()
    if kind.name in {"timestamp", "timestamptz"}:
        at = (_EPOCH + timedelta(microseconds=value)).isoformat(timespec="microseconds").removesuffix("+00:00")
        return at + ("Z" if kind.name == "timestamptz" else "")
    return value


@dataclass(frozen=True, slots=True)
class LiveDataFile:
    """A data file in a state of main. positions: bitmap of deleted rows, empty without any."""

    file: FileRow
    positions: bytes = b""

    @property
    def digest(self) -> bytes:
        return sha256(self.positions).digest()


@dataclass(frozen=True, slots=True)
class LoggedVector:
    """A data file's vector in the log, and the hash of its positions."""

    digest: bytes
    vector: DeletionVector


@dataclass(frozen=True, slots=True)
class MainMoment:
    """The version to make, its log and its time. snapshot: of main since then; None if only metadata changed.

    is_alone: the former state of main isn't in the log.
    """

    version: int
    log_id: str
    timestamp_ms: int
    snapshot: SnapshotRow | None
    is_alone: bool = False

    @property
    def is_change(self) -> bool:
        """Whether rows may differ from before."""
        is_rewrite = self.snapshot is not None and self.snapshot.summary.get("operation") == "replace"
        return self.version == 0 or self.is_alone or not is_rewrite


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A version to record. vectors: by data file's path; None for files that have none any more."""

    commit: DeltaCommit
    file: VectorFile | None
    vectors: Mapping[str, LoggedVector | None]


@dataclass(frozen=True, slots=True)
class FileDifference:
    """The data files that differ, or may, by path: as in the log, and as they are now."""

    before: Mapping[str, AddFile]
    after: Mapping[str, LiveDataFile]
    vectors: Mapping[str, LoggedVector]


@dataclass(frozen=True, slots=True)
class LoggedDefinition:
    """A version's content besides files; None for unchanged parts."""

    schema: Schema
    physical: Mapping[int, str]
    metadata: Metadata | None
    protocol: Protocol | None


def build_next_version(moment: MainMoment, files: FileDifference, said: LoggedDefinition) -> NewVersion:
    """Build the version that changes the one before into this state."""
    vectors, written = _build_vectors(moment, files)
    adds = {
        path: AddFile(
            path,
            {},
            held.file.file_size_in_bytes,
            moment.timestamp_ms,
            moment.is_change,
            format_stats(held.file, said.schema, said.physical),
            vectors[path].vector if path in vectors else None,
        )
        for path, held in sorted(files.after.items())
    }
    kept = {path for path, add in adds.items() if path in files.before and files.before[path].key == add.key}
    gone = [add for path, add in sorted(files.before.items()) if path not in kept]
    commit = DeltaCommit(
        moment.version,
        moment.timestamp_ms,
        adds=tuple(add for path, add in adds.items() if path not in kept),
        removes=tuple(_build_removes(add, moment.timestamp_ms, is_change=moment.is_change) for add in gone),
        metadata=said.metadata,
        protocol=said.protocol,
        txns=tuple(_build_txns(moment.snapshot)),
        info=_build_info(moment),
    )
    ended = {add.path: None for add in gone if add.deletion_vector is not None}
    begun = {path: vector for path, vector in vectors.items() if path not in kept}
    return NewVersion(commit, written, {**ended, **begun})


def _build_vectors(moment: MainMoment, files: FileDifference) -> tuple[dict[str, LoggedVector], VectorFile | None]:
    """Build the vector of each data file, unchanged ones as before, and the file of new ones."""
    deleted = {path: held for path, held in sorted(files.after.items()) if held.positions}
    known = {path: files.vectors[path] for path in deleted if path in files.vectors}
    same = {path: vector for path, vector in known.items() if vector.digest == deleted[path].digest}
    new = [path for path in deleted if path not in same]
    if not new:
        return same, None
    unique = uuid5(UUID(moment.log_id), f"vectors {moment.version}")
    written = build_vector_file(unique, [deleted[path].positions for path in new])
    begun = {
        path: LoggedVector(deleted[path].digest, vector) for path, vector in zip(new, written.vectors, strict=True)
    }
    return same | begun, written


def _build_removes(add: AddFile, timestamp_ms: int, *, is_change: bool) -> RemoveFile:
    return RemoveFile(add.path, is_change, timestamp_ms, add.size, add.partition_values, add.deletion_vector)


def _build_txns(snapshot: SnapshotRow | None) -> Iterator[Txn]:
    """Yield the txns in a snapshot's summary, whether an Iceberg client or a Delta log wrote them (docs/delta.md)."""
    summary = snapshot.summary if snapshot else {}
    versions = {
        key.removeprefix(DELTA_TXN_PREFIX): text for key, text in summary.items() if key.startswith(DELTA_TXN_PREFIX)
    }
    if TXN_APP_ID_KEY in summary and TXN_VERSION_KEY in summary:
        versions[summary[TXN_APP_ID_KEY]] = summary[TXN_VERSION_KEY]
    for app_id, text in sorted(versions.items()):
        version = parse_version(text)
        if version is not None:
            yield Txn(app_id, version)


def _build_info(moment: MainMoment) -> dict[str, Any]:
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
