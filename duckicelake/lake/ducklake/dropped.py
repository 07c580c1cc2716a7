"""Bring back tables, views and schemas that were dropped, each with one DuckLake snapshot.

DuckLake ends the rows of what is dropped at the snapshot that drops it. What comes back gets a row of its own from the
snapshot that brings it back, so that it isn't seen in between; the rows below it, of columns, files and comments, go on
as if they hadn't ended.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from psycopg import Cursor

from duckicelake.lake.ducklake import native
from duckicelake.lake.ducklake.schemas import SchemaPlace
from duckicelake.lake.ducklake.snapshots import SnapshotAllocation, quote_name
from duckicelake.postgres.queries import Row, Transaction, load_queries

DroppedKind = Literal["table", "view", "namespace"]
_SQL = load_queries("lake", "dropped")


@dataclass(frozen=True, slots=True)
class DroppedObject:
    """What was dropped and can be brought back. snapshot_id: DuckLake's, that dropped it; name: None of a namespace.

    is_purged: its files go when `kept_until` is over.
    """

    kind: DroppedKind
    object_id: int
    uuid: str
    schema_name: str
    name: str | None
    snapshot_id: int
    dropped_at: datetime
    kept_until: datetime
    is_purged: bool


def read_retention(cursor: Cursor[Row]) -> float:
    """Read for how many seconds the lake keeps what is dropped; 0: not at all."""
    ((seconds,),) = cursor.execute(_SQL.retention).fetchall()
    return float(seconds)


def set_retention(cursor: Transaction, seconds: float) -> None:
    """Set for how many seconds the lake keeps what is dropped from now on."""
    cursor.execute(_SQL.set_retention, {"seconds": seconds})


def read_dropped(
    cursor: Cursor[Row],
    namespace: str | None = None,
    kind: DroppedKind | None = None,
    object_id: int | None = None,
    *,
    after: tuple[int, int] | None = None,
    most: int | None = None,
) -> list[DroppedObject]:
    """Read what can be brought back, newest first. namespace: in it or below it, and itself.

    after: the (snapshot id, object id) behind which the list goes on.
    """
    parameters = {
        "namespace": namespace,
        "kind": kind,
        "object_id": object_id,
        "after": None if after is None else [-after[0], after[1]],
        "most": most,
    }
    return [DroppedObject(*row) for row in cursor.execute(_SQL.dropped, parameters).fetchall()]


def return_table(
    cursor: Transaction, found: DroppedObject, snapshot: SnapshotAllocation, place: SchemaPlace, name: str
) -> str:
    """Bring a table back under a free name; return the token of this change."""
    parameters = _build_parameters(found, snapshot, place.schema_id) | {
        "name": name,
        "absolute_path": native.read_path_prefix(cursor, found.object_id),
        "schema_version": snapshot.schema_version,
    }
    cursor.execute(_SQL.return_table, parameters)
    forget_dropped(cursor, found.kind, found.object_id)
    return f"created_table:{quote_name(place.recorded_name, name)}"


def return_view(
    cursor: Transaction, found: DroppedObject, snapshot: SnapshotAllocation, place: SchemaPlace, name: str
) -> str:
    """Bring a view back under a free name; return the token of this change."""
    cursor.execute(_SQL.return_view, _build_parameters(found, snapshot, place.schema_id) | {"name": name})
    forget_dropped(cursor, found.kind, found.object_id)
    return f"created_view:{quote_name(place.recorded_name, name)}"


def return_schema(cursor: Transaction, found: DroppedObject, snapshot: SnapshotAllocation) -> tuple[int, str]:
    """Bring a schema back under the snapshot's first catalog id, with its properties; return (id, token)."""
    schema_id = snapshot.first_catalog_id
    cursor.execute(_SQL.return_schema, _build_parameters(found, snapshot, schema_id) | {"name": found.schema_name})
    forget_dropped(cursor, found.kind, found.object_id)
    return schema_id, f"created_schema:{quote_name(found.schema_name)}"


def _build_parameters(found: DroppedObject, snapshot: SnapshotAllocation, schema_id: int) -> dict[str, object]:
    return {
        "object_id": found.object_id,
        "dropped": found.snapshot_id,
        "at": snapshot.id,
        "schema_id": schema_id,
    }


def request_purge(cursor: Cursor[Row], table_id: int, *, purge: bool) -> None:
    """Say of a table that was dropped in this transaction whether its files go when its time is over."""
    cursor.execute(_SQL.request_purge, {"object_id": table_id, "purge": purge})


def forget_dropped(cursor: Cursor[Row], kind: DroppedKind, object_id: int) -> None:
    """Forget that it was dropped: it is back, or can't be brought back any more."""
    cursor.execute(_SQL.forget, {"kind": kind, "object_id": object_id})


def end_retention(cursor: Transaction, kind: DroppedKind, object_id: int) -> bool:
    """End the time in which it can be brought back; return whether it could."""
    return cursor.execute(_SQL.end_now, {"kind": kind, "object_id": object_id}).rowcount > 0


def has_due(cursor: Cursor[Row]) -> bool:
    """Return whether the time of anything is over."""
    return cursor.execute(_SQL.has_due).fetchone() is not None


def take_due(cursor: Transaction) -> tuple[DroppedKind, int, bool] | None:
    """Take something whose time is over, under `lock_writers`; None if nothing is due.

    Forgets what was kept of it, but for a table's own rows. Returns (kind, id, whether a purge was asked for).
    """
    row = cursor.execute(_SQL.due).fetchone()
    if row is None:
        return None
    kind, object_id, is_purged = row
    if kind == "namespace":
        cursor.execute(_SQL.forget_namespace, {"object_id": object_id})
    elif kind == "view":
        cursor.execute(_SQL.forget_view, {"object_id": object_id})
    else:
        drop_options(cursor, object_id)
    forget_dropped(cursor, kind, object_id)
    return kind, object_id, is_purged


def drop_options(cursor: Cursor[Row], table_id: int) -> None:
    """Drop DuckLake's options of a table that is gone."""
    cursor.execute(_SQL.drop_options, {"object_id": table_id})
