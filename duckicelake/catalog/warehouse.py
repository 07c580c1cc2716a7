"""Whose a warehouse is: a marker in it names the lake, so that no other one writes or deletes files there.

Beside the warehouse, DATA_PATH has a marker of its own where it lies elsewhere: garbage is collected in both.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final
from uuid import uuid4

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.lake_files import find_unneeded_of_any_age, list_lake_files
from duckicelake.errors import AlreadyExistsError, FileMissingError, InvalidRequestError, InvalidSettingsError
from duckicelake.lake.setup.format import prepare_catalog
from duckicelake.lake.setup.identity import (
    LakeIdentity,
    LakeRecord,
    RunningServer,
    is_of_schema,
    parse_identity,
    read_lake,
    record_marked_folders,
    record_warehouse,
)
from duckicelake.lake.side_tables import locations
from duckicelake.lake.side_tables.locations import record_zones
from duckicelake.storage.policy import canonicalize, is_within
from duckicelake.storage.protocol import ObjectStore

MARKER: Final = ".duckicelake-lake"
_MAX_BYTES: Final = 4096
_FILES_LOOKED_AT: Final = 1000
"""Of an unmarked folder, before it is called the lake's own."""


@dataclass(frozen=True, slots=True)
class WarehouseStanding:
    """How a lake stands to its folders.

    refusal: why nothing may be written or deleted there; None if all may. doubt: why files may only be deleted once an
    operator has confirmed whose they are. unmarked: folders that could be marked at once.
    """

    refusal: str | None = None
    doubt: str | None = None
    unmarked: tuple[str, ...] = ()


def prepare_lake(services: Services, *, creates: bool = False) -> str:
    """Adopt the DuckLake catalog, or create one if there is none and `creates` is true; return its DATA_PATH.

    It also checks which lake the warehouse belongs to. Raises StartupError without a lake to adopt,
    InvalidSettingsError if DuckDB's cleanup of that folder could find the Iceberg tables' files in it, and if other
    servers of the lake have other settings.
    """
    data_path = prepare_catalog(services.database, services.policy.data_path, creates=creates)
    check_data_path(services, data_path)
    with services.database.transaction() as cursor:
        describe_server(services).check(cursor)
    if settle(services).refusal is None:
        policy = services.policy
        with services.database.transaction() as cursor:
            record_zones(cursor, map(canonicalize, (data_path, policy.data_zone, *policy.allowed)))
    return data_path


def check_data_path(services: Services, data_path: str) -> None:
    """Raise InvalidSettingsError if DuckDB's files can't be read, or DuckDB's cleanup could find Iceberg's.

    So it does for a DATA_PATH that isn't in the warehouse, as one who writes the catalog can set it.
    """
    policy = services.policy
    if not policy.holds(data_path):
        raise InvalidSettingsError(
            f"the lake's DATA_PATH {data_path} isn't in the warehouse, which has {' and '.join(policy.places)}: "
            "set it back; if the files were moved there, run `duckicelake adopt`"
        )
    _check_reached(services.store, data_path)
    is_ours = canonicalize(data_path) == canonicalize(policy.data_path)
    for zone in (policy.data_zone, *policy.allowed):
        if is_within(zone, data_path) or (is_within(data_path, zone) and not is_ours):
            raise InvalidSettingsError(
                f"{zone}, where Iceberg tables may live, overlaps the lake's DATA_PATH {data_path}, "
                "where DuckDB deletes what it doesn't know: choose a warehouse outside of it, and allowed_locations too"
            )


def describe_server(services: Services) -> RunningServer:
    """Describe this process as a server of the lake, with the settings that all of them must share."""
    shared = {"warehouse": canonicalize(services.policy.warehouse), "snapshot_ids": services.snapshot_ids}
    return RunningServer(uuid4(), shared)


def _check_reached(store: ObjectStore, data_path: str) -> None:
    try:
        store.exists(f"{data_path}x")
    except InvalidRequestError as error:
        raise InvalidSettingsError(
            f"DuckDB's files are in {data_path}, where this server doesn't read ({error}): "
            "choose a warehouse there, too, or an allowed location"
        ) from error


def check_warehouse(services: Services, lake: LakeRecord) -> None:
    """Raise InvalidSettingsError if the lake's other servers keep files in another warehouse."""
    ours = _warehouse(services)
    if lake.warehouse not in (None, ours):
        raise InvalidSettingsError(
            f"the files of this lake are in the warehouse {lake.warehouse}, and this server has {ours}: "
            "set DUCKICELAKE_WAREHOUSE to that one; if they were moved, run `duckicelake adopt` with the new setting"
        )


def settle(services: Services) -> WarehouseStanding:
    """Mark folders without a mark and without unknown files; record all of it, and open or close the gate.

    Raises InvalidSettingsError as `check_warehouse`.
    """
    lake = read_lake(services.database)
    check_warehouse(services, lake)
    standing = examine(services, lake)
    if standing.refusal is None:
        for folder in standing.unmarked:
            with suppress(AlreadyExistsError):  # another lake's, just now
                services.store.write(_marker(folder), lake.identity.to_json())
        standing = examine(services, lake)  # of two lakes that come at once, one reads the other's marker
    if standing.refusal is None:
        _record(services)
    return _apply_standing(services, standing)


