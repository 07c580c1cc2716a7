"""The two sides of a comparison, and the rows in which they differ."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol

import duckdb

from duckicelake.errors import BadInputError, JobConflictError, MissingTableError
from duckicelake.pipeline import checksums
from duckicelake.pipeline.checksums import ComparisonDialect, DuckSQL, SparkSQL
from duckicelake.pipeline.column_types import Type, from_duckdb_type, from_spark_type
from duckicelake.pipeline.duckdb_lake import LAKE_ALIAS, read_first_line
from duckicelake.pipeline.session import override_settings
from duckicelake.rest.names import Namespace, parse_table, quote_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REFERENCE_PATTERN: Final = re.compile(r"(?:(source|duckdb):)?(.+?)(?:@(\d+))?")
_BUCKET_ROWS: Final = 2_000
_MAX_BUCKETS: Final = 1_000_000
TypedColumns = Sequence[tuple[str, Type]]


@dataclass(frozen=True, slots=True)
class TableReference:
    """A table to be compared. engine: `lake` and `source` are read by Spark, `duckdb` by DuckDB.

    snapshot: None is the newest.
    """

    engine: str
    namespace: Namespace
    table: str
    snapshot: int | None


def parse_reference(text: str) -> TableReference:
    """Parse `ns.t`, `source:ns.t`, `duckdb:ns.t`, each also with `@<snapshot id>`; BadInputError."""
    found = _REFERENCE_PATTERN.fullmatch(text)
    if found is None:
        raise BadInputError(f"{text!r} is no table: write ns.table, source:ns.table or duckdb:ns.table")
    namespace, table = parse_table(found[2])
    return TableReference(found[1] or "lake", namespace, table, int(found[3]) if found[3] else None)


class Side(Protocol):
    """A table that answers queries in its engine's SQL."""

    @property
    def dialect(self) -> ComparisonDialect: ...

    @property
    def relation(self) -> str:
        """What queries name in FROM."""

    @property
    def columns(self) -> Mapping[str, Type]: ...

    def rows(self, query: str) -> Sequence[Sequence[Any]]:
        """Return all rows of an answer, which must fit into memory."""

    def check(self) -> None:
        """Check, when all is read, that all was of one state of the table; JobConflictError."""


class SparkSide:
    """A table of a catalog in Spark, as it is, or at a snapshot, then with the columns of when that was made."""

    dialect = SparkSQL()

    def __init__(self, spark: SparkSession, catalog: str, reference: TableReference) -> None:
        self._spark = spark
        self._name = quote_name(catalog, *reference.namespace, reference.table)
        at = reference.snapshot
        self.relation = self._name if at is None else f"{self._name} VERSION AS OF {at}"
        self._newest = self._head() if at is None else None
        schema = spark.sql(f"SELECT * FROM {self.relation}").schema
        self.columns = {field["name"]: from_spark_type(field["type"]) for field in schema.jsonValue()["fields"]}

    def rows(self, query: str) -> Sequence[Sequence[Any]]:
        with override_settings(self._spark, {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}):
            return self._spark.sql(query).collect()

    def check(self) -> None:
        if self._newest is not None and self._head() != self._newest:
            advice = f"compare @{self._newest[0]}, as it was, or once more" if self._newest else "compare once more"
            raise JobConflictError(f"{self._name} was written to while it was read: {advice}")

    def _head(self) -> list[int]:
        """Return the newest snapshot, if there is any."""
        refs = self._spark.sql(f"SELECT snapshot_id FROM {self._name}.refs WHERE name = 'main'")
        return [row[0] for row in refs.collect()]


class DuckSide:
    """A table of the lake as DuckDB reads it, in a transaction that sees one state of it."""

    dialect = DuckSQL()

    def __init__(self, connection: duckdb.DuckDBPyConnection, reference: TableReference) -> None:
        self._connection = connection.begin()
        schema, table = (self.dialect.identifier(part) for part in (".".join(reference.namespace), reference.table))
        at = "" if reference.snapshot is None else f" AT (VERSION => {reference.snapshot})"
        self.relation = f"{LAKE_ALIAS}.{schema}.{table}{at}"
        try:
            described = connection.sql(f"SELECT * FROM {self.relation} LIMIT 0")
        except duckdb.CatalogException as error:
            raise MissingTableError(f"DuckDB finds no {self.relation}: {read_first_line(error)}") from error
        types = (from_duckdb_type(type_) for type_ in described.types)
        self.columns = dict(zip(described.columns, types, strict=True))

    def rows(self, query: str) -> Sequence[Sequence[Any]]:
        return self._connection.execute(query).fetchall()

    def check(self) -> None:
        """Do nothing: a transaction reads one state."""


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
class _BucketRow:
    digests: Sequence[str | None]
    values: Sequence[str | None]


