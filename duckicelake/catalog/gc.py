"""Files that nobody needs: of commits that never came, of processes that were killed, temporary ones.

Looked for in the lake's two zones, in files that have lain there for a while: a commit's files are there before it is.
A file stays if any row of DuckLake's or ours has its name, whether live, scheduled for deletion or of the past.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from duckicelake.catalog.loads.loading import refresh
from duckicelake.catalog.services import Services
from duckicelake.delta.listing import FOLDER as DELTA_LOG
from duckicelake.errors import CatalogError, FileMissing, InvalidRequest, NoSuchTable
from duckicelake.iceberg.metadata_file import MAX_BYTES
from duckicelake.lake import garbage, ownership
from duckicelake.storage.objects import StoredFile
from duckicelake.storage.parallel import in_parallel
from duckicelake.storage.policy import at_and_above, canonical, is_within

TEMPORARY: Final = ".tmp-"
"""How the names of files begin that the local store hasn't finished."""
_METADATA: Final = ".metadata.json"
_CHECKSUM: Final = ".crc"
"""Hadoop's checksum of the file `x` is `.x.crc`, and stays with it."""
_OF_DATA: Final = (".parquet", ".orc", ".puffin")
_OF_TABLES: Final = (*_OF_DATA, ".avro", ".stats", _METADATA)
_ASKED_AT_ONCE: Final = 10_000
_DELETED_AT_ONCE: Final = 1_000
"""Few, so that little happens between the last look at the catalog and the deletion."""


def find_orphans(
    services: Services, before_ms: int, looked_at: Callable[[int], object] = lambda _: None
) -> list[StoredFile]:
    """The files last written before a moment, in milliseconds since the epoch, that nobody needs.

    Deletes nothing, but brings tables up to date whose orphans might be files that they have yet to claim: as a load
    does. `looked_at` hears of how many more files the lake was found to have. Raises Unavailable.
    """
    found: list[StoredFile] = []
    kept = _kept(services)
    for batch in _batches(lake_files(services), _ASKED_AT_ONCE):
        looked_at(len(batch))
        found += _unneeded(services, kept, [file for file in batch if file.modified_ms < before_ms])
    return list(_still_unneeded(services, _claimed_by_nobody(services, found)))


def unneeded(services: Services, files: Sequence[StoredFile]) -> list[StoredFile]:
    """Those of some canonical files in the Iceberg zone that nobody needs; tables are brought up to date as above."""
    of_tables = [
        file for file in files if _is_of(file, _OF_TABLES) and is_within(file.location, services.policy.data_zone)
    ]
    found = _unneeded(services, _kept(services), of_tables)
    return list(_still_unneeded(services, _claimed_by_nobody(services, found)))


def unnamed(services: Services, files: Sequence[StoredFile]) -> list[StoredFile]:
    """Those of some canonical files that no row names, and that lie where nobody else may keep files."""
    return list(_still_unneeded(services, files))


def delete_orphans(
    services: Services, orphans: Sequence[StoredFile], deleted: Callable[[StoredFile], object] = lambda _: None
) -> None:
    """Delete those that are still nobody's; `deleted` hears of each. Raises Unavailable."""

    def delete(file: StoredFile) -> None:
        services.store.delete(file.location)
        deleted(file)

    for batch in _batches(orphans, _DELETED_AT_ONCE):
        in_parallel(delete, _still_unneeded(services, batch))


def unneeded_of_any_age(services: Services, files: Sequence[StoredFile]) -> list[StoredFile]:
    """Those of some files of `lake_files` that no row names, as far as rows say without bringing tables up to date."""
    finished = [file for file in files if not _name(file).startswith(TEMPORARY)]
    return _unneeded(services, _kept(services), finished)


@dataclass(frozen=True, slots=True)
class _Kept:
    """What stays besides what rows name."""

    foreign_places: frozenset[str]
    names: frozenset[str]


def _kept(services: Services) -> _Kept:
    with services.database.reading() as cursor:
        return _Kept(garbage.foreign_places(cursor), garbage.named_in_metadata(cursor))


def lake_files(services: Services) -> Iterator[StoredFile]:
    """What lies in the two zones, as far as it is of a kind that lakes are made of."""
    with services.database.reading() as cursor:
        data_path = ownership.data_path(cursor)
    for zone, suffixes in ((services.policy.data_zone, _OF_TABLES), (data_path, _OF_DATA)):
        for file in services.store.files_below(zone):
            if _is_of(file, suffixes):
                yield file


def _is_of(file: StoredFile, suffixes: tuple[str, ...]) -> bool:
    """Whether the file is of a kind that lakes are made of, finished or not; Delta logs are looked after elsewhere."""
    name = _name(file)
    is_finished = name.endswith(suffixes) and f"/{DELTA_LOG}/" not in file.location
    return name.startswith(TEMPORARY) or (is_finished and _is_usable(file))


def _still_unneeded(services: Services, files: Iterable[StoredFile]) -> Iterator[StoredFile]:
    for batch in _batches(files, _ASKED_AT_ONCE):
        yield from _unneeded(services, _kept(services), batch)


def _unneeded(services: Services, kept: _Kept, files: Sequence[StoredFile]) -> list[StoredFile]:
    """Those that no row names, and that don't lie where others may keep files."""
    names = {_name(file) for file in files} - kept.names
    if not names:
        return []
    with services.database.reading() as cursor:
        unnamed = garbage.unnamed(cursor, sorted(names))
    ours = [file for file in files if _name(file) in unnamed]
    ours = [file for file in ours if kept.foreign_places.isdisjoint(at_and_above(file.location))]
    return [file for file in ours if not _is_of_view(services, file)]


def _claimed_by_nobody(services: Services, files: Sequence[StoredFile]) -> Iterator[StoredFile]:
    """The files but for those of live tables that can't be brought up to date.

    What a killed server has written gets the same name again, and is found there, when the next one writes it.
    """
    with services.database.reading() as cursor:
        tables = garbage.live_tables(cursor)
    is_settled: dict[int, bool] = {}
    for file in files:
        owners = {tables[place] for place in at_and_above(file.location) if place in tables}
        for table_id in owners - is_settled.keys():
            is_settled[table_id] = _settle(services, table_id)
        if all(is_settled[table_id] for table_id in owners):
            yield file


def _settle(services: Services, table_id: int) -> bool:
    """Let the table claim the files that it needs; whether it could."""
    try:
        refresh(services, table_id)
    except NoSuchTable:
        return True
    except CatalogError:
        return False
    return True


def _is_of_view(services: Services, file: StoredFile) -> bool:
    """Whether the file is metadata of a view: views that were dropped can be registered again, and leave no rows."""
    if not file.location.endswith(_METADATA):
        return False
    try:
        return b'"view-uuid"' in services.store.read(file.location, MAX_BYTES)
    except FileMissing:
        return False
    except InvalidRequest:
        return True


def _batches(files: Iterable[StoredFile], size: int) -> Iterator[list[StoredFile]]:
    rest = iter(files)
    while batch := list(islice(rest, size)):
        yield batch


def _name(file: StoredFile) -> str:
    name = file.location.rpartition("/")[2]
    return name[1:].removesuffix(_CHECKSUM) if name.startswith(".") and name.endswith(_CHECKSUM) else name


def _is_usable(file: StoredFile) -> bool:
    """Whether a file of this name could be a table's at all."""
    try:
        return canonical(file.location) == file.location
    except InvalidRequest:
        return False
