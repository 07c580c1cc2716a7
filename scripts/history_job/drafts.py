"""Snapshots as clients write them, on the metadata that they loaded: a small Parquet file, a manifest, a list."""

import io
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from duckicelake.iceberg.manifest.entry import (
    DataFile,
    EntryStatus,
    FileContent,
    ManifestEntry,
    ManifestFile,
    inherit_all_numbers,
)
from duckicelake.iceberg.manifest.reader import read_manifest, read_manifest_list
from duckicelake.iceberg.manifest.writer import assign_row_ids, write_manifest, write_manifest_list
from duckicelake.iceberg.partition import UNPARTITIONED
from duckicelake.iceberg.schema import Schema
from duckicelake.parquet.position_deletes import write_position_deletes
from duckicelake.storage.protocol import ObjectStore
from scripts.client_manifests import content_of, line_of

Json = dict[str, Any]
SCHEMA: Final[Json] = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "id", "type": "long", "required": False}],
}
_ARROW: Final = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])
MARK: Final = "history.operation"


@dataclass(slots=True)
class Draft:
    """A snapshot on top of `main`, made by the operation of this number; every method writes one file."""

    store: ObjectStore
    metadata: Json
    number: int
    random: Random
    snapshot_id: int = field(init=False)

    def __post_init__(self) -> None:
        self.snapshot_id = self.random.getrandbits(62)

    @property
    def is_v3(self) -> bool:
        return bool(self.metadata["format-version"] >= 3)

    @property
    def parent(self) -> Json | None:
        """The snapshot that `main` is at."""
        current = self.metadata.get("current-snapshot-id")
        return next((each for each in self.metadata.get("snapshots", ()) if each["snapshot-id"] == current), None)

    def parent_manifests(self) -> tuple[ManifestFile, ...]:
        return () if self.parent is None else read_manifest_list(self.store.read(self.parent["manifest-list"]))

    def live(self, line: ManifestFile) -> list[ManifestEntry]:
        """A manifest's files that are there, with what they inherit."""
        entries = inherit_all_numbers(read_manifest(self.store.read(line.manifest_path)).entries, line)
        return [entry for entry in entries if entry.status is not EntryStatus.DELETED]

    def ids_in(self, file: DataFile) -> list[int]:
        """The ids of a file's rows, those included that are deleted by position."""
        data = self.store.read(file.file_path)
        ids: list[int] = pq.read_table(io.BytesIO(data), columns=["id"])["id"].to_pylist()
        return ids

    def data_file(self, ids: Sequence[int]) -> DataFile:
        buffer = io.BytesIO()
        pq.write_table(pa.table({"id": list(ids)}, _ARROW), buffer)
        return DataFile(
            content=FileContent.DATA,
            file_path=self._write("data", "rows.parquet", buffer.getvalue()),
            file_format="PARQUET",
            partition=(),
            record_count=len(ids),
            file_size_in_bytes=len(buffer.getvalue()),
            value_counts={1: len(ids)},
            null_value_counts={1: 0},
            lower_bounds={1: min(ids).to_bytes(8, "little", signed=True)},
            upper_bounds={1: max(ids).to_bytes(8, "little", signed=True)},
        )

    def position_delete(self, file: DataFile, position: int) -> DataFile:
        data = write_position_deletes([(file.file_path, position)])
        return DataFile(
            content=FileContent.POSITION_DELETES,
            file_path=self._write("data", "deletes.parquet", data),
            file_format="PARQUET",
            partition=(),
            record_count=1,
            file_size_in_bytes=len(data),
        )

    def adding(self, file: DataFile) -> ManifestFile:
        return self._manifest([ManifestEntry(EntryStatus.ADDED, self.snapshot_id, None, None, file)])

    def without(self, lines: Iterable[ManifestFile], path: str) -> list[ManifestFile]:
        """The manifests, those with the file of this path or deletes of it alone written again without them."""
        return [self._rewritten(line, path) for line in lines]

    def commit(self, manifests: Sequence[ManifestFile], operation: str) -> Json:
        """Requirements and updates that put the snapshot on `main`."""
        parent_id = self.parent["snapshot-id"] if self.parent else None
        sequence = int(self.metadata.get("last-sequence-number", 0)) + 1
        listed = write_manifest_list(
            format_version=self.metadata["format-version"],
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=parent_id,
            sequence_number=sequence,
            manifests=manifests,
            first_row_id=self.metadata["next-row-id"] if self.is_v3 else None,
        )
        snapshot = {
            "snapshot-id": self.snapshot_id,
            "parent-snapshot-id": parent_id,
            "sequence-number": sequence,
            "timestamp-ms": time.time_ns() // 1_000_000,
            "manifest-list": self._write("metadata", "list.avro", listed),
            "summary": {"operation": operation, MARK: str(self.number)},
            "schema-id": self.metadata["current-schema-id"],
            **(self._row_ids(manifests) if self.is_v3 else {}),
        }
        return {
            "requirements": [
                {"type": "assert-table-uuid", "uuid": self.metadata["table-uuid"]},
                {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": parent_id},
            ],
            "updates": [
                {"action": "add-snapshot", "snapshot": snapshot},
                {
                    "action": "set-snapshot-ref",
                    "ref-name": "main",
                    "type": "branch",
                    "snapshot-id": self.snapshot_id,
                },
            ],
        }

    def _row_ids(self, manifests: Sequence[ManifestFile]) -> Json:
        first = int(self.metadata["next-row-id"])
        return {"first-row-id": first, "added-rows": assign_row_ids(manifests, first)[1] - first}

    def _rewritten(self, line: ManifestFile, path: str) -> ManifestFile:
        entries = self.live(line)
        leaving = [path in (entry.data_file.file_path, entry.data_file.referenced_data_file) for entry in entries]
        if not any(leaving):
            return line
        return self._manifest(
            replace(entry, status=EntryStatus.DELETED, snapshot_id=self.snapshot_id)
            if leaves
            else replace(entry, status=EntryStatus.EXISTING)
            for entry, leaves in zip(entries, leaving, strict=True)
        )

    def _manifest(self, entries: Iterable[ManifestEntry]) -> ManifestFile:
        rows = list(entries)
        schemas = {schema["schema-id"]: schema for schema in self.metadata["schemas"]}
        data = write_manifest(
            format_version=self.metadata["format-version"],
            content=content_of(rows),
            schema=Schema.model_validate(schemas[self.metadata["current-schema-id"]]),
            spec=UNPARTITIONED,
            entries=rows,
        )
        return line_of(self._write("metadata", "m0.avro", data), data, rows, self.snapshot_id)

    def _write(self, folder: str, suffix: str, data: bytes) -> str:
        unique = UUID(int=self.random.getrandbits(128))
        path = f"{self.metadata['location']}/{folder}/{self.number}-{unique}-{suffix}"
        self.store.write(path, data)
        return path
