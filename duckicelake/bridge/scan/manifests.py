"""PURE. What planning keeps of a manifest, and which of its files a filter may or must match."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import orjson
from numpy.typing import NDArray

from duckicelake.bridge.scan.bounds import MAX_FEW_SHARE, BoundArrays, FileMasks, join_bounds
from duckicelake.bridge.scan.filters import AllOf, AnyOf, FieldTest, ScanFilter, list_tests
from duckicelake.bridge.scan.partitions import CodedValues, PartitionArrays, decide_all, join_partitions

Places: TypeAlias = NDArray[np.intp]
_NO_PLACES: Final = np.zeros(0, np.intp)


@dataclass(frozen=True, slots=True)
class ManifestFiles:
    """The files that a data manifest lists as live, in its order: ids, rows, bytes and partition values."""

    spec_id: int
    file_ids: NDArray[np.int64]
    record_counts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    partitions: Sequence[CodedValues]

    def pack(self) -> bytes:
        """Pack the files; `unpack_files` reads them."""
        head = orjson.dumps([self.spec_id, len(self.file_ids), [coded.values for coded in self.partitions]])
        numbers = [array.tobytes() for array in (self.file_ids, self.record_counts, self.sizes)]
        return b"\n".join((head, b"".join([*numbers, *(coded.codes.tobytes() for coded in self.partitions)])))


def unpack_files(data: bytes) -> ManifestFiles:
    """Unpack the files of a manifest."""
    end = data.index(b"\n")
    spec_id, count, values = orjson.loads(data[:end])
    start = end + 1
    ids, rows, sizes = (np.frombuffer(data, np.int64, count, start + 8 * count * place) for place in range(3))
    start += 24 * count
    codes = [np.frombuffer(data, np.int32, count, start + 4 * count * place) for place in range(len(values))]
    return ManifestFiles(spec_id, ids, rows, sizes, [CodedValues(*coded) for coded in zip(values, codes, strict=True)])


@dataclass(frozen=True, slots=True)
class ScanManifest:
    """A data manifest with its live files, in its order, and their partition values."""

    manifest_id: int
    files: ManifestFiles
    partitions: tuple[PartitionArrays, ...]

    @property
    def file_ids(self) -> NDArray[np.int64]:
        """The ids of the files."""
        return self.files.file_ids

    @property
    def record_counts(self) -> NDArray[np.int64]:
        """The rows of the files."""
        return self.files.record_counts

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The bytes of the files."""
        return self.files.sizes

    @property
    def spec_id(self) -> int:
        """The partition spec of the files."""
        return self.files.spec_id

    @property
    def nbytes(self) -> int:
        return 24 * len(self.file_ids) + sum(column.nbytes for column in self.partitions)


@dataclass(frozen=True, slots=True)
class Matches:
    """Places of files in a manifest that a filter may match, in order, and whether each of them matches wholly."""

    places: Places
    is_whole: NDArray[np.bool_]


_NO_MATCHES: Final = Matches(_NO_PLACES, np.zeros(0, np.bool_))


class BoundedManifest(NamedTuple):
    """A manifest, with the bounds of a filter's columns by field id."""

    manifest: ScanManifest
    bounds: Mapping[int, BoundArrays]


class _FilePart(NamedTuple):
    """Files that are decided together: all or some of a manifest, or of several whose bounds have keys alike."""

    record_counts: NDArray[np.int64]
    partitions: Sequence[PartitionArrays]
    bounds: Mapping[int, BoundArrays]

    @property
    def kind(self) -> Hashable:
        """What is the same of files that may be decided together."""
        fields = tuple((column.field.field_id, str(column.source)) for column in self.partitions)
        return fields, tuple((id_, column.prefix, column.is_exact) for id_, column in self.bounds.items())

    def take(self, places: Places) -> "_FilePart":
        partitions = [column.take(places) for column in self.partitions]
        bounds = {id_: column.take(places) for id_, column in self.bounds.items()}
        return _FilePart(self.record_counts[places], partitions, bounds)


def may_match_manifest(
    manifest: ScanManifest, bounds: Mapping[int, BoundArrays], filters: Sequence[ScanFilter]
) -> bool:
    """Return whether any file may match, by the partition values and what the bounds of all files span."""

    def may_match(part: ScanFilter) -> bool:
        if isinstance(part, FieldTest):
            column = bounds.get(part.field_id) if part.transform is None else None
            return (column is None or column.may_match(part)) and all(
                partition.may_match(part) for partition in manifest.partitions
            )
        return (all if isinstance(part, AllOf) else any)(map(may_match, part.parts))

    return any(map(may_match, filters))


