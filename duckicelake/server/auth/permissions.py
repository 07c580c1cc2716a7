"""Permission rules of the routes, the one place that decides who may do what.

A check looks at names alone, before anything is looked up, so that a refusal is the same whether or not a thing exists.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel

from duckicelake.catalog.context.caller import EVERYTHING, Capability, Principal, build_refusal
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
    """Callers with the scope `*`; unless_public: or everyone, where the settings say so."""

    unless_public: bool = False


@dataclass(frozen=True, slots=True)
class InPath:
    """One of these capabilities in the path's namespace; with none given, the right to see the namespace."""

    any_of: tuple[Capability, ...] = ()


@dataclass(frozen=True, slots=True)
class InQuery:
    """The right to see the namespace of this parameter, if it is given; the response is filtered."""

    parameter: str


@dataclass(frozen=True, slots=True)
class InBody:
    """A capability in all namespaces of the body; the endpoint parses the body as this model and has it checked."""

    capability: Capability
    model: type[BaseModel]
    names: Callable[[BaseModel], Iterator[tuple[Namespace, str]]]


Need = Public | AnyToken | WholeCatalog | InPath | InQuery | InBody


def _list_renamed(request: BaseModel) -> Iterator[tuple[Namespace, str]]:
    assert isinstance(request, RenameTableRequest)
    for identifier in (request.source, request.destination):
        yield identifier.namespace, identifier.name


def _list_changed(request: BaseModel) -> Iterator[tuple[Namespace, str]]:
    assert isinstance(request, CommitTransactionRequest)
    for number, change in enumerate(request.table_changes):
        if change.identifier is None:
            raise InvalidRequestError(f"table-changes[{number}] has no identifier: say which table it changes")
        yield change.identifier.namespace, change.identifier.name


def _list_created(request: BaseModel) -> Iterator[tuple[Namespace, str]]:
    assert isinstance(request, CreateNamespaceRequest)
    yield request.namespace, ""


