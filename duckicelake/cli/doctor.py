"""`duckicelake doctor`: print what is wrong with a lake, and what to do."""

from typing import Annotated, Final

import typer

from duckicelake.cli.console.command import LakeOption, one_line_errors

EXAMPLES: Final = (
    "duckicelake doctor --lake /data/lake",
    "duckicelake doctor --no-files | grep FAIL",
    "duckicelake doctor --forget-left-out",
)
_FORGET_HELP: Final = "Name once more what history and lineage have left out until now, and then never again."


@one_line_errors()
def doctor(
    lake: LakeOption = None,
    files: Annotated[bool, typer.Option("--files/--no-files", help="Look for every data file in the store.")] = True,
    forget_left_out: Annotated[bool, typer.Option("--forget-left-out", help=_FORGET_HELP)] = False,
) -> None:
    """Examine database, lake, tables and files; exit with 1 if something must be done, and say what."""
    from duckicelake.changelog.entries import forget_skipped
    from duckicelake.cli.examination import examine
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.settings.sources import read_settings

    settings = read_settings({"lake": lake})
    if forget_left_out:
        with open_lake(settings) as services, services.database.transaction() as cursor:
            forgotten = forget_skipped(cursor)
        for change in forgotten:
            typer.echo(f"gone  {change}")
    findings = examine(settings, with_files=files)
    for finding in findings:
        typer.echo(f"{'ok  ' if finding.ok else 'FAIL'}  {finding.name}: {finding.detail}")
        if finding.advice:
            typer.echo(f"      {finding.advice}")
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)
