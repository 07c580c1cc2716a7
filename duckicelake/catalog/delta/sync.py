"""Further versions of a Delta table whose files are a table's here: each a commit of its own, and each once.

Whoever syncs reads how far the table is, makes what comes next of the log, and writes it in a transaction that moves
the table on from there: of two at the same time one goes on from where the other has come to.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from duckicelake.catalog.access.principal import Caller, Principal
from duckicelake.catalog.auditing import touched
from duckicelake.catalog.commits.overtaken import until_written
from duckicelake.catalog.delta.adoption import find_source
from duckicelake.catalog.delta.further import next_versions
from duckicelake.catalog.delta.reading import digest
from duckicelake.catalog.delta.targets import write_all
from duckicelake.catalog.loads.cache import CachedTable
from duckicelake.catalog.loads.loading import current_table, follow
from duckicelake.catalog.services import Services
from duckicelake.delta.log import DeltaLog
from duckicelake.errors import (
    CatalogError,
    CommitStateUnknown,
    FileMissing,
    Forgotten,
    InvalidRequest,
    Unavailable,
)
from duckicelake.iceberg.names import namespace_of
from duckicelake.lake import delta_sources
from duckicelake.lake.changes import Written
from duckicelake.lake.delta_sources import Position, Source
from duckicelake.lake.snapshots import retrying

MOST: Final = 100
"""Versions in one transaction, so that other tables' commits don't wait for long."""
SYNCER: Final = Caller(Principal("duckicelake", ()), operation="sync_delta_table")
"""Who brings versions, as the audit trail tells."""


def sync(services: Services, source: Source, log: DeltaLog) -> Source:
    """Bring the next versions, at most so many as one transaction takes; the source as it is then.

    Versions before one that can't be had are brought first, and then by the next call it is raised why: Unsupported,
    DamagedLog, InvalidRequest for a table that was replaced or written here, Forgotten for versions that are gone.
    """
    newest = log.newest()
    _check_same(services, source, log, newest)
    failure: CatalogError | None = None
    for upto in _ends(source.position.version, newest):
        try:
            return until_written(services, source.name, partial(_bring, services, source, log, upto))
        except (Unavailable, CommitStateUnknown):
            raise
        except CatalogError as error:
            failure = error
    if isinstance(failure, FileMissing):  # files of that version were vacuumed: a later one may not need them
        return until_written(services, source.name, partial(_bring, services, source, log, newest))
    if failure is not None:
        raise failure
    return source


def _ends(before: int, newest: int) -> Iterator[int]:
    """Up to which versions to go, where all of them can't be had: half as many each time, and one at last."""
    count = min(newest - before, MOST)
    while count > 0:
        yield before + count
        count //= 2


def _bring(services: Services, source: Source, log: DeltaLog, upto: int, _: bool) -> Source:
    """One attempt; StaleBase if others were faster."""
    now = find_source(services, source.name)
    if now.table_id != source.table_id or now.following != source.following or now.position.version >= upto:
        return now
    namespace = namespace_of(now.schema_name)
    cached = current_table(services, namespace, now.table_name)
    if not now.following:
        _check_unwritten(services, now, cached)
    further = next_versions(services, cached, log, now, upto)
    position = Position(further.delta_id, upto, digest(services, log, upto), further.state)
    detail = {"delta": now.root, "versions": [now.position.version + 1, upto]}

    def write() -> Written:
        with services.database.transaction() as cursor:
            delta_sources.may_write(cursor, now.table_id)
            written = write_all(cursor, further.changes)
            delta_sources.move(cursor, now, position)
            services.settle(cursor, [touched(namespace, now.table_name, detail)])
        return written

    written = retrying(write)
    with suppress(CatalogError):  # the version is there: what can't be written for it now, the next load writes
        follow(services, cached, written)
    return replace(now, position=position, error=None, failed_at=None)


def _check_same(services: Services, source: Source, log: DeltaLog, newest: int) -> None:
    """That the log goes on from the version that is here."""
    version, root = source.position.version, source.root
    if newest < version or (newest > version and not _is_same(services, source, log)):
        raise InvalidRequest(
            f"{root} is not the Delta table any more whose version {version} {source.name} has: it was replaced. Drop "
            f"{source.name} and import it again, or keep what is here with `duckicelake delta adopt {source.name}`"
        )
    if newest > version and not log.has_next(version):
        raise Forgotten(
            f"The log of {root} no longer has version {version + 1}, the next one for {source.name}: it was cleaned up "
            f"before it was read. Drop {source.name} and import the Delta table again, from what its log still has"
        )


def _is_same(services: Services, source: Source, log: DeltaLog) -> bool:
    """Whether the version that is here is the log's, as far as that can be told."""
    if source.position.digest is None:
        return True
    return digest(services, log, source.position.version) in {None, source.position.digest}


def _check_unwritten(services: Services, source: Source, cached: CachedTable) -> None:
    """That a table which isn't followed has had no other writers since it was last synced."""
    current = cached.materialized.metadata.current_snapshot()
    newest = None if current is None else current.summary.get("delta.version")
    with services.database.statement() as cursor:
        is_redefined = delta_sources.is_redefined(cursor, source)
    if is_redefined or newest != str(source.position.version):
        raise InvalidRequest(
            f"{source.name} was written here after version {source.position.version} of {source.root}: "
            "what came to the Delta table since then can't be brought"
        )
