"""Split statements as DuckDB does, and find the names that each reads or writes."""

import re
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Final

import duckdb
from duckdb import StatementType
from sqlglot import exp

from duckicelake.lineage.sql.lineage import parse_statement

MAX_STATEMENT_CHARS: Final = 50_000
"""Characters of a statement that is parsed while its author waits; for a longer one only the target is read."""
_MAX_NAMES: Final = 64
_WRITING: Final = frozenset(
    {StatementType.INSERT, StatementType.UPDATE, StatementType.DELETE, StatementType.MERGE_INTO, StatementType.COPY}
)
_READ: Final = _WRITING | {StatementType.SELECT, StatementType.CREATE}
_HARMLESS: Final = _WRITING | {StatementType.SELECT, StatementType.EXPLAIN, StatementType.PREPARE}
_INSERT: Final = re.compile(
    r'\s*INSERT\s+INTO\s+((?:"(?:[^"]|"")*"|\w+)(?:\s*\.\s*(?:"(?:[^"]|"")*"|\w+)){0,2})', re.IGNORECASE
)
_PREPARE: Final = re.compile(r'\s*PREPARE\s+("(?:[^"]|"")*"|\w+)\s+AS\s+(.*)', re.IGNORECASE | re.DOTALL)
_EXECUTE: Final = re.compile(r'\s*EXECUTE\s+("(?:[^"]|"")*"|\w+)', re.IGNORECASE)
_WORD: Final = re.compile(r"\s*(?:--[^\n]*\n\s*|/\*.*?\*/\s*)*(\w+)", re.DOTALL)
_TRANSACTIONS: Final = {"BEGIN": "begin", "START": "begin", "COMMIT": "commit", "END": "commit"}
_TREE_KINDS: Final = (exp.Query, exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Copy, exp.Values, exp.Pivot)


class DuckStatement:
    """A statement: its text, and its syntax tree if lineage is read from it."""

    def __init__(self, text: str, kind: StatementType) -> None:
        self.text, self.kind = text, kind
        self.tree = parse_statement(text, "duckdb") if kind in _READ and len(text) <= MAX_STATEMENT_CHARS else None

    @cached_property
    def matters(self) -> bool:
        """Whether it may have lineage."""
        return self.kind in _WRITING or isinstance(self.tree, _TREE_KINDS) or self.created is not None

    @property
    def changes_names(self) -> bool:
        """Whether it may change the meaning of names."""
        return self.kind not in _HARMLESS

    @cached_property
    def prepared(self) -> "tuple[str, DuckStatement] | None":
        """The name that it gives a prepared statement, and that statement."""
        found = _PREPARE.match(self.text) if self.kind == StatementType.PREPARE else None
        inner = duckdb.extract_statements(found[2]) if found else []
        return (found[1].lower(), _read_statement(found[2], inner[0].type)) if found and len(inner) == 1 else None

    @cached_property
    def executed(self) -> str | None:
        """The name of the prepared statement that it runs."""
        found = _EXECUTE.match(self.text) if self.kind == StatementType.EXECUTE else None
        return found[1].lower() if found else None

    @property
    def makes_temporary(self) -> bool:
        return self.kind == StatementType.CREATE and re.search(r"\bTEMP", self.text, re.IGNORECASE) is not None

    @property
    def transaction(self) -> str | None:
        """Its effect on the transaction: begin, commit or rollback."""
        if self.kind != StatementType.TRANSACTION:
            return None
        found = _WORD.match(self.text)
        return _TRANSACTIONS.get(found[1].upper(), "rollback") if found else None

    @cached_property
    def created(self) -> tuple[str, ...] | None:
        """The table or view that it creates from a query."""
        tree = self.tree
        if not isinstance(tree, exp.Create) or not isinstance(tree.expression, exp.Query):
            return None
        table = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
        return find_name_parts(table) if isinstance(table, exp.Table) else None

    @cached_property
    def written(self) -> tuple[str, ...] | None:
        """The table or view that it writes."""
        tree = self.tree
        if tree is None:
            return next(iter(self.names), None)
        is_writing = isinstance(tree, exp.Insert | exp.Update | exp.Delete | exp.Merge) or tree.args.get("kind") is True
        target = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
        return find_name_parts(target) if is_writing and isinstance(target, exp.Table) else self.created

    @property
    def only_if_new(self) -> bool:
        """Whether it leaves an existing table unchanged."""
        return self.tree is not None and bool(self.tree.args.get("exists"))

    @cached_property
    def gives_count(self) -> bool:
        """Whether its result is a row count."""
        if self.kind in _WRITING:
            return self.tree is not None and not self.tree.args.get("returning")
        return self.created is not None and self.tree is not None and self.tree.args.get("kind") == "TABLE"

    @cached_property
    def names(self) -> list[tuple[str, ...]]:
        """Names of possible tables or views that exist before it runs."""
        if self.tree is None:
            found = _INSERT.match(self.text)
            return [parts for text in ([found[1]] if found else []) if (parts := _read_parts(text))]
        made = self.created if not self.only_if_new else None
        return [name for name in dict.fromkeys(_iterate_names(self.tree)) if name != made][:_MAX_NAMES]


def split_statements(connection: duckdb.DuckDBPyConnection, query: object) -> list[DuckStatement] | None:
    """Split a text into statements as DuckDB does; None if DuckDB can't parse it, or made other statements of it."""
    if isinstance(query, duckdb.Statement):
        return [_read_statement(query.query, query.type)]
    if not isinstance(query, str):
        return None
    try:
        found = connection.extract_statements(query)
    except duckdb.Error:
        return None
    if len(found) == 1:
        return [_read_statement(query, found[0].type)]
    return (
        [_read_statement(statement.query, statement.type) for statement in found]
        if all(statement.query.strip() for statement in found)
        else None
    )


@lru_cache(maxsize=256)
def _read_statement(text: str, kind: StatementType) -> DuckStatement:
    """Parse a statement. The cache keeps it for repeated use."""
    return DuckStatement(text, kind)


def find_name_parts(table: exp.Table) -> tuple[str, ...]:
    """Return the parts of a table's name."""
    return tuple(part.name for part in table.parts)


def _iterate_names(tree: exp.Expr) -> Iterator[tuple[str, ...]]:
    queries = {query.alias.lower() for query in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier):
            continue
        parts = find_name_parts(table)
        if len(parts) > 1 or parts[0].lower() not in queries or _is_own_name(table):
            yield parts


def _is_own_name(table: exp.Table) -> bool:
    """Return whether a table is named inside the WITH query of the same name, and so isn't that query."""
    cte = table.find_ancestor(exp.CTE)
    return cte is not None and cte.alias.lower() == table.name.lower()


def _read_parts(text: str) -> tuple[str, ...]:
    table = exp.to_table(text, dialect="duckdb")
    return find_name_parts(table)
