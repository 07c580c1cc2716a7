"""Record what was done once: requests by key, batches by app id and version, runs by epoch."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from psycopg import Cursor

from duckicelake.lake.additions import NewSnapshot
from duckicelake.postgres.pipeline import json_param
from duckicelake.postgres.queries import Row, Transaction, load_queries

_REQUESTS_SQL = load_queries("lake", "idempotency")
OUTCOME_LIFETIME: Final = timedelta(minutes=30)
"""Time in which a request may be sent again."""
TXN_APP_ID_KEY: Final = "txn.app-id"
TXN_VERSION_KEY: Final = "txn.version"
"""Keys in the summary of a snapshot that is a producer's batch; versions of one app id grow."""
DELTA_TXN_PREFIX: Final = "delta.txn."
"""Begins the keys under which a snapshot of a Delta log has the version of each app id in it."""
MAX_APP_ID_CHARS: Final = 500
_MAX_VERSION_DIGITS: Final = 18
_PRODUCERS_SQL = load_queries("lake", "producers")
RUN_ID_KEY: Final = "duckicelake.run-id"
RUN_EPOCH_KEY: Final = "duckicelake.run-epoch"
"""Keys in the summary of a snapshot that must be committed once; epochs of a run grow."""
_MAX_EPOCH_DIGITS: Final = 18
_RUNS_SQL = load_queries("lake", "runs")


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """fingerprint: a digest of what was asked for. `result` and `error` are JSON; an error is a refusal."""

    fingerprint: bytes
    result: Any = None
    error: Any = None


def find_outcome(cursor: Transaction, key: UUID) -> RequestOutcome | None:
    """Find the outcome of the request with the key; None if it never ended, or longer ago than OUTCOME_LIFETIME."""
    row = cursor.execute(_REQUESTS_SQL.outcome, {"key": key, "lifetime": OUTCOME_LIFETIME}).fetchone()
    return RequestOutcome(*row) if row else None


def query_known_keys(cursor: Transaction, keys: Sequence[UUID]) -> Callable[[], set[UUID]]:
    """Ask which of the keys have an outcome."""
    if not keys:
        return set
    asked = cursor.connection.cursor().execute(_REQUESTS_SQL.known, {"keys": list(keys), "lifetime": OUTCOME_LIFETIME})
    return lambda: {key for (key,) in asked.fetchall()}


def record_outcomes(cursor: Transaction, outcomes: Mapping[UUID, RequestOutcome]) -> None:
    """Record outcomes by key, and delete some that are older than `OUTCOME_LIFETIME`.

    If a key has a younger one, the transaction raises RepeatedRequestError. Waits for open transactions that have
    recorded one of the keys.
    """
    if not outcomes:
        return
    noted = [_build_outcome_row(*outcome) for outcome in outcomes.items()]
    cursor.execute(_REQUESTS_SQL.settle, {"outcomes": json_param(noted), "lifetime": OUTCOME_LIFETIME})


def _build_outcome_row(key: UUID, outcome: RequestOutcome) -> dict[str, Any]:
    """Build a row with JSON as text, in which Postgres takes NUL as it does nowhere else."""
    return {
        "key": key,
        "fingerprint": f"\\x{outcome.fingerprint.hex()}",
        "result": _encode_json(outcome.result),
        "error": _encode_json(outcome.error),
    }


def _encode_json(value: Any) -> str | None:
    return None if value is None else json_param(value)


@dataclass(frozen=True, slots=True)
class TxnApp:
    """A producer that numbers its batches for one table."""

    table_id: int
    app_id: str


@dataclass(frozen=True, slots=True)
class AppliedTxn:
    """The last batch of a producer, and the DuckLake snapshot that has it."""

    sequence: int
    snapshot_id: int
    applied: datetime


def query_applied_txns(cursor: Transaction, producers: Sequence[TxnApp]) -> Callable[[], dict[TxnApp, int]]:
    """Ask for the last sequence of each producer; those that haven't begun aren't in the answer."""
    if not producers:
        return dict
    parameters = {
        "table_ids": [producer.table_id for producer in producers],
        "app_ids": [producer.app_id for producer in producers],
    }
    asked = cursor.connection.cursor().execute(_PRODUCERS_SQL.applied, parameters)
    return lambda: {TxnApp(table_id, app_id): sequence for table_id, app_id, sequence in asked.fetchall()}


