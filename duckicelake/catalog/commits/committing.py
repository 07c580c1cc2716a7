"""Commits: check the requirements, apply the updates, write the difference (design, "A commit walks").

Everything is computed outside the lock, from bases that the writer checks again under it. If one has moved, the commit
is computed again: what still holds is committed on the new base, what does not is the client's conflict. A commit to
several tables is the same, all of it in one transaction.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from duckicelake.catalog.auditing import touched
from duckicelake.catalog.commits.attempts import TableCommit, creation_of
from duckicelake.catalog.commits.groups import Commit, Settle
from duckicelake.catalog.commits.overtaken import until_written
from duckicelake.catalog.commits.planning import Planned, plan_all
from duckicelake.catalog.files.releasing import is_due, release_files
from duckicelake.catalog.files.sharing import check_unguarded, unguards
from duckicelake.catalog.loads.cache import CachedTable, Materialized
from duckicelake.catalog.loads.loading import follow, refresh
from duckicelake.catalog.services import Services
from duckicelake.errors import CommitStateUnknown
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.names import Namespace, full_name
from duckicelake.lake.audit import Touched
from duckicelake.lake.changes import ChangeSet, Written
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lake.writing.files import StaleBase


@dataclass(frozen=True, slots=True)
class Outcome:
    """One table's part of a commit: what was loaded, and what was written; None: nothing changed.

    `prepared` is the version that was made, if its files were written before, and `released` the DuckLake snapshot that
    comes right after it, if files were let go of.
    """

    cached: CachedTable | None
    written: Written | None
    prepared: Materialized | None = None
    released: int | None = None


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
    return committed(services, outcome.written, outcome.cached, outcome.prepared, outcome.released)


def commit_all(
    services: Services,
    commits: Sequence[TableCommit],
    settle: Settle | None = None,
    *,
    prepare: bool = False,
    is_alone: bool = False,
) -> list[Outcome]:
    """Commit to several tables in one transaction; what became of each.

    settle: the transaction's last step, where it isn't that the services' own request is done; what it raises, Outdated
    too, is for who gave it. prepare: what is committed will be shown, so write it before if it is to be foreseen.
    is_alone: the caller keeps all others waiting. Raises as `commit` does; then nothing is written at all.
    """
    services.database.gate.require_open()  # before files are written that the transaction would refuse to name

    def attempt(alone: bool) -> tuple[list[Planned], Iterator[Written]]:
        planned = plan_all(services, commits, prepare=prepare and services.commits.is_calm)
        changed = [plan for plan in planned if plan.change is not None]
        if not changed:
            table_ids_before = [cached.materialized.row.table_id for cached in _loaded(planned)]
            services.settle_unchanged([plan.table for plan in planned], table_ids_before)
        last = _with_guards_checked(changed, settle or _settling(services, [plan.table for plan in changed]))
        return planned, _write(services, [plan.change for plan in changed if plan.change], last, alone=alone)

    names = ", ".join(full_name(each.namespace, each.name) for each in commits)
    planned, written = until_written(services, names, attempt, is_alone=is_alone, overtaken=(StaleBase,))
    outcomes = [_outcome(plan, next(written) if plan.change is not None else None) for plan in planned]
    return [_released(services, commit, outcome) for commit, outcome in zip(commits, outcomes, strict=True)]


def _outcome(plan: Planned, written: Written | None) -> Outcome:
    has_files = written is not None and written.has_files
    return Outcome(plan.cached, written, plan.foreseen.version if plan.foreseen is not None and has_files else None)


def create_from(services: Services, namespace: Namespace, name: str, target: TableMetadata) -> Materialized:
    """Create a table with this metadata; AlreadyExists, NoSuchNamespace, InvalidRequest."""
    while True:
        change = creation_of(services, namespace, name, target)
        with suppress(StaleBase):  # somebody who creates the same is in the same transaction
            settle = _settling(services, [touched(namespace, name)])
            return committed(services, next(_write(services, [change], settle)))


def committed(
    services: Services,
    written: Written,
    cached: CachedTable | None = None,
    prepared: Materialized | None = None,
    released: int | None = None,
) -> Materialized:
    """The newest version of a table after COMMIT: from here on no failure may look as if nothing was written.

    Nothing is read that follows from what was written and the table that it was made of, if that is given.
    """
    try:
        if cached is not None:
            return follow(services, cached, written, prepared, released).materialized
        return refresh(services, written.table_id).materialized
    except Exception as error:
        raise CommitStateUnknown(f"The commit was written, but its metadata files were not yet: {error}") from error


def _write(
    services: Services, changes: Sequence[ChangeSet], settle: Settle, *, alone: bool = False
) -> Iterator[Written]:
    """Write all changes in one transaction."""
    if not changes:
        return iter(())
    commit = Commit(changes, settle=settle)
    write = services.commits.write_alone if alone else services.commits.write
    written: Sequence[Written] = write(services.database, services.meter, commit)
    return iter(written)


def _settling(services: Services, touched: Sequence[Touched]) -> Settle:
    def settle(cursor: Transaction, written: Sequence[Written]) -> None:
        table_ids = [each.table_id for each in written]
        tables = [replace(table, table_id=id_) for table, id_ in zip(touched, table_ids, strict=True)]
        services.settle(cursor, tables, table_ids)

    return settle


def _with_guards_checked(planned: Sequence[Planned], settle: Settle) -> Settle:
    unguarded = [
        plan.cached.materialized.row.table_id
        for plan in planned
        if plan.cached and plan.change and unguards(plan.cached.materialized.metadata, plan.change)
    ]
    if not unguarded:
        return settle

    def checked(cursor: Transaction, written: Sequence[Written]) -> None:
        check_unguarded(cursor, unguarded)
        settle(cursor, written)

    return checked


def _loaded(planned: Sequence[Planned]) -> list[CachedTable]:
    return [plan.cached for plan in planned if plan.cached is not None]


def _released(services: Services, commit: TableCommit, outcome: Outcome) -> Outcome:
    """The outcome, once what left history is let go of: best effort, as the next release takes what this one leaves."""
    cached, written = outcome.cached, outcome.written
    if cached is None or written is None:
        return outcome
    before = cached.materialized
    with suppress(Exception):
        if is_due(commit.request.updates, before.metadata, written.change):
            made = release_files(services, before.row.table_id)
            return replace(outcome, released=made) if made == written.caught_up_to + 1 else outcome
    return outcome
