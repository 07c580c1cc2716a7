"""An Iceberg client in small, over the use cases: real files on disk, and free to do wrong what engines do right."""

import json
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import StaticTable

from duckicelake.catalog import tables
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.namespaces import create_namespace
from duckicelake.errors import CommitFailedError
from duckicelake.iceberg.manifest.entry import (
    DataFile,
    EntryStatus,
    FileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)
from duckicelake.iceberg.manifest.reader import read_manifest, read_manifest_list
from duckicelake.iceberg.manifest.writer import assign_row_ids, write_manifest, write_manifest_list
from duckicelake.iceberg.partition import UNPARTITIONED, PartitionSpec
from duckicelake.iceberg.rest import CommitTableRequest, CreateTableRequest
from duckicelake.iceberg.schema import Schema
from duckicelake.parquet.position_deletes import write_position_deletes
from scripts.client_manifests import content_of, line_of

Json = dict[str, Any]
Row = tuple[int, str | None]
NS = ("ns",)
SCHEMA: Json = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": False},
        {"id": 2, "name": "name", "type": "string", "required": False},
    ],
}
ARROW = pa.schema(
    [
        pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"}),
        pa.field("name", pa.string(), metadata={"PARQUET:field_id": "2"}),
    ]
)


def local(location: str) -> Path:
    return Path(location.removeprefix("file:"))


@dataclass(slots=True)
class Draft:
    """A snapshot that a client prepares on the metadata that it loaded; every method writes one file.

    It is for a branch, on whose head it builds unless `built_on` says otherwise; for none, it is only staged.
    """

    metadata: Json
    operation: str = "append"
    snapshot_id: int = field(default_factory=lambda: secrets.randbits(62))
    format_version: int = 2
    branch: str | None = "main"
    built_on: int | None = None

    @property
    def head(self) -> int | None:
        ref = self.metadata.get("refs", {}).get(self.branch or "main")
        return int(ref["snapshot-id"]) if ref else None

    @property
    def parent(self) -> int | None:
        return self.head if self.built_on is None else self.built_on

    @property
    def first_row_id(self) -> int | None:
        return int(self.metadata["next-row-id"]) if self.format_version >= 3 else None

    @property
    def sequence_number(self) -> int:
        return int(self.metadata.get("last-sequence-number", 0)) + 1

    @property
    def parent_manifests(self) -> tuple[ManifestFile, ...]:
        for snapshot in self.metadata.get("snapshots", ()):
            if snapshot["snapshot-id"] == self.parent:
                return read_manifest_list(local(snapshot["manifest-list"]).read_bytes())
        return ()

    def data_file(self, rows: Sequence[Row]) -> DataFile:
        path = f"{self.metadata['location']}/data/{uuid4()}.parquet"
        local(path).parent.mkdir(parents=True, exist_ok=True)
        ids, names = [row[0] for row in rows], [row[1] for row in rows]
        pq.write_table(pa.table({"id": ids, "name": names}, ARROW), local(path))
        low, high = (min(ids).to_bytes(8, "little", signed=True), max(ids).to_bytes(8, "little", signed=True))
        return DataFile(
            content=FileContent.DATA,
            file_path=path,
            file_format="PARQUET",
            partition=(),
            record_count=len(rows),
            file_size_in_bytes=local(path).stat().st_size,
            value_counts={1: len(rows), 2: len(rows)},
            null_value_counts={1: 0, 2: names.count(None)},
            lower_bounds={1: low},
            upper_bounds={1: high},
        )

    def delete_file(self, positions: Sequence[tuple[str, int]]) -> DataFile:
        path = self.new_file("deletes.parquet", write_position_deletes(positions))
        return DataFile(
            content=FileContent.POSITION_DELETES,
            file_path=path,
            file_format="PARQUET",
            partition=(),
            record_count=len(positions),
            file_size_in_bytes=local(path).stat().st_size,
        )

    def added(self, file: DataFile) -> ManifestEntry:
        return ManifestEntry(EntryStatus.ADDED, self.snapshot_id, None, None, file)

    def manifest(
        self, entries: Iterable[ManifestEntry | DataFile], spec: PartitionSpec = UNPARTITIONED, **changes: Any
    ) -> ManifestFile:
        """Write a manifest of files to add or of entries as they are; `changes` are put into its line."""
        rows = [self.added(entry) if isinstance(entry, DataFile) else entry for entry in entries]
        data = write_manifest(
            format_version=self.format_version,
            content=content_of(rows),
            schema=Schema.model_validate(self.metadata["schemas"][-1]),
            spec=spec,
            entries=rows,
        )
        line = line_of(self.new_file("m0.avro", data), data, rows, self.snapshot_id, spec.spec_id)
        return replace(line, **changes)

    def manifest_list(self, manifests: Iterable[ManifestFile]) -> str:
        data = write_manifest_list(
            format_version=self.format_version,
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=self.parent,
            sequence_number=self.sequence_number,
            manifests=manifests,
            first_row_id=self.first_row_id,
        )
        return self.new_file("list.avro", data)

    def row_ids(self, manifests: Sequence[ManifestFile]) -> Json:
        """What a snapshot of format version 3 says of its rows."""
        if self.first_row_id is None:
            return {}
        following = assign_row_ids(manifests, self.first_row_id)[1]
        return {"first-row-id": self.first_row_id, "added-rows": following - self.first_row_id}

    def new_file(self, suffix: str, data: bytes) -> str:
        path = f"{self.metadata['location']}/metadata/client-{uuid4()}-{suffix}"
        local(path).parent.mkdir(parents=True, exist_ok=True)
        local(path).write_bytes(data)
        return path

    def body(self, manifest_list: str | Sequence[ManifestFile], **snapshot: Any) -> Json:
        """The commit that adds the snapshot to its branch; keyword arguments replace what the snapshot says."""
        path = manifest_list if isinstance(manifest_list, str) else self.manifest_list(manifest_list)
        lines = () if isinstance(manifest_list, str) else manifest_list
        values = {
            **self.row_ids(lines),
            "snapshot-id": self.snapshot_id,
            "parent-snapshot-id": self.parent,
            "sequence-number": self.sequence_number,
            "timestamp-ms": time.time_ns() // 1_000_000,
            "manifest-list": path,
            "summary": {"operation": self.operation},
            "schema-id": self.metadata["current-schema-id"],
            **{name.replace("_", "-"): value for name, value in snapshot.items()},
        }
        requirements = [{"type": "assert-table-uuid", "uuid": self.metadata["table-uuid"]}]
        updates = [{"action": "add-snapshot", "snapshot": values}]
        if self.branch is not None:
            requirements.append({"type": "assert-ref-snapshot-id", "ref": self.branch, "snapshot-id": self.head})
            updates.append(set_ref(self.branch, values["snapshot-id"]))
        return {"requirements": requirements, "updates": updates}


