"""PURE. Explain a scan: what a filter reads of a table, what prunes, and by which columns files would be worth sorting.

All of it comes from the arrays that plans decide by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID

from duckicelake.bridge.scan.bounds import HAS_HIGH, HAS_LOW, LENGTH_BITS, BoundArrays, Flags, Keys
from duckicelake.bridge.scan.filters import FieldTest, ScanFilter, list_tests
from duckicelake.bridge.scan.manifests import BoundedBlock, FileBlock, find_matches
from duckicelake.bridge.scan.partitions import PartitionArrays
from duckicelake.errors import InvalidRequestError
from duckicelake.extras import DeferredModule
from duckicelake.iceberg.expressions import Predicate
from duckicelake.iceberg.model import Json, SpecModel
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.iceberg.values import to_json
from duckicelake.sql_dialects.filters import InvalidConditionError, parse_row_filter, parse_sql_filter, rename_columns

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
else:
    np = DeferredModule("numpy")


MAX_PARTITIONS: Final = 100
"""Partitions that an explanation lists: those of which most bytes are read."""
_KEY_BYTES: Final = 7
"""Bytes of texts in a key, behind the prefix that a manifest's bounds share."""
_MIN_OVERLAP_FILES: Final = 2.0
_MIN_OVERLAP_SHARE: Final = 0.1
"""Files of a partition in whose bounds a value lies, and the share of all its files, from which sorting is advised."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_RENDERERS: Final[Mapping[str, Callable[[int], str]]] = {
    "year": lambda value: str(1970 + value),
    "month": lambda value: f"{1970 + value // 12}-{value % 12 + 1:02}",
    "hour": lambda value: f"{_EPOCH + timedelta(hours=value):%Y-%m-%d %H:00}",
}
Counts: TypeAlias = "NDArray[np.int64]"


class FileTotals(SpecModel):
    """Files, their bytes, and their rows before deletes."""

    files: int = 0
    bytes: int = 0
    rows: int = 0


class PrunedFiles(SpecModel):
    """Files that aren't read, and the partition fields that decide the filter.

    by_bounds: of the files that partitions leave, those that no row can pass by the bounds of columns.
    """

    by_partition: int = 0
    by_bounds: int = 0
    empty: int = 0
    partition_fields: tuple[str, ...] = ()


class FilteredColumn(SpecModel):
    """A column of the filter, and what its bounds are worth.

    Attributes:
        pruned: Files that partitions leave and this column's bounds alone prune.
        without_bounds: Files that are read whatever the column is compared with.
        overlap: Files of a partition in whose bounds a value of the column lies, on average.
        of_files: Files of a partition, on average.

    """

    name: str
    type: str
    pruned: int
    without_bounds: int
    overlap: float
    of_files: float
    is_worth_sorting_by: bool


class PartitionCost(SpecModel):
    """What is read of a partition. spec_id: of its spec."""

    spec_id: int
    partition: dict[str, Json]
    read: FileTotals
    total: FileTotals


class ScanCosts(SpecModel):
    """What a filter reads. whole: of that, the files all of whose rows pass it.

    partitions: those of which most is read.
    """

    read: FileTotals = FileTotals()
    total: FileTotals = FileTotals()
    whole: FileTotals = FileTotals()
    pruned: PrunedFiles = PrunedFiles()
    columns: tuple[FilteredColumn, ...] = ()
    partitions: tuple[PartitionCost, ...] = ()
    partitions_read: int = 0
    partitions_total: int = 0


@dataclass(frozen=True, slots=True)
class _Files:
    """The files of all manifests. groups: the number of each file's partition; kept: files that partitions leave."""

    sizes: Counts
    records: Counts
    groups: Counts
    may: Flags
    must: Flags
    kept: Flags

    def sum(self, chosen: Flags) -> FileTotals:
        return FileTotals(
            files=int(chosen.sum()), bytes=int(self.sizes[chosen].sum()), rows=int(self.records[chosen].sum())
        )

    def sum_groups(self, chosen: Flags, count: int) -> list[FileTotals]:
        groups = self.groups[chosen]
        sums = [np.bincount(groups, weights, count) for weights in (None, self.sizes[chosen], self.records[chosen])]
        return [FileTotals(files=int(f), bytes=int(b), rows=int(r)) for f, b, r in zip(*sums, strict=True)]


@dataclass(frozen=True, slots=True)
class _Partition:
    spec_id: int
    columns: tuple[PartitionArrays, ...]
    values: tuple[Any, ...]

    def render(self) -> dict[str, Json]:
        pairs = zip(self.columns, self.values, strict=True)
        return {column.field.name: _render_value(column, value) for column, value in pairs}