def record_txns(cursor: Transaction, sequences: Mapping[TxnApp, int], snapshot_id: int) -> None:
    """Record the producers' last sequences in the transaction of their batches."""
    if sequences:
        noted = [
            {"table_id": producer.table_id, "app_id": producer.app_id, "sequence": sequence}
            for producer, sequence in sequences.items()
        ]
        cursor.execute(_PRODUCERS_SQL.note, {"producers": json_param(noted), "snapshot_id": snapshot_id})


def record_snapshot_txns(
    cursor: Transaction, table_id: int, snapshots: Iterable[NewSnapshot], snapshot_id: int
) -> None:
    """Record the batches that new snapshots are, in their transaction; most snapshots are none."""
    for snapshot in snapshots:
        record_txns(
            cursor, {TxnApp(table_id, app_id): version for app_id, version in _find_txns(snapshot)}, snapshot_id
        )


def parse_txn_version(text: str) -> int | None:
    """Parse the version of a batch in a summary; None if Postgres can't take it as a number."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_VERSION_DIGITS else None


def _find_txns(snapshot: NewSnapshot) -> Iterable[tuple[str, int]]:
    for key, text in snapshot.summary.items():
        is_delta = key.startswith(DELTA_TXN_PREFIX)
        if not is_delta and key != TXN_VERSION_KEY:
            continue
        app_id = key.removeprefix(DELTA_TXN_PREFIX) if is_delta else snapshot.summary.get(TXN_APP_ID_KEY, "")
        version = parse_txn_version(text)
        if version is not None and 0 < len(app_id) <= MAX_APP_ID_CHARS and "\0" not in app_id:
            yield app_id, version


def read_newest_txn(
    cursor: Transaction, schema_name: str, table_name: str, app_id: str
) -> tuple[bool, AppliedTxn | None]:
    """Read whether there is a live table of the name, and a producer's last batch in it."""
    parameters = {"schema_name": schema_name, "table_name": table_name, "app_id": app_id}
    row = cursor.execute(_PRODUCERS_SQL.newest, parameters).fetchone()
    return row is not None, AppliedTxn(*row) if row is not None and row[0] is not None else None


@dataclass(frozen=True, slots=True)
class CommittedRun:
    """The last commit of a run to a table."""

    epoch: int
    snapshot_id: int
    committed: datetime
    summary: Mapping[str, Any]


def record_runs(cursor: Cursor[Row], table_id: int, snapshots: Iterable[NewSnapshot]) -> None:
    """Record the runs of new snapshots; most have none."""
    for snapshot in snapshots:
        run_id, epoch = snapshot.summary.get(RUN_ID_KEY), parse_epoch(snapshot.summary)
        if run_id is not None and epoch is not None:
            parameters = {
                "table_id": table_id,
                "run_id": run_id,
                "epoch": epoch,
                "snapshot_id": snapshot.snapshot_id,
                "summary": dict(snapshot.summary),
            }
            cursor.execute(_RUNS_SQL.note, parameters)


def parse_epoch(summary: Mapping[str, str]) -> int | None:
    """Parse the epoch in a snapshot's summary; None if there is none, or Postgres can't take it as a number."""
    epoch = summary.get(RUN_EPOCH_KEY, "")
    return int(epoch) if epoch.isascii() and epoch.isdigit() and len(epoch) <= _MAX_EPOCH_DIGITS else None


def read_newest_run(cursor: Cursor[Row], table_id: int, run_id: str) -> CommittedRun | None:
    """Read what the run committed last, None if nothing."""
    row = cursor.execute(_RUNS_SQL.newest, {"table_id": table_id, "run_id": run_id}).fetchone()
    return None if row is None else CommittedRun(*row)


def read_newest_run_by_name(cursor: Cursor[Row], schema_name: str, table_name: str, run_id: str) -> CommittedRun | None:
    """Read what the run committed last to the table that has the name now, None if nothing."""
    parameters = {"schema_name": schema_name, "table_name": table_name, "run_id": run_id}
    row = cursor.execute(_RUNS_SQL.newest_by_name, parameters).fetchone()
    return None if row is None else CommittedRun(*row)
