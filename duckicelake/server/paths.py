"""Names in URLs: what routes get from path and query as namespaces, tables and pages."""

from typing import Annotated

from fastapi import Depends, Query

from duckicelake.catalog.paging import PageRequest
from duckicelake.iceberg.names import Namespace, check_name, decode_name, decode_namespace

LARGEST_PAGE = 10_000


async def _namespace(namespace: str) -> Namespace:
    return decode_namespace(namespace)


def table_name(table: str) -> str:
    """The name of a table as a path has it; InvalidRequest."""
    return check_name(decode_name(table), "table name")


async def _table(table: str) -> str:
    return table_name(table)


async def _view(view: str) -> str:
    return check_name(decode_name(view), "view name")


def parent_of(parent: str | None) -> Namespace | None:
    """The namespace of the query parameter `parent`; None if it names none."""
    # PyIceberg percent-encodes levels before the query is encoded, Java sends them plain: decode once more, but `+`.
    return decode_namespace(parent.replace("+", "%2B")) if parent else None


async def _parent(
    parent: Annotated[
        str | None, Query(description="list the children of this namespace; levels joined by %1F")
    ] = None,
) -> Namespace | None:
    return parent_of(parent)


async def _of_namespace(
    namespace: Annotated[str | None, Query(description="of tables in this one; levels joined by %1F")] = None,
) -> Namespace | None:
    return parent_of(namespace)


async def _page(
    token: Annotated[str | None, Query(alias="pageToken", description="empty: the first page; absent: all")] = None,
    size: Annotated[int | None, Query(alias="pageSize", ge=1, description="most items on a page")] = None,
) -> PageRequest:
    return PageRequest(token, None if size is None else min(size, LARGEST_PAGE))


NamespacePath = Annotated[Namespace, Depends(_namespace)]
TablePath = Annotated[str, Depends(_table)]
ViewPath = Annotated[str, Depends(_view)]
PageQuery = Annotated[PageRequest, Depends(_page)]
ParentQuery = Annotated[Namespace | None, Depends(_parent)]
NamespaceQuery = Annotated[Namespace | None, Depends(_of_namespace)]
