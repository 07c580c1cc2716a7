"""Parse and format table names such as `ns.t`."""

import re
from typing import Final

from duckicelake.errors import BadInput

Namespace = tuple[str, ...]

_LEVEL: Final = re.compile(r"`((?:[^`]|``)+)`|([^`.]+)")


def parse_name(text: str) -> Namespace:
    """The levels of a namespace's or table's name; BadInput."""
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
    raise BadInput(f"{text!r} is no name: write ns.table, and levels that have dots in backticks, as `a.b`.table")


def parse_table(text: str) -> tuple[Namespace, str]:
    """(namespace, name) of a table; BadInput where the namespace is missing."""
    *namespace, name = parse_name(text)
    if not namespace:
        raise BadInput(f"{text!r} has no namespace: write ns.table")
    return tuple(namespace), name


def quote_name(*levels: str) -> str:
    """A name of several levels as SQL, each in backticks."""
    return ".".join(f"`{level.replace('`', '``')}`" for level in levels)


def format_name(namespace: Namespace, table: str) -> str:
    """A table's name for people: backticks only where they are needed; `parse_table` reads it again."""
    return ".".join(quote_name(level) if "." in level or "`" in level else level for level in (*namespace, table))
