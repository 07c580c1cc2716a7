"""Transactions of apps and runs: each is committed once."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby

from duckicelake.catalog.context.services import Services
from duckicelake.errors import InvalidRequest, TxnAlreadyCommittedError, Unprocessable
from duckicelake.iceberg.identifiers import Namespace, to_schema_name
from duckicelake.iceberg.model import SpecModel
from duckicelake.iceberg.rest import CommitTableRequest
from duckicelake.iceberg.updates import AddSnapshot, TableUpdate
from duckicelake.lake.side_tables import idempotency
from duckicelake.lake.side_tables.idempotency import (
    MAX_APP_ID_CHARS,
    RUN_EPOCH_KEY,
    RUN_ID_KEY,
    TXN_APP_ID_KEY,
    TXN_VERSION_KEY,
    TxnApp,
    parse_epoch,
    parse_txn_version,
)

ProducerBatch = tuple[str, int]
"""An app id with the version of one of its batches."""


def check_batches(services: Services, table_id: int | None, updates: Sequence[TableUpdate]) -> None:
    """CommittedBefore if the table has one of these batches, or a later one of the same app id.

    table_id: None of a table that is created. A batch may be several snapshots of the request, as an overwrite of
    PyIceberg is.
    """
    batches = [batch for batch, _ in groupby(_batches(updates))]
    if not batches:
        return
    last: dict[str, int] = {} if table_id is None else _last_of(services, table_id, batches)
    for app_id, version in batches:
        known = last.get(app_id)
        if known is not None and version <= known:
            raise TxnAlreadyCommittedError(
                f"Already applied: the last batch of {app_id} in this table is version {known}, so version {version} "
                "is there, too. Nothing was written, and nothing is left to do for it"
            )
        last[app_id] = version


def share_apps(requests: Sequence[CommitTableRequest]) -> bool:
    """Whether several of the requests have batches of one app id, so that one may be another's repetition."""
    app_ids = [{app_id for app_id, _ in _batches(request.updates)} for request in requests]
    return len(set().union(*app_ids)) < sum(map(len, app_ids))


def _last_of(services: Services, table_id: int, batches: Sequence[ProducerBatch]) -> dict[str, int]:
    asked = [TxnApp(table_id, app_id) for app_id in dict.fromkeys(app_id for app_id, _ in batches)]
    with services.database.reading() as cursor:
        found = idempotency.query_applied_txns(cursor, asked)()
    return {producer.app_id: version for producer, version in found.items()}


def _batches(updates: Sequence[TableUpdate]) -> Iterator[ProducerBatch]:
    for update in updates:
        if isinstance(update, AddSnapshot) and not update.snapshot.summary.keys().isdisjoint(
            (TXN_APP_ID_KEY, TXN_VERSION_KEY)
        ):
            yield _batch(update.snapshot.summary)


def _batch(summary: dict[str, str]) -> ProducerBatch:
    app_id, version = summary.get(TXN_APP_ID_KEY, ""), parse_txn_version(summary.get(TXN_VERSION_KEY, ""))
    if not app_id or len(app_id) > MAX_APP_ID_CHARS or "\0" in app_id:
        raise InvalidRequest(
            f"{TXN_APP_ID_KEY}, beside {TXN_VERSION_KEY}, takes 1 to {MAX_APP_ID_CHARS} letters, none of them NUL"
        )
    if version is None:
        raise InvalidRequest(
            f"{TXN_VERSION_KEY} is a whole number beside {TXN_APP_ID_KEY}, not {summary.get(TXN_VERSION_KEY)!r}"
        )
    return app_id, version


class RunResult(SpecModel):
    """What a run committed to a table last."""

    run_id: str
    epoch: int
    snapshot_id: int
    committed: datetime
    summary: dict[str, str]


def check_runs(services: Services, table_id: int | None, updates: Sequence[TableUpdate]) -> None:
    """Unprocessable if the table has one of these runs already; table_id: None of one that is created."""
    summaries = [update.snapshot.summary for update in updates if isinstance(update, AddSnapshot)]
    stamped = [_run(summary) for summary in summaries if RUN_EPOCH_KEY in summary]
    if not stamped:
        return
    if len({run_id for run_id, _ in stamped}) < len(stamped):
        raise Unprocessable("Two snapshots of one request are of the same run")
    if table_id is None:
        return
    with services.database.reading() as cursor:
        for run_id, epoch in stamped:
            found = idempotency.read_newest_run(cursor, table_id, run_id)
            if found is not None and found.epoch >= epoch:
                raise Unprocessable(
                    f"Epoch {epoch} of run {run_id} was committed before: epoch {found.epoch} is snapshot "
                    f"{found.snapshot_id}. Nothing is left to do for it"
                )


def find_run(services: Services, namespace: Namespace, table: str, run_id: str) -> RunResult | None:
    """What the run committed last to the table, None if nothing, or if there is no such table."""
    with services.database.reading() as cursor:
        found = idempotency.read_newest_run_by_name(cursor, to_schema_name(namespace), table, run_id)
    if found is None:
        return None
    summary = dict(found.summary)
    return RunResult(
        run_id=run_id, epoch=found.epoch, snapshot_id=found.snapshot_id, committed=found.committed, summary=summary
    )


def _run(summary: dict[str, str]) -> tuple[str, int]:
    run_id, epoch = summary.get(RUN_ID_KEY), parse_epoch(summary)
    if not run_id or epoch is None:
        raise InvalidRequest(f"{RUN_EPOCH_KEY} is a whole number beside {RUN_ID_KEY}, not {summary[RUN_EPOCH_KEY]!r}")
    return run_id, epoch
