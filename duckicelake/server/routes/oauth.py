"""POST /v1/oauth/tokens: tokens for clients that show a secret, or a token that is about to expire."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl

import orjson
from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, ConfigDict

from duckicelake.errors import NotAuthenticatedError, NotFoundError, UnavailableError
from duckicelake.iceberg.model import to_kebab_case
from duckicelake.server.auth.authentication import Authentication
from duckicelake.server.auth.oauth import (
    ACCESS_TOKEN,
    CLIENT_CREDENTIALS,
    IssuedToken,
    OAuthError,
    TokenRequest,
    find_tokens,
    grant_token,
)
from duckicelake.server.auth.oidc import WebClient
from duckicelake.server.http.errors import RESPONSES, answer_catalog_error
from duckicelake.server.http.route import StrictRoute
from duckicelake.server.http.scope import PREFIX, find_address, note_principal
from duckicelake.server.routes.dependencies import AppContext, ServerContext, find_context

router = APIRouter(prefix=PREFIX, tags=["oauth"])
login_router = APIRouter(prefix=PREFIX, tags=["oauth"], route_class=StrictRoute)
resource_router = APIRouter(tags=["oauth"], responses=RESPONSES)
RESOURCE_METADATA_PATH: Final = "/.well-known/oauth-protected-resource"

_MAX_FORM_BYTES = 64 * 1024
_MAX_FIELDS = 20
_MAX_DISCOVERIES = 8
_FORM_TYPE = "application/x-www-form-urlencoded"
_HEADERS = {"Cache-Control": "no-store", "Pragma": "no-cache"}
_TEXT = {"type": "string"}
_FIELDS = (
    "grant_type",
    "scope",
    "client_id",
    "client_secret",
    "subject_token",
    "subject_token_type",
    "actor_token",
    "actor_token_type",
    "requested_token_type",
)
_LOGIN_FIELDS = (
    "grant_type",
    "issuer",
    "code",
    "code_verifier",
    "redirect_uri",
    "nonce",
    "refresh_token",
)


def _build_form(fields: tuple[str, ...]) -> dict[str, Any]:
    """Build the `openapi_extra` of an operation that takes a form."""
    schema = {"type": "object", "required": ["grant_type"], "properties": dict.fromkeys(fields, _TEXT)}
    return {"requestBody": {"required": True, "content": {_FORM_TYPE: {"schema": schema}}}}


class TokenAnswer(BaseModel):
    """A token, and all that is known of it."""

    model_config = ConfigDict(frozen=True)

    access_token: str
    token_type: str = "bearer"  # noqa: S105
    expires_in: int
    issued_token_type: str = ACCESS_TOKEN
    scope: str


class OAuthRefusal(BaseModel):
    """An error as OAuth has it (RFC 6749 §5.2)."""

    model_config = ConfigDict(frozen=True)

    error: str
    error_description: str


REFUSALS: dict[int | str, dict[str, Any]] = RESPONSES | {
    status: {"model": OAuthRefusal, "description": description}
    for status, description in (
        (400, "The request is wrong"),
        (401, "Not a client of this server"),
        (429, "Too many logins have failed"),
    )
}


async def _parse_request(request: Request) -> TokenRequest | OAuthError:
    try:
        form = _parse_form(request.headers.get("content-type", ""), await _read_form(request))
    except OAuthError as error:
        return error
    return TokenRequest(form, request.headers.get("authorization"), find_address(request.scope))


@router.post("/oauth/tokens", responses=REFUSALS, openapi_extra=_build_form(_FIELDS), response_model=TokenAnswer)
async def issue_token(
    request: Request, context: AppContext, asked: Annotated[TokenRequest | OAuthError, Depends(_parse_request)]
) -> Response:
    """Give a client a token for its secret, or a new token for one that is about to expire."""
    try:
        issued = await _grant(context, asked)
    except OAuthError as refusal:
        return _answer_refusal(context, refusal)
    assert isinstance(asked, TokenRequest)
    note_principal(request.scope, issued.principal)
    context.metrics.login("login" if asked.form["grant_type"] == CLIENT_CREDENTIALS else "exchange")
    answer = TokenAnswer(access_token=issued.access_token, expires_in=issued.expires_in, scope=" ".join(issued.scopes))
    return Response(answer.model_dump_json(), headers=_HEADERS, media_type="application/json")


class WebLogin(BaseModel):
    """An issuer at which people log in by redirect. problem: why it can't log anyone in now; empty: it can.

    label: what to call it; empty: its URL. parameters: what else its page is sent, by name.
    is-issuer-named: the redirect back names the issuer (RFC 9207).
    """

    model_config = ConfigDict(frozen=True, alias_generator=to_kebab_case, populate_by_name=True)

    issuer: str
    client_id: str
    scope: str
    label: str = ""
    parameters: Mapping[str, str] = {}
    authorization_endpoint: str | None = None
    end_session_endpoint: str | None = None
    is_issuer_named: bool = False
    problem: str = ""


class WebLoginsAnswer(BaseModel):
    """The issuers at which people log in by redirect."""

    model_config = ConfigDict(frozen=True)

    logins: tuple[WebLogin, ...]


class WebTokenAnswer(TokenAnswer):
    """A token of a login by redirect. refresh_token: by which the next one is got; None: by another login."""

    refresh_token: str | None


@login_router.get("/oauth/logins", responses=RESPONSES)
async def list_logins(context: AppContext) -> WebLoginsAnswer:
    """List the issuers at which people log in by redirect, and where that begins."""
    if context.authentication is None:
        return WebLoginsAnswer(logins=())
    return WebLoginsAnswer(
        logins=await run_sync(
            _describe_logins, context, context.authentication, limiter=context.authentication.fetch_limiter
        )
    )


def _describe_logins(context: ServerContext, authentication: Authentication) -> tuple[WebLogin, ...]:
    """Describe each issuer at which people log in; one that doesn't answer is waited for once, however many are so."""
    clients = authentication.list_web_clients()
    with ThreadPoolExecutor(max(1, min(len(clients), _MAX_DISCOVERIES))) as threads:
        found = threads.map(lambda client: _describe_login(context, authentication, client), clients)
        return tuple(login for login in found if login is not None)


