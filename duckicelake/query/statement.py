"""Check a query by DuckDB's own syntax tree, and name the tables that it reads.

DuckDB serializes only SELECT to JSON. This module admits kinds of nodes and functions by name, and refuses all others.
A table is replaced by what the catalog resolves it to, so that no name of the query reaches DuckDB as it came: no file,
no other database, no view of DuckDB's own.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final, cast

from duckicelake.catalog.context.caller import Principal
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.identifiers import Namespace
from duckicelake.iceberg.schema import Schema
from duckicelake.query.functions import FUNCTIONS, TABLE_FUNCTIONS

Tree = Any
"""A part of DuckDB's syntax tree, as JSON values."""
LAKE: Final = "lake"
"""The catalog of the lake in the process that runs the query."""
MAX_DEPTH: Final = 200
MAX_NODES: Final = 100_000

_EXPRESSIONS: Final = frozenset(
    {
        *("BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION"),
        *("LAMBDA", "LAMBDA_REF", "OPERATOR", "POSITIONAL_REFERENCE", "STAR", "SUBQUERY", "WINDOW"),
    }
)
_NODES: Final = frozenset(
    {
        *("SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"),
        *("BASE_TABLE", "SUBQUERY", "JOIN", "TABLE_FUNCTION", "EXPRESSION_LIST", "EMPTY", "PIVOT"),
        *("ORDER_MODIFIER", "LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER", "DISTINCT_MODIFIER"),
        *("ORDER_DEFAULT", "ASCENDING", "DESCENDING", "ORDER_ASCENDING", "ORDER_DESCENDING"),
    }
)
_TYPE_SUFFIX: Final = "_TYPE_INFO"
_VERSION_TYPES: Final = frozenset({"INTEGER", "BIGINT", "VARCHAR"})
"""Types of constants that name a version: DuckDB writes the decimal 1.5 as 15."""
_COMMENTS: Final = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_FIRST_WORD: Final = re.compile(r"[A-Za-z]+")
_READING: Final = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE"})
SYSTEM_NAMES: Final = ("duckdb_", "pg_", "pragma_", "sqlite_")
"""Beginnings of names of DuckDB's own views, by which no common table expression may go."""


@dataclass(frozen=True, slots=True)
class TableUse:
    """A table or view that a query names.

    Attributes:
        parts: the levels of its name, as written.
        version: what stands behind AT (VERSION => …): a number, or the name of a branch or tag.
        view: the view whose SQL names it; None: the query's own.

    """

    parts: tuple[str, ...]
    version: int | str | None = None
    view: "ResolvedView | None" = None


@dataclass(frozen=True, slots=True)
class ResolvedTable:
    """What a name of a query stands for: a table at a DuckLake snapshot."""

    schema: str
    name: str
    version: int


@dataclass(frozen=True, slots=True)
class ResolvedSnapshot:
    """What a name of a query stands for: an Iceberg snapshot that DuckLake doesn't have, by the metadata.json."""

    location: str
    snapshot_id: int
    schema: Schema


@dataclass(frozen=True, slots=True)
class ResolvedView:
    """What a name of a query stands for: a view, by the syntax tree of its SELECT.

    Attributes:
        columns: names for its columns.
        namespace: where tables are looked up that its SQL names without one.
        lender: with whose rights its tables are read; None: the caller's own.
        sources: all that it may read with those.
        is_barrier: it lends rights, so that no condition of the query may be computed for rows that it hides.

    """

    name: str
    tree: Tree
    columns: tuple[str, ...] = ()
    namespace: Namespace = ()
    lender: Principal | None = None
    sources: frozenset[tuple[Namespace, str]] = frozenset()
    is_barrier: bool = False


@dataclass(frozen=True, slots=True)
class RestrictedTable:
    """What a name of a query stands for: what the caller sees of a table, by the syntax tree of a SELECT of our own."""

    tree: Tree


Resolve = Callable[[TableUse], ResolvedTable | ResolvedSnapshot | RestrictedTable | ResolvedView]


