"""PURE. Column statistics: Iceberg's metrics, DuckLake's per-file rows and table-wide rows (design §6.9)."""

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from duckicelake.bridge.values.lake_values import format_stats_text, parse_stats_text
from duckicelake.iceberg.primitives import OPAQUE_NAMES, TRAITS, select_names
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.iceberg.values import from_bytes, to_bytes
from duckicelake.lake.model import ColumnStats, Extent
from duckicelake.properties import METRICS_MODE_PREFIX

DEFAULT_TRUNCATION = 16
_TRUNCATE = re.compile(r"truncate\((\d+)\)")
_AMBIGUOUS: Final = select_names("bytes")
"""File statistics hold hex, inlined rows escaped text: `ab` may be either. DuckDB looks for escaped texts in both."""
_FLOATS: Final = select_names("float")
_INTEGERS: Final = {name: "<q" if TRAITS[name].size == 8 else "<i" for name in select_names("integer")}
_NUMBERS: Final[Mapping[str, Callable[[str], int | float]]] = {
    **dict.fromkeys(select_names("integer"), int),
    **dict.fromkeys(_FLOATS, float),
}
"""Types that tables have most of: their texts are read in a tenth of the time."""
_MAX_CACHED_CHARS = 64
_INTEGER_DIGITS: Final = {name: {8, 2 * TRAITS[name].size} for name in _INTEGERS}
"""Digits that bounds of integers have in hex; a column may have been promoted since."""
_NOTHING: Mapping[str, Any] = {}
_NAMES = ("column_sizes", "value_counts", "null_value_counts", "lower_bounds", "upper_bounds", "nan_value_counts")
_parse_comparable_cached = lru_cache(maxsize=4096)(parse_stats_text)
"""Bounds are compared again and again while a table gets rows."""


def find_truncation(properties: Mapping[str, str]) -> int:
    """Return the length from which on a bound of this table may be truncated."""
    modes = (value for key, value in properties.items() if key.startswith(METRICS_MODE_PREFIX))
    lengths = (int(match[1]) for match in map(_TRUNCATE.fullmatch, modes) if match)
    return min([DEFAULT_TRUNCATION, *lengths])


class LakeStats:
    """DuckLake's statistics of files whose metrics Iceberg knows, for a table with these leaf columns."""

    def __init__(self, leaves: Mapping[int, PrimitiveType]) -> None:
        self._columns = [
            (column, str(column), _make_text_converter(type_), type_.name in _FLOATS, type_.name in _AMBIGUOUS)
            for column, type_ in _select_ordered(leaves).items()
        ]
        self._uuids = {column for column, type_ in leaves.items() if type_.traits.family == "uuid"}

    def build_rows(self, metrics: Mapping[str, Any]) -> tuple[ColumnStats, ...]:
        """Return the `ducklake_file_column_stats` rows of a file of these metrics (`metrics_json`).

        A column that isn't fully known has none.
        """
        sizes, counts, empty, lows, highs, not_numbers = [metrics.get(name) or _NOTHING for name in _NAMES]
        rows = []
        for column, key, text, may_be_nan, is_ambiguous in self._columns:
            values, nulls = counts.get(key), empty.get(key)
            if values is None or nulls is None:
                continue
            low, high = lows.get(key), highs.get(key)
            low, high = None if low is None else text(low), None if high is None else text(high)
            nans = not_numbers.get(key) if may_be_nan else None
            if column in self._uuids and low is not None and high is not None and low > high:
                continue  # Java orders UUIDs as two signed longs, DuckDB as unsigned bytes
            if values - nulls - (nans or 0) > 0 and (low is None or high is None or is_ambiguous):
                continue
            has_nan = None if nans is None else nans > 0
            rows.append(ColumnStats(column, nulls > 0, has_nan, low, high, sizes.get(key), values - nulls, nulls))
        return tuple(rows)


class LakeMetrics:
    """Iceberg's metrics of files whose statistics DuckDB wrote, for a table with these leaf columns."""

    def __init__(self, leaves: Mapping[int, PrimitiveType]) -> None:
        self._columns = {
            column: (str(column), _make_packer(type_), _make_bound_converter(type_), type_.name in _FLOATS)
            for column, type_ in _select_ordered(leaves).items()
        }

    def build_metrics(self, stats: Iterable[Sequence[Any]]) -> dict[str, dict[str, Any]]:
        """Return the metrics of one file as `metrics_json` says them, of what ColumnStats consists of."""
        found: tuple[dict[str, Any], ...] = ({}, {}, {}, {}, {}, {})
        sizes, counts, nulls, lows, highs, nans = found
        columns = self._columns
        for column, _, has_nan, low, high, size, values, empty in stats:
            known = columns.get(column)
            if known is None:
                continue
            key, pack, bound, may_be_nan = known
            if may_be_nan and (has_nan is False or values == 0):  # how many NaN there are isn't said, only whether any
                nans[key] = 0
            if size:
                sizes[key] = size
            if values is not None and empty is not None:
                counts[key] = values + empty
                nulls[key] = empty
            if pack is not None and low is not None and high is not None:  # what tables have most of
                try:
                    lows[key], highs[key] = pack(int(low)).hex(), pack(int(high)).hex()
                    continue
                except (ValueError, struct.error):
                    pass  # neither is set; one of them may be a bound by the longer way
            if low is not None and (stored := bound(low)) is not None:
                lows[key] = stored
            if high is not None and (stored := bound(high)) is not None:
                highs[key] = stored
        return {name: item for name, item in zip(_NAMES, found, strict=True) if item}


