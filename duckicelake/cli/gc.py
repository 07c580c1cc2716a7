"""`duckicelake gc`: list and delete files that no table needs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from duckicelake.cli.console.command import LakeOption, one_line_errors

if TYPE_CHECKING:
    from rich.progress import Progress

    from duckicelake.catalog.context.services import Services
    from duckicelake.client.lake import Lake
    from duckicelake.settings.model import Settings
    from duckicelake.storage.protocol import StoredFile

EXAMPLES: Final = (
    "duckicelake gc",
    "duckicelake gc --older-than 14d --delete",
    "duckicelake gc | awk '{print $3}'",
)
_DELETED_AT_ONCE: Final = 1_000
"""Files that a request deletes, so that the bar moves."""


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


def gc_over_rest(lake: Lake, older_than: str, delete: bool, confirm_warehouse: bool) -> None:
    """List files that no table needs by the server, and let it delete those that it listed."""
    from duckicelake.cli.console.terminal import parse_time
    from duckicelake.errors import BadInputError

    if confirm_warehouse:
        raise BadInputError("--confirm-warehouse needs the lake itself: give --lake")
    before = parse_time(older_than)
    found = lake.orphans(before)
    for file in found.files:
        _print_file(file.modified, file.bytes, file.location)
    sys.stdout.flush()
    if found.unlisted:
        _print_note(f"{found.unlisted:,} more aren't listed: run this again once these are gone")
    if found.doubt is not None and not delete:
        _print_note(f"Files of this list may be another lake's: {found.doubt}")
    sizes = {file.location: file.bytes for file in found.files}
    if not delete:
        _print_dry_run(sizes)
        return
    _delete_over_rest(lake, sizes, before)


def _delete_over_rest(lake: Lake, sizes: dict[str, int], before: datetime) -> None:
    gone: dict[str, int] = {}
    locations = list(sizes)
    try:
        with _open_deletion(sizes) as progress:
            for start in range(0, len(locations), _DELETED_AT_ONCE):
                part = locations[start : start + _DELETED_AT_ONCE]
                gone |= {location: sizes[location] for location in lake.delete_orphans(part, before)}
                progress.advance(progress.task_ids[0], sum(sizes[location] for location in part))
    finally:
        _print_deleted(gone, had_none=not sizes)


def collect_orphans(settings: Settings, before: datetime, *, delete: bool, confirm_warehouse: bool = False) -> None:
    """Print the files last written before a moment that no table needs; delete them, if `delete` is true.

    Raises InvalidRequestError for a moment that is too young, and where files may be another lake's; UnavailableError;
    StartupError where there is no lake.
    """
    from duckicelake.catalog.gc import check_age, prepare_deletion
    from duckicelake.cli.wiring.services import open_lake

    before_ms = check_age(before)
    with open_lake(settings, "gc") as services:
        _check_warehouse(services, delete=delete, confirm=confirm_warehouse)
        if delete:
            prepare_deletion(services)
        found = sorted(_find(services, before_ms), key=lambda file: file.location)
        for file in found:
            _print_file(datetime.fromtimestamp(file.modified_ms / 1000, UTC), file.size, file.location)
        sys.stdout.flush()
        if delete:
            _delete(services, found)
        else:
            _print_dry_run({file.location: file.size for file in found})


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


def _find(services: Services, before_ms: int) -> list[StoredFile]:
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    from duckicelake.catalog.gc import find_orphans
    from duckicelake.cli.console.terminal import open_progress

    columns = (SpinnerColumn(), TextColumn("Files looked at: {task.completed}"), TimeElapsedColumn())
    with open_progress(*columns) as progress:
        task = progress.add_task("", total=None)
        return find_orphans(services, before_ms, lambda count: progress.advance(task, count))


def _delete(services: Services, found: list[StoredFile]) -> None:
    from duckicelake.catalog.gc import delete_orphans

    gone: dict[str, int] = {}
    try:
        with _open_deletion({file.location: file.size for file in found}) as progress:

            def note_deletion(file: StoredFile) -> None:
                gone[file.location] = file.size
                progress.advance(progress.task_ids[0], file.size)

            delete_orphans(services, found, note_deletion)
    finally:
        _print_deleted(gone, had_none=not found)


@contextmanager
def _open_deletion(sizes: dict[str, int]) -> Iterator[Progress]:
    """Open a bar with one task, which is done after so many bytes."""
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeElapsedColumn

    from duckicelake.cli.console.terminal import open_progress
    from duckicelake.errors import format_count

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with open_progress(*columns) as progress:
        progress.add_task(f"Deleting {format_count(len(sizes), 'file')}", total=sum(sizes.values()))
        yield progress


def _print_file(modified: datetime, size: int, location: str) -> None:
    sys.stdout.write(f"{modified:%Y-%m-%dT%H:%M:%SZ} {size:>12} {location}\n")


def _print_note(text: str) -> None:
    """Print on standard error; only the list goes to standard output."""
    sys.stderr.write(f"{text}\n")


def _print_dry_run(sizes: dict[str, int]) -> None:
    _print_note(
        f"{_format_sum(sizes)} can go; this was a dry run: --delete deletes them" if sizes else "nothing to delete"
    )


def _print_deleted(gone: dict[str, int], *, had_none: bool) -> None:
    _print_note("nothing to delete" if had_none else f"{_format_sum(gone)} deleted")


def _format_sum(sizes: dict[str, int]) -> str:
    from rich.filesize import decimal

    from duckicelake.errors import format_count

    return f"{format_count(len(sizes), 'file')}, {decimal(sum(sizes.values()))},"
