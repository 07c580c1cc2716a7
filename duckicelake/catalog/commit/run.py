"""Plan commits on the newest tables, write them, and materialize the results."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from duckicelake.bridge.commit.rebase import find_appends
from duckicelake.catalog.commit.apply import TableCommit, change_over, creation_of
from duckicelake.catalog.commit.retry import retry_on_conflict
from duckicelake.catalog.commit.rules import check_unguarded, removes_guard
from duckicelake.catalog.context.audit_notes import actions, build_touched
from duckicelake.catalog.context.cache import ManifestLostError, TableVersion
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
from duckicelake.catalog.table.materialize import prepare_next, write_files
from duckicelake.catalog.table.reclaim import is_due, release_files
from duckicelake.errors import CommitFailedError, CommitStateUnknownError, NoSuchTableError
from duckicelake.iceberg.identifiers import Namespace, format_full_name
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.requirements import AssertCreate
from duckicelake.lake.changes import ChangeSet, WrittenCommit, attach_predicted_files, predict_commit
from duckicelake.lake.conflicts import StaleBaseError
from duckicelake.lake.ducklake import native
from duckicelake.lake.side_tables.audit import AuditedResource
from duckicelake.postgres.queries import Transaction


@dataclass(frozen=True, slots=True)
class PrewrittenVersion:
    """A change, and the version that it will make, whose files are written. Their bytes are not kept."""

    change: ChangeSet
    version: TableVersion


def prewrite(services: Services, before: TableVersion, change: ChangeSet) -> PrewrittenVersion | None:
    """Write the files of the version that the change will make; None if they can't be predicted.

    They can't when a table becomes version 3: the commit assigns all row ids.
    """
    assert change.table_id is not None
    if change.row_ids:
        return None
    expected = predict_commit(change.table_id, change)

    def prepare() -> TableVersion | None:
        with services.meter.phase("materialize"):
            version = prepare_next(services, before, change, expected)
            if version is not None:
                write_files(services, version)
            return version

    version = read_or_report_damage(services, change.table_id, prepare)
    if version is None:
        return None
    rows = tuple(file.row for file in version.new_files)
    return PrewrittenVersion(attach_predicted_files(change, rows), replace(version, new_files=()))


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """One table's part of an attempt. Attributes: cached: the table as loaded; change: None if nothing changes."""

    table: AuditedResource
    cached: TableVersion | None
    change: ChangeSet | None
    foreseen: PrewrittenVersion | None = None


def plan_all(services: Services, commits: Sequence[TableCommit], *, prepare: bool) -> list[CommitPlan]:
    """Plan the change of every table on its newest state, with consecutive DuckLake snapshots.

    prepare: write the files of the first table's next version. Raises StaleBaseError, and what `commit` raises.
    """
    return _plan_unchecked(services, commits, prepare=prepare) or _plan_checked(services, commits, prepare=prepare)


def _plan_checked(services: Services, commits: Sequence[TableCommit], *, prepare: bool) -> list[CommitPlan]:
    """Plan on tables that are checked for freshness; StaleBaseError for a failure on a table that changed meanwhile."""
    with services.meter.phase("plan"):
        loaded = [_load(services, table_commit) for table_commit in commits]
        try:
            return _compute_changes(services, commits, loaded, prepare=prepare)
        except ManifestLostError:
            for cached in filter(None, loaded):
                services.cache.forget(cached.row.table_id)
            raise
        except (CommitFailedError, StaleBaseError):
            raise
        except Exception as error:
            if not _are_current(services, commits, loaded):
                raise StaleBaseError("a table changed while the commit was computed") from error
            raise


def _plan_unchecked(services: Services, commits: Sequence[TableCommit], *, prepare: bool) -> list[CommitPlan] | None:
    """Plan an append on a table that was fresh a moment ago; the writer checks whether it still is.

    None for other requests, and after any failure: a client hears of a failure on a fresh table only.
    """
    if len(commits) != 1 or not find_appends(commits[0].request):
        return None
    lately = load_recent_table(services, commits[0].namespace, commits[0].name)
    if lately is None:
        return None
    try:
        with services.meter.phase("plan"):
            planned = _compute_changes(services, commits, [lately], prepare=prepare)
    except Exception:  # noqa: BLE001 - the table may be stale; a failure on the fresh one is raised by _plan_checked
        services.meter.retried("unasked")
        return None
    return planned if planned[0].change is not None else None


def _prewrite_all(services: Services, plan: CommitPlan) -> CommitPlan:
    if plan.change is None or plan.cached is None:
        return plan
    foreseen = prewrite(services, plan.cached, plan.change)
    return plan if foreseen is None else replace(plan, change=foreseen.change, foreseen=foreseen)


def _are_current(services: Services, commits: Sequence[TableCommit], loaded: Sequence[TableVersion | None]) -> bool:
    """Return whether the tables are still as they were loaded."""
    pairs = [(table_commit, cached) for table_commit, cached in zip(commits, loaded, strict=True) if cached is not None]
    return all(
        is_current(cached, read_freshness(services, pair.namespace, pair.name, cached)) for pair, cached in pairs
    )


