"""PURE. Choose small manifests that are to become few, and lay out their files by partition for readers."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from duckicelake.bridge.manifest_lists import ListedManifest, ManifestGroup, ManifestPacking, split_portions
from duckicelake.lake.state import FileRow

_MIN_FULL_FILES: Final = 1000
"""From as many live files on a manifest stays as it is. `maintenance.sql` counts those that are smaller."""


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


def _is_full(manifest: ListedManifest, packing: ManifestPacking) -> bool:
    return packing.is_full(manifest.live_count, manifest.length)


def _find_max_files(group: Sequence[ListedManifest], packing: ManifestPacking) -> int:
    return packing.find_max_files((manifest.live_count, manifest.length) for manifest in group)


def _count_packed(group: Sequence[ListedManifest], packing: ManifestPacking) -> int:
    return -(-sum(manifest.live_count for manifest in group) // _find_max_files(group, packing))


def _get_place(file: FileRow) -> tuple[tuple[bool, str, Any], ...]:
    """Return what orders files by partition: nulls first, values of a type among themselves."""
    return tuple((value is not None, type(value).__name__, value) for value in file.partition)
