"""Read and write views; each change that DuckDB can see is one DuckLake snapshot."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import orjson
from psycopg import Cursor
from psycopg.types.json import Json

from duckicelake.lake.conflicts import StaleBaseError
from duckicelake.lake.ducklake import dropped
from duckicelake.lake.ducklake.schemas import check_name_free, check_target_free, has_namespace
from duckicelake.lake.ducklake.snapshots import begin_snapshot, lock_writers, quote_name, record_changes
from duckicelake.lake.model import LakeView, ObjectTag, ViewDefinition
from duckicelake.lake.state import ViewRow
from duckicelake.postgres.queries import Row, load_queries

_SQL = load_queries("lake", "views")


@dataclass(frozen=True, slots=True)
class ViewTarget:
    """The new state of a view: metadata for Iceberg clients, a definition for DuckDB."""

    metadata: Mapping[str, Any]
    metadata_location: str
    version_id: int
    definition: ViewDefinition


def read_view_names(cursor: Cursor[Row], schema_name: str, after: str, most: int | None) -> list[str] | None:
    """Read names of live views after a key, in code point order; None if there is no such namespace."""
    if not has_namespace(cursor, schema_name):
        return None
    parameters = {"schema_name": schema_name, "after": after, "most": most}
    return [row[0] for row in cursor.execute(_SQL.names, parameters).fetchall()]


def find_view(cursor: Cursor[Row], schema_name: str, view_name: str) -> LakeView | None:
    """Find the live view of that name."""
    row = cursor.execute(_SQL.find, {"schema_name": schema_name, "view_name": view_name}).fetchone()
    if row is None:
        return None
    view_id, view_uuid, schema, name, timestamp_ms, tags, *definition = row
    found = tuple(ObjectTag(None, key, value) for key, value in tags)
    return LakeView(view_id, view_uuid, schema, name, timestamp_ms, _parse_definition(*definition), found)


def read_view_row(cursor: Cursor[Row], view_id: int) -> ViewRow | None:
    """Read the side-table row of the view, or of the view that it replaced; None if Iceberg clients saw neither."""
    row = cursor.execute(_SQL.side_row, {"view_id": view_id}).fetchone()
    if row is None:
        return None
    known_id, version, metadata, metadata_location, *definition = row
    return ViewRow(known_id, version, metadata, metadata_location, _parse_definition(*definition))


def _parse_definition(
    dialect: str, query: str, column_aliases: str, comment: str | None, column_comments: Sequence[Sequence[str]]
) -> ViewDefinition:
    comments = tuple((name, text) for name, text in column_comments)
    return ViewDefinition(dialect, query, column_aliases, comment, comments)


def create_view(cursor: Cursor[Row], schema_name: str, view_name: str, view_uuid: str, target: ViewTarget) -> None:
    """Create a view. Raises NoSuchNamespaceError, AlreadyExistsError, InvalidRequestError for its name."""
    snapshot = begin_snapshot(cursor, schema_change=True, catalog_ids=1)
    place = check_name_free(cursor, schema_name, view_name, "View")
    view_id = snapshot.first_catalog_id
    parameters = {
        **_build_parameters(view_id, target),
        "schema_id": place.schema_id,
        "view_name": view_name,
        "view_uuid": view_uuid,
        "at": snapshot.id,
    }
    cursor.execute(_SQL.insert, parameters)
    if target.definition.comment is not None:
        cursor.execute(_SQL.insert_comment, parameters)
    cursor.execute(_SQL.insert_side_row, parameters | _comment_columns(cursor, parameters))
    change = f"created_view:{quote_name(place.recorded_name, view_name)}"
    record_changes(cursor, snapshot.id, [change], extra_info=_build_extra_info(view_id, target))


def change_view(cursor: Cursor[Row], base: ViewRow, view: LakeView, target: ViewTarget, *, redefined: bool) -> None:
    """Write a client's commit to the view; StaleBaseError if the view is no longer what it was computed from.

    A change of other properties alone makes no DuckLake snapshot.
    """
    lock_writers(cursor)
    parameters = {**_build_parameters(view.view_id, target), "base_id": base.view_id, "base_version": base.version}
    at = begin_snapshot(cursor, schema_change=True).id if redefined else None
    if find_view(cursor, view.schema_name, view.view_name) != view:
        raise StaleBaseError(f"DuckDB changed view {view.view_id}")
    if at is not None:
        parameters["at"] = at
        _replace_definition(cursor, view.definition, target.definition, parameters)
        parameters |= _comment_columns(cursor, parameters)
    if not cursor.execute(_SQL.update_side_row, parameters).rowcount:
        raise StaleBaseError(f"view {view.view_id} is no longer at version {base.version}")
    if at is not None:
        record_changes(cursor, at, [f"altered_view:{view.view_id}"], extra_info=_build_extra_info(view.view_id, target))


def adopt_view(cursor: Cursor[Row], base: ViewRow | None, view: LakeView, target: ViewTarget) -> None:
    """Record DuckDB's change of a view, without a DuckLake snapshot; StaleBaseError: another worker was faster."""
    parameters = _build_parameters(view.view_id, target)
    if base is None:
        cursor.execute(_SQL.delete_expired)
        written = cursor.execute(_SQL.insert_side_row, parameters).rowcount
    else:
        parameters |= {"base_id": base.view_id, "base_version": base.version}
        written = cursor.execute(_SQL.update_side_row, parameters).rowcount
    if not written:
        raise StaleBaseError(f"view {view.view_id} was taken over by another worker")


