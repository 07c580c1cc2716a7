"""Delete files that no table needs, uploads that the server has replaced, and what was dropped long ago."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final

from duckicelake.catalog import warehouse
from duckicelake.catalog.authz.locations import check_readable
from duckicelake.catalog.commit.guards import lift_guards
from duckicelake.catalog.context.background_threads import run_in_thread
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.dropped import let_go
from duckicelake.catalog.lake_files import TABLE_SUFFIXES, find_unneeded, is_lake_file, list_lake_files, read_kept_files
from duckicelake.catalog.table.load import refresh
from duckicelake.catalog.table.reclaim import release_all
from duckicelake.errors import CatalogError, ConflictError, InvalidRequestError, NoSuchTableError
from duckicelake.lake.side_tables import locations, writer
from duckicelake.lake.side_tables.audit import OK_RESULT, AuditedResource
from duckicelake.lake.side_tables.writer import UploadRow
from duckicelake.storage.local import is_link
from duckicelake.storage.policy import canonicalize, is_within, list_prefixes
from duckicelake.storage.protocol import StoredFile
from duckicelake.storage.threads import run_in_parallel

_ASKED_AT_ONCE: Final = 10_000
_DELETED_AT_ONCE: Final = 1_000
"""Few, so that little happens between the last look at the catalog and the deletion."""
PAUSE_SECONDS: Final = 600.0
"""Seconds between two rounds."""
MIN_AGE: Final = timedelta(hours=1)
"""Younger files may belong to a commit under way."""
MAX_BATCH_FILES: Final = 500
"""Uploads that are looked at together: few, so that little happens between the last look and the deletion."""


def find_orphans(
    services: Services, before_ms: int, looked_at: Callable[[int], object] = lambda _: None
) -> list[StoredFile]:
    """Return the files last written before a moment, in milliseconds since the epoch, that are orphans.

    Deletes nothing, but brings tables up to date whose orphans might be files that they have yet to claim: as a load
    does. `looked_at` hears of how many more files the lake was found to have. Raises UnavailableError.
    """
    found: list[StoredFile] = []
    kept = read_kept_files(services)
    for batch in _batches(list_lake_files(services), _ASKED_AT_ONCE):
        looked_at(len(batch))
        found += find_unneeded(services, kept, [file for file in batch if file.modified_ms < before_ms])
    return list(_still_unneeded(services, _find_unclaimed(services, found)))


def list_unneeded(services: Services, files: Sequence[StoredFile]) -> list[StoredFile]:
    """Return those of some canonical files in the Iceberg zone that are orphans; tables are caught up as above."""
    of_tables = [
        file
        for file in files
        if is_lake_file(file, TABLE_SUFFIXES) and is_within(file.location, services.policy.data_zone)
    ]
    found = find_unneeded(services, read_kept_files(services), of_tables)
    return list(_still_unneeded(services, _find_unclaimed(services, found)))


def find_unnamed(services: Services, files: Sequence[StoredFile]) -> list[StoredFile]:
    """Return those of some canonical files that no row names, and that lie where only this lake may keep files."""
    return list(_still_unneeded(services, files))


def check_age(before: datetime) -> int:
    """Return a moment in milliseconds since the epoch. Raises InvalidRequestError for one less than MIN_AGE ago."""
    if before > datetime.now(UTC) - MIN_AGE:
        raise InvalidRequestError(
            f"{before:%Y-%m-%dT%H:%M:%SZ} is less than an hour ago: give an age of an hour at least, better a day; "
            "younger files may be of commits under way"
        )
    return round(before.timestamp() * 1000)


def delete_orphans(
    services: Services, orphans: Sequence[StoredFile], deleted: Callable[[StoredFile], object] = lambda _: None
) -> None:
    """Delete those that are still orphans, and call `deleted` with every one. Raises UnavailableError.

    The audit trail says how many files went, and how many bytes.
    """
    gone: list[StoredFile] = []

    def delete(file: StoredFile) -> None:
        services.store.delete(file.location)
        gone.append(file)
        deleted(file)

    try:
        for batch in _batches(orphans, _DELETED_AT_ONCE):
            run_in_parallel(delete, _still_unneeded(services, batch))
    finally:
        if gone:
            detail = {"files": len(gone), "bytes": sum(file.size for file in gone)}
            services.note([AuditedResource("", detail=detail)], OK_RESULT)


def prepare_deletion(services: Services) -> None:
    """Take back guards of tables that share no files any more, and release files of snapshots that left history."""
    lift_guards(services)
    release_all(services)


def delete_listed_orphans(services: Services, listed: Sequence[str], before_ms: int) -> list[StoredFile]:
    """Delete those of some locations that are orphans and last written before a moment; return them.

    Raises ConflictError where the warehouse may be another lake's, UnavailableError.
    """
    standing = warehouse.look(services)
    reason = standing.refusal or standing.doubt
    if reason is not None:
        raise ConflictError(f"Nothing was deleted: {reason}")
    prepare_deletion(services)
    wanted = set(map(canonicalize, listed))
    folders = {location.rpartition("/")[0] for location in wanted}
    found = [
        file for file in list_lake_files(services, folders) if file.location in wanted and file.modified_ms < before_ms
    ]
    unneeded = find_unneeded(services, read_kept_files(services), found)
    gone: list[StoredFile] = []
    delete_orphans(services, list(_find_unclaimed(services, unneeded)), gone.append)
    return gone


def _still_unneeded(services: Services, files: Iterable[StoredFile]) -> Iterator[StoredFile]:
    for batch in _batches(files, _ASKED_AT_ONCE):
        yield from find_unneeded(services, read_kept_files(services), batch)


def _find_unclaimed(services: Services, files: Sequence[StoredFile]) -> Iterator[StoredFile]:
    """Yield the files but for those of live tables that can't be brought up to date.

    What a killed server has written gets the same name again, and is found there, when the next one writes it.
    """
    with services.database.reading() as cursor:
        tables = locations.read_live_tables(cursor)
    is_settled: dict[int, bool] = {}
    for file in files:
        owners = {tables[place] for place in list_prefixes(file.location) if place in tables}
        for table_id in owners - is_settled.keys():
            is_settled[table_id] = _settle(services, table_id)
        if all(is_settled[table_id] for table_id in owners):
            yield file


def _settle(services: Services, table_id: int) -> bool:
    """Let the table claim the files that it needs; whether it could."""
    try:
        refresh(services, table_id)
    except NoSuchTableError:
        return True
    except CatalogError:
        return False
    return True


def _batches(files: Iterable[StoredFile], size: int) -> Iterator[list[StoredFile]]:
    rest = iter(files)
    while batch := list(islice(rest, size)):
        yield batch


def collect_uploads(services: Services) -> int:
    """Delete the files of at most `BATCH` uploads that are due; how many uploads were looked at."""
    with services.database.statement() as cursor:
        found = writer.read_due_uploads(cursor, MAX_BATCH_FILES)
    candidates = {row.upload_id: _candidates(services, row) for row in found}
    files = {file.location: file for some in candidates.values() for file in some or ()}
    gone = {file.location for file in find_unnamed(services, list(files.values()))}
    run_in_parallel(services.store.delete, sorted(gone))
    done = [key for key, some in candidates.items() if some is not None and gone.issuperset(f.location for f in some)]
    needed = sorted(candidates.keys() - set(done))
    if found:
        with services.database.transaction() as cursor:
            writer.settle_uploads(cursor, done, needed)
    return len(found)


def _candidates(services: Services, row: UploadRow) -> Sequence[StoredFile] | None:
    """Return the files of an upload, canonical; None if one may not be deleted, so that all of them stay."""
    if row.location is None:
        return None
    folder = f"{canonicalize(row.location)}/metadata/"
    try:
        places = [canonicalize(path) for path in row.paths]
        for place in places:
            check_readable(services, place, row.location)
    except InvalidRequestError:
        return None
    if any(not place.startswith(folder) or "/" in place[len(folder) :] for place in places):
        return None
    return (
        None
        if any(is_link(services.store, place) for place in places)
        else [StoredFile(place, 0, 0) for place in places]
    )


def collect_in_background(services: Services, failed: Callable[[Exception], object]) -> AbstractContextManager[None]:
    """Collect for as long as the context lasts; `failed` hears of what went wrong, and the next round tries again."""

    def run(ended: threading.Event) -> None:
        while not ended.wait(PAUSE_SECONDS):
            try:
                while collect_uploads(services) == MAX_BATCH_FILES and not ended.is_set():
                    pass
                while let_go(services) and not ended.is_set():
                    pass
            except Exception as error:  # noqa: BLE001 - whatever it was, the next round may find it gone
                with suppress(Exception):
                    failed(error)

    return run_in_thread("uploads", run)
