"""Separate rows that a table takes from bad rows, and build the records of the quarantine."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from duckicelake.pipeline.columns import fit_value, index_by_name
from duckicelake.pipeline.destination import Target
from duckicelake.pipeline.epoch import Epoch
from duckicelake.pipeline.java import Jvm
from duckicelake.pipeline.reader import FILE_COLUMN, PROBLEM_COLUMN, RECORD_COLUMN, SourceGroup
from duckicelake.properties import CONSTRAINT_PREFIX
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.names import quote_name

ValueTest = Callable[[Column], Column]
_KEY_COLUMN = "__in_key"


def list_demands(columns: StructType, keys: Collection[str] = ()) -> Iterator[tuple[str, Column]]:
    """Yield the name of each value that must be there, and whether a row lacks it, which is never null.

    Keys must be, too.
    """
    for field in columns.fields:
        column = F.col(quote_name(field.name))
        if not field.nullable or field.name in keys:
            yield field.name, column.isNull()
        for name, lacks in _list_inner_demands(field.name, field.dataType):
            yield name, column.isNotNull() & lacks(column)


def _list_inner_demands(name: str, given: DataType) -> Iterator[tuple[str, ValueTest]]:
    """Yield what values of the type, which aren't null themselves, may lack."""
    if isinstance(given, StructType):
        for field in given.fields:
            yield from _list_part_demands(
                f"{name}.{field.name}", field.dataType, field.nullable, _get_field(field.name)
            )
    elif isinstance(given, ArrayType):
        for inner, lacks in _list_part_demands(f"{name}.element", given.elementType, given.containsNull, _get_itself):
            yield inner, _test_any(lacks, _get_itself)
    elif isinstance(given, MapType):
        for inner, lacks in _list_part_demands(f"{name}.value", given.valueType, given.valueContainsNull, _get_itself):
            yield inner, _test_any(lacks, F.map_values)


def _list_part_demands(name: str, given: DataType, nullable: bool, part: ValueTest) -> Iterator[tuple[str, ValueTest]]:
    if not nullable:
        yield name, lambda value: part(value).isNull()
    for inner, lacks in _list_inner_demands(name, given):
        yield inner, _test_if_present(part, lacks)


def _test_if_present(part: ValueTest, lacks: ValueTest) -> ValueTest:
    return lambda value: part(value).isNotNull() & lacks(part(value))


def _test_any(lacks: ValueTest, items: ValueTest) -> ValueTest:
    return lambda value: F.exists(items(value), lacks)


def _get_field(name: str) -> ValueTest:
    return lambda value: value.getField(name)


def _get_itself(value: Column) -> Column:
    return value


def read_table_constraints(
    spark: SparkSession, client: CatalogClient, target: Target, columns: StructType, written: Sequence[str]
) -> dict[str, str]:
    """Return the texts of the table's constraints over columns that are written, by name.

    The catalog judges the others.
    """
    metadata = client.load_table(target.namespace, target.table, "refs")["metadata"]
    properties: Mapping[str, str] = metadata.get("properties", {})
    found = {
        key.removeprefix(CONSTRAINT_PREFIX): text
        for key, text in properties.items()
        if key.startswith(CONSTRAINT_PREFIX)
    }
    if not found:
        return {}
    come = spark.createDataFrame([], StructType([field for field in columns.fields if field.name in set(written)]))

    def resolves(text: str) -> bool:
        try:
            come.select(F.expr(text))
        except AnalysisException:
            return False
        return True

    return {name: text for name, text in found.items() if resolves(text)}


def build_violation_test(text: str) -> Column:
    """Return whether a row violates a constraint, which is never null.

    NULL is a violation, too, and so is an overflow.
    """
    condition: Any = F.expr(text)
    tried = Jvm(SparkSession.active()).try_value(condition._jc)  # noqa: SLF001
    return ~F.coalesce(Column(tried), F.lit(False))


