"""Resources: the list of tables and views, and each of them by a URI with its percent-encoded name."""

from typing import Final
from urllib.parse import quote, unquote

from mcp import types
from pydantic import AnyUrl

from duckicelake.mcp.answers import Json
from duckicelake.mcp.tools.catalog import DescribeArguments, Description, ListArguments, describe, list_objects
from duckicelake.mcp.tools.tool import Tool, ToolArguments, ToolContext, ToolResult

_TABLES_URI: Final = "lake://tables"
_MAX_LISTED: Final = 1000
TABLES_RESOURCE: Final = types.Resource(
    uri=AnyUrl(_TABLES_URI),
    name="tables",
    title="Tables and views",
    description="The tables and views that the caller may list, each with the URI of its description.",
    mimeType="application/json",
)
TABLE_TEMPLATE: Final = types.ResourceTemplate(
    uriTemplate=f"{_TABLES_URI}/{{name}}",
    name="table",
    title="A table or view",
    description="What the tool describe returns. The name is percent-encoded.",
    mimeType="application/json",
)


class TableResource(ToolResult):
    """A table or view, and the URI of its description."""

    name: str
    kind: str
    uri: str


class TableResources(ToolResult):
    """The tables and views of the lake. has_more: there are more than are listed."""

    tables: list[TableResource]
    has_more: bool


class NoArguments(ToolArguments):
    """Nothing is asked."""


def list_table_resources(context: ToolContext, arguments: NoArguments) -> TableResources:  # noqa: ARG001
    """List the first tables and views of the lake."""
    found = list_objects(context, ListArguments(recursive=True, limit=_MAX_LISTED))
    tables = [
        TableResource(name=one.name, kind=one.kind, uri=f"{_TABLES_URI}/{quote(one.name, safe='')}")
        for one in found.objects
        if one.kind != "namespace"
    ]
    return TableResources(tables=tables, has_more=found.has_more)


_LISTER: Final = Tool("read_resource", "", "", NoArguments, TableResources, list_table_resources)
_READER: Final = Tool("read_resource", "", "", DescribeArguments, Description, describe)


def find_resource(uri: str) -> tuple[Tool, Json] | None:
    """Find what reads a resource, and its arguments."""
    if uri.rstrip("/") == _TABLES_URI:
        return _LISTER, {}
    name = unquote(uri.removeprefix(f"{_TABLES_URI}/"))
    return (_READER, {"name": name}) if uri.startswith(f"{_TABLES_URI}/") else None
