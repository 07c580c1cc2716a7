"""Schemas with their properties, and the checks of names in them (design §6.8)."""

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple
from uuid import uuid4

from psycopg import Cursor

from duckicelake.errors import AlreadyExistsError, InvalidRequestError, NoSuchNamespaceError
from duckicelake.iceberg.identifiers import format_full_name
from duckicelake.lake.ducklake.database import build_nested_refusal
from duckicelake.lake.ducklake.snapshots import SnapshotAllocation, quote_name, record_changes
from duckicelake.postgres.queries import Row, Transaction, load_queries

ObjectKind = Literal["Table", "View"]
_NAMES_SQL = load_queries("lake", "names")
_SQL = load_queries("lake", "schemas")
_PLAIN_NAME_PATTERN = re.compile(r"[A-Za-z0-9_-]+")


class SchemaPlace(NamedTuple):
    """A live schema for a new object. recorded_name: its name in DuckLake."""

    schema_id: int
    recorded_name: str


class LiveSchema(NamedTuple):
    """A live schema. is_nested: it lies within another one, as in DuckLake 1.1."""

    schema_id: int
    is_nested: bool


def has_namespace(cursor: Cursor[Row], schema_name: str) -> bool:
    """Return whether there is such a namespace, virtual or real."""
    row = cursor.execute(_NAMES_SQL.namespace_exists, {"schema_name": schema_name}).fetchone()
    return row is not None and bool(row[0])


def check_name_free(cursor: Cursor[Row], schema_name: str, name: str, kind: ObjectKind = "Table") -> SchemaPlace:
    """Find the live schema in which a new table or view may have the name.

    Raises NoSuchNamespaceError, AlreadyExistsError in the words of Iceberg's own catalogs, InvalidRequestError if only
    case differs, UnsupportedError for a nested schema.
    """
    place = _read_schema_place(cursor, schema_name, f"{kind} {format_full_name(schema_name, name)}")
    taken = _find_taken(cursor, place.schema_id, schema_name, name)
    if taken is not None:
        problem = f"{kind} already exists" if taken == kind else f"{taken} with same name already exists"
        raise AlreadyExistsError(f"{problem}: {format_full_name(schema_name, name)}")
    return place


def check_name_new(name: tuple[str, str], others: Iterable[tuple[str, str]]) -> None:
    """Raise as `check_name_free` if one of these tables of the same commit has the (schema name, name)."""
    for other in others:
        if other == name:
            raise AlreadyExistsError(f"Table already exists: {format_full_name(*name)}")
        if _fold_name(other) == _fold_name(name):
            raise _is_other_case(name, other[1])


def check_target_free(
    cursor: Cursor[Row], source: tuple[str, str], target: tuple[str, str], own_id: int
) -> SchemaPlace:
    """Find the schema to which table or view `own_id` may be renamed; names are (schema name, name).

    Another spelling of its own name is allowed. Raises what `check_name_free` raises.
    """
    place = _read_schema_place(cursor, target[0], format_full_name(*target))
    taken = _find_taken(cursor, place.schema_id, *target, own_id)
    if taken is not None:
        raise AlreadyExistsError(
            f"Cannot rename {format_full_name(*source)} to {format_full_name(*target)}. {taken} already exists"
        )
    return place


def _read_schema_place(cursor: Cursor[Row], schema_name: str, new: str) -> SchemaPlace:
    """Read the schema that is to hold a new object. Raises NoSuchNamespaceError, UnsupportedError for a nested one."""
    row = cursor.execute(_NAMES_SQL.place, {"schema_name": schema_name}).fetchone()
    if row is None:
        raise NoSuchNamespaceError(f"Namespace does not exist: {schema_name}")
    schema_id, recorded_name, is_nested = row
    if is_nested:
        raise build_nested_refusal(f"{new} can't be created in a schema that lies within another one")
    return SchemaPlace(schema_id, recorded_name)


def _find_taken(
    cursor: Cursor[Row], schema_id: int, schema_name: str, name: str, own_id: int | None = None
) -> str | None:
    """Find the object with the name. Raises InvalidRequestError if an existing name differs only by case."""
    found = cursor.execute(_NAMES_SQL.taken, {"schema_id": schema_id, "name": name, "own_id": own_id}).fetchall()
    for kind, other in found:
        if other == name:
            return str(kind)
    for _, other in found:
        raise _is_other_case((schema_name, name), other)
    return None


def _fold_name(name: tuple[str, str]) -> tuple[str, str]:
    return name[0], name[1].lower()


def _is_other_case(name: tuple[str, str], other: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{format_full_name(*name)} differs only by case from {format_full_name(name[0], other)}, "
        "which DuckDB would take for the same table: choose another name"
    )


def read_live_schemas(cursor: Transaction) -> dict[str, LiveSchema]:
    """Read schemas by full name, in code point order."""
    return {name: LiveSchema(*schema) for name, *schema in cursor.execute(_SQL.live).fetchall()}


def create_schema(cursor: Transaction, snapshot: SnapshotAllocation, name: str) -> int:
    """Create a schema in a snapshot that was begun with `schema_change` and one catalog id; return its id."""
    schema_id = snapshot.first_catalog_id
    uuid = uuid4()
    # DuckDB names the folder after the schema only where that needs no escaping.
    path = f"{name if _PLAIN_NAME_PATTERN.fullmatch(name) else uuid}/"
    parameters = {
        "schema_id": schema_id,
        "uuid": uuid,
        "snapshot_id": snapshot.id,
        "name": name,
        "path": path,
        "free_path": f"{uuid}/",
    }
    cursor.execute(_SQL.insert_schema, parameters)
    record_changes(cursor, snapshot.id, [f"created_schema:{quote_name(name)}"])
    return schema_id


def drop_schema(cursor: Transaction, snapshot: SnapshotAllocation, schema_id: int, *, is_kept: bool) -> None:
    """End an empty schema in a snapshot that was begun with `schema_change`.

    is_kept: it may be brought back; else its properties are forgotten.
    """
    cursor.execute(_SQL.end_schema, {"schema_id": schema_id, "snapshot_id": snapshot.id})
    record_changes(cursor, snapshot.id, [f"dropped_schema:{schema_id}"])
    if not is_kept:
        cursor.execute(_SQL.delete_properties, {"schema_id": schema_id})


def read_schema_contents(cursor: Transaction, schema_id: int) -> list[str]:
    """Read what the schema holds, as "namespace a.b", "table t", "view v" or "macro m"."""
    return [row[0] for row in cursor.execute(_SQL.contents, {"schema_id": schema_id}).fetchall()]


def read_schema_properties(cursor: Transaction, schema_id: int) -> dict[str, str]:
    """Read the properties that Iceberg clients have set; none for a schema that DuckDB made."""
    row = cursor.execute(_SQL.properties, {"schema_id": schema_id}).fetchone()
    return row[0] if row else {}


def set_schema_properties(cursor: Transaction, schema_id: int, properties: dict[str, str]) -> None:
    """Replace all properties, without a snapshot: DuckLake has no place for them."""
    cursor.execute(_SQL.set_properties, {"schema_id": schema_id, "properties": properties})
