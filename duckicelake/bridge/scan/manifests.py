"""PURE. What planning keeps of manifests, and which of their files a filter may or must match.

Manifests that follow each other in a list are joined to blocks: one search finds the candidates in all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import orjson

from duckicelake.bridge.scan.bounds import MAX_FEW_SHARE, BoundArrays, FileMasks, join_bounds
from duckicelake.bridge.scan.filters import AllOf, AnyOf, FieldTest, ScanFilter, list_tests
from duckicelake.bridge.scan.partitions import (
    CodedValues,
    PartitionArrays,
    build_partition_columns,
    decide_all,
    join_coded,
    join_partitions,
)
from duckicelake.bridge.scan.texts import MAX_TAKEN_FILES
from duckicelake.extras import DeferredModule
from duckicelake.iceberg.partition import PartitionSpec
from duckicelake.iceberg.schema import Schema

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
else:
    np = DeferredModule("numpy")


Places: TypeAlias = "NDArray[np.intp]"
_FEW_FILES: Final = 1_000
"""Candidates that are decided sooner than others are looked for."""


@dataclass(frozen=True, slots=True)
class ManifestFiles:
    """The live files of data manifests, in their order: ids, rows, bytes and partition values."""

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

    def cut(self, files: slice) -> ManifestFiles:
        """Return some of the files."""
        ids, rows, sizes = self.file_ids[files], self.record_counts[files], self.sizes[files]
        return ManifestFiles(self.spec_id, ids, rows, sizes, [coded.cut(files) for coded in self.partitions])


def unpack_files(data: bytes) -> ManifestFiles:
    """Unpack the files of a manifest."""
    end = data.index(b"\n")
    spec_id, count, values = orjson.loads(data[:end])
    start = end + 1
    ids, rows, sizes = (np.frombuffer(data, np.int64, count, start + 8 * count * place) for place in range(3))
    start += 24 * count
    codes = [np.frombuffer(data, np.int32, count, start + 4 * count * place) for place in range(len(values))]
    return ManifestFiles(spec_id, ids, rows, sizes, [CodedValues(*coded) for coded in zip(values, codes, strict=True)])


@dataclass(frozen=True)
class FileBlock:
    """The files of one or more manifests of a spec, in their order, with their partition values.

    starts: where the files of each manifest begin, and at last how many there are.
    """

    manifest_ids: tuple[int, ...]
    starts: tuple[int, ...]
    files: ManifestFiles
    partitions: tuple[PartitionArrays, ...]

    def __len__(self) -> int:
        return self.starts[-1]

    @property
    def nbytes(self) -> int:
        return 24 * len(self) + sum(column.nbytes for column in self.partitions)

    @cached_property
    def manifests(self) -> tuple[FileBlock, ...]:
        """Each manifest by itself."""
        if len(self.manifest_ids) == 1:
            return (self,)
        return tuple(
            FileBlock((manifest_id,), (0, last - first), self.files.cut(slice(first, last)), self.partitions).read()
            for manifest_id, (first, last) in zip(self.manifest_ids, pairwise(self.starts), strict=True)
        )

    def read(self) -> FileBlock:
        """Return the block with the partition values of its own files."""
        return replace(self, partitions=tuple(c.read(self.files.partitions[c.place]) for c in self.partitions))

    def divide(self, places: Places) -> list[tuple[int, Places]]:
        """Divide places of files by manifest; return each one's id and the places in it."""
        cuts = np.searchsorted(places, self.starts).tolist()
        return [
            (self.manifest_ids[number], places[first:last] - self.starts[number])
            for number, (first, last) in enumerate(pairwise(cuts))
            if first < last
        ]


def build_block(manifest_id: int, files: ManifestFiles, spec: PartitionSpec, schema: Schema) -> FileBlock:
    """Build the block of one manifest."""
    columns = build_partition_columns(spec, schema, files.partitions)
    return FileBlock((manifest_id,), (0, len(files.file_ids)), files, columns)


def join_blocks(blocks: Sequence[FileBlock], spec: PartitionSpec, schema: Schema) -> FileBlock:
    """Join blocks of one spec."""
    parts = [block.files for block in blocks]
    ids, rows, sizes = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("file_ids", "record_counts", "sizes")
    )
    coded = [join_coded(fields) for fields in zip(*(part.partitions for part in parts), strict=True)]
    files = ManifestFiles(spec.spec_id, ids, rows, sizes, coded)
    lengths = [last - first for block in blocks for first, last in pairwise(block.starts)]
    starts = tuple(np.cumsum([0, *lengths]).tolist())
    manifest_ids = tuple(id_ for block in blocks for id_ in block.manifest_ids)
    return FileBlock(manifest_ids, starts, files, build_partition_columns(spec, schema, coded))


@dataclass(frozen=True)
class BoundBlock:
    """The bounds of a column in the files of a block.

    pieces: those of all files joined, if their keys are alike; else those of each manifest.
    """

    pieces: tuple[BoundArrays, ...]
    starts: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return sum(piece.nbytes for piece in self.pieces)

    @cached_property
    def manifests(self) -> tuple[BoundArrays, ...]:
        """Those of each manifest by itself."""
        if len(self.pieces) == len(self.starts) - 1:
            return self.pieces
        return tuple(self.pieces[0].take(slice(first, last)) for first, last in pairwise(self.starts))


