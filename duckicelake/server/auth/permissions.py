"""Permission rules of the routes, the one place that decides who may do what.

A check looks at names alone, before anything is looked up, so that a refusal is the same whether or not a thing exists.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel

from duckicelake.catalog.context.caller import EVERYTHING, Capability, Principal, build_refusal
from duckicelake.catalog.context.privileges import ALL_PRIVILEGES, NO_PRIVILEGE, WRITING, Privilege, Rights
from duckicelake.errors import ForbiddenError, InvalidRequestError
from duckicelake.iceberg.identifiers import Namespace
from duckicelake.iceberg.rest import CommitTransactionRequest, CreateNamespaceRequest, RenameTableRequest
from duckicelake.server.http.scope import PathNames

READ, WRITE, MANAGE = Capability.READ, Capability.WRITE, Capability.MANAGE


@dataclass(frozen=True, slots=True)
class Public:
    """Every caller, without a token."""


@dataclass(frozen=True, slots=True)
class AnyToken:
    """Every caller with a valid token."""


@dataclass(frozen=True, slots=True)
class WholeCatalog:
    """Callers with the scope `*`; unless_public: or everyone, where the settings say so.

    privileges: one of which it takes on the warehouse where grants are on; none: the route is not about the lake.
    """

    unless_public: bool = False
    privileges: Privilege = NO_PRIVILEGE


@dataclass(frozen=True, slots=True)
class Administration:
    """Callers with the scope `*`, and those in the role `admin` whose scopes say `grants`."""


@dataclass(frozen=True, slots=True)
class InPath:
    """One of these capabilities in the path's namespace; with none given, the right to see the namespace.

    privileges: one of which it takes where grants are on, on the path's table, view or namespace; none: the right to
    see it.
    """

    any_of: tuple[Capability, ...] = ()
    privileges: Privilege = NO_PRIVILEGE


@dataclass(frozen=True, slots=True)
class InQuery:
    """The right to see the namespace of this parameter, if it is given; the response is filtered."""

    parameter: str


@dataclass(frozen=True, slots=True)
class NamedInBody:
    """A namespace, table or view that a body names, and on which of these it takes a privilege where grants are on."""

    namespace: Namespace
    name: str
    privileges: Privilege
    place: tuple[Namespace, str]


@dataclass(frozen=True, slots=True)
class InBody:
    """A capability in all namespaces of the body; the endpoint parses the body as this model and has it checked."""

    capability: Capability
    model: type[BaseModel]
    names: Callable[[BaseModel], Iterator[NamedInBody]]


Need = Public | AnyToken | WholeCatalog | Administration | InPath | InQuery | InBody


def _list_renamed(request: BaseModel) -> Iterator[NamedInBody]:
    assert isinstance(request, RenameTableRequest)
    source, target = request.source, request.destination
    taken = Privilege.ALTER if source.namespace == target.namespace else Privilege.DROP
    yield NamedInBody(source.namespace, source.name, taken, (source.namespace, source.name))
    yield NamedInBody(target.namespace, target.name, Privilege.CREATE, (target.namespace, ""))


def _list_changed(request: BaseModel) -> Iterator[NamedInBody]:
    assert isinstance(request, CommitTransactionRequest)
    for number, change in enumerate(request.table_changes):
        if change.identifier is None:
            raise InvalidRequestError(f"table-changes[{number}] has no identifier: say which table it changes")
        name = change.identifier.namespace, change.identifier.name
        yield NamedInBody(*name, COMMITTING, name)


def _list_created(request: BaseModel) -> Iterator[NamedInBody]:
    assert isinstance(request, CreateNamespaceRequest)
    yield NamedInBody(request.namespace, "", Privilege.CREATE, (request.namespace[:-1], ""))


COMMITTING: Final = WRITING | Privilege.ALTER | Privilege.CREATE
"""Of which a commit takes one; which, the use case knows."""
_ANYTHING: Final = ALL_PRIVILEGES | Privilege.QUERY
_READER = InPath((READ,), Privilege.SELECT)
_EITHER = InPath((READ, WRITE), WRITING | Privilege.SELECT)


def _build_writer(privileges: Privilege) -> InPath:
    return InPath((WRITE,), privileges)


_CREATOR, _ALTERER, _DROPPER = map(_build_writer, (Privilege.CREATE, Privilege.ALTER, Privilege.DROP))
_UPKEEPER = _build_writer(WRITING | Privilege.ALTER)
_LISTER = InPath((READ,))
_NAMESPACE = "/v1/namespaces/{namespace}"
_TABLE = f"{_NAMESPACE}/tables/{{table}}"
_VIEW = f"{_NAMESPACE}/views/{{view}}"
_PIPELINE = "/pipeline/v1/namespaces/{namespace}/tables/{table}"
_JOBS = f"{_PIPELINE}/jobs"

NEEDS: Final[Mapping[tuple[str, str], Need]] = {
    ("GET", "/healthz"): Public(),
    ("HEAD", "/healthz"): Public(),
    ("GET", "/readyz"): Public(),
    ("GET", "/openapi.json"): Public(),
    ("HEAD", "/openapi.json"): Public(),
    ("GET", "/"): Public(),
    ("HEAD", "/"): Public(),
    ("GET", "/ui/assets/{asset}"): Public(),
    ("HEAD", "/ui/assets/{asset}"): Public(),
    ("GET", "/metrics"): WholeCatalog(unless_public=True),
    ("POST", "/v1/oauth/tokens"): Public(),
    ("GET", "/v1/oauth/logins"): Public(),
    ("POST", "/v1/oauth/logins"): Public(),
    ("GET", "/.well-known/oauth-protected-resource"): Public(),
    # Who may give and take what, and whose grants are listed, the use case knows.
    ("GET", "/management/v1/grants"): AnyToken(),
    ("POST", "/management/v1/grants"): AnyToken(),
    # So it does of policies.
    ("GET", "/management/v1/policies"): AnyToken(),
    ("POST", "/management/v1/policies"): AnyToken(),
    ("GET", "/management/v1/policies/{policy_id}"): AnyToken(),
    ("DELETE", "/management/v1/policies/{policy_id}"): AnyToken(),
    ("GET", "/management/v1/column-tags"): AnyToken(),
    ("POST", "/management/v1/column-tags"): AnyToken(),
    # Says the same of what there is and of what there isn't.
    ("GET", "/v1/actions"): AnyToken(),
    ("GET", "/v1/whoami"): AnyToken(),
    ("GET", "/v1/search"): AnyToken(),
    ("GET", f"{_NAMESPACE}/actions"): AnyToken(),
    ("GET", f"{_TABLE}/actions"): AnyToken(),
    ("GET", f"{_VIEW}/actions"): AnyToken(),
    # Whoever is registered; what else it takes, the use case knows.
    ("GET", "/management/v1/me/tokens"): AnyToken(),
    ("POST", "/management/v1/me/tokens"): AnyToken(),
    ("POST", "/management/v1/me/tokens/{secret_id}/rotate"): AnyToken(),
    ("DELETE", "/management/v1/me/tokens/{secret_id}"): AnyToken(),
    ("GET", "/management/v1/warehouses"): Administration(),
    ("POST", "/management/v1/warehouses"): Administration(),
    ("GET", "/management/v1/warehouses/{warehouse}"): Administration(),
    ("DELETE", "/management/v1/warehouses/{warehouse}"): Administration(),
    ("POST", "/management/v1/warehouses/{warehouse}/rename"): Administration(),
    ("POST", "/management/v1/warehouses/{warehouse}/database"): Administration(),
    ("GET", "/management/v1/warehouses/{warehouse}/options"): Administration(),
    ("POST", "/management/v1/warehouses/{warehouse}/options"): Administration(),
    ("GET", "/management/v1/storage-profiles"): Administration(),
    ("POST", "/management/v1/storage-profiles"): Administration(),
    ("GET", "/management/v1/storage-profiles/{profile}"): Administration(),
    ("DELETE", "/management/v1/storage-profiles/{profile}"): Administration(),
    ("GET", "/management/v1/server"): Administration(),
    ("GET", "/management/v1/settings"): Administration(),
    ("GET", "/management/v1/decision"): Administration(),
    ("GET", "/management/v1/governance"): Administration(),
    ("POST", "/management/v1/governance"): Administration(),
    ("GET", "/management/v1/principals"): Administration(),
    ("POST", "/management/v1/principals"): Administration(),
    ("GET", "/management/v1/principals/{principal}"): Administration(),
    ("POST", "/management/v1/principals/{principal}"): Administration(),
    ("DELETE", "/management/v1/principals/{principal}"): Administration(),
    ("GET", "/management/v1/principals/{principal}/members"): Administration(),
    ("POST", "/management/v1/principals/{principal}/members"): Administration(),
    ("DELETE", "/management/v1/principals/{principal}/members/{member}"): Administration(),
    ("GET", "/management/v1/principals/{principal}/secrets"): Administration(),
    ("POST", "/management/v1/principals/{principal}/secrets"): Administration(),
    ("DELETE", "/management/v1/principals/{principal}/secrets/{secret_id}"): Administration(),
    ("GET", "/management/v1/issuers"): Administration(),
    ("POST", "/management/v1/issuers"): Administration(),
    ("GET", "/management/v1/issuers/{issuer}"): Administration(),
    ("POST", "/management/v1/issuers/{issuer}"): Administration(),
    ("DELETE", "/management/v1/issuers/{issuer}"): Administration(),
    ("GET", "/v1/config"): AnyToken(),
    ("GET", "/v1/namespaces"): InQuery("parent"),
    ("POST", "/v1/namespaces"): InBody(MANAGE, CreateNamespaceRequest, _list_created),
    ("GET", _NAMESPACE): _LISTER,
    ("HEAD", _NAMESPACE): InPath(),
    ("DELETE", _NAMESPACE): InPath((MANAGE,), Privilege.DROP),
    ("POST", f"{_NAMESPACE}/properties"): InPath((MANAGE,), Privilege.ALTER),
    # The new name takes rights, too, which the use case checks.
    ("POST", f"{_NAMESPACE}/rename"): InPath((MANAGE,), Privilege.ALTER | Privilege.DROP),
    ("GET", f"{_NAMESPACE}/tables"): _LISTER,
    ("POST", f"{_NAMESPACE}/tables"): _CREATOR,
    ("GET", _TABLE): _READER,
    ("HEAD", _TABLE): InPath((READ,), _ANYTHING),
    ("POST", _TABLE): _build_writer(COMMITTING),
    ("DELETE", _TABLE): _DROPPER,
    ("POST", f"{_TABLE}/unregister"): _DROPPER,
    ("POST", f"{_TABLE}/restore"): _build_writer(Privilege.UPDATE),
    ("POST", f"{_TABLE}/expire"): _ALTERER,
    # Engines report reads and writes alike; keys and signatures are as good as what the principal has of both.
    ("POST", f"{_TABLE}/metrics"): _EITHER,
    ("POST", f"{_TABLE}/plan"): _READER,
    ("GET", f"{_TABLE}/plan/{{plan_id}}"): _READER,
    ("DELETE", f"{_TABLE}/plan/{{plan_id}}"): _READER,
    ("POST", f"{_TABLE}/tasks"): _READER,
    ("POST", f"{_TABLE}/explain"): _READER,
    ("POST", f"{_TABLE}/rows"): _build_writer(Privilege.INSERT | Privilege.UPDATE),
    ("DELETE", f"{_TABLE}/rows"): _build_writer(Privilege.DELETE),
    ("POST", f"{_TABLE}/rows/flush"): _UPKEEPER,
    # Who may only write goes on where it stopped.
    ("GET", f"{_TABLE}/rows/producers/{{app_id}}"): _EITHER,
    ("GET", f"{_TABLE}/credentials"): _EITHER,
    ("POST", f"{_TABLE}/sign"): _EITHER,
    ("POST", f"{_NAMESPACE}/register"): _CREATOR,
    # Whose table the body names must be readable, which the use case checks.
    ("POST", f"{_NAMESPACE}/clone"): _CREATOR,
    ("POST", "/v1/tables/rename"): InBody(WRITE, RenameTableRequest, _list_renamed),
    ("POST", "/v1/transactions/commit"): InBody(WRITE, CommitTransactionRequest, _list_changed),
    # Changes are filtered by what their reader may read.
    ("GET", "/v1/events"): InQuery("namespace"),
    ("POST", "/v1/events"): AnyToken(),
    ("GET", f"{_NAMESPACE}/views"): _LISTER,
    ("POST", f"{_NAMESPACE}/views"): _CREATOR,
    ("GET", _VIEW): _READER,
    ("HEAD", _VIEW): InPath((READ,), _ANYTHING),
    ("POST", _VIEW): _ALTERER,
    ("DELETE", _VIEW): _DROPPER,
    ("POST", f"{_NAMESPACE}/register-view"): _CREATOR,
    ("POST", "/v1/views/rename"): InBody(WRITE, RenameTableRequest, _list_renamed),
    # The list of jobs is filtered by what its reader may read.
    ("GET", "/pipeline/v1/jobs"): AnyToken(),
    ("GET", f"{_PIPELINE}/runs"): _READER,
    ("POST", _JOBS): _UPKEEPER,
    ("POST", f"{_JOBS}/{{job}}"): _UPKEEPER,
    ("POST", f"{_JOBS}/{{job}}/end"): _UPKEEPER,
    # So is the history of the lake.
    ("GET", "/v1/history"): AnyToken(),
    ("GET", f"{_NAMESPACE}/history"): _LISTER,
    ("GET", f"{_TABLE}/history"): _READER,
    ("GET", f"{_VIEW}/history"): _READER,
    ("GET", f"{_TABLE}/diff"): _READER,
    ("GET", f"{_TABLE}/snapshots"): _READER,
    # So is the list of what was dropped; a namespace takes the right to manage, which the use case checks.
    ("GET", "/v1/dropped"): AnyToken(),
    ("POST", f"{_NAMESPACE}/undrop"): _CREATOR,
    ("DELETE", "/v1/dropped/{kind}/{object_id}"): WholeCatalog(privileges=Privilege.DROP),
    ("GET", "/v1/audit"): WholeCatalog(privileges=Privilege.MANAGE_GRANTS),
    ("GET", "/v1/doctor"): WholeCatalog(privileges=Privilege.SELECT),
    ("GET", "/v1/orphans"): WholeCatalog(privileges=Privilege.DROP),
    ("DELETE", "/v1/orphans"): WholeCatalog(privileges=Privilege.DROP),
    # So is the list of tables' statistics.
    ("GET", "/pipeline/v1/plan"): AnyToken(),
    ("GET", "/pipeline/v1/tables"): AnyToken(),
    ("POST", "/pipeline/v1/namespaces/{namespace}/tables/{table}/orphans"): _UPKEEPER,
}
"""By method and route template; features bring those of their own routes. A route without one is refused."""


def check_path(need: InPath, principal: Principal, names: PathNames) -> None:
    """Raise ForbiddenError unless the principal may."""
    if not grants_path(need, principal, names):
        raise build_refusal(names.namespace, names.name, principal)


def grants_path(need: InPath, principal: Principal, names: PathNames) -> bool:
    """Return whether the principal has what the route needs."""
    if principal.rights is not None and not _has_rights(need.privileges, principal.rights, names):
        return False
    for capability in need.any_of:
        if principal.is_in_scope(capability, names.namespace):
            return True
    return not need.any_of and principal.sees(names.namespace)


def _has_rights(privileges: Privilege, rights: Rights, names: PathNames) -> bool:
    return rights.may_any(privileges, *names) if privileges else rights.sees(names.namespace)


def check_query(principal: Principal, parent: Namespace | None) -> None:
    if parent is not None and not principal.sees(parent):
        raise build_refusal(parent, "", principal)


def check_whole_catalog(need: WholeCatalog, principal: Principal) -> None:
    """Raise ForbiddenError unless the principal may do everything, as its grants say if the route is about the lake."""
    asked = principal if need.privileges else principal.with_rights(None)
    if not asked.is_in_scope(EVERYTHING, ()):
        raise ForbiddenError("The caller's scopes don't allow this: it takes *")
    if asked.rights is not None and not asked.rights.may_any(need.privileges, ()):
        raise build_refusal((), "", principal)


def check_administration(principal: Principal) -> None:
    """Raise ForbiddenError unless the principal may administer the server."""
    if not principal.may_administer():
        raise ForbiddenError("The caller may not administer the server: it takes the scope *, or the role admin")


def check_body(need: InBody, principal: Principal, request: BaseModel) -> str:
    """Check the namespaces of a body, and return what the request is about for the audit log; ForbiddenError."""
    if not isinstance(request, need.model):
        raise ForbiddenError("The caller's scopes can't be compared with this request")
    named = list(need.names(request))
    for one in named:
        if not principal.is_in_scope(need.capability, one.namespace):
            raise build_refusal(one.namespace, one.name, principal)
        if principal.rights is not None and not principal.rights.may_any(one.privileges, *one.place):
            raise build_refusal(*one.place, principal)
    return ", ".join(PathNames(one.namespace, one.name).resource for one in named)


def is_bound(need: Need) -> bool:
    """Return whether what the principal was granted counts for the route."""
    return not isinstance(need, Public) and not (isinstance(need, WholeCatalog) and not need.privileges)


def is_for_writers(need: Need) -> bool:
    """Return whether the route needs the capability to write."""
    match need:
        case InPath(any_of):
            return any_of == (WRITE,)
        case InBody(capability):
            return capability is WRITE
        case _:
            return False
