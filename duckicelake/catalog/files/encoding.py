"""A version's files as bytes: manifests, manifest lists and metadata.json. Nothing is read or written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from duckicelake.bridge.artifacts import (
    Artifact,
    Definitions,
    Encoded,
    Lines,
    definitions_of,
    manifest_artifact,
    manifest_list_artifact,
    metadata_artifact,
)
from duckicelake.bridge.project import defined, project
from duckicelake.catalog.commits.known import Known
from duckicelake.catalog.files.unwritten import Unwritten
from duckicelake.catalog.loads.cache import Materialized
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.lake.changes import WrittenFile
from duckicelake.lake.state import ManifestRow, SnapshotRow, TableState
from duckicelake.storage.objects import NewFile as FileToWrite
from duckicelake.storage.parallel import in_parallel

_ENCODERS: Final = 2
"""Threads that encode manifests: while one deflates, which needs no interpreter, another goes on."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A version, and those of its files that aren't recorded yet: as rows, and what is to be written."""

    table: Materialized
    rows: tuple[WrittenFile, ...]
    files: tuple[FileToWrite, ...] = field(repr=False)


def encoded(unwritten: Unwritten, before: tuple[TableState, TableMetadata] | None) -> Prepared:
    """The version with its files encoded; `before` as for `project`."""
    state = unwritten.state
    definitions = replace(definitions_of(defined(state.row, before)), location=state.row.location)
    manifests, new = _encode_manifests(unwritten, definitions)
    lines: Lines = {}
    lists = [_encode_list(snapshot, manifests, definitions, lines) for snapshot in unwritten.snapshots]
    paths = {artifact.object_id: artifact.path for artifact in lists}
    state = replace(state, snapshots=_with_lists(state.snapshots, paths))
    metadata = project(state, before)
    document = metadata_artifact(metadata, state.row.version)
    artifacts = [*new, *lists, document]
    state = replace(state, metadata_location=document.path)
    current = state.current()
    listed = [id_ for id_ in current.manifest_ids if id_ in manifests] if current else []
    known = Known({id_: manifests[id_] for id_ in listed})
    table = Materialized(state.row, state, metadata, document.path, document.data, known)
    return Prepared(table, tuple(map(_row, artifacts)), tuple((each.path, each.data) for each in artifacts))


def _encode_manifests(unwritten: Unwritten, known: Definitions) -> tuple[dict[int, ManifestRow], list[Artifact]]:
    listed = [file.file_id for entries in unwritten.entries.values() for _, file in entries]
    files: Encoded | None = {} if len(set(listed)) < len(listed) else None  # a file may be in several

    def encode(manifest_id: int) -> Artifact:
        return manifest_artifact(unwritten.manifests[manifest_id], unwritten.entries[manifest_id], known, files)

    new = in_parallel(encode, unwritten.entries, _ENCODERS)
    written = {
        each.object_id: replace(
            unwritten.manifests[each.object_id], path=each.path, length=len(each.data), facts=each.facts
        )
        for each in new
    }
    return {**unwritten.manifests, **written}, new


def _encode_list(
    snapshot: SnapshotRow, manifests: Mapping[int, ManifestRow], known: Definitions, lines: Lines
) -> Artifact:
    listed = [manifests[manifest_id] for manifest_id in snapshot.manifest_ids]
    return manifest_list_artifact(snapshot, listed, known, lines)


def _with_lists(rows: Sequence[SnapshotRow], lists: Mapping[int, str]) -> tuple[SnapshotRow, ...]:
    """The snapshots, each with its list; those that had none are among the last, mostly, and are looked for there."""
    filled = list(rows)
    bare = (number for number in reversed(range(len(rows))) if rows[number].manifest_list is None)
    for number in islice(bare, len(lists)):
        filled[number] = replace(rows[number], manifest_list=lists[rows[number].snapshot_id])
    return tuple(filled)


def _row(artifact: Artifact) -> WrittenFile:
    return WrittenFile(
        kind=artifact.kind,
        object_id=artifact.object_id,
        path=artifact.path,
        length=len(artifact.data),
        sha256=artifact.sha256,
        timestamp_ms=artifact.timestamp_ms,
        facts=artifact.facts,
    )
