"""`duckicelake audit`: who changed what."""

from typing import Annotated, Final

import typer

from duckicelake.cli.console.command import LakeOption, done_by, one_line_errors

EXAMPLES: Final = (
    "duckicelake audit --since 2h --resource sales.orders",
    "duckicelake audit --principal etl --result ForbiddenException --json",
    "duckicelake audit --prune-older-than 90d",
)


@one_line_errors()
@done_by("duckicelake.cli.audit.audit")
def audit(
    lake: LakeOption = None,
    since: Annotated[str | None, typer.Option(help="An age, as 2h or 7d, or a time in ISO form.")] = None,
    principal: Annotated[str | None, typer.Option(help="Who asked.")] = None,
    resource: Annotated[str | None, typer.Option(help="A table or view, or a namespace with all in it.")] = None,
    operation: Annotated[str | None, typer.Option(help="What was asked for, as commit_table.")] = None,
    result: Annotated[str | None, typer.Option(help="ok, unchanged, or an error's type.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at most, the newest.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line, for programs.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what comes, until Ctrl-C.")] = False,
    prune_older_than: Annotated[
        str | None, typer.Option(help="Delete what is older than this age or time, and print nothing else.")
    ] = None,
) -> None:
    """List who changed what, when, from where and with what result: the newest last."""
