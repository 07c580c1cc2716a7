"""PURE. The manifests that a new snapshot lists, and how a table packs them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from duckicelake.iceberg.manifest.entry import ManifestContent
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION
from duckicelake.lake.additions import NewManifest
from duckicelake.lake.state import FileRow, ManifestRow
from duckicelake.properties import MANIFEST_MERGE, MIN_MANIFESTS_TO_MERGE, TARGET_MANIFEST_BYTES

T = TypeVar("T")
DEFAULT_MIN_COUNT: Final = 10
"""Manifests of a kind that are packed together, where `commit.manifest.min-count-to-merge` says nothing else."""
MAX_MANIFEST_FILES: Final = 10_000
"""Files that a manifest is made of at most, and from which on it isn't packed any more."""
_FULL: Final = 0.75
"""Of the target size. Ten manifests that are smaller become eight at most, so that none is packed again and again."""
_MIN_FULL_FILES: Final = 1000
"""From as many live files on a manifest stays as it is. `maintenance.sql` counts those that are smaller."""


@dataclass(frozen=True, slots=True)
class ManifestPacking:
    """How a table packs its manifests: `min_count` of a kind, into ones of `target_bytes` at most."""

    is_enabled: bool = True
    min_count: int = DEFAULT_MIN_COUNT
    target_bytes: int | None = None

    def is_full(self, files: int, length: int | None) -> bool:
        """Return whether a manifest stays as it is. length: in bytes, if it is known."""
        if files >= MAX_MANIFEST_FILES:
            return True
        return self.target_bytes is not None and length is not None and length >= _FULL * self.target_bytes

    def find_max_files(self, manifests: Iterable[tuple[int, int | None]]) -> int:
        """Return how many files a manifest should hold. The given ones are pairs of number of files and length."""
        known = [(files, length) for files, length in manifests if length is not None]
        size, count = sum(length for _, length in known), sum(files for files, _ in known)
        if self.target_bytes is None or not size:
            return MAX_MANIFEST_FILES
        return max(1, min(MAX_MANIFEST_FILES, self.target_bytes * count // size))


DEFAULT_PACKING: Final = ManifestPacking()


def split_portions(files: Sequence[T], most: int | None = None) -> Iterator[Sequence[T]]:
    """Divide files into those of one manifest after the other. most: of one, if not `MAX_MANIFEST_FILES`."""
    step = most or MAX_MANIFEST_FILES
    return (files[start : start + step] for start in range(0, len(files), step))


def parse_packing(properties: Mapping[str, str]) -> ManifestPacking:
    """Return how a table with these properties packs its manifests."""
    enabled = properties.get(MANIFEST_MERGE, "true").strip().lower() != "false"
    count = _parse_number(properties.get(MIN_MANIFESTS_TO_MERGE))
    target = _parse_number(properties.get(TARGET_MANIFEST_BYTES))
    if enabled and count is None and target is None:
        return DEFAULT_PACKING
    return ManifestPacking(enabled, DEFAULT_MIN_COUNT if count is None else max(2, count), target or None)


def _parse_number(text: str | None) -> int | None:
    """Return a number that Java reads as an int or a long."""
    text = (text or "").strip()
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 19 else None


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
    def from_row(cls, row: ManifestRow) -> "ListedManifest":
        """Return a manifest of the catalog, without its files."""
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

    def is_missing_row_ids(self, format_version: int) -> bool:
        """Return whether the format version needs row ids of files, which only version 3 manifests have."""
        return self.content == ManifestContent.DATA and self.format_version < ROW_LINEAGE_VERSION <= format_version


@dataclass(frozen=True, slots=True)
class ListOwner:
    """The snapshot that the new manifests belong to, and how its table packs them."""

    snapshot_id: int
    sequence_number: int
    schema_id: int
    format_version: int
    packing: ManifestPacking = DEFAULT_PACKING


@dataclass(frozen=True, slots=True)
class ManifestList:
    """A snapshot's manifests in order, newest first, and those of them that are new."""

    listed: tuple[ListedManifest, ...]
    new: tuple[NewManifest, ...]


@dataclass(frozen=True, slots=True)
class ManifestGroup:
    """Files of one content and spec that are to be in one manifest, with their sequence numbers, in order.

    is_clients: whether a client laid them out so.
    """

    content: int
    spec_id: int
    live: Mapping[int, int]
    is_clients: bool = True


def find_manifests_to_load(
    parent: Sequence[ListedManifest], format_version: int, packing: ManifestPacking = DEFAULT_PACKING
) -> set[int]:
    """Return ids of the manifests that the next list packs or writes anew, so that their live files are needed."""
    packed = {manifest.manifest_id for group in _find_full_groups(parent, packing) for manifest in group}
    return packed | {manifest.manifest_id for manifest in parent if manifest.is_missing_row_ids(format_version)}


def build_next_list(
    parent: Sequence[ListedManifest],
    added: Sequence[FileRow],
    removed: AbstractSet[int],
    owner: ListOwner,
    new_ids: Iterator[int],
) -> ManifestList:
    """Return the manifest list of a snapshot that adds and removes these files.

    Every manifest that holds a removed file, and every one of `find_manifests_to_load`, must come with its live files.
    """
    fresh = [
        _build_added(key, portion, owner, next(new_ids))
        for key, files in _group_by_manifest(added).items()
        for portion in split_portions(files)
    ]
    kept: list[ListedManifest] = []
    new = [manifest for _, manifest in fresh]
    for manifest in (manifest for manifest in parent if manifest.live_count):
        hit = removed & manifest.live.keys() if manifest.live else set[int]()
        if not hit and not manifest.is_missing_row_ids(owner.format_version):
            kept.append(manifest)
            continue
        listed, rewritten = _rewrite_manifest(manifest, hit, owner, next(new_ids))
        kept.append(listed)
        new.append(rewritten)
    gone = {file_id for manifest in new for file_id in manifest.deleted}
    assert gone == removed, f"files {sorted(removed - gone)} are removed but no loaded manifest holds them"
    return _pack_groups(ManifestList((*(listed for listed, _ in fresh), *kept), tuple(new)), owner, new_ids)


def build_relaid_list(
    kept: Sequence[ListedManifest], groups: Sequence[ManifestGroup], owner: ListOwner, new_ids: Iterator[int]
) -> ManifestList:
    """Return the list of a snapshot that moves files of its parent to new manifests, and changes nothing else.

    kept: the parent's manifests that stay, as `build_next_list` wants its parent.
    """
    new = [
        replace(
            _make_manifest(next(new_ids), group.content, group.spec_id, owner, group.live, existing=tuple(group.live)),
            is_laid_out=group.is_clients,
        )
        for group in groups
    ]
    others = build_next_list(
        kept, (), frozenset(), replace(owner, packing=replace(owner.packing, is_enabled=False)), new_ids
    )
    listed = [_list_manifest(manifest, group.live) for manifest, group in zip(new, groups, strict=True)]
    return ManifestList((*listed, *others.listed), (*new, *others.new))


def find_small_manifests(manifests: Iterable[ListedManifest], packing: ManifestPacking) -> list[list[ListedManifest]]:
    """Find the small manifests of each content and spec of which fewer can be made, those of clients' layouts aside."""
    groups: defaultdict[tuple[int, int], list[ListedManifest]] = defaultdict(list)
    for manifest in manifests:
        if not (manifest.is_laid_out or manifest.live_count >= _MIN_FULL_FILES or _is_full(manifest, packing)):
            groups[manifest.content, manifest.spec_id].append(manifest)
    return [group for group in groups.values() if len(group) > _count_packed(group, packing)]


def pack_files(
    group: Sequence[ListedManifest], files: Mapping[int, FileRow], packing: ManifestPacking
) -> Iterator[ManifestGroup]:
    """Divide the live files of small manifests into as few as they fit into, in the order of their partitions.

    So a reader of some partitions opens few manifests. The group's manifests come with their live files.
    """
    live = {file_id: number for manifest in group for file_id, number in (manifest.live or {}).items()}
    ordered = sorted(live, key=lambda file_id: (_get_place(files[file_id]), live[file_id], file_id))
    for portion in split_portions(ordered, _find_max_files(group, packing)):
        numbers = {file_id: live[file_id] for file_id in portion}
        yield ManifestGroup(group[0].content, group[0].spec_id, numbers, is_clients=False)


def _group_by_manifest(files: Sequence[FileRow]) -> dict[tuple[int, int], list[FileRow]]:
    groups: dict[tuple[int, int], list[FileRow]] = defaultdict(list)
    for file in files:
        groups[min(file.content, 1), file.spec_id].append(file)
    return groups


def _build_added(
    key: tuple[int, int], files: Sequence[FileRow], owner: ListOwner, manifest_id: int
) -> tuple[ListedManifest, NewManifest]:
    content, spec_id = key
    live = {file.file_id: file.sequence_number for file in files}
    new = _make_manifest(manifest_id, content, spec_id, owner, live, added=tuple(live))
    return _list_manifest(new, live), new


def _rewrite_manifest(
    manifest: ListedManifest, removed: AbstractSet[int], owner: ListOwner, manifest_id: int
) -> tuple[ListedManifest, NewManifest]:
    live = {file: number for file, number in (manifest.live or {}).items() if file not in removed}
    new = _make_manifest(
        manifest_id,
        manifest.content,
        manifest.spec_id,
        owner,
        live,
        existing=tuple(live),
        deleted=tuple(sorted(removed)),
    )
    new = replace(new, is_laid_out=manifest.is_laid_out)
    return _list_manifest(new, live), new


def _list_manifest(new: NewManifest, live: Mapping[int, int]) -> ListedManifest:
    return ListedManifest(
        new.manifest_id, new.content, new.spec_id, len(live), new.format_version, live, is_laid_out=new.is_laid_out
    )


def _make_manifest(
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


def _find_full_groups(manifests: Iterable[ListedManifest], packing: ManifestPacking) -> list[list[ListedManifest]]:
    """Return manifests that are to become fewer, together with their like."""
    if not packing.is_enabled:
        return []
    groups: dict[tuple[int, int, int], list[ListedManifest]] = defaultdict(list)
    for manifest in manifests:
        if not (manifest.is_laid_out or packing.is_full(manifest.live_count, manifest.length)):
            groups[manifest.content, manifest.spec_id, manifest.magnitude].append(manifest)
    return [group for group in groups.values() if len(group) >= packing.min_count]


def _pack_groups(manifests: ManifestList, owner: ListOwner, new_ids: Iterator[int]) -> ManifestList:
    """Merge every full group of those loaded; manifests of this snapshot stay apart, as they show what it did."""
    own = {manifest.manifest_id for manifest in manifests.new}
    old = (manifest for manifest in manifests.listed if manifest.live is not None and manifest.manifest_id not in own)
    for group in _find_full_groups(old, owner.packing):
        manifests = _merge_group(manifests, group, owner, new_ids)
    return manifests


def _merge_group(
    manifests: ManifestList, group: Sequence[ListedManifest], owner: ListOwner, new_ids: Iterator[int]
) -> ManifestList:
    numbers = [item for manifest in group for item in (manifest.live or {}).items()]
    gone = {manifest.manifest_id for manifest in group}
    listed = [manifest for manifest in manifests.listed if manifest.manifest_id not in gone]
    new = list(manifests.new)
    most = owner.packing.find_max_files((manifest.live_count, manifest.length) for manifest in group)
    for live in map(dict, split_portions(numbers, most)):
        merged = _make_manifest(next(new_ids), group[0].content, group[0].spec_id, owner, live, existing=tuple(live))
        listed.append(_list_manifest(merged, live))
        new.append(merged)
    return ManifestList(tuple(listed), tuple(new))


def _is_full(manifest: ListedManifest, packing: ManifestPacking) -> bool:
    return packing.is_full(manifest.live_count, manifest.length)


def _find_max_files(group: Sequence[ListedManifest], packing: ManifestPacking) -> int:
    return packing.find_max_files((manifest.live_count, manifest.length) for manifest in group)


def _count_packed(group: Sequence[ListedManifest], packing: ManifestPacking) -> int:
    return -(-sum(manifest.live_count for manifest in group) // _find_max_files(group, packing))


def _get_place(file: FileRow) -> tuple[tuple[bool, str, Any], ...]:
    """Return what orders files by partition: nulls first, values of a type among themselves."""
    return tuple((value is not None, type(value).__name__, value) for value in file.partition)
