"""Read the data files of main for rewrites, and find the one for which a task failed, so that the queue names it."""

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from duckicelake.catalog.commit.replaced_files import read_deleted_positions
from duckicelake.catalog.commit.workspace import Workspace
from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.services import Services
from duckicelake.errors import CatalogError, DamagedTableError, FileMissingError
from duckicelake.iceberg.manifest.entry import ManifestContent
from duckicelake.lake.ducklake.maintenance import note_unreadable
from duckicelake.lake.model import find_first_row_id
from duckicelake.lake.side_tables import locations
from duckicelake.rewrites.rows import RewriteProcess
from duckicelake.rewrites.selection import MemberFile
from duckicelake.rewrites.source import RewrittenTable

_THREADS: Final = 16
"""That ask the store for files at once."""
_MOST_DAMAGES: Final = 10
"""After which a task gives up: to find a damaged file, the others are read about once more."""
_ADVICE: Final = (
    "Restore the file, or roll the table back to a snapshot without it, and ask for the task again. "
    "`duckicelake doctor` lists missing files"
)


def read_member_files(services: Services, version: TableVersion) -> list[MemberFile]:
    """Read the live data files of main that are in the store, not rows in Postgres."""
    current = version.state.current()
    if current is None:
        return []
    space = Workspace(services, version.row.table_id, version.known)
    listed = space.list_manifests(current.manifest_ids)
    data = [manifest for manifest in listed if manifest.content == ManifestContent.DATA]
    rows = [row for row in space.files(space.live(data)).values() if row.ducklake_id is not None]
    deleted = read_deleted_positions(space, listed, {row.file_id for row in rows})
    with services.database.reading() as cursor:
        lake_ids = [row.ducklake_id for row in rows if row.ducklake_id is not None]
        there = locations.read_located_files(cursor, version.row.table_id, lake_ids)
    return [
        MemberFile(
            row,
            deleted.get(row.file_id, frozenset()),
            located.path,
            located.mapping_id,
            find_first_row_id(located.data_file_id, located.row_id_start),
        )
        for row in rows
        if (located := there.get(row.ducklake_id or 0)) is not None
    ]


@dataclass(frozen=True, slots=True)
class DamagedFiles:
    """Files that can't be read, and why in words that name the first of them.

    are_opened: whether DuckDB can open them, so that it reads other files of the table beside them.
    """

    files: tuple[MemberFile, ...]
    reason: str
    are_opened: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        """Where they are."""
        return tuple(file.path for file in self.files)

    def as_error(self) -> DamagedTableError:
        """Return an error that says it."""
        return DamagedTableError(self.reason)


@dataclass(slots=True)
class UnreadableFiles:
    """Files that a task has found damaged, and leaves out.

    paths: all of them; hidden: those that DuckDB can't open. reasons: in words, of each time some were found.
    """

    paths: set[str] = field(default_factory=set)
    hidden: set[str] = field(default_factory=set)
    reasons: list[str] = field(default_factory=list)

    def add(self, found: DamagedFiles | None, error: CatalogError) -> None:
        """Note what a statement failed at.

        Raises the error if nothing is wrong with a file; DamagedTableError if that was left out before, or too many are
        damaged.
        """
        if found is None:
            raise error
        if self.paths.issuperset(found.paths) or len(self.reasons) >= _MOST_DAMAGES:
            raise found.as_error() from error
        self.paths |= set(found.paths)
        self.reasons.append(found.reason)
        if not found.are_opened:
            self.hidden |= set(found.paths)

    def leave_out(self, files: Sequence[MemberFile]) -> list[MemberFile]:
        """Return the files without the damaged ones."""
        return [file for file in files if file.path not in self.paths]

    def explain(self) -> str | None:
        """Say what was left out."""
        return f"Left out: {' '.join(self.reasons)}" if self.reasons else None

    def check(self) -> None:
        """Raise DamagedTableError if there are such files: there is nothing to do but for them."""
        if self.reasons:
            raise DamagedTableError(" ".join(self.reasons))


