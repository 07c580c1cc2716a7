"""Rows in memory by a table's CHECK constraints, evaluated by DuckDB; all or nothing."""

from collections.abc import Sequence
from functools import cache
from itertools import islice
from typing import Any

import duckdb
import pyarrow as pa

from duckicelake.bridge.constraints.properties import Constraint
from duckicelake.bridge.constraints.sql import condition_sql
from duckicelake.rows.batch import Batch
from duckicelake.rows.problems import MISSING, MOST_NAMED, MisfitError, Problem, problem, refuse, shown


def check_rows(constraints: Sequence[Constraint], batch: Batch) -> None:
    """InvalidRequest naming the first rows that violate a constraint, each with what it has in its columns."""
    if not constraints or not batch.num_rows:
        return
    names = {column.path[0] for constraint in constraints for column in constraint.columns}
    table = batch.table.select(sorted(names))
    verdicts = _verdicts([condition_sql(each.condition) for each in constraints], table)
    problems: list[Problem] = []
    for constraint, kept in zip(constraints, verdicts, strict=True):
        violating = (row for row, is_kept in enumerate(kept) if not is_kept)
        problems += [_problem(constraint, table, row) for row in islice(violating, MOST_NAMED + 1)]
    refuse(problems)


def _verdicts(conditions: Sequence[str], table: pa.Table) -> list[list[bool]]:
    """For each condition, whether each row keeps it."""
    asked = ", ".join(f"bool_and(({each}) IS TRUE)" for each in conditions)
    told = ", ".join(f"({each}) IS TRUE AS c{index}" for index, each in enumerate(conditions))
    with _duckdb().cursor() as cursor:
        cursor.register("batch", table)
        if all(cursor.execute(f"SELECT {asked} FROM batch r").fetchone() or ()):
            return [[]] * len(conditions)
        found = cursor.execute(f"SELECT {told} FROM batch r").to_arrow_table()
    return [column.to_pylist() for column in found.columns]


def _problem(constraint: Constraint, table: pa.Table, row: int) -> Problem:
    found = {
        name: _value(table.column(name), row) for name in dict.fromkeys(each.path[0] for each in constraint.columns)
    }
    values = ", ".join(f"{name} is {shown(value)}" for name, value in found.items())
    return problem(row, None, MisfitError(MISSING, f"{values}, which violates the {constraint}"))


def _value(column: pa.ChunkedArray, row: int) -> Any:
    value = column[row].as_py()
    return value if value is None or isinstance(value, bool | int | float | str | dict) else str(value)


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    """One database of this process, which holds nothing; each use has a cursor of its own."""
    return duckdb.connect(config={"threads": 1})
