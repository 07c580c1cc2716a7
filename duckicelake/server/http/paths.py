"""Names and pages in URLs, and the routes that /v1/config advertises."""

from typing import Annotated, Final, NamedTuple

from fastapi import Depends, Query, Request
from starlette.types import Scope

from duckicelake.catalog.context.page import PageRequest
from duckicelake.iceberg.identifiers import Namespace, check_name, decode_name, decode_namespace
from duckicelake.server.http.scope import PATH_NAMES_KEY

PREFIX: Final = "/v1"
ENDPOINTS: Final = (
    "GET /v1/{prefix}/namespaces",
    "POST /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "DELETE /v1/{prefix}/namespaces/{namespace}",
    "POST /v1/{prefix}/namespaces/{namespace}/properties",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "POST /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/unregister",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/sign",
    "POST /v1/{prefix}/namespaces/{namespace}/register",
    "POST /v1/{prefix}/tables/rename",
    "POST /v1/{prefix}/transactions/commit",
    "GET /v1/{prefix}/namespaces/{namespace}/views",
    "POST /v1/{prefix}/namespaces/{namespace}/views",
    "GET /v1/{prefix}/namespaces/{namespace}/views/{view}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/views/{view}",
    "POST /v1/{prefix}/namespaces/{namespace}/views/{view}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/views/{view}",
    "POST /v1/{prefix}/views/rename",
    "POST /v1/{prefix}/namespaces/{namespace}/register-view",
)
"""The specification's template text, `{prefix}` included, although this server advertises no prefix."""
EXEMPT_PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics"})
"""A busy server is alive, and who watches it must see so."""
PUBLIC_BODY_PATHS: Final = frozenset({f"{PREFIX}/oauth/tokens"})
"""Paths whose bodies are read before it is known who sends them."""
MAX_PAGE_ITEMS = 10_000


class PathNames(NamedTuple):
    """Decoded names of a URL's path. name: of the table or view; empty if the path has none."""

    namespace: Namespace
    name: str


def find_path_names(scope: Scope) -> PathNames | None:
    """Decode the names of the path, once per request; None if the path has no namespace.

    Raises:
        InvalidRequestError: The path has a namespace that can't be decoded.

    """
    names: PathNames | None = scope.get(PATH_NAMES_KEY)
    texts = scope["path_params"]
    if names is None and "namespace" in texts:
        name = decode_name(texts.get("table") or texts.get("view") or "")
        names = scope[PATH_NAMES_KEY] = PathNames(decode_namespace(texts["namespace"]), name)
    return names


def _get_path_names(scope: Scope) -> PathNames:
    names = find_path_names(scope)
    assert names is not None
    return names


async def _parse_namespace(request: Request, namespace: str) -> Namespace:  # noqa: ARG001 - FastAPI documents it
    return _get_path_names(request.scope).namespace


async def _parse_table(request: Request, table: str) -> str:  # noqa: ARG001
    return check_name(_get_path_names(request.scope).name, "table name")


async def _parse_view(request: Request, view: str) -> str:  # noqa: ARG001
    return check_name(_get_path_names(request.scope).name, "view name")


def parse_parent(parent: str | None) -> Namespace | None:
    """Parse the query parameter `parent`; None if it is empty or missing."""
    # PyIceberg percent-encodes levels before the query is encoded, Java sends them plain: decode once more, but `+`.
    return decode_namespace(parent.replace("+", "%2B")) if parent else None


async def _parse_parent(
    parent: Annotated[
        str | None, Query(description="list the children of this namespace; levels joined by %1F")
    ] = None,
) -> Namespace | None:
    return parse_parent(parent)


async def _parse_namespace_filter(
    namespace: Annotated[str | None, Query(description="of tables in this one; levels joined by %1F")] = None,
) -> Namespace | None:
    return parse_parent(namespace)


async def _parse_page(
    token: Annotated[str | None, Query(alias="pageToken", description="empty: the first page; absent: all")] = None,
    size: Annotated[int | None, Query(alias="pageSize", ge=1, description="most items on a page")] = None,
) -> PageRequest:
    return PageRequest(token, None if size is None else min(size, MAX_PAGE_ITEMS))


NamespacePath = Annotated[Namespace, Depends(_parse_namespace)]

TablePath = Annotated[str, Depends(_parse_table)]

ViewPath = Annotated[str, Depends(_parse_view)]

PageQuery = Annotated[PageRequest, Depends(_parse_page)]

ParentQuery = Annotated[Namespace | None, Depends(_parse_parent)]

NamespaceQuery = Annotated[Namespace | None, Depends(_parse_namespace_filter)]