def _describe_login(context: ServerContext, authentication: Authentication, client: WebClient) -> WebLogin | None:
    """Describe where a login begins; None for an issuer that has just been taken away."""
    provider = authentication.reader.find_provider(client.issuer)
    if provider is None:
        return None
    login = WebLogin(
        issuer=client.issuer,
        client_id=client.client_id,
        scope=client.scope,
        label=client.label,
        parameters=dict(parameter.split("=", 1) for parameter in client.parameters),
    )
    try:
        endpoints = context.web_logins.find_endpoints(provider)
    except UnavailableError as error:
        return login.model_copy(update={"problem": str(error)})
    found = {
        "authorization_endpoint": endpoints.authorization,
        "end_session_endpoint": endpoints.end_session,
        "is_issuer_named": endpoints.is_issuer_named,
    }
    return login.model_copy(update=found)


@login_router.post(
    "/oauth/logins", responses=REFUSALS, openapi_extra=_build_form(_LOGIN_FIELDS), response_model=WebTokenAnswer
)
async def finish_login(
    request: Request, context: AppContext, asked: Annotated[TokenRequest | OAuthError, Depends(_parse_request)]
) -> Response:
    """Get the token of a login by redirect, for its code or for a refresh token."""
    authentication = context.authentication
    if isinstance(asked, OAuthError):
        return _answer_refusal(context, asked)
    if authentication is None:
        refusal = OAuthError("invalid_request", "This server needs no tokens: connect without a login")
        return _answer_refusal(context, refusal)
    limiter = authentication.fetch_limiter
    try:
        granted = await run_sync(context.web_logins.grant, authentication, context.throttle, asked, limiter=limiter)
    except OAuthError as refused:
        return _answer_refusal(context, refused)
    token, principal = granted.identified.token, granted.identified.principal
    note_principal(request.scope, principal)
    context.metrics.login("login" if "code" in asked.form else "exchange")
    answer = WebTokenAnswer(
        access_token=granted.access_token,
        expires_in=token.expires - int(authentication.clock()),
        scope=" ".join(token.scopes),
        refresh_token=granted.refresh_token,
    )
    return Response(answer.model_dump_json(), headers=_HEADERS, media_type="application/json")


