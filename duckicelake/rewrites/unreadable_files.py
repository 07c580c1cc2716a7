"""Find the file of a group for which a rewrite failed, so that the queue names it and says what to do."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from duckicelake.catalog.context.services import Services
from duckicelake.errors import CatalogError, DamagedTableError, FileMissingError
from duckicelake.rewrites.rows import RewriteProcess, RewrittenTable
from duckicelake.rewrites.selection import MemberFile, RewriteGroup

_THREADS: Final = 16
"""That ask the store for files at once."""
_ADVICE: Final = (
    "Restore the file, or roll the table back to a snapshot without it, and ask for the task again. "
    "`duckicelake doctor` lists missing files"
)


def explain_failure(
    services: Services, process: RewriteProcess, table: RewrittenTable, group: RewriteGroup, error: CatalogError
) -> CatalogError:
    """Return what is wrong with a file of the group, as a DamagedTableError; the error as it is if no file is at fault.

    A damaged file is found by halves, so that the group is read about once more. Raises UnavailableError if the store
    doesn't answer.
    """
    paths = [file.path for file in group.files]
    with ThreadPoolExecutor(_THREADS) as pool:
        there = [*pool.map(services.store.exists, paths)]
    missing = [path for path, is_there in zip(paths, there, strict=True) if not is_there]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        return DamagedTableError(f"{missing[0]}{more}, a data file of the table, is missing. {_ADVICE}")
    if not process.can_answer:
        return error
    found = _find_unreadable(process, table, group.files)
    if found is None or not _is_reached(services, found[0].path):
        return error
    return DamagedTableError(f"{found[0].path}, a data file of the table, can't be read: {found[1]}. {_ADVICE}")


def _find_unreadable(
    process: RewriteProcess, table: RewrittenTable, files: Sequence[MemberFile]
) -> tuple[MemberFile, str] | None:
    """Find a file that DuckDB can't read, and DuckDB's reason; None if it reads all of them now."""
    reason = process.find_read_error(table, files)
    while reason is not None and len(files) > 1:
        middle = len(files) // 2
        first, second = files[:middle], files[middle:]
        of_first = process.find_read_error(table, first)
        files, reason = (second, process.find_read_error(table, second)) if of_first is None else (first, of_first)
    return None if reason is None else (files[0], reason)


def _is_reached(services: Services, path: str) -> bool:
    """Return whether the store gives bytes of the file: then it is the file that is wrong, not the way to it."""
    try:
        services.store.read_end(path, 8)
    except FileMissingError:
        return False
    return True