_READER, _WRITER, _MANAGER = InPath((READ,)), InPath((WRITE,)), InPath((MANAGE,))
_EITHER = InPath((READ, WRITE))
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
    ("GET", "/management/v1/warehouses"): WholeCatalog(),
    ("POST", "/management/v1/warehouses"): WholeCatalog(),
    ("GET", "/management/v1/warehouses/{warehouse}"): WholeCatalog(),
    ("DELETE", "/management/v1/warehouses/{warehouse}"): WholeCatalog(),
    ("POST", "/management/v1/warehouses/{warehouse}/rename"): WholeCatalog(),
    ("GET", "/v1/config"): AnyToken(),
    ("GET", "/v1/namespaces"): InQuery("parent"),
    ("POST", "/v1/namespaces"): InBody(MANAGE, CreateNamespaceRequest, _list_created),
    ("GET", _NAMESPACE): _READER,
    ("HEAD", _NAMESPACE): InPath(),
    ("DELETE", _NAMESPACE): _MANAGER,
    ("POST", f"{_NAMESPACE}/properties"): _MANAGER,
    ("GET", f"{_NAMESPACE}/tables"): _READER,
    ("POST", f"{_NAMESPACE}/tables"): _WRITER,
    ("GET", _TABLE): _READER,
    ("HEAD", _TABLE): _READER,
    ("POST", _TABLE): _WRITER,
    ("DELETE", _TABLE): _WRITER,
    ("POST", f"{_TABLE}/unregister"): _WRITER,
    ("POST", f"{_TABLE}/restore"): _WRITER,
    ("POST", f"{_TABLE}/expire"): _WRITER,
    # Engines report reads and writes alike; keys and signatures are as good as what the principal has of both.
    ("POST", f"{_TABLE}/metrics"): _EITHER,
    ("POST", f"{_TABLE}/plan"): _READER,
    ("GET", f"{_TABLE}/plan/{{plan_id}}"): _READER,
    ("DELETE", f"{_TABLE}/plan/{{plan_id}}"): _READER,
    ("POST", f"{_TABLE}/tasks"): _READER,
    ("POST", f"{_TABLE}/explain"): _READER,
    ("POST", f"{_TABLE}/rows"): _WRITER,
    ("DELETE", f"{_TABLE}/rows"): _WRITER,
    ("POST", f"{_TABLE}/rows/flush"): _WRITER,
    # Who may only write goes on where it stopped.
    ("GET", f"{_TABLE}/rows/producers/{{app_id}}"): _EITHER,
    ("GET", f"{_TABLE}/credentials"): _EITHER,
    ("POST", f"{_TABLE}/sign"): _EITHER,
    ("POST", f"{_NAMESPACE}/register"): _WRITER,
    # Whose table the body names must be readable, which the use case checks.
    ("POST", f"{_NAMESPACE}/clone"): _WRITER,
    ("POST", "/v1/tables/rename"): InBody(WRITE, RenameTableRequest, _list_renamed),
    ("POST", "/v1/transactions/commit"): InBody(WRITE, CommitTransactionRequest, _list_changed),
    # Changes are filtered by what their reader may read.
    ("GET", "/v1/events"): InQuery("namespace"),
    ("POST", "/v1/events"): AnyToken(),
    ("GET", f"{_NAMESPACE}/views"): _READER,
    ("POST", f"{_NAMESPACE}/views"): _WRITER,
    ("GET", _VIEW): _READER,
    ("HEAD", _VIEW): _READER,
    ("POST", _VIEW): _WRITER,
    ("DELETE", _VIEW): _WRITER,
    ("POST", f"{_NAMESPACE}/register-view"): _WRITER,
    ("POST", "/v1/views/rename"): InBody(WRITE, RenameTableRequest, _list_renamed),
    # The list of jobs is filtered by what its reader may read.
    ("GET", "/pipeline/v1/jobs"): AnyToken(),
    ("GET", f"{_PIPELINE}/runs"): _READER,
    ("POST", _JOBS): _WRITER,
    ("POST", f"{_JOBS}/{{job}}"): _WRITER,
    ("POST", f"{_JOBS}/{{job}}/end"): _WRITER,
    # So is the history of the lake.
    ("GET", "/v1/history"): AnyToken(),
    ("GET", f"{_NAMESPACE}/history"): _READER,
    ("GET", f"{_TABLE}/history"): _READER,
    ("GET", f"{_VIEW}/history"): _READER,
    # So is the list of what was dropped; a namespace takes the right to manage, which the use case checks.
    ("GET", "/v1/dropped"): AnyToken(),
    ("POST", f"{_NAMESPACE}/undrop"): _WRITER,
    ("DELETE", "/v1/dropped/{kind}/{object_id}"): WholeCatalog(),
    # So is the list of tables' statistics.
    ("GET", "/pipeline/v1/tables"): AnyToken(),
    ("POST", "/pipeline/v1/namespaces/{namespace}/tables/{table}/orphans"): _WRITER,
}
"""By method and route template; features bring those of their own routes. A route without one is refused."""


def check_path(need: InPath, principal: Principal, namespace: Namespace) -> None:
    """Raise ForbiddenError unless the principal may."""
    if not grants_path(need, principal, namespace):
        raise build_refusal(namespace)


def grants_path(need: InPath, principal: Principal, namespace: Namespace) -> bool:
    """Return whether the principal has what the route needs."""
    for capability in need.any_of:
        if principal.may(capability, namespace):
            return True
    return not need.any_of and principal.sees(namespace)


def check_query(principal: Principal, parent: Namespace | None) -> None:
    if parent is not None and not principal.sees(parent):
        raise build_refusal(parent)


def check_whole_catalog(principal: Principal) -> None:
    if not principal.may(EVERYTHING, ()):
        raise ForbiddenError("The caller's scopes don't allow this: it takes *")


def check_body(need: InBody, principal: Principal, request: BaseModel) -> str:
    """Check the namespaces of a body, and return what the request is about for the audit log; ForbiddenError."""
    if not isinstance(request, need.model):
        raise ForbiddenError("The caller's scopes can't be compared with this request")
    names = list(need.names(request))
    for namespace, _ in names:
        if not principal.may(need.capability, namespace):
            raise build_refusal(namespace)
    return ", ".join(PathNames(namespace, name).resource for namespace, name in names)


def is_for_writers(need: Need) -> bool:
    """Return whether the route needs the capability to write."""
    match need:
        case InPath(any_of):
            return any_of == (WRITE,)
        case InBody(capability):
            return capability is WRITE
        case _:
            return False
