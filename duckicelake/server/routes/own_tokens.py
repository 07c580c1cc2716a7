"""Routes of the management API that take no administrator: the caller's own tokens and client secrets."""

from datetime import timedelta
from functools import partial
from typing import Annotated, Final, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.own_secrets import OwnLogin, OwnSecrets
from duckicelake.catalog.principals import SecretRequest
from duckicelake.errors import ForbiddenError, InvalidRequestError, NotAuthenticatedError
from duckicelake.server.auth.authentication import parse_bearer
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
from duckicelake.server.routes.principals import (
    Scopes,
    Seconds,
    SecretAnswer,
    SecretList,
    Text,
    answer_made,
    describe_secret,
    is_in_settings,
    parse_seconds,
)

router = APIRouter(prefix="/management/v1", tags=["management"], responses=RESPONSES, route_class=StrictRoute)


class CreateOwnTokenRequest(StrictRequest):
    """A token, or a client secret of a service account, that the caller makes for itself.

    expires-in: seconds that it is valid, at most as long as what the caller logged in with.
    scopes: what it may, within the scopes of the caller; by default all of these.
    """

    kind: Literal["client-secret", "token"] = "token"
    description: Text = ""
    expires_in: Annotated[Seconds, Field(ge=1)] | None = None
    scopes: Annotated[Scopes, Field(min_length=1)] | None = None


class RotateOwnTokenRequest(StrictRequest):
    """How to replace a token or secret. end-old-in: seconds after which the old one ends."""

    expires_in: Annotated[Seconds, Field(ge=1)] | None = None
    end_old_in: Seconds = 0


REQUEST_MODELS: Final = (CreateOwnTokenRequest, RotateOwnTokenRequest)


def _find_login(request: Request, context: AppContext) -> OwnLogin:
    """Find what the caller has shown: the scopes of its token in all warehouses, and which secret it logged in with."""
    if context.authentication is None:
        raise InvalidRequestError("This server has no logins, so tokens of it would give nothing")
    text = parse_bearer(request.headers.get("authorization"))
    if text is None:
        raise NotAuthenticatedError("No token: send Authorization: Bearer")
    identified = context.authentication.read(text)
    principal_id = identified.principal.principal_id
    if principal_id is None:
        raise ForbiddenError(
            f"{identified.principal.name} is not registered, and has no tokens of its own: ask an administrator for "
            "duckicelake principal create"
        )
    return OwnLogin(principal_id, identified.token.scopes, identified.token.secret_id)


Login = Annotated[OwnLogin, Depends(_find_login)]


def _open(context: ServerContext, services: Services, login: OwnLogin) -> OwnSecrets:
    assert context.authentication is not None
    return OwnSecrets(services, login, context.authentication.own_tokens, partial(is_in_settings, context))


@router.get("/me/tokens")
def list_own_tokens(context: AppContext, services: AppServices, login: Login, page: PageQuery) -> SecretList:
    """List the caller's own tokens and secrets that may no more than the one it shows, oldest first."""
    secrets = _open(context, services, login)
    found = secrets.list_valid(page)
    return SecretList(secrets=tuple(map(describe_secret, found.items)), next_page_token=found.next_token)


@router.post("/me/tokens", openapi_extra=describe_body(CreateOwnTokenRequest), response_model=SecretAnswer)
async def create_own_token(context: AppContext, services: KeyedServices, login: Login, body: Body) -> Response:
    """Make a token for oneself. Only this answer shows it; a repeated request is answered without."""
    request = parse_body(CreateOwnTokenRequest, body)
    wish = SecretRequest(request.kind, request.description, parse_seconds(request.expires_in), scopes=request.scopes)
    secrets = _open(context, services, login)
    return answer_made(await run_in_threadpool(secrets.create, wish))


@router.post(
    "/me/tokens/{secret_id}/rotate", openapi_extra=describe_body(RotateOwnTokenRequest), response_model=SecretAnswer
)
async def rotate_own_token(
    context: AppContext, services: KeyedServices, login: Login, secret_id: UUID, body: Body
) -> Response:
    """Replace a token of one's own by a new one of the same scopes, and let it end."""
    request = parse_body(RotateOwnTokenRequest, body)
    secrets = _open(context, services, login)
    expires_in, ends_in = parse_seconds(request.expires_in), timedelta(seconds=request.end_old_in)
    return answer_made(await run_in_threadpool(secrets.rotate, secret_id, expires_in, ends_in))


@router.delete("/me/tokens/{secret_id}", status_code=204)
def revoke_own_token(context: AppContext, services: AppServices, login: Login, secret_id: UUID) -> Response:
    """Revoke a token of one's own, and all that were made with it; they end within a second."""
    _open(context, services, login).revoke(secret_id)
    return Response(status_code=204)
