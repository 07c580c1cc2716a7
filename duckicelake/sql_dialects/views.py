"""PURE. Translate a view's query to the other dialect, or name the construct that can't be."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import traverse_scope
from sqlglot.tokenizer_core import Token, TokenType

from duckicelake.iceberg.identifiers import Namespace, parse_schema_name, to_schema_name
from duckicelake.iceberg.schema import Schema
from duckicelake.sql_dialects.dialects import (
    DUCKDB,
    SPARK,
    TRINO,
    DialectSide,
    NotTranslatableError,
    UnreadableQueryError,
    refuse_construct,
)
from duckicelake.sql_dialects.expressions import MAX_QUERY_CHARS
from duckicelake.sql_dialects.queries import QueryWriter, Tables, is_column_source

_MAX_DEPTH: Final = 48
_MAX_TOKENS: Final = 5_000
_ODD: Final = re.compile(r"(?P<backslash>\\)|(?P<nul>\0)|(?P<variable>\$\{)|(?P<placeholder>\{DUCKLAKE_CATALOG\})")
"""Parts that engines read in several ways, or that Spark or DuckLake replaces."""
_UNREADABLE: Final = (SqlglotError, RecursionError, AttributeError, IndexError, KeyError, TypeError, ValueError)
"""Errors that sqlglot raises for unusual texts."""
_OPENING: Final = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE})
_CLOSING: Final = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END})
_PREFIXES: Final = frozenset({TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE})


def translate_to_spark(sql: str, schema: Schema, unlike: Collection[str] = (), *, renamed: bool = False) -> str:
    """Translate DuckDB's query to Spark's SQL. Its columns are the schema's, under other names if renamed.

    unlike: names, in lower case, of columns whose type differs between Spark and DuckDB.

    Raises:
        NotTranslatableError: naming what isn't known to mean the same.

    """
    return _translate_from_duckdb(sql, schema, unlike, SPARK, _format_spark_table, renamed=renamed)


def translate_to_trino(
    sql: str, schema: Schema, catalog: str, unlike: Collection[str] = (), *, renamed: bool = False
) -> str:
    """Translate DuckDB's query to Trino's SQL, as `translate_to_spark` does.

    catalog: what Trino calls the lake. A view of Trino's has no other way to find a table.

    Raises:
        NotTranslatableError: naming what isn't known to mean the same.

    """
    return _translate_from_duckdb(sql, schema, unlike, TRINO, _TrinoTables(catalog), renamed=renamed)


def _translate_from_duckdb(
    sql: str, schema: Schema, unlike: Collection[str], target: DialectSide, tables: Tables, *, renamed: bool
) -> str:
    if not schema.fields:
        refuse_construct("a query whose columns are not known")
    tree = parse_query(sql, DUCKDB)
    _check_unlike(tree, unlike, target)
    text = _write_query(tree, schema, (DUCKDB, target), tables)
    stars = [select for select in tree.find_all(exp.Select) if select.is_star and is_column_source(select)]
    if not stars:
        return text
    if renamed or any(not _unquote_name(expression) for select in stars for expression in select.expressions):
        refuse_construct("* beside columns of other names")
    return _select_by_name(text, schema, target)


def translate_to_duckdb(
    sql: str, schema: Schema, default_namespace: Namespace, default_catalog: str | None, source: DialectSide = SPARK
) -> str:
    """Translate Spark's or Trino's query to DuckDB's SQL, with the schema's types.

    Names without namespace or catalog get the defaults.

    Raises:
        NotTranslatableError: naming what isn't known to mean the same.

    """
    tree = parse_query(sql, source)
    tables = (_TrinoLakeTables if source is TRINO else _LakeTables)(default_namespace, default_catalog)
    text = _write_query(tree, schema, (source, DUCKDB), tables)
    return text if schema.fields else refuse_construct("a query without columns")


def find_output_names(sql: str) -> tuple[str, ...]:
    """Find the names of the columns of DuckDB's query; none if only DuckDB can know them."""
    try:
        names = tuple(parse_query(sql, DUCKDB).named_selects)  # type: ignore[attr-defined]
    except (NotTranslatableError, *_UNREADABLE):
        return ()
    return names if all(names) and "*" not in names else ()


def names_schema(sql: str, side: DialectSide, schema: str) -> bool:
    """Return whether a query reads a table of the schema or below it. Of a text that doesn't parse: whether it may."""
    wanted = f".{schema.lower()}."
    try:
        tree = parse_query(sql.replace("{DUCKLAKE_CATALOG}", "lake"), side)
        tables = (".".join(part.name for part in table.parts) for table in tree.find_all(exp.Table))
        return any(wanted in f".{table.lower()}" for table in tables)
    except (NotTranslatableError, *_UNREADABLE):
        return wanted[1:] in re.sub('["`]', "", sql.lower())


def find_table_names(sql: str, side: DialectSide) -> frozenset[tuple[str, ...]]:
    """Find the names of the tables and views that a query reads, as written; none if it doesn't parse.

    Names of common table expressions aren't among them.
    """
    try:
        scopes = traverse_scope(parse_query(sql, side))
        sources = [source for scope in scopes for source in scope.sources.values() if isinstance(source, exp.Table)]
        return frozenset(names for source in sources if all(names := tuple(part.name for part in source.parts)))
    except (NotTranslatableError, *_UNREADABLE):
        return frozenset()


