"""Rows of a table: delete, and how far a producer has come; `row_posts` takes new ones. Iceberg has no such routes.

Bodies go to the use case as they are: what rows may look like is the table's to say.
"""

from datetime import datetime
from typing import Annotated, Any, Final

import orjson
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from duckicelake.catalog.rows import deletes as row_deletes
from duckicelake.catalog.rows import inserts as rows
from duckicelake.catalog.rows.deletes import DeletedRows
from duckicelake.catalog.rows.inserts import Counted
from duckicelake.iceberg.names import decode_name
from duckicelake.server.context import AppServices
from duckicelake.server.endpoints import PREFIX
from duckicelake.server.errors import RESPONSES
from duckicelake.server.idempotency import KeyedServices
from duckicelake.server.limits.bodies import Body, WithinQuota
from duckicelake.server.own_routes import OwnRoute
from duckicelake.server.paths import NamespacePath, TablePath
from duckicelake.server.routes.row_posts import ROWS, KeysQuery

router = APIRouter(prefix=PREFIX, tags=["rows"], responses=RESPONSES, route_class=OwnRoute)

_TAKES_DELETION: Final[dict[str, Any]] = {
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


@router.delete(ROWS, openapi_extra=_TAKES_DELETION, response_model=RowsDeleted)
def delete_rows(
    _: WithinQuota,
    services: KeyedServices,
    namespace: NamespacePath,
    table: TablePath,
    query: Annotated[KeysQuery, Query()],
    body: Body,
) -> Response:
    """Delete the rows that have these keys, or for which the filter is true."""
    answer = row_deletes.delete_rows(services, DeletedRows(namespace, table, body, query.keys))
    return Response(orjson.dumps(answer.as_json()), media_type="application/json")


@router.get(f"{ROWS}/producers/{{app_id}}")
def load_producer(services: AppServices, namespace: NamespacePath, table: TablePath, app_id: str) -> ProducerAnswer:
    """Tell how far a producer has come, so that it goes on from there."""
    name = Counted(decode_name(app_id), 0).app_id
    found = rows.last_applied(services, namespace, table, name)
    if found is None:
        return ProducerAnswer(app_id=name)
    return ProducerAnswer(app_id=name, sequence=found.sequence, snapshot_id=found.snapshot_id, applied=found.applied)
