"""Load the current version of a table, from the cache or the catalog; report damage."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import monotonic
from typing import Final, TypeVar

from duckicelake.catalog.context.cache import Found, Responses, TableVersion
from duckicelake.catalog.context.caller import Capability, Principal, build_refusal
from duckicelake.catalog.context.privileges import WRITING, Privilege
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.catch_up import CaughtUp, catch_up
from duckicelake.catalog.table.materialize import delete_old_metadata, materialize, materialize_next
from duckicelake.errors import (
    AlreadyExistsError,
    CatalogError,
    CommitStateUnknownError,
    DamagedTableError,
    FileMissingError,
    InvalidRequestError,
    NoSuchTableError,
    UnavailableError,
)
from duckicelake.iceberg.identifiers import Namespace, format_full_name, parse_schema_name, to_schema_name
from duckicelake.lake.changes import WrittenCommit
from duckicelake.lake.ducklake import native
from duckicelake.lake.side_tables import locations, reader
from duckicelake.lake.side_tables.freshness import read_freshness as lake_freshness
from duckicelake.lake.side_tables.locations import LocationOwner
from duckicelake.lake.state import Freshness, FreshnessQuery, TableRow

T = TypeVar("T")
_DAMAGE_SIGNS = (DamagedTableError, InvalidRequestError, FileMissingError, AlreadyExistsError)
"""Errors of reading a table. No request causes them, so they are signs of damage."""
_RECENT_SECONDS: Final = 1.0


def read_or_report_damage(services: Services, table_id: int, read: Callable[[], T]) -> T:
    """Return what `read` returns; DamagedTableError names the table.

    `read` is called again before that, and after each flush in between: rows that a flush or a cleanup took away are no
    damage. It is also called again after a LookupError: `read` takes several transactions, and a purge or an expiry
    between two of them deletes rows that the first one named.
    """
    try:
        return read()
    except (*_DAMAGE_SIGNS, LookupError):
        since = _newest_snapshot(services)
    while True:
        try:
            with damage_context(services, table_id):
                return read()
        except DamagedTableError:
            before, since = since, _newest_snapshot(services)
            if not _was_flushed(services, table_id, before, since):
                raise


def _newest_snapshot(services: Services) -> int:
    with services.database.reading() as cursor:
        return native.read_newest_snapshot(cursor)


def _was_flushed(services: Services, table_id: int, after: int, upto: int) -> bool:
    with services.database.reading() as cursor:
        return any(
            change.kinds & native.ROW_MOVING_KINDS for change in native.read_changes(cursor, table_id, after, upto)
        )


@contextmanager
def damage_context(services: Services, table_id: int) -> Iterator[None]:
    """Turn signs of damage into a DamagedTableError that names the table.

    Nothing that a request says may be checked inside.
    """
    try:
        yield
    except _DAMAGE_SIGNS as error:
        with services.database.reading() as cursor:
            name = native.read_full_name(cursor, table_id)
        raise build_damage_error(name, error) from error


def build_damage_error(name: str, error: Exception) -> DamagedTableError:
    return DamagedTableError(f"Table {name} is damaged: {error}. `duckicelake doctor` says what to do")


@dataclass(frozen=True, slots=True)
class TableCheck:
    """What Postgres answered to the question whether a cached table is current.

    Attributes:
        table: The cached table that the question was about; None if none was cached.
        fresh: The answer.
        asked_at: Seconds of the monotonic clock at which the question was asked.

    """

    table: TableVersion | None
    fresh: Freshness
    asked_at: float


def load_current_table(
    services: Services, namespace: Namespace, name: str, check: TableCheck | None = None
) -> TableVersion:
    """Return the table as it is now, with DuckDB's changes.

    `check` is what Postgres answered about this table during this request; None asks Postgres.

    Raises:
        NoSuchTableError, DamagedTableError. ForbiddenError: policies hide a part of the table from the caller, whatever
            it was called when the request was checked.

    """
    full_name = (to_schema_name(namespace), name)
    check = check or _check_table(services, full_name)
    known, fresh = check.table, check.fresh
    _check_whole(services, namespace, name, fresh.table_id)
    if known is not None and is_current(known, fresh):
        services.cache.count(hit=True)
        return replace(check_freshness(services, known, fresh), found=Found(full_name, check.asked_at))
    services.cache.count(hit=False)
    current = refresh(services, fresh.table_id)
    services.cache.name(*full_name, fresh.table_id)
    return replace(current, seen=fresh.seen)


def catch_up_by_name(services: Services, namespace: Namespace, name: str) -> int:
    """Fold DuckDB's changes into a table without reading its history; its id. Raises what `load_current_table` does."""
    fresh = _check_table(services, (to_schema_name(namespace), name)).fresh
    _check_whole(services, namespace, name, fresh.table_id)
    known = services.cache.get(fresh.table_id)
    if known is None or not is_current(known, fresh):
        read_or_report_damage(services, fresh.table_id, lambda: catch_up(services, fresh.table_id))
    return fresh.table_id


