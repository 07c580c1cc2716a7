"""Commits: check the requirements, apply the updates, write the difference (design, "A commit walks").

Everything is computed outside the lock, from bases that the writer checks again under it. If one has moved, the commit
is computed again: what still holds is committed on the new base, what does not is the client's conflict. A commit to
several tables is the same, all of it in one transaction.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from duckicelake.catalog.attempts import TableCommit, change_over, creation_of
from duckicelake.catalog.auditing import actions, touched
from duckicelake.catalog.beside import Ready
from duckicelake.catalog.cache import CachedTable, Materialized
from duckicelake.catalog.foreseen import Foreseen, foresee
from duckicelake.catalog.groups import Commit, Settle
from duckicelake.catalog.known import Unwritten
from duckicelake.catalog.loading import current_table, follow, freshness, is_current, refresh
from duckicelake.catalog.materialize import Prepared
from duckicelake.catalog.overtaken import until_written
from duckicelake.catalog.releasing import is_due, release_files
from duckicelake.catalog.services import Services
from duckicelake.errors import CommitFailed, CommitStateUnknown, NoSuchTable
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.names import Namespace
from duckicelake.iceberg.requirements import AssertCreate
from duckicelake.lake import native
from duckicelake.lake.audit import Touched
from duckicelake.lake.changes import ChangeSet, Written
from duckicelake.lake.database import Transaction
from duckicelake.lake.files import StaleBase


@dataclass(frozen=True, slots=True)
class _Planned:
    """One table's part of an attempt: what was loaded, and the change, None if there is nothing to do."""

    table: Touched
    cached: CachedTable | None
    change: ChangeSet | None
    foreseen: Foreseen | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """One table's part of a commit: what was loaded, and what was written; None: nothing changed.

    `prepared` is the version that was made, if its files were written before.
    """

    cached: CachedTable | None
    written: Written | None
    prepared: Prepared | None = None


def commit(services: Services, commit: TableCommit) -> Materialized:
    """Commit to one table, or create it; the committed version, all files written.

    Raises NoSuchTable, CommitFailed for a requirement that doesn't hold, InvalidRequest, Unsupported.
    """
    (outcome,) = commit_all(services, [commit], prepare=True)
    return shown(services, outcome)


def shown(services: Services, outcome: Outcome) -> Materialized:
    """The committed version of one table, all files written."""
    if outcome.written is None:
        assert outcome.cached is not None
        return outcome.cached.materialized
    return committed(services, outcome.written, outcome.cached, outcome.prepared)


def commit_all(
    services: Services,
    commits: Sequence[TableCommit],
    settle: Settle | None = None,
    *,
    prepare: bool = False,
    is_alone: bool = False,
) -> list[Outcome]:
    """Commit to several tables in one transaction; what became of each.

    settle: the transaction's last step, where it isn't that the services' own request is done. prepare: what is
    committed will be shown, so write it before if it is to be foreseen. is_alone: the caller keeps all others waiting.
    Raises as `commit` does; then nothing is written at all.
    """

    def attempt(alone: bool) -> tuple[list[_Planned], Iterator[Written]]:
        planned = _plan(services, commits, prepare=prepare and services.commits.is_calm)
        changes = [(plan.table, plan.change) for plan in planned if plan.change is not None]
        if not changes:
            table_ids_before = [cached.materialized.row.table_id for cached in _loaded(planned)]
            services.settle_unchanged([plan.table for plan in planned], table_ids_before)
        ready = [plan.foreseen.ready for plan in planned if plan.foreseen is not None]
        return planned, _write(services, changes, settle, ready, alone=alone)

    names = ", ".join(".".join((*each.namespace, each.name)) for each in commits)
    planned, written = until_written(services, names, attempt, is_alone=is_alone)
    _release(services, commits, planned)
    return [_outcome(plan, next(written) if plan.change is not None else None) for plan in planned]


def _outcome(plan: _Planned, written: Written | None) -> Outcome:
    has_files = written is not None and written.has_files
    return Outcome(plan.cached, written, plan.foreseen.version if plan.foreseen is not None and has_files else None)


def create_from(services: Services, namespace: Namespace, name: str, target: TableMetadata) -> Materialized:
    """Create a table with this metadata; AlreadyExists, NoSuchNamespace, InvalidRequest."""
    while True:
        change = creation_of(services, namespace, name, target)
        with suppress(StaleBase):  # somebody who creates the same is in the same transaction
            return committed(services, next(_write(services, [(touched(namespace, name), change)])))


