"""PURE. Whether columns can be those of a table: DuckDB makes no others, and loads no lake that has others."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from duckicelake.lake.model import Column, folded

_FIELDS = {"list": 1, "map": 2}


def flaw_of(columns: Sequence[Column]) -> str | None:
    """What keeps the columns from being a tree of named and typed ones, as of a table; None if they are."""
    return next(_flaws(columns), None)


def _flaws(columns: Sequence[Column]) -> Iterator[str]:
    if not columns:
        yield "it has no columns"
    for column_id, count in Counter(column.column_id for column in columns).items():
        if count > 1:
            yield f"it has column {column_id} {count} times"
    children: defaultdict[int | None, list[Column]] = defaultdict(list)
    for column in columns:
        children[column.parent_column].append(column)
    waiting: list[Column | None] = [None]
    while waiting:
        parent = waiting.pop()
        inside = children.pop(None if parent is None else parent.column_id, [])
        yield from _flaws_of(parent, inside)
        waiting += inside
    if children:
        yield f"its columns {sorted(c.column_id for each in children.values() for c in each)} are in none that it has"


def _flaws_of(parent: Column | None, inside: Sequence[Column]) -> Iterator[str]:
    if parent is not None and parent.column_type != "struct" and len(inside) != _FIELDS.get(parent.column_type, 0):
        yield f"its column {parent.column_name}, a {parent.column_type}, has {len(inside)} fields in it"
    for column in inside:
        if not column.column_name or not column.column_type:
            yield f"its column {column.column_id} has no name or no type"
    for name, count in Counter(folded(column.column_name) for column in inside).items():
        if count > 1:
            yield f"{count} of its columns are named {name!r}: DuckDB makes no difference between upper and lower case"