def _check_whole(services: Services, namespace: Namespace, name: str, table_id: int) -> None:
    """Check that policies hide nothing of a table from the caller; ForbiddenError."""
    principal = renew_caller(services, table_id).caller.principal
    if principal.is_kept_from(table_id):
        raise build_refusal(namespace, name, principal)


def renew_caller(services: Services, table_id: int) -> Services:
    """Return the services for the caller with rights that were read since the table was made."""
    principal = services.caller.principal
    if services.rights is None or principal.knows(table_id):
        return services
    return replace(services, caller=replace(services.caller, principal=services.rights.renew(principal, table_id)))


def load_recent_table(services: Services, namespace: Namespace, name: str) -> TableVersion | None:
    """Return the table as this process committed it, if it was current under this name within the last second.

    Other processes may have changed it since, or its name, so that what is computed of it must be checked. It is
    returned once: a second attempt must ask Postgres.
    """
    full_name = (to_schema_name(namespace), name)
    known = services.cache.find(*full_name)
    found = None if known is None else known.found
    if known is None or found is None or found.name != full_name or monotonic() - found.at > _RECENT_SECONDS:
        return None
    services.cache.put(replace(known, found=None))
    return known


def _check_table(services: Services, full_name: tuple[str, str]) -> TableCheck:
    asked_at, known = monotonic(), services.cache.find(*full_name)
    return TableCheck(known, read_freshness(services, full_name, known), asked_at)


def read_freshness(services: Services, full_name: tuple[str, str], known: TableVersion | None = None) -> Freshness:
    """Read whether the cached version of the table is still fresh; NoSuchTableError. full_name: schema and table."""
    asked = build_freshness_query(*full_name, known)
    with services.meter.phase("freshness"), services.database.statement(only_reads=True) as cursor:
        (fresh,) = lake_freshness(cursor, [asked])
        if fresh is None:
            reader.find_table_id(cursor, *full_name)  # which refuses a table in a nested schema
    if fresh is None:
        raise NoSuchTableError(f"Table does not exist: {format_full_name(*full_name)}")
    return fresh


def build_freshness_query(schema: str, name: str, known: TableVersion | None) -> FreshnessQuery:
    """Build the question whether the cached version of a table is current."""
    return FreshnessQuery(schema, name, None if known is None else known.checked_upto)


def is_current(known: TableVersion, fresh: Freshness) -> bool:
    """Return whether a version is current by the answer to the question about it."""
    row = known.row
    same_row = (row.table_id, row.version, row.caught_up_to) == (fresh.table_id, fresh.version, fresh.caught_up_to)
    return same_row and known.epoch == fresh.epoch and fresh.is_untouched and not fresh.has_overdue


def check_freshness(services: Services, known: TableVersion, fresh: Freshness) -> TableVersion:
    """Return a version that is current by this answer, and keep the answer with it in the cache."""
    if (known.checked_upto, known.seen) == (fresh.newest_snapshot, fresh.seen):
        return known
    found = replace(known, checked_upto=fresh.newest_snapshot, seen=fresh.seen, found=None)
    services.cache.put(found)
    return found