def parse_query(sql: str, side: DialectSide) -> exp.Expr:
    """Parse a query. Texts that could keep the parser busy, or end it, are refused first."""
    if len(sql) > MAX_QUERY_CHARS:
        refuse_construct("a query of this length")
    odd = _ODD.search(sql)
    if odd is not None:
        refuse_construct(f"a {odd.lastgroup} in a query")
    dialect = side.parser()
    try:
        tokens = dialect.tokenize(sql)
        _check_depth(tokens)
        trees = dialect.parser().parse(tokens, sql)
    except _UNREADABLE as error:
        raise UnreadableQueryError("a query that sqlglot does not read") from error
    if len(trees) != 1 or trees[0] is None:
        refuse_construct("anything but one query")
    return trees[0]


def _check_depth(tokens: Sequence[Token]) -> None:
    depth = prefixes = 0
    if len(tokens) > _MAX_TOKENS:
        refuse_construct("a query of this length")
    for token in tokens:
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        prefixes = prefixes + 1 if token.token_type in _PREFIXES else 0
        if depth > _MAX_DEPTH or prefixes > _MAX_DEPTH:
            refuse_construct("a query that is nested this deep")


def _write_query(tree: exp.Expr, schema: Schema, sides: tuple[DialectSide, DialectSide], tables: Tables) -> str:
    try:
        text = QueryWriter(*sides, tables, schema).statement(tree)
    except RecursionError as error:
        raise NotTranslatableError("a query that is nested this deep") from error
    return text if len(text) <= MAX_QUERY_CHARS else refuse_construct("a query of this length")


def _format_spark_table(parts: Sequence[str]) -> str:
    *schema, table = parts
    if len(schema) > 1:
        refuse_construct("a table of another database")
    levels = [level for column in schema for level in parse_schema_name(column)]
    return ".".join(SPARK.quote_name(level) for level in (*levels, table))


@dataclass(frozen=True, slots=True)
class _TrinoTables:
    """Names of tables as Trino writes them. It knows names in lower case alone, and joins levels by dots."""

    catalog: str

    def __call__(self, parts: Sequence[str]) -> str:
        *schema, table = parts
        if len(schema) > 1:
            refuse_construct("a table of another database")
        levels = [level for column in schema for level in parse_schema_name(column)]
        if any(name != name.lower() for name in (*levels, table)):
            refuse_construct(f"{table[:60]}, a table whose name has letters in upper case")
        if not levels or any("." in level for level in levels):
            refuse_construct(f"{table[:60]}, a table of a namespace that Trino has no name for")
        return ".".join(TRINO.quote_name(name) for name in (self.catalog, ".".join(levels), table))


@dataclass(slots=True)
class _LakeTables:
    """Names of tables as Spark reads them. Without a catalog they are in the default one; None is the view's own.

    The lake's name in Spark is unknown. A catalog that all full names share is taken for it.
    """

    namespace: Namespace
    catalog: str | None
    lake: str | None = None

    def __call__(self, parts: Sequence[str]) -> str:
        *namespace, table = parts
        if len(namespace) > 1:
            self._check_catalog(namespace.pop(0))
        elif self.catalog is not None:
            refuse_construct(f"a table of the catalog {self.catalog[:60]}")
        return _format_lake_table(tuple(namespace) or self.namespace, table)

    def _check_catalog(self, catalog: str) -> None:
        self.lake = self.lake or catalog
        if catalog != self.lake or catalog in {self.catalog, "spark_catalog", "system"}:
            refuse_construct(f"a table of the catalog {catalog[:60]}")


@dataclass(slots=True)
class _TrinoLakeTables:
    """Names of tables as Trino reads them. Without a catalog they are in the view's default one.

    The lake's name in Trino is unknown. The catalog that all names share is taken for it.
    """

    namespace: Namespace
    catalog: str | None
    lake: str | None = None

    def __call__(self, parts: Sequence[str]) -> str:
        *levels, table = (part.lower() for part in parts)
        catalog = levels.pop(0) if len(levels) > 1 else (self.catalog or "").lower()
        self.lake = self.lake or catalog
        if not catalog or catalog != self.lake or len(levels) > 1:
            refuse_construct(f"a table of the catalog {catalog[:60]}")
        return _format_lake_table(tuple(levels[0].split(".")) if levels else self.namespace, table)


def _format_lake_table(namespace: Namespace, table: str) -> str:
    schema = to_schema_name(namespace)
    if not schema:
        refuse_construct(f"{table[:60]}, a table without a namespace")
    return f"{{DUCKLAKE_CATALOG}}.{DUCKDB.quote_name(schema)}.{DUCKDB.quote_name(table)}"


def _unquote_name(node: exp.Expr) -> bool:
    return node.is_star or isinstance(node, exp.Column | exp.Alias)


def _select_by_name(text: str, schema: Schema, side: DialectSide) -> str:
    """Select the columns as of the time when the view was written: `*` changes with the table."""
    names = [field.name for field in schema.fields]
    return f"SELECT {', '.join(map(side.quote_name, names))} FROM ({text})"


def _check_unlike(tree: exp.Expr, unlike: Collection[str], target: DialectSide) -> None:
    """Refuse a query that uses columns of other types, except to pass them on under their own names."""
    compared = tree.find(exp.SetOperation, exp.Distinct) is not None
    for column in tree.find_all(exp.Column) if unlike else ():
        if column.name.lower() in unlike and (compared or not isinstance(column.parent, exp.Select)):
            refuse_construct(f"an expression of {column.name[:60]}, which has another type in {target.name}")
