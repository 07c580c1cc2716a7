"""Databases of warehouses beside the first one's: reach them by encrypted URLs, make and drop schemas of lakes there.

A registry and a lake in two databases don't change in one transaction. So the registry's row comes first and goes last,
and the schema says whose it is: each step can be repeated, and none takes what belongs to another.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from duckicelake.catalog.context.registry_link import RegistryLink
from duckicelake.catalog.context.secret_keys import SecretKeys
from duckicelake.catalog.context.services import Services
from duckicelake.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidRequestError,
    RefusedAddressError,
    UnavailableError,
)
from duckicelake.lake.setup.format import read_contents, read_options
from duckicelake.lake.side_tables import principal_copies
from duckicelake.lake.side_tables import warehouses as registry
from duckicelake.lake.side_tables.warehouses import DatabaseAddress, WarehouseRow
from duckicelake.postgres.other_databases import ResolveHost, parse_database_url, pin_addresses, strip_password
from duckicelake.postgres.queries import Transaction
from duckicelake.postgres.shared_pools import LeasedDatabase, SharedPools

_NO_KEYS: Final = "set DUCKICELAKE_SECRET_KEYS, by which the URLs of databases are encrypted"


@dataclass(frozen=True, slots=True)
class WarehouseDatabases:
    """How a process reaches databases of warehouses.

    Attributes:
        keys: encrypt the URLs; None: no such URL can be stored.
        resolve: returns the addresses of a host that may be connected to.
        pools: those of the databases that are in use; None: the process reaches none.

    """

    keys: SecretKeys | None = None
    resolve: ResolveHost | None = None
    pools: SharedPools | None = None

    def seal(self, warehouse_id: UUID, url: str) -> DatabaseAddress:
        """Return the address of a database with its URL encrypted for a warehouse. Raises InvalidRequestError."""
        given = parse_database_url(url)
        if "password" not in given:
            raise InvalidRequestError(
                "Invalid database-url: it has no password, and the server's own credentials aren't used for it"
            )
        if self.keys is None or self.pools is None:
            raise InvalidRequestError(f"This server reaches no other databases: {_NO_KEYS}")
        self._pin(url)
        return DatabaseAddress(strip_password(url), self.keys.encrypt(url, _describe_place(warehouse_id)))

    def reveal(self, row: WarehouseRow) -> str:
        """Return the URL of a warehouse's database with the addresses of its hosts.

        Raises UnavailableError if the keys of the settings don't decrypt it, or no connection may go there.
        """
        if self.keys is None:
            raise UnavailableError(f"The database of warehouse {row.name} can't be reached: {_NO_KEYS}")
        try:
            return self._pin(self.keys.decrypt(row.database_secret or "", _describe_place(row.warehouse_id)))
        except (InvalidRequestError, UnavailableError) as error:
            raise UnavailableError(f"The database of warehouse {row.name} can't be reached: {error}") from error

    def lease(self, row: WarehouseRow) -> LeasedDatabase:
        """Open the database of a warehouse. Raises UnavailableError, which names the warehouse."""
        url = self.reveal(row)
        if self.pools is None:
            raise UnavailableError(f"Warehouse {row.name} is in another database, and this process reaches none")
        try:
            return self.pools.lease(url, row.schema_name)
        except UnavailableError as error:
            raise UnavailableError(f"The database of warehouse {row.name}: {error}") from error

    def cut_off(self) -> None:
        """Make every wait for these databases fail at once, for a process that must end."""
        if self.pools is not None:
            self.pools.cut_off()

    def _pin(self, url: str) -> str:
        if self.resolve is None:
            raise UnavailableError("this process reaches no other databases")
        try:
            return pin_addresses(url, self.resolve)
        except RefusedAddressError as error:
            raise InvalidRequestError(f"Invalid database-url: {error}") from error


def seal_anew(row: WarehouseRow, keys: SecretKeys) -> DatabaseAddress:
    """Return the address of a warehouse's database, encrypted with the first key. Raises UnavailableError."""
    place = _describe_place(row.warehouse_id)
    secret = keys.encrypt(keys.decrypt(row.database_secret or "", place), place)
    return DatabaseAddress(row.database_url or "", secret)