def refresh(services: Services, table_id: int) -> TableVersion:
    """Catch up with DuckDB and materialize what is new; NoSuchTableError if the table has gone, DamagedTableError."""
    try:
        return read_or_report_damage(services, table_id, lambda: _refresh(services, table_id))
    except CommitStateUnknownError as error:  # what was written comes out the same the next time
        raise UnavailableError(f"The table could not be brought up to date; try again: {error}") from error


def _refresh(services: Services, table_id: int) -> TableVersion:
    caught_up = catch_up(services, table_id)
    version = caught_up.version or _find_same(services, table_id, caught_up)
    if version is None:
        with services.meter.phase("materialize"):
            version = materialize(services, table_id)
    table = replace(version, checked_upto=caught_up.upto, epoch=caught_up.epoch, found=None)
    if version.tags != caught_up.tags:  # the responses so far have other labels
        table = replace(table, tags=caught_up.tags, responses=Responses())
    services.cache.put(table)
    return table


def _find_same(services: Services, table_id: int, caught_up: CaughtUp) -> TableVersion | None:
    """Return the cached version with the table's row as it is now; None if the table has another version."""
    cached = services.cache.get(table_id)
    row = caught_up.row or _read_row(services, table_id)
    if cached is None or row is None or _identify_version(cached.row) != _identify_version(row):
        return None
    return replace(cached, state=replace(cached.state, row=row))


def _read_row(services: Services, table_id: int) -> TableRow | None:
    with services.database.statement(only_reads=True) as cursor:
        return reader.read_table_row(cursor, table_id)


def follow(
    services: Services,
    before: TableVersion,
    written: WrittenCommit,
    prepared: TableVersion | None = None,
    released: int | None = None,
) -> TableVersion:
    """Return the version that a commit made of the one before, or a newer one if the table has changed since.

    prepared: that version, if its files were written before the commit and recorded with it. released: the DuckLake
    snapshot right after the commit's own, if it changes nothing.
    """

    def read() -> TableVersion | None:
        with services.meter.phase("materialize"):
            return materialize_next(services, before, written.change, written)

    if prepared is None:
        made = read_or_report_damage(services, written.table_id, read)
    else:
        made = prepared
        delete_old_metadata(services, made.row)
    if made is None:
        return refresh(services, written.table_id)
    upto = released or written.caught_up_to
    table = replace(made, checked_upto=upto, epoch=before.epoch, found=before.found, tags=before.tags)
    services.cache.put(table)
    return table


def load_committed_before(services: Services, table_ids: Sequence[int]) -> TableVersion:
    """Return the one table of a commit whose response got lost, as it is now or as it was before it was dropped.

    Raises:
        CommitStateUnknownError: The table was purged, or has moved to where the caller may not see it. After a refusal
            the client would delete the files of its commit.

    """
    (table_id,) = table_ids
    _check_still_shown(services, table_id)
    try:
        with services.database.reading() as cursor:
            is_live = native.read_definition(cursor, table_id, native.read_newest_snapshot(cursor)) is not None
        return refresh(services, table_id) if is_live else materialize(services, table_id)
    except CatalogError as error:
        raise CommitStateUnknownError(f"The commit was written, but its table can't be shown: {error}") from error


def _check_still_shown(services: Services, table_id: int) -> None:
    """Raise CommitStateUnknownError unless the caller may load or commit to tables in the table's namespace."""
    principal = services.caller.principal
    if principal.may_everywhere(Capability.READ):
        return
    with services.database.reading() as cursor:
        found = locations.read_last_name(cursor, table_id)
    owner = None if found is None else found[:2]
    if not _is_shown(principal, owner):
        raise CommitStateUnknownError("The commit was written, but its table has moved since and can't be shown")


def _is_shown(principal: Principal, owner: LocationOwner) -> bool:
    if owner is None:
        return False
    place = parse_schema_name(owner[0]), owner[1]
    may_read = principal.may(Capability.READ, *place, Privilege.SELECT)
    return may_read or principal.may_any(Capability.WRITE, WRITING | Privilege.ALTER, *place)


def _identify_version(row: TableRow) -> tuple[str, int]:
    return row.table_uuid, row.version
