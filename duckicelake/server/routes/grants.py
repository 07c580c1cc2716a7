"""Routes of grants: list, give and take them, who the caller is, and what it may do with an object."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import ConfigDict, Field

from duckicelake import __version__
from duckicelake.catalog import grants
from duckicelake.catalog.context.caller import format_scope
from duckicelake.catalog.context.privileges import ObjectRef, list_names
from duckicelake.catalog.grants import Decision, GrantChange, GrantDetails, parse_object
from duckicelake.iceberg.identifiers import NamespaceField, TableNameField
from duckicelake.iceberg.model import SpecModel
from duckicelake.server.http.errors import RESPONSES, parse_body
from duckicelake.server.http.route import StrictRequest, StrictRoute
from duckicelake.server.http.scope import PREFIX
from duckicelake.server.routes.dependencies import (
    AppContext,
    AppServices,
    Body,
    NamespacePath,
    PageQuery,
    TablePath,
    ViewPath,
    describe_body,
)

router = APIRouter(tags=["grants"], responses=RESPONSES, route_class=StrictRoute)
GRANTS = "/management/v1/grants"
DECISION = "/management/v1/decision"
_NAMESPACE = f"{PREFIX}/namespaces/{{namespace}}"
Privileges = Annotated[tuple[str, ...], Field(min_length=1, max_length=20)]


class GrantedObject(StrictRequest):
    """What a grant is on. namespace: of a namespace, table or view; name: of a table or view."""

    kind: Literal["warehouse", "namespace", "table", "view"]
    namespace: NamespaceField | None = None
    name: TableNameField | None = None

    def parse(self) -> ObjectRef:
        """Return the object; InvalidRequestError if it has other names than its kind takes."""
        has_names = (self.namespace is not None, self.name is not None)
        wanted = {"warehouse": (False, False), "namespace": (True, False)}.get(self.kind, (True, True))
        if has_names != wanted:
            return parse_object(f"{self.kind}:")
        return ObjectRef(self.kind, self.namespace or (), self.name or "")


class ChangedGrant(StrictRequest):
    """Privileges on an object, to give to a principal or to take from it."""

    principal: Annotated[str, Field(min_length=1, max_length=1000)]
    privileges: Privileges
    object: GrantedObject

    def parse(self) -> GrantChange:
        return GrantChange(self.principal, self.privileges, self.object.parse())


class ChangeGrantsRequest(StrictRequest):
    """What to give and what to take, all or nothing."""

    grant: Annotated[tuple[ChangedGrant, ...], Field(max_length=1000)] = ()
    revoke: Annotated[tuple[ChangedGrant, ...], Field(max_length=1000)] = ()


class ChangedGrants(SpecModel):
    """How many privileges were given that weren't there, and how many were taken.

    grants_on: false where scopes alone decide.
    """

    model_config = ConfigDict(frozen=True)

    granted: int
    revoked: int
    grants_on: bool


class GrantAnswer(SpecModel):
    """A grant. id: DuckLake's; namespace and name: null of what was dropped."""

    model_config = ConfigDict(frozen=True)

    principal: str
    principal_kind: str
    privilege: str
    kind: str
    id: int
    namespace: tuple[str, ...] | None = None
    name: str | None = None
    granted_by: str
    granted_at: datetime


class GrantList(SpecModel):
    """Grants of a warehouse, by principal."""

    model_config = ConfigDict(frozen=True)

    grants: tuple[GrantAnswer, ...]
    next_page_token: str | None = None


class ReasonAnswer(SpecModel):
    """A grant that allows it. path: from the principal to the group or role that was granted it."""

    privilege: str
    object: str
    path: tuple[str, ...]


class DecisionAnswer(SpecModel):
    """Whether a principal may do something with an object, and what decides that."""

    is_allowed: bool
    is_disabled: bool
    scopes: tuple[str, ...]
    is_in_scope: bool
    grants_on: bool
    by: tuple[ReasonAnswer, ...]
    outside: bool | None = None
    definer: str | None = None
    policies: tuple[str, ...] = ()


class ActionList(SpecModel):
    """The privileges that the caller has on an object, whether or not there is one."""

    model_config = ConfigDict(frozen=True)

    actions: tuple[str, ...]


class CallerAnswer(SpecModel):
    """Who the caller is, and what it may do in the warehouse.

    groups: those of the token, and registered ones. scopes: those of the token that count in this warehouse.
    server_version: of duckicelake, by which clients see whether they fit.
    """

    model_config = ConfigDict(frozen=True)

    principal: str
    is_authenticated: bool
    is_admin: bool
    groups: tuple[str, ...]
    roles: tuple[str, ...]
    scopes: tuple[str, ...]
    grants_on: bool
    actions: tuple[str, ...]
    server_version: str