def build_extent_stats(extent: Extent, type_: PrimitiveType) -> ColumnStats | None:
    """Return the row of values of this type in memory; None where their bounds have no text in DuckLake."""
    has_bounds = extent.present > extent.nans
    low, high = (
        (format_stats_text(type_, extent.least), format_stats_text(type_, extent.most)) if has_bounds else (None, None)
    )
    if has_bounds and (low is None or high is None or type_.name in _AMBIGUOUS):
        return None
    return ColumnStats(
        column_id=extent.column_id,
        contains_null=extent.nulls > 0,
        contains_nan=extent.nans > 0 if type_.name in _FLOATS else None,
        min_value=low,
        max_value=high,
        value_count=extent.present,
        null_count=extent.nulls,
    )


def widen_table_stats(
    existing: Mapping[int, ColumnStats] | None,
    files: Iterable[Iterable[ColumnStats | Extent]],
    leaves: Mapping[int, PrimitiveType],
    exact_below: int,
) -> dict[int, ColumnStats | None]:
    """Return new table-wide rows after adding files with these statistics.

    None: the row must go, its truth isn't known.

    `existing` is None for a table that never had rows; later a column without a row stays without one. Extents are
    for small batches: a row that covers one already stays as it is, and nothing becomes a text for that.
    """
    wanted = leaves if existing is None else [column for column in leaves if column in existing]
    result: dict[int, ColumnStats | None] = {column: existing[column] if existing else None for column in wanted}
    known = set(wanted)
    for rows in files:
        by_column = {row.column_id: row for row in rows}
        for column in tuple(known):
            row, before = by_column.get(column), result[column]
            if isinstance(row, Extent):
                if before is not None and _has_extent(before, row, leaves[column]):
                    continue
                row = build_extent_stats(row, leaves[column])
            result[column] = _widen_row(before, row, leaves[column], exact_below)
            if result[column] is None:
                known.discard(column)
    return result


def _select_ordered(leaves: Mapping[int, PrimitiveType]) -> dict[int, PrimitiveType]:
    """Leave out types without bounds. DuckDB counts a null variant as a value, for it writes one that is null."""
    return {field_id: type_ for field_id, type_ in leaves.items() if type_.name not in OPAQUE_NAMES}


def _make_text_converter(type_: PrimitiveType) -> Callable[[str], str | None]:
    """Make a function from a stored bound, in hex, to its text in statistics, None where it has none.

    It raises as `from_bytes` does.
    """
    hex_digits = _INTEGER_DIGITS.get(type_.name, ())

    def text(stored: str) -> str | None:
        if len(stored) in hex_digits:
            return str(int.from_bytes(bytes.fromhex(stored), "little", signed=True))
        value = from_bytes(type_, bytes.fromhex(stored))
        try:
            return format_stats_text(type_, value)
        except (ValueError, ArithmeticError):
            return None

    return text


def _make_packer(type_: PrimitiveType) -> Callable[[int], bytes] | None:
    """Make a function from an integer to a stored bound, for types that have no other values."""
    return struct.Struct(_INTEGERS[type_.name]).pack if type_.name in _INTEGERS else None


def _make_bound_converter(type_: PrimitiveType) -> Callable[[str], str | None]:
    """Make a function from a text in statistics to a stored bound, in hex; None where it is no value of the type.

    None for bytes, too: what DuckDB takes from files of others is the bytes themselves, `ab`, and not their hex.
    """
    if type_.name in _AMBIGUOUS:
        return lambda _: None

    def bound(text: str) -> str | None:
        value = parse_stats_text(type_, text)
        return None if value is None else to_bytes(type_, value).hex()

    return bound


def _has_extent(row: ColumnStats, extent: Extent, type_: PrimitiveType) -> bool:
    """Return whether the row says all that it would say with these values, too."""
    if row.contains_null is None or row.min_value is None or row.max_value is None:
        return False
    if (extent.nulls and not row.contains_null) or (extent.nans and not row.contains_nan):
        return False
    if extent.present == extent.nans:
        return True
    is_long = len(row.min_value) + len(row.max_value) > _MAX_CACHED_CHARS
    low, high = (_span_bounds if is_long else _span_bounds_cached)(type_, row.min_value, row.max_value)
    if low is None or high is None:
        return False
    least, most = extent.least, extent.most
    if isinstance(least, str):
        least, most = least.encode(), most.encode()
    return bool(low <= least and most <= high)


def _span_bounds(type_: PrimitiveType, low: str, high: str) -> tuple[Any, Any]:
    return _parse_comparable(type_, low), _parse_comparable(type_, high)


