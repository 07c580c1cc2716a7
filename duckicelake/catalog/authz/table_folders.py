"""In which folders of S3 a table's files lie, and which of them a principal may use in the table's name.

A table has its location, where its writers write; DuckLake's folder for it under DATA_PATH, where DuckDB does; and
whatever folders files were registered from.
"""

import re
from collections.abc import Iterator
from typing import Final

from duckicelake.catalog.authz.locations import is_granted
from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.caller import Capability, Principal
from duckicelake.catalog.context.privileges import WRITING, Privilege
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.context.storage_access import StorageReach, TableFolders
from duckicelake.iceberg.identifiers import Namespace
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.lake.ducklake import native
from duckicelake.lake.side_tables import locations
from duckicelake.lake.side_tables.locations import (
    LocationOwner,
    find_file_folders,
    find_folder_sharers,
    read_shared_folders,
)
from duckicelake.properties import WRITE_FOLDERS
from duckicelake.storage.policy import StoreFolder, canonicalize, is_within, list_prefixes, parse_folder

MAX_FOLDERS: Final = 64
_ANY_UUID: Final = "00000000"
_UUID_START: Final = re.compile(r"[0-9a-f]{8}")


def find_table_folders(services: Services, table: TableVersion) -> TableFolders:
    """Return the folders of a table as it is now."""
    version = (table.row.table_uuid, table.row.version)
    known = services.access.folders.get(table.row.table_id)
    if known is not None and known[0] == version:
        return known[1]
    folders = _folders_of(services, table)
    services.access.folders.put(table.row.table_id, (version, folders))
    return folders


def find_new_table_folders(metadata: TableMetadata) -> TableFolders:
    """Return the folders of a table that isn't there yet."""
    location = _folder(metadata.location)
    written = frozenset((location, *_find_write_folders(metadata)))
    return TableFolders((location,), tuple(sorted(written - {location})), written)


def find_staged_folders(
    services: Services, namespace: Namespace, name: str, place: str, principal: Principal
) -> TableFolders | None:
    """Return the folder that a table of this name was staged to get, if the place is in one.

    Of a writer, and no table's yet.

    Nothing is kept of a staged table, but the server's own choice of its location shows by its form.
    """
    stem = services.policy.table_location(namespace, name, _ANY_UUID).removesuffix(_ANY_UUID)
    suffix = place.removeprefix(stem)[: len(_ANY_UUID)]
    folder = f"{stem}{suffix}"
    if not (
        place.startswith(f"{folder}/")
        and _UUID_START.fullmatch(suffix)
        and principal.may(Capability.WRITE, namespace, privileges=Privilege.CREATE)
    ):
        return None
    with services.database.reading() as cursor:
        if locations.find_owners_of_folders(cursor, list_prefixes(canonicalize(folder)), [canonicalize(folder)], None):
            return None
    return TableFolders((f"{folder}/",), (), frozenset({f"{folder}/"}))


def find_reach(
    services: Services, full_name: tuple[Namespace, str], folders: TableFolders, table_id: int | None
) -> StorageReach:
    """Return what of the folders the caller may read and write, in the name of the table."""
    principal, (namespace, name) = services.caller.principal, full_name
    wanted = Privilege.CREATE if table_id is None else WRITING
    may_write = principal.may_any(Capability.WRITE, wanted, namespace, name)
    usable: list[StoreFolder] = []
    uncovered: list[str] = []
    for location in (*folders.own, *folders.elsewhere):
        is_writable = may_write and location in folders.written
        folder = _usable(services, location, location in folders.own, table_id, principal, is_writable=is_writable)
        if folder is None:
            uncovered.append(location)
        else:
            usable.append(folder)
    return StorageReach(tuple(usable), tuple(uncovered))


def may_use_everything(principal: Principal) -> bool:
    """Return whether it doesn't matter to the principal's reach whose folders there are besides the table's."""
    return principal.may_everywhere(Capability.READ | Capability.WRITE)


def _folders_of(services: Services, table: TableVersion) -> TableFolders:
    metadata = table.metadata
    new = find_new_table_folders(metadata)
    with services.database.reading() as cursor:
        own = tuple(dict.fromkeys((*new.own, _folder(native.read_path_prefix(cursor, table.row.table_id)))))
        known = (*own, *new.elsewhere)
        elsewhere = find_file_folders(cursor, table.row.table_id, known, MAX_FOLDERS)
    statistics = (_folder_of(path) for path in _statistics(metadata))
    other = (folder for folder in (*elsewhere, *statistics) if not folder.startswith(known))
    return TableFolders(own, tuple(dict.fromkeys((*new.elsewhere, *other))), new.written)


def _find_write_folders(metadata: TableMetadata) -> Iterator[str]:
    location = _folder(metadata.location)
    for name in WRITE_FOLDERS:
        value = metadata.properties.get(name)
        if value and not _folder(value).startswith(location):
            yield _folder(value)


def _statistics(metadata: TableMetadata) -> Iterator[str]:
    yield from (file.statistics_path for file in metadata.statistics)
    yield from (file.statistics_path for file in metadata.partition_statistics)


def _folder(location: str) -> str:
    return location.rstrip("/") + "/"


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0] + "/"


def _usable(
    services: Services,
    location: str,
    is_own: bool,
    table_id: int | None,
    principal: Principal,
    *,
    is_writable: bool,
) -> StoreFolder | None:
    folder = parse_folder(location, is_writable=is_writable)
    if folder is None or not services.policy.holds(location) or not (is_own or _is_allowed(services, location)):
        return None
    owners = _owners(services, location, is_own, table_id, principal)
    if owners is None or not all(is_granted(principal, Capability.READ, owner) for owner in owners):
        return None
    if is_writable and not all(is_granted(principal, Capability.WRITE, owner) for owner in owners):
        return parse_folder(location)
    return folder


def _is_allowed(services: Services, location: str) -> bool:
    """Return whether a folder lies where the lake's files may.

    In an allowed prefix, or in one of the warehouse's zones.
    """
    policy = services.policy
    if any(is_within(location, prefix) for prefix in policy.allowed):
        return not any(is_within(zone, location) for zone in (policy.data_zone, policy.data_path))
    zones = (policy.data_zone, policy.data_path)
    return any(is_within(location, zone) and not is_within(zone, location) for zone in zones)


def _owners(
    services: Services,
    location: str,
    is_own: bool,
    table_id: int | None,
    principal: Principal,
) -> list[LocationOwner] | None:
    """Return the other tables and views above, at or below the place.

    None if in the warehouse, but no table's.

    Of a folder that isn't the table's own, those whose files are below, too: into its own, the settling let none. What
    is left of a table that this one shared files with belongs to no other table.
    Who may do everything isn't asked.
    """
    if may_use_everything(principal):
        return []
    place = canonicalize(location)
    above = list_prefixes(place)
    with services.database.reading() as cursor:
        owners = [owner for _, owner in locations.find_owners_of_folders(cursor, above, [place], table_id)]
        if is_own:
            return owners + find_folder_sharers(cursor, table_id, location)
        data_path = locations.read_data_path(cursor)
        if is_within(place, data_path):
            owners += [owner for _, owner in locations.find_ducklake_folders(cursor, above)]
        others = locations.find_owners_of_files_below(cursor, place, table_id)
        is_left = table_id is not None and any(
            is_within(place, folder) for folder in read_shared_folders(cursor, table_id)
        )
    is_ours = any(is_within(place, zone) for zone in (services.policy.data_zone, data_path))
    return None if not owners and is_ours and not is_left else owners + others
