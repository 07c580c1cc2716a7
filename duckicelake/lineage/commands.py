"""`duckicelake lineage`: what tables come from, and what comes from them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final, Literal, cast

import orjson
import typer

from duckicelake.cli.console.command import LOOK, LakeOption, add_command, make_group, one_line_errors
from duckicelake.cli.console.terminal import make_printable, parse_time, print_renderable
from duckicelake.errors import format_count
from duckicelake.lineage.graph.model import MAX_DEPTH, MAX_NODES

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text
    from rich.tree import Tree

    from duckicelake.catalog.context.services import Services
    from duckicelake.lineage.delivery.outbox import DeadLetter, ReceiverStanding
    from duckicelake.lineage.graph import export
    from duckicelake.lineage.graph.model import Direction, GraphEdge, GraphNode, LineageGraphView
    from duckicelake.lineage.graph.traversal import GraphQuery
    from duckicelake.postgres.queries import Transaction
    from duckicelake.settings.model import Settings

ShownFormat = Literal["tree", "json", "dot", "mermaid", "ndjson"]
_RIGHT_ALIGNED: Final = frozenset(
    {"delivered up to", "delivered", "waiting", "oldest", "dropped", "dead", "again", "event", "tries"}
)
_SHOW_EXAMPLES: Final = (
    "duckicelake lineage show sales.orders",
    "duckicelake lineage show sales.orders#amount --upstream",
    "duckicelake lineage show sales.orders --columns --at 2026-05-01T12:00",
    "duckicelake lineage show sales.orders --format dot | dot -Tsvg > orders.svg",
    "duckicelake lineage show sales.orders --format ndjson | jq .job.name",
)
_DELIVERIES_EXAMPLES: Final = (
    "duckicelake lineage deliveries",
    "duckicelake lineage deliveries --dead --json | jq .body.job.name",
    "duckicelake lineage deliveries https://marquez:5000 --retry-dead",
    "duckicelake lineage deliveries https://marquez:5000 --replay",
)


@one_line_errors()
def show(
    node: Annotated[str, typer.Argument(help="A table or view, as sales.orders, or a column, as sales.orders#amount.")],
    lake: LakeOption = None,
    columns: Annotated[bool, typer.Option("--columns", help="Show which columns come from which.")] = False,
    upstream: Annotated[bool, typer.Option("--upstream", help="Show only what it comes from.")] = False,
    downstream: Annotated[bool, typer.Option("--downstream", help="Show only what comes from it.")] = False,
    depth: Annotated[int, typer.Option(min=1, max=MAX_DEPTH, help="Max steps away from it.")] = 5,
    at: Annotated[str | None, typer.Option(help="State as of a time in ISO form, or an age, as 2h or 7d.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=MAX_NODES, help="Max datasets to show.")] = 200,
    shown: Annotated[
        ShownFormat,
        typer.Option("--format", help="Output format; ndjson prints the events of the runs behind the graph."),
    ] = "tree",
) -> None:
    """Show what a table or a column comes from, and what comes from it, by which jobs and runs.

    The command reads the database itself, so it shows everything whatever the rights of clients are.
    """
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.errors import InvalidRequestError
    from duckicelake.lineage.graph.traversal import GraphQuery
    from duckicelake.settings.sources import read_settings

    if upstream and downstream:
        raise InvalidRequestError(
            "--upstream and --downstream exclude each other: without both, both directions are shown"
        )
    direction: Direction = "upstream" if upstream else "downstream" if downstream else "both"
    time = None if at is None else parse_time(at)
    question = GraphQuery(node, direction, depth, time, columns, limit)
    with open_lake(read_settings({"lake": lake})) as services:
        _show_graph(services, question, shown)


@one_line_errors()
def forget(
    older_than: Annotated[str, typer.Option(help="An age, as 90d, or a time in ISO form.")],
    lake: LakeOption = None,
) -> None:
    """Forget old runs and events. The graph of what comes from what stays, without the runs behind it."""
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.lineage.graph.store import count_kept, forget_runs
    from duckicelake.settings.sources import read_settings

    with open_lake(read_settings({"lake": lake})) as services:
        before = parse_time(older_than)
        gone, waiting = forget_runs(services.database, before), count_kept(services.database, before)
    typer.echo(f"forgot {format_count(gone.events, 'event')} and {format_count(gone.runs, 'run')}")
    for receiver, events in waiting:
        advice = f"if it is gone for good: duckicelake lineage deliveries {receiver} --forget"
        typer.echo(f"waiting for {receiver}: {format_count(events, 'event')}; {advice}")


@one_line_errors()
def deliveries(
    receiver: Annotated[str | None, typer.Argument(help="A receiver, as it is listed (default: all).")] = None,
    folder: LakeOption = None,
    dead: Annotated[
        bool, typer.Option("--dead", help="List the newest events that the receiver refused, and why.")
    ] = False,
    retry_dead: Annotated[bool, typer.Option("--retry-dead", help="Send refused events once more.")] = False,
    replay: Annotated[bool, typer.Option("--replay", help="Send all events to the receiver once more.")] = False,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget", help="Forget a receiver that is no longer in the settings, and the events it refused."
        ),
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="Max refused events to list.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line, for programs.")] = False,
) -> None:
    """List for each receiver up to which event it has got events of lineage, what waits, and what it refused."""
    from duckicelake.settings.sources import read_settings

    settings = read_settings({"lake": folder})
    if retry_dead:
        typer.echo(f"to be tried once more as soon as a server runs: {_retry(settings, receiver)}")
    elif replay or forget:
        _apply_action(settings, receiver, replays=replay)
    elif dead:
        _show_dead(settings, receiver, limit, as_json=as_json)
    else:
        _show_standings(settings, receiver, as_json=as_json)


def _show_graph(services: Services, question: GraphQuery, shown: ShownFormat) -> None:
    from duckicelake.catalog.context.caller import ANY_PRINCIPAL
    from duckicelake.lineage.graph import export
    from duckicelake.lineage.graph.responses import build_graph_response
    from duckicelake.lineage.graph.traversal import read_graph

    if shown in export.MEDIA_TYPES:
        drawn = export.export_graph(services.database, ANY_PRINCIPAL, question, cast("export.Format", shown))
        sys.stdout.write(drawn.decode())
        return
    found = read_graph(services.database, ANY_PRINCIPAL, question)
    if shown == "json":
        answer = build_graph_response(found, question.direction, question.depth, question.at)
        sys.stdout.write(orjson.dumps(answer.to_json(), option=orjson.OPT_APPEND_NEWLINE).decode())
        return
    print_renderable(_build_tree(found, question.direction))


def _build_tree(found: LineageGraphView, direction: Direction) -> Tree:
    from rich.text import Text
    from rich.tree import Tree

    start = found.node(found.start)
    tree = Tree(_format_node(start, found.column))
    for side, heading in (("upstream", "comes from"), ("downstream", "goes to")):
        if direction in {side, "both"}:
            branch = tree.add(Text(heading, style="dim"))
            _grow_tree(branch, found, start, {start.id}, is_upstream=side == "upstream")
            if not branch.children:
                branch.add(Text("nothing that is known", style="dim"))
    if found.is_truncated:
        tree.add(Text("There is more: see --limit", style="yellow"))
    return tree


def _grow_tree(branch: Tree, found: LineageGraphView, node: GraphNode, grown: set[int], *, is_upstream: bool) -> None:
    """Add the next nodes. A node that was shown before is added without its own branch."""
    for other, edges in _iterate_next(found, node, is_upstream=is_upstream):
        grows = other.id not in grown
        label = _format_node(other, None)
        for edge in edges:
            label.append_text(_format_edge(edge))
        if not grows:
            label.append(" (as above)", style="dim")
        child = branch.add(label)
        grown.add(other.id)
        if grows:
            _grow_tree(child, found, other, grown, is_upstream=is_upstream)


def _iterate_next(
    found: LineageGraphView, node: GraphNode, *, is_upstream: bool
) -> Iterator[tuple[GraphNode, list[GraphEdge]]]:
    near: dict[int, list[GraphEdge]] = {}
    for edge in found.edges:
        here, there = (edge.target, edge.source) if is_upstream else (edge.source, edge.target)
        if here == node.id and there != here:
            near.setdefault(there, []).append(edge)
    for number, edges in near.items():
        yield found.node(number), edges


def _format_node(node: GraphNode, column: str | None) -> Text:
    label = make_printable(node.name if column is None else f"{node.name}#{column}")
    label.stylize("bold")
    if node.lifecycle == "DROP":
        label.append(" dropped", style="red")
    if node.table is None:
        label.append_text(make_printable(f" in {node.namespace}"))
    return label


def _format_edge(edge: GraphEdge) -> Text:
    """Format the job, its newest run, and the columns, one line per column."""
    from rich.text import Text

    from duckicelake.lineage.graph.model import WHOLE

    label = Text("\n  " if edge.columns else " ")
    label.append_text(make_printable("by definition" if edge.job is None else f"by {edge.job.name}"))
    if edge.runs:
        run = edge.runs[0]
        facts = (run.engine, run.principal, f"{run.started.astimezone(UTC):%Y-%m-%d %H:%M:%S}")
        label.append_text(make_printable(f" ({', '.join(fact for fact in facts if fact)})"))
    if edge.confidence is not None:
        label.append(f" inferred, {edge.confidence:.0%} sure", style="yellow")
    for column in edge.columns:
        target = "every row" if column.target_field == WHOLE else column.target_field
        label.append("\n    ")
        label.append_text(
            make_printable(f"{column.source_field} → {target}" + (f" {column.subtype}" if column.subtype else ""))
        )
    return label


def _show_standings(settings: Settings, receiver: str | None, *, as_json: bool) -> None:
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.errors import InvalidRequestError
    from duckicelake.lineage.delivery.outbox import read_standings

    with open_lake(settings) as services, services.database.reading() as cursor:
        found = [standing for standing in read_standings(cursor) if receiver in {None, standing.transport}]
        if receiver is not None and not found:
            raise InvalidRequestError(_describe_unknown(cursor, receiver))
    if as_json:
        _print_json(found)
        return
    table = _build_table("receiver", "delivered up to", "delivered", "waiting", "oldest", "dropped", "dead", "again")
    for standing in found:
        age = "" if standing.oldest is None else f"{datetime.now(UTC) - standing.oldest}".partition(".")[0]
        counts = (standing.delivered, standing.waiting, age, standing.dropped, standing.dead, standing.again)
        table.add_row(standing.transport, str(standing.event_id), *map(str, counts))
    print_renderable(table)


def _show_dead(settings: Settings, receiver: str | None, limit: int, *, as_json: bool) -> None:
    """List refused events; as JSON, with the events themselves."""
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.lineage.delivery.outbox import read_dead_letters

    with open_lake(settings) as services, services.database.reading() as cursor:
        found = read_dead_letters(cursor, receiver, limit)
    if as_json:
        _print_json(found)
        return
    table = _build_table("when (UTC)", "receiver", "event", "tries", "reason")
    for letter in found:
        reason = make_printable(f"{letter.reason} (is tried again)" if letter.again else letter.reason)
        moment = f"{letter.at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
        table.add_row(moment, letter.transport, str(letter.event_id), str(letter.attempts), reason)
    print_renderable(table)


def _retry(settings: Settings, receiver: str | None) -> int:
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.lineage.delivery.outbox import retry_dead_letters

    with open_lake(settings) as services, services.database.transaction() as cursor:
        return retry_dead_letters(cursor, receiver)


def _apply_action(settings: Settings, receiver: str | None, *, replays: bool) -> None:
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.errors import InvalidRequestError
    from duckicelake.lineage.delivery.outbox import forget_receiver, replay_events

    if receiver is None:
        raise InvalidRequestError("Name the receiver: --replay and --forget work on one")
    with open_lake(settings) as services, services.database.transaction() as cursor:
        act = replay_events if replays else forget_receiver
        if not act(cursor, receiver):
            raise InvalidRequestError(_describe_unknown(cursor, receiver))
    what = "gets all events once more as soon as a server runs" if replays else "is forgotten"
    typer.echo(f"{receiver} {what}")


def _describe_unknown(cursor: Transaction, receiver: str) -> str:
    from duckicelake.lineage.delivery.outbox import read_standings

    known = ", ".join(standing.transport for standing in read_standings(cursor))
    return f"Unknown receiver {receiver!r}: there is {known or 'none'}"


def _build_table(*headings: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in _RIGHT_ALIGNED else "left", overflow="fold")
    return table


def _print_json(found: Sequence[ReceiverStanding] | Sequence[DeadLetter]) -> None:
    for row in found:
        sys.stdout.write(orjson.dumps(asdict(row), option=orjson.OPT_UTC_Z).decode() + "\n")
    sys.stdout.flush()


app = make_group("lineage", "What tables come from, and what comes from them.", panel=LOOK)
add_command(app, show, *_SHOW_EXAMPLES, panel=LOOK)
add_command(app, forget, "duckicelake lineage forget --older-than 90d")
add_command(app, deliveries, *_DELIVERIES_EXAMPLES)
