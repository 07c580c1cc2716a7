"""Routes of rows: append, upsert, delete, flush, producers."""

import asyncio
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any, Final, Literal, Self

import orjson
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.concurrency import run_in_threadpool

from duckicelake.catalog.authz.commit_rights import check_rows
from duckicelake.catalog.context.commit_queue import QueuedRows
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.flush import flush_rows
from duckicelake.catalog.rows import deletes as row_deletes
from duckicelake.catalog.rows import inserts as rows
from duckicelake.catalog.rows.branch_append import append_to_branch
from duckicelake.catalog.rows.deletes import DeleteRequest
from duckicelake.catalog.rows.inserts import PostedRows, RowsAnswer, enqueue_rows, find_answer, prepare_to_join
from duckicelake.catalog.rows.inserts import append_rows as append
from duckicelake.catalog.rows.upserts import upsert_rows
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.identifiers import decode_name
from duckicelake.iceberg.snapshot import MAIN
from duckicelake.lake.txn import TxnId, check_app_id
from duckicelake.server.http.errors import RESPONSES
from duckicelake.server.http.route import StrictFastRoute, StrictRoute
from duckicelake.server.http.scope import PREFIX
from duckicelake.server.routes.dependencies import (
    AppServices,
    Body,
    KeyedServices,
    NamespacePath,
    TablePath,
    WithinQuota,
)
from duckicelake.server.routes.tables import TABLE

row_post_router = APIRouter(prefix=PREFIX, tags=["rows"], responses=RESPONSES, route_class=StrictFastRoute)
ROWS: Final = f"{TABLE}/rows"
KEY_DESCRIPTION: Final = "key columns, joined by commas; none: identifier fields"
MAX_SEQUENCE: Final = 2**63 - 1
_APPEND_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/vnd.apache.arrow.stream": {"schema": {"type": "string", "format": "binary"}},
            "application/json": {"schema": {"type": "array", "items": {"type": "object"}}},
            "application/x-ndjson": {"schema": {"type": "string", "description": "a JSON object on each line"}},
        },
    },
}
row_router = APIRouter(prefix=PREFIX, tags=["rows"], responses=RESPONSES, route_class=StrictRoute)
_DELETE_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "keys": {"type": "array", "items": {"type": "object"}},
                        "filter": {"description": "in their place: an expression, as in the REST specification"},
                    },
                    "minProperties": 1,
                    "maxProperties": 1,
                }
            }
        },
    }
}
flush_router = APIRouter(prefix="/v1", tags=["rows"], responses=RESPONSES, route_class=StrictRoute)


class KeysQuery(BaseModel):
    """The query's key columns."""

    model_config = ConfigDict(frozen=True)

    key: str | None = Field(None, description=KEY_DESCRIPTION)

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns."""
        return tuple(self.key.split(",")) if self.key else ()


class RowsQuery(KeysQuery):
    """The query's parameters for posted rows."""

    on_unknown: Literal["reject", "ignore"] = Field(
        "reject", alias="on-unknown", description="columns that the table doesn't have"
    )
    mode: Literal["append", "upsert"] = Field("append", description="upsert: rows with the same keys give way to these")
    app_id: str | None = Field(None, alias="app-id", description="who counts the batch; takes a sequence")
    sequence: int | None = Field(
        None, ge=0, le=MAX_SEQUENCE, description="refused with 409 unless above that of the last batch applied"
    )

    branch: str | None = Field(None, min_length=1, max_length=1000, description="append to this branch, not to main")

    @model_validator(mode="after")
    def _has_no_other_mode_on_a_branch(self) -> Self:
        is_plain = self.mode == "append" and self.app_id is None and self.sequence is None
        if self.branch is not None and not is_plain:
            raise ValueError("branch goes with mode=append, and without app-id and sequence")
        return self

    @model_validator(mode="after")
    def _has_keys_to_upsert(self) -> Self:
        if self.key is not None and self.mode == "append":
            raise ValueError("key goes with mode=upsert: no rows give way to those that are appended")
        return self

    def parse_txn(self) -> TxnId | None:
        if self.app_id is None and self.sequence is None:
            return None
        if self.app_id is None or self.sequence is None:
            raise InvalidRequestError("app-id and sequence are given together, or neither is")
        return TxnId(check_app_id(self.app_id, "app-id"), self.sequence)


class RowIds(BaseModel):
    """Row ids that follow each other; `first` is null if there are none."""

    model_config = ConfigDict(frozen=True)

    first: int | None
    count: int


