"""PURE. The dialects of SQL that are read, and how much of a text is."""

from collections.abc import Sequence
from enum import Enum
from typing import Final

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.spark import Spark
from sqlglot.dialects.trino import Trino
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.parsers.spark import SparkParser
from sqlglot.parsers.trino import TrinoParser
from sqlglot.tokenizer_core import Token, TokenType

LONGEST: Final = 200_000
_MOST_TOKENS: Final = 20_000
_DEEPEST: Final = 40
_LONGEST_CHAIN: Final = 3_000
"""Tokens without a comma in between: operators in a row are levels of the tree."""

_OPENING: Final = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE})
_CLOSING: Final = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END})
_SEPARATORS: Final = frozenset({TokenType.COMMA, TokenType.SEMICOLON})


class _DuckDB(DuckDB):
    class Parser(DuckDBParser):
        def _warn_unsupported(self) -> None:
            """A statement that isn't read is nothing to tell the user."""


class _Spark(Spark):
    class Parser(SparkParser):
        def _warn_unsupported(self) -> None:
            """A statement that isn't read is nothing to tell the user."""


class _Trino(Trino):
    class Parser(TrinoParser):
        def _warn_unsupported(self) -> None:
            """A statement that isn't read is nothing to tell the user."""


class Sql(Enum):
    """A dialect, by the name that Iceberg's views have for it."""

    DUCKDB = "duckdb"
    SPARK = "spark"
    TRINO = "trino"

    @property
    def parser(self) -> Dialect:
        """How sqlglot reads the dialect."""
        return {Sql.DUCKDB: _DuckDB, Sql.SPARK: _Spark, Sql.TRINO: _Trino}[self]()

    def tokens(self, sql: str) -> list[Token] | None:
        """The text's tokens, None if it's longer than what is read; raises what sqlglot does."""
        if len(sql) > LONGEST:
            return None
        return self.parser.tokenize(sql)

    def parsed(self, sql: str) -> exp.Expr | None:
        """The one statement's tree, None for others and those that are too much; raises what sqlglot does."""
        tokens = self.tokens(sql)
        if tokens is None or len(tokens) > _MOST_TOKENS or _is_deep(tokens):
            return None
        trees = [each for each in self.parser.parser().parse(tokens, sql) if each is not None]
        return trees[0] if len(trees) == 1 else None


def dialect_of(name: str) -> Sql | None:
    """The dialect of a name, whatever its case; None for one that isn't read."""
    return next((each for each in Sql if each.value == name.lower()), None)


def _is_deep(tokens: Sequence[Token]) -> bool:
    """Tell whether brackets or operators nest deeper than what Python's stack is left for."""
    depth = chain = 0
    for token in tokens:
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        chain = 0 if token.token_type in _SEPARATORS else chain + 1
        if depth > _DEEPEST or chain > _LONGEST_CHAIN:
            return True
    return False
