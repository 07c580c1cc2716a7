"""Producers that count their batches of rows: how far each has come with each table, written with the batch itself.

Batches come by the rows endpoint, or as snapshots of Iceberg clients whose summary says `txn.app-id` and `txn.version`.
Those of a Delta log say `delta.txn.<app id>`, so that a stream that wrote to the Delta table goes on here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from duckicelake.lake.additions import NewSnapshot
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lake.postgres.documents import document
from duckicelake.lake.postgres.queries import queries

APP_ID: Final = "txn.app-id"
VERSION: Final = "txn.version"
"""Keys in the summary of a snapshot that is a producer's batch; versions of one app id grow."""
DELTA_TXN: Final = "delta.txn."
"""Begins the keys under which a snapshot of a Delta log has the version of each app id in it."""
LONGEST_APP_ID: Final = 500

_MOST_DIGITS: Final = 18
_SQL = queries("producers")


@dataclass(frozen=True, slots=True)
class Producer:
    """Somebody who counts batches for one table."""

    table_id: int
    app_id: str


@dataclass(frozen=True, slots=True)
class Applied:
    """The last batch of a producer that is there, and the DuckLake snapshot that has it."""

    sequence: int
    snapshot_id: int
    applied: datetime


def applied(cursor: Transaction, producers: Sequence[Producer]) -> Callable[[], dict[Producer, int]]:
    """Ask for the last sequence of each; those that haven't begun aren't in the answer."""
    if not producers:
        return dict
    parameters = {
        "table_ids": [each.table_id for each in producers],
        "app_ids": [each.app_id for each in producers],
    }
    asked = cursor.connection.cursor().execute(_SQL.applied, parameters)
    return lambda: {Producer(table_id, app_id): sequence for table_id, app_id, sequence in asked.fetchall()}


def note(cursor: Transaction, sequences: Mapping[Producer, int], snapshot_id: int) -> None:
    """Note in the transaction of the batches how far their producers are."""
    if sequences:
        noted = [
            {"table_id": each.table_id, "app_id": each.app_id, "sequence": sequence}
            for each, sequence in sequences.items()
        ]
        cursor.execute(_SQL.note, {"producers": document(noted), "snapshot_id": snapshot_id})


def note_snapshots(cursor: Transaction, table_id: int, snapshots: Iterable[NewSnapshot], snapshot_id: int) -> None:
    """Note the batches that new snapshots are, in their transaction; most are none."""
    for snapshot in snapshots:
        note(cursor, {Producer(table_id, app_id): version for app_id, version in _batches(snapshot)}, snapshot_id)


def version_of(text: str) -> int | None:
    """The version of a batch in a summary; None if it is no number, or none that Postgres takes."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


def _batches(snapshot: NewSnapshot) -> Iterable[tuple[str, int]]:
    for key, text in snapshot.summary.items():
        is_delta = key.startswith(DELTA_TXN)
        if not is_delta and key != VERSION:
            continue
        app_id = key.removeprefix(DELTA_TXN) if is_delta else snapshot.summary.get(APP_ID, "")
        version = version_of(text)
        if version is not None and 0 < len(app_id) <= LONGEST_APP_ID and "\0" not in app_id:
            yield app_id, version


def newest(cursor: Transaction, schema_name: str, table_name: str, app_id: str) -> tuple[bool, Applied | None]:
    """Whether there is a live table of the name, and the last batch of a producer that it has."""
    parameters = {"schema_name": schema_name, "table_name": table_name, "app_id": app_id}
    row = cursor.execute(_SQL.newest, parameters).fetchone()
    return row is not None, Applied(*row) if row is not None and row[0] is not None else None
