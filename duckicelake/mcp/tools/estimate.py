"""Estimate what a query reads, before it is run: the files of its tables, less those that their WHERE prunes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final

import sqlglot
from pydantic import Field
from sqlglot import exp
from sqlglot.errors import SqlglotError

from duckicelake.client.lake import Lake
from duckicelake.client.models import build_name
from duckicelake.errors import BadInputError, MissingTableError, NotAllowedError
from duckicelake.iceberg.identifiers import parse_schema_name
from duckicelake.mcp.tools.tool import ToolResult
from duckicelake.rest.names import parse_name

_MAX_VIEW_DEPTH: Final = 8
_MAX_TABLES: Final = 100
_DIALECT: Final = "duckdb"
_LAKE: Final = "lake"


class TableEstimate(ToolResult):
    """What a query reads of one table. where: the condition that leaves out files."""

    table: str
    where: str | None
    files: int
    files_of_table: int
    rows: int
    bytes: int


class QueryEstimate(ToolResult):
    """What a query reads at most, each table as often as the query names it. Columns that it leaves out are counted."""

    tables: list[TableEstimate]
    files: int
    rows: int
    scan_bytes: int
    is_known: Annotated[
        bool, Field(description="False: the query can't be read without the catalog, so there is no estimate.")
    ]
    is_hidden: Annotated[
        bool, Field(description="True: there is none, as policies hide rows or values of a table from the caller.")
    ] = False


@dataclass(frozen=True, slots=True)
class _TableUse:
    """A table as a query names it, and the WHERE that is about it alone.

    may_be_common: a common table expression has this name; both count where there is such a table, too.
    """

    name: str
    where: str | None
    may_be_common: bool = False


def estimate_query(lake: Lake, sql: str, namespace: str, at: str | None) -> QueryEstimate:
    """Return what a query reads, by what the catalog knows of files; no file is read.

    Raises MissingTableError, NotAllowedError, BadInputError.
    """
    try:
        uses = _find_all_uses(lake, sql, namespace)
        tables = None if uses is None else [_estimate_table(lake, use, at) for use in uses]
    except NotAllowedError:  # of a table, or of what its statistics say alone
        lake.sql(f"SELECT 1 FROM (\n{sql.strip().rstrip(';')}\n) LIMIT 0", namespace=namespace, at=at)
        return _build_unknown(is_hidden=True)
    if tables is None:
        return _build_unknown(is_hidden=False)
    return QueryEstimate(
        tables=tables,
        files=sum(table.files for table in tables),
        rows=sum(table.rows for table in tables),
        scan_bytes=sum(table.bytes for table in tables),
        is_known=True,
    )


def _build_unknown(*, is_hidden: bool) -> QueryEstimate:
    return QueryEstimate(tables=[], files=0, rows=0, scan_bytes=0, is_known=False, is_hidden=is_hidden)


def _estimate_table(lake: Lake, use: _TableUse, at: str | None) -> TableEstimate:
    where = use.where
    try:
        found = lake.table(use.name).explain(where, at)
    except BadInputError:  # a condition with what no statistics decide, as a subquery or a function of DuckDB
        where = None
        found = lake.table(use.name).explain(None, at)
    read = found["read"]
    return TableEstimate(
        table=use.name,
        where=where,
        files=read["files"],
        files_of_table=found["total"]["files"],
        rows=read["rows"],
        bytes=read["bytes"],
    )


def _find_all_uses(lake: Lake, sql: str, namespace: str, depth: int = 0) -> list[_TableUse] | None:
    """Find the tables of a query, those of its views included; None if they can't be found."""
    found = _find_uses(sql, namespace)
    if found is None or depth > _MAX_VIEW_DEPTH or len(found) > _MAX_TABLES:
        return None
    uses: list[_TableUse] = []
    for use in found:
        below = _resolve_use(lake, use, depth)
        if below is None or len(uses) > _MAX_TABLES:
            return None
        uses += below
    return uses


def _resolve_use(lake: Lake, use: _TableUse, depth: int) -> list[_TableUse] | None:
    """Return a table as it is, a view as the tables that it reads; nothing for a common table expression."""
    try:
        lake.table(use.name).load()
    except MissingTableError:
        if use.may_be_common and not _has_view(lake, use.name):
            return []
        text = lake.view(use.name).load().sql.get(_DIALECT)
        levels = parse_name(use.name)[:-1]
        return None if text is None else _find_all_uses(lake, text, build_name(levels), depth + 1)
    return [use]


def _has_view(lake: Lake, name: str) -> bool:
    try:
        lake.view(name).load()
    except MissingTableError:
        return False
    return True


def _find_uses(sql: str, namespace: str) -> list[_TableUse] | None:
    """Find the tables that a query names; None if it can't be parsed, or is none."""
    try:
        tree = sqlglot.parse_one(sql, dialect=_DIALECT)
    except (SqlglotError, RecursionError):
        return None
    if not isinstance(tree, exp.Query):
        return None
    common = {cte.alias_or_name.lower() for cte in tree.find_all(exp.CTE)}
    return list(_list_uses(tree, common, namespace or "main"))


def _list_uses(tree: exp.Expr, common: set[str], namespace: str) -> Iterator[_TableUse]:
    for table in tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier):
            continue  # a function, as range()
        *levels, name = (part.name for part in table.parts)
        may_be_common = not levels and name.lower() in common
        if len(levels) == 2 and levels[0] == _LAKE:
            levels = levels[1:]
        parsed = parse_schema_name(".".join(levels)) if levels else parse_name(namespace)
        where = None if may_be_common else _find_condition(table)
        yield _TableUse(build_name(parsed, name), where, may_be_common)


def _find_condition(table: exp.Table) -> str | None:
    """Return the WHERE of a SELECT from this table alone, with plain names of its columns."""
    select = table.parent.parent if isinstance(table.parent, exp.From) else None
    if not isinstance(select, exp.Select) or select.args.get("where") is None:
        return None
    condition = select.args["where"].this.copy()
    names = {table.alias_or_name.lower(), ""}
    columns = list(condition.find_all(exp.Column))
    is_about_more = (
        bool(select.args.get("joins") or select.args.get("laterals"))
        or condition.find(exp.Query) is not None
        or any(column.table.lower() not in names or len(column.parts) > 2 for column in columns)
    )
    if is_about_more:
        return None
    for column in columns:
        column.replace(exp.column(column.this.copy()))
    return str(condition.sql(dialect=_DIALECT))