def look(services: Services) -> WarehouseStanding:
    """Do as `settle`, without writing anything."""
    lake = read_lake(services.database)
    standing = examine(services, lake)
    if standing.refusal is None and lake.warehouse not in (None, _warehouse(services)):
        standing = WarehouseStanding(f"the files of this lake are in the warehouse {lake.warehouse} by now")
    return _apply_standing(services, standing)


def adopt(services: Services) -> list[str]:
    """Make the folders this lake's, whoever's they were; what changed, as sentences.

    Raises AlreadyExistsError if another lake adopts them at this moment.
    """
    lake = read_lake(services.database)
    changes = []
    if lake.warehouse not in (None, _warehouse(services)):
        changes.append(f"The lake's warehouse was {lake.warehouse} and is {_warehouse(services)} from now on.")
    for folder in folders(services):
        owner = _owner(services, folder)
        if owner is None or isinstance(owner, str) or not lake.identity.is_same(owner):
            services.store.delete(_marker(folder))
            services.store.write(_marker(folder), lake.identity.to_json())
            changes.append(f"{folder} belonged to {_name(owner)} and belongs to {lake.identity} from now on.")
    _record(services)
    _apply_standing(services, examine(services, read_lake(services.database)))
    return changes


def release(services: Services, marked: Sequence[str]) -> None:
    """Delete this lake's markers from folders, after the lake is gone. marked: of `folders`."""
    for folder in marked:
        with suppress(FileMissingError):
            services.store.delete(_marker(folder))


def release_gone(services: Services, schema: str) -> None:
    """Delete the marker of a lake that was in a schema of the database, and is gone."""
    folder = _warehouse(services)
    owner = _owner(services, folder)
    if isinstance(owner, LakeIdentity) and is_of_schema(services.database, owner, schema):
        release(services, [folder])


def examine(services: Services, lake: LakeRecord) -> WarehouseStanding:
    """Return how the lake stands to its folders, from their markers."""
    unmarked: list[str] = []
    for folder in folders(services):
        owner = _owner(services, folder)
        if isinstance(owner, str) or (owner is not None and not lake.identity.is_same(owner)):
            return WarehouseStanding(_foreign(folder, owner, lake.identity))
        if owner is None and folder in lake.marked:
            return WarehouseStanding(_explain_lost_marker(folder))
        if owner is None:
            unmarked.append(folder)
    stranger = next(_unknown_files(services), None) if unmarked else None
    if stranger is None:
        return WarehouseStanding(unmarked=tuple(unmarked))
    return WarehouseStanding(
        doubt=f"{unmarked[0]} has no marker of a lake and holds files that this lake doesn't know, as {stranger}: "
        "they may be another lake's"
    )


def folders(services: Services) -> tuple[str, ...]:
    """Return the canonical folders that have a marker: the warehouse, and DATA_PATH where that isn't within it."""
    warehouse = _warehouse(services)
    with services.database.reading() as cursor:
        data_path = locations.read_data_path(cursor)
    return (warehouse,) if is_within(data_path, warehouse) else (warehouse, data_path)


def _apply_standing(services: Services, standing: WarehouseStanding) -> WarehouseStanding:
    """Return the standing, after the process's gate is as it says."""
    services.database.gate.reason = standing.refusal
    return standing


def _record(services: Services) -> None:
    with services.database.transaction() as cursor:
        record_warehouse(cursor, _warehouse(services))
        marked = [folder for folder in folders(services) if isinstance(_owner(services, folder), LakeIdentity)]
        record_marked_folders(cursor, marked)


def _owner(services: Services, folder: str) -> LakeIdentity | str | None:
    """Return whom the folder's marker names; None without a marker, the error's text if it can't be read."""
    try:
        return parse_identity(services.store.read(_marker(folder), _MAX_BYTES))
    except FileMissingError:
        return None
    except InvalidRequestError as error:
        return str(error)


def _unknown_files(services: Services) -> Iterator[str]:
    """Yield files of a kind that lakes are made of, of which no row of this one knows; of the first that are found."""
    found = list(islice(list_lake_files(services), _FILES_LOOKED_AT))
    yield from (file.location for file in find_unneeded_of_any_age(services, found))


def _foreign(folder: str, owner: LakeIdentity | str, own: LakeIdentity) -> str:
    return (
        f"{folder} belongs to {_name(owner)}, and this is {own}. Give each lake a warehouse of its own; "
        "if the other one is gone, or this is the same after pg_upgrade or a restore, run `duckicelake adopt`"
    )


def _explain_lost_marker(folder: str) -> str:
    return (
        f"{folder} has lost {MARKER}, by which it says whose it is: it may be another bucket or an unmounted disk. "
        "If it is the right one, run `duckicelake adopt`"
    )


def _name(owner: LakeIdentity | str | None) -> str:
    return "no lake" if owner is None else f"an unknown lake ({owner})" if isinstance(owner, str) else str(owner)


def _marker(folder: str) -> str:
    return f"{folder.rstrip('/')}/{MARKER}"


def _warehouse(services: Services) -> str:
    return canonicalize(services.policy.warehouse)
