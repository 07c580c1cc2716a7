"""Appends to one table at the same time, where it has `ducklake.append-rebase`: one computation makes a commit of all.

Those that wait are put on top of each other (`bridge.rebase`) and committed as one request of several snapshots; each
keeps its own entry in the audit trail and its own Idempotency-Key. If that fails, each is committed by itself, so that
every client hears what is wrong with its own.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

from duckicelake.bridge.rebase import appends_of, together
from duckicelake.bridge.table_properties import may_rebase
from duckicelake.catalog.auditing import actions, touched
from duckicelake.catalog.commits.attempts import TableCommit
from duckicelake.catalog.commits.batches import share_producers
from duckicelake.catalog.commits.committing import Outcome, commit, commit_all, shown
from duckicelake.catalog.commits.turns import Batch
from duckicelake.catalog.commits.uploads import ReadAhead, read_ahead
from duckicelake.catalog.loads.cache import Materialized
from duckicelake.catalog.loads.loading import current_table
from duckicelake.catalog.services import Services
from duckicelake.errors import CatalogError, CommitStateUnknown, NoSuchTable, Unavailable
from duckicelake.iceberg.names import schema_name
from duckicelake.lake.changes import Written
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lake.snapshots import lane


@dataclass(slots=True)
class _Append:
    """One client's request, and what became of it."""

    services: Services
    commit: TableCommit
    outcome: Materialized | Exception | None = None


def commit_or_append(services: Services, request: TableCommit) -> Materialized:
    """Commit to one table, an append together with others that wait; raises as `commit` does.

    What its client uploaded is read before its turn comes, for which the others wait.
    """
    known = _shared(services, request)
    if known is None:
        return commit(services, request)
    table_id = known.row.table_id
    request = replace(request, ahead=read_ahead(services, known.metadata.location, appends_of(request.request)))
    own, key = _Append(services, request), (request.namespace, request.name, services.caller.principal)
    services.appends.of(key).do(own, partial(_commit_each, services, table_id))
    if isinstance(own.outcome, Materialized):
        return own.outcome
    raise own.outcome or CommitStateUnknown("The server was stopped while it wrote the commit")


def _shared(services: Services, request: TableCommit) -> Materialized | None:
    """A version of the table, if the request only appends and it has its appends put on top of each other.

    One that isn't known yet is loaded: of many that come at the same time each would be in the others' way.
    """
    if not appends_of(request.request):
        return None
    known = services.cache.find(schema_name(request.namespace), request.name)
    with suppress(NoSuchTable):
        known = known or current_table(services, request.namespace, request.name)
    if known is None or not may_rebase(known.materialized.metadata.properties):
        return None
    return known.materialized


def _commit_each(services: Services, table_id: int, batch: Batch[_Append]) -> None:
    """Give each its outcome, together if that can be; other processes' turns on the table come before or after."""
    try:
        with _lane(services, table_id):
            batch.grow()
            _settle(batch)
    except CatalogError as error:
        for each in batch:
            each.outcome = each.outcome or error


@contextmanager
def _lane(services: Services, table_id: int) -> Iterator[None]:
    """Without it the processes' commits would be computed again and again, but not go wrong."""
    if not services.appends.keepers.acquire(blocking=False):
        yield
        return
    try:
        with services.database.statement() as cursor, lane(cursor, table_id):
            yield
    finally:
        services.appends.keepers.release()


def _settle(batch: Sequence[_Append]) -> None:
    if len(batch) > 1 and not share_producers([each.commit.request for each in batch]):
        outcome = _together(batch)
        for each in batch:
            each.outcome = outcome
    for each in batch:
        if each.outcome is None:
            each.outcome = _alone(each)


def _alone(each: _Append) -> Materialized | Exception:
    try:
        return commit(each.services, each.commit)
    except Exception as error:  # noqa: BLE001 - raised again in the thread of the client
        return error


def _together(batch: Sequence[_Append]) -> Materialized | Exception | None:
    """The outcome of all, None if nothing was written since something is wrong with one of them."""
    services = batch[0].services
    try:
        written = _commit_together(batch)
    except (Unavailable, CommitStateUnknown) as error:
        return error
    except Exception:  # noqa: BLE001 - who is to blame hears it when each is committed by itself
        return None
    try:
        return shown(services, written)
    except CommitStateUnknown as error:
        return error


def _commit_together(batch: Sequence[_Append]) -> Outcome:
    first = batch[0]
    count = [len(appends_of(each.commit.request)) for each in batch]

    def settle(cursor: Transaction, written: Sequence[Written]) -> None:
        ((table_id, snapshots),) = [(each.table_id, iter(each.snapshots)) for each in written]
        for each, times in zip(batch, count, strict=True):
            *_, own = [next(snapshots) for _ in range(times)]
            entry = touched(each.commit.namespace, each.commit.name, actions(each.commit.request.updates))
            each.services.settle(cursor, [replace(entry, table_id=table_id, snapshot_id=own)], [table_id])

    request = together([each.commit.request for each in batch])
    all_of_them = replace(first.commit, request=request, ahead=ReadAhead.all_of(each.commit.ahead for each in batch))
    (outcome,) = commit_all(first.services, [all_of_them], settle, prepare=True)
    return outcome