def occupy_schema(own: Services, row: WarehouseRow, check_lake: Callable[[Mapping[str, str] | None], None]) -> None:
    """Make the schema of a warehouse in another database, or check the lake that it is to adopt; can be repeated.

    check_lake: raises InvalidRequestError for the options of a lake whose files are where no warehouse's may be.
    """
    with own.database.transaction() as cursor:
        facts = registry.read_schema_facts(cursor, row.schema_name)
        if row.is_adopted:
            if not facts.has_lake:
                raise InvalidRequestError(f"Schema {row.schema_name} of that database has no DuckLake catalog to adopt")
            check_lake(read_options(cursor))
        elif not facts.exists:
            registry.create_schema(cursor, row.schema_name)
            registry.mark_schema(cursor, row.schema_name, _describe_place(row.warehouse_id))
        elif not _is_occupied(own, cursor, row):
            raise AlreadyExistsError(
                f"That database has a schema {row.schema_name}: adopt the lake in it, or choose another name"
            )


def claim_lake(own: Services, *, forces: bool = False) -> None:
    """Let a prepared lake in another database belong to the registry, and copy the principals.

    forces: even if it belonged to another one. Raises ConflictError for a lake that belongs to another server.
    """
    link = get_link(own)
    with own.database.transaction() as cursor:
        principal_copies.claim_lake(cursor, link.claim, forces=forces)
    link.copy_principals(own.database)


def adopt_lake(own: Services) -> list[str]:
    """Let a lake in another database belong to this registry, whoever's it was; return what changed, as sentences.

    The registry may have been restored into another database. A lake in the first one's database is left as it is.
    """
    link = None if own.rights is None else own.rights.link
    if link is None:
        return []
    with own.database.reading() as cursor:
        found = principal_copies.find_claim(cursor)
    claim_lake(own, forces=True)
    return [] if found == link.claim else [f"The lake belongs to the server of {link.claim.registry} from now on."]


def vacate_schema(own: Services, row: WarehouseRow, *, keeps_lake: bool) -> None:
    """Drop the schema of a warehouse in another database, or only let the lake belong to none; can be repeated.

    Raises ConflictError for an adopted schema with other tables than the lake's.
    """
    with own.database.transaction() as cursor:
        vacate_in(own, cursor, row, keeps_lake=keeps_lake)


def vacate_in(own: Services, cursor: Transaction, row: WarehouseRow, *, keeps_lake: bool) -> None:
    """Do as `vacate_schema` in a transaction of the lake's database."""
    if not _is_occupied(own, cursor, row):
        return
    if keeps_lake:
        if registry.read_schema_facts(cursor, row.schema_name).is_prepared:
            principal_copies.release_lake(cursor, get_link(own).claim)
        return
    others = read_contents(cursor).others
    if others:
        raise ConflictError(
            f"Schema {row.schema_name} has other tables, such as {others[0]}, which a drop would take along: "
            "drop these first, or keep the lake and only stop serving it"
        )
    registry.drop_schema(cursor, row.schema_name)


def is_occupied(own: Services, row: WarehouseRow) -> bool:
    """Return whether the schema of a warehouse in another database is there, and the warehouse's."""
    with own.database.reading() as cursor:
        return _is_occupied(own, cursor, row)


def get_link(own: Services) -> RegistryLink:
    """Get the link of a warehouse in another database to the registry."""
    if own.rights is None or own.rights.link is None:
        raise InvalidRequestError("This process has no link to the registry of the warehouse")
    return own.rights.link


def move_database(services: Services, databases: WarehouseDatabases, row: WarehouseRow, url: str) -> DatabaseAddress:
    """Check that a URL leads to the lake of a warehouse, by another login or host than before; return the address.

    Raises InvalidRequestError, ConflictError for another lake, UnavailableError.
    """
    if row.database_url is None:
        raise InvalidRequestError(f"Warehouse {row.name} is in the database of the first: it has no URL of its own")
    address = databases.seal(row.warehouse_id, url)
    database = databases.lease(replace(row, database_url=address.url, database_secret=address.secret))
    try:
        link = RegistryLink.build(services.database, row.warehouse_id)
        with database.reading() as cursor:
            facts = registry.read_schema_facts(cursor, row.schema_name)
            if not facts.is_prepared or principal_copies.find_claim(cursor) != link.claim:
                raise ConflictError(f"Schema {row.schema_name} of that database isn't the lake of {row.name}")
    finally:
        database.close()
    return address


def _is_occupied(own: Services, cursor: Transaction, row: WarehouseRow) -> bool:
    """Return whether a schema was made for the warehouse, or has its lake."""
    if registry.read_schema_mark(cursor, row.schema_name) == _describe_place(row.warehouse_id):
        return True
    is_prepared = registry.read_schema_facts(cursor, row.schema_name).is_prepared
    return is_prepared and principal_copies.find_claim(cursor) == get_link(own).claim


def _describe_place(warehouse_id: UUID) -> str:
    return f"duckicelake warehouse {warehouse_id}"
