"""Routes of the management API: issuers of OpenID Connect beside that of the settings."""

from datetime import datetime
from functools import partial
from typing import Annotated

from fastapi import APIRouter
from pydantic import ConfigDict, Field, SecretStr
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from duckicelake.catalog import issuers
from duckicelake.catalog.issuers import MAX_LEEWAY_SECONDS, IssuerRules, ListedIssuer
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
from duckicelake.server.routes.principals import Name, PathName, Scopes, Text, find_settings_issuer

router = APIRouter(prefix="/management/v1", tags=["management"], responses=RESPONSES, route_class=StrictRoute)


class CreateIssuerRequest(StrictRequest):
    """An issuer of OpenID Connect to trust.

    url: the claim iss of its tokens. jwks-url: of its keys; by default its discovery document says it.
    scopes: what each of its tokens has; by default what its principal is granted.
    group-claim: whose values are names of groups. scope-claim: whose values are scopes, beside those.
    leeway: seconds by which its clock may differ.
    label: what the page to sign in calls it. web-client-id: what it calls the console; none: no one signs in there.
    web-scopes: what the console asks it for. web-parameters: name=value, what else its page to sign in is sent.
    web-secret: of that client; empty: it is public; left out: as it is. It is encrypted, and never shown again.
    """

    name: Name
    url: Annotated[str, Field(min_length=1, max_length=500)]
    audience: Name
    jwks_url: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    subject_claim: Name = "sub"
    group_claim: Name | None = None
    scope_claim: Name | None = None
    scopes: Scopes = ("grants",)
    is_disabled: bool = False
    leeway: Annotated[int, Field(ge=0, le=MAX_LEEWAY_SECONDS)] = 30
    label: Text = ""
    web_client_id: Name | None = None
    web_scopes: Scopes = ("openid",)
    web_parameters: Annotated[tuple[Text, ...], Field(max_length=20)] = ()
    web_secret: Annotated[SecretStr, Field(max_length=1000)] | None = None

    def build(self) -> ListedIssuer:
        """Build the issuer, without the secret."""
        return ListedIssuer(**self.model_dump(exclude={"web_secret"}))

    def find_secret(self) -> str | None:
        """Find the secret of its client for the console."""
        return None if self.web_secret is None else self.web_secret.get_secret_value()


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
    is_disabled: bool
    leeway: int
    label: str
    web_client_id: str | None = None
    web_scopes: tuple[str, ...]
    web_parameters: tuple[str, ...]
    has_web_secret: bool
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
    request = parse_body(CreateIssuerRequest, body)
    given = request.build(), find_issuer_rules(context), request.find_secret()
    return describe_issuer(await run_in_threadpool(issuers.create_issuer, services, *given))


@router.get("/issuers/{issuer}")
def load_issuer(services: AppServices, issuer: PathName) -> IssuerAnswer:
    """Load an issuer."""
    return describe_issuer(issuers.load_issuer(services, decode_name(issuer)))


@router.post("/issuers/{issuer}", openapi_extra=describe_body(CreateIssuerRequest))
async def change_issuer(context: AppContext, services: AppServices, issuer: PathName, body: Body) -> IssuerAnswer:
    """Set how the tokens of an issuer are read, and how people sign in there. Name and URL must be as they are."""
    request = parse_body(CreateIssuerRequest, body)
    issuers.check_same_name(request.name, decode_name(issuer))
    given = request.build(), find_issuer_rules(context), request.find_secret()
    return describe_issuer(await run_in_threadpool(issuers.change_issuer, services, *given))


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
        is_disabled=row.is_disabled,
        leeway=row.leeway,
        label=row.label,
        web_client_id=row.web_client_id,
        web_scopes=row.web_scopes,
        web_parameters=row.web_parameters,
        has_web_secret=row.has_web_secret,
        created=row.created,
    )


def find_issuer_rules(context: ServerContext) -> IssuerRules:
    """Find what registered issuers may say; URLs to which the server may send no requests are refused."""
    guard = None if context.authentication is None else context.authentication.guard
    check = str if guard is None else partial(guard.check_url, needs_address=False)
    keys = None if context.others is None else context.others.wiring.profiles.keys
    return IssuerRules(find_settings_issuer(context), check, keys)
