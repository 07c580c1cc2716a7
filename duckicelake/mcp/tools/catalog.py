"""Tools that look at names and descriptions: list_objects, search, describe."""

from collections.abc import Mapping
from itertools import islice
from typing import Annotated, Final, Literal

from pydantic import Field

from duckicelake.client.lake import Lake
from duckicelake.client.models import (
    ColumnInfo,
    RefInfo,
    TableInfo,
    TableSize,
    quote_sql_name,
)
from duckicelake.mcp.tools.tool import (
    NameArgument,
    NamespaceArgument,
    Tool,
    ToolArguments,
    ToolContext,
    ToolResult,
)
from duckicelake.rest.names import format_name, parse_table

_MAX_LISTED: Final = 1000
_MAX_TEXT_CHARS: Final = 2000
"""Of one comment in a result."""
_Matched = Literal["name", "comment", "column", "column_comment"]
_MATCHED: Final[Mapping[str, _Matched]] = {
    "name": "name",
    "comment": "comment",
    "column": "column",
    "column-comment": "column_comment",
}


class ListArguments(ToolArguments):
    """What to list."""

    namespace: NamespaceArgument = ""
    recursive: Annotated[bool, Field(description="Also list what is in the namespaces below.")] = False
    offset: Annotated[int, Field(ge=0, le=1_000_000, description="Leave out so many at the begin.")] = 0
    limit: Annotated[int, Field(ge=1, le=_MAX_LISTED)] = 200

    @property
    def object_name(self) -> str:
        return self.namespace


class ListedObject(ToolResult):
    """A namespace, table or view."""

    kind: Literal["namespace", "table", "view"]
    name: str


class ListResult(ToolResult):
    """A part of a list."""

    objects: list[ListedObject]
    has_more: Annotated[bool, Field(description="Call again with offset raised by the number of objects.")]


def list_objects(context: ToolContext, arguments: ListArguments) -> ListResult:
    """List a part of what is in a namespace."""
    found = context.lake.list(arguments.namespace, is_recursive=arguments.recursive)
    end = arguments.offset + arguments.limit
    part = list(islice(found, arguments.offset, end + 1))
    objects = [ListedObject(kind=one.kind, name=one.name) for one in part[: arguments.limit]]
    return ListResult(objects=objects, has_more=len(part) > arguments.limit)


class SearchArguments(ToolArguments):
    """What to search for."""

    text: Annotated[str, Field(min_length=1, max_length=200, description="A part of a word, in any case.")]
    namespace: NamespaceArgument = ""
    limit: Annotated[int, Field(ge=1, le=200)] = 50

    @property
    def object_name(self) -> str:
        return self.namespace


class SearchMatch(ToolResult):
    """Where the text was found."""

    name: str
    kind: Literal["namespace", "table", "view"]
    matched: Annotated[list[_Matched], Field(description="What holds the text.")]
    columns: Annotated[list[str], Field(description="Columns whose name or comment holds the text.")]
    comment: str | None


class ObjectMatches(ToolResult):
    """What was found, by full name."""

    matches: list[SearchMatch]
    is_complete: Annotated[bool, Field(description="False: search a namespace, or a rarer word.")]


def search(context: ToolContext, arguments: SearchArguments) -> ObjectMatches:
    """Find a text in names, comments and columns, as the catalog knows them."""
    found = list(islice(context.lake.search(arguments.text, arguments.namespace), arguments.limit + 1))
    matches = [
        SearchMatch(
            name=one.name,
            kind=one.kind,
            matched=[_MATCHED[what] for what in one.matched],
            columns=list(one.columns),
            comment=_shorten(one.comment),
        )
        for one in found[: arguments.limit]
    ]
    return ObjectMatches(matches=matches, is_complete=len(found) <= arguments.limit)


class DescribeArguments(ToolArguments):
    """What to describe."""

    name: NameArgument


class DescribedColumn(ToolResult):
    """A column. type: Iceberg's, as struct<a: int>."""

    name: str
    type: str
    is_required: bool
    comment: str | None


class DescribedRef(ToolResult):
    """A branch or tag, and the snapshot that it points to."""

    name: str
    kind: Literal["branch", "tag"]
    snapshot_id: int


class DescribedSize(ToolResult):
    """How large a table is. rows: without deleted ones."""

    rows: int
    files: int
    bytes: int


class Description(ToolResult):
    """A table or view. Members that the kind doesn't have are null or empty."""

    name: str
    sql_name: Annotated[str, Field(description="The name to use in run_query.")]
    kind: Literal["table", "view"]
    comment: str | None
    columns: list[DescribedColumn]
    partition_fields: list[str]
    sort_fields: list[str]
    snapshot_id: int | None
    snapshot_time: str | None
    refs: list[DescribedRef]
    size: DescribedSize | None
    properties: dict[str, str]
    sql: Annotated[dict[str, str], Field(description="The text of a view, by dialect.")]


def describe(context: ToolContext, arguments: DescribeArguments) -> Description:
    """Describe a table or view."""
    info = context.lake.find(arguments.name)
    is_table = isinstance(info, TableInfo)
    snapshot = info.snapshot if isinstance(info, TableInfo) else None
    size = _find_size(context.lake, arguments.name) if is_table else None
    return Description(
        name=info.name,
        sql_name=quote_sql_name(*parse_table(arguments.name)),
        kind="table" if is_table else "view",
        comment=_shorten(info.comment),
        columns=[_describe_column(column) for column in info.columns],
        partition_fields=list(info.partition_fields) if isinstance(info, TableInfo) else [],
        sort_fields=list(info.sort_fields) if isinstance(info, TableInfo) else [],
        snapshot_id=info.snapshot_id if isinstance(info, TableInfo) else None,
        snapshot_time=None if snapshot is None else snapshot.timestamp.isoformat(),
        refs=[_describe_ref(ref) for ref in info.refs] if isinstance(info, TableInfo) else [],
        size=None if size is None else DescribedSize(rows=size.rows, files=size.files, bytes=size.bytes),
        properties=dict(info.properties),
        sql={} if isinstance(info, TableInfo) else dict(info.sql),
    )


def _find_size(lake: Lake, name: str) -> TableSize | None:
    namespace, table = parse_table(name)
    return next((found.size for found in lake.statistics(format_name(namespace[:-1], namespace[-1]), table)), None)


def _describe_column(column: ColumnInfo) -> DescribedColumn:
    return DescribedColumn(
        name=column.name, type=column.type, is_required=column.is_required, comment=_shorten(column.comment)
    )


def _describe_ref(ref: RefInfo) -> DescribedRef:
    return DescribedRef(name=ref.name, kind=ref.kind, snapshot_id=ref.snapshot_id)


def _shorten(text: str | None) -> str | None:
    return text if text is None or len(text) <= _MAX_TEXT_CHARS else text[: _MAX_TEXT_CHARS - 1] + "…"


CATALOG_TOOLS: Final = (
    Tool(
        "list_objects",
        "List tables",
        "List the namespaces, tables and views of a namespace, or of the lake.",
        ListArguments,
        ListResult,
        list_objects,
    ),
    Tool(
        "search",
        "Search names and comments",
        "Find tables and views whose name, comment, columns or column comments hold a text.",
        SearchArguments,
        ObjectMatches,
        search,
    ),
    Tool(
        "describe",
        "Describe a table or view",
        "Return columns, comments, partitions, branches, tags, size and properties of a table, or the SQL of a view.",
        DescribeArguments,
        Description,
        describe,
    ),
)
