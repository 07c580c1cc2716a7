"""PURE. A CHECK constraint in DuckDB's SQL, which checks rows by it: a row violates it unless it is TRUE."""

from typing import Final

from duckicelake.bridge.constraints.tree import (
    Arithmetic,
    Call,
    Column,
    Compare,
    Condition,
    Constant,
    IsNull,
    Kind,
    Like,
    Logic,
    Not,
    Truth,
    Value,
)
from duckicelake.bridge.transpile.dialects import DUCKDB
from duckicelake.iceberg.calendar import format_date, format_timestamp

_CAST: Final = {Kind.WHOLE: "CAST({} AS BIGINT)", Kind.DOUBLE: "CAST({} AS DOUBLE)", Kind.FLOAT: "CAST({} AS FLOAT)"}


def condition_sql(node: Condition) -> str:
    """The condition over columns of a relation called `r`."""
    match node:
        case Compare():
            return f"({_value(node.left)} {node.sign} {_value(node.right)})"
        case Like():
            return f"({_value(node.value)} LIKE {DUCKDB.text(node.pattern)})"
        case IsNull():
            return f"({_value(node.value)} IS NULL)"
        case Truth():
            return _value(node.value)
        case Not():
            return f"(NOT {condition_sql(node.part)})"
        case Logic():
            return f"({f' {node.word} '.join(map(condition_sql, node.parts))})"


def _value(node: Value) -> str:
    match node:
        case Column():
            return ".".join(("r", *map(DUCKDB.quoted, node.path)))
        case Constant():
            return _constant(node)
        case Arithmetic():
            left, right = (_CAST[node.kind].format(_value(each)) for each in (node.left, node.right))
            return f"TRY({left} {node.sign} {right})"
        case Call() if node.name == "abs" and node.kind is Kind.WHOLE:
            return f"TRY(abs({_CAST[Kind.WHOLE].format(_value(node.arguments[0]))}))"
        case Call():
            return f"{node.name}({', '.join(map(_value, node.arguments))})"


def _constant(node: Constant) -> str:
    match node.kind:
        case Kind.TEXT:
            return DUCKDB.text(node.value)
        case Kind.BOOLEAN:
            return str(node.value).upper()
        case Kind.DATE:
            return f"CAST('{format_date(node.value)}' AS DATE)"
        case Kind.TIMESTAMP:
            return f"CAST('{_time(node.value)}' AS TIMESTAMP)"
        case Kind.ZONED:
            return f"CAST('{_time(node.value)}+00' AS TIMESTAMPTZ)"
        case Kind.DECIMAL:
            return f"{node.value:f}"
    return _CAST[node.kind].format(f"'{node.value}'")


def _time(micros: int) -> str:
    return format_timestamp(micros, 6).replace("T", " ")