def _compute_changes(
    services: Services, commits: Sequence[TableCommit], loaded: Sequence[TableVersion | None], *, prepare: bool
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


def _read_newest(services: Services, loaded: Sequence[TableVersion | None]) -> int:
    """Read the newest DuckLake snapshot, unless a loaded table has it."""
    if any(loaded):
        return 0
    with services.database.reading() as cursor:
        return native.read_newest_snapshot(cursor)


def _load(services: Services, commit: TableCommit) -> TableVersion | None:
    """Load the table; None where the request creates it."""
    try:
        return load_current_table(services, commit.namespace, commit.name)
    except NoSuchTableError:
        if any(isinstance(requirement, AssertCreate) for requirement in commit.request.requirements):
            return None
        raise


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """One table's part of a commit.

    Attributes:
        cached: the table as loaded; None if it was created.
        written: what was written; None if nothing changed.
        prepared: the version that was made, if its files were written before COMMIT.
        released: the DuckLake snapshot right after it that released old files, if any.

    """

    cached: TableVersion | None
    written: WrittenCommit | None
    prepared: TableVersion | None = None
    released: int | None = None


def commit(services: Services, commit: TableCommit) -> TableVersion:
    """Commit to one table, or create it, and return the committed version with all files written.

    Raises NoSuchTableError, CommitFailedError for a requirement that doesn't hold, InvalidRequestError,
    UnsupportedError.
    """
    (outcome,) = commit_all(services, [commit], prepare=True)
    return render_outcome(services, outcome)


def render_outcome(services: Services, outcome: CommitOutcome) -> TableVersion:
    """Return the committed version of one table, all files written."""
    if outcome.written is None:
        assert outcome.cached is not None
        return outcome.cached
    return materialize_committed(services, outcome.written, outcome.cached, outcome.prepared, outcome.released)


def commit_all(
    services: Services,
    commits: Sequence[TableCommit],
    settle: Settle | None = None,
    *,
    prepare: bool = False,
    is_alone: bool = False,
) -> list[CommitOutcome]:
    """Commit to several tables in one transaction.

    settle: the transaction's last step, instead of settling the request of the services; its errors are raised.
    prepare: write the files of the next version before COMMIT, where they can be predicted.
    is_alone: the caller holds the commit queue. Raises as `commit` does; then nothing is written.
    """
    services.database.gate.require_open()  # before files are written that the transaction would refuse to name

    def attempt(alone: bool) -> tuple[list[CommitPlan], Iterator[WrittenCommit]]:
        planned = plan_all(services, commits, prepare=prepare and services.commits.is_calm)
        changed = [plan for plan in planned if plan.change is not None]
        if not changed:
            table_ids_before = [cached.row.table_id for cached in _load_outcome(planned)]
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


def create_from(services: Services, namespace: Namespace, name: str, target: TableMetadata) -> TableVersion:
    """Create a table with this metadata; AlreadyExistsError, NoSuchNamespaceError, InvalidRequestError."""
    while True:
        change = creation_of(services, namespace, name, target)
        with suppress(StaleBaseError):  # another commit of the same transaction creates the same table
            settle = _build_settle(services, [build_touched(namespace, name)])
            return materialize_committed(services, next(_write(services, [change], settle)))


def materialize_committed(
    services: Services,
    written: WrittenCommit,
    cached: TableVersion | None = None,
    prepared: TableVersion | None = None,
    released: int | None = None,
) -> TableVersion:
    """Materialize the newest version of a table after COMMIT; every failure is CommitStateUnknownError from here on.

    With `cached`, the version is computed from it and what was written, and nothing is read.
    """
    try:
        if cached is not None:
            return follow(services, cached, written, prepared, released)
        return refresh(services, written.table_id)
    except Exception as error:
        raise CommitStateUnknownError(
            f"The commit was written, but its metadata files were not yet: {error}"
        ) from error


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
        plan.cached.row.table_id
        for plan in planned
        if plan.cached and plan.change and removes_guard(plan.cached.metadata, plan.change)
    ]
    if not unguarded:
        return settle

    def check_and_settle(cursor: Transaction, written: Sequence[WrittenCommit]) -> None:
        check_unguarded(cursor, unguarded)
        settle(cursor, written)

    return check_and_settle


def _load_outcome(planned: Sequence[CommitPlan]) -> list[TableVersion]:
    return [plan.cached for plan in planned if plan.cached is not None]


def _release(services: Services, commit: TableCommit, outcome: CommitOutcome) -> CommitOutcome:
    """Release files that left history, best effort: the next release takes what this one leaves."""
    cached, written = outcome.cached, outcome.written
    if cached is None or written is None:
        return outcome
    with suppress(Exception):
        if is_due(commit.request.updates, cached.metadata, written.change):
            made = release_files(services, cached.row.table_id)
            return replace(outcome, released=made) if made == written.caught_up_to + 1 else outcome
    return outcome
