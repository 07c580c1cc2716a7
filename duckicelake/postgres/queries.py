"""Load named SQL."""

import re
from functools import cache
from importlib.resources import files
from typing import Any, Final

from psycopg import Cursor

Row = tuple[Any, ...]
Transaction = Cursor[Row]
"""A cursor inside one open transaction, as use cases pass it on."""

_STATEMENT_NAMES: dict[str, str] = {}
_HEAD_PATTERN = re.compile(r"(?:\A|\n[ \t]*\n)-- (\w+): .+$", re.MULTILINE)
"""The comment above a query: the file's first line, or behind an empty one. Others are part of a query."""
BATCH_ROWS: Final = 500
"""Rows that a statement takes without much memory."""
_SCHEMA_OID: Final = "coalesce(to_regnamespace(quote_ident(nullif(current_schema(), 'public')))::oid::bigint, 0)"
_FRAGMENTS: Final = {
    "{schema_key}": f"({_SCHEMA_OID} << 8)",
    "{short_schema_key}": f"{_SCHEMA_OID}::bit(32)::integer",
}
"""Texts that stand in queries for longer ones: what keeps the advisory locks of several lakes in one database apart.
Those of a lake in `public` are the plain keys, as older servers take them."""


class Queries:
    """The queries of one file, as attributes: `load_queries("lake", "schemas").insert_schema`."""

    def __init__(self, topic: str, text: str) -> None:
        self._topic = topic
        queries = _split_queries(text)
        self._known = ", ".join(sorted(queries))
        self.__dict__.update(queries)

    def __getattr__(self, name: str) -> str:
        """Raise AttributeError for an unknown query; the message lists the known ones."""
        raise AttributeError(f"sql/{self._topic}.sql has no query {name!r}, only {self._known}")


@cache
def load_queries(package: str, topic: str) -> Queries:
    """Load `sql/<topic>.sql` of a package once, as ("lineage.graph", "store"); FileNotFoundError if there is none."""
    text = files(f"duckicelake.{package}").joinpath("sql", f"{topic}.sql").read_text(encoding="utf-8")
    _STATEMENT_NAMES.update({sql: f"{topic}.{name}" for name, sql in _split_queries(text).items()})
    return Queries(topic, text)


def find_statement_name(statement: object) -> str:
    """Return the name of a statement, as `snapshots.lock`; its first word if it is in no file."""
    if not isinstance(statement, str):
        return "SQL"
    return _STATEMENT_NAMES.get(statement) or statement.split(maxsplit=1)[0]


def _split_queries(text: str) -> dict[str, str]:
    for name, fragment in _FRAGMENTS.items():
        text = text.replace(name, fragment)
    heads = list(_HEAD_PATTERN.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    found = {head[1]: text[head.end() : end].strip() for head, end in zip(heads, ends, strict=True)}
    if len(found) != len(heads):
        raise ValueError("two queries of one file have the same name")
    if not all(found.values()):
        raise ValueError("a query is empty: a comment may have a line like a head")
    return found


def replace_unstorable(text: str) -> str:
    """Replace the characters that a text of Postgres can't have: NUL, and lone surrogates."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()
