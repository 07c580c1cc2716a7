"""Decide whether a view may be brought up to date from appended rows alone, and rewrite its query to read only those.

Two shapes of queries can: rows of one table, filtered and computed each by itself; and COUNT, SUM, MIN and MAX of such
rows, by groups or of all. A new group's row, or a group's new sums, are computed from the appended rows and the view's
own contents.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal

import duckdb
import orjson

from duckicelake.bridge.values.types import quote_identifier
from duckicelake.errors import format_count
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.lake.model import ADDITION_KINDS, MOVE_KINDS, LakeChange
from duckicelake.materialized_views.sources import walk
from duckicelake.materialized_views.view_rows import RefreshMode
from duckicelake.query.contents import HOLE
from duckicelake.query.statement import LAKE, Tree
from duckicelake.sql_dialects.placeholders import DUCKDB, format_type_name

_ROW_CLASSES: Final = frozenset(
    {"BETWEEN", "CASE", "CAST", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION", "OPERATOR"}
)
_MERGES: Final[Mapping[str, str]] = {"count": "sum", "count_star": "sum", "sum": "sum", "min": "min", "max": "max"}
"""Aggregates, and those by which their results over parts come to the result over all."""
_OWN_COLUMNS: Final = frozenset({"rowid", "snapshot_id", "filename", "file_row_number", "file_index"})
"""Columns that each table has besides, which compaction may change."""
_MAX_WINDOWS: Final = 50
_EMPTY_SHAPES: Final = ("modifiers", "having", "sample", "qualify")


class NotIncrementalError(Exception):
    """The contents must be computed as a whole; the text says why."""


@dataclass(frozen=True, slots=True)
class TablePlace:
    """The view's own table at a snapshot, as DuckDB reads it."""

    schema_name: str
    name: str
    snapshot_id: int

    def __str__(self) -> str:
        levels = ".".join(map(quote_identifier, (LAKE, self.schema_name, self.name)))
        return f"{levels} AT (VERSION => {self.snapshot_id})"


