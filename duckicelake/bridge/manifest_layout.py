"""PURE. A client's layout of manifests: a snapshot that moves files of its parent to other manifests, and no more.

Iceberg's `rewrite_manifests` sorts files by partition, puts those of a spec together, or makes manifests of a size. The
server writes manifests of its own with the same files in the same order, from its rows: what a client says of a file is
not taken over (table spec, "Manifests").
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from duckicelake.bridge.manifests import ManifestGroup, ManifestList
from duckicelake.bridge.realise import AnyFile
from duckicelake.bridge.uploads import Place, place_of
from duckicelake.iceberg.manifest import EntryStatus, Manifest, ManifestFile
from duckicelake.iceberg.snapshot import Snapshot

CREATED, KEPT, REPLACED = "manifests-created", "manifests-kept", "manifests-replaced"
PROCESSED = "entries-processed"


@dataclass(frozen=True, slots=True)
class ManifestLayout:
    """The new manifests of a snapshot, in list order, and the ids of its parent's that stay."""

    groups: tuple[ManifestGroup, ...]
    kept: frozenset[int]


def layout_of(
    listed: Sequence[ManifestFile],
    read: Mapping[str, Manifest],
    kept: Mapping[str, int | tuple[AnyFile, ...]],
    missing: Sequence[AnyFile],
) -> ManifestLayout | None:
    """What an upload lays out that adds and removes no file; None if it can't be told, or isn't one of each file.

    read: its new manifests by path. kept: those of the parent that it lists. missing: the files of the others.
    """
    rows: dict[Place, AnyFile] = {place_of(row): row for row in missing}
    groups: list[ManifestGroup] = []
    for line in listed:
        entries = read[line.manifest_path].entries if line.manifest_path in read else ()
        files = [rows[place_of(entry.data_file)] for entry in entries if entry.status is not EntryStatus.DELETED]
        if any((min(file.content, 1), file.spec_id) != (line.content, line.partition_spec_id) for file in files):
            return None
        if files:
            live = {file.file_id: file.sequence_number for file in files}
            groups.append(ManifestGroup(int(line.content), line.partition_spec_id, live))
    stay = frozenset(manifest_id for manifest_id in kept.values() if isinstance(manifest_id, int))
    moved = {file_id for group in groups for file_id in group.live}
    is_one_of_each = sum(len(group.live) for group in groups) == len(moved) == len(missing)
    return ManifestLayout(tuple(groups), stay) if groups and is_one_of_each and len(stay) == len(kept) else None


def with_manifest_counts(
    snapshot: Snapshot, parent: AbstractSet[int], manifests: ManifestList, *, is_laid_out: bool
) -> Snapshot:
    """The snapshot with true counts of manifests, where its client counted them; parent: ids of its parent's.

    Clients count what they wrote themselves, but what is listed are the server's manifests.
    """
    stated = {CREATED, KEPT, REPLACED, PROCESSED} & snapshot.summary.keys()
    if not stated:
        return snapshot
    listed = {manifest.manifest_id for manifest in manifests.listed}
    counts = {
        CREATED: len(listed - parent),
        KEPT: len(listed & parent),
        REPLACED: len(parent - listed),
        PROCESSED: None if is_laid_out else 0,
    }
    true = {name: str(count) for name, count in counts.items() if name in stated and count is not None}
    return snapshot.replaced(summary={**snapshot.summary, **true})