def append(metadata: Json, *rows: Row) -> Json:
    """The commit that appends rows in a file of their own."""
    draft = Draft(metadata)
    return draft.body([draft.manifest([draft.data_file(rows)]), *draft.parent_manifests])


def delete(metadata: Json, *positions: tuple[str, int]) -> Json:
    """The commit that deletes rows by position, with one delete file."""
    draft = Draft(metadata, operation="delete")
    return draft.body([draft.manifest([draft.delete_file(positions)]), *draft.parent_manifests])


def remove(metadata: Json, *paths: str) -> Json:
    """The commit that removes whole data files, as copy-on-write does: it rewrites the manifests that hold them."""
    draft = Draft(metadata, operation="delete")
    manifests = []
    for line in draft.parent_manifests:
        entries = live(line)
        if not any(entry.data_file.file_path in paths for entry in entries):
            manifests.append(line)
            continue
        rewritten = [
            replace(entry, status=EntryStatus.DELETED, snapshot_id=draft.snapshot_id)
            if entry.data_file.file_path in paths
            else replace(entry, status=EntryStatus.EXISTING)
            for entry in entries
        ]
        manifests.append(draft.manifest(rewritten))
    return draft.body(manifests)


def live(line: ManifestFile) -> list[ManifestEntry]:
    """The live entries of a manifest, with what they inherit."""
    manifest = read_manifest(local(line.manifest_path).read_bytes())
    return [
        replace(
            entry,
            snapshot_id=entry.snapshot_id or line.added_snapshot_id,
            sequence_number=line.sequence_number if entry.sequence_number is None else entry.sequence_number,
            file_sequence_number=line.sequence_number
            if entry.file_sequence_number is None
            else entry.file_sequence_number,
        )
        for entry in manifest.entries
        if entry.status is not EntryStatus.DELETED
    ]


