"""`duckicelake lineage show`: what a table or column comes from and what comes from it, as a tree or for programs."""

import sys
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Annotated, Final, Literal, cast

import orjson
import typer
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from duckicelake.catalog.access.principal import ANYBODY
from duckicelake.catalog.lineage import export as lineage_export
from duckicelake.catalog.lineage.answers import graph_answer
from duckicelake.catalog.lineage.graph import MOST_DEPTH, MOST_NODES, Question, graph
from duckicelake.catalog.services import Services
from duckicelake.cli.assembly.opened import opened
from duckicelake.cli.auditing import moment, plain
from duckicelake.cli.complaining import one_line_errors
from duckicelake.cli.counting import counted
from duckicelake.cli.explaining import add_command, group
from duckicelake.cli.lineage.delivered import EXAMPLES as DELIVERIES
from duckicelake.cli.lineage.delivered import deliveries
from duckicelake.errors import InvalidRequest
from duckicelake.lake.lineage.forgetting import forget as forget_old
from duckicelake.lake.lineage.forgetting import kept
from duckicelake.lineage.graph import WHOLE, Direction, Edge, Graph, Node
from duckicelake.settings import read_settings

Shown = Literal["tree", "json", "dot", "mermaid", "ndjson"]
EXAMPLES: Final = (
    "duckicelake lineage show sales.orders",
    "duckicelake lineage show sales.orders#amount --upstream",
    "duckicelake lineage show sales.orders --columns --at 2026-05-01T12:00",
    "duckicelake lineage show sales.orders --format dot | dot -Tsvg > orders.svg",
    "duckicelake lineage show sales.orders --format ndjson | jq .job.name",
)


def show(
    node: Annotated[str, typer.Argument(help="A table or view, as sales.orders, or a column, as sales.orders#amount.")],
    lake: Annotated[Path | None, typer.Option("--lake", help="Folder of the embedded lake (default: ./lake).")] = None,
    columns: Annotated[bool, typer.Option("--columns", help="With what goes from column to column.")] = False,
    upstream: Annotated[bool, typer.Option("--upstream", help="Only what it comes from.")] = False,
    downstream: Annotated[bool, typer.Option("--downstream", help="Only what comes from it.")] = False,
    depth: Annotated[int, typer.Option(min=1, max=MOST_DEPTH, help="Steps away from it, at most.")] = 5,
    at: Annotated[str | None, typer.Option(help="As of a time in ISO form, or an age, as 2h or 7d.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=MOST_NODES, help="How many datasets at most.")] = 200,
    shown: Annotated[Shown, typer.Option("--format", help="ndjson: the events of the runs behind it.")] = "tree",
) -> None:
    """Show what a table or a column comes from, and what comes from it, by which jobs and runs.

    It shows all that the catalog knows, whoever asks: it needs the database.
    """
    with one_line_errors():
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
    console = Console(highlight=False)
    # A file or a pipe has no width: there every line is one.
    (console if console.is_terminal else Console(highlight=False, width=500)).print(_tree(found, question.direction))


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


def forget(
    older_than: Annotated[str, typer.Option(help="An age, as 90d, or a time in ISO form.")],
    lake: Annotated[Path | None, typer.Option("--lake", help="Folder of the embedded lake (default: ./lake).")] = None,
) -> None:
    """Forget old runs and events. What came from what stays known, then without the runs behind it."""
    with one_line_errors(), opened(read_settings({"lake": lake})) as services:
        before = moment(older_than)
        gone, waiting = forget_old(services.database, before), kept(services.database, before)
    typer.echo(f"forgot {counted(gone.events, 'event')} and {counted(gone.runs, 'run')}")
    for receiver, events in waiting:
        advice = f"if it is gone for good: duckicelake lineage deliveries {receiver} --forget"
        typer.echo(f"waiting for {receiver}: {counted(events, 'event')}; {advice}")


app = group("lineage", "What tables come from, and what comes from them.")
add_command(app, show, *EXAMPLES)
add_command(app, forget, "duckicelake lineage forget --older-than 90d")
add_command(app, deliveries, *DELIVERIES)
