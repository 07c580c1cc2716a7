"""Skip files of a Delta table by the filters that DuckDB would push into a scan."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import duckdb

from duckicelake.delta.duckdb.log import build_partition_text
from duckicelake.delta.duckdb.types import format_pointer, format_type, quote_text
from duckicelake.delta.log.schema import DeltaField, DeltaPrimitive, DeltaType

_BOUNDED: Final = frozenset(
    {"string", "long", "integer", "short", "byte", "float", "double", "date", "timestamp", "timestamp_ntz"}
)
_FLOATING: Final = frozenset({"float", "double"})
_CUT: Final = frozenset({"timestamp", "timestamp_ntz"})
"""Types whose statistics have whole milliseconds."""
PlanNode = Mapping[str, Any]
_LINES: Final = re.compile(r"((?:'(?:[^']|'')*'|[^'\n])*)(?:\n|$)")
_HINT: Final = re.compile(r"('(?:[^']|'')*')|\boptional: ")
_MARK: Final = re.compile(r"delta_(\d+)_mark>0")
_OPERATORS: Final = {
    "COMPARE_EQUAL": "=",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
}
_OPPOSITE: Final = {
    "COMPARE_LESSTHAN": "COMPARE_GREATERTHANOREQUALTO",
    "COMPARE_GREATERTHAN": "COMPARE_LESSTHANOREQUALTO",
    "COMPARE_LESSTHANOREQUALTO": "COMPARE_GREATERTHAN",
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHAN",
    "COMPARE_NOTEQUAL": "COMPARE_EQUAL",
    "OPERATOR_IS_NULL": "OPERATOR_IS_NOT_NULL",
    "OPERATOR_IS_NOT_NULL": "OPERATOR_IS_NULL",
}
_WHOLE: Final = ("BIGINT", "INTEGER", "SMALLINT", "TINYINT")
_CASTS: Final = {"BIGINT": _WHOLE, "HUGEINT": _WHOLE, "DECIMAL": _WHOLE, "DOUBLE": _WHOLE, "TIMESTAMP": ("DATE",)}
"""By type, the types to which a cast keeps the order."""
_MIRRORED: Final = {"=": "=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """A log's facts about a column in a file, as SQL over `delta_live`. Unknown bounds and null counts are null."""

    type: str
    least: str
    greatest: str
    some_null: str
    all_null: str
    may_be_nan: bool = False


def build_partition_bounds(column: DeltaField) -> ColumnBounds:
    """Build the bounds of a partition column, which has one value in a file."""
    value = cast_partition_value(build_partition_text(column), column.type)
    return ColumnBounds(format_type(column.type), value, value, f"{value} IS NULL", f"{value} IS NULL")


def build_statistics_bounds(column: DeltaField) -> ColumnBounds:
    """Build the bounds of a column from a file's statistics; null if they lack it."""
    kind, text = column.type, format_type(column.type)
    nulls, rows = f"{_build_statistic('nullCount', column)}::BIGINT", "(stats ->> '/numRecords')::BIGINT"
    least, greatest = "NULL", "NULL"
    if not isinstance(kind, DeltaPrimitive) or kind.name in _BOUNDED:
        least = f"TRY_CAST({_build_statistic('minValues', column)} AS {text})"
        greatest = f"TRY_CAST({_build_statistic('maxValues', column)} AS {text})"
    if isinstance(kind, DeltaPrimitive) and kind.name in _CUT:
        greatest = f"({greatest} + INTERVAL 1 MILLISECOND)"
    floating = isinstance(kind, DeltaPrimitive) and kind.name in _FLOATING
    return ColumnBounds(text, least, greatest, f"{nulls} > 0", f"{nulls} = {rows}", floating)


def cast_partition_value(text: str, kind: DeltaType) -> str:
    """Cast a partition value to its type. text: SQL. Instants without a zone are in UTC."""
    if not isinstance(kind, DeltaPrimitive):
        return f"CAST({text} AS {format_type(kind)})"
    if kind.name == "binary":
        return f"encode({text})"
    if kind.name == "timestamp":
        zoned = f"regexp_matches({text}, '(Z|[+-][0-9]{{2}}(:?[0-9]{{2}})?)$') AND contains({text}, ':')"
        return f"CAST(CASE WHEN {zoned} THEN {text} ELSE {text} || '+00' END AS {format_type(kind)})"
    return f"CAST({text} AS {format_type(kind)})"


