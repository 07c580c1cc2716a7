"""PURE. A table that another catalog kept, as rows: every snapshot's manifests, file for file, under the ids of here.

Manifests are taken one for one, so each snapshot lists what it listed. A file is the same wherever its path, its place
in that path (deletion vectors share a Puffin file) and its sequence number are.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from duckicelake.bridge.entries import metrics_of, partition_json, writable_partition_type
from duckicelake.bridge.manifests import ListedManifest
from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.manifest import EntryStatus, FileContent, Manifest, ManifestEntry, ManifestFile
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, TableMetadata
from duckicelake.lake.additions import NewFile, NewManifest

_FileKey: TypeAlias = tuple[str, int | None, int]


@dataclass(slots=True)
class Registration:
    """Files and manifests of a table to be registered, grown manifest by manifest; `listed` is by manifest path."""

    metadata: TableMetadata
    file_ids: Iterator[int]
    manifest_ids: Iterator[int]
    listed: dict[str, ListedManifest] = field(default_factory=dict)
    manifests: list[NewManifest] = field(default_factory=list)
    _files: dict[_FileKey, NewFile] = field(default_factory=dict)

    def add(self, line: ManifestFile, manifest: Manifest) -> None:
        """Take in a manifest with the line of the first list that names it; entries have what they inherit."""
        by_status = {status: list[int]() for status in EntryStatus}
        live: dict[int, int] = {}
        for entry in manifest.entries:
            file = self._file(entry, line)
            by_status[entry.status].append(file.file_id)
            if entry.status is not EntryStatus.DELETED:
                live[file.file_id] = file.sequence_number
        new = NewManifest(
            manifest_id=next(self.manifest_ids),
            format_version=manifest.format_version if line.first_row_id is None else ROW_LINEAGE_VERSION,
            content=int(line.content),
            spec_id=line.partition_spec_id,
            schema_id=manifest.schema_id,
            sequence_number=line.sequence_number,
            min_sequence_number=line.min_sequence_number,
            added_snapshot_id=line.added_snapshot_id,
            added=tuple(by_status[EntryStatus.ADDED]),
            existing=tuple(by_status[EntryStatus.EXISTING]),
            deleted=tuple(by_status[EntryStatus.DELETED]),
        )
        self.manifests.append(new)
        self.listed[line.manifest_path] = ListedManifest(
            new.manifest_id, new.content, new.spec_id, len(live), new.format_version, live
        )

    @property
    def files(self) -> tuple[NewFile, ...]:
        """All files of all manifests."""
        return tuple(self._files.values())

    @property
    def live(self) -> tuple[NewFile, ...]:
        """The files that any snapshot has; of others only the names may be left."""
        live = {file_id for manifest in self.listed.values() for file_id in manifest.live or ()}
        return tuple(file for file in self.files if file.file_id in live)

    def number_rows(self) -> TableMetadata:
        """Give row ids to data files of version 3 that have none as nothing followed its upgrade; the metadata then."""
        following = self.metadata.next_row_id
        if following is None:
            return self.metadata
        for key, file in self._files.items():
            if file.content == FileContent.DATA and file.first_row_id is None:
                self._files[key] = file._replace(first_row_id=following)
                following += file.record_count
        return self.metadata.replaced(next_row_id=following)

    def lists(self, lines: Mapping[int, Sequence[ManifestFile]]) -> dict[int, tuple[ListedManifest, ...]]:
        """The manifests of each snapshot by its id, given the lines of their lists."""
        return {id_: tuple(self.listed[line.manifest_path] for line in found) for id_, found in lines.items()}

    def _file(self, entry: ManifestEntry, line: ManifestFile) -> NewFile:
        file, number = entry.data_file, entry.file_sequence_number or 0
        key = (file.file_path, file.content_offset, number)
        known = self._files.get(key)
        if known is None:
            self._files[key] = self._new_file(entry, line, number)
        elif known.first_row_id is None:
            self._files[key] = known._replace(first_row_id=file.first_row_id)
        return self._files[key]

    def _new_file(self, entry: ManifestEntry, line: ManifestFile, number: int) -> NewFile:
        file = entry.data_file
        spec = self.metadata.spec(line.partition_spec_id)
        type_ = writable_partition_type(spec, self.metadata.schemas)[1]
        try:
            partition = partition_json(file.partition, type_)
        except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
            raise InvalidRequest(f"{file.file_path} has the partition {file.partition}, no value of {type_}") from error
        return NewFile(
            file_id=next(self.file_ids),
            content=int(file.content),
            path=file.file_path,
            file_format=file.file_format,
            spec_id=spec.spec_id,
            partition=partition,
            record_count=file.record_count,
            file_size_in_bytes=file.file_size_in_bytes,
            metrics=metrics_of(file),
            added_snapshot_id=entry.snapshot_id or line.added_snapshot_id,
            sequence_number=entry.sequence_number or 0,
            file_sequence_number=number,
            first_row_id=file.first_row_id,
        )
