"""`duckicelake history`: what changed in the lake."""

from typing import Annotated, Final

import typer

from duckicelake.cli.console.command import LakeOption, done_by, one_line_errors

EXAMPLES: Final = (
    "duckicelake history sales.orders",
    "duckicelake history --since 2h --engine spark --kind append,overwrite --json",
    "duckicelake history sales --follow",
    "duckicelake history --prune-older-than 90d",
)


@one_line_errors()
@done_by("duckicelake.cli.history.history")
def history(
    name: Annotated[
        str | None, typer.Argument(help="A table or view, as sales.orders, or a namespace; else all.")
    ] = None,
    lake: LakeOption = None,
    since: Annotated[str | None, typer.Option(help="An age, as 2h or 7d, or a time in ISO form.")] = None,
    until: Annotated[str | None, typer.Option(help="The same: what came before.")] = None,
    kind: Annotated[str | None, typer.Option(help="Of these kinds, joined by commas, as append,overwrite.")] = None,
    principal: Annotated[str | None, typer.Option(help="By this one.")] = None,
    engine: Annotated[str | None, typer.Option(help="By what calls itself so, or partly so, as spark.")] = None,
    source: Annotated[str | None, typer.Option(help="rest, pipeline or duckdb.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at most, the newest.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line, for programs.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what comes, until Ctrl-C.")] = False,
    prune_older_than: Annotated[
        str | None, typer.Option(help="Forget what is older than this age or time, and print nothing else.")
    ] = None,
) -> None:
    """List what changed in the lake, a namespace or a table, by whom, with what engine: the newest last.

    Whoever did it: clients by REST, DuckDB, the pipeline. It outlasts what DuckDB expires.
    """
