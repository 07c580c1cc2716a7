"""Names and pages in URLs, and the routes that /v1/config advertises."""

from typing import Annotated, Final

from fastapi import Depends, Query

from duckicelake.catalog.context.page import PageRequest
from duckicelake.iceberg.identifiers import Namespace, check_name, decode_name, decode_namespace

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


async def _parse_namespace(namespace: str) -> Namespace:
    return decode_namespace(namespace)


def parse_table_name(table: str) -> str:
    """The name of a table as a path has it; InvalidRequest."""
    return check_name(decode_name(table), "table name")


async def _parse_table(table: str) -> str:
    return parse_table_name(table)


async def _parse_view(view: str) -> str:
    return check_name(decode_name(view), "view name")


def parse_parent(parent: str | None) -> Namespace | None:
    """The namespace of the query parameter `parent`; None if it names none."""
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
