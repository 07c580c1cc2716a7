"""Rows that are posted to a table: the route that is asked more often than any other that writes."""

from typing import Annotated, Any, Final, Literal, Self

import orjson
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.concurrency import run_in_threadpool

from duckicelake.catalog.rows.groups import prepared_to_join
from duckicelake.catalog.rows.inserts import Counted, PostedRows, RowsAnswer
from duckicelake.catalog.rows.inserts import append_rows as append
from duckicelake.catalog.rows.upserts import upsert_rows
from duckicelake.catalog.services import Services
from duckicelake.errors import InvalidRequest
from duckicelake.server.context import AppContext
from duckicelake.server.endpoints import PREFIX
from duckicelake.server.errors import RESPONSES
from duckicelake.server.idempotency import KeyedServices
from duckicelake.server.limits.bodies import Body, WithinQuota
from duckicelake.server.own_routes import QuickOwnRoute
from duckicelake.server.paths import NamespacePath, TablePath
from duckicelake.server.routes.tables import TABLE

router = APIRouter(prefix=PREFIX, tags=["rows"], responses=RESPONSES, route_class=QuickOwnRoute)

ROWS: Final = f"{TABLE}/rows"
KEY: Final = "columns that tell rows apart, joined by commas; none: identifier fields"
LARGEST_SEQUENCE: Final = 2**63 - 1


class KeysQuery(BaseModel):
    """What the query says of keys."""

    model_config = ConfigDict(frozen=True)

    key: str | None = Field(None, description=KEY)

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that it names."""
        return tuple(self.key.split(",")) if self.key else ()


class RowsQuery(KeysQuery):
    """What the query says of the rows."""

    on_unknown: Literal["reject", "ignore"] = Field(
        "reject", alias="on-unknown", description="columns that the table doesn't have"
    )
    mode: Literal["append", "upsert"] = Field("append", description="upsert: rows with the same keys give way to these")
    app_id: str | None = Field(None, alias="app-id", description="who counts the batch; takes a sequence")
    sequence: int | None = Field(
        None, ge=0, le=LARGEST_SEQUENCE, description="refused with 409 unless above that of the last batch applied"
    )

    @model_validator(mode="after")
    def _has_keys_to_upsert(self) -> Self:
        if self.key is not None and self.mode == "append":
            raise ValueError("key goes with mode=upsert: no rows give way to those that are appended")
        return self

    def counted(self) -> Counted | None:
        if self.app_id is None and self.sequence is None:
            return None
        if self.app_id is None or self.sequence is None:
            raise InvalidRequest("app-id and sequence are given together, or neither is")
        return Counted(self.app_id, self.sequence)


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


_DESCRIBED: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/vnd.apache.arrow.stream": {"schema": {"type": "string", "format": "binary"}},
            "application/json": {"schema": {"type": "array", "items": {"type": "object"}}},
            "application/x-ndjson": {"schema": {"type": "string", "description": "a JSON object on each line"}},
        },
    },
}


@router.post(ROWS, openapi_extra=_DESCRIBED, response_model=RowsWritten)
async def append_rows(
    _: WithinQuota,
    request: Request,
    context: AppContext,
    services: KeyedServices,
    namespace: NamespacePath,
    table: TablePath,
    query: Annotated[RowsQuery, Query()],
    body: Body,
) -> Response:
    """Insert rows, all of them or none; small batches become rows in Postgres, larger ones files."""
    kind = request.headers.get("content-type", "")
    posted = PostedRows(namespace, table, body, kind, query.on_unknown, query.counted())
    prepared = prepared_to_join(services, posted) if query.mode == "append" else None
    written = await context.rows.do(prepared) if prepared is not None else None
    if written is None:
        written = await run_in_threadpool(_write, services, posted, query)
    return Response(orjson.dumps(written.as_json()), media_type="application/json")


def _write(services: Services, posted: PostedRows, query: RowsQuery) -> RowsAnswer:
    is_upsert = query.mode == "upsert"
    return upsert_rows(services, posted, query.keys) if is_upsert else append(services, posted)
