"""Routes of the management API: principals, who is in which group and role, their secrets, the server."""

from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Final, Literal, get_args
from uuid import UUID

from fastapi import APIRouter, Path, Query
from pydantic import ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from duckicelake.catalog import principals
from duckicelake.catalog.principals import (
    MadeSecret,
    PrincipalChange,
    PrincipalRegistration,
    RegisteredPrincipal,
    RegisteredSecret,
    SecretRequest,
)
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
    SettingValue,
    describe_body,
)

router = APIRouter(prefix="/management/v1", tags=["management"], responses=RESPONSES, route_class=StrictRoute)

_NO_STORE = {"Cache-Control": "no-store"}
Name = Annotated[str, Field(min_length=1, max_length=256)]
Text = Annotated[str, Field(max_length=1000)]
Scopes = Annotated[tuple[Annotated[str, Field(max_length=1000)], ...], Field(max_length=200)]
Seconds = Annotated[int, Field(ge=0, le=3650 * 86_400)]
Kind = Literal["user", "service", "group", "role"]
PathName = Annotated[str, Path(description="percent-encoded")]


class CreatePrincipalRequest(StrictRequest):
    """A user, service account, group or role to register.

    issuer, subject: of the tokens that a user or service account shows; a service account with client secrets has none.
    Of a group: the value in the claim of groups of the issuer's tokens; without these it is the group's name.
    scopes: all that its tokens can have; by default what it is granted.
    """

    name: Name
    kind: Kind
    issuer: Name | None = None
    subject: Name | None = None
    scopes: Scopes = ("grants",)
    description: Text = ""


class ChangePrincipalRequest(StrictRequest):
    """What of a principal is to change; what is left out stays."""

    scopes: Scopes | None = None
    is_disabled: bool | None = None
    description: Text | None = None


class AddMemberRequest(StrictRequest):
    """A member for a group or role. Groups hold users and service accounts, roles hold groups and roles, too."""

    member: Name


class CreateSecretRequest(StrictRequest):
    """A secret to make, of which a principal may have several.

    kind: a client secret, for POST /v1/oauth/tokens, or a token, which is sent as Bearer itself.
    expires-in: seconds that it is valid; by default until it is revoked.
    end-others-in: seconds after which the principal's other secrets of the kind end.
    scopes: all that it gives of the principal's scopes; by default all of them.
    """

    kind: Literal["client-secret", "token"]
    description: Text = ""
    expires_in: Annotated[Seconds, Field(ge=1)] | None = None
    end_others_in: Seconds | None = None
    scopes: Annotated[Scopes, Field(min_length=1)] | None = None


REQUEST_MODELS: Final = (
    AddMemberRequest,
    ChangePrincipalRequest,
    CreatePrincipalRequest,
    CreateSecretRequest,
)


class PrincipalAnswer(SpecModel):
    """A principal."""

    model_config = ConfigDict(frozen=True)

    principal_id: int
    name: str
    kind: str
    issuer: str | None = None
    subject: str | None = None
    scopes: tuple[str, ...]
    is_disabled: bool
    description: str
    created: datetime


class PrincipalDetails(PrincipalAnswer):
    """A principal. containers: the groups and roles that it is in by itself."""

    containers: tuple[str, ...]


class PrincipalList(SpecModel):
    """Principals, by name."""

    model_config = ConfigDict(frozen=True)

    principals: tuple[PrincipalAnswer, ...]
    next_page_token: str | None = None


class MemberList(SpecModel):
    """The names of the members of a group or role, without members of its members."""

    model_config = ConfigDict(frozen=True)

    members: tuple[str, ...]
    next_page_token: str | None = None


class SecretAnswer(SpecModel):
    """A secret or token. secret: what it is, in the answer to the request that made it alone.

    scopes: all that it gives of its principal's; null: all of them. made-by: the secrets that it was made with.
    """

    model_config = ConfigDict(frozen=True)

    secret_id: UUID
    kind: str
    description: str
    created: datetime
    expires: datetime | None = None
    last_used: datetime | None = None
    scopes: tuple[str, ...] | None = None
    made_by: tuple[UUID, ...]
    secret: str | None = None


