"""What a new warehouse may be called, and where its schema and its files may be."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Final
from uuid import UUID

from duckicelake.catalog.authz.locations import real_place
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.warehouses import RESERVED_NAMES, is_warehouse_name
from duckicelake.errors import AlreadyExistsError, InvalidRequestError
from duckicelake.lake.setup.identity import read_lake
from duckicelake.lake.side_tables import locations
from duckicelake.lake.side_tables.storage_profiles import pick_profile_of, read_profiles
from duckicelake.lake.side_tables.warehouses import ALLOWED_LOCATIONS, WarehouseRow, read_warehouses
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


def check_below_roots(services: Services, roots: tuple[str, ...], what: str, place: str) -> None:
    """Raise InvalidRequestError unless a place is below a root, by its name and with symbolic links followed."""
    named = not _is_below(place, roots)
    if named or not _is_below(real_place(services, place), [real_place(services, root) for root in roots]):
        raise InvalidRequestError(
            f"Invalid {what} {place}: {'' if named else 'it leads elsewhere by a symbolic link; '}"
            f"expected a folder below {' or '.join(roots)} "
            "(the server's DUCKICELAKE_WAREHOUSE_ROOTS, or the root of the storage profile)"
        )


def _is_below(place: str, roots: Iterable[str]) -> bool:
    return any(is_within(place, root) and not is_within(root, place) for root in roots)


def check_name_free(rows: Iterable[WarehouseRow], name: str) -> None:
    found = next((row for row in rows if row.name == name), None)
    if found is not None:
        raise AlreadyExistsError(f"Warehouse {name} exists, in state {found.state}")


def check_schema_free(rows: Iterable[WarehouseRow], schema: str) -> None:
    """Raise AlreadyExistsError if a schema is another warehouse's. rows: of the same database."""
    for row in rows:
        if row.schema_name == schema:
            raise AlreadyExistsError(f"Schema {schema} is that of warehouse {row.name}")


def check_place_free(
    services: Services, cursor: Transaction, rows: Iterable[WarehouseRow], what: str, place: str
) -> None:
    """Raise InvalidRequestError if a place, with symbolic links followed, is another warehouse's.

    cursor: of the first one's database. rows: the others.
    """
    policy = services.policy
    zones = (policy.warehouse, *policy.allowed, locations.read_data_path(cursor))
    taken = [
        *((own, row.name) for row in rows for own in row.places),
        *((zone, "the first warehouse") for zone in zones),
    ]
    _check_free(services, taken, what, place)


def _check_free(services: Services, taken: Iterable[tuple[str, str]], what: str, place: str) -> None:
    """Raise InvalidRequestError if a place is one that is taken. taken: places with the names of their warehouses."""
    real = real_place(services, place)
    for other, name in taken:
        if _overlap(real_place(services, other), real):
            raise InvalidRequestError(f"Invalid {what} {place}: it overlaps {other} of {name}")


def check_allowed_places(services: Services, roots: tuple[str, ...], warehouse_id: UUID, places: Iterable[str]) -> None:
    """Raise InvalidRequestError unless files of a warehouse may be in further places.

    These are below the roots, or the root of its storage profile, and no other warehouse's. services: its own.
    """
    if services.rights is None:
        raise InvalidRequestError("This process has no registry of warehouses")
    with services.rights.registry.reading() as cursor:
        rows = read_warehouses(cursor)
        own = next(row for row in rows if row.warehouse_id == warehouse_id)
        if own.profile_id is not None:
            roots = (pick_profile_of(read_profiles(cursor), own.profile_id).spec.root,)
        zones = (*locations.read_zones(cursor), read_lake(services.rights.registry).warehouse or "")
    taken = [(place, row.name) for row in rows if row is not own for place in row.places]
    taken += [(zone, "the first warehouse") for zone in zones if zone]
    for place in places:
        check_below_roots(services, roots, ALLOWED_LOCATIONS, place)
        _check_free(services, taken, ALLOWED_LOCATIONS, place)


def check_adopted_place(
    services: Services,
    cursor: Transaction,
    rows: Iterable[WarehouseRow],
    roots: tuple[str, ...],
    options: Mapping[str, str] | None,
) -> str:
    """Return the DATA_PATH of a lake to adopt, which is below the roots and no other warehouse's; InvalidRequestError.

    cursor, rows: as in `check_place_free`. options: of the lake.
    """
    data_path = (options or {}).get("data_path", "")
    check_below_roots(services, roots, "DATA_PATH", data_path)
    check_place_free(services, cursor, rows, "DATA_PATH", data_path)
    return data_path


def _overlap(one: str, other: str) -> bool:
    return is_within(one, other) or is_within(other, one)
