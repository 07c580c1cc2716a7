"""Publish the recorded versions of Delta logs as files, write checkpoints, and remove expired files."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from duckicelake.catalog.authz.locations import write
from duckicelake.catalog.context.services import Services
from duckicelake.delta.export import logs
from duckicelake.delta.export.definition import READ_ONLY_PROPERTY
from duckicelake.delta.export.logs import LoggedVersion, LogRow
from duckicelake.delta.log.actions import DeltaSnapshot
from duckicelake.delta.log.encoder import (
    LAST_CHECKPOINT,
    encode_checkpoint,
    encode_last_checkpoint,
    format_checkpoint_name,
    format_commit_name,
)
from duckicelake.delta.log.reader import DeltaLog
from duckicelake.delta.log.segments import FOLDER
from duckicelake.delta.log.vectors import VECTOR_FOLDER as VECTORS
from duckicelake.errors import AlreadyExistsError, NoSuchTableError
from duckicelake.storage.policy import canonicalize

CHECKPOINT_VERSIONS: Final = 100
"""Versions between two checkpoints: writing one takes as long as the table has files."""


class OtherLogError(Exception):
    """The file of a version exists already, with other content."""


def publish_log(services: Services, table_id: int) -> LogRow:
    """Write missing files of recorded versions in order, and remove versions too old to be read.

    OtherLogError: a file exists with other content.
    """
    log = _read_row(services, table_id)
    while versions := _list_unwritten(services, table_id):
        for version in versions:
            _write(services, log, version)
        with services.database.transaction() as cursor:
            logs.note_written(cursor, table_id, [written.version for written in versions])
    return _cut(services, table_id, log)


def repair_log(services: Services, table_id: int) -> None:
    """Write lost files of the log again."""
    log, after = _read_row(services, table_id), -1
    present = {
        file.location for folder in (FOLDER, VECTORS) for file in services.store.files_below(f"{log.root}/{folder}")
    }
    while versions := _list_all(services, table_id, after):
        for version in versions:
            if not present.issuperset(map(canonicalize, _list_locations(log, version))):
                _write(services, log, version)
        after = versions[-1].version


def remove_log(services: Services, table_id: int) -> None:
    """Delete a log and its records."""
    with services.database.reading() as cursor:
        log = logs.read_log(cursor, table_id)
    if log is None:
        return
    _delete(services, _iterate_files(services, log.root))
    with services.database.transaction() as cursor:
        logs.forget_log(cursor, table_id)


def clear_log(services: Services, root: str) -> None:
    """Delete the files of an earlier log of this server in a folder.

    Raises AlreadyExistsError if the folder has another log.
    """
    found = _iterate_files(services, root)
    ours = any(
        READ_ONLY_PROPERTY.encode() in services.store.read(location) for location in found if location.endswith(".json")
    )
    if found and not ours:
        raise AlreadyExistsError(f"{root} has a Delta log of another writer: {found[0]}")
    _delete(services, found)


def _iterate_files(services: Services, root: str) -> list[str]:
    """List the files of a log, the oldest versions first."""
    found = (file for folder in (FOLDER, VECTORS) for file in services.store.files_below(f"{root}/{folder}"))
    return sorted(file.location for file in found)


def _read_row(services: Services, table_id: int) -> LogRow:
    with services.database.reading() as cursor:
        log = logs.read_log(cursor, table_id)
    if log is None:
        raise NoSuchTableError(f"Table {table_id} has no Delta log")
    return log


def _list_unwritten(services: Services, table_id: int) -> list[LoggedVersion]:
    with services.database.reading() as cursor:
        return logs.read_version_files(cursor, table_id)


def _list_all(services: Services, table_id: int, after: int) -> list[LoggedVersion]:
    with services.database.reading() as cursor:
        return logs.read_version_files(cursor, table_id, after, unwritten_only=False)


def _list_locations(log: LogRow, version: LoggedVersion) -> Iterator[str]:
    if version.vectors_path is not None:
        yield f"{log.root}/{version.vectors_path}"
    if version.version >= log.oldest:
        yield f"{log.root}/{FOLDER}/{format_commit_name(version.version)}"


def _write(services: Services, log: LogRow, version: LoggedVersion) -> None:
    """Write a version's vectors, then the commit that names them."""
    if version.vectors_path is not None and version.vectors is not None:
        _write_once(services, f"{log.root}/{version.vectors_path}", version.vectors)
    if version.version >= log.oldest:
        _write_once(services, f"{log.root}/{FOLDER}/{format_commit_name(version.version)}", version.body)
        if version.version and version.version % CHECKPOINT_VERSIONS == 0:
            _write_checkpoint(services, log, version.version)


def _write_once(services: Services, location: str, data: bytes) -> None:
    with suppress(AlreadyExistsError):
        write(services, location, data)
        if services.store.read(location) == data:
            return
    raise OtherLogError


def _write_checkpoint(services: Services, log: LogRow, version: int) -> None:
    """Write the checkpoint of a version, unless there is one, whose content is the same."""
    snapshot = DeltaLog(services.store, log.root).snapshot(version)
    with suppress(AlreadyExistsError):
        write(services, f"{log.root}/{FOLDER}/{format_checkpoint_name(version)}", encode_checkpoint(snapshot))
    _point_at(services, log, snapshot)


def _point_at(services: Services, log: LogRow, snapshot: DeltaSnapshot) -> None:
    """Write `_last_checkpoint`. Without it, readers list the log."""
    location = f"{log.root}/{FOLDER}/{LAST_CHECKPOINT}"
    services.store.delete(location)
    with suppress(AlreadyExistsError):
        write(services, location, encode_last_checkpoint(snapshot))


def _cut(services: Services, table_id: int, log: LogRow) -> LogRow:
    """Remove versions whose data files may be deleted.

    Before that, write a checkpoint for the later ones. Remove the oldest first.

    If no version can be read any more, and none can follow, the whole log goes.
    """
    with services.database.reading() as cursor:
        oldest = logs.find_oldest_readable(cursor, table_id)
        needless = [f"{log.root}/{path}" for path in logs.find_needless_vectors(cursor, table_id, oldest)]
    if oldest <= log.oldest:
        return log
    if oldest > log.version:
        if log.problem is not None:
            remove_log(services, table_id)
        return log
    _write_checkpoint(services, log, oldest)
    names = ((format_commit_name(version), format_checkpoint_name(version)) for version in range(log.oldest, oldest))
    _delete(services, (f"{log.root}/{FOLDER}/{name}" for pair in names for name in pair))
    with services.database.transaction() as cursor:
        logs.cut_versions(cursor, table_id, oldest)
    _delete(services, needless)
    return _read_row(services, table_id)


def _delete(services: Services, locations: Iterable[str]) -> None:
    for location in locations:
        services.store.delete(location)
