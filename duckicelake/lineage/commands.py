"""`duckicelake lineage`: what tables come from, and what comes from them."""

from typing import Annotated, Final, Literal

import typer

from duckicelake.cli.console.command import LakeOption, add_command, done_by, make_group, one_line_errors
from duckicelake.lineage.graph.model import MAX_DEPTH, MAX_NODES

Shown = Literal["tree", "json", "dot", "mermaid", "ndjson"]
_SHOW: Final = (
    "duckicelake lineage show sales.orders",
    "duckicelake lineage show sales.orders#amount --upstream",
    "duckicelake lineage show sales.orders --columns --at 2026-05-01T12:00",
    "duckicelake lineage show sales.orders --format dot | dot -Tsvg > orders.svg",
    "duckicelake lineage show sales.orders --format ndjson | jq .job.name",
)
_DELIVERIES: Final = (
    "duckicelake lineage deliveries",
    "duckicelake lineage deliveries --dead --json | jq .body.job.name",
    "duckicelake lineage deliveries https://marquez:5000 --retry-dead",
    "duckicelake lineage deliveries https://marquez:5000 --replay",
)


@one_line_errors()
@done_by("duckicelake.lineage.command_bodies.show")
def show(
    node: Annotated[str, typer.Argument(help="A table or view, as sales.orders, or a column, as sales.orders#amount.")],
    lake: LakeOption = None,
    columns: Annotated[bool, typer.Option("--columns", help="With what goes from column to column.")] = False,
    upstream: Annotated[bool, typer.Option("--upstream", help="Only what it comes from.")] = False,
    downstream: Annotated[bool, typer.Option("--downstream", help="Only what comes from it.")] = False,
    depth: Annotated[int, typer.Option(min=1, max=MAX_DEPTH, help="Steps away from it, at most.")] = 5,
    at: Annotated[str | None, typer.Option(help="As of a time in ISO form, or an age, as 2h or 7d.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=MAX_NODES, help="How many datasets at most.")] = 200,
    shown: Annotated[Shown, typer.Option("--format", help="ndjson: the events of the runs behind it.")] = "tree",
) -> None:
    """Show what a table or a column comes from, and what comes from it, by which jobs and runs.

    It shows all that the catalog knows, whoever asks: it needs the database.
    """


@one_line_errors()
@done_by("duckicelake.lineage.command_bodies.forget")
def forget(
    older_than: Annotated[str, typer.Option(help="An age, as 90d, or a time in ISO form.")],
    lake: LakeOption = None,
) -> None:
    """Forget old runs and events. What came from what stays known, then without the runs behind it."""


@one_line_errors()
@done_by("duckicelake.lineage.command_bodies.deliveries")
def deliveries(
    receiver: Annotated[str | None, typer.Argument(help="One receiver, as it is listed; else all.")] = None,
    folder: LakeOption = None,
    dead: Annotated[bool, typer.Option("--dead", help="List the newest events that were refused, and why.")] = False,
    retry_dead: Annotated[bool, typer.Option("--retry-dead", help="Have them tried once more.")] = False,
    replay: Annotated[bool, typer.Option("--replay", help="Have all events sent to the receiver once more.")] = False,
    forget: Annotated[
        bool, typer.Option("--forget", help="Forget the receiver, which isn't set any more, and what it refused.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many refused events at most.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line, for programs.")] = False,
) -> None:
    """List how far the events of lineage have come to each receiver, what waits, and what was refused."""


app = make_group("lineage", "What tables come from, and what comes from them.")
add_command(app, show, *_SHOW)
add_command(app, forget, "duckicelake lineage forget --older-than 90d")
add_command(app, deliveries, *_DELIVERIES)
