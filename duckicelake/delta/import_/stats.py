"""PURE. Statistics in a Delta log as Iceberg's metrics and DuckLake's rows (Delta protocol, "Per-file Statistics").

Statistics that can't be bounds on both sides are left out. Table-wide rows are made of exact values only (design §6.9).
Not exact are times, which Delta cuts to milliseconds, texts that may be cut, and files with wide bounds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson

from duckicelake.bridge.values.lake_values import format_stats_text
from duckicelake.delta.import_.columns import TableColumns, find_leaf_paths
from duckicelake.delta.import_.values import BoundReader, BoundValue, find_bound_readers, is_exact
from duckicelake.errors import DamagedLogError
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.lake.model import ColumnStats
from duckicelake.lake.state import Packed, PackedStats

_MISSING_STATS: Final = {"variant", "unknown"}
_NESTED: Final = (dict, list)
_METRICS: Final = ("value_counts", "null_value_counts", "lower_bounds", "upper_bounds")
_ALL_ROWS: Final = 32
"""Characters of a text that may have been cut: Spark cuts at so many, delta-rs at twice as many."""


class DeltaFileStats(NamedTuple):
    """Statistics of a file: row count, Iceberg's metrics, DuckLake's statistics."""

    record_count: int
    metrics: Packed
    stats: PackedStats


class StatsWidening:
    """Exact statistics of each column over several files."""

    def __init__(self) -> None:
        self._known: dict[int, list[Any]] = {}
        self._lost: set[int] = set()

    def lose(self, column: int) -> None:
        """Mark the column's statistics as unknown."""
        self._lost.add(column)

    def take(self, column: int, nulls: bool, low: Any, high: Any) -> None:
        """Add a file's values: whether it has nulls, and its bounds, None if it has only nulls."""
        known = self._known.get(column)
        if known is None:
            self._known[column] = [nulls, low, high]
            return
        if nulls:
            known[0] = True
        if low is not None:
            if known[1] is None or low < known[1]:
                known[1] = low
            if known[2] is None or high > known[2]:
                known[2] = high

    def rows(self, leaves: Mapping[int, PrimitiveType]) -> dict[int, ColumnStats | None]:
        """Build a row for each column; None if it isn't known in all files."""
        found: dict[int, ColumnStats | None] = dict.fromkeys(self._lost)
        for column, (nulls, *bounds) in self._known.items():
            if column not in self._lost:
                low, high = (None if bound is None else format_stats_text(leaves[column], bound) for bound in bounds)
                found[column] = ColumnStats(column, contains_null=nulls, min_value=low, max_value=high)
        return found


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A column that may have statistics: its path in them, and readers of its bounds, if it has any."""

    field_id: int
    key: str
    name: str
    parents: tuple[str, ...]
    low: BoundReader | None
    high: BoundReader | None
    is_exact: bool


@dataclass(frozen=True, slots=True)
class PartitionConstant:
    """A partition column's only value, which isn't in the file, and DuckLake's text of it."""

    field_id: int
    value: Any
    text: str | None


class StatsReader:
    """Reads statistics of files with these columns. Partition columns have theirs from their values."""

    def __init__(self, columns: TableColumns) -> None:
        partition = set(columns.partition_ids)
        leaves = find_leaf_paths(columns)
        self._leaves = [
            _build_leaf(i, path, type_)
            for i, (path, type_) in leaves.items()
            if i not in partition and type_.name not in _MISSING_STATS
        ]
        known = {leaf.field_id for leaf in self._leaves} | partition
        self._missing_keys = [i for i in columns.schema.leaves() if i not in known]

    def of(
        self,
        text: str | None,
        constants: Sequence[PartitionConstant],
        counted: int | None,
        path: str,
        wide: StatsWidening,
    ) -> DeltaFileStats:
        """Read a file's metrics from its statistics and partition values, and add them to `wide`.

        counted: its row count, if its statistics lack it.
        """
        stats = _parse_stats(text, path)
        records = stats.get("numRecords")
        if type(records) is not int or records < 0:
            if counted is None:
                raise DamagedLogError(f"the log doesn't say how many rows {path} has")
            records = counted
        reading = _StatsReading(stats, records, wide)
        for leaf in self._leaves:
            reading.leaf(leaf)
        for constant in constants:
            reading.constant(constant)
        for field_id in self._missing_keys:
            wide.lose(field_id)
        return DeltaFileStats(records, Packed(reading.metrics), PackedStats.from_values(reading.rows))


