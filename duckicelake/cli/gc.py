"""`duckicelake gc`: list and delete files that no table needs."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn

from duckicelake.catalog import warehouse
from duckicelake.catalog.commit.guards import lift_guards
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.gc import delete_orphans, find_orphans
from duckicelake.catalog.table.reclaim import release_all
from duckicelake.cli.console import terminal
from duckicelake.cli.console.terminal import format_count, parse_time
from duckicelake.cli.wiring.services import open_lake
from duckicelake.errors import InvalidRequest
from duckicelake.settings.model import Settings
from duckicelake.settings.sources import read_settings
from duckicelake.storage.protocol import StoredFile

MIN_AGE: Final = timedelta(hours=1)
"""What is younger may be of a commit under way."""


def gc(*, lake: Path | None, older_than: str, delete: bool, confirm_warehouse: bool) -> None:
    """List or delete files. Raises as `collect`."""
    settings = read_settings({"lake": lake})
    collect_orphans(settings, parse_time(older_than), delete=delete, confirm_warehouse=confirm_warehouse)


def collect_orphans(settings: Settings, before: datetime, *, delete: bool, confirm_warehouse: bool = False) -> None:
    """Print the files last written before a moment that nobody needs; delete them, if asked to.

    Raises InvalidRequest for a moment that is too young, and where files may be another lake's; Unavailable;
    StartupError where there is no lake.
    """
    if before > datetime.now(UTC) - MIN_AGE:
        raise InvalidRequest(
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
        raise InvalidRequest(f"Nothing was deleted: {reason}{confirmation}")
    _print_note(f"Files of this list may be another lake's: {reason}")


def _find(services: Services, before: datetime) -> list[StoredFile]:
    columns = (SpinnerColumn(), TextColumn("Files looked at: {task.completed}"), TimeElapsedColumn())
    with terminal.open_progress(*columns) as progress:
        task = progress.add_task("", total=None)
        before_ms = round(before.timestamp() * 1000)
        return find_orphans(services, before_ms, lambda count: progress.advance(task, count))


def _delete(services: Services, found: list[StoredFile]) -> None:
    gone: list[StoredFile] = []
    try:
        columns = (TextColumn("Deleting"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with terminal.open_progress(*columns) as progress:
            task = progress.add_task("", total=len(found))

            def deleted(file: StoredFile) -> None:
                gone.append(file)
                progress.advance(task)

            delete_orphans(services, found, deleted)
    finally:
        _print_note(f"{_format_sum(gone)} deleted" if found else "nothing to delete")


def _print_note(text: str) -> None:
    """Tell a person; the list alone goes to standard output."""
    sys.stderr.write(f"{text}\n")


def _format_sum(files: list[StoredFile]) -> str:
    return f"{format_count(len(files), 'file')}, {decimal(sum(file.size for file in files))},"


def _format_time(file: StoredFile) -> str:
    return f"{datetime.fromtimestamp(file.modified_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
