"""What `duckicelake gc` finds and deletes."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn

from duckicelake.catalog import warehouse
from duckicelake.catalog.files.guards import lift_guards
from duckicelake.catalog.files.releasing import release_all
from duckicelake.catalog.gc import delete_orphans, find_orphans
from duckicelake.catalog.services import Services
from duckicelake.cli import terminal
from duckicelake.cli.assembly.opened import opened
from duckicelake.cli.counting import counted
from duckicelake.cli.moments import moment
from duckicelake.errors import InvalidRequest
from duckicelake.settings import Settings, read_settings
from duckicelake.storage.objects import StoredFile

YOUNGEST: Final = timedelta(hours=1)
"""What is younger may be of a commit under way."""


def gc(*, lake: Path | None, older_than: str, delete: bool, confirm_warehouse: bool) -> None:
    """List or delete files. Raises as `collect`."""
    settings = read_settings({"lake": lake})
    collect(settings, moment(older_than), delete=delete, confirm_warehouse=confirm_warehouse)


def collect(settings: Settings, before: datetime, *, delete: bool, confirm_warehouse: bool = False) -> None:
    """Print the files last written before a moment that nobody needs; delete them, if asked to.

    Raises InvalidRequest for a moment that is too young, and where files may be another lake's; Unavailable;
    StartupError where there is no lake.
    """
    if before > datetime.now(UTC) - YOUNGEST:
        raise InvalidRequest(
            "--older-than must be an hour at least, better a day: younger files may be of commits under way"
        )
    with opened(settings, "gc") as services:
        _check_warehouse(services, delete=delete, confirm=confirm_warehouse)
        if delete:
            lift_guards(services)
            release_all(services)
        found = _found(services, before)
        for file in sorted(found, key=lambda file: file.location):
            sys.stdout.write(f"{_time(file)} {file.size:>12} {file.location}\n")
        sys.stdout.flush()
        if delete:
            _delete(services, found)
        else:
            _say(f"{_sum(found)} can go; this was a dry run: --delete deletes them" if found else "nothing to delete")


def _check_warehouse(services: Services, *, delete: bool, confirm: bool) -> None:
    standing = warehouse.look(services)
    if standing.doubt is not None and confirm:
        for sentence in warehouse.adopt(services):
            _say(sentence)
        return
    reason = standing.refusal or standing.doubt
    if reason is None:
        return
    if delete:
        confirmation = (
            "" if standing.refusal else ". List them without --delete; if all are its own: --confirm-warehouse"
        )
        raise InvalidRequest(f"Nothing was deleted: {reason}{confirmation}")
    _say(f"Files of this list may be another lake's: {reason}")


def _found(services: Services, before: datetime) -> list[StoredFile]:
    columns = (SpinnerColumn(), TextColumn("Files looked at: {task.completed}"), TimeElapsedColumn())
    with terminal.progress(*columns) as progress:
        task = progress.add_task("", total=None)
        before_ms = round(before.timestamp() * 1000)
        return find_orphans(services, before_ms, lambda count: progress.advance(task, count))


def _delete(services: Services, found: list[StoredFile]) -> None:
    gone: list[StoredFile] = []
    try:
        columns = (TextColumn("Deleting"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with terminal.progress(*columns) as progress:
            task = progress.add_task("", total=len(found))

            def deleted(file: StoredFile) -> None:
                gone.append(file)
                progress.advance(task)

            delete_orphans(services, found, deleted)
    finally:
        _say(f"{_sum(gone)} deleted" if found else "nothing to delete")


def _say(text: str) -> None:
    """Tell a person; the list alone goes to standard output."""
    sys.stderr.write(f"{text}\n")


def _sum(files: list[StoredFile]) -> str:
    return f"{counted(len(files), 'file')}, {decimal(sum(file.size for file in files))},"


def _time(file: StoredFile) -> str:
    return f"{datetime.fromtimestamp(file.modified_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
