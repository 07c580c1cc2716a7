"""Which rows of a source are good, how many aren't, and the latter as the quarantine keeps them, with the reason."""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame, Observation, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from duckicelake.pipeline.columns import by_name, fitted
from duckicelake.pipeline.constraints import violates
from duckicelake.pipeline.demands import demands
from duckicelake.pipeline.reading import FILE, PROBLEM, RECORD, Group
from duckicelake.pipeline.writing import Epoch
from duckicelake.rest.names import quoted

_IN_KEY = "__in_key"


def judged(groups: Sequence[Group], wanted: StructType, keys: Sequence[str], *, is_told: bool) -> DataFrame:
    """All rows by the table's columns, with what tells whether they are good; and FILE and PROBLEM if `is_told`."""
    rows = reduce(DataFrame.unionByName, (_fitted(group, wanted, is_told=is_told) for group in groups))
    if not keys:
        return rows
    is_read = F.when(F.col(RECORD).isNull(), 1)
    return rows.withColumn(_IN_KEY, F.count(is_read).over(Window.partitionBy(*map(quoted, keys))))


def _fitted(group: Group, wanted: StructType, *, is_told: bool) -> DataFrame:
    has = by_name(group.schema)
    values = [
        F.lit(None).cast(each.dataType).alias(each.name)
        if (found := has.get(each.name.lower())) is None
        else fitted(F.col(quoted(found.name)), found.dataType, each.dataType).alias(each.name)
        for each in wanted.fields
    ]
    told = (group.file.alias(FILE), group.problem.alias(PROBLEM)) if is_told else ()
    return group.read().select(*values, RECORD, *told)


def flaws_of(
    groups: Sequence[Group], wanted: StructType, keys: Sequence[str], checks: Mapping[str, str]
) -> list[Column]:
    """What makes a row a bad one, each never null; none if there can't be any."""
    unread = [F.col(RECORD).isNotNull()] if any(group.may_be_unreadable for group in groups) else []
    several = [F.col(_IN_KEY) > 1] if keys else []
    return [*unread, *(lacks for _, lacks in demands(wanted, keys)), *map(violates, checks.values()), *several]


def any_of(flaws: Sequence[Column]) -> Column:
    return reduce(Column.__or__, flaws)


def watched(
    rows: DataFrame, flaws: Sequence[Column], written: Sequence[str]
) -> tuple[DataFrame, Callable[[], int | None]]:
    """Of the good rows what is written; and once it is, how many bad ones there were.

    Bad ones are told twice, which costs less than to copy every row once more with a column that says so.
    """
    columns = list(map(quoted, written))
    if not flaws:
        return rows.select(*columns), lambda: 0
    observed = Observation()
    counted = rows.observe(observed, F.count(F.when(any_of(flaws), 1)).alias("bad"))
    return counted.where(~any_of(flaws)).select(*columns), lambda: _observed(observed)


def _observed(observation: Observation) -> int | None:
    """How many bad ones; None where Spark has left the counting out, as it does where it finds that no row is good."""
    try:
        return observation.get.get("bad")
    except Py4JJavaError:
        return None


def _reason(wanted: StructType, keys: Sequence[str], checks: Mapping[str, str]) -> Column:
    required = [
        F.when(F.col(RECORD).isNull() & lacks, F.lit(f"{name} must have a value"))
        for name, lacks in demands(wanted, keys)
    ]
    required += [
        F.when(F.col(RECORD).isNull() & violates(text), F.lit(f"it violates the constraint {name} ({text})"))
        for name, text in checks.items()
    ]
    key = ", ".join(keys)
    several = [F.when(F.col(_IN_KEY) > 1, F.concat(F.col(_IN_KEY), F.lit(f" records have this {key}")))] if keys else []
    return F.concat_ws("; ", F.when(F.col(RECORD).isNotNull(), F.col(PROBLEM)), *required, *several)


def records_of(
    bad: DataFrame, epoch: Epoch, wanted: StructType, keys: Sequence[str], checks: Mapping[str, str]
) -> DataFrame:
    """Bad rows as the quarantine keeps them."""
    as_json = F.to_json(F.struct(*map(quoted, wanted.names)))
    return bad.select(
        F.lit(epoch.run_id).alias("run_id"),
        F.lit(epoch.number).cast("long").alias("epoch"),
        F.col(FILE).alias("source"),
        F.coalesce(F.col(RECORD), as_json).alias("record"),
        _reason(wanted, keys, checks).alias("reason"),
        F.current_timestamp().alias("quarantined_at"),
    )
