"""Check the locations that a request names: that they lie in the lake, and belong to the caller.

The store knows one writer, the server, so the server checks locations in the caller's name. A caller whose scopes cover
the whole catalog may use all that the server may use. Other callers may use the files of tables and views of their
namespaces, dropped ones included; in the warehouse, the folders of their namespaces; and below the allowed locations,
what belongs to no table. A refusal is the same whether or not the file exists.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from duckicelake.catalog.context.caller import Capability, Principal
from duckicelake.catalog.context.privileges import WRITING, Privilege
from duckicelake.catalog.context.services import Services
from duckicelake.errors import ForbiddenError, InvalidRequestError
from duckicelake.iceberg.identifiers import Namespace, parse_readable_namespace, parse_schema_name
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.lake.ducklake.schemas import read_live_schemas
from duckicelake.lake.side_tables import locations
from duckicelake.lake.side_tables.locations import LocationOwner
from duckicelake.properties import WRITE_FOLDERS
from duckicelake.storage.local import find_links, find_path, follow_links
from duckicelake.storage.policy import canonicalize, is_within, list_prefixes
from duckicelake.storage.protocol import NewObject


def check_readable(services: Services, location: str, table_location: str, folders: Iterable[str] = ()) -> None:
    """Raise InvalidRequestError unless the file lies in the table's location, its folders or an allowed prefix.

    A symbolic link below them counts as what it leads to. The lake's zones themselves may be, or lie behind, links.
    """
    services.policy.check_readable(location, table_location, folders)
    for linked in find_links(services.store, location):
        _check_linked(services, linked, (table_location, *folders, *services.policy.allowed))


def write(services: Services, location: str, data: bytes) -> None:
    """Write a file of a table or view; InvalidRequestError if a symbolic link would lead it out of the lake."""
    _check_places(services, [location])
    services.store.write(location, data)


def write_all(services: Services, files: Sequence[NewObject]) -> None:
    """Write several, sooner than one by one (`ObjectStore.write_all`); raises as `write` does."""
    _check_places(services, [location for location, _ in files])
    services.store.write_all(files)


def write_derived(services: Services, files: Sequence[NewObject]) -> None:
    """Write several that can be made again (`ObjectStore.write_derived`); raises as `write` does."""
    _check_places(services, [location for location, _ in files])
    services.store.write_derived(files)


def _check_below(services: Services, folder: str) -> None:
    """Check that no symbolic link leads what is written below a folder out of the lake; InvalidRequestError."""
    _check_places(services, [f"{folder.rstrip('/')}/metadata/any"])


def _check_places(services: Services, named: Sequence[str]) -> None:
    by_folder: defaultdict[str, list[str]] = defaultdict(list)
    for location in named:
        folder, _, name = location.rpartition("/")
        by_folder[folder].append(name)
    for folder, names in by_folder.items():
        for linked in find_links(services.store, folder, names):
            _check_linked(services, linked, ())


def _check_linked(services: Services, location: str, places: Iterable[str]) -> None:
    """Check that a link leads to where the places really are; for none of them, into the lake's zones."""
    real = real_place(services, location)
    zones = [real_place(services, zone) for zone in _zones(services)]
    allowed = [place for place in (real_place(services, place) for place in places) if _is_in(place, zones)] or zones
    if not _is_in(real, allowed):
        raise InvalidRequestError(f"{location} leads elsewhere by a symbolic link: put the file itself there")


def _zones(services: Services) -> Iterator[str]:
    with services.database.reading() as cursor:
        yield locations.read_data_path(cursor)
    yield from (services.policy.data_zone, *services.policy.allowed)


def _is_in(place: str, zones: Iterable[str]) -> bool:
    return any(is_within(place, zone) for zone in zones)


def real_place(services: Services, location: str) -> str:
    """Return the canonical location with symbolic links followed, where the store has them."""
    path = find_path(services.store, location)
    return canonicalize(location if path is None else follow_links(location, path))


_DISTINCT: Final = 10_000
"""Folders of foreign files that one request may name."""


def check_may_read(
    services: Services, paths: Iterable[str], own: Callable[[], Sequence[str]] = tuple, table_id: int | None = None
) -> None:
    """Check that the caller may read all these files, as `build_read_check` says; ForbiddenError."""
    build_read_check(services, own, table_id)(paths)


def build_read_check(
    services: Services, own: Callable[[], Sequence[str]], table_id: int | None
) -> Callable[[Iterable[str]], None]:
    """Build a function that checks that the caller may read all files that it is given; ForbiddenError.

    own: gives the folders of the request's table; called only for a caller with restricted scopes.
    """
    if services.caller.principal.may_everywhere(Capability.READ):
        return lambda _: None

    def check(paths: Iterable[str]) -> None:
        folders = own()
        foreign = [path for path in paths if not any(_is_surely_within(path, folder) for folder in folders)]
        if foreign:
            _check(services, Capability.READ, foreign, table_id)

    return check


