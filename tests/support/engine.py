"""What engines do to an unpartitioned table, on any branch and in versions 2 and 3, with the small client's files.

Every function gives a request. `then` makes one of several, each on top of what the one before leaves.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

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
from duckicelake.iceberg.manifest.reader import read_manifest
from duckicelake.iceberg.puffin import FILE_FORMAT, read_vector, write_deletion_vectors
from duckicelake.parquet.inlined_rows import read_position_deletes
from tests.support.client import ARROW, Draft, Json, Row, local, set_ref

Request = Callable[[Json], Json]
"""Makes a commit from the metadata that the engine loaded."""


def append(*rows: Row, branch: str = "main") -> Request:
    """Add the rows in a file of their own."""

    def made(metadata: Json) -> Json:
        draft = _draft(metadata, "append", branch)
        return draft.body([draft.manifest([draft.data_file(rows)]), *draft.parent_manifests])

    return made


def delete_rows(ids: Collection[int], branch: str = "main") -> Request:
    """Delete rows by position: with a Parquet file before version 3, then with a vector for each data file."""

    def made(metadata: Json) -> Json:
        if metadata["format-version"] < 3:
            return delete_positions(ids, branch)(metadata)
        parent = _Parent(_draft(metadata, "delete", branch))
        return parent.with_vectors(parent.places(ids))

    return made


def delete_positions(ids: Collection[int], branch: str = "main") -> Request:
    """Delete rows by position with a Parquet file, whatever the version."""

    def made(metadata: Json) -> Json:
        draft = _draft(metadata, "delete", branch)
        places = _Parent(draft).places(ids)
        deletes = draft.delete_file([(path, position) for path, positions in places.items() for position in positions])
        return draft.body([draft.manifest([deletes]), *draft.parent_manifests])

    return made


def delete_equal(*ids: int, branch: str = "main") -> Request:
    """Delete rows by their ids with an equality delete file, as Flink does."""

    def made(metadata: Json) -> Json:
        draft = _draft(metadata, "delete", branch)
        path = local(draft.new_file("equality.parquet", b""))
        pq.write_table(pa.table({"id": ids}, pa.schema([ARROW.field("id")])), path)
        file = DataFile(
            content=FileContent.EQUALITY_DELETES,
            file_path=f"file://{path}",
            file_format="PARQUET",
            partition=(),
            record_count=len(ids),
            file_size_in_bytes=path.stat().st_size,
            equality_ids=(1,),
        )
        return draft.body([draft.manifest([file]), *draft.parent_manifests])

    return made


def rewrite_rows(ids: Collection[int], *rows: Row, branch: str = "main") -> Request:
    """Copy-on-write: what is left of the files that hold rows of these ids, and the new rows, take their place."""

    def made(metadata: Json) -> Json:
        parent = _Parent(_draft(metadata, "overwrite" if rows else "delete", branch))
        hit = list(parent.places(ids))
        left = [row for path in hit for row in parent.rows(path).values() if row[0] not in ids]
        return parent.replace_fields(hit, [*left, *rows])

    return made


def compact(branch: str = "main") -> Request:
    """All data files become one, without deletes."""

    def made(metadata: Json) -> Json:
        parent = _Parent(_draft(metadata, "replace", branch))
        return parent.replace_fields(
            list(parent.data), [row for path in parent.data for row in parent.rows(path).values()]
        )

    return made


def point(name: str, snapshot_id: int, type_: str = "branch") -> Request:
    """Point a branch or tag at a snapshot; where the branch is main, that is a rollback or a publication."""

    def made(metadata: Json) -> Json:
        known = metadata.get("refs", {}).get(name)
        expected = None if known is None else known["snapshot-id"]
        requirement = {"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": expected}
        return {"requirements": [requirement], "updates": [set_ref(name, snapshot_id, type_)]}

    return made


def drop_ref(name: str) -> Request:
    """Drop a branch or tag."""
    return lambda _: {"requirements": [], "updates": [{"action": "remove-snapshot-ref", "ref-name": name}]}


def expire(keep: Collection[int]) -> Request:
    """Take all snapshots out of history but these and those that refs name."""

    def made(metadata: Json) -> Json:
        kept = {*keep, *(ref["snapshot-id"] for ref in metadata.get("refs", {}).values())}
        gone = [s["snapshot-id"] for s in metadata.get("snapshots", ()) if s["snapshot-id"] not in kept]
        return {"requirements": [], "updates": [{"action": "remove-snapshots", "snapshot-ids": gone}]}

    return made


def then(first: Request, *others: Request) -> Request:
    """One request that does what all of these do; its requirements are the first one's."""

    def made(metadata: Json) -> Json:
        body = first(metadata)
        for other in others:
            following = other(applied(metadata, body))
            body = {**body, "updates": [*body["updates"], *following["updates"]]}
        return body

    return made


