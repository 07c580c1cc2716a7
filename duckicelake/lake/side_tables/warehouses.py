"""The registry of warehouses, as rows of `duckicelake_warehouse`, and the schemas of their lakes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal
from uuid import UUID, uuid4

from psycopg import sql
from psycopg.errors import InsufficientPrivilege

from duckicelake.errors import InvalidRequestError, NoSuchWarehouseError
from duckicelake.postgres.queries import Transaction, load_queries
from duckicelake.properties import is_policy

_SQL = load_queries("lake", "warehouses")

WarehouseState = Literal["creating", "active", "dropping"]
ACTIVE: Final = "active"
FIRST_NAME: Final = "duckicelake"
ALLOWED_LOCATIONS: Final = "allowed-locations"
"""The option with further places of a warehouse's files, separated by commas."""


@dataclass(frozen=True, slots=True)
class WarehouseRow:
    """A warehouse beside the first.

    Attributes:
        schema_name: the schema of its lake in Postgres.
        location: the folder of its files.
        is_adopted: the lake was there before the warehouse.
        profile: the name of its storage profile; None: the store of the settings.
        options: those beside the lake's own, by name.
        database_url: of the database of its lake, without the password; None: the database of the first warehouse.
        database_secret: the whole URL, encrypted.
        data_path: the DATA_PATH of a lake that was adopted; None: that of its location, or not known yet.
        state: only an active one is served; the others were left halfway, and can be created or dropped again.

    """

    warehouse_id: UUID
    name: str
    schema_name: str
    location: str
    is_adopted: bool
    state: WarehouseState
    created: datetime
    profile_id: UUID | None = None
    profile: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, hash=False)
    database_url: str | None = None
    database_secret: str | None = field(default=None, repr=False)
    data_path: str | None = None

    @property
    def allowed_locations(self) -> tuple[str, ...]:
        """Further places of its files, from its options."""
        return split_locations(self.options.get(ALLOWED_LOCATIONS))

    @property
    def places(self) -> tuple[str, ...]:
        """All prefixes of its files."""
        return (self.location, *self.allowed_locations, *(() if self.data_path is None else (self.data_path,)))

    @property
    def is_active(self) -> bool:
        return self.state == ACTIVE

    @property
    def policies(self) -> dict[str, str]:
        """Those of maintenance among its options, as table properties."""
        return {name: value for name, value in self.options.items() if is_policy(name)}


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """How another database is reached. url: without the password. secret: the whole URL, encrypted."""

    url: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class LakeContents:
    """How many objects a lake has, without the namespace `main` that each lake begins with."""

    tables: int
    views: int
    namespaces: int

    @property
    def is_empty(self) -> bool:
        return not (self.tables or self.views or self.namespaces)


@dataclass(frozen=True, slots=True)
class SchemaFacts:
    """What a schema of the database is.

    is_prepared: a server of this version or an older one has prepared the lake. is_first: it is the first warehouse's.
    """

    exists: bool
    has_lake: bool
    is_prepared: bool
    is_first: bool


def split_locations(text: str | None) -> tuple[str, ...]:
    """Split the value of the option `allowed-locations`, without slashes at the ends."""
    return tuple(location.rstrip("/") for location in text.split(",")) if text else ()


def read_warehouses(cursor: Transaction) -> list[WarehouseRow]:
    """Read the registry, by name."""
    return [WarehouseRow(*row) for row in cursor.execute(_SQL.warehouses).fetchall()]


def pick_row(rows: Iterable[WarehouseRow], name: str) -> WarehouseRow:
    """Find the row of a name; NoSuchWarehouseError."""
    found = next((row for row in rows if row.name == name), None)
    if found is None:
        raise NoSuchWarehouseError(f"No such warehouse: {name}")
    return found


def lock_registry(cursor: Transaction) -> list[WarehouseRow]:
    """Read the registry, and keep others from changing it until the transaction ends."""
    cursor.execute(_SQL.lock)
    return read_warehouses(cursor)


