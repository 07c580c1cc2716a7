"""Files of main whose rows, or deletes, lie in other files from now on, as a rewrite by the server commits them."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from duckicelake.bridge.commit.uploads import ManifestLayout
from duckicelake.bridge.data_files import serialize_metrics
from duckicelake.bridge.main_diff import collect_deleted_positions
from duckicelake.bridge.manifest_lists import find_small_manifests, pack_files, parse_packing
from duckicelake.catalog.commit.deletes import ListedFiles, Targets, build_deleting_list
from duckicelake.catalog.commit.workspace import Listed, Workspace
from duckicelake.catalog.context.services import Services
from duckicelake.errors import CommitFailedError
from duckicelake.iceberg.manifest.entry import DataFile, FileContent
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.snapshot import Snapshot
from duckicelake.lake.state import FileRow


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A file that holds rows of others, in the partition that they were in; its own partition stays empty.

    gone: positions of rows that were deleted from the others after they were read.
    """

    file: DataFile
    spec_id: int
    partition: Sequence[Any]
    gone: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class ReplacedFiles:
    """The files of main that leave, and those that come.

    removed: of each data file that leaves, by id, all positions that were deleted, or are among what is `gone`. The
    replacement holds for as long as these are all. merged: ids of data files that stay, whose position deletes are
    written anew, together for each partition. dangling: delete files that delete from no live file any more.
    packed: ids of manifests of which few are made; their files stay.
    """

    removed: Mapping[int, frozenset[int]]
    added: Sequence[AddedFile] = field(default_factory=tuple)
    merged: frozenset[int] = frozenset()
    dangling: frozenset[int] = frozenset()
    packed: frozenset[int] = frozenset()


def read_deleted_positions(space: Workspace, listed: Listed, file_ids: AbstractSet[int]) -> dict[int, frozenset[int]]:
    """Read what is deleted from data files by the delete files of these manifests; of files without any, nothing."""
    deletions = space.deletions_of(file_ids)
    live = space.find_among(listed, {row.delete_file_id for row in deletions})
    return collect_deleted_positions(deletions, space.files(live))


def build_replacing_files(
    services: Services,
    metadata: TableMetadata,
    snapshot: Snapshot,
    replaced: ReplacedFiles,
    targets: Targets,
    ids: Iterator[int],
) -> ListedFiles:
    """Return what a snapshot lists that puts files in the place of others of its parent.

    CommitFailedError if one has left, or has lost more rows.
    """
    space, parent = targets.space, targets.parent
    if space.find_among(parent, replaced.removed) != replaced.removed.keys():
        raise CommitFailedError("Others removed files that were being rewritten", "assert-ref-snapshot-id")
    deleted = read_deleted_positions(space, parent, replaced.removed.keys())
    if any(deleted.get(file_id, frozenset()) != known for file_id, known in replaced.removed.items()):
        raise CommitFailedError("Others deleted rows of files that were being rewritten", "assert-ref-snapshot-id")
    rows = tuple(_build_rows(snapshot, replaced.added, ids))
    gone = {row.file_id: added.gone for row, added in zip(rows, replaced.added, strict=True) if added.gone}
    if space.find_among(parent, replaced.merged) != replaced.merged:
        raise CommitFailedError("Others removed files whose deletes were being merged", "assert-ref-snapshot-id")
    if space.find_among(parent, replaced.dangling) != replaced.dangling:
        raise CommitFailedError("Others removed delete files that were being removed", "assert-ref-snapshot-id")
    gone |= read_deleted_positions(space, parent, replaced.merged)
    without = replaced.removed.keys() | replaced.merged
    removed = replaced.removed.keys() | replaced.dangling | _find_dangling(space, parent, without)
    own = ListedFiles(snapshot, rows, (), frozenset(removed))
    return build_deleting_list(services, metadata, own, gone, Targets(space, parent, own.removed, rows), ids)


def build_packed_layout(
    metadata: TableMetadata, packed: frozenset[int], space: Workspace, parent: Listed
) -> ManifestLayout:
    """Return the layout of a snapshot that makes few manifests of these. CommitFailedError if one has left."""
    kept = frozenset(manifest.manifest_id for manifest in parent) - packed
    if len(kept) + len(packed) != len(parent):
        raise CommitFailedError("Others replaced manifests that were being packed", "assert-ref-snapshot-id")
    packing = parse_packing(metadata.properties)
    groups = find_small_manifests((one for one in parent if one.manifest_id in packed), packing)
    loaded = [space.load_live(group) for group in groups]
    files = space.files(file_id for group in loaded for one in group for file_id in one.live or ())
    return ManifestLayout(tuple(new for group in loaded for new in pack_files(group, files, packing)), kept)


def _build_rows(snapshot: Snapshot, added: Sequence[AddedFile], ids: Iterator[int]) -> Iterator[FileRow]:
    following = snapshot.first_row_id
    for one in added:
        file = one.file
        yield FileRow(
            file_id=next(ids),
            content=int(FileContent.DATA),
            path=file.file_path,
            file_format=file.file_format,
            spec_id=one.spec_id,
            partition=list(one.partition),
            record_count=file.record_count,
            file_size_in_bytes=file.file_size_in_bytes,
            metrics=serialize_metrics(file),
            added_snapshot_id=snapshot.snapshot_id,
            sequence_number=snapshot.sequence_number,
            file_sequence_number=snapshot.sequence_number,
            first_row_id=following,
        )
        following = None if following is None else following + file.record_count


def _find_dangling(space: Workspace, parent: Listed, without: AbstractSet[int]) -> set[int]:
    """Find the live position deletes that delete from these files, and from no others."""
    named = {row.delete_file_id for row in space.deletions_of(without)}
    live = space.files(space.find_among(parent, named))
    return {
        file_id
        for file_id, file in live.items()
        if file.content == FileContent.POSITION_DELETES
        and not space.find_among(parent, space.targets_of({file_id}) - without)
    }
