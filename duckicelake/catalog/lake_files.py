"""The files of a lake's two zones, and which of them no row names, whatever their age.

Without DuckDB, which takes long to import: every server looks here at its start, to find out whose a warehouse is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from duckicelake.catalog.services import Services
from duckicelake.delta.listing import FOLDER as DELTA_LOG
from duckicelake.errors import FileMissing, InvalidRequest
from duckicelake.iceberg.metadata_file import MAX_BYTES
from duckicelake.lake import garbage, ownership
from duckicelake.storage.objects import StoredFile
from duckicelake.storage.policy import at_and_above, canonical

TEMPORARY: Final = ".tmp-"
"""How the names of files begin that the local store hasn't finished."""
_METADATA: Final = ".metadata.json"
_CHECKSUM: Final = ".crc"
"""Hadoop's checksum of the file `x` is `.x.crc`, and stays with it."""
_OF_DATA: Final = (".parquet", ".orc", ".puffin")
OF_TABLES: Final = (*_OF_DATA, ".avro", ".stats", _METADATA)


def lake_files(services: Services) -> Iterator[StoredFile]:
    """What lies in the two zones, as far as it is of a kind that lakes are made of."""
    with services.database.reading() as cursor:
        data_path = ownership.data_path(cursor)
    for zone, suffixes in ((services.policy.data_zone, OF_TABLES), (data_path, _OF_DATA)):
        for file in services.store.files_below(zone):
            if is_of(file, suffixes):
                yield file


@dataclass(frozen=True, slots=True)
class Kept:
    """What stays besides what rows name."""

    foreign_places: frozenset[str]
    names: frozenset[str]


def read_kept(services: Services) -> Kept:
    with services.database.reading() as cursor:
        return Kept(garbage.foreign_places(cursor), garbage.named_in_metadata(cursor))


def find_unneeded_of_any_age(services: Services, files: Sequence[StoredFile]) -> list[StoredFile]:
    """Those of some files of `lake_files` that no row names, as far as rows say without bringing tables up to date."""
    finished = [file for file in files if not _name(file).startswith(TEMPORARY)]
    return find_unneeded(services, read_kept(services), finished)


def find_unneeded(services: Services, kept: Kept, files: Sequence[StoredFile]) -> list[StoredFile]:
    """Those that no row names, and that don't lie where others may keep files."""
    names = {_name(file) for file in files} - kept.names
    if not names:
        return []
    with services.database.reading() as cursor:
        unnamed = garbage.unnamed(cursor, sorted(names))
    ours = [file for file in files if _name(file) in unnamed]
    ours = [file for file in ours if kept.foreign_places.isdisjoint(at_and_above(file.location))]
    return [file for file in ours if not _is_of_view(services, file)]


def is_of(file: StoredFile, suffixes: tuple[str, ...]) -> bool:
    """Whether the file is of a kind that lakes are made of, finished or not; Delta logs are looked after elsewhere."""
    name = _name(file)
    is_finished = name.endswith(suffixes) and f"/{DELTA_LOG}/" not in file.location
    return name.startswith(TEMPORARY) or (is_finished and _is_usable(file))


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


def _name(file: StoredFile) -> str:
    name = file.location.rpartition("/")[2]
    return name[1:].removesuffix(_CHECKSUM) if name.startswith(".") and name.endswith(_CHECKSUM) else name


def _is_usable(file: StoredFile) -> bool:
    """Whether a file of this name could be a table's at all."""
    try:
        return canonical(file.location) == file.location
    except InvalidRequest:
        return False