class SecretList(SpecModel):
    """The secrets and tokens of a principal, oldest first."""

    model_config = ConfigDict(frozen=True)

    secrets: tuple[SecretAnswer, ...]
    next_page_token: str | None = None


class ServerAnswer(SpecModel):
    """What the server is. requires-login: false where all callers may do everything."""

    model_config = ConfigDict(frozen=True)

    requires_login: bool
    warehouse: str
    settings_issuer: str | None = None
    snapshot_ids: str


@router.get("/server")
def describe_server(context: AppContext, services: AppServices) -> ServerAnswer:
    """Describe the server: whether callers log in, and how its first warehouse is set up."""
    return ServerAnswer(
        requires_login=context.authentication is not None,
        warehouse=services.policy.warehouse,
        settings_issuer=find_settings_issuer(context),
        snapshot_ids=services.snapshot_ids,
    )


class SettingAnswer(SpecModel):
    """A setting of the server.

    value, default: of a secret, `set` or `unset`; null: none. variable: its name in the environment.
    source: how and where it was set, `default`, or `the server` for what it filled in itself.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    variable: str
    value: bool | int | float | str | tuple[str, ...] | None = None
    source: str
    default: bool | int | float | str | tuple[str, ...] | None = None
    meaning: str


class SettingList(SpecModel):
    """All settings of the server. Each takes effect at its next start."""

    model_config = ConfigDict(frozen=True)

    settings: tuple[SettingAnswer, ...]


@router.get("/settings")
def list_settings(context: AppContext) -> SettingList:
    """List the settings that the server runs with, where each came from and what it means; secrets are hidden."""
    return SettingList(settings=tuple(map(_describe_setting, context.settings)))


def _describe_setting(setting: SettingValue) -> SettingAnswer:
    values = {"value": setting.value, "default": setting.default}
    return SettingAnswer.model_validate(
        {
            "name": setting.name,
            "variable": f"DUCKICELAKE_{setting.name.upper()}",
            "source": setting.source,
            "meaning": setting.meaning,
            **values,
        }
    )


@router.get("/principals")
def list_principals(
    services: AppServices,
    page: PageQuery,
    kind: Annotated[Kind | None, Query(description="only these; by default all")] = None,
) -> PrincipalList:
    """List users, service accounts, groups and roles."""
    kinds = get_args(Kind) if kind is None else (kind,)
    found = principals.list_principals(services, kinds, page)
    return PrincipalList(principals=tuple(map(describe_principal, found.items)), next_page_token=found.next_token)


@router.post("/principals", openapi_extra=describe_body(CreatePrincipalRequest))
async def create_principal(context: AppContext, services: KeyedServices, body: Body) -> PrincipalAnswer:
    """Register a user, service account, group or role."""
    request = parse_body(CreatePrincipalRequest, body)
    new = PrincipalRegistration(
        request.name, request.kind, request.issuer, request.subject, request.scopes, description=request.description
    )
    issuer = find_settings_issuer(context)
    return describe_principal(await run_in_threadpool(principals.create_principal, services, new, issuer))


@router.get("/principals/{principal}")
def load_principal(services: AppServices, principal: PathName) -> PrincipalDetails:
    """Load a principal, with the groups and roles that it is in."""
    name = decode_name(principal)
    found = describe_principal(principals.load_principal(services, name))
    containers = tuple(container for container, member in principals.list_memberships(services) if member == name)
    return PrincipalDetails(**found.model_dump(), containers=containers)


@router.post("/principals/{principal}", openapi_extra=describe_body(ChangePrincipalRequest))
async def change_principal(services: AppServices, principal: PathName, body: Body) -> PrincipalAnswer:
    """Change the scopes or the description of a principal, or disable it."""
    request = parse_body(ChangePrincipalRequest, body)
    change = PrincipalChange(request.scopes, request.description, request.is_disabled)
    changed = await run_in_threadpool(principals.change_principal, services, decode_name(principal), change)
    return describe_principal(changed)


@router.delete("/principals/{principal}", status_code=204)
def drop_principal(services: AppServices, principal: PathName) -> Response:
    """Drop a principal with its secrets, memberships and grants."""
    principals.drop_principal(services, decode_name(principal))
    return Response(status_code=204)


@router.get("/principals/{principal}/members")
def list_members(services: AppServices, principal: PathName, page: PageQuery) -> MemberList:
    """List the members of a group or role."""
    found = principals.list_members(services, decode_name(principal), page)
    return MemberList(members=found.items, next_page_token=found.next_token)


@router.post("/principals/{principal}/members", status_code=204, openapi_extra=describe_body(AddMemberRequest))
async def add_member(services: KeyedServices, principal: PathName, body: Body) -> Response:
    """Put a principal into a group or role."""
    request = parse_body(AddMemberRequest, body)
    await run_in_threadpool(principals.add_member, services, decode_name(principal), request.member)
    return Response(status_code=204)


@router.delete("/principals/{principal}/members/{member}", status_code=204)
def remove_member(services: AppServices, principal: PathName, member: PathName) -> Response:
    """Take a principal out of a group or role."""
    principals.remove_member(services, decode_name(principal), decode_name(member))
    return Response(status_code=204)


@router.get("/principals/{principal}/secrets")
def list_secrets(services: AppServices, principal: PathName, page: PageQuery) -> SecretList:
    """List the secrets and tokens of a principal, without what they are."""
    found = principals.list_secrets(services, decode_name(principal), page)
    return SecretList(secrets=tuple(map(describe_secret, found.items)), next_page_token=found.next_token)


@router.post(
    "/principals/{principal}/secrets",
    openapi_extra=describe_body(CreateSecretRequest),
    response_model=SecretAnswer,
)
async def create_secret(context: AppContext, services: KeyedServices, principal: PathName, body: Body) -> Response:
    """Make a client secret or a token. Only this answer shows it; a repeated request is answered without."""
    request = parse_body(CreateSecretRequest, body)
    name = decode_name(principal)
    expires, ends = parse_seconds(request.expires_in), parse_seconds(request.end_others_in)
    wish = SecretRequest(request.kind, request.description, expires, ends, request.scopes)

    def make() -> MadeSecret:
        return principals.create_secret(services, name, wish, partial(is_in_settings, context))

    return answer_made(await run_in_threadpool(make))


@router.delete("/principals/{principal}/secrets/{secret_id}", status_code=204)
def revoke_secret(services: AppServices, principal: PathName, secret_id: UUID) -> Response:
    """Revoke a secret or token; tokens that were got by it end with it, within a second."""
    principals.revoke_secret(services, decode_name(principal), secret_id)
    return Response(status_code=204)


def describe_principal(row: RegisteredPrincipal) -> PrincipalAnswer:
    """Describe a principal as the API and the commands do."""
    return PrincipalAnswer(
        principal_id=row.principal_id,
        name=row.name,
        kind=row.kind,
        issuer=row.issuer,
        subject=row.subject,
        scopes=row.scopes,
        is_disabled=row.is_disabled,
        description=row.description,
        created=row.created,
    )


def describe_secret(row: RegisteredSecret) -> SecretAnswer:
    """Describe a secret without what it is."""
    return SecretAnswer(
        secret_id=row.secret_id,
        kind=row.kind,
        description=row.description,
        created=row.created,
        expires=row.expires,
        last_used=row.last_used,
        scopes=row.scopes,
        made_by=row.made_by,
    )


def answer_made(made: MadeSecret) -> Response:
    """Answer with a secret that was made, and what it is, for nothing to keep."""
    answer = describe_secret(made.row).model_copy(update={"secret": made.text})
    return Response(answer.model_dump_json(by_alias=True), headers=_NO_STORE, media_type="application/json")


def parse_seconds(seconds: int | None) -> timedelta | None:
    """Parse a number of seconds."""
    return None if seconds is None else timedelta(seconds=seconds)


def is_in_settings(context: ServerContext, name: str) -> bool:
    """Return whether a client of the settings has a name."""
    return context.authentication is not None and context.authentication.clients.find(name) is not None


def find_settings_issuer(context: ServerContext) -> str | None:
    provider = None if context.authentication is None else context.authentication.provider
    return None if provider is None else provider.provider.issuer
