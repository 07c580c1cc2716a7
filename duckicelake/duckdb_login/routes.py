"""The routes that make a login for DuckDB, and end it before its time."""

from datetime import datetime
from typing import Annotated, Final

from fastapi import APIRouter, Query, Response
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from duckicelake.duckdb_login.attachment import Attachment, close_attachment, open_attachment
from duckicelake.duckdb_login.service import find_options
from duckicelake.iceberg.identifiers import check_namespace
from duckicelake.iceberg.model import SpecModel
from duckicelake.server.auth.permissions import AnyToken
from duckicelake.server.hooks import FeatureRoutes
from duckicelake.server.http.errors import RESPONSES, parse_body
from duckicelake.server.http.route import StrictRequest, StrictRoute
from duckicelake.server.routes.dependencies import AppServices, Body, describe_body

_ROOT: Final = "/duckdb/v1/logins"
_LoginName = Annotated[str, Query(min_length=1, max_length=63)]
router = APIRouter(tags=["duckdb"], responses=RESPONSES, route_class=StrictRoute)


class DuckdbLoginRequest(StrictRequest):
    """A login to make. namespaces: which it is for, each with all below it; none: all that the caller may read."""

    namespaces: Annotated[tuple[tuple[str, ...], ...], Field(max_length=100)] = ()


class DuckdbLoginAnswer(SpecModel):
    """A login, with its password in the statements; it is answered this once. uncovered: what no key reaches."""

    login: str
    expires_at: datetime
    keys_expire_at: datetime | None = None
    statements: tuple[str, ...]
    uncovered: tuple[str, ...]


@router.post(_ROOT, openapi_extra=describe_body(DuckdbLoginRequest), response_model=DuckdbLoginAnswer)
async def open_duckdb_login(services: AppServices, body: Body) -> Response:
    """Make a login to Postgres by which DuckDB reads what the caller may read, and keys for those folders of files."""
    parsed = parse_body(DuckdbLoginRequest, body)
    namespaces = [check_namespace(namespace) for namespace in parsed.namespaces]
    made = await run_in_threadpool(open_attachment, services, find_options(services), namespaces)
    text = _build_answer(made).model_dump_json(by_alias=True)
    return Response(text, media_type="application/json", headers={"Cache-Control": "no-store"})


@router.delete(_ROOT, status_code=204)
async def close_duckdb_login(services: AppServices, login: _LoginName) -> Response:
    """End a login of the caller's: its sessions end, its role is dropped."""
    await run_in_threadpool(close_attachment, services, login)
    return Response(status_code=204)


def _build_answer(made: Attachment) -> DuckdbLoginAnswer:
    return DuckdbLoginAnswer(
        login=made.login.name,
        expires_at=made.login.expires_at,
        keys_expire_at=made.keys_expire_at,
        statements=made.statements,
        uncovered=made.uncovered,
    )


ROUTES: Final = FeatureRoutes(
    (router,),
    {("POST", _ROOT): AnyToken(), ("DELETE", _ROOT): AnyToken()},
    (DuckdbLoginRequest,),
)