def find_matches(manifest: ScanManifest, bounds: Mapping[int, BoundArrays], filters: Sequence[ScanFilter]) -> Matches:
    """Find the files that may match; one is left out only if all filters say so, and whole only if all do."""
    return find_all_matches([BoundedManifest(manifest, bounds)], filters)[0]


def find_all_matches(manifests: Sequence[BoundedManifest], filters: Sequence[ScanFilter]) -> list[Matches]:
    """Find the files of each manifest that may match.

    Manifests of which few files are left by two comparisons are decided together: for 100 manifests of 10,000 files
    that takes 3 ms instead of 25.
    """
    tested = {test.field_id for scan_filter in filters for test in list_tests(scan_filter)}
    found: list[Matches] = [_NO_MATCHES] * len(manifests)
    groups: defaultdict[Hashable, list[tuple[int, Places, _FilePart]]] = defaultdict(list)
    for number, (manifest, bounds) in enumerate(manifests):
        partitions = [column for column in manifest.partitions if column.field.source_id in tested]
        files = _FilePart(manifest.record_counts, partitions, bounds)
        places = _find_candidates(AnyOf(tuple(filters)), bounds)
        if places is None or len(places) > MAX_FEW_SHARE * len(manifest.file_ids):
            found[number] = _decide_files(files, filters)
        elif len(places):
            few = files.take(places)
            groups[few.kind].append((number, places, few))
    for group in groups.values():
        matches = _decide_files(_join([few for _, _, few in group]), filters)
        starts = np.cumsum([0, *(len(places) for _, places, _ in group)])
        cuts = np.searchsorted(matches.places, starts).tolist()
        chosen = np.concatenate([places for _, places, _ in group])[matches.places]
        for (number, _, _), (first, last) in zip(group, pairwise(cuts), strict=True):
            found[number] = Matches(chosen[first:last], matches.is_whole[first:last])
    return found


def _find_candidates(scan_filter: ScanFilter, bounds: Mapping[int, BoundArrays]) -> Places | None:
    """Find places of files, among them all that may match by bounds; None if that may be any file."""
    if isinstance(scan_filter, FieldTest):
        column = bounds.get(scan_filter.field_id) if scan_filter.transform is None else None
        return None if column is None else column.find_candidates(scan_filter)
    parts = [_find_candidates(part, bounds) for part in scan_filter.parts]
    found = [places for places in parts if places is not None]
    if isinstance(scan_filter, AllOf):
        return min(found, key=len, default=None)
    if len(found) < len(parts):
        return None
    return found[0] if len(found) == 1 else np.unique(np.concatenate([_NO_PLACES, *found]))


def _join(parts: Sequence[_FilePart]) -> _FilePart:
    """Join files of one kind."""
    if len(parts) == 1:
        return parts[0]
    return _FilePart(
        np.concatenate([part.record_counts for part in parts]),
        [join_partitions(columns) for columns in zip(*(part.partitions for part in parts), strict=True)],
        {id_: join_bounds([part.bounds[id_] for part in parts]) for id_ in parts[0].bounds},
    )


def _decide_files(files: _FilePart, filters: Sequence[ScanFilter]) -> Matches:
    count = len(files.record_counts)

    def decide(test: FieldTest) -> FileMasks:
        verdicts = decide_all(files.partitions, test)
        column = files.bounds.get(test.field_id) if test.transform is None else None
        if column is not None:
            verdicts.append(column.decide(test))
        return _combine(verdicts, count)

    found = [_decide(scan_filter, decide, count) for scan_filter in filters]
    may = reduce(np.logical_or, (verdict.may for verdict in found)) & (files.record_counts != 0)
    must = reduce(np.logical_and, (verdict.must for verdict in found))
    places = np.flatnonzero(may)
    return Matches(places, must[places])


def _combine(verdicts: Sequence[FileMasks], count: int) -> FileMasks:
    """Return what several sources say of one test together."""
    may, must = np.ones(count, np.bool_), np.zeros(count, np.bool_)
    for verdict in verdicts:
        may, must = may & verdict.may, must | verdict.must
    return FileMasks(may, must)


def _decide(scan_filter: ScanFilter, decide: Callable[[FieldTest], FileMasks], count: int) -> FileMasks:
    if isinstance(scan_filter, FieldTest):
        return decide(scan_filter)
    parts = [_decide(part, decide, count) for part in scan_filter.parts]
    is_all = isinstance(scan_filter, AllOf)
    may, must = np.full(count, is_all), np.full(count, is_all)
    for part in parts:
        may, must = (may & part.may, must & part.must) if is_all else (may | part.may, must | part.must)
    return FileMasks(may, must)