def parse_condition(sql: str, schema: Schema) -> tuple[Predicate, tuple[str, ...]]:
    """Parse a condition in SQL; return the filter, and the conditions that it lacks, since no statistics decide them.

    Raises InvalidRequestError.
    """
    try:
        found = parse_sql_filter(sql, schema)
    except InvalidConditionError as error:
        raise InvalidRequestError(str(error)) from error
    return found.predicate, found.ignored


def parse_row_condition(sql: str, schema: Schema) -> Predicate:
    """Parse a condition in SQL that says exactly which rows there are; InvalidRequestError for any other."""
    try:
        return parse_row_filter(sql, schema)
    except InvalidConditionError as error:
        raise InvalidRequestError(str(error)) from error


def rename_condition(sql: str, names: Mapping[str, str]) -> str:
    """Write a condition with other names of its columns, which `names` has by those that it says, in lower case.

    One that this version can't read stays as it is.
    """
    try:
        return rename_columns(sql, names)
    except InvalidConditionError:
        return sql


def explain_scan(blocks: Sequence[BoundedBlock], filters: Sequence[ScanFilter], names: Mapping[int, str]) -> ScanCosts:
    """Explain what filters read of the files of blocks. names: of the filters' columns, by field id."""
    if not blocks:
        return ScanCosts()
    partitions: dict[tuple[Any, ...], int] = {}
    described: list[_Partition] = []
    groups = [_number_partitions(bounded.block, partitions, described) for bounded in blocks]
    files = _join_files(blocks, filters, groups)
    everything = np.ones(len(files.may), np.bool_)
    count, is_filled = len(described), files.records != 0
    read, total = files.sum_groups(files.may, count), files.sum_groups(everything, count)
    largest = sorted(
        (number for number in range(count) if read[number].files),
        key=lambda number: (-read[number].bytes, -read[number].files, number),
    )
    tests = [test for scan_filter in filters for test in list_tests(scan_filter)]
    return ScanCosts(
        read=files.sum(files.may),
        total=files.sum(everything),
        whole=files.sum(files.may & files.must),
        pruned=PrunedFiles(
            by_partition=int((is_filled & ~files.kept).sum()),
            by_bounds=int((files.kept & ~files.may).sum()),
            empty=int((~is_filled).sum()),
            partition_fields=_find_deciding_fields(blocks, tests),
        ),
        columns=tuple(_explain_columns(blocks, filters, names, files)),
        partitions=tuple(
            PartitionCost(
                spec_id=described[number].spec_id,
                partition=described[number].render(),
                read=read[number],
                total=total[number],
            )
            for number in largest[:MAX_PARTITIONS]
        ),
        partitions_read=len(largest),
        partitions_total=count,
    )


def _number_partitions(block: FileBlock, numbers: dict[tuple[Any, ...], int], described: list[_Partition]) -> Counts:
    """Return the number of each file's partition; partitions that are new get the next ones."""
    columns, spec_id = block.partitions, block.files.spec_id
    if len(columns) == 1:
        rows, inverse = (
            np.arange(len(columns[0].values), dtype=np.int32).reshape(-1, 1),
            columns[0].codes.astype(np.int64),
        )
    elif columns:
        rows, inverse = np.unique(np.stack([c.codes for c in columns], axis=1), axis=0, return_inverse=True)
    else:
        rows, inverse = np.zeros((1, 0), np.int32), np.zeros(len(block), np.int64)
    found = []
    for codes in rows.tolist():
        values = tuple(column.values[code] for column, code in zip(columns, codes, strict=True))
        key = (spec_id, *values)
        if key not in numbers:
            numbers[key] = len(described)
            described.append(_Partition(spec_id, columns, values))
        found.append(numbers[key])
    return np.array(found, np.int64)[inverse.reshape(-1)]


def _join_files(blocks: Sequence[BoundedBlock], filters: Sequence[ScanFilter], groups: Sequence[Counts]) -> _Files:
    may, must, kept = [], [], []
    for bounded in blocks:
        count, matches = len(bounded.block), find_matches(bounded, filters)
        may.append(_mark(matches.places, count))
        must.append(_mark(matches.places[matches.is_whole], count))
        kept.append(_mark(find_matches(BoundedBlock(bounded.block, {}), filters).places, count))
    return _Files(
        np.concatenate([bounded.block.files.sizes for bounded in blocks]),
        np.concatenate([bounded.block.files.record_counts for bounded in blocks]),
        np.concatenate(groups),
        np.concatenate(may),
        np.concatenate(must),
        np.concatenate(kept),
    )


def _mark(places: NDArray[np.intp], count: int) -> Flags:
    marked = np.zeros(count, np.bool_)
    marked[places] = True
    return marked


