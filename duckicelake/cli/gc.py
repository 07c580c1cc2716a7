"""`duckicelake gc`: list and delete files that no table needs."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final

import typer

from duckicelake.cli.console.command import LakeOption, one_line_errors

if TYPE_CHECKING:
    from duckicelake.catalog.context.services import Services
    from duckicelake.settings.model import Settings
    from duckicelake.storage.protocol import StoredFile

EXAMPLES: Final = (
    "duckicelake gc",
    "duckicelake gc --older-than 14d --delete",
    "duckicelake gc | awk '{print $3}'",
)
MIN_AGE: Final = timedelta(hours=1)
"""Younger files may belong to a commit under way."""


@one_line_errors()
def gc(
    lake: LakeOption = None,
    older_than: Annotated[str, typer.Option(help="An age, as 3d, or a time in ISO form.")] = "3d",
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the files; without it they are only listed.")
    ] = False,
    confirm_warehouse: Annotated[
        bool,
        typer.Option(
            "--confirm-warehouse",
            help="Mark a warehouse as this lake's that no lake has marked, though it holds files unknown to this lake.",
        ),
    ] = False,
) -> None:
    """List files in the lake that no table needs: left by commits that failed and by processes that were killed.

    Each line has the time of the last write, the bytes and the file's location. A file that a client has uploaded and
    not yet committed looks the same: give an age that is longer than any job runs.
    """
    from duckicelake.cli.console.terminal import parse_time
    from duckicelake.settings.sources import read_settings

    settings = read_settings({"lake": lake})
    collect_orphans(settings, parse_time(older_than), delete=delete, confirm_warehouse=confirm_warehouse)


def collect_orphans(settings: Settings, before: datetime, *, delete: bool, confirm_warehouse: bool = False) -> None:
    """Print the files last written before a moment that no table needs; delete them, if `delete` is true.

    Raises InvalidRequestError for a moment that is too young, and where files may be another lake's; UnavailableError;
    StartupError where there is no lake.
    """
    from duckicelake.catalog.commit.guards import lift_guards
    from duckicelake.catalog.table.reclaim import release_all
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.errors import InvalidRequestError

    if before > datetime.now(UTC) - MIN_AGE:
        raise InvalidRequestError(
            "--older-than must be an hour at least, better a day: younger files may be of commits under way"
        )
    with open_lake(settings, "gc") as services:
        _check_warehouse(services, delete=delete, confirm=confirm_warehouse)
        if delete:
            lift_guards(services)
            release_all(services)
        found = _find(services, before)
        for file in sorted(found, key=lambda file: file.location):
            sys.stdout.write(f"{_format_time(file)} {file.size:>12} {file.location}\n")
        sys.stdout.flush()
        if delete:
            _delete(services, found)
        else:
            _print_note(
                f"{_format_sum(found)} can go; this was a dry run: --delete deletes them"
                if found
                else "nothing to delete"
            )


def _check_warehouse(services: Services, *, delete: bool, confirm: bool) -> None:
    from duckicelake.catalog import warehouse
    from duckicelake.errors import InvalidRequestError

    standing = warehouse.look(services)
    if standing.doubt is not None and confirm:
        for sentence in warehouse.adopt(services):
            _print_note(sentence)
        return
    reason = standing.refusal or standing.doubt
    if reason is None:
        return
    if delete:
        confirmation = (
            "" if standing.refusal else ". List them without --delete; if all are its own: --confirm-warehouse"
        )
        raise InvalidRequestError(f"Nothing was deleted: {reason}{confirmation}")
    _print_note(f"Files of this list may be another lake's: {reason}")


def _find(services: Services, before: datetime) -> list[StoredFile]:
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    from duckicelake.catalog.gc import find_orphans
    from duckicelake.cli.console.terminal import open_progress

    columns = (SpinnerColumn(), TextColumn("Files looked at: {task.completed}"), TimeElapsedColumn())
    with open_progress(*columns) as progress:
        task = progress.add_task("", total=None)
        before_ms = round(before.timestamp() * 1000)
        return find_orphans(services, before_ms, lambda count: progress.advance(task, count))


def _delete(services: Services, found: list[StoredFile]) -> None:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    from duckicelake.catalog.gc import delete_orphans
    from duckicelake.cli.console.terminal import open_progress

    gone: list[StoredFile] = []
    try:
        columns = (TextColumn("Deleting"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with open_progress(*columns) as progress:
            task = progress.add_task("", total=len(found))

            def note_deletion(file: StoredFile) -> None:
                gone.append(file)
                progress.advance(task)

            delete_orphans(services, found, note_deletion)
    finally:
        _print_note(f"{_format_sum(gone)} deleted" if found else "nothing to delete")


def _print_note(text: str) -> None:
    """Print on standard error; only the list goes to standard output."""
    sys.stderr.write(f"{text}\n")


def _format_sum(files: list[StoredFile]) -> str:
    from rich.filesize import decimal

    from duckicelake.cli.console.terminal import format_count

    return f"{format_count(len(files), 'file')}, {decimal(sum(file.size for file in files))},"


def _format_time(file: StoredFile) -> str:
    return f"{datetime.fromtimestamp(file.modified_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