@dataclass(slots=True)
class _Checker:
    """Checks a tree and replaces its tables. in_views: the views around the place that is checked."""

    resolve: Resolve
    nodes: int = 0
    in_views: tuple[ResolvedView, ...] = field(default=())

    def check(self, tree: Tree, names: frozenset[str], depth: int) -> Tree:
        """Return the tree with its tables replaced. names: the common table expressions in scope, in lower case."""
        self.nodes += 1
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            raise InvalidRequestError("The query is too deep or too long")
        if isinstance(tree, list):
            return [self.check(part, names, depth + 1) for part in tree]
        if not isinstance(tree, dict):
            return tree
        _check_kind(tree)
        kind = _find_kind(tree)
        if kind == "BASE_TABLE":
            return self._replace_table(tree, names, depth)
        if kind == "TABLE_FUNCTION":
            _check_table_function(tree)
            arguments = self.check(tree["function"]["children"], names, depth + 2)
            return {**tree, "function": {**tree["function"], "children": arguments}}
        return self._check_members(tree, names, depth)

    def _check_members(self, tree: dict[str, Any], names: frozenset[str], depth: int) -> Tree:
        checked = {}
        if "cte_map" in tree:
            checked["cte_map"], names = self._check_expressions(tree["cte_map"], names, depth)
        if _find_kind(tree) in {"RECURSIVE_CTE_NODE", "CTE_NODE"}:
            names |= {_check_expression_name(tree["cte_name"])}
        rest = {key: self.check(part, names, depth + 1) for key, part in tree.items() if key not in checked}
        return {key: checked.get(key, rest.get(key)) for key in tree}

    def _check_expressions(self, found: Tree, names: frozenset[str], depth: int) -> tuple[Tree, frozenset[str]]:
        """Check common table expressions: each sees those before it."""
        entries = []
        for entry in found["map"]:
            name = _check_expression_name(entry["key"])
            is_recursive = entry["value"]["query"]["node"]["type"] == "RECURSIVE_CTE_NODE"
            own = names | {name} if is_recursive else names
            entries.append({**entry, "value": self.check(entry["value"], own, depth + 2)})
            names |= {name}
        return {**found, "map": entries}, names

    def _replace_table(self, tree: dict[str, Any], names: frozenset[str], depth: int) -> Tree:
        parts = tuple(part for part in (tree["catalog_name"], tree["schema_name"], tree["table_name"]) if part)
        if len(parts) == 1 and parts[0].lower() in names:
            if tree.get("at_clause"):
                raise InvalidRequestError(f"AT is for tables; {parts[0]} is a common table expression")
            return tree
        view = self.in_views[-1] if self.in_views else None
        resolved = self.resolve(TableUse(parts, _read_version(tree.get("at_clause")), view))
        alias = tree["alias"] or parts[-1]
        if isinstance(resolved, ResolvedView):
            return self._inline_view(tree, resolved, alias, depth)
        if isinstance(resolved, RestrictedTable):
            return _build_subquery(tree, resolved.tree, alias)
        if isinstance(resolved, ResolvedSnapshot):
            return _build_snapshot_scan(tree, resolved, alias)
        return {
            **tree,
            "catalog_name": LAKE,
            "schema_name": resolved.schema,
            "table_name": resolved.name,
            "alias": alias,
            "at_clause": {"unit": "VERSION", "expr": _build_constant("BIGINT", resolved.version)},
        }

    def _inline_view(self, tree: dict[str, Any], view: ResolvedView, alias: str, depth: int) -> Tree:
        around = [outer.name for outer in self.in_views]
        if view.name in around:
            raise InvalidRequestError(f"The view {view.name} reads itself, by {' and '.join(around)}")
        outer, self.in_views = self.in_views, (*self.in_views, view)
        statement = self.check(deepcopy(view.tree), frozenset(), depth + 2)
        self.in_views = outer
        if view.is_barrier:
            statement = _put_behind_barrier(statement)
        return _build_subquery(tree, statement, alias, view.columns)


def _build_subquery(tree: dict[str, Any], statement: Tree, alias: str, columns: Sequence[str] = ()) -> Tree:
    """Build a SELECT in the place of a table. columns: names for its columns, where the query gives none."""
    return {
        "type": "SUBQUERY",
        "alias": alias,
        "sample": tree.get("sample"),
        "query_location": tree.get("query_location"),
        "subquery": statement,
        "column_name_alias": list(tree["column_name_alias"] or columns),
    }


def _put_behind_barrier(statement: Tree) -> Tree:
    """Put a SELECT behind a limit that no result reaches: DuckDB computes no condition before one."""
    node = {
        "type": "SELECT_NODE",
        "modifiers": [{"type": "LIMIT_MODIFIER", "limit": _build_constant("BIGINT", 2**63 - 1)}],
        "cte_map": {"map": []},
        "select_list": [{"class": "STAR", "type": "STAR", "exclude_list": [], "replace_list": []}],
        "from_table": {"type": "SUBQUERY", "subquery": statement},
        "aggregate_handling": "STANDARD_HANDLING",
    }
    return {"node": node}


