"""PURE. What planning keeps of a manifest, and which of its files a filter may or must match."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import orjson
from numpy.typing import NDArray

from duckicelake.bridge.scan.bounds import BoundArrays, FileMasks
from duckicelake.bridge.scan.filters import AllOf, FieldTest, ScanFilter
from duckicelake.bridge.scan.partitions import CodedValues, PartitionArrays, decide_all


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

    places: NDArray[np.intp]
    is_whole: NDArray[np.bool_]


def may_match_manifest(
    manifest: ScanManifest, bounds: Mapping[int, BoundArrays], filters: Sequence[ScanFilter]
) -> bool:
    """Return whether any file may match, by the partition values and what the bounds of all files span."""

    def decide(test: FieldTest) -> FileMasks:
        verdicts = [
            FileMasks(np.array([found.may.any()]), np.array([found.must.all()]))
            for found in decide_all([column.summarize() for column in manifest.partitions], test)
        ]
        column = bounds.get(test.field_id) if test.transform is None else None
        if column is not None:
            verdicts.append(column.summarize().decide(test))
        return _combine(verdicts, 1)

    return any(bool(_decide(scan_filter, decide, 1).may.all()) for scan_filter in filters)


def find_matches(manifest: ScanManifest, bounds: Mapping[int, BoundArrays], filters: Sequence[ScanFilter]) -> Matches:
    """Find the files that may match; one is left out only if all filters say so, and whole only if all do."""
    count = len(manifest.file_ids)

    def decide(test: FieldTest) -> FileMasks:
        verdicts = decide_all(manifest.partitions, test)
        column = bounds.get(test.field_id) if test.transform is None else None
        if column is not None:
            verdicts.append(column.decide(test))
        return _combine(verdicts, count)

    found = [_decide(scan_filter, decide, count) for scan_filter in filters]
    may = reduce(np.logical_or, (verdict.may for verdict in found)) & (manifest.record_counts != 0)
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