def join_fitted_rows(
    groups: Sequence[SourceGroup], wanted: StructType, keys: Sequence[str], *, has_problems: bool
) -> DataFrame:
    """Select the columns of the table and those that mark bad rows; FILE and PROBLEM too if `has_problems`."""
    rows = reduce(DataFrame.unionByName, (_fit_group(group, wanted, has_problems=has_problems) for group in groups))
    if not keys:
        return rows
    is_read = F.when(F.col(RECORD_COLUMN).isNull(), 1)
    return rows.withColumn(_KEY_COLUMN, F.count(is_read).over(Window.partitionBy(*map(quote_name, keys))))


def _fit_group(group: SourceGroup, wanted: StructType, *, has_problems: bool) -> DataFrame:
    has = index_by_name(group.schema)
    values = [
        F.lit(None).cast(field.dataType).alias(field.name)
        if (found := has.get(field.name.lower())) is None
        else fit_value(F.col(quote_name(found.name)), found.dataType, field.dataType).alias(field.name)
        for field in wanted.fields
    ]
    problem_columns = (group.file.alias(FILE_COLUMN), group.problem.alias(PROBLEM_COLUMN)) if has_problems else ()
    return group.read().select(*values, RECORD_COLUMN, *problem_columns)


def list_flaws(
    groups: Sequence[SourceGroup], wanted: StructType, keys: Sequence[str], checks: Mapping[str, str]
) -> list[Column]:
    """Return what makes a row a bad one, each never null; none if there can't be any."""
    unread = [F.col(RECORD_COLUMN).isNotNull()] if any(group.may_be_unreadable for group in groups) else []
    several = [F.col(_KEY_COLUMN) > 1] if keys else []
    return [
        *unread,
        *(lacks for _, lacks in list_demands(wanted, keys)),
        *map(build_violation_test, checks.values()),
        *several,
    ]


def combine_flaws(flaws: Sequence[Column]) -> Column:
    return reduce(Column.__or__, flaws)


def select_good_rows(
    rows: DataFrame, flaws: Sequence[Column], written: Sequence[str]
) -> tuple[DataFrame, Callable[[], int | None]]:
    """Return the good rows that are written and, once they are, the number of bad ones.

    Rows are tested twice, which costs less than to copy each once more with a column for the result.
    """
    columns = list(map(quote_name, written))
    if not flaws:
        return rows.select(*columns), lambda: 0
    observed = Observation()
    counted = rows.observe(observed, F.count(F.when(combine_flaws(flaws), 1)).alias("bad"))
    return counted.where(~combine_flaws(flaws)).select(*columns), lambda: _read_observation(observed)


def _read_observation(observation: Observation) -> int | None:
    """Return how many bad ones.

    None where Spark has left the counting out, as it does where it finds that no row is good.
    """
    try:
        return observation.get.get("bad")
    except Py4JJavaError:
        return None


def _build_reason(wanted: StructType, keys: Sequence[str], checks: Mapping[str, str]) -> Column:
    required = [
        F.when(F.col(RECORD_COLUMN).isNull() & lacks, F.lit(f"{name} must have a value"))
        for name, lacks in list_demands(wanted, keys)
    ]
    required += [
        F.when(
            F.col(RECORD_COLUMN).isNull() & build_violation_test(text),
            F.lit(f"it violates the constraint {name} ({text})"),
        )
        for name, text in checks.items()
    ]
    key = ", ".join(keys)
    several = (
        [F.when(F.col(_KEY_COLUMN) > 1, F.concat(F.col(_KEY_COLUMN), F.lit(f" records have this {key}")))]
        if keys
        else []
    )
    return F.concat_ws("; ", F.when(F.col(RECORD_COLUMN).isNotNull(), F.col(PROBLEM_COLUMN)), *required, *several)


def build_quarantine_records(
    bad: DataFrame, epoch: Epoch, wanted: StructType, keys: Sequence[str], checks: Mapping[str, str]
) -> DataFrame:
    """Return bad rows as the quarantine keeps them."""
    as_json = F.to_json(F.struct(*map(quote_name, wanted.names)))
    return bad.select(
        F.lit(epoch.run_id).alias("run_id"),
        F.lit(epoch.number).cast("long").alias("epoch"),
        F.col(FILE_COLUMN).alias("source"),
        F.coalesce(F.col(RECORD_COLUMN), as_json).alias("record"),
        _build_reason(wanted, keys, checks).alias("reason"),
        F.current_timestamp().alias("quarantined_at"),
    )
