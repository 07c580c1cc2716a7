"""Sync imported tables with new versions of their Delta tables, report their state, and end following."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from duckicelake.catalog.commit.apply import base_of
from duckicelake.catalog.commit.run import retry_on_conflict
from duckicelake.catalog.commit.workspace import Workspace
from duckicelake.catalog.context.audit_notes import build_touched
from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.caller import Caller, Principal
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import follow, load_current_table
from duckicelake.delta.import_ import sources
from duckicelake.delta.import_.definition import DeltaState
from duckicelake.delta.import_.history import hash_commit, read_version_files
from duckicelake.delta.import_.sources import DeltaPosition, DeltaSource
from duckicelake.delta.import_.translation import DeltaTarget, Translation, has_shared_numbers, write_changes
from duckicelake.delta.import_.versions import DeltaVersion, ReadableVersions
from duckicelake.delta.log.reader import DeltaLog
from duckicelake.errors import (
    CatalogError,
    CommitStateUnknownError,
    ExpiredError,
    FileMissingError,
    InvalidRequestError,
    NoSuchTableError,
    UnavailableError,
)
from duckicelake.iceberg.identifiers import parse_schema_name
from duckicelake.lake.changes import ChangeSet, WrittenCommit
from duckicelake.lake.ducklake import native
from duckicelake.lake.ducklake.snapshots import retry_transaction
from duckicelake.lake.writer.tables import allow_write
from duckicelake.storage.threads import run_in_parallel

MAX_SYNC_VERSIONS: Final = 100
"""Versions in one transaction, so that other tables' commits don't wait for long."""
SYNCER: Final = Caller(Principal("duckicelake", ()), operation="sync_delta_table")
"""The caller of a sync, for the audit trail."""


def find_source(services: Services, name: str) -> DeltaSource:
    """Find the Delta table of the table `namespace.table`; NoSuchTableError: there is none."""
    with services.database.reading() as cursor:
        found = sources.read_sources(cursor, name)
    if not found:
        raise NoSuchTableError(f"{name} wasn't imported from Delta")
    return found[0]


def adopt_table(services: Services, name: str) -> DeltaSource:
    """End following: all clients may write the table, and no later version is imported. Returns the former source.

    Raises InvalidRequestError, NoSuchTableError.
    """
    source = find_source(services, name)
    with services.database.transaction() as cursor:
        if not sources.end_following(cursor, source.table_id):
            raise InvalidRequestError(f"{name} doesn't follow its Delta table: it can be written already")
        detail = {"delta": source.root, "version": source.position.version}
        services.settle(cursor, [build_touched(parse_schema_name(source.schema_name), source.table_name, detail)])
    return source


@dataclass(frozen=True, slots=True)
class NextVersions:
    """Changes to write in turn (`targets.write_all`), and the state after them.

    If all versions lack files there are none: the next readable version has their changes.
    """

    changes: Sequence[ChangeSet]
    state: Mapping[str, Any]
    delta_id: str


def translate_next_versions(
    services: Services, cached: TableVersion, log: DeltaLog, source: DeltaSource, upto: int
) -> NextVersions:
    """Translate the versions after the table's. Writing them may raise StaleBaseError.

    Raises UnsupportedError, InvalidRequestError, DamagedLogError, and FileMissingError if the last one can't be read.
    """
    commits = list(log.commits(source.position.version, upto))
    target = _build_target(services, cached, source)
    space = Workspace(services, cached.row.table_id)

    def find_known(paths: Iterable[str]) -> set[str]:
        return {file.path for file in space.at_paths(target.listed, paths)}

    files = read_version_files(services, log, [add for commit in commits for add in commit.adds], find_known)
    readable = ReadableVersions(files.missing)
    translation = Translation(services, files, target)
    first = DeltaVersion(source.position.version, 0)
    changes = list(translation.changes(readable.after(first, commits)))
    for path in sorted(readable.absent):
        raise FileMissingError(f"{files.locate(path)} isn't there, but is part of version {upto} of {log.root}")
    return NextVersions(changes, translation.state.to_json(), translation.state.metadata.id)


def _build_target(services: Services, table: TableVersion, source: DeltaSource) -> DeltaTarget:
    assert source.position.state is not None
    current = table.state.current()
    space = Workspace(services, table.row.table_id, table.known)
    next_id = None
    if has_shared_numbers(services, table.metadata):
        with services.database.reading() as cursor:
            next_id = native.read_newest_snapshot(cursor) + 1
    return DeltaTarget(
        table.row.table_id,
        base_of(services, table, table.metadata),
        table.metadata,
        DeltaState.from_json(source.position.state),
        space.list_manifests(current.manifest_ids) if current else (),
        next_id,
    )


def sync(services: Services, source: DeltaSource, log: DeltaLog) -> DeltaSource:
    """Import the next versions, up to the limit of one transaction; return the source after that.

    Versions before an unreadable one are imported first. The next call then raises the reason: UnsupportedError,
    DamagedLogError, InvalidRequestError for a table that was replaced or written here, ExpiredError for versions that
    are gone.
    """
    newest = log.newest()
    _check_same(services, source, log, newest)
    failure: CatalogError | None = None
    for upto in _iterate_ends(source.position.version, newest):
        try:
            return retry_on_conflict(services, source.name, partial(_sync_versions, services, source, log, upto))
        except (UnavailableError, CommitStateUnknownError):
            raise
        except CatalogError as error:
            failure = error
    if isinstance(failure, FileMissingError):  # files of that version were vacuumed: a later one may not need them
        return retry_on_conflict(services, source.name, partial(_sync_versions, services, source, log, newest))
    if failure is not None:
        raise failure
    return source


def sync_in_parts(
    services: Services, source: DeltaSource, check: Callable[[], object] = lambda: None
) -> Iterator[DeltaSource]:
    """Sync until no version is left; yield the source after each transaction. Raises what `sync` and `check` do.

    It also ends if the table was adopted or replaced meanwhile. check: is called before each.
    """
    log, version, first = DeltaLog(services.store, source.root), -1, source
    while version < source.position.version:
        check()
        version = source.position.version
        source = sync(services, source, log)
        if (source.table_id, source.following) != (first.table_id, first.following):
            return
        yield source


def _iterate_ends(before: int, newest: int) -> Iterator[int]:
    """Yield the versions to try as last ones if not all can be imported: half as many each time, at last one."""
    count = min(newest - before, MAX_SYNC_VERSIONS)
    while count > 0:
        yield before + count
        count //= 2


def _sync_versions(services: Services, source: DeltaSource, log: DeltaLog, upto: int, _: bool) -> DeltaSource:
    """Try once; StaleBaseError: others were faster."""
    now = find_source(services, source.name)
    if now.table_id != source.table_id or now.following != source.following or now.position.version >= upto:
        return now
    namespace = parse_schema_name(now.schema_name)
    cached = load_current_table(services, namespace, now.table_name)
    if not now.following:
        _check_unwritten(services, now, cached)
    further = translate_next_versions(services, cached, log, now, upto)
    position = DeltaPosition(further.delta_id, upto, hash_commit(services, log, upto), further.state)
    detail = {"delta": now.root, "versions": [now.position.version + 1, upto]}

    def write() -> WrittenCommit:
        with services.database.transaction() as cursor:
            allow_write(cursor, now.table_id)
            written = write_changes(cursor, further.changes)
            sources.move_position(cursor, now, position)
            services.settle(cursor, [build_touched(namespace, now.table_name, detail)])
        return written

    written = retry_transaction(write)
    with suppress(CatalogError):  # the version is written; the next load writes files that fail now
        follow(services, cached, written)
    return replace(now, position=position, error=None, failed_at=None)


def _check_same(services: Services, source: DeltaSource, log: DeltaLog, newest: int) -> None:
    """Check that the log goes on from the imported version."""
    version, root = source.position.version, source.root
    if newest < version or (newest > version and not _is_same(services, source, log)):
        raise InvalidRequestError(
            f"{root} is not the Delta table any more whose version {version} {source.name} has: it was replaced. Drop "
            f"{source.name} and import it again, or keep what is here with `duckicelake delta adopt {source.name}`"
        )
    if newest > version and not log.has_next(version):
        raise ExpiredError(
            f"The log of {root} no longer has version {version + 1}, the next one for {source.name}: it was cleaned up "
            f"before it was read. Drop {source.name} and import the Delta table again, from what its log still has"
        )


def _is_same(services: Services, source: DeltaSource, log: DeltaLog) -> bool:
    """Return whether the imported version is the log's, as far as known."""
    if source.position.digest is None:
        return True
    return hash_commit(services, log, source.position.version) in {None, source.position.digest}


