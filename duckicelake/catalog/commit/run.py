"""Plan commits over the newest tables, write them, and materialize the results."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from duckicelake.bridge.commit.rebase import find_appends
from duckicelake.catalog.authz.locations import write_derived
from duckicelake.catalog.commit.apply import TableCommit, change_over, creation_of
from duckicelake.catalog.commit.retry import retry_on_conflict
from duckicelake.catalog.commit.rules import check_unguarded, removes_guard
from duckicelake.catalog.context.audit_notes import actions, build_touched
from duckicelake.catalog.context.cache import CachedTable, ManifestLostError, Materialized
from duckicelake.catalog.context.commit_queue import QueuedCommit, Settle
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import (
    follow,
    is_current,
    load_current_table,
    load_recent_table,
    read_freshness,
    read_or_report_damage,
    refresh,
)
from duckicelake.catalog.table.materialize import EncodedVersion, prepare_next
from duckicelake.catalog.table.reclaim import is_due, release_files
from duckicelake.errors import CommitFailed, CommitStateUnknown, NoSuchTable
from duckicelake.iceberg.identifiers import Namespace, format_full_name
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.requirements import AssertCreate
from duckicelake.lake.changes import ChangeSet, WrittenCommit, attach_predicted_files, predict_commit
from duckicelake.lake.ducklake import native
from duckicelake.lake.ducklake.data_files import StaleBaseError
from duckicelake.lake.side_tables.audit import AuditedResource
from duckicelake.postgres.database import Transaction


@dataclass(frozen=True, slots=True)
class PrewrittenVersion:
    """A change with the files of the version that it is to make, which are written; their bytes aren't kept."""

    change: ChangeSet
    version: Materialized


def prewrite(services: Services, before: CachedTable, change: ChangeSet) -> PrewrittenVersion | None:
    """Write what the change of the table would make; None if that isn't known.

    It isn't where that takes rows which the commit changes: all row ids, when a table becomes version 3.
    """
    assert change.table_id is not None
    if change.row_ids:
        return None
    expected = predict_commit(change.table_id, change)

    def prepare() -> EncodedVersion | None:
        with services.meter.phase("materialize"):
            version = prepare_next(services, before.materialized, change, expected)
            if version is not None:
                write_derived(services, version.files)
            return version

    version = read_or_report_damage(services, change.table_id, prepare)
    return None if version is None else PrewrittenVersion(attach_predicted_files(change, version.rows), version.table)


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """One table's part of an attempt: what was loaded, and the change, None if there is nothing to do."""

    table: AuditedResource
    cached: CachedTable | None
    change: ChangeSet | None
    foreseen: PrewrittenVersion | None = None


def plan_all(services: Services, commits: Sequence[TableCommit], *, prepare: bool) -> list[CommitPlan]:
    """Every table's change over its newest state; their DuckLake snapshots will follow each other.

    prepare: write what the first is expected to make. Raises StaleBase as `_plan_asked` does, and what `commit` does.
    """
    return _plan_unchecked(services, commits, prepare=prepare) or _plan_checked(services, commits, prepare=prepare)


def _plan_checked(services: Services, commits: Sequence[TableCommit], *, prepare: bool) -> list[CommitPlan]:
    """StaleBase if it failed and a table has changed meanwhile: rows of what it was may have gone."""
    with services.meter.phase("plan"):
        loaded = [_load(services, table_commit) for table_commit in commits]
        try:
            return _compute_changes(services, commits, loaded, prepare=prepare)
        except ManifestLostError:
            for cached in filter(None, loaded):
                services.cache.forget(cached.materialized.row.table_id)
            raise
        except (CommitFailed, StaleBaseError):
            raise
        except Exception as error:
            if not _are_current(services, commits, loaded):
                raise StaleBaseError("a table changed while the commit was computed") from error
            raise


