"""PURE. Choose the files of a table that a rewrite reads, and group them into the files that it writes."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from duckicelake.lake.state import FileRow
from duckicelake.maintenance.policy import MaintenancePolicy

_SMALL_SHARE: Final = 0.75
"""Of the target size: a file below it is small."""
_MOST_FILES: Final = 5_000
"""Of a group: what one statement reads, and one commit replaces."""


@dataclass(frozen=True, slots=True)
class MemberFile:
    """A data file of main, the positions that are deleted in it, and where DuckDB finds it.

    mapping_id: DuckLake's map of its names for columns, if it has no field ids. first_row_id: of its first row, if that
    has no row id that is its own in the file.
    """

    row: FileRow
    deleted: frozenset[int]
    path: str
    mapping_id: int | None = None
    first_row_id: int = 0

    @property
    def deleted_share(self) -> float:
        """The share of its rows that is deleted."""
        return len(self.deleted) / max(self.row.record_count, 1)


@dataclass(frozen=True, slots=True)
class RewriteGroup:
    """Files of one partition that are read together, and the size that files made of them should have.

    is_dense: whether the table's other files whose paths lie between theirs have fewer bytes than these.
    """

    files: tuple[MemberFile, ...]
    target_size: int
    is_dense: bool = False

    @property
    def size(self) -> int:
        """Bytes of the files."""
        return sum_sizes(self.files)

    @property
    def rows(self) -> int:
        """Rows that aren't deleted."""
        return sum(file.row.record_count - len(file.deleted) for file in self.files)


class FilePaths:
    """The paths of all files of a table in their order, and how many bytes lie between two of them."""

    def __init__(self, files: Iterable[MemberFile]) -> None:
        ordered = sorted((file.path, _get_size(file)) for file in files)
        self._paths = [path for path, _ in ordered]
        self._bytes_before = [*accumulate((size for _, size in ordered), initial=0)]

    def are_dense(self, files: Sequence[MemberFile]) -> bool:
        """Return whether the other files between the first and the last path of some have fewer bytes than these."""
        paths = [file.path for file in files]
        first, end = bisect_left(self._paths, min(paths)), bisect_right(self._paths, max(paths))
        return 2 * sum_sizes(files) > self._bytes_before[end] - self._bytes_before[first]


def choose_groups(
    files: Sequence[MemberFile], policy: MaintenancePolicy, target_size: int, paths: FilePaths, *, is_sort: bool
) -> list[RewriteGroup]:
    """Choose what to rewrite: all files to be sorted, else small ones that are many, and those that lost many rows.

    files: from which to choose. paths: of all files of the table.
    """

    def pack(members: Sequence[MemberFile]) -> list[list[MemberFile]]:
        wanted = members if is_sort else _choose_files(members, policy, target_size)
        limit = sum_sizes(wanted) + 1 if is_sort else target_size
        return [packed for packed in _pack(wanted, limit) if _is_worth(packed, policy, is_sort)]

    return _build_groups(files, target_size, paths, pack)


def group_all(files: Iterable[MemberFile], target_size: int, paths: FilePaths) -> list[RewriteGroup]:
    """Group files by partition, up to the size of one file each; a file may be alone. paths: of all of the table."""
    return _build_groups(files, target_size, paths, lambda members: _pack(members, target_size))


def sum_sizes(files: Iterable[MemberFile]) -> int:
    """Add up the bytes of files."""
    return sum(file.row.file_size_in_bytes for file in files)


def _build_groups(
    files: Iterable[MemberFile],
    target_size: int,
    paths: FilePaths,
    pack: Callable[[Sequence[MemberFile]], list[list[MemberFile]]],
) -> list[RewriteGroup]:
    """Build the groups into which the files of each partition are packed."""
    by_partition: defaultdict[tuple[int, str], list[MemberFile]] = defaultdict(list)
    for file in files:
        by_partition[file.row.spec_id, str(file.row.partition)].append(file)
    return [
        RewriteGroup(tuple(packed), target_size, is_dense=paths.are_dense(packed))
        for members in by_partition.values()
        for packed in pack(members)
    ]


def _choose_files(members: Sequence[MemberFile], policy: MaintenancePolicy, target_size: int) -> list[MemberFile]:
    """Choose files of a partition; small ones only if there are as many as the policy says."""
    small = [file for file in members if file.row.file_size_in_bytes < _SMALL_SHARE * target_size]
    kept = small if len(small) >= max(policy.min_files, 2) else []
    chosen = {file.row.file_id: file for file in kept}
    chosen |= {file.row.file_id: file for file in members if file.deleted and file.deleted_share >= policy.delete_ratio}
    return list(chosen.values())


def _pack(files: Sequence[MemberFile], limit: int) -> list[list[MemberFile]]:
    """Divide files, in the order of their rows, into groups of up to the size of one file each.

    Files that stay alone so are packed by size: two of which both fit into one file are always together.
    """
    packed = _fill(sorted(files, key=_get_place), limit)
    alone = sorted((group[0] for group in packed if len(group) == 1), key=_get_size)
    groups = [group for group in packed if len(group) > 1]
    return groups + [sorted(group, key=_get_place) for group in _fill(alone, limit)]


def _fill(files: Iterable[MemberFile], limit: int) -> list[list[MemberFile]]:
    """Divide files into groups, one after the other."""
    groups: list[list[MemberFile]] = []
    size = 0
    for file in files:
        if not groups or size + _get_size(file) > limit or len(groups[-1]) >= _MOST_FILES:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += _get_size(file)
    return groups


def _get_place(file: MemberFile) -> tuple[int, int]:
    return file.row.sequence_number, file.row.file_id


def _get_size(file: MemberFile) -> int:
    return file.row.file_size_in_bytes


def _is_worth(files: Sequence[MemberFile], policy: MaintenancePolicy, is_sort: bool) -> bool:
    """Return whether fewer files, or files with fewer rows, come of it."""
    return is_sort or len(files) > 1 or files[0].deleted_share >= policy.delete_ratio


def count_files(groups: Sequence[RewriteGroup]) -> Mapping[str, int]:
    """Count the files and bytes that the groups read."""
    return {
        "files to rewrite": sum(len(group.files) for group in groups),
        "bytes to rewrite": sum(group.size for group in groups),
    }
