"""Load rows into a table and bad rows into its quarantine, once for each epoch of a run."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from duckicelake.errors import BadColumnError, BadInputError
from duckicelake.maintenance.layout import parse_partitions, parse_sort_keys, read_partitions, read_sort_keys
from duckicelake.pipeline.columns import ColumnChange, index_by_name, join_columns
from duckicelake.pipeline.destination import LoadRequest, Target
from duckicelake.pipeline.epoch import CommittedRun, Epoch, build_quarantine_epoch
from duckicelake.pipeline.quarantine import (
    build_quarantine_records,
    combine_flaws,
    join_fitted_rows,
    list_flaws,
    read_table_constraints,
    select_good_rows,
)
from duckicelake.pipeline.reader import SourceGroup
from duckicelake.pipeline.table_writer import write_once
from duckicelake.rest.client import CatalogClient

_NO_COLUMNS = StructType([])


def read_columns(spark: SparkSession, client: CatalogClient, target: Target) -> StructType | None:
    """Return the table's columns, None if it isn't there.

    Raises BadInputError if it is laid out otherwise than was asked for.
    """
    partitions = None if target.partition_by is None else parse_partitions(target.partition_by)
    keys = None if target.sort_by is None else parse_sort_keys(target.sort_by)
    if not client.table_exists(target.namespace, target.table):
        return None
    metadata = client.load_table(target.namespace, target.table, "refs")["metadata"]
    if partitions is not None and partitions != read_partitions(metadata):
        raise BadInputError(
            f"{target} is there and isn't partitioned by {target.partition_by}: leave --partition-by away"
        )
    if keys is not None and keys != read_sort_keys(metadata):
        raise BadInputError(f"{target} is there and isn't sorted by {target.sort_by}: leave --sort-by away")
    return spark.table(target.sql).schema


def is_partitioned(client: CatalogClient, target: Target) -> bool:
    """Return whether the table is, or will be once it is there."""
    if target.partition_by is not None or not client.table_exists(target.namespace, target.table):
        return target.partition_by is not None
    return bool(read_partitions(client.load_table(target.namespace, target.table, "refs")["metadata"]))


def change_columns(spark: SparkSession, target: Target, changes: list[ColumnChange]) -> None:
    """Add and widen columns."""
    for change in changes:
        spark.sql(change.sql(target.sql))


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What came of it: the runs as the catalog knows them, None of a quarantine that wasn't needed."""

    run: CommittedRun
    quarantined: CommittedRun | None


def load_rows(
    spark: SparkSession,
    client: CatalogClient,
    how: LoadRequest,
    epoch: Epoch,
    groups: Sequence[SourceGroup],
    *,
    columns: StructType | None,
    given: StructType | None = None,
) -> LoadResult:
    """Write what isn't written yet. columns: the table's, None if it isn't there; given: what the source should have.

    BadColumnError before anything is written if the columns don't fit.
    """
    wanted, changes = _find_wanted_columns(how, groups, columns, given)
    keys = _find_merge_keys(how, groups, wanted)
    aside = build_quarantine_epoch(how, epoch)
    run, quarantined = epoch.done(client, how.target), aside.done(client, how.quarantine)
    if columns is not None:
        change_columns(spark, how.target, changes)
    if how.mode == "overwrite-partitions" and not is_partitioned(client, how.target):
        raise BadInputError(f"{how.target} has no partitions that could be overwritten: --mode overwrite replaces all")
    written = _list_written_columns(how, groups, wanted)
    checks = {} if columns is None else read_table_constraints(spark, client, how.target, wanted, written)
    flaws = list_flaws(groups, wanted, keys, checks)
    bad = None if flaws else 0
    with _open_both_passes(groups, wanted, keys, flaws) as (rows, described_rows):
        if run is None:
            made_of = wanted if columns is None else None
            good, count = select_good_rows(rows, flaws, written)
            run, came_through = write_once(client, how.target, good, epoch, how.mode, keys, made_of=made_of)
            bad = count() if came_through else bad
        if quarantined is None and bad != 0:
            records = build_quarantine_records(described_rows.where(combine_flaws(flaws)), epoch, wanted, keys, checks)
            if bad is not None or records.take(1):
                is_there = client.table_exists(how.quarantine.namespace, how.quarantine.table)
                made_of = None if is_there else records.schema
                quarantined, _ = write_once(client, how.quarantine, records, aside, "append", made_of=made_of)
    return LoadResult(run, quarantined)


@contextmanager
def _open_both_passes(
    groups: Sequence[SourceGroup], wanted: StructType, keys: Sequence[str], flaws: Sequence[Column]
) -> Iterator[tuple[DataFrame, DataFrame]]:
    """Yield the rows to be written, and the same to be reported.

    What may change is kept for the block if any may be bad.

    Where files are read twice, the first look leaves out what only bad rows need.
    """
    described_rows = join_fitted_rows(groups, wanted, keys, has_problems=True)
    if not flaws or not any(group.may_change for group in groups):
        yield join_fitted_rows(groups, wanted, keys, has_problems=False), described_rows
        return
    kept = described_rows.persist(StorageLevel.DISK_ONLY)
    try:
        yield kept, kept
    finally:
        kept.unpersist()


def _find_wanted_columns(
    how: LoadRequest, groups: Sequence[SourceGroup], columns: StructType | None, given: StructType | None
) -> tuple[StructType, list[ColumnChange]]:
    """Return the table's columns as they must be, and the changes that make them so."""
    changes: list[ColumnChange] = []
    wanted = columns or _NO_COLUMNS
    if given is not None:
        for group in groups:
            _check_given(given, group.schema)
        wanted, changes = join_columns(wanted, given, may_change=how.may_change or columns is None)
    for group in groups:
        wanted, more = join_columns(wanted, group.schema, may_change=how.may_change or columns is None)
        changes += more
    return wanted, changes


def _check_given(given: StructType, found: StructType) -> None:
    missing = [field.name for field in found.fields if field.name.lower() not in index_by_name(given)]
    if missing:
        raise BadColumnError(f"--schema leaves out {', '.join(missing)}: it names all columns of the source")
    join_columns(given, found, may_change=False)


def _find_merge_keys(how: LoadRequest, groups: Sequence[SourceGroup], wanted: StructType) -> tuple[str, ...]:
    """Return the keys of a merge, in the table's spelling.

    Raises BadColumnError unless all files have the same columns, keys among them.

    Else matched rows would lose what their own file doesn't have a column for.
    """
    if how.mode != "merge":
        return ()
    has = index_by_name(wanted)
    shapes = [frozenset(index_by_name(group.schema)) for group in groups]
    uneven = frozenset[str]().union(*shapes) - frozenset(has).intersection(*shapes)
    if uneven:
        names = ", ".join(field.name for field in wanted.fields if field.name.lower() in uneven)
        raise BadColumnError(
            f"Only some of the files have {names}, so a merge can't tell what the others leave as it is: "
            "merge files with other columns in runs of their own"
        )
    missing = [key for key in how.keys if any(key.lower() not in shape for shape in (has, *shapes))]
    if missing:
        where = how.target if missing[0].lower() not in has else "the source"
        raise BadColumnError(f"--key {', '.join(missing)}: {where} has no such column, but {', '.join(wanted.names)}")
    return tuple(has[key.lower()].name for key in how.keys)


def _list_written_columns(how: LoadRequest, groups: Sequence[SourceGroup], wanted: StructType) -> list[str]:
    """Return the columns that are written: a merge leaves those alone that no group has."""
    come = {name for group in groups for name in index_by_name(group.schema)}
    return [name for name in wanted.names if how.mode != "merge" or name.lower() in come]