def rename_view(cursor: Cursor[Row], source: tuple[str, str], destination: tuple[str, str]) -> bool:
    """Rename the view, if there is one of the source's (schema name, view name).

    Raises NoSuchNamespaceError, AlreadyExistsError, InvalidRequestError for the destination.
    """
    snapshot = begin_snapshot(cursor, schema_change=True)
    view = find_view(cursor, *source)
    if view is None:
        return False
    place = check_target_free(cursor, source, destination, view.view_id)
    parameters = {"view_id": view.view_id, "at": snapshot.id, "schema_id": place.schema_id, "view_name": destination[1]}
    cursor.execute(_SQL.rename, parameters)
    cursor.execute(_SQL.end_column_tags, parameters | {"goes_on": True})
    changes = [f"created_view:{quote_name(place.recorded_name, destination[1])}", f"altered_view:{view.view_id}"]
    record_changes(cursor, snapshot.id, changes)
    return True


def drop_view(cursor: Cursor[Row], schema_name: str, view_name: str) -> bool:
    """Drop the view of this name, if there is one. Its metadata files stay, so that it can be registered again."""
    snapshot = begin_snapshot(cursor, schema_change=True)
    view = find_view(cursor, schema_name, view_name)
    if view is None:
        return False
    parameters = {"view_id": view.view_id, "at": snapshot.id, "goes_on": False}
    cursor.execute(_SQL.drop, parameters)
    cursor.execute(_SQL.end_column_tags, parameters)
    record_changes(cursor, snapshot.id, [f"dropped_view:{view.view_id}"])
    known = read_view_row(cursor, view.view_id)
    if known is not None and not dropped.read_retention(cursor):
        cursor.execute(_SQL.delete_side_row, {"view_id": known.view_id})
    return True


def _replace_definition(
    cursor: Cursor[Row], before: ViewDefinition, after: ViewDefinition, parameters: Mapping[str, object]
) -> None:
    if (before.dialect, before.sql, before.column_aliases) != (after.dialect, after.sql, after.column_aliases):
        cursor.execute(_SQL.redefine, parameters)
    if before.comment != after.comment:
        cursor.execute(_SQL.end_comment, parameters)
        cursor.execute(_SQL.insert_comment, parameters)


def _comment_columns(cursor: Cursor[Row], parameters: Mapping[str, object]) -> dict[str, object]:
    """Write the comments of the view's columns; return those that the lake has then, as a parameter of its side row."""
    ((stored,),) = cursor.execute(_SQL.comment_columns, parameters).fetchall()
    return {"column_comments": Json(stored)}


def _build_parameters(view_id: int, target: ViewTarget) -> dict[str, object]:
    return {
        "view_id": view_id,
        "metadata": Json(target.metadata),
        "metadata_location": target.metadata_location,
        **asdict(target.definition),
        "column_comments": Json(target.definition.column_comments),
    }


def _build_extra_info(view_id: int, target: ViewTarget) -> str:
    return orjson.dumps({"iceberg": {str(view_id): target.version_id}}).decode()
