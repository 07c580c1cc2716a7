"""`duckicelake info`: where the catalog and its files are."""

from typing import Annotated, Final

import typer

from duckicelake.cli.console.command import LakeOption, done_by, one_line_errors

EXAMPLES: Final = (
    "duckicelake info",
    "duckicelake info --json | jq -r '.\"ducklake-attach\"'",
)


@one_line_errors()
@done_by("duckicelake.cli.info.info")
def info(
    lake: LakeOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
) -> None:
    """Tell where the catalog and its files are. Starts nothing, and works whether or not a server runs."""