def applied(metadata: Json, body: Json) -> Json:
    """The metadata as the engine imagines it after a request's snapshots, refs and upgrades."""
    refs, snapshots = dict(metadata.get("refs", {})), list(metadata.get("snapshots", ()))
    after = {**metadata, "refs": refs, "snapshots": snapshots}
    for update in body["updates"]:
        if update["action"] == "add-snapshot":
            snapshots.append(update["snapshot"])
            after["last-sequence-number"] = snapshots[-1]["sequence-number"]
            after["next-row-id"] = snapshots[-1].get("first-row-id", 0) + snapshots[-1].get("added-rows", 0)
        elif update["action"] == "set-snapshot-ref":
            refs[update["ref-name"]] = {"type": update["type"], "snapshot-id": update["snapshot-id"]}
        elif update["action"] == "remove-snapshot-ref":
            refs.pop(update["ref-name"], None)
        elif update["action"] == "remove-snapshots":
            snapshots[:] = [each for each in snapshots if each["snapshot-id"] not in update["snapshot-ids"]]
            known = {each["snapshot-id"] for each in snapshots}
            after["refs"] = refs = {name: ref for name, ref in refs.items() if ref["snapshot-id"] in known}
        elif update["action"] == "upgrade-format-version" and update["format-version"] != metadata["format-version"]:
            after |= {"format-version": update["format-version"], "next-row-id": 0}
    return after


def _draft(metadata: Json, operation: str, branch: str) -> Draft:
    """A draft for a branch; one that isn't there yet begins where main is."""
    refs = metadata.get("refs", {})
    built_on = refs["main"]["snapshot-id"] if branch not in refs and "main" in refs else None
    return Draft(metadata, operation, format_version=metadata["format-version"], branch=branch, built_on=built_on)


@dataclass(slots=True)
class _Parent:
    """The snapshot that a draft builds on, file by file; `deleted` are the positions deleted from each data file."""

    draft: Draft
    data: dict[str, ManifestEntry] = field(default_factory=dict)
    deletes: list[ManifestEntry] = field(default_factory=list)
    deleted: dict[str, set[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for line in self.draft.parent_manifests:
            for entry in _live(line):
                if entry.data_file.content is FileContent.DATA:
                    self.data[entry.data_file.file_path] = entry
                else:
                    self.deletes.append(entry)
        for entry in self.deletes:
            for path, positions in _read_deletes(entry.data_file).items():
                self.deleted.setdefault(path, set()).update(positions)

    def rows(self, path: str) -> dict[int, Row]:
        """The live rows of a data file by position."""
        read = pq.read_table(local(path), columns=["id", "name"])
        rows = enumerate(zip(read["id"].to_pylist(), read["name"].to_pylist(), strict=True))
        return {position: row for position, row in rows if position not in self.deleted.get(path, ())}

    def places(self, ids: Collection[int]) -> dict[str, set[int]]:
        """The positions of the live rows with these ids, by data file."""
        found = {path: {at for at, row in self.rows(path).items() if row[0] in ids} for path in self.data}
        return {path: positions for path, positions in found.items() if positions}

    def with_vectors(self, found: dict[str, set[int]]) -> Json:
        """The commit that deletes the positions: each vector takes the place of what deleted from its file before."""
        draft = self.draft
        wanted = {path: self.deleted.get(path, set()) | positions for path, positions in found.items()}
        puffin = write_deletion_vectors(wanted.items())
        location = draft.new_file("vectors.puffin", puffin.data)
        vectors = [
            DataFile(
                content=FileContent.POSITION_DELETES,
                file_path=location,
                file_format=FILE_FORMAT,
                partition=(),
                record_count=len(wanted[path]),
                file_size_in_bytes=len(puffin.data),
                referenced_data_file=path,
                content_offset=blob.offset,
                content_size_in_bytes=blob.length,
            )
            for path, blob in zip(wanted, puffin.blobs, strict=True)
        ]
        return draft.body([draft.manifest(vectors), *self.without(self._vectors_of(wanted))])

    def replace_fields(self, leaving: Sequence[str], rows: Sequence[Row]) -> Json:
        """The commit in which the data files leave, with vectors of theirs, and the rows come in one file."""
        draft = self.draft
        gone = [*(self.data[path] for path in leaving), *self._vectors_of(leaving)]
        added = [draft.manifest([draft.data_file(rows)])] if rows else []
        return draft.body([*added, *self.without(gone)])

    def without(self, leaving: Sequence[ManifestEntry]) -> list[ManifestFile]:
        """The parent's manifests, those that hold leaving files written anew."""
        return [self._without(line, leaving) for line in self.draft.parent_manifests]

    def _without(self, line: ManifestFile, leaving: Sequence[ManifestEntry]) -> ManifestFile:
        entries = _live(line)
        if not any(entry in leaving for entry in entries):
            return line
        left: dict[str, Any] = {"status": EntryStatus.DELETED, "snapshot_id": self.draft.snapshot_id}
        return self.draft.manifest(
            replace(entry, **left) if entry in leaving else replace(entry, status=EntryStatus.EXISTING)
            for entry in entries
        )

    def _vectors_of(self, paths: Collection[str]) -> list[ManifestEntry]:
        vectors = [entry for entry in self.deletes if entry.data_file.file_format == FILE_FORMAT]
        return [entry for entry in vectors if entry.data_file.referenced_data_file in paths]


def _live(line: ManifestFile) -> list[ManifestEntry]:
    entries = inherit_all_numbers(read_manifest(local(line.manifest_path).read_bytes()).entries, line)
    return [entry for entry in entries if entry.status is not EntryStatus.DELETED]


def _read_deletes(file: DataFile) -> dict[str, Collection[int]]:
    """Deleted positions by data file; what is deleted by equality isn't looked up."""
    if file.content is FileContent.EQUALITY_DELETES:
        return {}
    data = local(file.file_path).read_bytes()
    if file.file_format != FILE_FORMAT:
        return dict(read_position_deletes(data, file.file_path))
    offset = file.content_offset or 0
    return {str(file.referenced_data_file): read_vector(data[offset : offset + (file.content_size_in_bytes or 0)])}
