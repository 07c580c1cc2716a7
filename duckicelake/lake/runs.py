"""Commits that must happen once: `duckicelake_run` knows the newest epoch of each run and table."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from psycopg import Cursor

from duckicelake.lake.additions import NewSnapshot
from duckicelake.lake.postgres.database import Row
from duckicelake.lake.postgres.queries import queries

RUN_ID: Final = "duckicelake.run-id"
RUN_EPOCH: Final = "duckicelake.run-epoch"
"""Keys in the summary of a snapshot that must be committed once; epochs of a run grow."""

_MOST_DIGITS: Final = 18
_SQL = queries("runs")


@dataclass(frozen=True, slots=True)
class Run:
    """What a run committed to a table last."""

    epoch: int
    snapshot_id: int
    committed: datetime
    summary: Mapping[str, Any]


def note(cursor: Cursor[Row], table_id: int, snapshots: Iterable[NewSnapshot]) -> None:
    """Note the runs of new snapshots; most have none."""
    for snapshot in snapshots:
        run_id, epoch = snapshot.summary.get(RUN_ID), epoch_of(snapshot.summary)
        if run_id is not None and epoch is not None:
            parameters = {
                "table_id": table_id,
                "run_id": run_id,
                "epoch": epoch,
                "snapshot_id": snapshot.snapshot_id,
                "summary": dict(snapshot.summary),
            }
            cursor.execute(_SQL.note, parameters)


def epoch_of(summary: Mapping[str, str]) -> int | None:
    """The epoch in a snapshot's summary; None if there is none, or no number that Postgres takes."""
    epoch = summary.get(RUN_EPOCH, "")
    return int(epoch) if epoch.isascii() and epoch.isdigit() and len(epoch) <= _MOST_DIGITS else None


def newest(cursor: Cursor[Row], table_id: int, run_id: str) -> Run | None:
    """What the run committed last, None if nothing."""
    row = cursor.execute(_SQL.newest, {"table_id": table_id, "run_id": run_id}).fetchone()
    return None if row is None else Run(*row)


def newest_by_name(cursor: Cursor[Row], schema_name: str, table_name: str, run_id: str) -> Run | None:
    """What the run committed last to the table that has the name now, None if nothing."""
    parameters = {"schema_name": schema_name, "table_name": table_name, "run_id": run_id}
    row = cursor.execute(_SQL.newest_by_name, parameters).fetchone()
    return None if row is None else Run(*row)
