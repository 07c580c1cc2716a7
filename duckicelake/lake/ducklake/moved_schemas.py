"""Move schemas to other names, with all that is in them, as one part of a DuckLake snapshot.

A schema has one row for ever: its id is the key. DuckDB itself can't rename one. A moved schema therefore ends and a
new one begins, with its uuid and folder; its tables, views and macros get their next version there, as a rename gives
them one. Older snapshots show everything under the old name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import Cursor

from duckicelake.lake.ducklake.dropped import forget_dropped
from duckicelake.lake.ducklake.snapshots import SnapshotAllocation, quote_name, record_changes
from duckicelake.postgres.queries import Row, Transaction, load_queries

_SQL = load_queries("lake", "moved_schemas")


@dataclass(frozen=True, slots=True)
class MovedContents:
    """What moved. schema_ids: the new by the old ones; tables, views: how many moved with their schemas."""

    schema_ids: Mapping[int, int]
    tables: int
    views: int


@dataclass(frozen=True, slots=True)
class NamingView:
    """A live view whose texts have a word. version: Iceberg's current one, None if only DuckDB knows the view."""

    schema_name: str
    name: str
    duckdb_sql: str
    version: Mapping[str, Any] | None


def move_schemas(
    cursor: Transaction, snapshot: SnapshotAllocation, names: Mapping[int, str], source: str, destination: str
) -> MovedContents:
    """Give live schemas, none of them nested, other names in a snapshot that was begun with `schema_change`.

    names: the new ones by schema id. source, destination: the old and new full name of the namespace that moves. What
    was dropped in it lately is brought back under the new name.
    """
    taken = cursor.execute(_SQL.take_ids, {"at": snapshot.id, "count": len(names)}).fetchone()
    assert taken is not None
    new_ids = [taken[0] + place for place in range(len(names))]
    new_names = dict(zip(new_ids, names.values(), strict=True))
    parameters = {
        "at": snapshot.id,
        "schema_version": snapshot.schema_version,
        "old_ids": list(names),
        "new_ids": new_ids,
        "names": list(names.values()),
    }
    cursor.execute(_SQL.move_schemas, parameters)
    tables = cursor.execute(_SQL.move_tables, parameters).fetchall()
    views = cursor.execute(_SQL.move_views, parameters).fetchall()
    macros = cursor.execute(_SQL.move_macros, parameters).fetchall()
    cursor.execute(_SQL.move_column_tags, {"at": snapshot.id, "view_ids": [view_id for _, view_id, _ in views]})
    changes = [
        *(f"dropped_schema:{old_id}" for old_id in names),
        *(f"created_schema:{quote_name(name)}" for name in names.values()),
        *_list_changes("table", tables, new_names),
        *_list_changes("view", views, new_names),
        *(f"created_{kind}_macro:{quote_name(new_names[new_id], name)}" for new_id, kind, name in macros),
    ]
    record_changes(cursor, snapshot.id, changes)
    for old_id in names:  # they aren't dropped
        forget_dropped(cursor, "namespace", old_id)
    cursor.execute(_SQL.forget_old_names)
    cursor.execute(_SQL.move_dropped, {"from_name": source, "to_name": destination})
    return MovedContents(dict(zip(names, new_ids, strict=True)), len(tables), len(views))


def _list_changes(kind: str, moved: Sequence[Row], schemas: Mapping[int, str]) -> list[str]:
    """List the tokens of tables or views; as after a rename, `altered` makes concurrent changes fail."""
    created = [f"created_{kind}:{quote_name(schemas[new_id], name)}" for new_id, _, name in moved]
    return [*created, *(f"altered_{kind}:{object_id}" for _, object_id, _ in moved)]


def read_naming_views(cursor: Cursor[Row], word: str) -> list[NamingView]:
    """Read the live views whose SQL in DuckDB, or in any of Iceberg's versions, has the word in any case."""
    return [NamingView(*row) for row in cursor.execute(_SQL.naming_views, {"word": word}).fetchall()]