def hush(manifest: Path) -> None:
    """Leave its header without content, and with its partition spec under another key, as ClickHouse writes it."""
    data = manifest.read_bytes().replace(b"partition-spec-id", b"partition_spec_id")
    manifest.write_bytes(data.replace(b"\x0econtent", b"\x0enothing"))


def data_files(metadata: Json) -> list[str]:
    """The paths of the live data files, oldest first."""
    lines = [line for line in Draft(metadata).parent_manifests if line.content is ManifestContent.DATA]
    entries = [entry for line in lines for entry in live(line)]
    ordered = sorted(entries, key=lambda entry: (entry.sequence_number or 0, entry.data_file.file_path))
    return [entry.data_file.file_path for entry in ordered]


def set_ref(name: str, snapshot_id: int, type: str = "branch", **retention: int) -> Json:  # noqa: A002
    """The update that creates a branch or tag, or moves it."""
    limits = {key.replace("_", "-"): value for key, value in retention.items()}
    return {"action": "set-snapshot-ref", "ref-name": name, "type": type, "snapshot-id": snapshot_id, **limits}


def set_properties(**properties: str) -> Json:
    return {"requirements": [], "updates": [{"action": "set-properties", "updates": properties}]}


@dataclass(frozen=True, slots=True)
class Client:
    """One client of one server; a server is its Services."""

    services: Services

    def create(self, name: str = "t", **request: Any) -> Json:
        body = {"name": name, "schema": SCHEMA, **{key.replace("_", "-"): value for key, value in request.items()}}
        created = tables.create_table(self.services, NS, CreateTableRequest.model_validate(body))
        answer: Json = json.loads(created.body)
        return answer

    def load(self, name: str = "t") -> Json:
        """The whole answer: metadata-location and metadata."""
        answer: Json = json.loads(tables.load_table(self.services, NS, name).body)
        return answer

    def metadata(self, name: str = "t") -> Json:
        metadata: Json = self.load(name)["metadata"]
        return metadata

    def commit(self, body: Json, name: str = "t") -> Json:
        request = CommitTableRequest.model_validate(body)
        answer: Json = json.loads(tables.commit_table(self.services, NS, name, request).body)
        return answer

    def append(self, *rows: Row, name: str = "t") -> Json:
        """Append until it succeeds, as engines do: a conflict is a reason to load again."""
        while True:
            try:
                return self.commit(append(self.metadata(name), *rows), name)
            except CommitFailedError:
                continue


def new_client(services: Services) -> Client:
    """A client of a lake that has the namespace."""
    create_namespace(services, NS, {})
    return Client(services)


def pyiceberg_rows(answer: Json, snapshot_id: int | None = None) -> list[Row]:
    """What PyIceberg reads from the files alone, sorted."""
    table = StaticTable.from_metadata(answer["metadata-location"])
    read = table.scan(snapshot_id=snapshot_id).to_arrow()
    return sorted(zip(read["id"].to_pylist(), read["name"].to_pylist(), strict=True))


def duckdb_rows(connection: duckdb.DuckDBPyConnection, name: str = "t") -> list[Row]:
    return connection.sql(f"SELECT id, name FROM lake.ns.{name} ORDER BY ALL").fetchall()


def assert_whole(answer: Json) -> None:
    """The table is all there, and its history begins with its oldest snapshot."""
    assert_files(answer)
    snapshots = [snapshot["snapshot-id"] for snapshot in answer["metadata"].get("snapshots", ())]
    for number, snapshot in enumerate(answer["metadata"].get("snapshots", ())):
        parent = snapshot.get("parent-snapshot-id")
        assert parent is None or parent in snapshots or number == 0


def assert_files(answer: Json) -> None:
    """Every file that the table's metadata names exists, and says what the metadata says."""
    metadata = answer["metadata"]
    assert json.loads(local(answer["metadata-location"]).read_bytes()) == metadata
    for entry in metadata.get("metadata-log", ()):
        assert local(entry["metadata-file"]).is_file()
    current = metadata.get("current-snapshot-id")
    assert metadata.get("refs", {}).get("main", {}).get("snapshot-id") == (None if current == -1 else current)
    for snapshot in metadata.get("snapshots", ()):
        for line in read_manifest_list(local(snapshot["manifest-list"]).read_bytes()):
            data = local(line.manifest_path).read_bytes()
            assert len(data) == line.manifest_length
            for entry in live(line):
                assert local(entry.data_file.file_path).stat().st_size == entry.data_file.file_size_in_bytes