def committed(
    services: Services, written: Written, cached: CachedTable | None = None, prepared: Prepared | None = None
) -> Materialized:
    """The newest version of a table after COMMIT: from here on no failure may look as if nothing was written.

    Nothing is read that follows from what was written and the table that it was made of, if that is given.
    """
    try:
        if cached is not None:
            return follow(services, cached, written, prepared).materialized
        return refresh(services, written.table_id).materialized
    except Exception as error:
        raise CommitStateUnknown(f"The commit was written, but its metadata files were not yet: {error}") from error


def _plan(services: Services, commits: Sequence[TableCommit], *, prepare: bool) -> list[_Planned]:
    """Every table's change over its newest state; their DuckLake snapshots will follow each other.

    prepare: write what the first is expected to make.
    StaleBase if that failed and a table has changed meanwhile: rows of what it was may have gone.
    """
    with services.meter.phase("plan"):
        loaded = [_load(services, each) for each in commits]
        try:
            planned = _changes(services, commits, loaded)
            return [_foreseen(services, planned[0]), *planned[1:]] if prepare else planned
        except Unwritten:
            for cached in filter(None, loaded):
                services.cache.forget(cached.materialized.row.table_id)
            raise
        except (CommitFailed, StaleBase):
            raise
        except Exception as error:
            if not _are_current(services, commits, loaded):
                raise StaleBase("a table changed while the commit was computed") from error
            raise


def _foreseen(services: Services, plan: _Planned) -> _Planned:
    if plan.change is None or plan.cached is None:
        return plan
    foreseen = foresee(services, plan.table.resource, plan.cached, plan.change)
    return plan if foreseen is None else replace(plan, change=foreseen.change, foreseen=foreseen)


def _are_current(services: Services, commits: Sequence[TableCommit], loaded: Sequence[CachedTable | None]) -> bool:
    """Whether the tables are still as they were loaded."""
    pairs = [(each, cached) for each, cached in zip(commits, loaded, strict=True) if cached is not None]
    return all(is_current(cached, freshness(services, each.namespace, each.name, cached)) for each, cached in pairs)


def _changes(
    services: Services, commits: Sequence[TableCommit], loaded: Sequence[CachedTable | None]
) -> list[_Planned]:
    next_id = max([_newest(services, loaded), *(cached.checked_upto for cached in loaded if cached)]) + 1
    planned: list[_Planned] = []
    for each, cached in zip(commits, loaded, strict=True):
        change = change_over(services, each, cached, next_id)
        if change is not None and cached is not None:
            change = replace(change, checked_upto=cached.checked_upto)
        next_id += len(change.steps) if change else 0
        planned.append(_Planned(touched(each.namespace, each.name, actions(each.request.updates)), cached, change))
    return planned


def _newest(services: Services, loaded: Sequence[CachedTable | None]) -> int:
    """The newest DuckLake snapshot, which is read where no table tells."""
    if any(loaded):
        return 0
    with services.database.reading() as cursor:
        return native.newest_snapshot(cursor)


def _load(services: Services, commit: TableCommit) -> CachedTable | None:
    """The table, None where the request is to create it."""
    try:
        return current_table(services, commit.namespace, commit.name)
    except NoSuchTable:
        if any(isinstance(requirement, AssertCreate) for requirement in commit.request.requirements):
            return None
        raise


def _write(
    services: Services,
    changes: Sequence[tuple[Touched, ChangeSet]],
    settle: Settle | None = None,
    ready: Sequence[Ready] = (),
    *,
    alone: bool = False,
) -> Iterator[Written]:
    """Write all changes in one transaction."""
    if not changes:
        return iter(())
    settle = settle or _settling(services, [table for table, _ in changes])
    commit = Commit([change for _, change in changes], settle=settle, ready=ready)
    write = services.commits.write_alone if alone else services.commits.write
    written: Sequence[Written] = write(services.database, services.meter, commit)
    return iter(written)


def _settling(services: Services, touched: Sequence[Touched]) -> Settle:
    def settle(cursor: Transaction, written: Sequence[Written]) -> None:
        table_ids = [each.table_id for each in written]
        tables = [replace(table, table_id=id_) for table, id_ in zip(touched, table_ids, strict=True)]
        services.settle(cursor, tables, table_ids)

    return settle


def _loaded(planned: Sequence[_Planned]) -> list[CachedTable]:
    return [plan.cached for plan in planned if plan.cached is not None]


def _release(services: Services, commits: Sequence[TableCommit], planned: Sequence[_Planned]) -> None:
    """Best effort: the commit is done, and the next release takes what this one leaves."""
    with suppress(Exception):
        for commit, plan in zip(commits, planned, strict=True):
            if plan.cached is None or plan.change is None:
                continue
            before = plan.cached.materialized
            if is_due(commit.request.updates, before.metadata, plan.change):
                release_files(services, before.row.table_id)
