"""Search the lake's names and comments, in one statement."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from duckicelake.postgres.queries import Transaction, load_queries

_SQL: Final = load_queries("lake", "search")


@dataclass(frozen=True, slots=True)
class FoundObject:
    """A namespace, table or view that holds a text.

    Attributes:
        key: by which a next page begins.
        name: empty of a namespace.
        columns: those whose name or comment holds the text.
        by_name: the full name does; the others say the same of comment, columns and their comments.

    """

    key: str
    kind: Literal["namespace", "table", "view"]
    schema_name: str
    name: str
    comment: str | None
    columns: Sequence[str]
    by_name: bool
    by_comment: bool
    by_column: bool
    by_column_comment: bool


@dataclass(frozen=True, slots=True)
class SearchScope:
    """Where to search. namespace: in it and below; None: everywhere.

    visible: schemas whose tables, and those below them, may be found; None: all. visible_ids: and other objects.
    """

    namespace: str | None
    visible: Sequence[str] | None
    visible_ids: Sequence[int] = ()


def find_objects(
    cursor: Transaction, text: str, scope: SearchScope, after: str, limit: int | None
) -> list[FoundObject]:
    """Find namespaces, tables and views by a part of a word, in any case; every namespace of the scope."""
    rows = cursor.execute(
        _SQL.search,
        {
            "text": text,
            "namespace": scope.namespace,
            "visible": None if scope.visible is None else list(scope.visible),
            "visible_ids": list(scope.visible_ids),
            "after": after,
            "limit": limit,
        },
    )
    return [FoundObject(*row) for row in rows.fetchall()]