def _check_unwritten(services: Services, source: DeltaSource, cached: TableVersion) -> None:
    """Check that a table which isn't followed has had no other writer since its last sync."""
    current = cached.metadata.current_snapshot()
    newest = None if current is None else current.summary.get("delta.version")
    with services.database.statement() as cursor:
        is_redefined = sources.is_redefined(cursor, source)
    if is_redefined or newest != str(source.position.version):
        raise InvalidRequestError(
            f"{source.name} was written here after version {source.position.version} of {source.root}: "
            "what came to the Delta table since then can't be brought"
        )


@dataclass(frozen=True, slots=True)
class SyncStatus:
    """The state of a table.

    newest: the Delta table's version. problem: why that is unknown, or the next version can't be imported.
    """

    source: DeltaSource
    newest: int | None
    problem: str | None

    @property
    def behind(self) -> int:
        """The number of versions that aren't imported, as far as known."""
        return 0 if self.newest is None else self.newest - self.source.position.version


def read_statuses(services: Services, name: str | None = None) -> list[SyncStatus]:
    """Read the states of all tables, or of one. Lists their logs now. NoSuchTableError."""
    if name is not None:
        return [_read_status(services, find_source(services, name))]
    with services.database.reading() as cursor:
        found = sources.read_sources(cursor)
    return run_in_parallel(lambda source: _read_status(services, source), found)


def _read_status(services: Services, source: DeltaSource) -> SyncStatus:
    try:
        newest = DeltaLog(services.store, source.root).newest()
    except CatalogError as error:
        return SyncStatus(source, None, str(error))
    return SyncStatus(source, newest, source.error)
