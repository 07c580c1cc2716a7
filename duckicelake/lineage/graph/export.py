"""Export a graph as Graphviz, Mermaid or JSON lines; serve the JSON schemas of this package's facets."""

import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from typing import Any, Final, Literal

import orjson

from duckicelake.catalog.context.caller import Principal
from duckicelake.errors import NotFoundError
from duckicelake.lineage.graph import traversal as lineage
from duckicelake.lineage.graph.model import WHOLE, GraphEdge, GraphNode, LineageGraphView
from duckicelake.lineage.graph.traversal import GraphQuery
from duckicelake.postgres.database import Database

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,99}")
Format = Literal["dot", "mermaid", "ndjson"]
MEDIA_TYPES: Final[Mapping[Format, str]] = {
    "dot": "text/vnd.graphviz; charset=utf-8",
    "mermaid": "text/plain; charset=utf-8",
    "ndjson": "application/x-ndjson",
}
_SHAPES: Final = {"TABLE": "box", "VIEW": "component"}


def read_facet_schema(name: str) -> bytes | None:
    """Read the schema of a facet, such as `duckicelake_inferred`; None if it isn't this package's."""
    if not _NAME.fullmatch(name):
        return None
    found = files("duckicelake.lineage").joinpath("schemas", f"{name}.json")
    return found.read_bytes() if found.is_file() else None


def format_dot(graph: LineageGraphView) -> str:
    """Format the graph for Graphviz: boxes for tables; dashed edges are inferred."""
    lines = ["digraph lineage {", "  rankdir=LR;", '  node [fontname="sans-serif"];']
    for node in graph.nodes:
        shape = _SHAPES.get(node.kind, "ellipse")
        bold = ", penwidth=2" if node.id == graph.start else ""
        lines.append(f"  n{node.id} [label={_quote(_format_label(node))}, shape={shape}{bold}];")
    for edge in graph.edges:
        dashed = "" if edge.confidence is None else ", style=dashed"
        lines.append(f"  n{edge.source} -> n{edge.target} [label={_quote(_format_job(edge))}{dashed}];")
    return "\n".join([*lines, "}", ""])


def format_mermaid(graph: LineageGraphView) -> str:
    """Format the graph for Mermaid, in Markdown; dashed edges are inferred."""
    lines = ["flowchart LR"]
    lines += [f"  n{node.id}[{_escape(_format_label(node))}]" for node in graph.nodes]
    for edge in graph.edges:
        arrow = "-->" if edge.confidence is None else "-.->"
        label = _format_job(edge)
        lines.append(f"  n{edge.source} {arrow}" + (f"|{_escape(label)}|" if label else "") + f" n{edge.target}")
    lines.append(f"  style n{graph.start} stroke-width:3px")
    return "\n".join([*lines, ""])


def format_ndjson(events: Iterable[Mapping[str, Any]]) -> bytes:
    """Format events as JSON lines."""
    return b"".join(orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE) for event in events)


def _format_label(node: GraphNode) -> str:
    return "\n".join([node.name, *node.columns])


def _format_job(edge: GraphEdge) -> str:
    return "\n".join(_iterate_lines(edge))


def _iterate_lines(edge: GraphEdge) -> Iterator[str]:
    if edge.job is not None:
        yield edge.job.name
    for column in edge.columns:
        target = "every row" if column.target_field == WHOLE else column.target_field
        yield f"{column.source_field} → {target}" + (f" ({column.subtype})" if column.subtype else "")


def _quote(text: str) -> str:
    """Quote a string for Graphviz."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{_replace_unprintable(escaped)}"'


def _escape(text: str) -> str:
    """Escape a string for Mermaid, by entities."""
    parts = (letter if letter.isalnum() or letter in " ._-/→()\n" else f"#{ord(letter)};" for letter in text)
    return f'"{_replace_unprintable("".join(parts).replace(chr(10), "<br/>"))}"'


def _replace_unprintable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


_DRAWN: Final = {"dot": format_dot, "mermaid": format_mermaid}


def export_graph(database: Database, reader: Principal, question: GraphQuery, format_: Format) -> bytes:
    """Export the graph around a node, as a drawing or as the events of its runs."""
    found = lineage.read_graph(database, reader, question)
    if format_ == "ndjson":
        return format_ndjson(lineage.read_events(database, reader, found, question.at))
    return _DRAWN[format_](found).encode()


def read_schema(facet: str) -> bytes:
    """Read the JSON schema of a facet of this package; NotFoundError."""
    found = read_facet_schema(facet)
    if found is None:
        raise NotFoundError(f"This catalog has no facet {facet!r}")
    return found