def _build_statistic(kind: str, column: DeltaField) -> str:
    return f"(stats ->> {quote_text(f'/{kind}{format_pointer(column.physical_name)}')})"


def read_scan_filters(connection: duckdb.DuckDBPyConnection, explained: str) -> Iterator[tuple[int, list[PlanNode]]]:
    """Yield for each scan of a call in a plan the call's number, and the scan's filters.

    Filters are the roots of expressions.
    """
    for above, node in _walk_nodes(json.loads(explained)):
        pieces = _join_pieces(node, "Filters")
        calls = [int(match[1]) for match in map(_MARK.fullmatch, pieces) if match]
        if calls:
            others = [piece for piece in pieces if not _MARK.fullmatch(piece)]
            others += _join_pieces(above, "Expression") if above.get("name") == "FILTER" else []
            yield calls[0], [found for piece in others for found in _parse_filters(connection, piece)]


def build_condition(scans: Sequence[Sequence[PlanNode]], columns: Sequence[ColumnBounds]) -> str:
    """Build a condition over `delta_live`: whether a file may have rows for any of the scans.

    Filters name columns by position.
    """
    return " OR ".join(f"({_join_and(scan, columns)})" for scan in scans) or "true"


def _walk_nodes(nodes: Sequence[PlanNode], above: PlanNode | None = None) -> Iterator[tuple[PlanNode, PlanNode]]:
    """Yield all operators of a plan, each with its parent."""
    for node in nodes:
        yield above or {}, node
        yield from _walk_nodes(node.get("children", ()), node)


def _join_pieces(node: PlanNode, key: str) -> list[str]:
    """Join filters that EXPLAIN has cut at every newline, also at newlines in literals."""
    filters = node.get("extra_info", {}).get(key, "")
    text = filters if isinstance(filters, str) else "\n".join(filters)
    pieces = [match[1].strip() for match in _LINES.finditer(text)]
    if len(pieces) == 1:
        pieces = re.split(r" AND (?=delta_\d+_mark>0$)|(?<=_mark>0) AND ", pieces[0])
    return [_HINT.sub(lambda match: match[1] or "", piece) for piece in pieces if piece]


def _parse_filters(connection: duckdb.DuckDBPyConnection, piece: str) -> list[PlanNode]:
    found = connection.execute("SELECT json_serialize_sql(?)", [f"SELECT 1 WHERE {piece}"]).fetchone()
    tree: Any = json.loads(found[0]) if found else {"error": True}
    return [] if tree["error"] or len(tree["statements"]) != 1 else [tree["statements"][0]["node"]["where_clause"]]


def _join_and(nodes: Sequence[PlanNode], columns: Sequence[ColumnBounds]) -> str:
    known = [found for node in nodes if (found := _may_match(node, columns)) is not None]
    return " AND ".join(f"({condition})" for condition in known) or "true"


def _join_or(parts: Sequence[str | None]) -> str | None:
    return None if None in parts else " OR ".join(f"({part})" for part in parts)


def _may_match(node: PlanNode, columns: Sequence[ColumnBounds]) -> str | None:
    """Build a condition that is false only for files in which no row can satisfy the expression.

    None if the expression rules out no file.
    """
    children = node.get("children", ())
    match node["type"]:
        case "CONJUNCTION_AND":
            return _join_and(children, columns)
        case "CONJUNCTION_OR":
            return _join_or([_may_match(child, columns) for child in children])
        case "OPERATOR_NOT":
            return _may_match(negated, columns) if (negated := _find_negated(children[0])) else None
        case "COMPARE_BETWEEN":
            return _join_and(_split_between(node), columns)
        case "COMPARE_IN":
            return _join_or([_build_comparison(children[0], "=", child, columns) for child in children[1:]])
        case "OPERATOR_IS_NULL" | "OPERATOR_IS_NOT_NULL":
            return _build_nullness(children[0], columns, wanted=node["type"] == "OPERATOR_IS_NULL")
        case kind if kind in _OPERATORS:
            operator = _OPERATORS[kind]
            straight = _build_comparison(node["left"], operator, node["right"], columns)
            return straight or _build_comparison(node["right"], _MIRRORED[operator], node["left"], columns)
    return None


