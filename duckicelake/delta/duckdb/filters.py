"""Which files a statement can do without: what DuckDB would push into a scan, asked of a log's statistics.

DuckDB's optimizer decides what a statement asks of the rows of a scan; its EXPLAIN says so, in SQL. Columns of the
scans that it explains are called `delta_<call>_<position>`, and `delta_<call>_mark` is compared in each of them, so
that none is missed. What can't be understood here rules no file out.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

import duckdb

from duckicelake.delta.duckdb.bounds import Bounds
from duckicelake.delta.duckdb.types import quoted

Node = Mapping[str, Any]

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
"""By type, those whose values are in the same order as before when they are cast to it."""
_MIRRORED: Final = {"=": "=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


def scan_filters(connection: duckdb.DuckDBPyConnection, explained: str) -> Iterator[tuple[int, list[Node]]]:
    """The number of each call that a plan scans, and what all rows of the scan must be: the roots of expressions."""
    for above, node in _nodes(json.loads(explained)):
        pieces = _pieces(node, "Filters")
        calls = [int(match[1]) for match in map(_MARK.fullmatch, pieces) if match]
        if calls:
            others = [piece for piece in pieces if not _MARK.fullmatch(piece)]
            others += _pieces(above, "Expression") if above.get("name") == "FILTER" else []
            yield calls[0], [found for piece in others for found in _parsed(connection, piece)]


def condition(scans: Sequence[Sequence[Node]], columns: Sequence[Bounds]) -> str:
    """SQL over `delta_live`: whether a file may have rows for any of the scans; columns are by their positions."""
    return " OR ".join(f"({_all(scan, columns)})" for scan in scans) or "true"


def _nodes(nodes: Sequence[Node], above: Node | None = None) -> Iterator[tuple[Node, Node]]:
    """All operators of a plan, each with the one that takes its rows."""
    for node in nodes:
        yield above or {}, node
        yield from _nodes(node.get("children", ()), node)


def _pieces(node: Node, key: str) -> list[str]:
    """Filters as they were before EXPLAIN cut them at every newline, also at those of literals."""
    filters = node.get("extra_info", {}).get(key, "")
    text = filters if isinstance(filters, str) else "\n".join(filters)
    pieces = [match[1].strip() for match in _LINES.finditer(text)]
    if len(pieces) == 1:
        pieces = re.split(r" AND (?=delta_\d+_mark>0$)|(?<=_mark>0) AND ", pieces[0])
    return [_HINT.sub(lambda match: match[1] or "", piece) for piece in pieces if piece]


def _parsed(connection: duckdb.DuckDBPyConnection, piece: str) -> list[Node]:
    found = connection.execute("SELECT json_serialize_sql(?)", [f"SELECT 1 WHERE {piece}"]).fetchone()
    tree: Any = json.loads(found[0]) if found else {"error": True}
    return [] if tree["error"] or len(tree["statements"]) != 1 else [tree["statements"][0]["node"]["where_clause"]]


def _all(nodes: Sequence[Node], columns: Sequence[Bounds]) -> str:
    known = [found for node in nodes if (found := _may_hold(node, columns)) is not None]
    return " AND ".join(f"({each})" for each in known) or "true"


def _any(parts: Sequence[str | None]) -> str | None:
    return None if None in parts else " OR ".join(f"({each})" for each in parts)


def _may_hold(node: Node, columns: Sequence[Bounds]) -> str | None:
    """SQL that is false only for files none of whose rows can meet an expression; None if nothing can be said."""
    children = node.get("children", ())
    match node["type"]:
        case "CONJUNCTION_AND":
            return _all(children, columns)
        case "CONJUNCTION_OR":
            return _any([_may_hold(each, columns) for each in children])
        case "OPERATOR_NOT":
            return _may_hold(negated, columns) if (negated := _negated(children[0])) else None
        case "COMPARE_BETWEEN":
            return _all(_ends(node), columns)
        case "COMPARE_IN":
            return _any([_compared(children[0], "=", each, columns) for each in children[1:]])
        case "OPERATOR_IS_NULL" | "OPERATOR_IS_NOT_NULL":
            return _nullness(children[0], columns, wanted=node["type"] == "OPERATOR_IS_NULL")
        case kind if kind in _OPERATORS:
            operator = _OPERATORS[kind]
            straight = _compared(node["left"], operator, node["right"], columns)
            return straight or _compared(node["right"], _MIRRORED[operator], node["left"], columns)
    return None


def _ends(node: Node) -> list[Node]:
    """The two comparisons that BETWEEN is."""
    ends = (("COMPARE_GREATERTHANOREQUALTO", node["lower"]), ("COMPARE_LESSTHANOREQUALTO", node["upper"]))
    return [{"type": kind, "left": node["input"], "right": end} for kind, end in ends]


def _negated(node: Node) -> Node | None:
    """What NOT makes of an expression, without it; None if that isn't plain."""
    match node["type"]:
        case "OPERATOR_NOT":
            return cast("Node", node["children"][0])
        case "CONJUNCTION_AND" | "CONJUNCTION_OR" as kind:
            other = "CONJUNCTION_OR" if kind == "CONJUNCTION_AND" else "CONJUNCTION_AND"
            return {"type": other, "children": [{"type": "OPERATOR_NOT", "children": [x]} for x in node["children"]]}
        case kind if kind in _OPPOSITE:
            return {**node, "type": _OPPOSITE[kind]}
    return None


