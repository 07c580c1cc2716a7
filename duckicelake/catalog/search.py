"""Search names, columns and comments, of what the caller may see."""

from typing import Final, Literal

from duckicelake.catalog.context.outside import Place
from duckicelake.catalog.context.page import ListPage, PageRequest, cut_page
from duckicelake.catalog.context.services import Services
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.identifiers import Namespace, parse_readable_namespace, to_schema_name
from duckicelake.iceberg.model import SpecModel
from duckicelake.lake.ducklake.search import FoundObject, SearchScope, find_objects

MAX_TEXT_CHARS: Final = 200
Matched = Literal["name", "comment", "column", "column-comment"]


class SearchedObject(SpecModel):
    """A namespace, table or view that holds the text.

    Attributes:
        name: null of a namespace.
        matched: what holds the text.
        columns: those whose name or comment does.

    """

    kind: Literal["namespace", "table", "view"]
    namespace: tuple[str, ...]
    name: str | None = None
    comment: str | None = None
    matched: tuple[Matched, ...]
    columns: tuple[str, ...] = ()


def search_objects(
    services: Services, text: str, namespace: Namespace | None, page: PageRequest
) -> ListPage[SearchedObject]:
    """Find namespaces that the caller may list, and tables and views that it may read. Raises InvalidRequestError."""
    if not text.strip() or len(text) > MAX_TEXT_CHARS or "\0" in text:
        raise InvalidRequestError(f"Invalid q: expected a part of a word, of 1 to {MAX_TEXT_CHARS} characters")
    principal = services.caller.principal
    at_most = principal.without_outside()
    schema = None if namespace is None else to_schema_name(namespace)
    scope = SearchScope(schema, at_most.readable_schemas(), at_most.readable_ids())
    with services.database.statement(only_reads=True) as cursor:
        found = cut_page(find_objects(cursor, text, scope, page.after, page.fetch), page, lambda one: one.key)
    placed = [(parse_readable_namespace(one.schema_name), one) for one in found.items]
    objects = [_build(place, one) for place, one in placed if place is not None]
    inner = principal.filter_readable([one for one in objects if one.name is not None], _find_place)
    readable = set(map(_find_place, inner))
    seen = (one for one in objects if (_find_place(one) in readable if one.name else principal.sees(one.namespace)))
    return ListPage(tuple(seen), found.next_token)


def _find_place(found: SearchedObject) -> Place:
    return found.namespace, found.name or ""


def _build(namespace: Namespace, found: FoundObject) -> SearchedObject:
    matched: dict[Matched, bool] = {
        "name": found.by_name,
        "comment": found.by_comment,
        "column": found.by_column,
        "column-comment": found.by_column_comment,
    }
    return SearchedObject(
        kind=found.kind,
        namespace=namespace,
        name=found.name or None,
        comment=found.comment,
        matched=tuple(what for what, is_so in matched.items() if is_so),
        columns=tuple(found.columns),
    )