def _split_between(node: PlanNode) -> list[PlanNode]:
    """Split BETWEEN into two comparisons."""
    ends = (("COMPARE_GREATERTHANOREQUALTO", node["lower"]), ("COMPARE_LESSTHANOREQUALTO", node["upper"]))
    return [{"type": kind, "left": node["input"], "right": end} for kind, end in ends]


def _find_negated(node: PlanNode) -> PlanNode | None:
    """Negate an expression without NOT; None if that isn't simple."""
    match node["type"]:
        case "OPERATOR_NOT":
            return cast("PlanNode", node["children"][0])
        case "CONJUNCTION_AND" | "CONJUNCTION_OR" as kind:
            other = "CONJUNCTION_OR" if kind == "CONJUNCTION_AND" else "CONJUNCTION_AND"
            return {"type": other, "children": [{"type": "OPERATOR_NOT", "children": [x]} for x in node["children"]]}
        case kind if kind in _OPPOSITE:
            return {**node, "type": _OPPOSITE[kind]}
    return None


def _build_nullness(node: PlanNode, columns: Sequence[ColumnBounds], *, wanted: bool) -> str | None:
    bounds = _find_bounds(node, columns)
    if bounds is None:
        return None
    return f"coalesce({bounds.some_null}, true)" if wanted else f"coalesce(NOT ({bounds.all_null}), true)"


def _build_comparison(
    column: PlanNode, operator: str, constant: PlanNode, columns: Sequence[ColumnBounds]
) -> str | None:
    bounds, literal = _find_bounds(column, columns), _format_literal(constant)
    if bounds is None or literal is None:
        return None
    value = f"CAST({literal} AS {bounds.type})"
    parts = [f"coalesce(NOT ({bounds.all_null}), true)"]
    if operator in ("=", "<", "<="):
        parts.append(f"coalesce({bounds.least} {'<=' if operator == '=' else operator} {value}, true)")
    if operator in ("=", ">", ">="):
        above = f"coalesce({bounds.greatest} {'>=' if operator == '=' else operator} {value}, true)"
        parts.append(f"({above} OR {_can_match_nan(operator, value)})" if bounds.may_be_nan else above)
    return " AND ".join(parts)


def _can_match_nan(operator: str, value: str) -> str:
    """Return whether the comparison is true for NaN, which statistics ignore and DuckDB orders above all else."""
    return f"isnan({value})" if operator == "=" else "true"


def _find_bounds(node: PlanNode, columns: Sequence[ColumnBounds]) -> ColumnBounds | None:
    """Find the bounds of a column, or of a column cast to a type with the same order."""
    if node["class"] == "CAST" and not node.get("try_cast"):
        inner, kind = _find_bounds(node["child"], columns), _CASTS.get(node["cast_type"]["id"])
        if inner is None or kind is None or inner.type not in kind:
            return None
        text = _find_type(node["cast_type"])
        least, greatest = (f"TRY_CAST({bound} AS {text})" for bound in (inner.least, inner.greatest))
        return replace(inner, type=text, least=least, greatest=greatest)
    if node["class"] != "COLUMN_REF" or len(node["column_names"]) != 1:
        return None
    position = node["column_names"][0].rpartition("_")[2]
    return columns[int(position)] if position.isdecimal() else None


def _find_type(node: PlanNode) -> str:
    info = node.get("type_info") or {}
    return f"DECIMAL({info['width']}, {info['scale']})" if node["id"] == "DECIMAL" else str(node["id"])


def _format_literal(node: PlanNode) -> str | None:
    """Format a constant as SQL; None if it isn't a plain one.

    Its type is that of the compared column.
    """
    if node["class"] == "CAST":
        return _format_literal(node["child"])
    if node["class"] != "CONSTANT" or node["value"]["is_null"]:
        return None
    value, kind = node["value"]["value"], node["value"]["type"]
    match value:
        case bool() | float():
            return f"'{str(value).lower()}'"
        case int() if kind["id"] == "DECIMAL":
            return f"'{value}e-{kind['type_info']['scale']}'::DECIMAL(38, {kind['type_info']['scale']})"
        case int():
            return str(value)
        case str():
            return quote_text(value)
    return None
