"""Routes of what was dropped: list it, bring it back, let it go."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field, model_validator

from duckicelake.catalog import dropped
from duckicelake.catalog.dropped import UndropRequest
from duckicelake.iceberg.identifiers import TableNameField, parse_schema_name
from duckicelake.iceberg.model import SpecModel
from duckicelake.server.http.errors import RESPONSES, parse_body
from duckicelake.server.http.route import StrictRequest, StrictRoute
from duckicelake.server.http.scope import PREFIX
from duckicelake.server.routes.dependencies import (
    AppServices,
    Body,
    KeyedServices,
    NamespacePath,
    PageQuery,
    describe_body,
)

router = APIRouter(prefix=PREFIX, tags=["dropped"], responses=RESPONSES, route_class=StrictRoute)
Kind = Literal["table", "view", "namespace"]


class DroppedItem(SpecModel):
    """What can be brought back. purge_requested: its files go after `kept-until`; name: null of a namespace."""

    kind: Kind
    id: int
    uuid: str
    namespace: tuple[str, ...]
    name: str | None = None
    dropped_at: datetime
    kept_until: datetime
    ducklake_snapshot_id: int
    purge_requested: bool


class DroppedList(SpecModel):
    """One page of what can be brought back, newest first."""

    dropped: tuple[DroppedItem, ...]
    next_page_token: str | None = None


class UndropBody(StrictRequest):
    """What to bring back. name: of a table or view; id: which of several; new_name: under which it comes back."""

    kind: Kind = "table"
    name: TableNameField | None = None
    id: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    new_name: TableNameField | None = None

    @model_validator(mode="after")
    def _check_names(self) -> "UndropBody":
        if self.kind != "namespace" and self.name is None:
            raise ValueError(f"name is missing: say which {self.kind} of the namespace comes back")
        if self.kind == "namespace" and (self.name, self.new_name) != (None, None):
            raise ValueError("name and new-name are of tables and views: a namespace comes back under the path's name")
        return self


class UndropAnswer(SpecModel):
    """What came back, in which DuckLake snapshot; a namespace with so many tables and views."""

    kind: Kind
    namespace: tuple[str, ...]
    name: str | None = None
    ducklake_snapshot_id: int
    tables: int
    views: int


@router.get("/dropped")
def list_dropped(
    services: AppServices,
    page: PageQuery,
    namespace: Annotated[str | None, Query(description="only what is in this namespace or below it")] = None,
) -> DroppedList:
    """List what was dropped and can be brought back, of what the caller may read: newest first."""
    found = dropped.list_dropped(services, None if namespace is None else parse_schema_name(namespace), page)
    return DroppedList(
        dropped=tuple(
            DroppedItem(
                kind=item.kind,
                id=item.object_id,
                uuid=item.uuid,
                namespace=parse_schema_name(item.schema_name),
                name=item.name,
                dropped_at=item.dropped_at,
                kept_until=item.kept_until,
                ducklake_snapshot_id=item.snapshot_id,
                purge_requested=item.is_purged,
            )
            for item in found.items
        ),
        next_page_token=found.next_token,
    )


@router.post("/namespaces/{namespace}/undrop", openapi_extra=describe_body(UndropBody))
def undrop(services: KeyedServices, namespace: NamespacePath, body: Body) -> UndropAnswer:
    """Bring back a table or view with its history, or a namespace with all that was dropped with it."""
    request = parse_body(UndropBody, body)
    done = dropped.undrop(services, UndropRequest(request.kind, namespace, request.name, request.id, request.new_name))
    return UndropAnswer(
        kind=done.kind,
        namespace=parse_schema_name(done.namespace),
        name=done.name,
        ducklake_snapshot_id=done.snapshot_id,
        tables=done.tables,
        views=done.views,
    )


@router.delete("/dropped/{kind}/{object_id}", status_code=204)
def forget_dropped(services: KeyedServices, kind: Kind, object_id: Annotated[int, Path(ge=0, lt=2**63)]) -> Response:
    """Let something go at once that could be brought back; if a purge was asked for, it is done now."""
    dropped.forget_dropped(services, kind, object_id)
    return Response(status_code=204)
