"""Delta logs written by hand, so that they can be as no writer here makes them; their data files are real Parquet."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from duckicelake.delta.log.reader import DeltaLog
from duckicelake.storage.local import LocalStore

START_MS = 1_700_000_000_000
SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'

Action = dict[str, Any]


def protocol(reader: int = 1, writer: int = 2, features: Sequence[str] | None = None) -> Action:
    names = {} if features is None else {"readerFeatures": list(features), "writerFeatures": list(features)}
    return {"protocol": {"minReaderVersion": reader, "minWriterVersion": writer, **names}}


def metadata(configuration: Mapping[str, str] | None = None, schema: str = SCHEMA) -> Action:
    return {
        "metaData": {
            "id": "6f0f0d4e-3d0a-4c3c-8d57-4f3f6f9a3c11",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema,
            "partitionColumns": [],
            "configuration": dict(configuration or {}),
            "createdTime": START_MS,
        }
    }


def add(path: str, size: int = 100, **more: Any) -> Action:
    plain = {"path": path, "partitionValues": {}, "size": size, "modificationTime": START_MS, "dataChange": True}
    return {"add": {**plain, **more}}


def remove(path: str, **more: Any) -> Action:
    return {"remove": {"path": path, "dataChange": True, "deletionTimestamp": START_MS, **more}}


@dataclass(frozen=True, slots=True)
class HandMade:
    """A table's folder."""

    folder: Path

    @property
    def log(self) -> DeltaLog:
        return DeltaLog(LocalStore(self.folder), str(self.folder))

    def path(self, name: str) -> Path:
        path = self.folder / "_delta_log" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def commit(self, version: int, *actions: Action, at_ms: int | None = None) -> Path:
        """A version's log file, by default one second after the version before."""
        return self.lines(f"{version:020}.json", *actions, at_ms=START_MS + 1000 * version if at_ms is None else at_ms)

    def lines(self, name: str, *actions: Action, at_ms: int = START_MS) -> Path:
        path = self.path(name)
        path.write_bytes(b"".join(orjson.dumps(action) + b"\n" for action in actions))
        os.utime(path, ns=(at_ms * 1_000_000, at_ms * 1_000_000))
        return path

    def begin(self, *actions: Action, **configuration: str) -> None:
        """Version 0, of an ordinary table."""
        self.commit(0, protocol(), metadata(configuration), *actions)

    def rows(self, name: str, first: int, count: int) -> Action:
        """A data file with the ids from `first` on, and its `add`."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": pa.array(range(first, first + count), pa.int64())}), path)
        return add(name, path.stat().st_size, stats=f'{{"numRecords":{count}}}')


def paths(log: DeltaLog, version: int | None = None) -> set[str]:
    """The files of a version."""
    return {key.path for key in log.snapshot(version).files}


MAP = pa.map_(pa.string(), pa.string())
VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
KINDS: dict[str, list[tuple[str, pa.DataType]]] = {
    "txn": [("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())],
    "add": [
        ("path", pa.string()),
        ("partitionValues", MAP),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
        ("tags", MAP),
        ("deletionVector", VECTOR),
        ("baseRowId", pa.int64()),
        ("defaultRowCommitVersion", pa.int64()),
    ],
    "remove": [("path", pa.string()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_())],
    "metaData": [
        ("id", pa.string()),
        ("name", pa.string()),
        ("description", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", MAP)])),
        ("schemaString", pa.string()),
        ("partitionColumns", pa.list_(pa.string())),
        ("configuration", MAP),
        ("createdTime", pa.int64()),
    ],
    "protocol": [
        ("minReaderVersion", pa.int32()),
        ("minWriterVersion", pa.int32()),
        ("readerFeatures", pa.list_(pa.string())),
        ("writerFeatures", pa.list_(pa.string())),
    ],
    "domainMetadata": [("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())],
    "checkpointMetadata": [("version", pa.int64()), ("tags", MAP)],
    "sidecar": [("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64()), ("tags", MAP)],
}


def write_parquet(path: Path, actions: Sequence[Action], extra: Mapping[str, pa.DataType] | None = None) -> None:
    """A checkpoint's file with these rows; `extra` are more fields of `add`."""
    present = {kind for action in actions for kind in action}
    fields = {kind: list(KINDS[kind]) for kind in KINDS if kind in present}
    if extra:
        fields["add"] = [field for field in fields["add"] if field[0] not in extra] + list(extra.items())
    schema = pa.schema([(kind, pa.struct(parts)) for kind, parts in fields.items()])
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([_with_pairs(action) for action in actions], schema=schema), path)


def _with_pairs(action: Action) -> Action:
    """Maps as Arrow takes them."""
    return {kind: {name: _pairs(name, value) for name, value in row.items()} for kind, row in action.items()}


def _pairs(name: str, value: Any) -> Any:
    if name in {"partitionValues", "configuration", "tags", "options"} and isinstance(value, dict):
        return list(value.items())
    return {key: _pairs(key, each) for key, each in value.items()} if name == "format" else value
