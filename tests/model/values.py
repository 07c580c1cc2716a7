"""Types and values of the model's columns: made at random, written as DuckDB's SQL, as plain Python and as Arrow."""

from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from random import Random
from typing import Any

from tests.model.model import Column, Row

POOLS: dict[str, tuple[Any, ...]] = {
    "int": (0, 1, -1, 7, 2**31 - 1, -(2**31)),
    "long": (0, 1, -1, 7, 2**31, 2**63 - 1, -(2**63)),
    "float": (0.0, 1.5, -2.25, 1e10, -0.125),
    "double": (0.0, 1.5, -2.25, 1e300, -0.1),
    "string": ("", "a", "b", "it's", "üñí", "%x/y=z", "long " * 9),
    "boolean": (True, False),
    "date": (date(1970, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(1, 1, 1), date(9999, 12, 31)),
    "timestamp": (datetime(1970, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2024, 2, 29, 12, 30)),
    "decimal(5, 2)": (Decimal("0.00"), Decimal("-999.99"), Decimal("12.30")),
    "decimal(9, 2)": (Decimal("0.00"), Decimal("-9999999.99"), Decimal("12.30")),
}
WIDER = {"int": "long", "float": "double", "decimal(5, 2)": "decimal(9, 2)"}
SQL_TYPES = {
    "int": "INTEGER",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "decimal(5, 2)": "DECIMAL(5, 2)",
    "decimal(9, 2)": "DECIMAL(9, 2)",
}


def some_value(column: Column, random: Random, *, required: bool = False, in_struct: bool = False) -> Any:
    """A value of the column's type, or None where it may be."""
    if not required and random.random() < 0.2:
        return None
    if column.children:
        return {child.key: some_value(child, random, in_struct=True) for child in column.children}
    pool = POOLS[column.type]
    # DuckDB loses quotes of texts in structs when it inlines them.
    return random.choice([value for value in pool if not (in_struct and isinstance(value, str) and "'" in value)])


def sql_type(column: Column) -> str:
    return f"STRUCT({definition(column.children)})" if column.children else SQL_TYPES[column.type]


def definition(columns: Iterable[Column]) -> str:
    """Names and types, as CREATE TABLE and STRUCT take them."""
    return ", ".join(f'"{column.name}" {sql_type(column)}' for column in columns)


def literal(column: Column, value: Any) -> str:
    """SQL that has the value and the column's type."""
    return f"CAST({_untyped(column, value)} AS {sql_type(column)})"


def _untyped(column: Column, value: Any) -> str:
    if value is None:
        return "NULL"
    if column.children:
        return "{" + ", ".join(f"'{c.name}': {literal(c, value[c.key])}" for c in column.children) + "}"
    return plain_literal(value)


def plain_literal(value: Any) -> str:
    """A value without a type of its own: DuckDB takes no expression as the default of a new column."""
    return str(value) if type(value) is int else "'" + str(value).replace("'", "''") + "'"


def tuples(columns: Iterable[Column], rows: Iterable[Row]) -> str:
    """Rows for VALUES."""
    known = list(columns)
    return ", ".join(f"({', '.join(literal(column, row[column.key]) for column in known)})" for row in rows)


def named(columns: Iterable[Column], row: Row) -> dict[str, Any]:
    """A row by the names of its columns, as PyArrow takes it."""
    return {column.name: _named(column, row[column.key]) for column in columns}


def _named(column: Column, value: Any) -> Any:
    return named(column.children, value) if column.children and value is not None else value
