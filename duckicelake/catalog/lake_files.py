"""The files in a lake's two zones, and which of them no row of the catalog names.

This module must not import DuckDB, which is slow: every server uses it at its start, to check whose a warehouse is.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from duckicelake.catalog.context.services import Services
from duckicelake.errors import FileMissingError, InvalidRequestError
from duckicelake.iceberg.metadata_file import MAX_METADATA_BYTES
from duckicelake.lake.side_tables import locations
from duckicelake.storage.policy import canonicalize, is_within, list_prefixes
from duckicelake.storage.protocol import StoredFile

_DELTA_LOG: Final = "_delta_log"
"""The folder of Delta logs. Their files stay even where the feature `delta` is not installed."""
_TEMPORARY_PREFIX: Final = ".tmp-"
"""Names of files that the local store hasn't finished begin so."""
_TEMPORARY_PATTERN: Final = re.compile(r"\.tmp-[0-9a-f]{32}")
"""Their whole names. No metadata has them: a file gets its own name once it is complete."""
_METADATA_SUFFIX: Final = ".metadata.json"
_CHECKSUM_SUFFIX: Final = ".crc"
"""Hadoop's checksum of the file `x` is `.x.crc`, and stays with it."""
_DATA_SUFFIXES: Final = (".parquet", ".orc", ".puffin")
TABLE_SUFFIXES: Final = (*_DATA_SUFFIXES, ".avro", ".stats", _METADATA_SUFFIX)


def list_lake_files(services: Services, folders: Collection[str] | None = None) -> Iterator[StoredFile]:
    """List the files in both zones whose kind a lake may have made. folders: canonical; only those below them."""
    with services.database.reading() as cursor:
        data_path = locations.read_data_path(cursor)
    for zone, suffixes in ((services.policy.data_zone, TABLE_SUFFIXES), (data_path, _DATA_SUFFIXES)):
        for place in (zone,) if folders is None else _find_outermost(folders, zone):
            for file in services.store.files_below(place):
                if is_lake_file(file, suffixes):
                    yield file


def _find_outermost(folders: Collection[str], zone: str) -> list[str]:
    """Find the folders in a zone that lie in no other one of them."""
    own = {folder for folder in folders if is_within(folder, zone)}
    return sorted(folder for folder in own if own.isdisjoint(list_prefixes(folder)[:-1]))


@dataclass(frozen=True, slots=True)
class KeptFiles:
    """Files that stay although no row names them: where others may keep files, and names in metadata."""

    foreign_places: frozenset[str]
    names: frozenset[str]


def read_kept_files(services: Services) -> KeptFiles:
    """Read from the catalog which files stay although no row names them."""
    with services.database.reading() as cursor:
        return KeptFiles(locations.read_foreign_folders(cursor), locations.read_metadata_file_names(cursor))


def find_unneeded_of_any_age(services: Services, files: Sequence[StoredFile]) -> list[StoredFile]:
    """Find the files of `list_lake_files` that no row names. Tables are not brought up to date before."""
    finished = [file for file in files if not _file_name(file).startswith(_TEMPORARY_PREFIX)]
    return find_unneeded(services, read_kept_files(services), finished)


def find_unneeded(services: Services, kept: KeptFiles, files: Sequence[StoredFile]) -> list[StoredFile]:
    """Find the files that no row names. Where others may keep files, find only those that a server left unfinished."""
    names = {_file_name(file) for file in files} - kept.names
    if not names:
        return []
    with services.database.reading() as cursor:
        unnamed = locations.find_unnamed_files(cursor, sorted(names))
    ours = [file for file in files if _file_name(file) in unnamed]
    ours = [
        file for file in ours if _is_unfinished(file) or kept.foreign_places.isdisjoint(list_prefixes(file.location))
    ]
    return [file for file in ours if not _is_view_metadata(services, file)]


def is_lake_file(file: StoredFile, suffixes: tuple[str, ...]) -> bool:
    """Return whether a lake may have made the file, finished or not. Files of Delta logs are left to `delta`."""
    name = _file_name(file)
    is_finished = name.endswith(suffixes) and f"/{_DELTA_LOG}/" not in file.location
    return name.startswith(_TEMPORARY_PREFIX) or (is_finished and _is_usable(file))


def _is_unfinished(file: StoredFile) -> bool:
    """Return whether a server of ours has written the file, and not to its end."""
    return _TEMPORARY_PATTERN.fullmatch(_file_name(file)) is not None


def _is_view_metadata(services: Services, file: StoredFile) -> bool:
    """Return whether the file is metadata of a view. A dropped view leaves no row and can be registered again."""
    if not file.location.endswith(_METADATA_SUFFIX):
        return False
    try:
        return b'"view-uuid"' in services.store.read(file.location, MAX_METADATA_BYTES)
    except FileMissingError:
        return False
    except InvalidRequestError:
        return True


def _file_name(file: StoredFile) -> str:
    name = file.location.rpartition("/")[2]
    return name[1:].removesuffix(_CHECKSUM_SUFFIX) if name.startswith(".") and name.endswith(_CHECKSUM_SUFFIX) else name


def _is_usable(file: StoredFile) -> bool:
    """Return whether a file of this name could be a table's at all."""
    try:
        return canonicalize(file.location) == file.location
    except InvalidRequestError:
        return False
