"""PURE. Which manifests a new snapshot lists: its parent's, but for what it removed, plus those of what it added.

Only manifests that hold removed files are rewritten. Small manifests are packed ten at a time, by order of magnitude,
so a file is rewritten O(log n) times (design D4). No new manifest adds or packs more than 10,000 files, and those that
have as many stay as they are: what a commit writes is bounded, and readers skip whole ones by their partitions. Clients
can lay out manifests themselves (`bridge.manifest_layout`); what they laid out isn't packed.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from duckicelake.bridge.manifest_packing import DEFAULT, Packing, portions
from duckicelake.iceberg.manifest import ManifestContent
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION
from duckicelake.lake.additions import NewFile, NewManifest
from duckicelake.lake.state import ManifestRow


@dataclass(frozen=True, slots=True)
class ListedManifest:
    """A manifest of a snapshot's list; `live` maps its live file ids to their sequence numbers, where loaded.

    length: in bytes, where it is written. is_laid_out: a client says what files it holds.
    """

    manifest_id: int
    content: int
    spec_id: int
    live_count: int
    format_version: int
    live: Mapping[int, int] | None = None
    length: int | None = None
    is_laid_out: bool = False

    @classmethod
    def of(cls, row: ManifestRow) -> "ListedManifest":
        """A manifest of the catalog, without its files."""
        return cls(
            row.manifest_id,
            row.content,
            row.spec_id,
            row.live_files,
            row.format_version,
            length=row.length,
            is_laid_out=bool(row.is_laid_out),
        )

    @property
    def magnitude(self) -> int:
        """The number of digits of its live count: manifests are packed with their like."""
        return len(str(self.live_count))

    def lacks_row_ids(self, format_version: int) -> bool:
        """Whether a table of this format version needs row ids of its files, which only version 3 manifests say."""
        return self.content == ManifestContent.DATA and self.format_version < ROW_LINEAGE_VERSION <= format_version


@dataclass(frozen=True, slots=True)
class ListOwner:
    """The snapshot that the new manifests belong to, and how its table packs them."""

    snapshot_id: int
    sequence_number: int
    schema_id: int
    format_version: int
    packing: Packing = DEFAULT


@dataclass(frozen=True, slots=True)
class ManifestList:
    """A snapshot's manifests in order, newest first, and those of them that are new."""

    listed: tuple[ListedManifest, ...]
    new: tuple[NewManifest, ...]


@dataclass(frozen=True, slots=True)
class ManifestGroup:
    """Files of one content and spec that a client wants in one manifest, with their sequence numbers, in order."""

    content: int
    spec_id: int
    live: Mapping[int, int]


def must_load(parent: Sequence[ListedManifest], format_version: int, packing: Packing = DEFAULT) -> set[int]:
    """Ids of the manifests that the next list packs or writes anew, so that their live files are needed."""
    packed = {manifest.manifest_id for group in _full_groups(parent, packing) for manifest in group}
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
        for portion in portions(files)
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


def relaid_list(
    kept: Sequence[ListedManifest], groups: Sequence[ManifestGroup], owner: ListOwner, new_ids: Iterator[int]
) -> ManifestList:
    """The list of a snapshot that moves files of its parent to new manifests, and changes nothing else.

    kept: the parent's manifests that stay, as `next_list` wants its parent.
    """
    new = [
        replace(
            _manifest(next(new_ids), group.content, group.spec_id, owner, group.live, existing=tuple(group.live)),
            is_laid_out=True,
        )
        for group in groups
    ]
    others = next_list(kept, (), frozenset(), replace(owner, packing=replace(owner.packing, is_enabled=False)), new_ids)
    listed = [_listed(manifest, group.live) for manifest, group in zip(new, groups, strict=True)]
    return ManifestList((*listed, *others.listed), (*new, *others.new))


def _by_manifest(files: Sequence[NewFile]) -> dict[tuple[int, int], list[NewFile]]:
    groups: dict[tuple[int, int], list[NewFile]] = defaultdict(list)
    for file in files:
        groups[min(file.content, 1), file.spec_id].append(file)
    return groups


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
    new = replace(new, is_laid_out=manifest.is_laid_out)
    return _listed(new, live), new


def _listed(new: NewManifest, live: Mapping[int, int]) -> ListedManifest:
    return ListedManifest(
        new.manifest_id, new.content, new.spec_id, len(live), new.format_version, live, is_laid_out=new.is_laid_out
    )


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


def _full_groups(manifests: Iterable[ListedManifest], packing: Packing) -> list[list[ListedManifest]]:
    """Manifests that are to become fewer, together with their like."""
    if not packing.is_enabled:
        return []
    groups: dict[tuple[int, int, int], list[ListedManifest]] = defaultdict(list)
    for manifest in manifests:
        if not (manifest.is_laid_out or packing.is_full(manifest.live_count, manifest.length)):
            groups[manifest.content, manifest.spec_id, manifest.magnitude].append(manifest)
    return [group for group in groups.values() if len(group) >= packing.min_count]


def _pack(manifests: ManifestList, owner: ListOwner, new_ids: Iterator[int]) -> ManifestList:
    """Merge every full group of those loaded; manifests of this snapshot stay apart, as they show what it did."""
    own = {manifest.manifest_id for manifest in manifests.new}
    old = (manifest for manifest in manifests.listed if manifest.live is not None and manifest.manifest_id not in own)
    for group in _full_groups(old, owner.packing):
        manifests = _merged(manifests, group, owner, new_ids)
    return manifests


def _merged(
    manifests: ManifestList, group: Sequence[ListedManifest], owner: ListOwner, new_ids: Iterator[int]
) -> ManifestList:
    numbers = [item for manifest in group for item in (manifest.live or {}).items()]
    gone = {manifest.manifest_id for manifest in group}
    listed = [manifest for manifest in manifests.listed if manifest.manifest_id not in gone]
    new = list(manifests.new)
    most = owner.packing.most_files((manifest.live_count, manifest.length) for manifest in group)
    for live in map(dict, portions(numbers, most)):
        merged = _manifest(next(new_ids), group[0].content, group[0].spec_id, owner, live, existing=tuple(live))
        listed.append(_listed(merged, live))
        new.append(merged)
    return ManifestList(tuple(listed), tuple(new))
