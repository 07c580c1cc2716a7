"""`duckicelake doctor`: what is wrong with a lake, and what to do."""

from typing import Annotated, Final

import typer

from duckicelake.cli.console.command import LakeOption, done_by, one_line_errors

EXAMPLES: Final = (
    "duckicelake doctor --lake /data/lake",
    "duckicelake doctor --no-files | grep FAIL",
    "duckicelake doctor --forget-left-out",
)
_FORGET: Final = "Say no more of what history and lineage have left out until now; each is named a last time."


@one_line_errors()
@done_by("duckicelake.cli.doctor.doctor")
def doctor(
    lake: LakeOption = None,
    files: Annotated[bool, typer.Option("--files/--no-files", help="Look for every data file in the store.")] = True,
    forget_left_out: Annotated[bool, typer.Option("--forget-left-out", help=_FORGET)] = False,
) -> None:
    """Examine database, lake, tables and files; exit with 1 if something must be done, and say what."""