def _answer_refusal(context: ServerContext, refusal: OAuthError) -> Response:
    context.metrics.login("throttled" if refusal.status == 429 else "refused")
    body = {"error": refusal.error, "error_description": refusal.description}
    return Response(orjson.dumps(body), refusal.status, _HEADERS | refusal.headers, "application/json")


async def _grant(context: AppContext, asked: TokenRequest | OAuthError) -> IssuedToken:
    if isinstance(asked, OAuthError):
        raise asked
    if context.authentication is None:
        raise OAuthError("invalid_request", "This server needs no tokens: connect without a credential")
    limiter = context.authentication.limiter_for(*find_tokens(asked))
    return await run_sync(grant_token, context.authentication, context.throttle, asked, limiter=limiter)


async def _read_form(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_FORM_BYTES:
            raise OAuthError("invalid_request", f"The form is larger than {_MAX_FORM_BYTES} bytes")
    return bytes(body)


def _parse_form(content_type: str, body: bytes) -> dict[str, str]:
    """Parse the form; fields without a value count as absent (RFC 6749 §3.2)."""
    if content_type.partition(";")[0].strip().lower() != _FORM_TYPE:
        raise OAuthError("invalid_request", f"The body must be a form, content type {_FORM_TYPE}")
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=True,
            errors="strict",
            max_num_fields=_MAX_FIELDS,
        )
    except ValueError as error:
        raise OAuthError("invalid_request", "The body is not a form: write name=value&name2=value2") from error
    if len({name for name, _ in pairs}) < len(pairs):
        raise OAuthError("invalid_request", "A parameter is there twice")
    return {name: value for name, value in pairs if value}


class ResourceMetadata(BaseModel):
    """What clients need to log in here (RFC 9728). resource: the server's URI, as the client wrote it."""

    model_config = ConfigDict(frozen=True)

    resource: str
    resource_name: str = "duckicelake"
    authorization_servers: tuple[str, ...]
    bearer_methods_supported: tuple[str, ...] = ("header",)


@resource_router.get(RESOURCE_METADATA_PATH)
async def describe_resource(request: Request, context: AppContext) -> ResourceMetadata:
    """Name the issuers of OpenID Connect whose tokens are accepted. 404 where none is."""
    issuers = await _find_issuers(context)
    if not issuers:
        raise NotFoundError("This server trusts no issuer of OpenID Connect: log in with a client id and its secret")
    return ResourceMetadata(resource=str(request.base_url).rstrip("/"), authorization_servers=issuers)


async def challenge_caller(request: Request, error: Exception) -> Response:
    """Answer a caller who isn't logged in; where there are issuers, the challenge says where they are named."""
    assert isinstance(error, NotAuthenticatedError)
    response = answer_catalog_error(request.scope, error)
    try:
        issuers = await _find_issuers(find_context(request.scope))
    except UnavailableError:
        issuers = ()
    if issuers:
        url = str(request.base_url).rstrip("/") + RESOURCE_METADATA_PATH
        response.headers["WWW-Authenticate"] += f', resource_metadata="{url}"'
    return response


async def _find_issuers(context: ServerContext) -> tuple[str, ...]:
    return () if context.authentication is None else await run_sync(context.authentication.find_issuers)
