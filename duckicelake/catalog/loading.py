"""Loads: is the cached table still the newest? Else catch up, materialize and keep it (design, "A load walks")."""

from collections.abc import Sequence

from duckicelake.catalog.cache import CachedTable, Materialized
from duckicelake.catalog.catch_up import catch_up
from duckicelake.catalog.damage import undamaged
from duckicelake.catalog.materialize import materialize
from duckicelake.catalog.ownership import granted
from duckicelake.catalog.principal import Capability
from duckicelake.catalog.services import Services
from duckicelake.errors import CatalogError, CommitStateUnknown, NoSuchTable, Unavailable
from duckicelake.iceberg.names import Namespace, schema_name
from duckicelake.lake import native, ownership, reader
from duckicelake.lake.state import Freshness


def current_table(services: Services, namespace: Namespace, name: str) -> CachedTable:
    """The table as it is now, native changes included; NoSuchTable, DamagedTable."""
    fresh = freshness(services, namespace, name)
    cached = services.cache.get(fresh.table_id)
    if cached is not None and _is_current(cached, fresh):
        services.cache.count(hit=True)
        return cached
    services.cache.count(hit=False)
    return refresh(services, fresh.table_id)


def freshness(services: Services, namespace: Namespace, name: str) -> Freshness:
    """What tells whether the cached table is still the newest; NoSuchTable."""
    with services.database.reading() as cursor:
        fresh = reader.freshness(cursor, schema_name(namespace), name)
    if fresh is None:
        raise NoSuchTable(f"Table does not exist: {'.'.join((*namespace, name))}")
    return fresh


def refresh(services: Services, table_id: int) -> CachedTable:
    """Catch up with DuckDB and materialize what is new; NoSuchTable if the table has gone, DamagedTable."""
    try:
        return undamaged(services, table_id, lambda: _refresh(services, table_id))
    except CommitStateUnknown as error:  # of what was caught up or recorded, which comes out the same the next time
        raise Unavailable(f"The table could not be brought up to date; try again: {error}") from error


def _refresh(services: Services, table_id: int) -> CachedTable:
    upto, epoch = catch_up(services, table_id)
    cached = services.cache.get(table_id)
    with services.database.reading() as cursor:
        row = reader.table_row(cursor, table_id)
    if cached is None or row is None or cached.materialized.row != row:
        table = CachedTable(materialize(services, table_id), upto, epoch)
    else:
        table = CachedTable(cached.materialized, upto, epoch)
    services.cache.put(table)
    return table


def committed_before(services: Services, table_ids: Sequence[int]) -> Materialized:
    """The one table of a commit whose answer got lost: as it is now or, if it was dropped, as it was last.

    Raises CommitStateUnknown if it was purged, or has moved to where the caller may not see it: a refusal would tell
    the client to delete the files of its commit.
    """
    (table_id,) = table_ids
    _check_still_shown(services, table_id)
    try:
        with services.database.reading() as cursor:
            is_live = native.definition(cursor, table_id, native.newest_snapshot(cursor)) is not None
        return refresh(services, table_id).materialized if is_live else materialize(services, table_id)
    except CatalogError as error:
        raise CommitStateUnknown(f"The commit was written, but its table can't be shown: {error}") from error


def _check_still_shown(services: Services, table_id: int) -> None:
    """CommitStateUnknown unless the caller may load or commit to tables where this one is by now."""
    principal = services.caller.principal
    if principal.may(Capability.READ, ()):
        return
    with services.database.reading() as cursor:
        found = ownership.name_of(cursor, table_id)
    schema = None if found is None else found[0]
    if not any(granted(principal, each, schema) for each in (Capability.READ, Capability.WRITE)):
        raise CommitStateUnknown("The commit was written, but its table has moved since and can't be shown")


def _is_current(cached: CachedTable, fresh: Freshness) -> bool:
    row = cached.materialized.row
    same_row = (row.version, row.caught_up_to) == (fresh.version, fresh.caught_up_to)
    same_lake = (cached.checked_upto, cached.epoch) == (fresh.newest_snapshot, fresh.epoch)
    return same_row and same_lake and not fresh.has_overdue