class RowsWritten(BaseModel):
    """Posted rows: the snapshot that has them, DuckLake's or of a branch Iceberg's; null if there were none."""

    model_config = ConfigDict(frozen=True)

    snapshot_id: int | None = Field(serialization_alias="snapshot-id")
    rows: int
    row_ids: RowIds = Field(serialization_alias="row-ids")


@row_post_router.post(ROWS, openapi_extra=_APPEND_BODY, response_model=RowsWritten)
async def append_rows(
    _: WithinQuota,
    request: Request,
    services: KeyedServices,
    namespace: NamespacePath,
    table: TablePath,
    query: Annotated[RowsQuery, Query()],
    body: Body,
) -> Response:
    """Insert rows, all of them or none; small batches become rows in Postgres, larger ones files."""
    check_rows(services.caller.principal, namespace, table, is_upsert=query.mode == "upsert")
    kind = request.headers.get("content-type", "")
    posted = PostedRows(namespace, table, body, kind, query.on_unknown, query.parse_txn())
    may_join = query.mode == "append" and query.branch is None
    prepared = prepare_to_join(services, posted) if may_join else None
    written = await _write_with_others(services, prepared) if prepared is not None else None
    if written is None:
        written = await run_in_threadpool(_write, services, posted, query)
    return Response(orjson.dumps(written.as_json()), media_type="application/json")


async def _write_with_others(services: Services, prepared: QueuedRows) -> RowsAnswer | None:
    """Wait without a thread until the rows are written; None if they are to be written by themselves."""
    loop, is_done = asyncio.get_running_loop(), asyncio.Event()

    def finish() -> None:
        with suppress(RuntimeError):  # a closed loop has no requests that wait
            loop.call_soon_threadsafe(is_done.set)

    enqueue_rows(services, prepared, finish)
    await is_done.wait()
    return find_answer(prepared)


def _write(services: Services, posted: PostedRows, query: RowsQuery) -> RowsAnswer:
    if query.branch is not None and query.branch != MAIN:
        return append_to_branch(services, posted, query.branch)
    is_upsert = query.mode == "upsert"
    return upsert_rows(services, posted, query.keys) if is_upsert else append(services, posted)


class RowsDeleted(BaseModel):
    """The DuckLake snapshot in which no row has one of so many keys; null if nothing had to be done.

    The keys of a filter are the different values that its columns had where it held.
    """

    model_config = ConfigDict(frozen=True)

    snapshot_id: int | None = Field(serialization_alias="snapshot-id")
    keys: int


class ProducerAnswer(BaseModel):
    """The last batch of a producer that is there; nulls before the first one."""

    model_config = ConfigDict(frozen=True)

    app_id: str = Field(serialization_alias="app-id")
    sequence: int | None = None
    snapshot_id: int | None = Field(default=None, serialization_alias="snapshot-id")
    applied: datetime | None = None


@row_router.delete(ROWS, openapi_extra=_DELETE_BODY, response_model=RowsDeleted)
def delete_rows(
    _: WithinQuota,
    services: KeyedServices,
    namespace: NamespacePath,
    table: TablePath,
    query: Annotated[KeysQuery, Query()],
    body: Body,
) -> Response:
    """Delete the rows that have these keys, or for which the filter is true."""
    answer = row_deletes.delete_rows(services, DeleteRequest(namespace, table, body, query.keys))
    return Response(orjson.dumps(answer.as_json()), media_type="application/json")


@row_router.get(f"{ROWS}/producers/{{app_id}}")
def load_producer(services: AppServices, namespace: NamespacePath, table: TablePath, app_id: str) -> ProducerAnswer:
    """Load the last batch of a producer, after which it goes on."""
    name = check_app_id(decode_name(app_id), "app-id")
    found = rows.read_last_applied(services, namespace, table, name)
    if found is None:
        return ProducerAnswer(app_id=name)
    return ProducerAnswer(app_id=name, sequence=found.version, snapshot_id=found.snapshot_id, applied=found.applied)


class FlushAnswer(BaseModel):
    """What became of inlined rows. rows: versions of rows; snapshot_id: DuckLake's, None if nothing was inlined."""

    model_config = ConfigDict(frozen=True)

    files: int
    rows: int
    deletes: int
    snapshot_id: int | None = Field(serialization_alias="snapshot-id")


@flush_router.post("/namespaces/{namespace}/tables/{table}/rows/flush")
def flush_table_rows(services: KeyedServices, namespace: NamespacePath, table: TablePath) -> FlushAnswer:
    """Write the rows that the table keeps in Postgres to data files, sorted and partitioned, with all history."""
    flushed = flush_rows(services, namespace, table)
    return FlushAnswer(files=flushed.files, rows=flushed.rows, deletes=flushed.deletes, snapshot_id=flushed.snapshot_id)
