"""Appends to one table at the same time, where it has `ducklake.append-rebase`: one computation makes a commit of all.

Those that wait are put on top of each other (`bridge.rebase`) and committed as one request of several snapshots; each
keeps its own entry in the audit trail and its own Idempotency-Key. If that fails, each is committed by itself, so that
every client hears what is wrong with its own.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

from duckicelake.bridge.commit.renumber import find_appends, join_requests
from duckicelake.catalog.commit.apply import TableCommit
from duckicelake.catalog.commit.rules import share_apps
from duckicelake.catalog.commit.run import CommitPlan, commit, commit_all, render_version
from duckicelake.catalog.commit.uploads import ReadAhead, read_ahead
from duckicelake.catalog.context.audit_notes import build_touched, list_actions
from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.combiner import CombinedBatch
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import load_current_table
from duckicelake.errors import CatalogError, CommitStateUnknownError, NoSuchTableError, UnavailableError
from duckicelake.iceberg.identifiers import to_schema_name
from duckicelake.lake.changes import WrittenCommit
from duckicelake.lake.ducklake.snapshots import hold_table_lock
from duckicelake.postgres.queries import Transaction
from duckicelake.properties import may_rebase_appends


@dataclass(slots=True)
class _Append:
    """One client's request, and what became of it."""

    services: Services
    commit: TableCommit
    outcome: TableVersion | Exception | None = None


def commit_or_append(services: Services, request: TableCommit) -> TableVersion:
    """Commit to one table, an append together with others that wait; raises as `commit` does.

    What its client uploaded is read before its turn comes, for which the others wait.
    """
    known = _find_rebasing_table(services, request)
    if known is None:
        return commit(services, request)
    table_id = known.row.table_id
    request = replace(request, ahead=read_ahead(services, known.metadata.location, find_appends(request.request)))
    own, key = _Append(services, request), (request.namespace, request.name, services.caller.principal)
    services.appends.get(key).do(own, partial(_commit_each, services, table_id))
    if isinstance(own.outcome, TableVersion):
        return own.outcome
    raise own.outcome or CommitStateUnknownError("The server was stopped while it wrote the commit")


def _find_rebasing_table(services: Services, request: TableCommit) -> TableVersion | None:
    """Find the table, if the request only appends and the table's property rebases appends.

    A table that is not cached is loaded: otherwise concurrent appends would conflict with each other.
    """
    known = services.cache.find(to_schema_name(request.namespace), request.name)
    if known is not None and not may_rebase_appends(known.metadata.properties):
        return None
    if not find_appends(request.request):
        return None
    if known is None:
        with suppress(NoSuchTableError):
            known = load_current_table(services, request.namespace, request.name)
    if known is None or not may_rebase_appends(known.metadata.properties):
        return None
    return known


def _commit_each(services: Services, table_id: int, batch: CombinedBatch[_Append]) -> None:
    """Give each its outcome, together if that can be; other processes' turns on the table come before or after."""
    try:
        with _hold_table(services, table_id):
            batch.grow()
            _settle(batch)
    except CatalogError as error:
        for append in batch:
            append.outcome = append.outcome or error


@contextmanager
def _hold_table(services: Services, table_id: int) -> Iterator[None]:
    """Hold the table for this process. Without it, processes compute one another's commits again and again."""
    if not services.appends.keepers.acquire(blocking=False):
        yield
        return
    try:
        with services.database.statement() as cursor, hold_table_lock(cursor, table_id):
            yield
    finally:
        services.appends.keepers.release()


def _settle(batch: Sequence[_Append]) -> None:
    if len(batch) > 1 and not share_apps([append.commit.request for append in batch]):
        outcome = _commit_jointly(batch)
        for item in batch:
            item.outcome = outcome
    for append in batch:
        if append.outcome is None:
            append.outcome = _commit_singly(append)


def _commit_singly(one_append: _Append) -> TableVersion | Exception:
    try:
        return commit(one_append.services, one_append.commit)
    except Exception as error:  # noqa: BLE001 - raised again in the thread of the client
        return error


def _commit_jointly(batch: Sequence[_Append]) -> TableVersion | Exception | None:
    """Return the outcome of all, None if nothing was written since something is wrong with one of them."""
    services = batch[0].services
    try:
        written = _commit_together(batch)
    except (UnavailableError, CommitStateUnknownError) as error:
        return error
    except Exception:  # noqa: BLE001 - who is to blame hears it when each is committed by itself
        return None
    try:
        return render_version(services, written)
    except CommitStateUnknownError as error:
        return error


def _commit_together(batch: Sequence[_Append]) -> CommitPlan:
    first = batch[0]
    count = [len(find_appends(append.commit.request)) for append in batch]

    def settle(cursor: Transaction, written: Sequence[WrittenCommit]) -> None:
        ((table_id, snapshots),) = [
            (written_commit.table_id, iter(written_commit.snapshots)) for written_commit in written
        ]
        for item, times in zip(batch, count, strict=True):
            *_, own = [next(snapshots) for _ in range(times)]
            entry = build_touched(item.commit.namespace, item.commit.name, list_actions(item.commit.request.updates))
            item.services.settle(cursor, [replace(entry, table_id=table_id, snapshot_id=own)], [table_id])

    request = join_requests([append.commit.request for append in batch])
    all_of_them = replace(
        first.commit, request=request, ahead=ReadAhead.all_of(append.commit.ahead for append in batch)
    )
    (done,) = commit_all(first.services, [all_of_them], settle, prepare=True)
    return done
