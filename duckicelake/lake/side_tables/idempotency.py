"""SQL of what is applied once: requests by their `Idempotency-Key`, txns by app and version."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from duckicelake.lake.additions import NewSnapshot
from duckicelake.lake.txn import TxnApp, find_txns
from duckicelake.postgres.pipeline import json_param
from duckicelake.postgres.queries import Transaction, load_queries

_REQUESTS_SQL = load_queries("lake", "idempotency")
OUTCOME_LIFETIME: Final = timedelta(minutes=30)
"""How long a request can be repeated."""
_TXNS_SQL = load_queries("lake", "txns")


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """The outcome of a request.

    Attributes:
        fingerprint: a digest of the request.
        result: JSON from which the response is built again.
        error: JSON of the refusal, if it was refused.

    """

    fingerprint: bytes
    result: Any = None
    error: Any = None


def find_outcome(cursor: Transaction, key: UUID) -> RequestOutcome | None:
    """Find the outcome of the request with the key; None if it has none, or one older than OUTCOME_LIFETIME."""
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

    The transaction raises RepeatedRequestError if a key has a younger one. The statement waits for open transactions
    that have recorded one of the keys.
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
class AppliedTxn:
    """The last version of an app in a table.

    Attributes:
        snapshot_id: DuckLake's; None of an old run whose snapshot has expired.
        iceberg_snapshot_id: None of posted rows.
        summary: of a run's snapshot, None of others.

    """

    version: int
    snapshot_id: int | None
    applied: datetime
    iceberg_snapshot_id: int | None = None
    summary: Mapping[str, str] | None = None


def query_applied_txns(cursor: Transaction, apps: Collection[TxnApp]) -> Callable[[], dict[TxnApp, int]]:
    """Ask for the last version of each app; the answer lacks those without any."""
    if not apps:
        return dict
    parameters = {
        "table_ids": [app.table_id for app in apps],
        "app_ids": [app.app_id for app in apps],
        "are_runs": [app.is_run for app in apps],
    }
    asked = cursor.connection.cursor().execute(_TXNS_SQL.applied, parameters)
    return lambda: {TxnApp(*app): version for *app, version in asked.fetchall()}


def record_txns(cursor: Transaction, versions: Mapping[TxnApp, int], snapshot_id: int) -> None:
    """Record the txns of posted rows, in their transaction. snapshot_id: the DuckLake snapshot that has the rows."""
    _record(cursor, [_build_txn_row(app, version, snapshot_id) for app, version in versions.items()])


def record_snapshot_txns(cursor: Transaction, table_id: int, snapshots: Iterable[tuple[NewSnapshot, int]]) -> None:
    """Record the txns of new snapshots, in their transaction. snapshots: each with its DuckLake snapshot's id."""
    rows: dict[TxnApp, dict[str, Any]] = {}
    for snapshot, snapshot_id in snapshots:
        for txn in find_txns(snapshot.summary):
            app = txn.get_app(table_id)
            if app not in rows or rows[app]["version"] < txn.version:
                iceberg = {"iceberg_snapshot_id": snapshot.snapshot_id}
                summary = {"summary": json_param(dict(snapshot.summary))} if app.is_run else {}
                rows[app] = {**_build_txn_row(app, txn.version, snapshot_id), **iceberg, **summary}
    _record(cursor, list(rows.values()))


def _build_txn_row(app: TxnApp, version: int, snapshot_id: int) -> dict[str, Any]:
    return {
        "table_id": app.table_id,
        "app_id": app.app_id,
        "is_run": app.is_run,
        "version": version,
        "snapshot_id": snapshot_id,
    }


def _record(cursor: Transaction, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        cursor.execute(_TXNS_SQL.record, {"txns": json_param(rows)})


def read_newest_txn(
    cursor: Transaction, schema_name: str, table_name: str, app_id: str, *, is_run: bool = False
) -> tuple[bool, AppliedTxn | None]:
    """Read whether there is a live table of the name, and the last version of an app in it."""
    parameters = {"schema_name": schema_name, "table_name": table_name, "app_id": app_id, "is_run": is_run}
    row = cursor.execute(_TXNS_SQL.newest, parameters).fetchone()
    return row is not None, AppliedTxn(*row) if row is not None and row[0] is not None else None