def _plan_unchecked(services: Services, commits: Sequence[TableCommit], *, prepare: bool) -> list[CommitPlan] | None:
    """The same of an append to a table that was right a moment ago; the writer sees whether it still is.

    None where that must be asked first, as it is before anybody hears that a request can't be committed.
    """
    if len(commits) != 1 or not find_appends(commits[0].request):
        return None
    lately = load_recent_table(services, commits[0].namespace, commits[0].name)
    if lately is None:
        return None
    try:
        with services.meter.phase("plan"):
            planned = _compute_changes(services, commits, [lately], prepare=prepare)
    except Exception:  # noqa: BLE001 - it may be of what the table was; if not, it is raised again of what was asked for
        services.meter.retried("unasked")
        return None
    return planned if planned[0].change is not None else None


def _prewrite_all(services: Services, plan: CommitPlan) -> CommitPlan:
    if plan.change is None or plan.cached is None:
        return plan
    foreseen = prewrite(services, plan.cached, plan.change)
    return plan if foreseen is None else replace(plan, change=foreseen.change, foreseen=foreseen)


def _are_current(services: Services, commits: Sequence[TableCommit], loaded: Sequence[CachedTable | None]) -> bool:
    """Whether the tables are still as they were loaded."""
    pairs = [(table_commit, cached) for table_commit, cached in zip(commits, loaded, strict=True) if cached is not None]
    return all(
        is_current(cached, read_freshness(services, pair.namespace, pair.name, cached)) for pair, cached in pairs
    )


def _compute_changes(
    services: Services, commits: Sequence[TableCommit], loaded: Sequence[CachedTable | None], *, prepare: bool
) -> list[CommitPlan]:
    next_id = max([_read_newest(services, loaded), *(cached.checked_upto for cached in loaded if cached)]) + 1
    planned: list[CommitPlan] = []
    for table_commit, cached in zip(commits, loaded, strict=True):
        change = change_over(services, table_commit, cached, next_id)
        if change is not None and cached is not None:
            change = replace(change, checked_upto=cached.checked_upto)
        next_id += len(change.steps) if change else 0
        planned.append(
            CommitPlan(
                build_touched(table_commit.namespace, table_commit.name, actions(table_commit.request.updates)),
                cached,
                change,
            )
        )
    return [_prewrite_all(services, planned[0]), *planned[1:]] if prepare else planned


def _read_newest(services: Services, loaded: Sequence[CachedTable | None]) -> int:
    """The newest DuckLake snapshot, which is read where no table tells."""
    if any(loaded):
        return 0
    with services.database.reading() as cursor:
        return native.read_newest_snapshot(cursor)


def _load(services: Services, commit: TableCommit) -> CachedTable | None:
    """The table, None where the request is to create it."""
    try:
        return load_current_table(services, commit.namespace, commit.name)
    except NoSuchTable:
        if any(isinstance(requirement, AssertCreate) for requirement in commit.request.requirements):
            return None
        raise


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """One table's part of a commit: what was loaded, and what was written; None: nothing changed.

    `prepared` is the version that was made, if its files were written before, and `released` the DuckLake snapshot that
    comes right after it, if files were let go of.
    """

    cached: CachedTable | None
    written: WrittenCommit | None
    prepared: Materialized | None = None
    released: int | None = None


def commit(services: Services, commit: TableCommit) -> Materialized:
    """Commit to one table, or create it; the committed version, all files written.

    Raises NoSuchTable, CommitFailed for a requirement that doesn't hold, InvalidRequest, Unsupported.
    """
    (outcome,) = commit_all(services, [commit], prepare=True)
    return render_outcome(services, outcome)


def render_outcome(services: Services, outcome: CommitOutcome) -> Materialized:
    """The committed version of one table, all files written."""
    if outcome.written is None:
        assert outcome.cached is not None
        return outcome.cached.materialized
    return materialize_committed(services, outcome.written, outcome.cached, outcome.prepared, outcome.released)


