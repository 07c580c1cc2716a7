"""Commits to several tables at once."""

from fastapi import APIRouter, Response

from duckicelake.catalog.transactions import commit_transaction
from duckicelake.iceberg.rest import CommitTransactionRequest
from duckicelake.server.endpoints import PREFIX
from duckicelake.server.errors import RESPONSES
from duckicelake.server.idempotency import KeyedAdmission
from duckicelake.server.limits.bodies import Body, takes
from duckicelake.server.quick.routes import QuickRoute
from duckicelake.server.validation import parse_body

router = APIRouter(prefix=PREFIX, tags=["transactions"], responses=RESPONSES, route_class=QuickRoute)


@router.post("/transactions/commit", status_code=204, openapi_extra=takes(CommitTransactionRequest))
def commit(admit: KeyedAdmission, body: Body) -> Response:
    """Commit to several tables, to all of them or to none."""
    request = parse_body(CommitTransactionRequest, body)
    commit_transaction(admit(request), request)
    return Response(status_code=204)
