"""PURE. Translate a view's query to the other dialect, or name the construct that can't be."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from duckicelake.iceberg.identifiers import Namespace, parse_schema_name, to_schema_name
from duckicelake.iceberg.schema import Schema
from duckicelake.sql_dialects.dialects import DUCKDB, SPARK, DialectSide, NotTranslatableError, refuse_construct
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
    """Return DuckDB's query in Spark's SQL; its columns are the schema's, under other names if they are renamed.

    `unlike` are names, in lower case, of columns that have another type in Spark than in DuckDB.

    Raises:
        NotTranslatableError: naming what isn't known to mean the same.

    """
    if not schema.fields:
        refuse_construct("a query whose columns are not known")
    tree = parse_query(sql, DUCKDB)
    _check_unlike(tree, unlike)
    text = _write_query(tree, schema, (DUCKDB, SPARK), _format_spark_table)
    stars = [select for select in tree.find_all(exp.Select) if select.is_star and is_column_source(select)]
    if not stars:
        return text
    if renamed or any(not _unquote_name(expression) for select in stars for expression in select.expressions):
        refuse_construct("* beside columns of other names")
    return _select_by_name(text, schema)


def translate_to_duckdb(sql: str, schema: Schema, default_namespace: Namespace, default_catalog: str | None) -> str:
    """Return Spark's query in DuckDB's SQL, with the schema's types.

    A name without namespace or catalog is in the defaults.

    Raises:
        NotTranslatableError: naming what isn't known to mean the same.

    """
    tree = parse_query(sql, SPARK)
    text = _write_query(tree, schema, (SPARK, DUCKDB), _LakeTables(default_namespace, default_catalog))
    return text if schema.fields else refuse_construct("a query without columns")


def find_output_names(sql: str) -> tuple[str, ...]:
    """Return the names that DuckDB's query gives its columns; none where only DuckDB knows them."""
    try:
        names = tuple(parse_query(sql, DUCKDB).named_selects)  # type: ignore[attr-defined]
    except (NotTranslatableError, *_UNREADABLE):
        return ()
    return names if all(names) and "*" not in names else ()


def parse_query(sql: str, side: DialectSide) -> exp.Expr:
    """Return the query's syntax tree; what could keep the parser busy, or end it, is refused first."""
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
        raise NotTranslatableError("a query that sqlglot does not read") from error
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


@dataclass(slots=True)
class _LakeTables:
    """Names of tables as Spark reads them: without a catalog they're in the default one, None for the view's own.

    The lake's name in Spark is unknown, so a catalog that all full names share is taken for it.
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
        schema = to_schema_name(tuple(namespace) or self.namespace)
        if not schema:
            refuse_construct(f"{table[:60]}, a table without a namespace")
        return f"{{DUCKLAKE_CATALOG}}.{DUCKDB.quote_name(schema)}.{DUCKDB.quote_name(table)}"

    def _check_catalog(self, catalog: str) -> None:
        self.lake = self.lake or catalog
        if catalog != self.lake or catalog in {self.catalog, "spark_catalog", "system"}:
            refuse_construct(f"a table of the catalog {catalog[:60]}")


def _unquote_name(node: exp.Expr) -> bool:
    return node.is_star or isinstance(node, exp.Column | exp.Alias)


def _select_by_name(text: str, schema: Schema) -> str:
    """Return the columns as they were when the view was written: `*` has others once the table has."""
    names = [field.name for field in schema.fields]
    return f"SELECT {', '.join(map(SPARK.quote_name, names))} FROM ({text})"


def _check_unlike(tree: exp.Expr, unlike: Collection[str]) -> None:
    """Refuse to do more with columns of other types than to hand them on under their own names."""
    compared = tree.find(exp.SetOperation, exp.Distinct) is not None
    for column in tree.find_all(exp.Column) if unlike else ():
        if column.name.lower() in unlike and (compared or not isinstance(column.parent, exp.Select)):
            refuse_construct(f"an expression of {column.name[:60]}, which has another type in Spark")