def commit_all(
    services: Services,
    commits: Sequence[TableCommit],
    settle: Settle | None = None,
    *,
    prepare: bool = False,
    is_alone: bool = False,
) -> list[CommitOutcome]:
    """Commit to several tables in one transaction; what became of each.

    settle: the transaction's last step, where it isn't that the services' own request is done; what it raises, Outdated
    too, is for who gave it. prepare: what is committed will be shown, so write it before if it is to be foreseen.
    is_alone: the caller keeps all others waiting. Raises as `commit` does; then nothing is written at all.
    """
    services.database.gate.require_open()  # before files are written that the transaction would refuse to name

    def attempt(alone: bool) -> tuple[list[CommitPlan], Iterator[WrittenCommit]]:
        planned = plan_all(services, commits, prepare=prepare and services.commits.is_calm)
        changed = [plan for plan in planned if plan.change is not None]
        if not changed:
            table_ids_before = [cached.materialized.row.table_id for cached in _load_outcome(planned)]
            services.settle_unchanged([plan.table for plan in planned], table_ids_before)
        last = _add_guard_check(changed, settle or _build_settle(services, [plan.table for plan in changed]))
        return planned, _write(services, [plan.change for plan in changed if plan.change], last, alone=alone)

    names = ", ".join(format_full_name(table_commit.namespace, table_commit.name) for table_commit in commits)
    planned, written = retry_on_conflict(services, names, attempt, is_alone=is_alone, overtaken=(StaleBaseError,))
    outcomes = [_build_outcome(plan, next(written) if plan.change is not None else None) for plan in planned]
    return [_release(services, commit, outcome) for commit, outcome in zip(commits, outcomes, strict=True)]


def _build_outcome(plan: CommitPlan, written: WrittenCommit | None) -> CommitOutcome:
    has_files = written is not None and written.has_files
    return CommitOutcome(
        plan.cached, written, plan.foreseen.version if plan.foreseen is not None and has_files else None
    )


def create_from(services: Services, namespace: Namespace, name: str, target: TableMetadata) -> Materialized:
    """Create a table with this metadata; AlreadyExists, NoSuchNamespace, InvalidRequest."""
    while True:
        change = creation_of(services, namespace, name, target)
        with suppress(StaleBaseError):  # somebody who creates the same is in the same transaction
            settle = _build_settle(services, [build_touched(namespace, name)])
            return materialize_committed(services, next(_write(services, [change], settle)))


def materialize_committed(
    services: Services,
    written: WrittenCommit,
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
) -> Iterator[WrittenCommit]:
    """Write all changes in one transaction."""
    if not changes:
        return iter(())
    commit = QueuedCommit(changes, settle=settle)
    write = services.commits.write_alone if alone else services.commits.write
    written: Sequence[WrittenCommit] = write(services.database, services.meter, commit)
    return iter(written)


def _build_settle(services: Services, touched: Sequence[AuditedResource]) -> Settle:
    def settle(cursor: Transaction, written: Sequence[WrittenCommit]) -> None:
        table_ids = [written_commit.table_id for written_commit in written]
        tables = [replace(table, table_id=id_) for table, id_ in zip(touched, table_ids, strict=True)]
        services.settle(cursor, tables, table_ids)

    return settle


def _add_guard_check(planned: Sequence[CommitPlan], settle: Settle) -> Settle:
    unguarded = [
        plan.cached.materialized.row.table_id
        for plan in planned
        if plan.cached and plan.change and removes_guard(plan.cached.materialized.metadata, plan.change)
    ]
    if not unguarded:
        return settle

    def check_and_settle(cursor: Transaction, written: Sequence[WrittenCommit]) -> None:
        check_unguarded(cursor, unguarded)
        settle(cursor, written)

    return check_and_settle


def _load_outcome(planned: Sequence[CommitPlan]) -> list[CachedTable]:
    return [plan.cached for plan in planned if plan.cached is not None]


def _release(services: Services, commit: TableCommit, outcome: CommitOutcome) -> CommitOutcome:
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
