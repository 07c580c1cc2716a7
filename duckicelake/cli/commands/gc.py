"""`duckicelake gc`: files that nobody needs."""

from typing import Annotated, Final

import typer

from duckicelake.cli.console.command import LakeOption, done_by, one_line_errors

EXAMPLES: Final = (
    "duckicelake gc",
    "duckicelake gc --older-than 14d --delete",
    "duckicelake gc | awk '{print $3}'",
)


@one_line_errors()
@done_by("duckicelake.cli.gc.gc")
def gc(
    lake: LakeOption = None,
    older_than: Annotated[str, typer.Option(help="An age, as 3d, or a time in ISO form.")] = "3d",
    delete: Annotated[bool, typer.Option("--delete", help="Delete them; without it they are only listed.")] = False,
    confirm_warehouse: Annotated[
        bool,
        typer.Option(
            "--confirm-warehouse",
            help="Mark a warehouse as this lake's that no lake has marked, though it holds files unknown to this one.",
        ),
    ] = False,
) -> None:
    """List files in the lake that nobody needs, left by commits that never came and by processes that were killed.

    Each line has the time of the last write, the bytes and the file's location. What a client has uploaded and not yet
    committed looks the same: give ages that are longer than any job runs.
    """
