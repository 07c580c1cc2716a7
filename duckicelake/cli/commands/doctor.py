"""`duckicelake doctor`: what is wrong with a lake, and what to do."""

from typing import Annotated, Final

import typer

from duckicelake.cli.complaining import one_line_errors
from duckicelake.cli.examination import examine
from duckicelake.cli.lake_option import LakeOption
from duckicelake.settings import read_settings

EXAMPLES: Final = (
    "duckicelake doctor --lake /data/lake",
    "duckicelake doctor --no-files | grep FAIL",
)


def doctor(
    lake: LakeOption = None,
    files: Annotated[bool, typer.Option("--files/--no-files", help="Look for every data file in the store.")] = True,
) -> None:
    """Examine database, lake, tables and files; exit with 1 if something must be done, and say what."""
    with one_line_errors():
        findings = examine(read_settings({"lake": lake}), with_files=files)
    for finding in findings:
        typer.echo(f"{'ok  ' if finding.ok else 'FAIL'}  {finding.name}: {finding.detail}")
        if finding.advice:
            typer.echo(f"      {finding.advice}")
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)