@dataclass(frozen=True, slots=True)
class AppendPlan:
    """How a view's contents come from appended rows.

    Attributes:
        shape: rows are appended; groups take the place of the contents.
        merges: the aggregates that merge the view's columns by their places; None of a key.

    """

    shape: Literal["rows", "groups"]
    merges: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Window:
    """DuckLake snapshots in which rows were appended to a table, and nothing else happened to it; both included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class RefreshPlan:
    """How a refresh brings contents up to date. reason: why so. increment, windows: of an incremental one."""

    mode: RefreshMode
    reason: str
    increment: AppendPlan | None = None
    windows: tuple[Window, ...] = ()


def plan_refresh(
    tree: Tree, schema: Schema, changes: Mapping[int, Sequence[LakeChange]], after: int, upto: int
) -> RefreshPlan:
    """Plan a refresh of a query that was read before. changes: of each of its tables in (after, upto], by id."""
    if all(change.only_moves for found in changes.values() for change in found):
        return RefreshPlan("unchanged", "no source has changed")
    try:
        increment = plan_increment(tree, schema)
        (found,) = changes.values()
        windows = find_windows(found, after, upto)
    except NotIncrementalError as error:
        return RefreshPlan("whole", str(error))
    return RefreshPlan("incremental", "only rows were appended", increment, tuple(windows))


def plan_increment(tree: Tree, schema: Schema) -> AppendPlan:
    """Plan how a checked query's result follows the appends to its table. schema: the view's.

    Raises NotIncrementalError.
    """
    node = tree["statements"][0]["node"]
    tables = [part for part in walk(tree) if part.get("type") == "BASE_TABLE" and part.get("catalog_name") == LAKE]
    if len(tables) != 1:
        raise NotIncrementalError(f"the query reads {format_count(len(tables), 'table')}: one, once, could be followed")
    _check_block(node)
    if _is_grouped(node):
        return _plan_groups(node, schema)
    _check_row_items(node["select_list"])
    return AppendPlan("rows")


def find_windows(changes: Sequence[LakeChange], after: int, upto: int) -> list[Window]:
    """Find the windows in (after, upto] in which rows were appended to a table, of all changes of it there.

    Raises NotIncrementalError if more than that happened.
    """
    windows, first = [], after + 1
    has_rows = False
    for change in changes:
        if change.only_moves:
            if has_rows:
                windows.append(Window(first, change.snapshot_id - 1))
            first, has_rows = change.snapshot_id + 1, False
        elif change.only_adds:
            has_rows = True
        else:
            names = ", ".join(sorted(change.kinds - ADDITION_KINDS - MOVE_KINDS)) or "rows moved beside new ones"
            raise NotIncrementalError(f"a source had more than appends (snapshot {change.snapshot_id}: {names})")
    if has_rows:
        windows.append(Window(first, upto))
    if len(windows) > _MAX_WINDOWS:
        raise NotIncrementalError(f"the appended rows lie between more than {_MAX_WINDOWS} compactions")
    return windows


def read_appended(tree: Tree, window: Window) -> Tree:
    """Return the query over the rows that a window has brought to its only table."""
    copy = deepcopy(tree)
    for node in walk(copy):
        if node.get("type") == "BASE_TABLE" and node.get("catalog_name") == LAKE:
            scan = _build_insertions(node, window)
            node.clear()
            node.update(scan)
    return copy


def _check_block(node: Tree) -> None:
    """Check all of a SELECT but its list and groups."""
    if node["type"] != "SELECT_NODE":
        raise NotIncrementalError("the query is a union, or recursive")
    if any(node.get(member) for member in _EMPTY_SHAPES) or node["cte_map"]["map"]:
        raise NotIncrementalError("the query has DISTINCT, ORDER BY, LIMIT, HAVING, QUALIFY or WITH")
    if node["where_clause"] is not None:
        _check_row_expression(node["where_clause"])
    source = node["from_table"]
    if source["type"] == "SUBQUERY" and not source.get("sample"):
        inner = source["subquery"]["node"]
        _check_block(inner)
        if _is_grouped(inner):
            raise NotIncrementalError("the query groups rows below others")
        _check_row_items(inner["select_list"])
    elif source["type"] != "BASE_TABLE" or source.get("sample"):
        raise NotIncrementalError("the query joins, or reads more than tables")


def _is_grouped(node: Tree) -> bool:
    if node["group_expressions"] or node["group_sets"] or node["aggregate_handling"] != "STANDARD_HANDLING":
        return True
    return any(_find_aggregate(item) is not None for item in node["select_list"])


def _find_aggregate(item: Tree) -> str | None:
    name = str(item.get("function_name", "")).lower()
    return name if item.get("class") == "FUNCTION" and name in _MERGES else None


def _check_row_items(items: Sequence[Tree]) -> None:
    for item in items:
        is_star = item.get("class") == "STAR" and not item.get("columns") and item.get("expr") is None
        if not is_star or item.get("replace_list"):
            _check_row_expression(item)


def _check_row_expression(expression: Tree) -> None:
    """Check that an expression's value is given by one row."""
    for node in walk(expression):
        kind = node.get("class")
        if kind is not None and kind not in _ROW_CLASSES:
            raise NotIncrementalError(f"an expression may need more than one row: {kind.lower()}")
        if kind == "FUNCTION" and str(node["function_name"]).lower() not in find_row_functions():
            raise NotIncrementalError(f"{node['function_name']}() may need more than one row")
        if kind == "COLUMN_REF" and node["column_names"][-1].lower() in _OWN_COLUMNS:
            raise NotIncrementalError(f"{node['column_names'][-1]} may be a column of DuckLake's own")


@cache
def find_row_functions() -> frozenset[str]:
    """Find DuckDB's functions and operators whose result is given by their arguments in one row."""
    with duckdb.connect() as connection:
        rows = connection.execute(
            "SELECT lower(function_name) FROM duckdb_functions() GROUP BY ALL "
            "HAVING bool_and(function_type = 'scalar' AND stability = 'CONSISTENT')"
        )
        return frozenset(name for (name,) in rows.fetchall()) - {"unnest"}


def _plan_groups(node: Tree, schema: Schema) -> AppendPlan:
    items = node["select_list"]
    merges = tuple(_plan_item(item) for item in items)
    keys = [index for index, merge in enumerate(merges) if merge is None]
    _check_grouping(node, keys)
    for field, item, merge in zip(schema.fields, items, merges, strict=True):
        family = field.type.traits.family if isinstance(field.type, PrimitiveType) else "nested"
        if merge is None and family in {"float", "nested"}:
            raise NotIncrementalError(f"the group {field.name} is a float or nested: equal values may differ")
        if merge is not None and family in {"float", "nested"}:
            raise NotIncrementalError(
                f"{_find_aggregate(item)}() of {field.name} is a float or nested: its parts don't add up exactly"
            )
    return AppendPlan("groups", merges)


def _plan_item(item: Tree) -> str | None:
    """Return what merges a column's parts; None of a key. Raises NotIncrementalError."""
    aggregate = _find_aggregate(item)
    if aggregate is None:
        if item.get("class") == "STAR":
            raise NotIncrementalError("the query groups by *")
        _check_row_expression(item)
        return None
    if item["distinct"] or item["order_bys"]["orders"]:
        raise NotIncrementalError(f"{aggregate}() has DISTINCT or ORDER BY")
    for child in (*item["children"], *([item["filter"]] if item["filter"] else [])):
        _check_row_expression(child)
    return _MERGES[aggregate]


