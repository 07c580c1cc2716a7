"""Parse and format table names such as `ns.t`."""

import re
from typing import Final

from duckicelake.errors import BadInputError

Namespace = tuple[str, ...]

_LEVEL: Final = re.compile(r"`((?:[^`]|``)+)`|([^`.]+)")


def parse_name(text: str) -> Namespace:
    """Parse the name of a namespace or table into its levels. Raises BadInputError."""
    levels, at = [], 0
    while True:
        match = _LEVEL.match(text, at)
        if match is None:
            break
        levels.append(match[2] if match[1] is None else match[1].replace("``", "`"))
        at = match.end() + 1
        if match.end() == len(text):
            return tuple(levels)
        if text[match.end()] != ".":
            break
    raise BadInputError(
        f"Invalid name {text!r}: expected ns.table; write levels with dots in backticks, as in `a.b`.table"
    )


def parse_table(text: str) -> tuple[Namespace, str]:
    """Parse a table's name into (namespace, name). Raises BadInputError if the namespace is missing."""
    *namespace, name = parse_name(text)
    if not namespace:
        raise BadInputError(f"Invalid table name {text!r}: it has no namespace; expected ns.table")
    return tuple(namespace), name


def quote_name(*levels: str) -> str:
    """Quote the levels of a name in backticks, for SQL."""
    return ".".join(f"`{level.replace('`', '``')}`" for level in levels)


def format_name(namespace: Namespace, table: str) -> str:
    """Format a table's name, with backticks only where needed; `parse_table` reads it again."""
    return ".".join(quote_name(level) if "." in level or "`" in level else level for level in (*namespace, table))