def _nullness(node: Node, columns: Sequence[Bounds], *, wanted: bool) -> str | None:
    bounds = _bounds(node, columns)
    if bounds is None:
        return None
    return f"coalesce({bounds.some_null}, true)" if wanted else f"coalesce(NOT ({bounds.all_null}), true)"


def _compared(column: Node, operator: str, constant: Node, columns: Sequence[Bounds]) -> str | None:
    bounds, literal = _bounds(column, columns), _literal(constant)
    if bounds is None or literal is None:
        return None
    value = f"CAST({literal} AS {bounds.type})"
    parts = [f"coalesce(NOT ({bounds.all_null}), true)"]
    if operator in ("=", "<", "<="):
        parts.append(f"coalesce({bounds.least} {'<=' if operator == '=' else operator} {value}, true)")
    if operator in ("=", ">", ">="):
        above = f"coalesce({bounds.greatest} {'>=' if operator == '=' else operator} {value}, true)"
        parts.append(f"({above} OR {_matches_nan(operator, value)})" if bounds.may_be_nan else above)
    return " AND ".join(parts)


def _matches_nan(operator: str, value: str) -> str:
    """Whether NaN, which statistics pass over and DuckDB has above all else, is among the rows asked for."""
    return f"isnan({value})" if operator == "=" else "true"


def _bounds(node: Node, columns: Sequence[Bounds]) -> Bounds | None:
    """Those of a column, or of one that is cast to a type with the same order."""
    if node["class"] == "CAST" and not node.get("try_cast"):
        inner, kind = _bounds(node["child"], columns), _CASTS.get(node["cast_type"]["id"])
        if inner is None or kind is None or inner.type not in kind:
            return None
        text = _type(node["cast_type"])
        least, greatest = (f"TRY_CAST({each} AS {text})" for each in (inner.least, inner.greatest))
        return replace(inner, type=text, least=least, greatest=greatest)
    if node["class"] != "COLUMN_REF" or len(node["column_names"]) != 1:
        return None
    position = node["column_names"][0].rpartition("_")[2]
    return columns[int(position)] if position.isdecimal() else None


def _type(node: Node) -> str:
    info = node.get("type_info") or {}
    return f"DECIMAL({info['width']}, {info['scale']})" if node["id"] == "DECIMAL" else str(node["id"])


def _literal(node: Node) -> str | None:
    """A constant as SQL, None for one that isn't plain; its own type is that of the column it is compared with."""
    if node["class"] == "CAST":
        return _literal(node["child"])
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
            return quoted(value)
    return None