def check_may_settle(services: Services, location: str, table_id: int | None = None) -> None:
    """Check that the caller may write all tables and files at the location, above or below it; ForbiddenError."""
    principal = services.caller.principal
    if principal.may_everywhere(Capability.WRITE):
        return
    place = canonicalize(location)
    with services.database.reading() as cursor:
        owners = [
            owner for _, owner in locations.find_owners_of_folders(cursor, list_prefixes(place), [place], table_id)
        ]
        owners += locations.find_owners_of_files_below(cursor, place, table_id)
    may = [is_granted(principal, Capability.WRITE, owner) for owner in owners]
    if not all(may) or not (may or _is_free(services, principal, Capability.WRITE, place)):
        raise _build_refusal(location)


def check_table_places(
    services: Services, location: str, properties: Mapping[str, str], base: TableMetadata | None, table_id: int | None
) -> None:
    """Check the places that a table is given: its location, and where its properties send what clients write.

    What it had before isn't checked again. Raises InvalidRequestError for what no table may be given, and
    ForbiddenError.
    """
    if base is None or location != base.location:
        services.policy.check_table_location(location)
        _check_below(services, location)
        check_may_settle(services, location, table_id)
    before = base.properties if base is not None and location == base.location else {}
    for name in WRITE_FOLDERS:
        value = properties.get(name)
        if value is not None and value != before.get(name):
            services.policy.check_property(name, value, location)
            _check_below(services, value)
            if not is_within(value, location):
                check_may_settle(services, value, table_id)


def _check(services: Services, capability: Capability, paths: Sequence[str], table_id: int | None) -> None:
    principal = services.caller.principal
    by_folder: defaultdict[str, list[str]] = defaultdict(list)
    for path in paths:
        place = _place(path)
        if place is not None:
            by_folder[place.rpartition("/")[0]].append(path)
    if len(by_folder) > _DISTINCT:
        raise InvalidRequestError(f"The request names files of {len(by_folder)} folders that aren't the table's own")
    prefixes = sorted({prefix for folder in by_folder for prefix in list_prefixes(folder)})
    with services.database.reading() as cursor:
        data_path = locations.read_data_path(cursor)
        places = locations.find_owners_of_folders(cursor, prefixes, [], table_id) + locations.find_ducklake_folders(
            cursor, prefixes
        )
        files = locations.find_owned_files(
            cursor, [path for named_paths in by_folder.values() for path in named_paths], table_id
        )
    if not all(is_granted(principal, capability, owner) for _, owner in (*places, *files)):
        raise _build_refusal(next(iter(paths)))
    settled = {place for place, _ in places}
    owned = {file for file, _ in files}
    for folder, named in by_folder.items():
        if not settled.isdisjoint(list_prefixes(folder)):
            continue
        if not is_within(folder, data_path) and _is_free(services, principal, capability, folder):
            continue
        for path in named:
            if canonicalize(path) not in owned:
                raise _build_refusal(path)


def _place(path: str) -> str | None:
    """Return the canonical path; None for one that has none, which no store reads."""
    try:
        return canonicalize(path)
    except InvalidRequestError:
        return None


def _is_surely_within(path: str, folder: str) -> bool:
    """Return whether a file is in a folder; most are by their spelling, which is quicker to see."""
    if path.startswith(folder.rstrip("/") + "/") and "/." not in path:
        return True
    return _place(path) is not None and is_within(path, folder)


def is_granted(principal: Principal, capability: Capability, owner: LocationOwner) -> bool:
    """Return whether the principal may what the capability says with the table or view that a place belongs to.

    Never where that is unknown.
    """
    if owner is None:
        return False
    schema, name = owner
    wanted = Privilege.SELECT if capability is Capability.READ else WRITING
    return principal.may(capability, parse_schema_name(schema), name, wanted)


def _is_free(services: Services, principal: Principal, capability: Capability, place: str) -> bool:
    """Return whether the caller may use a place of no table; outside of the warehouse every place is free."""
    policy, wanted = services.policy, Privilege.SELECT if capability is Capability.READ else Privilege.CREATE
    if not is_within(place, policy.data_zone):
        return True
    own = principal.list_namespaces(capability, wanted)
    if not any(is_within(place, policy.namespace_folder(namespace)) for namespace in own):
        return False
    return not principal.is_limited_by_object or principal.may(capability, _find_namespace(services, place), "", wanted)


def _find_namespace(services: Services, place: str) -> Namespace:
    """Find the namespace in whose folder a place lies, `()` for the warehouse's."""
    with services.database.reading() as cursor:
        known = [namespace for name in read_live_schemas(cursor) if (namespace := parse_readable_namespace(name))]
    holders = (namespace for namespace in known if is_within(place, services.policy.namespace_folder(namespace)))
    return max(holders, key=len, default=())


def _build_refusal(location: str) -> ForbiddenError:
    return ForbiddenError(f"{location} lies outside of what you may use")