@router.get(f"{PREFIX}/whoami")
def whoami(services: AppServices, context: AppContext) -> CallerAnswer:
    """Name the caller, its groups and roles, its scopes and what it may do in the whole warehouse."""
    principal = services.caller.principal
    directory = None if context.authentication is None else context.authentication.directory
    held = () if directory is None else directory.list_containers(principal.principal_id, principal.groups)
    return CallerAnswer(
        principal=principal.name,
        is_authenticated=context.authentication is not None,
        is_admin=principal.may_administer(),
        groups=tuple(sorted({*principal.groups, *(row.name for row in held if row.kind == "group")})),
        roles=tuple(row.name for row in held if row.kind == "role"),
        scopes=tuple(map(format_scope, principal.grants)),
        grants_on=principal.has_grants,
        actions=grants.list_actions(services, ObjectRef("warehouse")),
        server_version=__version__,
    )


@router.get(GRANTS)
def list_grants(
    services: AppServices,
    page: PageQuery,
    principal: Annotated[str | None, Query(description="only what was granted to this one by itself")] = None,
    on: Annotated[str | None, Query(description="only on this, as warehouse, namespace:a.b or table:a.b.c")] = None,
) -> GrantList:
    """List the grants of a warehouse that the caller has or may manage."""
    found = grants.list_grants(services, principal, None if on is None else parse_object(on), page)
    return GrantList(grants=tuple(map(_describe, found.items)), next_page_token=found.next_token)


@router.post(GRANTS, openapi_extra=describe_body(ChangeGrantsRequest))
def change_grants(services: AppServices, body: Body) -> ChangedGrants:
    """Give and take privileges in a warehouse."""
    request = parse_body(ChangeGrantsRequest, body)
    granted, revoked = grants.change_grants(
        services, [change.parse() for change in request.grant], [change.parse() for change in request.revoke]
    )
    return ChangedGrants(granted=granted, revoked=revoked, grants_on=grants.has_grants_on(services))


@router.get(DECISION)
def explain_decision(
    services: AppServices,
    principal: Annotated[str, Query(description="a user, service, group or role, as ann or user:ann")] = "",
    action: Annotated[str, Query(description="a privilege, as select")] = "",
    on: Annotated[str, Query(description="what with, as warehouse, namespace:a.b or table:a.b.c")] = "warehouse",
    scopes: Annotated[str | None, Query(description="of a token; by default all that it can have")] = None,
    groups: Annotated[str, Query(description="names of groups in the token, joined by commas")] = "",
) -> DecisionAnswer:
    """Say whether a principal may do something with an object, and what decides that."""
    asked = grants.parse_principal(principal, scopes, groups)
    outside = None if services.rights is None else services.rights.outside
    decision = grants.explain_decision(services, asked, action, parse_object(on), outside)
    return describe_decision(decision)


def describe_decision(decision: Decision) -> DecisionAnswer:
    """Describe a decision as the API and the command do."""
    return DecisionAnswer(
        is_allowed=decision.is_allowed,
        is_disabled=decision.is_disabled,
        scopes=decision.scopes,
        is_in_scope=decision.is_in_scope,
        grants_on=decision.grants_on,
        by=tuple(
            ReasonAnswer(privilege=list_names(held.privilege)[0], object=str(held.object), path=tuple(held.path))
            for held in decision.by
        ),
        outside=decision.outside,
        definer=decision.definer,
        policies=decision.policies,
    )


@router.get(f"{PREFIX}/actions")
def list_warehouse_actions(services: AppServices) -> ActionList:
    """List what the caller may do in the whole warehouse."""
    return ActionList(actions=grants.list_actions(services, ObjectRef("warehouse")))


@router.get(f"{_NAMESPACE}/actions")
def list_namespace_actions(services: AppServices, namespace: NamespacePath) -> ActionList:
    """List what the caller may do in a namespace."""
    return ActionList(actions=grants.list_actions(services, ObjectRef("namespace", namespace)))


@router.get(f"{_NAMESPACE}/tables/{{table}}/actions")
def list_table_actions(services: AppServices, namespace: NamespacePath, table: TablePath) -> ActionList:
    """List what the caller may do with a table."""
    return ActionList(actions=grants.list_actions(services, ObjectRef("table", namespace, table)))


@router.get(f"{_NAMESPACE}/views/{{view}}/actions")
def list_view_actions(services: AppServices, namespace: NamespacePath, view: ViewPath) -> ActionList:
    """List what the caller may do with a view."""
    return ActionList(actions=grants.list_actions(services, ObjectRef("view", namespace, view)))


def _describe(found: GrantDetails) -> GrantAnswer:
    target = found.object
    return GrantAnswer(
        principal=found.principal,
        principal_kind=found.principal_kind,
        privilege=found.privilege,
        kind=found.kind,
        id=found.object_id,
        namespace=None if target is None else target.namespace or None,
        name=None if target is None else target.name or None,
        granted_by=found.granted_by,
        granted_at=found.granted_at,
    )