def _build_leaf(field_id: int, path: Sequence[str], type_: PrimitiveType) -> _Leaf:
    low, high = find_bound_readers(type_) or (None, None)
    return _Leaf(field_id, str(field_id), path[-1], tuple(path[:-1]), low, high, is_exact(type_))


class _StatsReading:
    """One file's statistics while they are read. rows: packed ColumnStats."""

    def __init__(self, stats: Mapping[str, Any], records: int, wide: StatsWidening) -> None:
        self.rows: list[tuple[object, ...]] = []
        self._counts: dict[str, int] = {}
        self._null_counts: dict[str, int] = {}
        self._lower: dict[str, str] = {}
        self._upper: dict[str, str] = {}
        self._records = records
        self._wide = wide
        self._is_tight = stats.get("tightBounds") is not False
        self._lows, self._highs = _require_object(stats, "minValues"), _require_object(stats, "maxValues")
        self._nulls = _require_object(stats, "nullCount")

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """Return the metrics in the form of `entries.metrics_json`."""
        metrics: tuple[dict[str, Any], ...] = (self._counts, self._null_counts, self._lower, self._upper)
        return {name: values for name, values in zip(_METRICS, metrics, strict=True) if values}

    def leaf(self, leaf: _Leaf) -> None:
        records, wide, field_id = self._records, self._wide, leaf.field_id
        nulls = _find_value(self._nulls, leaf) if leaf.parents else self._nulls.get(leaf.name)
        if type(nulls) is not int or not 0 <= nulls <= records:
            wide.lose(field_id)
            return
        self._counts[leaf.key] = records
        self._null_counts[leaf.key] = nulls
        if nulls == records:
            self._row(field_id, nulls, None, None)
            wide.take(field_id, nulls > 0, None, None)
            return
        low = self._bound(leaf, leaf.low, self._lows, self._lower)
        high = self._bound(leaf, leaf.high, self._highs, self._upper)
        if low is None or high is None or low[2] is None or high[2] is None:
            wide.lose(field_id)
            return
        self._row(field_id, nulls, low[2], high[2])
        if leaf.is_exact and self._is_tight:
            wide.take(field_id, nulls > 0, low[0], high[0])
        else:
            wide.lose(field_id)

    def constant(self, constant: PartitionConstant) -> None:
        if constant.value is None:
            self._row(constant.field_id, self._records, None, None)
            self._wide.take(constant.field_id, True, None, None)
        elif constant.text is None:
            self._wide.lose(constant.field_id)
        else:
            self._row(constant.field_id, 0, constant.text, constant.text)
            self._wide.take(constant.field_id, False, constant.value, constant.value)

    def _bound(
        self, leaf: _Leaf, read: BoundReader | None, bounds: Mapping[str, Any], stored: dict[str, str]
    ) -> BoundValue | None:
        found = _find_value(bounds, leaf) if leaf.parents else bounds.get(leaf.name)
        bound = None if read is None or found is None or type(found) in _NESTED else read(found)
        if bound is not None:
            stored[leaf.key] = bound[1]
        return bound

    def _row(self, field_id: int, nulls: int, low: str | None, high: str | None) -> None:
        self.rows.append((field_id, nulls > 0, None, low, high, None, self._records - nulls, nulls))


def _parse_stats(text: str | None, path: str) -> Mapping[str, Any]:
    if text is None:
        return {}
    try:
        stats = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise DamagedLogError(f"the statistics of {path} in the log aren't JSON: {error}") from error
    return stats if isinstance(stats, dict) else {}


def _require_object(stats: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = stats.get(name)
    return found if isinstance(found, dict) else {}


def _find_value(values: Mapping[str, Any], leaf: _Leaf) -> Any:
    for name in leaf.parents:
        inner = values.get(name)
        if not isinstance(inner, dict):
            return None
        values = inner
    return values.get(leaf.name)