def _find_deciding_fields(blocks: Sequence[BoundedBlock], tests: Sequence[FieldTest]) -> tuple[str, ...]:
    """Return the partition fields whose values say something of a test."""
    columns = {column.field.field_id: column for bounded in blocks for column in bounded.block.partitions}
    return tuple(
        column.field.name
        for column in columns.values()
        if any(test.field_id == column.field.source_id and column.decide(test) for test in tests)
    )


def _explain_columns(
    blocks: Sequence[BoundedBlock], filters: Sequence[ScanFilter], names: Mapping[int, str], files: _Files
) -> list[FilteredColumn]:
    found = []
    for field_id in sorted(blocks[0].bounds, key=lambda id_: names.get(id_, "")):
        arrays = [bounded.bounds[field_id] for bounded in blocks]
        unpartitioned = [
            BoundedBlock(replace(bounded.block, partitions=()), {field_id: bounded.bounds[field_id]})
            for bounded in blocks
        ]
        alone = np.concatenate(
            [_mark(find_matches(bounded, filters).places, len(bounded.block)) for bounded in unpartitioned]
        )
        both = HAS_LOW | HAS_HIGH
        has_bounds = np.concatenate([(bounds.states & both) == both for bounds in arrays])
        lows, highs = _align_keys(arrays)
        lows, highs, groups = lows[has_bounds], highs[has_bounds], files.groups[has_bounds]
        overlap, of_files = _measure_overlap(lows, highs, groups)
        has_values = arrays[0].type.traits.family != "boolean"
        is_spread = has_values and bool(len(lows)) and float((lows < highs).mean()) >= 0.5
        is_wide = overlap >= max(_MIN_OVERLAP_FILES, _MIN_OVERLAP_SHARE * of_files)
        found.append(
            FilteredColumn(
                name=names.get(field_id, str(field_id)),
                type=str(arrays[0].type),
                pruned=int((files.kept & ~alone).sum()),
                without_bounds=int((~has_bounds & (files.records != 0)).sum()),
                overlap=round(overlap, 1),
                of_files=round(of_files, 1),
                is_worth_sorting_by=is_spread and is_wide,
            )
        )
    return found


def _align_keys(arrays: Sequence[BoundArrays]) -> tuple[Keys, Keys]:
    """Return the keys of manifests, made comparable: those of texts begin behind each manifest's own prefix."""
    prefixes = [bounds.prefix for bounds in arrays if (bounds.states & (HAS_LOW | HAS_HIGH)).any()]
    least, most = min(prefixes, default=b""), max(prefixes, default=b"")
    shared = next((place for place, (a, b) in enumerate(zip(least, most, strict=False)) if a != b), len(least))
    bits = LENGTH_BITS if arrays[0].type.traits.family in ("string", "bytes") else 0
    lows = [_align(bounds.lows >> bits, bounds.prefix[shared:]) for bounds in arrays]
    highs = [_align(bounds.highs >> bits, bounds.prefix[shared:]) for bounds in arrays]
    return np.concatenate(lows), np.concatenate(highs)


def _align(keys: Keys, beginning: bytes) -> Keys:
    """Return the keys of texts that have these bytes before what their keys are made of."""
    if not beginning:
        return keys
    head = int.from_bytes(beginning[:_KEY_BYTES].ljust(_KEY_BYTES, b"\0"), "big")
    return head + (keys >> np.int64(min(8 * len(beginning), 63)))


def _measure_overlap(lows: Keys, highs: Keys, groups: Counts) -> tuple[float, float]:
    """Measure in how many files' bounds the middle of a file's bounds lies, and of how many in its partition."""
    if not len(lows):
        return 0.0, 0.0
    ends = np.unique(np.concatenate([lows, highs]))
    middles = lows // 2 + highs // 2 + ((lows & 1) & (highs & 1))
    width = len(ends) + 1
    starts = np.sort(groups * width + np.searchsorted(ends, lows))
    stops = np.sort(groups * width + np.searchsorted(ends, highs))
    begun = np.searchsorted(starts, groups * width + np.searchsorted(ends, middles, "right") - 1, "right")
    ended = np.searchsorted(stops, groups * width + np.searchsorted(ends, middles, "left"), "left")
    sizes = np.bincount(groups)
    return float((begun - ended).mean()), float(sizes[groups].mean())


def _render_value(column: PartitionArrays, value: Any) -> Json:
    """Render a partition value as people read it."""
    transform = column.field.transform
    if value is None:
        return None
    if transform.name in _RENDERERS:
        return _RENDERERS[transform.name](int(value))
    return _render_plain(transform.result_type(column.source), value)


def _render_plain(type_: PrimitiveType, value: Any) -> Json:
    match type_.traits.family:
        case "boolean":
            return bool(value)
        case "uuid":
            return str(UUID(bytes=value))
        case "float" if not isfinite(value):
            return str(value)
    return to_json(type_, value)
