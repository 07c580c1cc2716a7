"""PURE. Which manifests a new snapshot lists: its parent's, but for what it removed, plus those of what it added.

Only manifests that hold removed files are rewritten. Small manifests are packed ten at a time, by order of magnitude,
so a file is rewritten O(log n) times (design D4). No new manifest adds or packs more than 10,000 files, and those that
have as many stay as they are: what a commit writes is bounded, and readers skip whole ones by their partitions.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeVar

from duckicelake.iceberg.manifest import ManifestContent
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION
from duckicelake.lake.additions import NewFile, NewManifest

T = TypeVar("T")
PACK = 10
LARGEST = 10_000
"""Files that a manifest is made of at most, and from which on it isn't packed any more."""


@dataclass(frozen=True, slots=True)
class ListedManifest:
    """A manifest of a snapshot's list; `live` maps its live file ids to their sequence numbers, where loaded."""

    manifest_id: int
    content: int
    spec_id: int
    live_count: int
    format_version: int
    live: Mapping[int, int] | None = None

    @property
    def magnitude(self) -> int:
        """The number of digits of its live count: manifests are packed with their like."""
        return len(str(self.live_count))

    def lacks_row_ids(self, format_version: int) -> bool:
        """Whether a table of this format version needs row ids of its files, which only version 3 manifests say."""
        return self.content == ManifestContent.DATA and self.format_version < ROW_LINEAGE_VERSION <= format_version


@dataclass(frozen=True, slots=True)
class ListOwner:
    """The snapshot that the new manifests belong to."""

    snapshot_id: int
    sequence_number: int
    schema_id: int
    format_version: int


@dataclass(frozen=True, slots=True)
class ManifestList:
    """A snapshot's manifests in order, newest first, and those of them that are new."""

    listed: tuple[ListedManifest, ...]
    new: tuple[NewManifest, ...]


def must_load(parent: Sequence[ListedManifest], format_version: int) -> set[int]:
    """Ids of the manifests that the next list packs or writes anew, so that their live files are needed."""
    packed = {m.manifest_id for group in _groups(parent).values() if len(group) >= PACK for m in group}
    return packed | {manifest.manifest_id for manifest in parent if manifest.lacks_row_ids(format_version)}


def next_list(
    parent: Sequence[ListedManifest],
    added: Sequence[NewFile],
    removed: AbstractSet[int],
    owner: ListOwner,
    new_ids: Iterator[int],
) -> ManifestList:
    """The manifest list of a snapshot that adds and removes these files.

    Every manifest that holds a removed file, and every one that `must_load` names, must come with its live files.
    """
    fresh = [
        _added(key, portion, owner, next(new_ids))
        for key, files in _by_manifest(added).items()
        for portion in _portions(files)
    ]
    kept: list[ListedManifest] = []
    new = [manifest for _, manifest in fresh]
    for manifest in (manifest for manifest in parent if manifest.live_count):
        hit = removed & manifest.live.keys() if manifest.live else set[int]()
        if not hit and not manifest.lacks_row_ids(owner.format_version):
            kept.append(manifest)
            continue
        listed, rewritten = _rewritten(manifest, hit, owner, next(new_ids))
        kept.append(listed)
        new.append(rewritten)
    gone = {file_id for manifest in new for file_id in manifest.deleted}
    assert gone == removed, f"files {sorted(removed - gone)} are removed but no loaded manifest holds them"
    return _pack(ManifestList((*(listed for listed, _ in fresh), *kept), tuple(new)), owner, new_ids)


def _by_manifest(files: Sequence[NewFile]) -> dict[tuple[int, int], list[NewFile]]:
    groups: dict[tuple[int, int], list[NewFile]] = defaultdict(list)
    for file in files:
        groups[min(file.content, 1), file.spec_id].append(file)
    return groups


def _portions(files: Sequence[T]) -> Iterator[Sequence[T]]:
    """The files of one manifest after the other."""
    return (files[start : start + LARGEST] for start in range(0, len(files), LARGEST))


def _added(
    key: tuple[int, int], files: Sequence[NewFile], owner: ListOwner, manifest_id: int
) -> tuple[ListedManifest, NewManifest]:
    content, spec_id = key
    live = {file.file_id: file.sequence_number for file in files}
    new = _manifest(manifest_id, content, spec_id, owner, live, added=tuple(live))
    return _listed(new, live), new


def _rewritten(
    manifest: ListedManifest, removed: AbstractSet[int], owner: ListOwner, manifest_id: int
) -> tuple[ListedManifest, NewManifest]:
    live = {file: number for file, number in (manifest.live or {}).items() if file not in removed}
    new = _manifest(
        manifest_id,
        manifest.content,
        manifest.spec_id,
        owner,
        live,
        existing=tuple(live),
        deleted=tuple(sorted(removed)),
    )
    return _listed(new, live), new


def _listed(new: NewManifest, live: Mapping[int, int]) -> ListedManifest:
    return ListedManifest(new.manifest_id, new.content, new.spec_id, len(live), new.format_version, live)


def _manifest(
    manifest_id: int,
    content: int,
    spec_id: int,
    owner: ListOwner,
    live: Mapping[int, int],
    added: tuple[int, ...] = (),
    existing: tuple[int, ...] = (),
    deleted: tuple[int, ...] = (),
) -> NewManifest:
    return NewManifest(
        manifest_id=manifest_id,
        format_version=owner.format_version,
        content=content,
        spec_id=spec_id,
        schema_id=owner.schema_id,
        sequence_number=owner.sequence_number,
        min_sequence_number=min(live.values(), default=owner.sequence_number),
        added_snapshot_id=owner.snapshot_id,
        added=added,
        existing=existing,
        deleted=deleted,
    )


def _groups(manifests: Iterable[ListedManifest]) -> dict[tuple[int, int, int], list[ListedManifest]]:
    groups: dict[tuple[int, int, int], list[ListedManifest]] = defaultdict(list)
    for manifest in (each for each in manifests if each.live_count < LARGEST):
        groups[manifest.content, manifest.spec_id, manifest.magnitude].append(manifest)
    return groups


def _pack(manifests: ManifestList, owner: ListOwner, new_ids: Iterator[int]) -> ManifestList:
    """Merge every full group of those loaded; manifests of this snapshot stay apart, as they show what it did."""
    own = {manifest.manifest_id for manifest in manifests.new}
    for group in _groups(m for m in manifests.listed if m.live is not None and m.manifest_id not in own).values():
        if len(group) >= PACK:
            manifests = _merged(manifests, group, owner, new_ids)
    return manifests


def _merged(
    manifests: ManifestList, group: Sequence[ListedManifest], owner: ListOwner, new_ids: Iterator[int]
) -> ManifestList:
    numbers = [item for manifest in group for item in (manifest.live or {}).items()]
    gone = {manifest.manifest_id for manifest in group}
    listed = [manifest for manifest in manifests.listed if manifest.manifest_id not in gone]
    new = list(manifests.new)
    for live in map(dict, _portions(numbers)):
        merged = _manifest(next(new_ids), group[0].content, group[0].spec_id, owner, live, existing=tuple(live))
        listed.append(_listed(merged, live))
        new.append(merged)
    return ManifestList(tuple(listed), tuple(new))
