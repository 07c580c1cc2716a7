"""What `duckicelake lineage show` prints: a tree, or what programs read."""

import sys
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import cast

import orjson
from rich.text import Text
from rich.tree import Tree

from duckicelake.catalog.access.principal import ANYBODY
from duckicelake.catalog.lineage import export as lineage_export
from duckicelake.catalog.lineage.answers import graph_answer
from duckicelake.catalog.lineage.graph import Question, graph
from duckicelake.catalog.services import Services
from duckicelake.cli import terminal
from duckicelake.cli.assembly.opened import opened
from duckicelake.cli.commands.lineage import Shown
from duckicelake.cli.moments import moment
from duckicelake.cli.terminal import plain
from duckicelake.errors import InvalidRequest
from duckicelake.lineage.graph import WHOLE, Direction, Edge, Graph, Node
from duckicelake.settings import read_settings


def show(
    *,
    node: str,
    lake: Path | None,
    columns: bool,
    upstream: bool,
    downstream: bool,
    depth: int,
    at: str | None,
    limit: int,
    shown: Shown,
) -> None:
    """Print it. Raises as `graph`, StartupError where there is no lake."""
    if upstream and downstream:
        raise InvalidRequest("both is what is shown without --upstream and --downstream: give one of them")
    direction: Direction = "upstream" if upstream else "downstream" if downstream else "both"
    time = None if at is None else moment(at)
    question = Question(node, direction, depth, time, columns, limit)
    with opened(read_settings({"lake": lake})) as services:
        _show(services, question, shown)


def _show(services: Services, question: Question, shown: Shown) -> None:
    if shown in lineage_export.MEDIA_TYPES:
        drawn = lineage_export.export(services.database, ANYBODY, question, cast("lineage_export.Format", shown))
        sys.stdout.write(drawn.decode())
        return
    found = graph(services.database, ANYBODY, question)
    if shown == "json":
        answer = graph_answer(found, question.direction, question.depth, question.at)
        sys.stdout.write(orjson.dumps(answer.to_json(), option=orjson.OPT_APPEND_NEWLINE).decode())
        return
    terminal.show(_tree(found, question.direction))


def _tree(found: Graph, direction: Direction) -> Tree:
    start = found.node(found.start)
    tree = Tree(_named(start, found.column))
    for side, heading in (("upstream", "comes from"), ("downstream", "goes to")):
        if direction in {side, "both"}:
            branch = tree.add(Text(heading, style="dim"))
            _grow(branch, found, start, {start.id}, is_upstream=side == "upstream")
            if not branch.children:
                branch.add(Text("nothing that is known", style="dim"))
    if found.is_truncated:
        tree.add(Text("There is more: see --limit", style="yellow"))
    return tree


def _grow(branch: Tree, found: Graph, node: Node, grown: set[int], *, is_upstream: bool) -> None:
    """Add what is next; what has come already isn't shown with all that follows once more."""
    for other, edges in _next(found, node, is_upstream=is_upstream):
        grows = other.id not in grown
        label = _named(other, None)
        for edge in edges:
            label.append_text(_told(edge))
        if not grows:
            label.append(" (as above)", style="dim")
        child = branch.add(label)
        grown.add(other.id)
        if grows:
            _grow(child, found, other, grown, is_upstream=is_upstream)


def _next(found: Graph, node: Node, *, is_upstream: bool) -> Iterator[tuple[Node, list[Edge]]]:
    near: dict[int, list[Edge]] = {}
    for edge in found.edges:
        here, there = (edge.target, edge.source) if is_upstream else (edge.source, edge.target)
        if here == node.id and there != here:
            near.setdefault(there, []).append(edge)
    for number, edges in near.items():
        yield found.node(number), edges


def _named(node: Node, column: str | None) -> Text:
    label = plain(node.name if column is None else f"{node.name}#{column}")
    label.stylize("bold")
    if node.lifecycle == "DROP":
        label.append(" dropped", style="red")
    if node.table is None:
        label.append_text(plain(f" in {node.namespace}"))
    return label


def _told(edge: Edge) -> Text:
    """The job, its newest run, and the columns: a line for each."""
    label = Text("\n  " if edge.columns else " ")
    label.append_text(plain("by definition" if edge.job is None else f"by {edge.job.name}"))
    if edge.runs:
        run = edge.runs[0]
        facts = (run.engine, run.principal, f"{run.started.astimezone(UTC):%Y-%m-%d %H:%M:%S}")
        label.append_text(plain(f" ({', '.join(fact for fact in facts if fact)})"))
    if edge.confidence is not None:
        label.append(f" inferred, {edge.confidence:.0%} sure", style="yellow")
    for column in edge.columns:
        target = "every row" if column.target_field == WHOLE else column.target_field
        label.append("\n    ")
        label.append_text(plain(f"{column.source_field} → {target}" + (f" {column.subtype}" if column.subtype else "")))
    return label
