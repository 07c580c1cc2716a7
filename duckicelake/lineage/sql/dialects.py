"""PURE. SQL dialects with limits on size and depth; mask literals and comments in SQL and messages."""

import re
from collections.abc import Sequence
from enum import Enum
from typing import Final

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.spark import Spark
from sqlglot.dialects.trino import Trino
from sqlglot.errors import SqlglotError
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.parsers.spark import SparkParser
from sqlglot.parsers.trino import TrinoParser
from sqlglot.tokenizer_core import Token, TokenType

MAX_SQL_CHARS: Final = 200_000
_MAX_TOKENS: Final = 20_000
_MAX_DEPTH: Final = 40
_MAX_CHAIN: Final = 3_000
"""Tokens without a comma in between: each operator in a row is a level of the tree."""
_OPENING: Final = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE})
_CLOSING: Final = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END})
_SEPARATORS: Final = frozenset({TokenType.COMMA, TokenType.SEMICOLON})
MAX_MASKED_CHARS: Final = 20_000
"""Characters of a statement in an event."""
_LITERALS: Final = frozenset(
    {
        TokenType.STRING,
        TokenType.NUMBER,
        TokenType.BIT_STRING,
        TokenType.HEX_STRING,
        TokenType.BYTE_STRING,
        TokenType.NATIONAL_STRING,
        TokenType.RAW_STRING,
        TokenType.HEREDOC_STRING,
        TokenType.UNICODE_STRING,
    }
)
_GLUED: Final = re.compile(r"\?[?\w]+")
"""A literal with what belongs to it, such as the suffix of a number."""
_VALUES: Final = re.compile(r"'(?:[^']|'')*'?|(?<!\w)\d[\w.]*")
_NAMING: Final = frozenset({"CatalogException", "BinderException"})
"""DuckDB's errors about names; others quote values, of the statement or of data."""


class _QuietDuckDBParser(DuckDBParser):
    def _warn_unsupported(self) -> None:
        """Log no warning about a statement that can't be parsed."""


class _DuckDB(DuckDB):
    Parser = _QuietDuckDBParser


class _QuietSparkParser(SparkParser):
    def _warn_unsupported(self) -> None:
        """Log no warning about a statement that can't be parsed."""


class _Spark(Spark):
    Parser = _QuietSparkParser


class _QuietTrinoParser(TrinoParser):
    def _warn_unsupported(self) -> None:
        """Log no warning about a statement that can't be parsed."""


class _Trino(Trino):
    Parser = _QuietTrinoParser


class SqlDialect(Enum):
    """A dialect, by the name that Iceberg's views have for it."""

    DUCKDB = "duckdb"
    SPARK = "spark"
    TRINO = "trino"

    @property
    def parser(self) -> Dialect:
        """Sqlglot's dialect."""
        return {SqlDialect.DUCKDB: _DuckDB, SqlDialect.SPARK: _Spark, SqlDialect.TRINO: _Trino}[self]()

    def tokens(self, sql: str) -> list[Token] | None:
        """Split a text into tokens; None if it is too long. Raises sqlglot's errors."""
        if len(sql) > MAX_SQL_CHARS:
            return None
        return self.parser.tokenize(sql)

    def parse(self, sql: str) -> exp.Expr | None:
        """Parse a single statement; None for other texts and too large ones. Raises sqlglot's errors."""
        tokens = self.tokens(sql)
        if tokens is None or len(tokens) > _MAX_TOKENS or _is_deep(tokens):
            return None
        trees = [tree for tree in self.parser.parser().parse(tokens, sql) if tree is not None]
        return trees[0] if len(trees) == 1 else None


def find_dialect(name: str) -> SqlDialect | None:
    """Find a dialect by name, ignoring case; None for an unsupported one."""
    return next((dialect for dialect in SqlDialect if dialect.value == name.lower()), None)


def _is_deep(tokens: Sequence[Token]) -> bool:
    """Return whether brackets or operators nest too deep for Python's stack."""
    depth = chain = 0
    for token in tokens:
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        chain = 0 if token.token_type in _SEPARATORS else chain + 1
        if depth > _MAX_DEPTH or chain > _MAX_CHAIN:
            return True
    return False


def mask_sql(sql: str, dialect: str) -> str | None:
    """Mask a statement: `?` for each literal, no comments, everything else unchanged.

    None if literals can't be found: events leave such a text out.
    """
    found = find_dialect(dialect)
    try:
        tokens = None if found is None else found.tokens(sql)
    except SqlglotError:
        return None
    if tokens is None:
        return None
    text, after = [], 0
    for token in tokens:
        if token.start >= after:
            text.append(_keep_gap(sql[after : token.start]) + _format_token(token, sql))
            after = token.end + 1
    return _GLUED.sub("?", "".join(text)).strip()[:MAX_MASKED_CHARS]


def mask_message(error: BaseException, *, keep: bool = False) -> str:
    """Mask an error's message: no values. Messages with data are withheld."""
    kind, message = type(error).__name__, str(error)
    if keep:
        return message or kind
    if kind not in _NAMING:
        return kind
    first = re.split(r"\n|\bLINE \d+:", message, maxsplit=1)[0].strip()
    return _VALUES.sub("?", first) or kind


def _keep_gap(between: str) -> str:
    """Keep the text between two tokens, unless it is a comment."""
    return between if between.isspace() or not between else " "


def _format_token(token: Token, sql: str) -> str:
    return "?" if token.token_type in _LITERALS else sql[token.start : token.end + 1]


def may_show_values(column: str) -> bool:
    """Return whether a column's name may contain a value, as an engine's name of an expression does."""
    return _VALUES.search(column) is not None
