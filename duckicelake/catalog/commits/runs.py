"""Runs: commits that must happen once, however often they are tried and by however many at the same time.

A snapshot whose summary has `duckicelake.run-id` and `duckicelake.run-epoch` is refused if its table has one of the
same run and epoch, or of a later epoch. What is looked at here holds until COMMIT: a table that changes meanwhile has
its commits computed again.
"""

from collections.abc import Sequence
from datetime import datetime

from duckicelake.catalog.services import Services
from duckicelake.errors import InvalidRequest, Unprocessable
from duckicelake.iceberg.model import SpecModel
from duckicelake.iceberg.names import Namespace, schema_name
from duckicelake.iceberg.updates import AddSnapshot, TableUpdate
from duckicelake.lake import runs
from duckicelake.lake.runs import RUN_EPOCH, RUN_ID, epoch_of


class RunAnswer(SpecModel):
    """What a run committed to a table last."""

    run_id: str
    epoch: int
    snapshot_id: int
    committed: datetime
    summary: dict[str, str]


def check_runs(services: Services, table_id: int | None, updates: Sequence[TableUpdate]) -> None:
    """Unprocessable if the table has one of these runs already; table_id: None of one that is created."""
    summaries = [update.snapshot.summary for update in updates if isinstance(update, AddSnapshot)]
    stamped = [_run(summary) for summary in summaries if RUN_EPOCH in summary]
    if not stamped:
        return
    if len({run_id for run_id, _ in stamped}) < len(stamped):
        raise Unprocessable("Two snapshots of one request are of the same run")
    if table_id is None:
        return
    with services.database.reading() as cursor:
        for run_id, epoch in stamped:
            found = runs.newest(cursor, table_id, run_id)
            if found is not None and found.epoch >= epoch:
                raise Unprocessable(
                    f"Epoch {epoch} of run {run_id} was committed before: epoch {found.epoch} is snapshot "
                    f"{found.snapshot_id}. Nothing is left to do for it"
                )


def find_run(services: Services, namespace: Namespace, table: str, run_id: str) -> RunAnswer | None:
    """What the run committed last to the table, None if nothing, or if there is no such table."""
    with services.database.reading() as cursor:
        found = runs.newest_by_name(cursor, schema_name(namespace), table, run_id)
    if found is None:
        return None
    summary = dict(found.summary)
    return RunAnswer(
        run_id=run_id, epoch=found.epoch, snapshot_id=found.snapshot_id, committed=found.committed, summary=summary
    )


def _run(summary: dict[str, str]) -> tuple[str, int]:
    run_id, epoch = summary.get(RUN_ID), epoch_of(summary)
    if not run_id or epoch is None:
        raise InvalidRequest(f"{RUN_EPOCH} is a whole number beside {RUN_ID}, not {summary[RUN_EPOCH]!r}")
    return run_id, epoch
