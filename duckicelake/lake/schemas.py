"""DuckLake's schemas in SQL, and the properties that Iceberg clients set on them."""

import re
from uuid import uuid4

from duckicelake.lake.postgres.database import Transaction
from duckicelake.lake.postgres.queries import queries
from duckicelake.lake.snapshots import NewSnapshot, quoted, record_changes

_SQL = queries("schemas")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]+")


def live_schemas(cursor: Transaction) -> dict[str, int]:
    """Schema ids by name, in code point order."""
    return {name: schema_id for schema_id, name in cursor.execute(_SQL.live).fetchall()}


def create_schema(cursor: Transaction, snapshot: NewSnapshot, name: str) -> int:
    """Create a schema in a snapshot that was begun with `schema_change` and one catalog id; return its id."""
    schema_id = snapshot.first_catalog_id
    uuid = uuid4()
    # DuckDB names the folder after the schema only where that needs no escaping.
    path = f"{name if _PLAIN_NAME.fullmatch(name) else uuid}/"
    parameters = {"schema_id": schema_id, "uuid": uuid, "snapshot_id": snapshot.id, "name": name, "path": path}
    cursor.execute(_SQL.insert_schema, parameters)
    record_changes(cursor, snapshot.id, [f"created_schema:{quoted(name)}"])
    return schema_id


def drop_schema(cursor: Transaction, snapshot: NewSnapshot, schema_id: int) -> None:
    """End an empty schema in a snapshot that was begun with `schema_change`, and forget its properties."""
    cursor.execute(_SQL.end_schema, {"schema_id": schema_id, "snapshot_id": snapshot.id})
    cursor.execute(_SQL.delete_properties, {"schema_id": schema_id})
    record_changes(cursor, snapshot.id, [f"dropped_schema:{schema_id}"])


def schema_contents(cursor: Transaction, schema_id: int) -> list[str]:
    """What the schema holds, as "table t", "view v" or "macro m"."""
    return [row[0] for row in cursor.execute(_SQL.contents, {"schema_id": schema_id}).fetchall()]


def schema_properties(cursor: Transaction, schema_id: int) -> dict[str, str]:
    """The properties that Iceberg clients have set; none for a schema that DuckDB made."""
    row = cursor.execute(_SQL.properties, {"schema_id": schema_id}).fetchone()
    return row[0] if row else {}


def set_schema_properties(cursor: Transaction, schema_id: int, properties: dict[str, str]) -> None:
    """Replace all properties; makes no snapshot, DuckLake has no place for them."""
    cursor.execute(_SQL.set_properties, {"schema_id": schema_id, "properties": properties})
