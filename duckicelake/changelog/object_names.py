"""SQL of the names and places of tables, views and schemas at given snapshots."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from duckicelake.postgres.queries import Row, Transaction, load_queries

_SQL = load_queries("changelog", "entries")
_KeyT = TypeVar("_KeyT")


@dataclass(frozen=True, slots=True)
class NamedObject:
    """A name that a table, view or schema had between two snapshots. name: None for a schema.

    location, format_version: as Iceberg clients see it now, if they have seen it.
    """

    object_id: int
    uuid: str | None
    begin: int
    end: int | None
    namespace: str
    name: str | None
    location: str | None = None
    format_version: int | None = None

    def visible(self, snapshot_id: int) -> bool:
        return self.begin <= snapshot_id and (self.end is None or snapshot_id < self.end)


Begun = tuple[int, str, str]
"""(Snapshot, schema, name) of something that got the name at the snapshot."""


def find_begun_tables(cursor: Transaction, begun: Sequence[Begun]) -> dict[Begun, list[int]]:
    """Find the ids of tables by name and first snapshot. Several nested schemas may have one name."""
    return _find_begun(cursor, _SQL.begun_tables, begun)


def find_begun_views(cursor: Transaction, begun: Sequence[Begun]) -> dict[Begun, list[int]]:
    """Find the ids of views, as `find_begun_tables` does."""
    return _find_begun(cursor, _SQL.begun_views, begun)


def find_begun_schemas(cursor: Transaction, begun: Sequence[tuple[int, str]]) -> dict[tuple[int, str], list[int]]:
    """Find ids of schemas by (snapshot, name)."""
    if not begun:
        return {}
    parameters = {"at": [at for at, _ in begun], "names": [name for _, name in begun]}
    return _group_ids(begun, cursor.execute(_SQL.begun_schemas, parameters).fetchall())


def _find_begun(cursor: Transaction, query: str, begun: Sequence[Begun]) -> dict[Begun, list[int]]:
    if not begun:
        return {}
    at, schemas, names = map(list, zip(*begun, strict=True))
    return _group_ids(begun, cursor.execute(query, {"at": at, "schemas": schemas, "names": names}).fetchall())


def _group_ids(begun: Sequence[_KeyT], rows: Iterable[Row]) -> dict[_KeyT, list[int]]:
    """Group ids by the question. rows: (ordinal of the question, id)."""
    found: dict[_KeyT, list[int]] = {}
    for ordinal, object_id in rows:
        if object_id not in found.setdefault(begun[ordinal - 1], []):
            found[begun[ordinal - 1]].append(object_id)
    return found


def read_table_names(cursor: Transaction, ids: Iterable[int]) -> list[NamedObject]:
    """Read all names that tables ever had, in order for each table."""
    return _read_named(cursor, _SQL.table_names, ids)


def read_view_names(cursor: Transaction, ids: Iterable[int]) -> list[NamedObject]:
    """Read all names that views ever had, in order for each view."""
    return _read_named(cursor, _SQL.view_names, ids)


def read_schema_names(cursor: Transaction, ids: Iterable[int]) -> list[NamedObject]:
    return _read_named(cursor, _SQL.schema_names, ids)


def read_last_names(cursor: Transaction, ids: Iterable[int]) -> list[NamedObject]:
    """Read the objects' last names in the changelog, as if they had always had them."""
    return _read_named(cursor, _SQL.last_names, ids)


def _read_named(cursor: Transaction, query: str, ids: Iterable[int]) -> list[NamedObject]:
    wanted = sorted(ids)
    return [NamedObject(*row) for row in cursor.execute(query, {"ids": wanted}).fetchall()] if wanted else []


ObjectName = tuple[str, str | None]
"""(Schema, name) of a table or view; None for the schema itself."""


def find_live_tables(cursor: Transaction, names: Sequence[ObjectName]) -> dict[ObjectName, int]:
    """Find the ids of live objects by name; names without one are left out."""
    return _find_live(cursor, _SQL.live_tables, names)


def find_live_views(cursor: Transaction, names: Sequence[ObjectName]) -> dict[ObjectName, int]:
    """Find the ids of live objects by name; names without one are left out."""
    return _find_live(cursor, _SQL.live_views, names)


def find_live_schemas(cursor: Transaction, names: Sequence[ObjectName]) -> dict[ObjectName, int]:
    """Find the ids of live objects by name; names without one are left out."""
    return _find_live(cursor, _SQL.live_schemas, names)


def _find_live(cursor: Transaction, query: str, names: Sequence[ObjectName]) -> dict[ObjectName, int]:
    if not names:
        return {}
    parameters = {"schemas": [schema for schema, _ in names], "names": [name for _, name in names]}
    return {names[ordinal - 1]: found for ordinal, found in cursor.execute(query, parameters).fetchall()}


def read_last_places(cursor: Transaction, ids: Iterable[int]) -> dict[int, tuple[str, int | None]]:
    """Read location and format version of dropped tables and views, from the changelog."""
    wanted = sorted(ids)
    rows = cursor.execute(_SQL.last_places, {"ids": wanted}).fetchall() if wanted else []
    return {object_id: (location, version) for object_id, location, version in rows}
