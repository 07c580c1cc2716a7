"""What a client knows of a snapshot's files when it prepares the next: their rows, and what is deleted from them."""

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, replace

import pyarrow.parquet as pq

from duckicelake.iceberg.manifest.entry import DataFile, EntryStatus, FileContent, ManifestEntry, ManifestFile
from duckicelake.iceberg.puffin import FILE_FORMAT, read_vector, write_deletion_vectors
from duckicelake.parquet.inlined_rows import read_position_deletes
from tests.support.client import Draft, Row, live, local


@dataclass(frozen=True, slots=True)
class Content:
    """The live files of a snapshot: rows of data files by position, and the positions deleted from them."""

    rows: dict[str, list[Row]]
    deleted: dict[str, set[int]]

    def places(self, ids: Container[int]) -> dict[str, set[int]]:
        """Where the live rows of these ids are."""
        found = {
            path: {n for n, row in enumerate(rows) if row[0] in ids and n not in self.deleted.get(path, ())}
            for path, rows in self.rows.items()
        }
        return {path: positions for path, positions in found.items() if positions}


def read_rows(path: str) -> list[Row]:
    read = pq.read_table(local(path))
    return list(zip(read["id"].to_pylist(), read["name"].to_pylist(), strict=True))


def content_of(draft: Draft) -> Content:
    files = [entry.data_file for line in draft.parent_manifests for entry in live(line)]
    deleted: dict[str, set[int]] = {}
    for file in files:
        if file.content is not FileContent.DATA:
            for path, positions in deleted_by(file):
                deleted.setdefault(path, set()).update(positions)
    return Content({f.file_path: read_rows(f.file_path) for f in files if f.content is FileContent.DATA}, deleted)


def deleted_by(file: DataFile) -> Iterable[tuple[str, Iterable[int]]]:
    data = local(file.file_path).read_bytes()
    if file.file_format != FILE_FORMAT:
        return read_position_deletes(data, file.file_path).items()
    assert file.content_offset is not None
    assert file.content_size_in_bytes is not None
    vector = data[file.content_offset : file.content_offset + file.content_size_in_bytes]
    return [(str(file.referenced_data_file), read_vector(vector))]


def vector_files(draft: Draft, vectors: dict[str, set[int]]) -> list[DataFile]:
    puffin = write_deletion_vectors(vectors.items())
    path = draft.new_file("dv.puffin", puffin.data)
    return [
        DataFile(
            content=FileContent.POSITION_DELETES,
            file_path=path,
            file_format=FILE_FORMAT,
            partition=(),
            record_count=len(positions),
            file_size_in_bytes=len(puffin.data),
            referenced_data_file=target,
            content_offset=blob.offset,
            content_size_in_bytes=blob.length,
        )
        for (target, positions), blob in zip(vectors.items(), puffin.blobs, strict=True)
    ]


def without(draft: Draft, leaves: Callable[[DataFile], object]) -> list[ManifestFile]:
    """The parent's manifests, those that hold files which leave written anew."""
    manifests = []
    for line in draft.parent_manifests:
        entries = live(line)
        if any(leaves(entry.data_file) for entry in entries):
            manifests.append(draft.manifest(_marked(draft, entry, leaves) for entry in entries))
        else:
            manifests.append(line)
    return manifests


def _marked(draft: Draft, entry: ManifestEntry, leaves: Callable[[DataFile], object]) -> ManifestEntry:
    if leaves(entry.data_file):
        return replace(entry, status=EntryStatus.DELETED, snapshot_id=draft.snapshot_id)
    return replace(entry, status=EntryStatus.EXISTING)
