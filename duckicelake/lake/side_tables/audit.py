"""The audit trail: who asked for what, when, from where, with which result."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from duckicelake.errors import InvalidRequestError
from duckicelake.postgres.database import Database
from duckicelake.postgres.pipeline import json_param
from duckicelake.postgres.queries import Transaction, load_queries

OK_RESULT: Final = "ok"
UNCHANGED_RESULT: Final = "unchanged"
"""The result of a request that found the catalog as it wanted it."""

_SQL = load_queries("lake", "audit")
PRUNE_ROWS: Final = 10_000


@dataclass(frozen=True, slots=True)
class RequestOrigin:
    """A request: its principal and address, its operation, and what it said of the client that sent it."""

    principal: str
    address: str
    request_id: str
    operation: str
    client: Mapping[str, str] = field(default_factory=dict)

    @property
    def engine(self) -> str:
        """What it calls itself: `PyIceberg/0.12.0`; empty if it doesn't."""
        return self.client.get("engine") or self.client.get("user-agent", "").partition(" ")[0]


@dataclass(frozen=True, slots=True)
class AuditedResource:
    """A namespace, table or view that a request is about. table_id: whose own snapshot is meant, else the newest.

    snapshot_id: the very one, where the transaction makes several of that table. detail: JSON, what else is worth
    knowing; `to` is the new name of what was renamed.
    """

    resource: str
    table_id: int | None = None
    detail: dict[str, Any] | None = None
    snapshot_id: int | None = None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A row of the trail, with its id if it is in the table. result: ok, unchanged, or an error's type and status."""

    id: int | None
    at: datetime
    principal: str
    address: str
    request_id: str
    operation: str
    resource: str
    result: str
    snapshot_id: int | None
    detail: Any = None
    client: Any = None


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which entries to read; None: any. resource: with all that lies in it. result: or its first word.

    Between two ids, neither of them included: after and before.
    """

    after: int = 0
    since: datetime | None = None
    principal: str | None = None
    resource: str | None = None
    operation: str | None = None
    result: str | None = None
    before: int | None = None


def record_entries(
    cursor: Transaction,
    origin: RequestOrigin,
    touched: Sequence[AuditedResource],
    result: str = OK_RESULT,
    *,
    is_change: bool = True,
) -> Callable[[], list[AuditEntry]]:
    """Add an entry for each resource, as the last step of the transaction that changes it; both commit or neither.

    The transaction's snapshots are signed: DuckLake's author and message say who made them and by what. The returned
    function gives the entries once the transaction is over, so that a pipeline has no wait for them. is_change: whether
    a good result means that something has changed.
    """
    origins = [origin] * len(touched)
    signature = build_signature(origins)
    parameters = {
        "changed": _encode_changed(origins, touched),
        "result": result,
        "is_change": is_change and result == OK_RESULT,
        "author": signature.author,
        "message": signature.message,
        "engine": signature.engine,
    }
    recorded = cursor.connection.cursor().execute(_SQL.record, parameters)
    return _defer_entries(recorded, origins, touched, result)


def record_signed_entries(
    cursor: Transaction, origins: Sequence[RequestOrigin], touched: Sequence[AuditedResource]
) -> Callable[[], list[AuditEntry]]:
    """Add entries for changes whose snapshots are known and were signed (`build_signature`) when they were made."""
    parameters = {"changed": _encode_changed(origins, touched), "result": OK_RESULT}
    recorded = cursor.connection.cursor().execute(_SQL.record_signed, parameters)
    return _defer_entries(recorded, origins, touched, OK_RESULT)


@dataclass(frozen=True, slots=True)
class SnapshotSignature:
    """Who made a snapshot. engine: the names that the engines gave themselves, if any."""

    author: str
    message: str | None
    engine: str | None


def build_signature(origins: Sequence[RequestOrigin]) -> SnapshotSignature:
    """Build the signature of a snapshot which these requests made together."""
    principals = dict.fromkeys(origin.principal for origin in origins)
    operations = dict.fromkeys(origin.operation for origin in origins if origin.operation)
    engines = dict.fromkeys(origin.engine for origin in origins if origin.engine)
    named = [", ".join(words) for words in (operations, engines) if words]
    return SnapshotSignature(", ".join(principals), " by ".join(named) or None, ", ".join(engines) or None)


def _encode_changed(origins: Sequence[RequestOrigin], touched: Sequence[AuditedResource]) -> str:
    return json_param([_build_changed(*pair) for pair in zip(origins, touched, strict=True)])


def _defer_entries(
    recorded: Transaction, origins: Sequence[RequestOrigin], touched: Sequence[AuditedResource], result: str
) -> Callable[[], list[AuditEntry]]:
    def build_entries() -> list[AuditEntry]:
        rows = recorded.fetchall()
        return [
            _build_entry(own, origin, result, *row) for own, origin, row in zip(origins, touched, rows, strict=True)
        ]

    return build_entries


def _build_entry(
    origin: RequestOrigin, touched: AuditedResource, result: str, id_: int, at: datetime, snapshot_id: int | None
) -> AuditEntry:
    return AuditEntry(
        id=id_,
        at=at,
        principal=origin.principal,
        address=origin.address,
        request_id=origin.request_id,
        operation=origin.operation,
        resource=touched.resource,
        result=result,
        snapshot_id=snapshot_id,
        detail=touched.detail,
        client=origin.client or None,
    )


def _build_changed(origin: RequestOrigin, touched: AuditedResource) -> dict[str, Any]:
    return {
        "principal": origin.principal,
        "address": origin.address,
        "request_id": origin.request_id,
        "operation": origin.operation,
        "resource": touched.resource,
        "table_id": touched.table_id,
        "snapshot_id": touched.snapshot_id,
        "detail": touched.detail,
        "client": origin.client or None,
    }


def read_entries(cursor: Transaction, wanted: AuditFilter, limit: int) -> list[AuditEntry]:
    """Read the newest entries that the filter wants, the oldest of them first."""
    parameters = {
        "after": wanted.after,
        "before": wanted.before,
        "since": wanted.since,
        "principal": wanted.principal,
        "resource": wanted.resource,
        "operation": wanted.operation,
        "result": wanted.result,
        "limit": limit,
    }
    return [AuditEntry(*row) for row in reversed(cursor.execute(_SQL.entries, parameters).fetchall())]


def check_resource(cursor: Transaction, resource: str | None) -> None:
    """Raise InvalidRequestError if neither the trail nor DuckLake, ended rows included, has ever had it."""
    if resource is None or cursor.execute(_SQL.is_known, {"resource": resource}).fetchall()[0][0]:
        return
    raise InvalidRequestError(
        f"{resource} is no namespace, table or view of this lake, nor was it one as far as the audit trail goes: "
        "write it as `namespace` or `namespace.name`, with a dot inside a name as %2E"
    )


def prune_entries(database: Database, before: datetime, batch: int = PRUNE_ROWS) -> int:
    """Delete older entries, `batch` rows in a transaction so that no lock lasts; return how many went."""
    return database.prune(_SQL.prune, before, batch)