_span_bounds_cached = lru_cache(maxsize=4096)(_span_bounds)


def _widen_row(
    before: ColumnStats | None, row: ColumnStats | None, type_: PrimitiveType, exact_below: int
) -> ColumnStats | None:
    if row is None or not _is_exact(row, type_, exact_below):
        return None
    return _to_table_row(row) if before is None else _merge_rows(before, row, type_)


def _is_exact(row: ColumnStats, type_: PrimitiveType, exact_below: int) -> bool:
    if type_.name != "string":
        return type_.name not in _AMBIGUOUS
    return all(len(text) < exact_below for text in (row.min_value, row.max_value) if text is not None)


def _to_table_row(row: ColumnStats) -> ColumnStats:
    return row._replace(column_size_bytes=None, value_count=None, null_count=None)


def _merge_rows(old: ColumnStats, new: ColumnStats, type_: PrimitiveType) -> ColumnStats | None:
    if old.contains_null is None or (not old.contains_null and None in (old.min_value, old.max_value)):
        return None  # bounds that DuckDB's flush after a change of type forgets
    low = _choose_extreme(old.min_value, new.min_value, type_, larger=False)
    high = _choose_extreme(old.max_value, new.max_value, type_, larger=True)
    if (low is None or high is None) and not _has_only_nulls(old, new):
        return None
    nulls, nans = old.contains_null or new.contains_null, _merge_flags(old.contains_nan, new.contains_nan)
    if (low, high, nulls, nans) == (old.min_value, old.max_value, old.contains_null, old.contains_nan):
        return old
    return old._replace(contains_null=nulls, contains_nan=nans, min_value=low, max_value=high)


def _has_only_nulls(old: ColumnStats, new: ColumnStats) -> bool:
    return old.min_value is None and new.min_value is None and old.max_value is None and new.max_value is None


def _merge_flags(old: bool | None, new: bool | None) -> bool | None:
    if old or new:
        return True
    return None if old is None or new is None else False


def _choose_extreme(old: str | None, new: str | None, type_: PrimitiveType, *, larger: bool) -> str | None:
    if old is None or new is None:
        return new if old is None else old
    if old == new:
        return old if _parse_comparable(type_, old) is not None else None
    old_value, new_value = _parse_comparable(type_, old), _parse_comparable(type_, new)
    if old_value is None or new_value is None:
        return None
    return new if (new_value > old_value) == larger and new_value != old_value else old


def _parse_comparable(type_: PrimitiveType, text: str) -> Any:
    """Return a value that orders as DuckDB orders them; None if the text is none, or NaN."""
    number = _NUMBERS.get(type_.name)
    if number is None:
        value = (
            parse_stats_text(type_, text) if len(text) > _MAX_CACHED_CHARS else _parse_comparable_cached(type_, text)
        )
        return value.encode() if isinstance(value, str) else value
    try:
        found = number(text)
    except ValueError:
        return None
    return found if found == found else None  # noqa: PLR0124 - NaN isn't


@dataclass(frozen=True, slots=True)
class FileRange:
    """What the live files say of one column: whether they hold nulls and NaN, and each bound that one of them has."""

    contains_null: bool | None
    contains_nan: bool | None
    lows: Sequence[str]
    highs: Sequence[str]


def find_gaps(row: ColumnStats, files: FileRange, type_: PrimitiveType, *, is_repeated: bool = False) -> Iterator[str]:
    """Yield what the files hold and the table-wide row denies, or can't say.

    is_repeated: the column is in a list or map. Lakes that DuckLake 0.3 made have no contains_null for those, and need
    none: tried with DuckDB 1.5.5, IS NULL and count find the right rows, before and after inserts.
    """
    if files.contains_null and not row.contains_null and not (is_repeated and row.contains_null is None):
        yield f"contains_null is {_describe_value(row.contains_null)}, but files hold nulls"
    if row.contains_null is None and not is_repeated and (files.lows or files.highs):
        yield "contains_null is NULL, which DuckDB takes for no"
    if files.contains_nan and row.contains_nan is False:
        yield "contains_nan is false, but files hold NaN"
    low, high = row.min_value, row.max_value
    if files.lows and low is None:
        yield "min_value is NULL, which DuckDB takes for the next file's"
    if files.highs and high is None:
        yield "max_value is NULL, which DuckDB takes for the next file's"
    if low is not None and any(_is_less(text, low, type_) for text in files.lows):
        yield f"min_value is {low}, but files hold less"
    if high is not None and any(_is_less(high, text, type_) for text in files.highs):
        yield f"max_value is {high}, but files hold more"


def _describe_value(value: bool | None) -> str:
    return "NULL" if value is None else str(value).lower()


def _is_less(text: str, than: str, type_: PrimitiveType) -> bool:
    """Return whether one text's value is less than another's, as DuckDB sorts them; False where one is unknown."""
    if type_.name in _AMBIGUOUS:
        return False
    if type_.name == "string":
        return text.encode() < than.encode()
    value, other = parse_stats_text(type_, text), parse_stats_text(type_, than)
    return value is not None and other is not None and bool(value < other)
