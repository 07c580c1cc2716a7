"""Producers that count their batches of rows: how far each has come with each table, written with the batch itself."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from duckicelake.lake.database import Transaction
from duckicelake.lake.queries import queries

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
        parameters = {
            "table_ids": [each.table_id for each in sequences],
            "app_ids": [each.app_id for each in sequences],
            "sequences": list(sequences.values()),
            "snapshot_id": snapshot_id,
        }
        cursor.execute(_SQL.note, parameters)


def newest(cursor: Transaction, schema_name: str, table_name: str, app_id: str) -> tuple[bool, Applied | None]:
    """Whether there is a live table of the name, and the last batch of a producer that it has."""
    parameters = {"schema_name": schema_name, "table_name": table_name, "app_id": app_id}
    row = cursor.execute(_SQL.newest, parameters).fetchone()
    return row is not None, Applied(*row) if row is not None and row[0] is not None else None
