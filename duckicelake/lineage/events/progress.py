"""SQL of the event generator: its position in the changelog, and what else it must read."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from duckicelake.changelog.entries import LogPosition
from duckicelake.iceberg.identifiers import parse_schema_name, to_schema_name
from duckicelake.lake.model import ViewDefinition
from duckicelake.postgres.queries import Transaction, load_queries

_SQL = load_queries("lineage.events", "progress")


@dataclass(frozen=True, slots=True)
class LineageProgress:
    """The position of the event generator. streams: what `lineage.streams` stores. now: the database's time."""

    lake_id: UUID
    position: LogPosition
    audit_id: int
    streams: Sequence[dict[str, Any]]
    now: datetime


@dataclass(frozen=True, slots=True)
class RefusalRow:
    """An entry of the audit trail for a request that was refused. result: an error's type and status."""

    id: int
    at: datetime
    principal: str
    request_id: str
    operation: str
    resource: str
    result: str
    client: dict[str, str] | None


def take_progress(cursor: Transaction) -> LineageProgress | None:
    """Lock the generator's row until the end of the transaction; None while another process has it."""
    row = cursor.execute(_SQL.take).fetchone()
    return None if row is None else LineageProgress(row[0], LogPosition(row[1], row[2]), *row[3:])


def read_lag(cursor: Transaction) -> tuple[int, float | None]:
    """Count the changes that wait for events, and the seconds for which the first one has.

    None without any.
    """
    waiting, seconds = cursor.execute(_SQL.lag).fetchall()[0]
    return waiting, seconds


def move_progress(cursor: Transaction, position: LogPosition, audit_id: int, streams: Sequence[dict[str, Any]]) -> None:
    """Record the position, in the transaction that records the events."""
    parameters = {
        "snapshot_id": position.snapshot_id,
        "ordinal": position.ordinal,
        "audit_id": audit_id,
        "streams": orjson.dumps(streams).decode(),
    }
    cursor.execute(_SQL.move, parameters)


def find_newest_audited(cursor: Transaction, after: int, before: datetime, most: int) -> int:
    """Find the last of the next audit entries from before a time."""
    row = cursor.execute(_SQL.noted, {"after": after, "before": before, "most": most}).fetchone()
    return after if row is None or row[0] is None else int(row[0])


def read_refusals(cursor: Transaction, after: int, upto: int) -> list[RefusalRow]:
    """Read the refusals among these entries."""
    return [RefusalRow(*row) for row in cursor.execute(_SQL.refusals, {"after": after, "upto": upto}).fetchall()]


def read_owners(cursor: Transaction, table_ids: Iterable[int]) -> dict[int, str]:
    """Read the owners of tables, where known, by table id."""
    return dict(cursor.execute(_SQL.owners, {"table_ids": list(table_ids)}).fetchall())


def read_places(cursor: Transaction, table_ids: Iterable[int]) -> dict[int, str]:
    """Read the locations of tables that Iceberg clients have seen, by table id."""
    return dict(cursor.execute(_SQL.places, {"table_ids": list(table_ids)}).fetchall())


def read_sources(cursor: Transaction, uuids: Iterable[str]) -> list[tuple[str, str]]:
    """Read full names and locations of live tables that Iceberg clients have seen, by their UUIDs."""
    rows = cursor.execute(_SQL.sources, {"uuids": list(uuids)}).fetchall()
    return [(to_schema_name((*parse_schema_name(schema), name)), location) for schema, name, location in rows]


def find_named(cursor: Transaction, schema_name: str, name: str, at: int) -> tuple[int, bool] | None:
    """Find the object with the name at a snapshot: its id, and whether it was a view."""
    row = cursor.execute(_SQL.named, {"schema_name": schema_name, "name": name, "at": at}).fetchone()
    return None if row is None else (row[0], row[1])


def read_view(cursor: Transaction, view_id: int, at: int) -> ViewDefinition | None:
    """Read a view's definition at a snapshot."""
    row = cursor.execute(_SQL.view, {"view_id": view_id, "at": at}).fetchone()
    return None if row is None else ViewDefinition(*row)
