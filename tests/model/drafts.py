"""Snapshots that a client prepares file by file for any table of the model, as engines' writers do."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema as IcebergSchema

from duckicelake.iceberg.manifest.entry import DataFile, EntryStatus, FileContent, ManifestEntry, ManifestFile
from duckicelake.iceberg.partition import PartitionSpec
from duckicelake.iceberg.puffin import FILE_FORMAT, write_deletion_vectors
from tests.model.model import ID, Row, Table
from tests.model.reader import Reader
from tests.model.values import named
from tests.support.client import Draft, Json, live, local

Place = dict[str, set[int]]


@dataclass(slots=True)
class Preparation:
    """The files of a new snapshot, on top of its parent's: `entries` are the parent's live ones with their spec."""

    table: Table
    reader: Reader
    draft: Draft
    entries: list[tuple[int, ManifestEntry]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for line in self.draft.parent_manifests:
            self.entries += [(line.partition_spec_id, entry) for entry in live(line)]

    @property
    def data(self) -> list[tuple[int, ManifestEntry]]:
        return [each for each in self.entries if each[1].data_file.content is FileContent.DATA]

    def places(self, ids: Collection[int]) -> Place:
        """Where the live rows with these ids are: positions by data file."""
        deleted = self.reader.deleted([entry.data_file for _, entry in self.entries])
        found = {}
        for _, entry in self.data:
            path = entry.data_file.file_path
            rows = self.reader.data(path, self.draft.metadata)
            gone = deleted.get(path, ())
            positions = {at for at, row in enumerate(rows) if row[self.id_field] in ids and at not in gone}
            if positions:
                found[path] = positions
        return found

    @property
    def id_field(self) -> int:
        return self.table.ids[ID]

    def live_ids(self, paths: Collection[str]) -> set[int]:
        """The ids of the live rows in these data files."""
        deleted = self.reader.deleted([entry.data_file for _, entry in self.entries])
        return {
            row[self.id_field]
            for path in paths
            for at, row in enumerate(self.reader.data(path, self.draft.metadata))
            if at not in deleted.get(path, ())
        }

    # New files

    def data_file(self, rows: Iterable[Row]) -> DataFile:
        """A file of the rows in no partition, as the table's first spec has none."""
        path = f"{self.draft.metadata['location']}/data/{uuid4()}.parquet"
        local(path).parent.mkdir(parents=True, exist_ok=True)
        known = [named(self.table.columns, row) for row in rows]
        pq.write_table(pa.Table.from_pylist(known, schema=self.arrow_schema()), local(path))
        low, high = (end(row["id"] for row in known).to_bytes(8, "little", signed=True) for end in (min, max))
        return DataFile(
            content=FileContent.DATA,
            file_path=path,
            file_format="PARQUET",
            partition=(),
            record_count=len(known),
            file_size_in_bytes=local(path).stat().st_size,
            value_counts={self.id_field: len(known)},
            null_value_counts={self.id_field: 0},
            lower_bounds={self.id_field: low},
            upper_bounds={self.id_field: high},
        )

    def arrow_schema(self) -> pa.Schema:
        """With the field ids that belong into Parquet."""
        metadata = self.draft.metadata
        schema = next(s for s in metadata["schemas"] if s["schema-id"] == metadata["current-schema-id"])
        return schema_to_pyarrow(IcebergSchema.model_validate(schema))

    def position_deletes(self, places: Place) -> list[ManifestFile]:
        """A Parquet file of positions for each partition that has some, each in a manifest of its spec."""
        groups: dict[tuple[int, Any], list[tuple[str, int]]] = defaultdict(list)
        for spec_id, entry in self.data:
            for position in sorted(places.get(entry.data_file.file_path, ())):
                groups[spec_id, entry.data_file.partition].append((entry.data_file.file_path, position))
        return [
            self.draft.manifest([replace(self.draft.delete_file(rows), partition=partition)], self.spec(spec_id))
            for (spec_id, partition), rows in groups.items()
        ]

    def vectors(self, places: Place) -> list[ManifestFile]:
        """A deletion vector for each data file, with what was deleted from it before."""
        deleted = self.reader.deleted([entry.data_file for _, entry in self.entries])
        whole = {path: positions | deleted.get(path, set()) for path, positions in places.items()}
        puffin = write_deletion_vectors(whole.items())
        location = self.draft.new_file("vectors.puffin", puffin.data)
        blobs = dict(zip(whole, puffin.blobs, strict=True))
        files = [
            (
                spec_id,
                DataFile(
                    content=FileContent.POSITION_DELETES,
                    file_path=location,
                    file_format=FILE_FORMAT,
                    partition=entry.data_file.partition,
                    record_count=len(whole[path]),
                    file_size_in_bytes=len(puffin.data),
                    referenced_data_file=path,
                    content_offset=blobs[path].offset,
                    content_size_in_bytes=blobs[path].length,
                ),
            )
            for spec_id, entry in self.data
            if (path := entry.data_file.file_path) in whole
        ]
        return [
            self.draft.manifest([file for its, file in files if its == spec_id], self.spec(spec_id))
            for spec_id in sorted({its for its, _ in files})
        ]

    def equality_deletes(self, ids: Collection[int]) -> list[ManifestFile]:
        """A file of ids, which concerns every older row, in no partition."""
        schema = pa.schema([self.arrow_schema().field("id")])
        path = local(self.draft.new_file("equality.parquet", b""))
        pq.write_table(pa.table({"id": sorted(ids)}, schema), path)
        file = DataFile(
            content=FileContent.EQUALITY_DELETES,
            file_path=str(path),
            file_format="PARQUET",
            partition=(),
            record_count=len(ids),
            file_size_in_bytes=path.stat().st_size,
            equality_ids=(self.id_field,),
        )
        return [self.draft.manifest([file])]

    # The parent's files

    def without(self, paths: Collection[str], *, vectors_only: bool = False) -> list[ManifestFile]:
        """The parent's manifests without these data files and their vectors, those that hold some written anew."""

        def leaves(file: DataFile) -> bool:
            return (not vectors_only and file.file_path in paths) or (
                file.file_format == FILE_FORMAT and file.referenced_data_file in paths
            )

        return [self._rewritten(line, leaves) for line in self.draft.parent_manifests]

    def _rewritten(self, line: ManifestFile, leaves: Any) -> ManifestFile:
        entries = live(line)
        if not any(leaves(entry.data_file) for entry in entries):
            return line
        left = {"status": EntryStatus.DELETED, "snapshot_id": self.draft.snapshot_id}
        kept = {"status": EntryStatus.EXISTING}
        changed = (replace(entry, **(left if leaves(entry.data_file) else kept)) for entry in entries)
        return self.draft.manifest(changed, self.spec(line.partition_spec_id))

    def spec(self, spec_id: int) -> PartitionSpec:
        found = next(each for each in self.draft.metadata["partition-specs"] if each["spec-id"] == spec_id)
        return PartitionSpec.model_validate(found)


def prepare(table: Table, reader: Reader, metadata: Json, operation: str, branch: str | None = "main") -> Preparation:
    """A snapshot for a branch; one that isn't there yet begins where main is."""
    refs = metadata.get("refs", {})
    built_on = refs["main"]["snapshot-id"] if branch not in refs and "main" in refs else None
    draft = Draft(metadata, operation, format_version=metadata["format-version"], branch=branch, built_on=built_on)
    return Preparation(table, reader, draft)
