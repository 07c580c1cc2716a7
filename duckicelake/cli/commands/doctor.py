"""`duckicelake doctor`: what is wrong with a lake, and what to do."""

from typing import Annotated, Final

import typer

from duckicelake.cli.assembly.opened import opened
from duckicelake.cli.complaining import one_line_errors
from duckicelake.cli.examination import examine
from duckicelake.cli.lake_option import LakeOption
from duckicelake.lake.chronicle import left_out
from duckicelake.settings import Settings, read_settings

EXAMPLES: Final = (
    "duckicelake doctor --lake /data/lake",
    "duckicelake doctor --no-files | grep FAIL",
    "duckicelake doctor --forget-left-out",
)
_FORGET: Final = "Say no more of what history and lineage have left out until now; each is named a last time."


def doctor(
    lake: LakeOption = None,
    files: Annotated[bool, typer.Option("--files/--no-files", help="Look for every data file in the store.")] = True,
    forget_left_out: Annotated[bool, typer.Option("--forget-left-out", help=_FORGET)] = False,
) -> None:
    """Examine database, lake, tables and files; exit with 1 if something must be done, and say what."""
    with one_line_errors():
        settings = read_settings({"lake": lake})
        for each in _forgotten(settings) if forget_left_out else ():
            typer.echo(f"gone  {each}")
        findings = examine(settings, with_files=files)
    for finding in findings:
        typer.echo(f"{'ok  ' if finding.ok else 'FAIL'}  {finding.name}: {finding.detail}")
        if finding.advice:
            typer.echo(f"      {finding.advice}")
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


def _forgotten(settings: Settings) -> list[str]:
    with opened(settings) as services, services.database.transaction() as cursor:
        return left_out.forget(cursor)
