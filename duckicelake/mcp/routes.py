"""The route of the catalog that `duckicelake mcp` needs: the audit trail of its calls."""

import time
from dataclasses import replace
from typing import Annotated, Any, Final

import orjson
from fastapi import APIRouter, Response
from fastapi.exceptions import HTTPException
from pydantic import Field

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.identifiers import format_full_name
from duckicelake.lake.side_tables.audit import AuditedResource
from duckicelake.server.auth.permissions import AnyToken
from duckicelake.server.hooks import FeatureRoutes
from duckicelake.server.http.errors import RESPONSES, parse_body
from duckicelake.server.http.route import StrictRequest, StrictRoute
from duckicelake.server.middleware.quotas import Quota
from duckicelake.server.routes.dependencies import AppServices, Body, describe_body

CALLS_PATH: Final = "/mcp/v1/calls"
MAX_ARGUMENT_BYTES: Final = 4096
"""Of a call's arguments, as JSON, in the audit trail."""
_CALLS_PER_SECOND: Final = 10.0
"""Of each principal in a worker, on average over ten seconds: so fast the audit trail grows by who may only read."""
_calls: Final = Quota(_CALLS_PER_SECOND, time.monotonic, burst=10.0)
router = APIRouter(tags=["mcp"], responses=RESPONSES, route_class=StrictRoute)
_Level = Annotated[str, Field(min_length=1, max_length=1000)]


class AgentCall(StrictRequest):
    """A call of a tool by an agent, whose name is the request's `X-Engine`.

    Attributes:
        object: the table, view or namespace that the call names, level by level; empty: none.
        outcome: `ok`, or the code of an error.
        arguments: what the agent gave the tool, at most 4 KiB of JSON.

    """

    tool: Annotated[str, Field(pattern=r"^[a-z_]{1,40}$")]
    object: Annotated[tuple[_Level, ...], Field(max_length=50)] = ()
    outcome: Annotated[str, Field(pattern=r"^[a-z_]{1,40}$")] = "ok"
    arguments: dict[str, Any] = Field(default_factory=dict)


@router.post(CALLS_PATH, status_code=204, openapi_extra=describe_body(AgentCall))
def record_agent_call(services: AppServices, body: Body) -> Response:
    """Record a call of a tool in the audit trail, as the operation `mcp:<tool>` of this caller."""
    call = parse_body(AgentCall, body)
    if len(orjson.dumps(call.arguments)) > MAX_ARGUMENT_BYTES:
        raise InvalidRequestError(f"The arguments of a call may have {MAX_ARGUMENT_BYTES} bytes as JSON: shorten them")
    caller = services.caller
    wait = _calls.wait(caller.principal.name)
    if wait:
        raise HTTPException(
            429,
            f"More than {_CALLS_PER_SECOND:.0f} calls of agents a second: come again in {wait} s",
            {"Retry-After": str(wait)},
        )
    _calls.spend(caller.principal.name, 1)
    resource = format_full_name(call.object[:-1], call.object[-1]) if call.object else ""
    noted = replace(services, caller=replace(caller, operation=f"mcp:{call.tool}"))
    noted.note([AuditedResource(resource, detail=call.arguments or None)], call.outcome)
    return Response(status_code=204)


ROUTES: Final = FeatureRoutes(
    (router,),
    {("POST", CALLS_PATH): AnyToken()},
    (AgentCall,),
)
