"""What a new warehouse may be called, and where its schema and its files may be."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.warehouses import RESERVED_NAMES, is_warehouse_name
from duckicelake.errors import AlreadyExistsError, InvalidRequestError
from duckicelake.lake.side_tables import locations
from duckicelake.lake.side_tables.warehouses import WarehouseRow
from duckicelake.postgres.queries import Transaction
from duckicelake.storage.policy import canonicalize, is_within

_SCHEMA_PREFIX: Final = "warehouse_"
_MAX_SCHEMA_BYTES: Final = 63


@dataclass(frozen=True, slots=True)
class NewWarehouse:
    """A warehouse to create.

    Attributes:
        location: the folder of its files; None: the name below the first root.
        profile: the name of its storage profile; None: the store of the settings.
        adopted_schema: the schema of the lake to adopt; None: a new lake in a new schema.
        database_url: of the database of its lake, with login and password; None: that of the first warehouse.

    """

    name: str
    location: str | None = None
    adopted_schema: str | None = None
    profile: str | None = None
    database_url: str | None = field(default=None, repr=False)


def check_name(name: str) -> None:
    """Raise InvalidRequestError for a name that no warehouse may have."""
    if not is_warehouse_name(name):
        raise InvalidRequestError(
            f"Invalid warehouse name {name!r}: expected up to 48 lower-case letters, digits, _ and -, "
            "the first a letter or digit"
        )
    if name in RESERVED_NAMES:
        raise InvalidRequestError(f"Invalid warehouse name {name!r}: routes of the server have this name; use another")


def choose_location(roots: tuple[str, ...], rows: Iterable[WarehouseRow], new: NewWarehouse) -> str:
    """Return where the files of a new warehouse go; InvalidRequestError if there is no root.

    By default that is the name below the first root; with a number, if a warehouse that has been renamed is there.
    """
    if not roots:
        raise InvalidRequestError(
            "This server has no folder for further warehouses: set DUCKICELAKE_WAREHOUSE_ROOTS, for example to "
            "s3://bucket/warehouses, beside the first warehouse and not in it"
        )
    if new.location is not None:
        return new.location.rstrip("/")
    folder = f"{roots[0].rstrip('/')}/{new.name}"
    taken = [canonicalize(row.location) for row in rows]
    return next(place for place in _number(folder, "-") if canonicalize(place) not in taken)


def choose_schema(rows: Iterable[WarehouseRow], new: NewWarehouse) -> str:
    """Return the schema of a new warehouse; with a number, if a renamed warehouse has that of the name."""
    taken = {row.schema_name for row in rows}
    default = next(schema for schema in _number(f"{_SCHEMA_PREFIX}{new.name}", "_") if schema not in taken)
    schema = new.adopted_schema or default
    if len(schema.encode()) > _MAX_SCHEMA_BYTES:
        raise InvalidRequestError(f"Invalid schema {schema!r}: expected at most {_MAX_SCHEMA_BYTES} bytes")
    return schema


def _number(name: str, separator: str) -> Iterator[str]:
    """Iterate over a name, and then the name with 2, 3 and so on."""
    yield name
    for number in count(2):
        yield f"{name}{separator}{number}"


def check_below_roots(roots: tuple[str, ...], what: str, place: str) -> None:
    canonical = [canonicalize(root) for root in roots]
    if canonicalize(place) in canonical or not any(is_within(place, root) for root in canonical):
        raise InvalidRequestError(
            f"Invalid {what} {place}: expected a folder below {' or '.join(roots)} "
            "(the server's DUCKICELAKE_WAREHOUSE_ROOTS, or the root of the storage profile)"
        )


def check_name_free(rows: Iterable[WarehouseRow], name: str) -> None:
    found = next((row for row in rows if row.name == name), None)
    if found is not None:
        raise AlreadyExistsError(f"Warehouse {name} exists, in state {found.state}")


def check_schema_free(rows: Iterable[WarehouseRow], schema: str) -> None:
    """Raise AlreadyExistsError if a schema is another warehouse's. rows: of the same database."""
    for row in rows:
        if row.schema_name == schema:
            raise AlreadyExistsError(f"Schema {schema} is that of warehouse {row.name}")


def check_location_free(services: Services, cursor: Transaction, rows: Iterable[WarehouseRow], location: str) -> None:
    """Raise InvalidRequestError if a location is another warehouse's."""
    for row in rows:
        if _overlap(row.location, location):
            raise InvalidRequestError(f"Invalid location {location}: it overlaps {row.location} of {row.name}")
    policy = services.policy
    for zone in (policy.warehouse, *policy.allowed, locations.read_data_path(cursor)):
        if _overlap(zone, location):
            raise InvalidRequestError(f"Invalid location {location}: it overlaps {zone} of the first warehouse")


def _overlap(one: str, other: str) -> bool:
    return is_within(one, other) or is_within(other, one)
