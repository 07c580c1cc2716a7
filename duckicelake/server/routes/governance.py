"""Routes of the management API: all that governs a server as one document."""

from dataclasses import replace
from typing import Any, Final

from fastapi import APIRouter

from duckicelake.catalog.governance import apply_state, read_state
from duckicelake.catalog.governance_document import build_state, describe_state, parse_document
from duckicelake.iceberg.model import SpecModel
from duckicelake.server.http.errors import RESPONSES, parse_body
from duckicelake.server.http.route import StrictRequest, StrictRoute
from duckicelake.server.routes.dependencies import AppContext, AppServices, Body, describe_body
from duckicelake.server.routes.issuers import get_url_check
from duckicelake.server.routes.management import find_wiring, forget_warehouses
from duckicelake.server.routes.principals import find_settings_issuer

router = APIRouter(prefix="/management/v1", tags=["management"], responses=RESPONSES, route_class=StrictRoute)
_PLACE: Final = "document"


class ApplyGovernanceRequest(StrictRequest):
    """A document to apply.

    prune: drop what its sections lack. dry-run: answer with what would change, and change nothing.
    """

    document: dict[str, Any]
    prune: bool = False
    dry_run: bool = False


class AppliedGovernance(SpecModel):
    """What changed, or would."""

    changes: tuple[str, ...]


@router.get("/governance")
def export_governance(context: AppContext, services: AppServices) -> dict[str, Any]:
    """Return principals, groups, roles, issuers, warehouses and grants as one document, without secrets."""
    return describe_state(read_state(services, find_wiring(context)))


@router.post("/governance", openapi_extra=describe_body(ApplyGovernanceRequest))
def apply_governance(context: AppContext, services: AppServices, body: Body) -> AppliedGovernance:
    """Make principals, groups, roles, issuers, warehouses and grants as a document says."""
    request = parse_body(ApplyGovernanceRequest, body)
    wanted = build_state(parse_document(request.document, _PLACE), _PLACE)
    wanted = replace(wanted, settings_issuer=find_settings_issuer(context), check_url=get_url_check(context))
    changes = apply_state(services, find_wiring(context), wanted, prunes=request.prune, is_dry=request.dry_run)
    forget_warehouses(context)
    return AppliedGovernance(changes=tuple(changes))
