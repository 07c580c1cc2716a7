"""Plan commits on the newest tables, write them, retry them on conflict, and materialize the results."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from time import monotonic
from typing import Final, TypeVar

from duckicelake.bridge.commit.renumber import find_appends
from duckicelake.catalog.authz.commit_rights import check_change
from duckicelake.catalog.commit.apply import TableCommit, change_over, creation_of
from duckicelake.catalog.commit.rules import check_unguarded, removes_guard
from duckicelake.catalog.context.audit_notes import build_touched, list_actions
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
from duckicelake.catalog.table.reclaim import release_files
from duckicelake.errors import CommitFailedError, CommitStateUnknownError, NoSuchTableError, UnavailableError
from duckicelake.iceberg.identifiers import Namespace, format_full_name, to_schema_name
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.requirements import AssertCreate
from duckicelake.iceberg.updates import RemoveSnapshots, TableUpdate
from duckicelake.lake.changes import ChangeSet, VersionFiles, WrittenCommit, predict_commit
from duckicelake.lake.conflicts import StaleBaseError, WriteConflictError
from duckicelake.lake.ducklake import native
from duckicelake.lake.ducklake.snapshots import RETRY_SECONDS
from duckicelake.lake.side_tables.audit import AuditedResource
from duckicelake.postgres.queries import Transaction

MAX_ATTEMPTS: Final = 50
MAX_SHARED_ATTEMPTS: Final = 3
"""Conflicts after which an attempt holds the commit queue exclusively."""
SELDOM: Final = 10
"""Of so many commits that take appends out of history by age, one releases their files."""

T = TypeVar("T")


class OutdatedPlanError(WriteConflictError):
    """A table changed after a plan was computed for it."""


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """One table's part of a commit: planned, then written.

    Attributes:
        commit: the request.
        cached: the table as loaded; None if the request creates it.
        change: what is to be written; None if nothing changes.
        prewritten: the version that the change makes, if its files are written; their bytes are not kept.
        written: what was written, after COMMIT.
        released: the DuckLake snapshot right after it that released old files, if any.

    """

    commit: TableCommit
    cached: TableVersion | None
    change: ChangeSet | None
    prewritten: TableVersion | None = None
    written: WrittenCommit | None = None
    released: int | None = None

    def describe(self) -> AuditedResource:
        """Describe the plan for the audit trail."""
        return build_touched(self.commit.namespace, self.commit.name, list_actions(self.commit.request.updates))


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
        services.meter.count_retry("unasked")
        return None
    return planned if planned[0].change is not None else None


def _prewrite(services: Services, plan: CommitPlan) -> CommitPlan:
    """Write the files of the version that the change will make, where they can be predicted.

    They can't when a table becomes version 3: the commit assigns all row ids.
    """
    change, cached = plan.change, plan.cached
    if change is None or change.table_id is None or cached is None or change.row_ids:
        return plan
    expected = predict_commit(change.table_id, change)

    def prepare() -> TableVersion | None:
        with services.meter.phase("materialize"):
            version = prepare_next(services, cached, change, expected)
            if version is not None:
                write_files(services, version)
            return version

    version = read_or_report_damage(services, change.table_id, prepare)
    if version is None:
        return plan
    files = VersionFiles(expected.snapshots, expected.caught_up_to, tuple(file.row for file in version.new_files))
    return replace(plan, change=replace(change, files=files), prewritten=replace(version, new_files=()))


def _are_current(services: Services, commits: Sequence[TableCommit], loaded: Sequence[TableVersion | None]) -> bool:
    """Return whether the tables are still as they were loaded."""
    pairs = [(table_commit, cached) for table_commit, cached in zip(commits, loaded, strict=True) if cached is not None]
    return all(
        is_current(cached, read_freshness(services, (to_schema_name(pair.namespace), pair.name), cached))
        for pair, cached in pairs
    )


def _compute_changes(
    services: Services, commits: Sequence[TableCommit], loaded: Sequence[TableVersion | None], *, prepare: bool
) -> list[CommitPlan]:
    next_id = max([_read_newest(services, loaded), *(cached.checked_upto for cached in loaded if cached)]) + 1
    planned: list[CommitPlan] = []
    for table_commit, cached in zip(commits, loaded, strict=True):
        change = change_over(services, table_commit, cached, next_id)
        check_change(services.caller.principal, table_commit.namespace, table_commit.name, change)
        if change is not None and cached is not None:
            change = replace(change, checked_upto=cached.checked_upto)
        next_id += len(change.steps) if change else 0
        planned.append(CommitPlan(table_commit, cached, change))
    return [_prewrite(services, planned[0]), *planned[1:]] if prepare else planned


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


def commit(services: Services, commit: TableCommit) -> TableVersion:
    """Commit to one table, or create it, and return the committed version with all files written.

    Raises NoSuchTableError, CommitFailedError for a requirement that doesn't hold, InvalidRequestError,
    UnsupportedError.
    """
    (done,) = commit_all(services, [commit], prepare=True)
    return render_version(services, done)


def render_version(services: Services, done: CommitPlan) -> TableVersion:
    """Return the committed version of one table, all files written."""
    if done.written is None:
        assert done.cached is not None
        return done.cached
    return materialize_committed(services, done.written, done.cached, done.prewritten, done.released)


def commit_all(
    services: Services,
    commits: Sequence[TableCommit],
    settle: Settle | None = None,
    *,
    prepare: bool = False,
    is_alone: bool = False,
) -> list[CommitPlan]:
    """Commit to several tables in one transaction; return the plans with what was written.

    settle: the transaction's last step, instead of settling the request of the services; its errors are raised.
    prepare: write the files of the next version before COMMIT, where they can be predicted.
    is_alone: the caller holds the commit queue. Raises as `commit` does; then nothing is written.
    """
    services.database.gate.require_open()  # before files are written that the transaction would refuse to name

    def attempt(alone: bool) -> list[CommitPlan]:
        planned = plan_all(services, commits, prepare=prepare and services.commits.is_calm)
        return _write_plans(services, planned, settle, alone=alone)

    def name_tables() -> str:
        return ", ".join(format_full_name(table_commit.namespace, table_commit.name) for table_commit in commits)

    done = retry_on_conflict(services, name_tables, attempt, is_alone=is_alone, conflicts=(StaleBaseError,))
    return [_release(services, plan) for plan in done]


def _write_plans(
    services: Services, planned: Sequence[CommitPlan], settle: Settle | None, *, alone: bool
) -> list[CommitPlan]:
    """Write the changes in one transaction."""
    changed = [plan for plan in planned if plan.change is not None]
    if not changed:
        table_ids = [plan.cached.row.table_id for plan in planned if plan.cached is not None]
        services.settle_unchanged([plan.describe() for plan in planned], table_ids)
        return list(planned)
    made = [plan.describe() for plan in changed if plan.cached is None]
    last = settle or _build_settle(services, [plan.describe() for plan in changed], made)
    changes = [plan.change for plan in changed if plan.change is not None]
    written = iter(_write(services, changes, _add_guard_check(changed, last), alone=alone))
    return [plan if plan.change is None else replace(plan, written=next(written)) for plan in planned]


def retry_on_conflict(
    services: Services,
    tables: str | Callable[[], str],
    attempt: Callable[[bool], T],
    *,
    is_alone: bool = False,
    conflicts: tuple[type[Exception], ...] = (StaleBaseError, OutdatedPlanError),
) -> T:
    """Return the result of the first attempt without a conflict; UnavailableError after RETRY_SECONDS.

    Args:
        services: the queue of commits, and the meter that counts retries.
        tables: names for the error text.
        attempt: called with whether it holds the commit queue exclusively; raises one of `conflicts` on conflict.
        is_alone: the caller holds the queue already.
        conflicts: exceptions that mean a conflict.

    """
    until = monotonic() + RETRY_SECONDS
    for number in range(MAX_ATTEMPTS):
        is_last = number > 0 and monotonic() > until
        alone = is_alone or is_last or number >= MAX_SHARED_ATTEMPTS
        waiting = services.commits.alone(services.database) if alone and not is_alone else nullcontext()
        with suppress(*conflicts), waiting:
            return attempt(alone)
        services.meter.count_retry("stale_base")
        if is_last:
            break
    names = tables if isinstance(tables, str) else tables()
    raise UnavailableError(f"Other writers changed {names} {number + 1} times in a row; try again")


def create_from(services: Services, namespace: Namespace, name: str, target: TableMetadata) -> TableVersion:
    """Create a table with this metadata; AlreadyExistsError, NoSuchNamespaceError, InvalidRequestError."""
    while True:
        change = creation_of(services, namespace, name, target)
        with suppress(StaleBaseError):  # another commit of the same transaction creates the same table
            touched = [build_touched(namespace, name)]
            settle = _build_settle(services, touched, touched)
            (written,) = _write(services, [change], settle)
            return materialize_committed(services, written)


def materialize_committed(
    services: Services,
    written: WrittenCommit,
    cached: TableVersion | None = None,
    prewritten: TableVersion | None = None,
    released: int | None = None,
) -> TableVersion:
    """Materialize the newest version of a table after COMMIT; every failure is CommitStateUnknownError from here on.

    With `cached`, the version is computed from it and what was written, and nothing is read. prewritten: that version,
    if its files may be recorded.
    """
    try:
        if cached is not None:
            prepared = prewritten if written.has_files else None
            return follow(services, cached, written, prepared, released)
        return refresh(services, written.table_id)
    except Exception as error:
        raise CommitStateUnknownError(
            f"The commit was written, but its metadata files were not yet: {error}"
        ) from error


def _write(
    services: Services, changes: Sequence[ChangeSet], settle: Settle, *, alone: bool = False
) -> Sequence[WrittenCommit]:
    """Write all changes in one transaction."""
    write = services.commits.write_alone if alone else services.commits.write
    return write(services.database, services.meter, QueuedCommit(changes, settle=settle))


def _build_settle(services: Services, touched: Sequence[AuditedResource], made: Sequence[AuditedResource]) -> Settle:
    def settle(cursor: Transaction, written: Sequence[WrittenCommit]) -> None:
        table_ids = [written_commit.table_id for written_commit in written]
        tables = [replace(table, table_id=id_) for table, id_ in zip(touched, table_ids, strict=True)]
        services.own_new(cursor, made)
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


def _release(services: Services, plan: CommitPlan) -> CommitPlan:
    """Release files that left history, best effort: the next release takes what this one leaves."""
    cached, written = plan.cached, plan.written
    if cached is None or written is None:
        return plan
    with suppress(Exception):
        if _is_release_due(plan.commit.request.updates, cached.metadata, written.change):
            made = release_files(services, cached.row.table_id)
            return replace(plan, released=made) if made == written.caught_up_to + 1 else plan
    return plan


def _is_release_due(updates: Sequence[TableUpdate], base: TableMetadata, change: ChangeSet) -> bool:
    """Return whether files of snapshots that a change takes out of history are to be released at once.

    Where only appends leave history by age, the files are metadata. Then every tenth such change releases them: a
    transaction for each would cost more.
    """
    gone = change.target.removed_snapshots
    is_asked_for = any(isinstance(update, RemoveSnapshots) for update in updates)
    if not gone or is_asked_for or any(snapshot.operation != "append" for snapshot in base.snapshots):
        return bool(gone)
    return change.base_version // len(gone) % SELDOM == 0
