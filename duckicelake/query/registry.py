"""Queries that run: their rows in Postgres, by which any worker of the server lists them and cancels them."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from anyio.to_thread import run_sync

from duckicelake.catalog.context.services import Services
from duckicelake.errors import CatalogError, ConflictError, NotFoundError
from duckicelake.iceberg.model import SpecModel
from duckicelake.postgres.queries import load_queries
from duckicelake.query.pool import ProcessTurn
from duckicelake.query.processes import QueryProgress

_SQL = load_queries("query", "registry")
REPORT_SECONDS: Final = 0.5
"""Seconds between two reports of a query, so also until another worker's wish to cancel it is seen."""
_INTERRUPTS: Final = 10
_INTERRUPT_SECONDS: Final = 0.1
_MAX_STATEMENT_CHARACTERS: Final = 1000
_writes: Final[set[asyncio.Task[None]]] = set()
"""The last reports of queries, until they are written."""


class QueryStatus(SpecModel):
    """A query, as its principal sees it.

    Attributes:
        state: running, done, failed, cancelled, or lost with the process that ran it.
        progress: from 0 to 1; left out while DuckDB can't say.
        rows: of the answer, as far as it is computed.

    """

    query_id: UUID
    principal: str
    statement: str
    state: str
    progress: float | None = None
    rows: int
    started: datetime
    seconds: float


class QueryList(SpecModel):
    """The newest queries, at most a thousand of the last ten minutes."""

    queries: tuple[QueryStatus, ...]


@dataclass(slots=True)
class RunningQuery:
    """A query, and the turn that it has. last: how far it came, once another query may have the process."""

    services: Services
    query_id: UUID
    turn: ProcessTurn
    state: str = "running"
    last: QueryProgress | None = None

    async def cancel(self) -> None:
        """End it, so that who waits for the answer gets an error; kill its process if it takes no notice."""
        self.state = "cancelled"
        for _ in range(_INTERRUPTS):
            self.turn.process.interrupt()
            await asyncio.sleep(_INTERRUPT_SECONDS)
        self.turn.process.kill()

    def report(self) -> bool:
        """Write how far it is; return whether it was cancelled."""
        progress = self.last or self.turn.process.progress
        row = {
            "query_id": self.query_id,
            "state": self.state,
            "progress": 1.0 if self.state == "done" else progress.share,
            "rows": progress.rows,
        }
        with self.services.database.statement() as cursor:
            found = cursor.execute(_SQL.report, row).fetchone()
        return found == (True,)


@asynccontextmanager
async def run_reported(services: Services, query_id: UUID, statement: str, turn: ProcessTurn) -> AsyncIterator[None]:
    """Report a query for as long as the block runs it, and end it when it is cancelled.

    Raises ConflictError for an id that another query has, and when the query is cancelled.
    """
    await run_sync(_insert, services, query_id, statement)
    running = RunningQuery(services, query_id, turn)
    watching = asyncio.create_task(_watch(running))
    try:
        yield
    except BaseException as error:
        if running.state == "cancelled" and isinstance(error, CatalogError):
            raise ConflictError(f"Query {query_id} was cancelled") from error
        running.state = "failed"
        raise
    else:
        running.state = "done"
    finally:
        watching.cancel()
        running.last = turn.process.progress
        last = asyncio.create_task(_write_last(running))
        _writes.add(last)
        last.add_done_callback(_writes.discard)


async def _watch(running: RunningQuery) -> None:
    while True:
        await asyncio.sleep(REPORT_SECONDS)
        with suppress(CatalogError):  # a query goes on while Postgres doesn't answer
            if await run_sync(running.report, abandon_on_cancel=True):
                await running.cancel()
                return


async def _write_last(running: RunningQuery) -> None:
    with suppress(CatalogError):
        await run_sync(running.report)


def _insert(services: Services, query_id: UUID, statement: str) -> None:
    row = {"query_id": query_id, "statement": statement[:_MAX_STATEMENT_CHARACTERS], **_describe_owner(services)}
    with services.database.statement() as cursor:
        if cursor.execute(_SQL.insert, row).fetchone() is None:
            raise ConflictError(f"Another query has the id {query_id}: choose another, or leave it out")


def list_queries(services: Services, query_id: UUID | None = None) -> tuple[QueryStatus, ...]:
    """List the caller's queries, or all for an administrator; the newest first."""
    with services.database.statement(only_reads=True) as cursor:
        rows = cursor.execute(_SQL.list_newest, {"query_id": query_id, **_describe_owner(services)}).fetchall()
    return tuple(QueryStatus(**dict(zip(QueryStatus.model_fields, row, strict=True))) for row in rows)


def find_query(services: Services, query_id: UUID) -> QueryStatus:
    """Find a query. Raises NotFoundError."""
    for found in list_queries(services, query_id):
        return found
    raise _build_absence(query_id)


def cancel_query(services: Services, query_id: UUID) -> None:
    """Have a query ended by the worker that runs it, within a second. Raises NotFoundError."""
    with services.database.statement() as cursor:
        if cursor.execute(_SQL.cancel, {"query_id": query_id, **_describe_owner(services)}).fetchone() is None:
            raise _build_absence(query_id)


def _describe_owner(services: Services) -> Mapping[str, Any]:
    principal = services.caller.principal
    return {
        "principal": principal.name,
        "principal_id": principal.principal_id,
        "sees_all": principal.may_administer(),
    }


def _build_absence(query_id: UUID) -> NotFoundError:
    return NotFoundError(f"Query {query_id} not found, or owned by another principal")