def find_row_differences(
    left: Side, right: Side, columns: TypedColumns, keys: Sequence[str], most: int
) -> list[RowDifference]:
    """Return some of the rows that differ, at most so many."""
    return list(islice(_iterate_differences(left, right, columns, keys), most))


def _iterate_differences(
    left: Side, right: Side, columns: TypedColumns, keys: Sequence[str]
) -> Iterator[RowDifference]:
    names = [name for name, _ in columns]
    at = [names.index(key) for key in keys]
    count = max(int(side.rows(f"SELECT count(*) FROM {side.relation}")[0][0]) for side in (left, right))
    buckets = min(_MAX_BUCKETS, count // _BUCKET_ROWS + 1)
    ours, theirs = (_read_buckets(side, columns, at, buckets) for side in (left, right))
    for bucket in sorted({*ours, *theirs}):
        if ours.get(bucket) != theirs.get(bucket):
            one, other = (_read_rows(side, columns, at, buckets, bucket) for side in (left, right))
            yield from _compare_bucket(one, other, names, at)


def _compare_bucket(
    ours: Mapping[str, list[_BucketRow]],
    theirs: Mapping[str, list[_BucketRow]],
    names: Sequence[str],
    at: Sequence[int],
) -> Iterator[RowDifference]:
    for digest in sorted({*ours, *theirs}):
        left, right = ours.get(digest, []), theirs.get(digest, [])
        if _sort_digests(left) == _sort_digests(right):
            continue
        key = {names[index]: (left or right)[0].values[index] for index in at}
        single = len(left) == len(right) == 1
        yield RowDifference(key, len(left), len(right), _pair_values(left[0], right[0], names) if single else {})


def _sort_digests(rows: Sequence[_BucketRow]) -> list[tuple[str, ...]]:
    return sorted(tuple(digest or "" for digest in row.digests) for row in rows)


def _pair_values(left: _BucketRow, right: _BucketRow, names: Sequence[str]) -> dict[str, tuple[str | None, str | None]]:
    pairs = zip(names, left.digests, right.digests, left.values, right.values, strict=True)
    return {name: (one, other) for name, ours, theirs, one, other in pairs if ours != theirs}


def _read_buckets(side: Side, columns: TypedColumns, at: Sequence[int], buckets: int) -> dict[int, tuple[int, int]]:
    """Read the number of rows of each bucket, and their checksum."""
    digested = checksums.build_digest_query(side.dialect, side.relation, columns)
    whole = checksums.digest_row(range(len(columns)))
    query = f"SELECT {checksums.digest_row(at)} AS k, {whole} AS whole FROM ({digested})"
    numbers = (
        f"SELECT {_build_bucket(side, 'k', buckets)} AS bucket, {side.dialect.number('whole')} AS whole FROM ({query})"
    )
    sums = f"SELECT bucket, count(*), {checksums.split_halves('whole')} FROM ({numbers}) GROUP BY bucket"
    return {bucket: (count, checksums.join_halves(high, low)) for bucket, count, high, low in side.rows(sums)}


def _read_rows(
    side: Side, columns: TypedColumns, at: Sequence[int], buckets: int, bucket: int
) -> dict[str, list[_BucketRow]]:
    """Return the rows of a bucket by the MD5 of their key."""
    dialect = side.dialect
    shown = [
        f"{dialect.show_value(type_, dialect.identifier(name))} AS v{at}" for at, (name, type_) in enumerate(columns)
    ]
    digests = checksums.build_digest_query(dialect, side.relation, columns, *shown)
    keyed = f"SELECT *, {checksums.digest_row(at)} AS k FROM ({digests})"
    found = side.rows(f"SELECT * FROM ({keyed}) WHERE {_build_bucket(side, 'k', buckets)} = {bucket}")
    rows: dict[str, list[_BucketRow]] = defaultdict(list)
    for *values, key in found:
        rows[str(key)].append(_BucketRow(values[: len(columns)], values[len(columns) :]))
    return rows


def _build_bucket(side: Side, digest: str, buckets: int) -> str:
    return f"{side.dialect.number(digest)} % {buckets}"
