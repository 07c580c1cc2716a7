"""PURE. A graph as text that other programs draw: Graphviz and Mermaid, and as lines of JSON what runs have said."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal

import orjson

from duckicelake.lineage.graph import WHOLE, Edge, Graph, Node

Format = Literal["dot", "mermaid", "ndjson"]
MEDIA_TYPES: Final[Mapping[Format, str]] = {
    "dot": "text/vnd.graphviz; charset=utf-8",
    "mermaid": "text/plain; charset=utf-8",
    "ndjson": "application/x-ndjson",
}
_SHAPES: Final = {"TABLE": "box", "VIEW": "component"}


def dot(graph: Graph) -> str:
    """In Graphviz's language: boxes for tables; dashed edges are inferred."""
    lines = ["digraph lineage {", "  rankdir=LR;", '  node [fontname="sans-serif"];']
    for node in graph.nodes:
        shape = _SHAPES.get(node.kind, "ellipse")
        bold = ", penwidth=2" if node.id == graph.start else ""
        lines.append(f"  n{node.id} [label={_quoted(_label(node))}, shape={shape}{bold}];")
    for edge in graph.edges:
        dashed = "" if edge.confidence is None else ", style=dashed"
        lines.append(f"  n{edge.source} -> n{edge.target} [label={_quoted(_what(edge))}{dashed}];")
    return "\n".join([*lines, "}", ""])


def mermaid(graph: Graph) -> str:
    """In Mermaid's language, for Markdown: dashed edges are inferred."""
    lines = ["flowchart LR"]
    lines += [f"  n{node.id}[{_escaped(_label(node))}]" for node in graph.nodes]
    for edge in graph.edges:
        arrow = "-->" if edge.confidence is None else "-.->"
        label = _what(edge)
        lines.append(f"  n{edge.source} {arrow}" + (f"|{_escaped(label)}|" if label else "") + f" n{edge.target}")
    lines.append(f"  style n{graph.start} stroke-width:3px")
    return "\n".join([*lines, ""])


def ndjson(events: Iterable[Mapping[str, Any]]) -> bytes:
    """One event of OpenLineage on each line."""
    return b"".join(orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE) for event in events)


def _label(node: Node) -> str:
    return "\n".join([node.name, *node.columns])


def _what(edge: Edge) -> str:
    return "\n".join(_lines_of(edge))


def _lines_of(edge: Edge) -> Iterator[str]:
    if edge.job is not None:
        yield edge.job.name
    for column in edge.columns:
        target = "every row" if column.target_field == WHOLE else column.target_field
        yield f"{column.source_field} → {target}" + (f" ({column.subtype})" if column.subtype else "")


def _quoted(text: str) -> str:
    """A string of Graphviz's."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{_printable(escaped)}"'


def _escaped(text: str) -> str:
    """A string of Mermaid's, in which entities stand for what means something to it."""
    parts = (letter if letter.isalnum() or letter in " ._-/→()\n" else f"#{ord(letter)};" for letter in text)
    return f'"{_printable("".join(parts).replace(chr(10), "<br/>"))}"'


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