def _check_grouping(node: Tree, keys: Sequence[int]) -> None:
    """Check that the rows are grouped by just the columns that aren't aggregates."""
    expressions = node["group_expressions"]
    if node["aggregate_handling"] == "FORCE_AGGREGATES":
        return
    if node["group_sets"] not in ([], [[*range(len(expressions))]]):
        raise NotIncrementalError("the query has several sets of groups")
    grouped = frozenset(part.lower() for expression in expressions for part in expression.get("column_names", ()))
    named = {_find_item(node["select_list"], expression, grouped) for expression in expressions}
    if named != set(keys):
        raise NotIncrementalError("the query shows other columns than those that it groups by")


def _find_item(items: Sequence[Tree], expression: Tree, grouped: frozenset[str]) -> int | None:
    """Find the column that a group is named by: its place, the same expression, or its alias.

    grouped: names of columns in groups. A name is a column of the source before it is an alias.
    """
    if expression.get("class") == "CONSTANT":
        place = expression["value"].get("value")
        return place - 1 if isinstance(place, int) else None
    wanted = _canonicalize(expression)
    same = next((index for index, item in enumerate(items) if _canonicalize(item) == wanted), None)
    if same is not None or len(expression.get("column_names", ())) != 1:
        return same
    alias = expression["column_names"][0].lower()
    aliased = (index for index, item in enumerate(items) if item["alias"].lower() == alias)
    return next((index for index in aliased if _reads_others(items[index], grouped)), None)


def _reads_others(item: Tree, grouped: frozenset[str]) -> bool:
    """Return whether an expression reads a column that no group names, as it may only if the group is the expression.

    Else the name may be a column of the source: `SELECT k / 2 AS k … GROUP BY k` shows a group more than once.
    """
    names = (node["column_names"] for node in walk(item) if node.get("class") == "COLUMN_REF")
    return any(grouped.isdisjoint(part.lower() for part in parts) for parts in names)


def _canonicalize(expression: Tree) -> bytes:
    copy = deepcopy(expression)
    copy["alias"] = ""
    for node in walk(copy):
        node.pop("query_location", None)
    return orjson.dumps(copy, option=orjson.OPT_SORT_KEYS)


def _build_insertions(table: Mapping[str, Any], window: Window) -> dict[str, Any]:
    """Build the call of DuckLake's function that reads what snapshots inserted, in the place of a table."""
    arguments = [
        *_build_constants("VARCHAR", (LAKE, table["schema_name"], table["table_name"])),
        *_build_constants("BIGINT", (window.first, window.last)),
    ]
    function = {
        "class": "FUNCTION",
        "type": "FUNCTION",
        "alias": "",
        "query_location": 0,
        "function_name": "ducklake_table_insertions",
        "schema": "",
        "children": arguments,
        "filter": None,
        "order_bys": {"type": "ORDER_MODIFIER", "orders": []},
        "distinct": False,
        "is_operator": False,
        "export_state": False,
        "catalog": "",
    }
    return {
        "type": "TABLE_FUNCTION",
        "alias": table["alias"],
        "sample": None,
        "query_location": 0,
        "function": function,
        "column_name_alias": table["column_name_alias"],
        "with_ordinality": "WITHOUT_ORDINALITY",
    }


def _build_constants(type_: str, values: Sequence[str | int]) -> Iterator[Tree]:
    for value in values:
        held = {"type": {"id": type_, "type_info": None}, "is_null": False, "value": value}
        yield {"class": "CONSTANT", "type": "VALUE_CONSTANT", "alias": "", "query_location": 0, "value": held}


def write_merge(schema: Schema, merges: Sequence[str | None], own: TablePlace) -> str:
    """Write the SQL around new groups that merges them with those of the view. merges: aggregates; None of keys."""
    names = [quote_identifier(column.name) for column in schema.fields]
    columns = [
        name if merge is None else f"CAST({merge}({name}) AS {format_type_name(DUCKDB, column.type)}) AS {name}"
        for name, merge, column in zip(names, merges, schema.fields, strict=True)
    ]
    keys = [name for name, merge in zip(names, merges, strict=True) if merge is None]
    select = f"SELECT {', '.join(columns)} FROM (SELECT {', '.join(names)} FROM {own} UNION ALL ({HOLE}))"
    return f"{select} GROUP BY {', '.join(keys)}" if keys else select