def build_bound_block(bounds: BoundArrays) -> BoundBlock:
    """Build the block of one manifest."""
    return BoundBlock((bounds,), (0, len(bounds.states)))


def join_bound_blocks(blocks: Sequence[BoundBlock]) -> BoundBlock:
    """Join the bounds of a column in blocks that follow each other."""
    lengths = [last - first for block in blocks for first, last in pairwise(block.starts)]
    starts = tuple(np.cumsum([0, *lengths]).tolist())
    pieces = [piece for block in blocks for piece in block.pieces]
    if len({piece.kind for piece in pieces}) == 1:
        return BoundBlock((join_bounds(pieces),), starts)
    return BoundBlock(tuple(piece for block in blocks for piece in block.manifests), starts)


@dataclass(frozen=True, slots=True)
class Matches:
    """Places of files in a block that a filter may match, in order, and whether each of them matches wholly."""

    places: Places
    is_whole: NDArray[np.bool_]


class BoundedBlock(NamedTuple):
    """A block, with the bounds of a filter's columns by field id."""

    block: FileBlock
    bounds: Mapping[int, BoundArrays]


def divide_bounds(block: FileBlock, bounds: Mapping[int, BoundBlock]) -> list[BoundedBlock]:
    """Divide a block with the bounds of columns as far as their keys aren't alike: not at all, or by manifest."""
    if all(len(column.pieces) == 1 for column in bounds.values()):
        return [BoundedBlock(block, {id_: column.pieces[0] for id_, column in bounds.items()})]
    pieces = {id_: column.manifests for id_, column in bounds.items()}
    return [
        BoundedBlock(manifest, {id_: of_column[number] for id_, of_column in pieces.items()})
        for number, manifest in enumerate(block.manifests)
    ]


class _FilePart(NamedTuple):
    """Files that are decided together: all or some of a block, or of several whose bounds have keys alike."""

    record_counts: NDArray[np.int64]
    partitions: Sequence[PartitionArrays]
    bounds: Mapping[int, BoundArrays]

    @property
    def kind(self) -> Hashable:
        """What is the same of files that may be decided together."""
        fields = tuple((column.field.field_id, str(column.source)) for column in self.partitions)
        return fields, tuple((id_, column.kind) for id_, column in self.bounds.items())

    def take(self, places: Places) -> _FilePart:
        partitions = [column.take(places) for column in self.partitions]
        bounds = {id_: column.take(places) for id_, column in self.bounds.items()}
        return _FilePart(self.record_counts[places], partitions, bounds)


def find_matches(files: BoundedBlock, filters: Sequence[ScanFilter]) -> Matches:
    """Find the files that may match; one is left out only if all filters say so, and whole only if all do."""
    return find_all_matches([files], filters)[0]


def find_all_matches(blocks: Sequence[BoundedBlock], filters: Sequence[ScanFilter]) -> list[Matches]:
    """Find the files of each block that may match; the candidates of blocks that have few are decided together."""
    tested = {test.field_id for scan_filter in filters for test in list_tests(scan_filter)}
    found: list[Matches] = [Matches(np.zeros(0, np.intp), np.zeros(0, np.bool_))] * len(blocks)
    groups: defaultdict[Hashable, list[tuple[int, Places, _FilePart]]] = defaultdict(list)
    for number, (block, bounds) in enumerate(blocks):
        partitions = [column for column in block.partitions if column.field.source_id in tested]
        files = _FilePart(block.files.record_counts, partitions, bounds)
        places = _find_candidates(AnyOf(tuple(filters)), files)
        if places is None or len(places) > MAX_FEW_SHARE * len(block):
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


def _find_candidates(scan_filter: ScanFilter, files: _FilePart) -> Places | None:
    """Find places of files, among them all that may match; None if that may be any file."""
    if isinstance(scan_filter, FieldTest):
        return _choose_fewest(_list_candidates(scan_filter, files))
    parts = (_find_candidates(part, files) for part in scan_filter.parts)
    if isinstance(scan_filter, AllOf):
        return _choose_fewest(parts)
    found = [np.zeros(0, np.intp)]
    for places in parts:
        if places is None:
            return None
        found.append(places)
    return found[-1] if len(found) <= 2 else np.unique(np.concatenate(found))


def _choose_fewest(found: Iterable[Places | None]) -> Places | None:
    """Return the fewest of places that are found of the same files, or the first that are few."""
    fewest: Places | None = None
    for places in found:
        if places is not None and (fewest is None or len(places) < len(fewest)):
            fewest = places
            if len(fewest) <= _FEW_FILES:
                break
    return fewest


def _list_candidates(test: FieldTest, files: _FilePart) -> Iterator[Places | None]:
    """List what each partition field, and the bounds, leave of the files."""
    for column in files.partitions:
        if column.field.source_id == test.field_id:
            yield column.find_candidates(test)
    bounds = files.bounds.get(test.field_id) if test.transform is None else None
    if bounds is not None:
        yield bounds.find_candidates(test)


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
    max_texts = MAX_TAKEN_FILES // max(1, sum(len(list_tests(scan_filter)) for scan_filter in filters))

    def decide(test: FieldTest) -> FileMasks:
        verdicts = decide_all(files.partitions, test)
        column = files.bounds.get(test.field_id) if test.transform is None else None
        if column is not None:
            verdicts.append(column.decide(test, max_texts))
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
