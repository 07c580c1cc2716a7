"""Which rows differ? Both sides cut their rows into buckets by key; only buckets that differ are looked into."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from duckicelake.pipeline import canonical
from duckicelake.pipeline.sides import Side
from duckicelake.pipeline.value_types import Type

_ROWS_OF_A_BUCKET: Final = 2_000
_MOST_BUCKETS: Final = 1_000_000

Columns = Sequence[tuple[str, Type]]


@dataclass(frozen=True, slots=True)
class RowDifference:
    """A key under which the sides don't have the same. left, right: how many rows each has.

    values: of each column that differs, what left and right have, as text; empty unless each has one row.
    """

    key: Mapping[str, str | None]
    left: int
    right: int
    values: Mapping[str, tuple[str | None, str | None]]


@dataclass(frozen=True, slots=True)
class _Row:
    digests: Sequence[str | None]
    values: Sequence[str | None]


def row_differences(left: Side, right: Side, columns: Columns, keys: Sequence[str], most: int) -> list[RowDifference]:
    """Some of the rows that differ, at most so many."""
    return list(islice(_differences(left, right, columns, keys), most))


def _differences(left: Side, right: Side, columns: Columns, keys: Sequence[str]) -> Iterator[RowDifference]:
    names = [name for name, _ in columns]
    at = [names.index(key) for key in keys]
    count = max(int(side.rows(f"SELECT count(*) FROM {side.relation}")[0][0]) for side in (left, right))
    buckets = min(_MOST_BUCKETS, count // _ROWS_OF_A_BUCKET + 1)
    ours, theirs = (_buckets(side, columns, at, buckets) for side in (left, right))
    for bucket in sorted({*ours, *theirs}):
        if ours.get(bucket) != theirs.get(bucket):
            one, other = (_rows(side, columns, at, buckets, bucket) for side in (left, right))
            yield from _in_bucket(one, other, names, at)


def _in_bucket(
    ours: Mapping[str, list[_Row]], theirs: Mapping[str, list[_Row]], names: Sequence[str], at: Sequence[int]
) -> Iterator[RowDifference]:
    for digest in sorted({*ours, *theirs}):
        left, right = ours.get(digest, []), theirs.get(digest, [])
        if _digests(left) == _digests(right):
            continue
        key = {names[index]: (left or right)[0].values[index] for index in at}
        single = len(left) == len(right) == 1
        yield RowDifference(key, len(left), len(right), _values(left[0], right[0], names) if single else {})


def _digests(rows: Sequence[_Row]) -> list[tuple[str, ...]]:
    return sorted(tuple(digest or "" for digest in row.digests) for row in rows)


def _values(left: _Row, right: _Row, names: Sequence[str]) -> dict[str, tuple[str | None, str | None]]:
    pairs = zip(names, left.digests, right.digests, left.values, right.values, strict=True)
    return {name: (one, other) for name, ours, theirs, one, other in pairs if ours != theirs}


def _buckets(side: Side, columns: Columns, at: Sequence[int], buckets: int) -> dict[int, tuple[int, int]]:
    """Of each bucket how many rows, and their checksum."""
    digested = canonical.digests(side.dialect, side.relation, columns)
    whole = canonical.whole(range(len(columns)))
    query = f"SELECT {canonical.whole(at)} AS k, {whole} AS whole FROM ({digested})"
    numbers = f"SELECT {_bucket(side, 'k', buckets)} AS bucket, {side.dialect.number('whole')} AS whole FROM ({query})"
    sums = f"SELECT bucket, count(*), {canonical.halves('whole')} FROM ({numbers}) GROUP BY bucket"
    return {bucket: (count, canonical.checksum(high, low)) for bucket, count, high, low in side.rows(sums)}


def _rows(side: Side, columns: Columns, at: Sequence[int], buckets: int, bucket: int) -> dict[str, list[_Row]]:
    """The rows of a bucket by the MD5 of their key."""
    dialect = side.dialect
    shown = [f"{dialect.shown(type_, dialect.identifier(name))} AS v{at}" for at, (name, type_) in enumerate(columns)]
    keyed = f"SELECT *, {canonical.whole(at)} AS k FROM ({canonical.digests(dialect, side.relation, columns, *shown)})"
    found = side.rows(f"SELECT * FROM ({keyed}) WHERE {_bucket(side, 'k', buckets)} = {bucket}")
    rows: dict[str, list[_Row]] = defaultdict(list)
    for *values, key in found:
        rows[str(key)].append(_Row(values[: len(columns)], values[len(columns) :]))
    return rows


def _bucket(side: Side, digest: str, buckets: int) -> str:
    return f"{side.dialect.number(digest)} % {buckets}"