def find_damaged(
    services: Services,
    process: RewriteProcess,
    table: RewrittenTable,
    files: Sequence[MemberFile],
    version: TableVersion,
    known: Collection[str] = (),
) -> DamagedFiles | None:
    """Find and note what is wrong with a file at which a statement failed; None if none is at fault.

    A damaged file is found by halves, so that all are read about once more. Raises UnavailableError if the store
    doesn't answer. version: the table's, of which DuckDB may have opened other files, too. known: files that it hasn't.
    """
    return _note(services, _find_damaged(services, process, table, files, version, known))


def _find_damaged(
    services: Services,
    process: RewriteProcess,
    table: RewrittenTable,
    files: Sequence[MemberFile],
    version: TableVersion,
    known: Collection[str],
) -> DamagedFiles | None:
    found = _find_missing(services, files)
    if found is not None or not process.can_answer:
        return found
    unreadable = _find_unreadable(process, table, files)
    if unreadable is not None and not _is_damaged(process, unreadable[0]):
        own = {*known, *(file.path for file in files)}
        others = [file for file in read_member_files(services, version) if file.path not in own]
        found = _find_missing(services, others)
        if found is not None:
            return found
        unreadable = _bisect(process.find_footer_error, others) or unreadable
    found = _blame(services, unreadable)
    if found is None or unreadable is None:
        return None
    return replace(found, are_opened=process.find_footer_error([unreadable[0]]) is None)


def find_damaged_footer(
    services: Services, process: RewriteProcess, files: Sequence[MemberFile]
) -> DamagedFiles | None:
    """Find as `find_damaged` what is wrong with a file, where only footers were read: no values are read now."""
    found = _find_missing(services, files)
    if found is None and process.can_answer:
        found = _blame(services, _bisect(process.find_footer_error, files))
    return _note(services, found)


def _note(services: Services, found: DamagedFiles | None) -> DamagedFiles | None:
    """Note the files, so that no plan has the task tried again for them."""
    if found is not None:
        ids = [file.row.ducklake_id for file in found.files if file.row.ducklake_id is not None]
        with services.database.transaction() as cursor:
            note_unreadable(cursor, ids)
    return found


def _blame(services: Services, unreadable: tuple[MemberFile, str] | None) -> DamagedFiles | None:
    """Return that a file is damaged; None if there is none, or the store doesn't give it."""
    if unreadable is None or not _is_reached(services, unreadable[0].path):
        return None
    file, reason = unreadable
    text = f"{file.path}, a data file of the table, can't be read: {reason}. {_ADVICE}"
    return DamagedFiles((file,), text)


def _find_missing(services: Services, files: Sequence[MemberFile]) -> DamagedFiles | None:
    with ThreadPoolExecutor(_THREADS) as pool:
        there = [*pool.map(services.store.exists, [file.path for file in files])]
    missing = [file for file, is_there in zip(files, there, strict=True) if not is_there]
    if not missing:
        return None
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    return DamagedFiles(tuple(missing), f"{missing[0].path}{more}, a data file of the table, is missing. {_ADVICE}")


def _find_unreadable(
    process: RewriteProcess, table: RewrittenTable, files: Sequence[MemberFile]
) -> tuple[MemberFile, str] | None:
    """Find a file that DuckDB can't read, and DuckDB's reason; None if it reads all of them now."""
    in_footer = _bisect(process.find_footer_error, files)
    return in_footer or _bisect(partial(process.find_read_error, table), files)


def _is_damaged(process: RewriteProcess, file: MemberFile) -> bool:
    """Return whether DuckDB can't read the file by itself either."""
    return process.find_footer_error([file]) is not None or process.find_file_error(file) is not None


def _bisect(
    find_error: Callable[[Sequence[MemberFile]], str | None], files: Sequence[MemberFile]
) -> tuple[MemberFile, str] | None:
    """Find one of the files that has an error, by halves."""
    reason = find_error(files)
    while reason is not None and len(files) > 1:
        middle = len(files) // 2
        first, second = files[:middle], files[middle:]
        of_first = find_error(first)
        files, reason = (second, find_error(second)) if of_first is None else (first, of_first)
    return None if reason is None else (files[0], reason)


def _is_reached(services: Services, path: str) -> bool:
    """Return whether the store gives bytes of the file: then it is the file that is wrong, not the way to it."""
    try:
        services.store.read_end(path, 8)
    except FileMissingError:
        return False
    return True
