"""Commits: check the requirements, apply the updates, write the difference (design, "A commit walks").

Everything is computed outside the lock, from bases that the writer checks again under it. If one has moved, the commit
is computed again: what still holds is committed on the new base, what does not is the client's conflict. A commit to
several tables is the same, all of it in one transaction.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from duckicelake.catalog.attempts import TableCommit, change_over, creation_of
from duckicelake.catalog.auditing import actions, touched
from duckicelake.catalog.cache import CachedTable, Materialized
from duckicelake.catalog.loading import current_table, refresh
from duckicelake.catalog.releasing import release_files
from duckicelake.catalog.services import Services
from duckicelake.errors import CatalogError, CommitStateUnknown, NoSuchTable, Unavailable
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.names import Namespace
from duckicelake.iceberg.requirements import AssertCreate
from duckicelake.lake import native, writer
from duckicelake.lake.audit import Touched
from duckicelake.lake.changes import ChangeSet
from duckicelake.lake.files import StaleBase
from duckicelake.lake.snapshots import queue, queue_alone, retrying

ATTEMPTS = 50
SHARED_ATTEMPTS = 3
"""After so many attempts that others overtook, a commit takes a turn of its own."""


@dataclass(frozen=True, slots=True)
class _Planned:
    """One table's part of an attempt: what was loaded, and the change, None if there is nothing to do."""

    table: Touched
    cached: CachedTable | None
    change: ChangeSet | None


def commit(services: Services, commit: TableCommit) -> Materialized:
    """Commit to one table, or create it; the committed version, all files written.

    Raises NoSuchTable, CommitFailed for a requirement that doesn't hold, InvalidRequest, Unsupported.
    """
    ((table_id, unchanged),) = commit_all(services, [commit])
    return committed(services, table_id) if unchanged is None else unchanged


def commit_all(services: Services, commits: Sequence[TableCommit]) -> list[tuple[int, Materialized | None]]:
    """Commit to several tables in one transaction; (table id, the table itself if nothing changed) for each.

    Raises as `commit` does; then nothing is written at all.
    """
    for attempt in range(ATTEMPTS):
        alone = attempt >= SHARED_ATTEMPTS
        with _turn(services, alone=alone):
            planned = _plan(services, commits)
            changes = [(plan.table, plan.change) for plan in planned if plan.change is not None]
            if not changes:
                table_ids_before = [cached.materialized.row.table_id for cached in _loaded(planned)]
                services.settle_unchanged([plan.table for plan in planned], table_ids_before)
            try:
                table_ids = _write(services, changes, alone=alone)
            except StaleBase:
                continue
        _release(services, [change for _, change in changes])
        return [_outcome(plan, table_ids) for plan in planned]
    names = ", ".join(".".join((*each.namespace, each.name)) for each in commits)
    raise Unavailable(f"Other writers changed {names} {ATTEMPTS} times in a row; try again")


def create_from(services: Services, namespace: Namespace, name: str, target: TableMetadata) -> Materialized:
    """Create a table with this metadata; AlreadyExists, NoSuchNamespace, InvalidRequest."""
    change = creation_of(services, namespace, name, target)
    return committed(services, next(_write(services, [(touched(namespace, name), change)])))


def committed(services: Services, table_id: int) -> Materialized:
    """The newest version of a table after COMMIT: from here on no failure may look as if nothing was written."""
    try:
        return refresh(services, table_id).materialized
    except CatalogError as error:
        raise CommitStateUnknown(f"The commit was written, but its metadata files were not yet: {error}") from error


@contextmanager
def _turn(services: Services, *, alone: bool) -> Iterator[None]:
    """Compute and write while no other commit may be written, if asked to."""
    if not alone:
        yield
        return
    with services.commit_turn, services.database.transaction() as cursor:
        queue_alone(cursor)
        yield


def _plan(services: Services, commits: Sequence[TableCommit]) -> list[_Planned]:
    """Every table's change over its newest state; their DuckLake snapshots will follow each other."""
    loaded = [_load(services, each) for each in commits]
    with services.database.reading() as cursor:
        newest = native.newest_snapshot(cursor)
    next_id = max([newest, *(cached.checked_upto for cached in loaded if cached)]) + 1
    planned: list[_Planned] = []
    for each, cached in zip(commits, loaded, strict=True):
        change = change_over(services, each, cached, next_id)
        next_id += len(change.steps) if change else 0
        planned.append(_Planned(touched(each.namespace, each.name, actions(each.request.updates)), cached, change))
    return planned


def _load(services: Services, commit: TableCommit) -> CachedTable | None:
    """The table, None where the request is to create it."""
    try:
        return current_table(services, commit.namespace, commit.name)
    except NoSuchTable:
        if any(isinstance(requirement, AssertCreate) for requirement in commit.request.requirements):
            return None
        raise


def _write(services: Services, changes: Sequence[tuple[Touched, ChangeSet]], *, alone: bool = False) -> Iterator[int]:
    """Write all changes in one transaction; their table ids."""

    def attempt() -> list[int]:
        with services.commit_turn, services.database.transaction() as cursor:
            if not alone:
                queue(cursor)
            table_ids = [writer.write(cursor, change) for _, change in changes]
            tables = [replace(table, table_id=id_) for (table, _), id_ in zip(changes, table_ids, strict=True)]
            services.settle(cursor, tables, table_ids)
            return table_ids

    return iter(retrying(attempt) if changes else ())


def _loaded(planned: Sequence[_Planned]) -> list[CachedTable]:
    return [plan.cached for plan in planned if plan.cached is not None]


def _outcome(plan: _Planned, table_ids: Iterator[int]) -> tuple[int, Materialized | None]:
    if plan.change is not None:
        return next(table_ids), None
    assert plan.cached is not None
    return plan.cached.materialized.row.table_id, plan.cached.materialized


def _release(services: Services, changes: Sequence[ChangeSet]) -> None:
    """Best effort: the commit is done, and the next release takes what this one leaves."""
    with suppress(Unavailable):
        for change in changes:
            if change.table_id is not None and change.target.removed_snapshots:
                release_files(services, change.table_id)