def insert_warehouse(
    cursor: Transaction,
    name: str,
    schema_name: str,
    location: str,
    *,
    is_adopted: bool,
    profile_id: UUID | None = None,
    warehouse_id: UUID | None = None,
    database: DatabaseAddress | None = None,
    data_path: str | None = None,
) -> WarehouseRow:
    """Add a warehouse in state `creating`."""
    parameters = {
        "warehouse_id": warehouse_id or uuid4(),
        "database_url": database and database.url,
        "database_secret": database and database.secret,
        "name": name,
        "schema_name": schema_name,
        "location": location,
        "is_adopted": is_adopted,
        "profile_id": profile_id,
        "data_path": data_path,
    }
    return WarehouseRow(*cursor.execute(_SQL.insert, parameters).fetchall()[0])


def set_state(cursor: Transaction, name: str, state: WarehouseState) -> WarehouseRow:
    """Set the state of a warehouse; NoSuchWarehouseError if it is gone."""
    row = cursor.execute(_SQL.set_state, {"name": name, "state": state}).fetchone()
    if row is None:
        raise NoSuchWarehouseError(f"No such warehouse: {name}")
    return WarehouseRow(*row)


def rename_warehouse(cursor: Transaction, warehouse_id: UUID, name: str) -> WarehouseRow:
    """Set the name of a warehouse; the registry is locked."""
    return WarehouseRow(*cursor.execute(_SQL.rename, {"warehouse_id": warehouse_id, "name": name}).fetchall()[0])


def set_database(cursor: Transaction, warehouse_id: UUID, database: DatabaseAddress) -> None:
    """Set how the database of a warehouse is reached."""
    parameters = {"warehouse_id": warehouse_id, "database_url": database.url, "database_secret": database.secret}
    cursor.execute(_SQL.set_database, parameters)


def set_data_path(cursor: Transaction, warehouse_id: UUID, data_path: str) -> None:
    """Set where the lake of a warehouse that was adopted has DuckLake's files."""
    cursor.execute(_SQL.set_data_path, {"warehouse_id": warehouse_id, "data_path": data_path})


def delete_warehouse(cursor: Transaction, name: str) -> None:
    cursor.execute(_SQL.delete, {"name": name})


def read_schema_facts(cursor: Transaction, schema_name: str) -> SchemaFacts:
    """Read what a schema is; the search path of the transaction is the first warehouse's."""
    return SchemaFacts(*cursor.execute(_SQL.find_schema, {"schema_name": schema_name}).fetchall()[0])


def create_schema(cursor: Transaction, schema_name: str) -> None:
    """Create a schema; InvalidRequestError if the login may not."""
    try:
        cursor.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema_name)))
    except InsufficientPrivilege as error:
        raise InvalidRequestError(
            "The server's login may not create schemas: let the owner of the database GRANT CREATE ON DATABASE to it"
        ) from error


def drop_schema(cursor: Transaction, schema_name: str) -> None:
    """Drop a schema with all that is in it."""
    cursor.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema_name)))


def mark_schema(cursor: Transaction, schema_name: str, mark: str) -> None:
    """Note in a schema which warehouse it was made for."""
    cursor.execute(sql.SQL("COMMENT ON SCHEMA {} IS {}").format(sql.Identifier(schema_name), sql.Literal(mark)))


def read_schema_mark(cursor: Transaction, schema_name: str) -> str | None:
    """Read for which warehouse a schema was made; None without a note."""
    row = cursor.execute(_SQL.schema_mark, {"schema_name": schema_name}).fetchone()
    return None if row is None else row[0]


def read_contents(cursor: Transaction) -> LakeContents:
    """Count the objects of the lake that the transaction's search path reaches."""
    return LakeContents(*cursor.execute(_SQL.contents).fetchall()[0])


def lock_contents(cursor: Transaction) -> LakeContents:
    """Do as `read_contents`, and keep all writers from the lake until the transaction ends, DuckDB's included."""
    cursor.execute(_SQL.lock_lake)
    return read_contents(cursor)
