"""Routes of the management API: issuers of OpenID Connect beside that of the settings."""

from datetime import datetime
from functools import partial
from typing import Annotated

from fastapi import APIRouter
from pydantic import ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from duckicelake.catalog import issuers
from duckicelake.catalog.issuers import ListedIssuer
from duckicelake.iceberg.identifiers import decode_name
from duckicelake.iceberg.model import SpecModel
from duckicelake.server.http.errors import RESPONSES, parse_body
from duckicelake.server.http.route import StrictRequest, StrictRoute
from duckicelake.server.routes.dependencies import (
    AppContext,
    AppServices,
    Body,
    KeyedServices,
    PageQuery,
    ServerContext,
    describe_body,
)
from duckicelake.server.routes.principals import Name, PathName, Scopes, find_settings_issuer

router = APIRouter(prefix="/management/v1", tags=["management"], responses=RESPONSES, route_class=StrictRoute)


class CreateIssuerRequest(StrictRequest):
    """An issuer of OpenID Connect to trust.

    url: the claim iss of its tokens. jwks-url: of its keys; by default its discovery document says it.
    scopes: what each of its tokens has; by default what its principal is granted.
    group-claim: whose values are names of groups. scope-claim: whose values are scopes, beside those.
    """

    name: Name
    url: Annotated[str, Field(min_length=1, max_length=500)]
    audience: Name
    jwks_url: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    subject_claim: Name = "sub"
    group_claim: Name | None = None
    scope_claim: Name | None = None
    scopes: Scopes = ("grants",)

    def build(self) -> ListedIssuer:
        """Build the issuer."""
        return ListedIssuer(
            self.name,
            self.url,
            self.audience,
            self.jwks_url,
            self.subject_claim,
            self.group_claim,
            self.scope_claim,
            self.scopes,
        )


class IssuerAnswer(SpecModel):
    """An issuer of OpenID Connect."""

    model_config = ConfigDict(frozen=True)

    name: str
    url: str
    audience: str
    jwks_url: str | None = None
    subject_claim: str
    group_claim: str | None = None
    scope_claim: str | None = None
    scopes: tuple[str, ...]
    created: datetime | None = None


class IssuerList(SpecModel):
    """The issuers beside that of the settings, by name."""

    model_config = ConfigDict(frozen=True)

    issuers: tuple[IssuerAnswer, ...]
    next_page_token: str | None = None


@router.get("/issuers")
def list_issuers(services: AppServices, page: PageQuery) -> IssuerList:
    """List the issuers of OpenID Connect that are trusted, beside that of the settings."""
    found = issuers.list_issuers(services, page)
    return IssuerList(issuers=tuple(map(describe_issuer, found.items)), next_page_token=found.next_token)


@router.post("/issuers", openapi_extra=describe_body(CreateIssuerRequest))
async def create_issuer(context: AppContext, services: KeyedServices, body: Body) -> IssuerAnswer:
    """Trust an issuer of OpenID Connect."""
    issuer = parse_body(CreateIssuerRequest, body).build()
    known, check = find_settings_issuer(context), get_url_check(context)
    return describe_issuer(await run_in_threadpool(issuers.create_issuer, services, issuer, known, check))


@router.get("/issuers/{issuer}")
def load_issuer(services: AppServices, issuer: PathName) -> IssuerAnswer:
    """Load an issuer."""
    return describe_issuer(issuers.load_issuer(services, decode_name(issuer)))


@router.post("/issuers/{issuer}", openapi_extra=describe_body(CreateIssuerRequest))
async def change_issuer(context: AppContext, services: AppServices, issuer: PathName, body: Body) -> IssuerAnswer:
    """Set how the tokens of an issuer are read. Name and URL must be as they are."""
    request = parse_body(CreateIssuerRequest, body)
    issuers.check_same_name(request.name, decode_name(issuer))
    check = get_url_check(context)
    return describe_issuer(await run_in_threadpool(issuers.change_issuer, services, request.build(), check))


@router.delete("/issuers/{issuer}", status_code=204)
def drop_issuer(services: AppServices, issuer: PathName) -> Response:
    """Trust an issuer no more."""
    issuers.drop_issuer(services, decode_name(issuer))
    return Response(status_code=204)


def describe_issuer(row: ListedIssuer) -> IssuerAnswer:
    """Describe an issuer as the API and the commands do."""
    return IssuerAnswer(
        name=row.name,
        url=row.url,
        audience=row.audience,
        jwks_url=row.jwks_url,
        subject_claim=row.subject_claim,
        group_claim=row.group_claim,
        scope_claim=row.scope_claim,
        scopes=row.scopes,
        created=row.created,
    )


def get_url_check(context: ServerContext) -> issuers.CheckUrl:
    """Return what refuses URLs that the server may not send requests to."""
    guard = None if context.authentication is None else context.authentication.guard
    return str if guard is None else partial(guard.check_url, needs_address=False)
