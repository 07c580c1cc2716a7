"""Rows into a table, exactly once, and those that can't be into its quarantine: what ingest and streams share.

The good rows are committed first, in one pass over the source that counts the bad ones, where there can be any. If
there are, a second pass commits those to quarantine. Either commit happens once for each epoch of a run, and a run that
died in between goes on where it was.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from duckicelake.errors import BadColumn, BadInput
from duckicelake.pipeline.columns import Change, by_name, joined
from duckicelake.pipeline.constraints import constraints_on
from duckicelake.pipeline.destination import Load
from duckicelake.pipeline.judging import any_of, flaws_of, judged, records_of, watched
from duckicelake.pipeline.reading import Group
from duckicelake.pipeline.targets import change, is_partitioned
from duckicelake.pipeline.writing import Epoch, Run, write_once
from duckicelake.rest.client import CatalogClient

_ONE = StructType([])


@dataclass(frozen=True, slots=True)
class Loaded:
    """What came of it: the runs as the catalog knows them, None of a quarantine that wasn't needed."""

    run: Run
    quarantined: Run | None


def load(
    spark: SparkSession,
    client: CatalogClient,
    how: Load,
    epoch: Epoch,
    groups: Sequence[Group],
    *,
    columns: StructType | None,
    given: StructType | None = None,
) -> Loaded:
    """Write what isn't written yet. columns: the table's, None if it isn't there; given: what the source should have.

    BadColumn before anything is written if the columns don't fit.
    """
    wanted, changes = _wanted(how, groups, columns, given)
    keys = _keys(how, groups, wanted)
    aside = quarantine_epoch(how, epoch)
    run, quarantined = epoch.done(client, how.target), aside.done(client, how.quarantine)
    if columns is not None:
        change(spark, how.target, changes)
    if how.mode == "overwrite-partitions" and not is_partitioned(client, how.target):
        raise BadInput(f"{how.target} has no partitions that could be overwritten: --mode overwrite replaces all")
    written = _written(how, groups, wanted)
    checks = {} if columns is None else constraints_on(spark, client, how.target, wanted, written)
    flaws = flaws_of(groups, wanted, keys, checks)
    bad = None if flaws else 0
    with _looked_at_twice(groups, wanted, keys, flaws) as (rows, told):
        if run is None:
            made_of = wanted if columns is None else None
            good, count = watched(rows, flaws, written)
            run, came_through = write_once(client, how.target, good, epoch, how.mode, keys, made_of=made_of)
            bad = count() if came_through else bad
        if quarantined is None and bad != 0:
            records = records_of(told.where(any_of(flaws)), epoch, wanted, keys, checks)
            if bad is not None or records.take(1):
                is_there = client.table_exists(how.quarantine.namespace, how.quarantine.table)
                made_of = None if is_there else records.schema
                quarantined, _ = write_once(client, how.quarantine, records, aside, "append", made_of=made_of)
    return Loaded(run, quarantined)


@contextmanager
def _looked_at_twice(
    groups: Sequence[Group], wanted: StructType, keys: Sequence[str], flaws: Sequence[Column]
) -> Iterator[tuple[DataFrame, DataFrame]]:
    """The rows to be written, and the same to be told of: what may change is kept for the block if any may be bad.

    Where files are read twice, the first look leaves out what only bad rows need.
    """
    told = judged(groups, wanted, keys, is_told=True)
    if not flaws or not any(group.may_change for group in groups):
        yield judged(groups, wanted, keys, is_told=False), told
        return
    kept = told.persist(StorageLevel.DISK_ONLY)
    try:
        yield kept, kept
    finally:
        kept.unpersist()


def quarantine_epoch(how: Load, epoch: Epoch) -> Epoch:
    """The same in the quarantine, which tables may share: their runs there are told apart even if they have one id."""
    return replace(epoch, run_id=f"{epoch.run_id} of {how.target}")


def _wanted(
    how: Load, groups: Sequence[Group], columns: StructType | None, given: StructType | None
) -> tuple[StructType, list[Change]]:
    """The table's columns as they must be, and the changes that make them so."""
    changes: list[Change] = []
    wanted = columns or _ONE
    if given is not None:
        for group in groups:
            _check_given(given, group.schema)
        wanted, changes = joined(wanted, given, may_change=how.may_change or columns is None)
    for group in groups:
        wanted, more = joined(wanted, group.schema, may_change=how.may_change or columns is None)
        changes += more
    return wanted, changes


def _check_given(given: StructType, found: StructType) -> None:
    missing = [each.name for each in found.fields if each.name.lower() not in by_name(given)]
    if missing:
        raise BadColumn(f"--schema leaves out {', '.join(missing)}: it names all columns of the source")
    joined(given, found, may_change=False)


def _keys(how: Load, groups: Sequence[Group], wanted: StructType) -> tuple[str, ...]:
    """The keys of a merge, in the table's spelling. BadColumn unless all files have the same columns, keys among them.

    Else matched rows would lose what their own file doesn't have a column for.
    """
    if how.mode != "merge":
        return ()
    has = by_name(wanted)
    shapes = [frozenset(by_name(group.schema)) for group in groups]
    uneven = frozenset[str]().union(*shapes) - frozenset(has).intersection(*shapes)
    if uneven:
        names = ", ".join(each.name for each in wanted.fields if each.name.lower() in uneven)
        raise BadColumn(
            f"Only some of the files have {names}, so a merge can't tell what the others leave as it is: "
            "merge files with other columns in runs of their own"
        )
    missing = [key for key in how.keys if any(key.lower() not in shape for shape in (has, *shapes))]
    if missing:
        where = how.target if missing[0].lower() not in has else "the source"
        raise BadColumn(f"--key {', '.join(missing)}: {where} has no such column, but {', '.join(wanted.names)}")
    return tuple(has[key.lower()].name for key in how.keys)


def _written(how: Load, groups: Sequence[Group], wanted: StructType) -> list[str]:
    """The columns that are written: a merge leaves those alone that no group has."""
    come = {name for group in groups for name in by_name(group.schema)}
    return [name for name in wanted.names if how.mode != "merge" or name.lower() in come]
