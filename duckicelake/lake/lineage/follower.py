"""How far the lake's changes have become events of lineage, and what else of them must be read."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from duckicelake.lake.chronicle.entries import Position
from duckicelake.lake.model import ViewDefinition
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lake.postgres.queries import queries

_SQL = queries("lineage_follower")


@dataclass(frozen=True, slots=True)
class Progress:
    """Up to where events were made. streams: what `lineage.streams` keeps. now: the database's time."""

    lake_id: UUID
    position: Position
    audit_id: int
    streams: Sequence[dict[str, Any]]
    now: datetime


@dataclass(frozen=True, slots=True)
class Refusal:
    """An entry of the audit trail for a request that was refused. result: an error's type and status."""

    id: int
    at: datetime
    principal: str
    request_id: str
    operation: str
    resource: str
    result: str
    client: dict[str, str] | None


def take(cursor: Transaction) -> Progress | None:
    """Be the one who makes events, until the end of the transaction; None while somebody else is."""
    row = cursor.execute(_SQL.take).fetchone()
    return None if row is None else Progress(row[0], Position(row[1], row[2]), *row[3:])


def move(cursor: Transaction, position: Position, audit_id: int, streams: Sequence[dict[str, Any]]) -> None:
    """Note how far it is, in the transaction in which the events are recorded."""
    parameters = {
        "snapshot_id": position.snapshot_id,
        "ordinal": position.ordinal,
        "audit_id": audit_id,
        "streams": orjson.dumps(streams).decode(),
    }
    cursor.execute(_SQL.move, parameters)


def noted(cursor: Transaction, after: int, before: datetime, most: int) -> int:
    """The last of the next entries of the audit trail that are from before a time."""
    row = cursor.execute(_SQL.noted, {"after": after, "before": before, "most": most}).fetchone()
    return after if row is None or row[0] is None else int(row[0])


def refusals(cursor: Transaction, after: int, upto: int) -> list[Refusal]:
    """The refusals among these entries."""
    return [Refusal(*row) for row in cursor.execute(_SQL.refusals, {"after": after, "upto": upto}).fetchall()]


def owners(cursor: Transaction, table_ids: Iterable[int]) -> dict[int, str]:
    """Who owns tables, where that is said, by table id."""
    return dict(cursor.execute(_SQL.owners, {"table_ids": list(table_ids)}).fetchall())


def places(cursor: Transaction, table_ids: Iterable[int]) -> dict[int, str]:
    """Where tables lie that Iceberg clients have seen, by table id."""
    return dict(cursor.execute(_SQL.places, {"table_ids": list(table_ids)}).fetchall())


def named(cursor: Transaction, schema_name: str, name: str, at: int) -> tuple[int, bool] | None:
    """The id of what had the name at a snapshot, and whether it was a view."""
    row = cursor.execute(_SQL.named, {"schema_name": schema_name, "name": name, "at": at}).fetchone()
    return None if row is None else (row[0], row[1])


def view(cursor: Transaction, view_id: int, at: int) -> ViewDefinition | None:
    """A view as it was at a snapshot."""
    row = cursor.execute(_SQL.view, {"view_id": view_id, "at": at}).fetchone()
    return None if row is None else ViewDefinition(*row)
