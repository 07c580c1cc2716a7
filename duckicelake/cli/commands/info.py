"""`duckicelake info`: where the catalog and its files are."""

from typing import Annotated, Final

import typer

from duckicelake.cli.complaining import one_line_errors
from duckicelake.cli.deferring import done_by
from duckicelake.cli.lake_option import LakeOption

EXAMPLES: Final = (
    "duckicelake info",
    "duckicelake info --json | jq -r '.\"ducklake-attach\"'",
)


@one_line_errors()
@done_by("informing:info")
def info(
    lake: LakeOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
) -> None:
    """Tell where the catalog and its files are. Starts nothing, and works whether or not a server runs."""