def parse_tree(text: str | bytes | bytearray) -> Tree:
    """Parse a syntax tree of DuckDB's. Raises InvalidRequestError for one that is too deep."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise InvalidRequestError("The query is too deep or too long") from error


def check_statement(serialized: Tree, resolve: Resolve, sql: str = "") -> Tree:
    """Check what `json_serialize_sql` returns, and return it with its tables replaced.

    resolve: finds what the caller may read; its errors are passed on. sql: the statement's text, for errors.
    Raises InvalidRequestError.
    """
    if serialized["error"]:
        message = str(serialized.get("error_message", ""))
        if serialized.get("error_type") == "not implemented":
            message = _name_statement(sql)
        raise InvalidRequestError(message)
    statements = serialized["statements"]
    if len(statements) != 1:
        raise InvalidRequestError(f"Send one statement, not {len(statements)}")
    return {**serialized, "statements": [_Checker(resolve).check(statements[0], frozenset(), 0)]}


def _name_statement(sql: str) -> str:
    """Say which statement isn't run, and which is."""
    found = _FIRST_WORD.search(_COMMENTS.sub(" ", sql))
    kind = "" if found is None else found[0].upper()
    hint = ': send the SELECT alone, with "explain": true' if kind == "EXPLAIN" else ""
    what = f", and this is {kind}{hint}" if kind and kind not in _READING else ""
    return f"Only SELECT is run here, also with WITH, FROM or VALUES at its begin{what}"


def _find_kind(tree: Mapping[str, Any]) -> str:
    """Return the kind of a node; empty for what has none, as a value, whose `type` is another tree."""
    kind = tree.get("type")
    return kind if isinstance(kind, str) else ""


def _check_kind(tree: Mapping[str, Any]) -> None:
    kind, expression = _find_kind(tree), tree.get("class")
    if expression is not None:
        if expression not in _EXPRESSIONS:
            raise _refuse(f"the expression {expression}")
    elif kind and kind not in _NODES and not kind.endswith(_TYPE_SUFFIX):
        raise _refuse("DESCRIBE, SHOW and SUMMARIZE" if kind == "SHOW_REF" else f"the node {kind}")
    if "function_name" in tree:
        _check_function(tree, FUNCTIONS, "the function")


def _check_table_function(tree: Mapping[str, Any]) -> None:
    _check_function(tree["function"], TABLE_FUNCTIONS, "the table function")


def _check_function(function: Mapping[str, Any], admitted: frozenset[str], what: str) -> None:
    """Check a function's name; DuckDB's parser itself writes `main` before some."""
    name = str(function.get("function_name", ""))
    if name.lower() not in admitted:
        raise _refuse(f"{what} {name}")
    if function.get("catalog") or function.get("schema") not in {None, "", "main"}:
        raise _refuse(f"a schema before the function {name}")


def _check_expression_name(name: str) -> str:
    lower = str(name).lower()
    if lower.startswith(SYSTEM_NAMES):
        raise InvalidRequestError(f"A common table expression can't be called {name}, as a view of DuckDB's own")
    return lower


def _read_version(clause: Tree) -> int | str | None:
    if not clause:
        return None
    expression = clause.get("expr") or {}
    constant = (expression.get("value") or {}) if expression.get("class") == "CONSTANT" else {}
    kind, value = (constant.get("type") or {}).get("id"), constant.get("value")
    if str(clause.get("unit", "")).upper() != "VERSION" or kind not in _VERSION_TYPES or value is None:
        raise InvalidRequestError(
            "AT takes a number, a branch or a tag here, as in AT (VERSION => 42); for a time send `at`"
        )
    return cast("int | str", value)


def _build_snapshot_scan(tree: dict[str, Any], snapshot: ResolvedSnapshot, alias: str) -> Tree:
    """Build the call of a function of DuckDB's, which no statement may name itself, in the place of a table."""
    function = {
        "class": "FUNCTION",
        "type": "FUNCTION",
        "alias": "",
        "query_location": tree.get("query_location"),
        "function_name": "iceberg_scan",
        "schema": "",
        "children": [
            _build_constant("VARCHAR", snapshot.location),
            {**_build_constant("UBIGINT", snapshot.snapshot_id), "alias": "snapshot_from_id"},
        ],
        "filter": None,
        "order_bys": {"type": "ORDER_MODIFIER", "orders": []},
        "distinct": False,
        "is_operator": False,
        "export_state": False,
        "catalog": "",
    }
    return {
        "type": "TABLE_FUNCTION",
        "alias": alias,
        "sample": tree.get("sample"),
        "query_location": tree.get("query_location"),
        "function": function,
        "column_name_alias": tree["column_name_alias"],
        "with_ordinality": "WITHOUT_ORDINALITY",
    }


def _build_constant(type_: str, content: int | str) -> Tree:
    value = {"type": {"id": type_, "type_info": None}, "is_null": False, "value": content}
    return {"class": "CONSTANT", "type": "VALUE_CONSTANT", "alias": "", "query_location": 0, "value": value}


def _refuse(what: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"Not in this route: {what}. It runs SELECT over tables of the lake, with functions that read nothing else"
    )


def list_tables(serialized: Tree) -> Iterator[TableUse]:
    """Yield the tables that a checked statement reads, after `check_statement`."""
    for tree in _walk(serialized):
        if tree.get("type") == "BASE_TABLE" and tree.get("catalog_name") == LAKE:
            yield TableUse((tree["schema_name"], tree["table_name"]), _read_version(tree["at_clause"]))


def _walk(tree: Tree) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
    for part in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _walk(part)
