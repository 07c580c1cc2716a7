"""PURE. Statistics in a Delta log as Iceberg's metrics and DuckLake's rows (Delta protocol, "Per-file Statistics").

What isn't told of a column, or not so that both sides can bound by it, is left out. Table-wide rows come of exact
values only (design §6.9): neither of times, which Delta cuts to milliseconds, nor of texts that may be cut,
nor of files whose bounds are wide.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from duckicelake.bridge.delta_columns import TableColumns, leaf_paths
from duckicelake.bridge.delta_types import is_exact, stored_bound
from duckicelake.bridge.texts import to_text
from duckicelake.errors import DamagedLog, InvalidRequest
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.iceberg.values import to_bytes
from duckicelake.lake.changes import Packed, PackedStats
from duckicelake.lake.model import ColumnStats

_UNBOUNDED: Final = {"variant", "unknown", "binary"}
_WHOLE: Final = 32
"""Characters of a text from which on it may be cut: Spark cuts after so many, delta-rs after twice as many."""


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What is known of a file's rows: how many, Iceberg's metrics, DuckLake's statistics."""

    record_count: int
    metrics: Packed
    stats: PackedStats


@dataclass(slots=True)
class Widening:
    """What some files hold of each column, all together, as far as that is exact."""

    _lows: dict[int, Any] = field(default_factory=dict)
    _highs: dict[int, Any] = field(default_factory=dict)
    _nulls: dict[int, bool] = field(default_factory=dict)
    _lost: set[int] = field(default_factory=set)

    def lose(self, column: int) -> None:
        """Forget what any file holds of the column."""
        self._lost.add(column)

    def take(self, column: int, nulls: bool, low: Any, high: Any) -> None:
        """Take in what the next file holds: whether nulls, and its bounds, None where it holds nothing else."""
        self._nulls[column] = nulls or self._nulls.get(column, False)
        if low is None:
            return
        known = self._lows.get(column)
        if known is None or low < known:
            self._lows[column] = low
        known = self._highs.get(column)
        if known is None or high > known:
            self._highs[column] = high

    def rows(self, leaves: Mapping[int, PrimitiveType]) -> dict[int, ColumnStats | None]:
        """A row for each column, None for one that isn't known in all files."""
        found: dict[int, ColumnStats | None] = dict.fromkeys(self._lost)
        for column, nulls in self._nulls.items():
            if column not in self._lost:
                low, high = (_text(leaves[column], bounds.get(column)) for bounds in (self._lows, self._highs))
                found[column] = ColumnStats(column, contains_null=nulls, min_value=low, max_value=high)
        return found


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A column that statistics may tell of: how it is found in them, and what makes its values."""

    field_id: int
    key: str
    name: str
    parents: tuple[str, ...]
    type: PrimitiveType
    bound: Callable[[Any, bool], Any] | None
    is_exact: bool


class StatsReader:
    """Reads the statistics of files written with these columns; those of partition columns come of their values."""

    def __init__(self, columns: TableColumns) -> None:
        partition = set(columns.partition_ids)
        leaves = leaf_paths(columns)
        self._leaves = [
            _Leaf(i, str(i), path[-1], path[:-1], type_, stored_bound(type_), is_exact(type_))
            for i, (path, type_) in leaves.items()
            if i not in partition and type_.name not in {"variant", "unknown"}
        ]
        self._partition = [(i, leaves[i][1]) for i in columns.partition_ids]
        known = {leaf.field_id for leaf in self._leaves} | partition
        self._untold = [i for i in columns.schema.leaves() if i not in known]

    def of(self, text: str | None, values: Sequence[Any], counted: int | None, path: str, wide: Widening) -> FileFacts:
        """What a file's statistics and its partition's values tell; `wide` takes it in.

        counted: how many rows it has, where its statistics don't say.
        """
        stats = _parsed(text, path)
        records = stats.get("numRecords")
        if type(records) is not int or records < 0:
            if counted is None:
                raise DamagedLog(f"the log doesn't say how many rows {path} has")
            records = counted
        reading = _Reading(stats, records, wide, stats.get("tightBounds") is not False)
        for leaf in self._leaves:
            reading.leaf(leaf)
        for (field_id, type_), value in zip(self._partition, values, strict=True):
            reading.constant(field_id, type_, value)
        for field_id in self._untold:
            wide.lose(field_id)
        metrics = {name: found for name, found in reading.metrics.items() if found}
        return FileFacts(records, Packed(metrics), PackedStats(reading.rows))


class _Reading:
    """One file's statistics being read."""

    def __init__(self, stats: Mapping[str, Any], records: int, wide: Widening, is_tight: bool) -> None:
        self.rows: list[ColumnStats] = []
        self.metrics: dict[str, dict[str, Any]] = {
            "value_counts": {},
            "null_value_counts": {},
            "lower_bounds": {},
            "upper_bounds": {},
        }
        self._records = records
        self._wide = wide
        self._is_tight = is_tight
        self._lows, self._highs = _object(stats, "minValues"), _object(stats, "maxValues")
        self._nulls = _object(stats, "nullCount")

    def leaf(self, leaf: _Leaf) -> None:
        nulls = _found(self._nulls, leaf)
        if type(nulls) is not int or not 0 <= nulls <= self._records:
            self._wide.lose(leaf.field_id)
            return
        self.metrics["value_counts"][leaf.key] = self._records
        self.metrics["null_value_counts"][leaf.key] = nulls
        low = high = None
        if nulls < self._records and leaf.bound is not None:
            low, high = self._bound(leaf, self._lows, False), self._bound(leaf, self._highs, True)
        is_whole = not any(isinstance(bound, str) and len(bound) >= _WHOLE for bound in (low, high))
        self._row(leaf.field_id, leaf.type, nulls, low, high, leaf.is_exact and self._is_tight and is_whole)

    def constant(self, field_id: int, type_: PrimitiveType, value: Any) -> None:
        """A partition column has one value, which isn't in the file."""
        nulls = self._records if value is None else 0
        self._row(field_id, type_, nulls, value, value, True)

    def _bound(self, leaf: _Leaf, bounds: Mapping[str, Any], is_upper: bool) -> Any:
        found = _found(bounds, leaf)
        assert leaf.bound is not None
        value = None if found is None else leaf.bound(found, is_upper)
        if value is None:
            return None
        try:
            data = to_bytes(leaf.type, value)
        except InvalidRequest:
            return None
        self.metrics["upper_bounds" if is_upper else "lower_bounds"][leaf.key] = data.hex()
        return value

    def _row(self, field_id: int, type_: PrimitiveType, nulls: int, low: Any, high: Any, is_exact: bool) -> None:
        texts = (_text(type_, low), _text(type_, high))
        if nulls < self._records and (None in texts or type_.name in _UNBOUNDED):
            self._wide.lose(field_id)
            return
        self.rows.append(
            ColumnStats(
                column_id=field_id,
                contains_null=nulls > 0,
                min_value=texts[0],
                max_value=texts[1],
                value_count=self._records - nulls,
                null_count=nulls,
            )
        )
        if is_exact:
            self._wide.take(field_id, nulls > 0, low, high)
        else:
            self._wide.lose(field_id)


def _parsed(text: str | None, path: str) -> Mapping[str, Any]:
    if text is None:
        return {}
    try:
        stats = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise DamagedLog(f"the statistics of {path} in the log aren't JSON: {error}") from error
    return stats if isinstance(stats, dict) else {}


def _object(stats: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = stats.get(name)
    return found if isinstance(found, dict) else {}


def _found(values: Mapping[str, Any], leaf: _Leaf) -> Any:
    for name in leaf.parents:
        inner = values.get(name)
        if not isinstance(inner, dict):
            return None
        values = inner
    return values.get(leaf.name)


def _text(type_: PrimitiveType, value: Any) -> str | None:
    return None if value is None else to_text(type_, value)


def record_count(stats: str | None, path: str) -> int | None:
    """How many rows a file has, if its statistics say so."""
    records = _parsed(stats, path).get("numRecords")
    return records if type(records) is int and records >= 0 else None
