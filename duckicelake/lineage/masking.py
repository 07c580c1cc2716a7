"""PURE. SQL and messages without the values in them: neither literals nor what comments may hold enter an event."""

import re
from typing import Final

from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from duckicelake.lineage.sql.dialects import dialect_of

LONGEST: Final = 20_000
"""Characters of a statement that an event has."""

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


def masked(sql: str, dialect: str) -> str | None:
    """The statement as its author wrote it, but with `?` for each literal and without comments.

    None where it can't be told what is a literal: such a text is kept out of events.
    """
    found = dialect_of(dialect)
    try:
        tokens = None if found is None else found.tokens(sql)
    except SqlglotError:
        return None
    if tokens is None:
        return None
    text, after = [], 0
    for token in tokens:
        if token.start >= after:
            text.append(_gap(sql[after : token.start]) + _said(token, sql))
            after = token.end + 1
    return _GLUED.sub("?", "".join(text)).strip()[:LONGEST]


def safe_message(error: BaseException, *, keep: bool = False) -> str:
    """What an error says, without values: those of data are withheld altogether."""
    kind, message = type(error).__name__, str(error)
    if keep:
        return message or kind
    if kind not in _NAMING:
        return kind
    first = re.split(r"\n|\bLINE \d+:", message, maxsplit=1)[0].strip()
    return _VALUES.sub("?", first) or kind


def _gap(between: str) -> str:
    """What stands between two tokens: a comment, if it isn't space."""
    return between if between.isspace() or not between else " "


def _said(token: Token, sql: str) -> str:
    return "?" if token.token_type in _LITERALS else sql[token.start : token.end + 1]


def tells_values(column: str) -> bool:
    """Tell whether a column's name, which an engine may have made of an expression, may have a value in it."""
    return _VALUES.search(column) is not None
