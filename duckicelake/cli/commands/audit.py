"""`duckicelake audit`: who changed what."""

from contextlib import suppress
from typing import Annotated, Final

import typer

from duckicelake.cli import auditing
from duckicelake.cli.complaining import one_line_errors
from duckicelake.cli.lake_option import LakeOption
from duckicelake.lake.audit import Wanted
from duckicelake.settings import read_settings

EXAMPLES: Final = (
    "duckicelake audit --since 2h --resource sales.orders",
    "duckicelake audit --principal etl --result ForbiddenException --json",
    "duckicelake audit --prune-older-than 90d",
)


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
    with one_line_errors():
        settings = read_settings({"lake": lake})
        if prune_older_than is not None:
            typer.echo(f"{auditing.prune(settings, auditing.moment(prune_older_than))} entries are gone")
            return
        after = None if since is None else auditing.moment(since)
        wanted = Wanted(0, after, principal, resource, operation, result)
        with suppress(KeyboardInterrupt):
            auditing.show(settings, wanted, limit, as_json=as_json, follow=follow)
