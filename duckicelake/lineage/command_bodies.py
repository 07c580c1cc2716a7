"""What the subcommands of `duckicelake lineage` do."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, cast

import orjson
import typer
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from duckicelake.catalog.context.caller import ANY_PRINCIPAL
from duckicelake.catalog.context.services import Services
from duckicelake.cli.console import terminal
from duckicelake.cli.console.terminal import format_count, make_printable, parse_time
from duckicelake.cli.wiring.services import open_lake
from duckicelake.errors import InvalidRequest
from duckicelake.lineage.commands import Shown
from duckicelake.lineage.delivery import outbox as lake
from duckicelake.lineage.delivery.outbox import DeadLetter, ReceiverStanding
from duckicelake.lineage.graph import export as lineage_export
from duckicelake.lineage.graph.model import WHOLE, Direction, GraphEdge, GraphNode, LineageGraphView
from duckicelake.lineage.graph.responses import build_graph_response
from duckicelake.lineage.graph.store import count_kept
from duckicelake.lineage.graph.store import forget_runs as forget_old
from duckicelake.lineage.graph.traversal import GraphQuery, read_graph
from duckicelake.postgres.database import Transaction
from duckicelake.settings.model import Settings
from duckicelake.settings.sources import read_settings

_RIGHT: Final = frozenset(
    {"delivered up to", "delivered", "waiting", "oldest", "dropped", "dead", "again", "event", "tries"}
)


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
    time = None if at is None else parse_time(at)
    question = GraphQuery(node, direction, depth, time, columns, limit)
    with open_lake(read_settings({"lake": lake})) as services:
        _show_graph(services, question, shown)


def _show_graph(services: Services, question: GraphQuery, shown: Shown) -> None:
    if shown in lineage_export.MEDIA_TYPES:
        drawn = lineage_export.export_graph(
            services.database, ANY_PRINCIPAL, question, cast("lineage_export.Format", shown)
        )
        sys.stdout.write(drawn.decode())
        return
    found = read_graph(services.database, ANY_PRINCIPAL, question)
    if shown == "json":
        answer = build_graph_response(found, question.direction, question.depth, question.at)
        sys.stdout.write(orjson.dumps(answer.to_json(), option=orjson.OPT_APPEND_NEWLINE).decode())
        return
    terminal.print_renderable(_build_tree(found, question.direction))


def _build_tree(found: LineageGraphView, direction: Direction) -> Tree:
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
    """Add what is next; what has come already isn't shown with all that follows once more."""
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
    """The job, its newest run, and the columns: a line for each."""
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


def deliveries(
    *,
    receiver: str | None,
    folder: Path | None,
    dead: bool,
    retry_dead: bool,
    replay: bool,
    forget: bool,
    limit: int,
    as_json: bool,
) -> None:
    """Print the list, or do what is asked. Raises InvalidRequest, Unavailable, StartupError where there is no lake."""
    settings = read_settings({"lake": folder})
    if retry_dead:
        typer.echo(f"to be tried once more as soon as a server runs: {_retry(settings, receiver)}")
    elif replay or forget:
        _apply_action(settings, receiver, replays=replay)
    elif dead:
        _show_dead(settings, receiver, limit, as_json=as_json)
    else:
        _show_standings(settings, receiver, as_json=as_json)


def _show_standings(settings: Settings, receiver: str | None, *, as_json: bool) -> None:
    with open_lake(settings) as services, services.database.reading() as cursor:
        found = [each for each in lake.read_standings(cursor) if receiver in {None, each.transport}]
        if receiver is not None and not found:
            raise InvalidRequest(_describe_unknown(cursor, receiver))
    if as_json:
        _print_json(found)
        return
    table = _build_table("receiver", "delivered up to", "delivered", "waiting", "oldest", "dropped", "dead", "again")
    for each in found:
        age = "" if each.oldest is None else f"{datetime.now(UTC) - each.oldest}".partition(".")[0]
        facts = (each.event_id, each.delivered, each.waiting, age, each.dropped, each.dead, each.again)
        table.add_row(each.transport, *map(str, facts))
    terminal.print_renderable(table)


def _show_dead(settings: Settings, receiver: str | None, limit: int, *, as_json: bool) -> None:
    """As JSON with the events themselves."""
    with open_lake(settings) as services, services.database.reading() as cursor:
        found = lake.read_dead_letters(cursor, receiver, limit)
    if as_json:
        _print_json(found)
        return
    table = _build_table("when (UTC)", "receiver", "event", "tries", "reason")
    for each in found:
        reason = make_printable(f"{each.reason} (is tried again)" if each.again else each.reason)
        moment = f"{each.at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
        table.add_row(moment, each.transport, str(each.event_id), str(each.attempts), reason)
    terminal.print_renderable(table)


def _retry(settings: Settings, receiver: str | None) -> int:
    with open_lake(settings) as services, services.database.transaction() as cursor:
        return lake.retry_dead_letters(cursor, receiver)


def _apply_action(settings: Settings, receiver: str | None, *, replays: bool) -> None:
    if receiver is None:
        raise InvalidRequest("say which receiver is meant")
    with open_lake(settings) as services, services.database.transaction() as cursor:
        act = lake.replay_events if replays else lake.forget_receiver
        if not act(cursor, receiver):
            raise InvalidRequest(_describe_unknown(cursor, receiver))
    what = "gets all events once more as soon as a server runs" if replays else "is forgotten"
    typer.echo(f"{receiver} {what}")


def _describe_unknown(cursor: Transaction, receiver: str) -> str:
    known = ", ".join(each.transport for each in lake.read_standings(cursor))
    return f"{receiver} is no receiver; there is {known or 'none'}"


def _build_table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in _RIGHT else "left", overflow="fold")
    return table


def _print_json(found: Sequence[ReceiverStanding] | Sequence[DeadLetter]) -> None:
    for each in found:
        sys.stdout.write(orjson.dumps(asdict(each), option=orjson.OPT_UTC_Z).decode() + "\n")
    sys.stdout.flush()


def forget(*, older_than: str, lake: Path | None) -> None:
    """Forget what is older, and tell what can't be yet. Raises InvalidRequest, Unavailable, StartupError."""
    with open_lake(read_settings({"lake": lake})) as services:
        before = parse_time(older_than)
        gone, waiting = forget_old(services.database, before), count_kept(services.database, before)
    typer.echo(f"forgot {format_count(gone.events, 'event')} and {format_count(gone.runs, 'run')}")
    for receiver, events in waiting:
        advice = f"if it is gone for good: duckicelake lineage deliveries {receiver} --forget"
        typer.echo(f"waiting for {receiver}: {format_count(events, 'event')}; {advice}")
