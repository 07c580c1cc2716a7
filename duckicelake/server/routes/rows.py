"""Rows of a table: post, delete, and how far a producer has come. Iceberg knows nothing of these routes.

Bodies go to the use case as they are: what rows may look like is the table's to say.
"""

from datetime import datetime
from typing import Annotated, Any, Final, Literal

import orjson
from fastapi import APIRouter, Depends, Header, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from duckicelake.catalog import row_deletes, rows
from duckicelake.catalog.row_deletes import DeletedRows
from duckicelake.catalog.row_upserts import upsert_rows
from duckicelake.catalog.rows import Counted, PostedRows
from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.names import decode_name
from duckicelake.server.bodies import Body
from duckicelake.server.context import AppContext, AppServices, caller_of
from duckicelake.server.endpoints import PREFIX
from duckicelake.server.errors import RESPONSES
from duckicelake.server.idempotency import KeyedServices
from duckicelake.server.paths import NamespacePath, TablePath
from duckicelake.server.routes.tables import TABLE

router = APIRouter(prefix=PREFIX, tags=["rows"], responses=RESPONSES)

ROWS: Final = f"{TABLE}/rows"
LARGEST_SEQUENCE: Final = 2**63 - 1
_ARROW, _JSON, _LINES = "application/vnd.apache.arrow.stream", "application/json", "application/x-ndjson"
_TAKES_ROWS: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            _ARROW: {"schema": {"type": "string", "format": "binary"}},
            _JSON: {"schema": {"type": "array", "items": {"type": "object"}}},
            _LINES: {"schema": {"type": "string", "description": "a JSON object on each line"}},
        },
    }
}

_TAKES_KEYS: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            _JSON: {
                "schema": {
                    "type": "object",
                    "required": ["keys"],
                    "properties": {"keys": {"type": "array", "items": {"type": "object"}}},
                }
            }
        },
    }
}


class RowIds(BaseModel):
    """Row ids that follow each other; `first` is null if there are none."""

    model_config = ConfigDict(frozen=True)

    first: int | None
    count: int


class RowsWritten(BaseModel):
    """Posted rows: the DuckLake snapshot that has them, null if there were none."""

    model_config = ConfigDict(frozen=True)

    snapshot_id: int | None = Field(serialization_alias="snapshot-id")
    rows: int
    row_ids: RowIds = Field(serialization_alias="row-ids")


class RowsDeleted(BaseModel):
    """The DuckLake snapshot in which no row has one of so many keys; null if nothing had to be done."""

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


async def _within_quota(request: Request, context: AppContext) -> None:
    """Answer 429 before the body is read, if the principal has sent too much; then count what it sends."""
    principal = caller_of(request).principal.name
    wait = context.quotas.wait(principal)
    if wait:
        detail = f"You send more rows than this server takes in a second: come again in {wait} s; nothing was done"
        raise HTTPException(429, detail, {"Retry-After": str(wait), "Connection": "close"})
    context.quotas.bytes.spend(principal, len(await request.body()))


WithinQuota = Annotated[None, Depends(_within_quota)]


async def _counted(
    app_id: Annotated[str | None, Query(alias="app-id", description="who counts the batch; takes a sequence")] = None,
    sequence: Annotated[
        int | None,
        Query(ge=0, le=LARGEST_SEQUENCE, description="refused with 409 unless above that of the last batch applied"),
    ] = None,
) -> Counted | None:
    if app_id is None and sequence is None:
        return None
    if app_id is None or sequence is None:
        raise InvalidRequest("app-id and sequence are given together, or neither is")
    return Counted(app_id, sequence)


async def _keys(
    key: Annotated[
        str | None, Query(description="columns that tell rows apart, joined by commas; none: identifier fields")
    ] = None,
) -> tuple[str, ...]:
    return tuple(key.split(",")) if key else ()


@router.post(ROWS, openapi_extra=_TAKES_ROWS, response_model=RowsWritten)
def append_rows(
    _: WithinQuota,
    services: KeyedServices,
    namespace: NamespacePath,
    table: TablePath,
    body: Body,
    counted: Annotated[Counted | None, Depends(_counted)],
    content_type: Annotated[str, Header(include_in_schema=False)] = "",
    on_unknown: Annotated[
        Literal["reject", "ignore"], Query(alias="on-unknown", description="columns that the table doesn't have")
    ] = "reject",
    mode: Annotated[
        Literal["append", "upsert"], Query(description="upsert: rows with the same keys give way to these")
    ] = "append",
    keys: Annotated[tuple[str, ...], Depends(_keys)] = (),
) -> Response:
    """Insert rows, all of them or none; small batches become rows in Postgres, larger ones files."""
    posted = PostedRows(namespace, table, body, content_type, on_unknown, counted)
    answer = upsert_rows(services, posted, keys) if mode == "upsert" else rows.append_rows(services, posted)
    return Response(orjson.dumps(answer.as_json()), media_type="application/json")


@router.delete(ROWS, openapi_extra=_TAKES_KEYS, response_model=RowsDeleted)
def delete_rows(
    _: WithinQuota,
    services: KeyedServices,
    namespace: NamespacePath,
    table: TablePath,
    body: Body,
    keys: Annotated[tuple[str, ...], Depends(_keys)] = (),
) -> Response:
    """Delete the rows that have these keys."""
    answer = row_deletes.delete_rows(services, DeletedRows(namespace, table, body, keys))
    return Response(orjson.dumps(answer.as_json()), media_type="application/json")


@router.get(f"{ROWS}/producers/{{app_id}}")
def load_producer(services: AppServices, namespace: NamespacePath, table: TablePath, app_id: str) -> ProducerAnswer:
    """Tell how far a producer has come, so that it goes on from there."""
    name = Counted(decode_name(app_id), 0).app_id
    found = rows.last_applied(services, namespace, table, name)
    if found is None:
        return ProducerAnswer(app_id=name)
    return ProducerAnswer(app_id=name, sequence=found.sequence, snapshot_id=found.snapshot_id, applied=found.applied)
