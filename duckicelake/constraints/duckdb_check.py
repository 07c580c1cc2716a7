"""PURE. Check rows in memory by CHECK constraints that DuckDB evaluates: all rows or none."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import duckdb

from duckicelake.constraints.condition import (
    ArithmeticTerm,
    Compare,
    Condition,
    ConstraintColumn,
    ConstraintConstant,
    FunctionCall,
    IsNull,
    Kind,
    Like,
    Logic,
    NotCondition,
    Term,
    Truth,
)
from duckicelake.constraints.definition import Constraint
from duckicelake.extras import DeferredModule
from duckicelake.iceberg.calendar import format_date, format_timestamp
from duckicelake.rows.problems import (
    MAX_NAMED_ROWS,
    MISSING,
    MisfitError,
    RowProblem,
    make_problem,
    refuse_problems,
    render_value,
)
from duckicelake.rows.row_batch import Batch
from duckicelake.sql_dialects.dialects import DUCKDB

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = DeferredModule("pyarrow")


_CASTS: Final = {Kind.WHOLE: "CAST({} AS BIGINT)", Kind.DOUBLE: "CAST({} AS DOUBLE)", Kind.FLOAT: "CAST({} AS FLOAT)"}


def render_condition(node: Condition) -> str:
    """Build the SQL condition over columns of a relation called `r`."""
    match node:
        case Compare():
            return f"({_render_value(node.left)} {node.sign} {_render_value(node.right)})"
        case Like():
            return f"({_render_value(node.value)} LIKE {DUCKDB.text(node.pattern)})"
        case IsNull():
            return f"({_render_value(node.value)} IS NULL)"
        case Truth():
            return _render_value(node.value)
        case NotCondition():
            return f"(NOT {render_condition(node.part)})"
        case Logic():
            return f"({f' {node.word} '.join(map(render_condition, node.parts))})"


def _render_value(node: Term) -> str:
    match node:
        case ConstraintColumn():
            return ".".join(("r", *map(DUCKDB.quote_name, node.path)))
        case ConstraintConstant():
            return _render_constant(node)
        case ArithmeticTerm():
            left, right = (_CASTS[node.kind].format(_render_value(operand)) for operand in (node.left, node.right))
            return f"TRY({left} {node.sign} {right})"
        case FunctionCall() if node.name == "abs" and node.kind is Kind.WHOLE:
            return f"TRY(abs({_CASTS[Kind.WHOLE].format(_render_value(node.arguments[0]))}))"
        case FunctionCall():
            return f"{node.name}({', '.join(map(_render_value, node.arguments))})"


def _render_constant(node: ConstraintConstant) -> str:
    match node.kind:
        case Kind.TEXT:
            return DUCKDB.text(node.value)
        case Kind.BOOLEAN:
            return str(node.value).upper()
        case Kind.DATE:
            return f"CAST('{format_date(node.value)}' AS DATE)"
        case Kind.TIMESTAMP:
            return f"CAST('{_render_time(node.value)}' AS TIMESTAMP)"
        case Kind.ZONED:
            return f"CAST('{_render_time(node.value)}+00' AS TIMESTAMPTZ)"
        case Kind.DECIMAL:
            return f"{node.value:f}"
    return _CASTS[node.kind].format(f"'{node.value}'")


def _render_time(micros: int) -> str:
    return format_timestamp(micros, 6).replace("T", " ")


def check_row_constraints(constraints: Sequence[Constraint], batch: Batch) -> None:
    """Raise InvalidRequestError naming the first rows that violate a constraint, with their values."""
    if not constraints or not batch.num_rows:
        return
    names = {column.path[0] for constraint in constraints for column in constraint.columns}
    table = batch.table.select(sorted(names))
    verdicts = _evaluate_conditions([render_condition(constraint.condition) for constraint in constraints], table)
    problems: list[RowProblem] = []
    for constraint, kept in zip(constraints, verdicts, strict=True):
        violating = (row for row, is_kept in enumerate(kept) if not is_kept)
        problems += [_build_problem(constraint, table, row) for row in islice(violating, MAX_NAMED_ROWS + 1)]
    refuse_problems(problems)


def _evaluate_conditions(conditions: Sequence[str], table: pa.Table) -> list[list[bool]]:
    """Evaluate conditions; returns for each whether each row satisfies it."""
    asked = ", ".join(f"bool_and(({condition}) IS TRUE)" for condition in conditions)
    checks = ", ".join(f"({condition}) IS TRUE AS c{index}" for index, condition in enumerate(conditions))
    with _open_duckdb().cursor() as cursor:
        cursor.register("batch", table)
        (kept,) = cursor.execute(f"SELECT {asked} FROM batch r").fetchall()
        if all(kept):
            return [[]] * len(conditions)
        found = cursor.sql(f"SELECT {checks} FROM batch r").to_arrow_table()
    return [column.to_pylist() for column in found.columns]


def _build_problem(constraint: Constraint, table: pa.Table, row: int) -> RowProblem:
    found = {
        name: _format_value(table.column(name), row)
        for name in dict.fromkeys(column.path[0] for column in constraint.columns)
    }
    values = ", ".join(f"{name} is {render_value(value)}" for name, value in found.items())
    return make_problem(row, None, MisfitError(MISSING, f"{values}, which violates the {constraint}"))


def _format_value(column: pa.ChunkedArray, row: int) -> Any:
    value = column[row].as_py()
    return value if value is None or isinstance(value, bool | int | float | str | dict) else str(value)


@cache
def _open_duckdb() -> duckdb.DuckDBPyConnection:
    """Open the only, empty database of this process; each use has a cursor of its own."""
    return duckdb.connect(config={"threads": 1})
