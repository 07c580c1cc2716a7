"""PURE. The lineage of a statement, from its text and what is known of the tables that it names.

What is claimed follows from the text. Where it doesn't, because a name is unknown or could be several things, nothing
is claimed; what can't be read, or would take too long, has no lineage. Nothing is raised.
"""

from collections.abc import Callable
from typing import Final

from sqlglot import exp
from sqlglot.errors import SqlglotError

from duckicelake.lineage.sql.dialects import Sql, dialect_of
from duckicelake.lineage.sql.expressions import TooMuch
from duckicelake.lineage.sql.files import file_of
from duckicelake.lineage.sql.model import Dataset, Files, Lineage, Lookup
from duckicelake.lineage.sql.scopes import ascii_lower
from duckicelake.lineage.sql.statements import StatementReader

LAKE: Final = "__lake__"
"""The catalog's name in the definition of a DuckLake view, which leaves it open."""

_UNREADABLE: Final = (SqlglotError, RecursionError, AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What sqlglot raises for texts that nobody tried on it, and what its trees make of expectations."""


def view_lineage(sql: str, dialect: str, view: Dataset, lookup: Lookup, *, files: Files = file_of) -> Lineage | None:
    """The lineage of a view by its query, or by its CREATE VIEW; None if nothing can be said.

    Tables and views are named as the user named them: a view in the query isn't replaced by its own. The view's columns
    name the query's in their order.
    """
    text = sql.replace("{DUCKLAKE_CATALOG}", LAKE)

    def read() -> Lineage | None:
        node = parsed(text, dialect)
        if node is None:
            return None
        if isinstance(node, exp.Create):
            target = tuple(each.name for each in node.find(exp.Table).parts)  # type: ignore[union-attr]
            found = _reader(dialect, lambda parts: view if parts == target else lookup(parts), files).lineage(node)
        else:
            found = _reader(dialect, lookup, files).lineage(node, view.columns)
        return None if found is None else Lineage(found.inputs, view, found.fields, found.influence)

    return _guarded(read)


def parsed(sql: str, dialect: str) -> exp.Expr | None:
    """The statement's syntax tree; None for several statements, none, and those too long or nested too deep."""
    found = dialect_of(dialect)
    try:
        return None if found is None else found.parsed(sql)
    except _UNREADABLE:
        return None


def lineage_of(tree: exp.Expr, dialect: str, lookup: Lookup, files: Files = file_of) -> Lineage | None:
    """What a statement that is `parsed` reads and writes, and which columns flow where; None if nothing can be said."""
    return _guarded(lambda: _reader(dialect, lookup, files).lineage(tree))


def _reader(dialect: str, lookup: Lookup, files: Files) -> StatementReader:
    fold = ascii_lower if dialect_of(dialect) is Sql.DUCKDB else str.lower
    return StatementReader(fold, lookup, files)


def _guarded(read: Callable[[], Lineage | None]) -> Lineage | None:
    try:
        return read()
    except (*_UNREADABLE, TooMuch):
        return None
