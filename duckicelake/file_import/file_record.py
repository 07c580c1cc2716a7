"""Record which files a table has: a batch claims files, and is committed by the run of its load, or given up.

The transaction that commits the batch's run makes its files loaded. A batch that was given up can't be committed.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal
from uuid import UUID

from duckicelake.catalog.context.page import ListPage, PageRequest, cut_page
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import catch_up_by_name
from duckicelake.errors import JobEndedError, NoSuchJobError
from duckicelake.iceberg.identifiers import Namespace
from duckicelake.postgres.queries import Transaction, load_queries

_SQL = load_queries("file_import", "files")
_LEASE_SECONDS: Final = 60
_MAX_ERROR_CHARACTERS: Final = 2000
FileState = Literal["claimed", "loaded", "loading", "failed"]
BatchState = Literal["open", "committed", "ended", "void"]


@dataclass(frozen=True, slots=True)
class SourceFileKey:
    """A file by what is compared of it. version: its ETag, or the time of its last change."""

    name: str
    size: int
    version: str

    @property
    def key(self) -> str:
        """The key of its row."""
        text = "\0".join((self.name, str(self.size), self.version))
        return str(UUID(bytes=hashlib.sha256(text.encode()).digest()[:16]))


@dataclass(frozen=True, slots=True)
class FileClaim:
    """What became of a file that a batch asked for.

    Attributes:
        state: claimed by this batch; else what another batch has done with it.
        run_id: of the batch that has it.
        is_unfinished: its rows are committed, but its loader is gone: its bad rows may not be kept yet.

    """

    state: FileState
    run_id: str
    error: str | None = None
    is_unfinished: bool = False


@dataclass(frozen=True, slots=True)
class RecordedFile:
    """A row of the record. snapshot_id: Iceberg's, that has its rows."""

    number: int
    file: SourceFileKey
    run_id: str
    state: FileState
    noted: datetime
    error: str | None = None
    snapshot_id: int | None = None


def claim_files(
    services: Services, namespace: Namespace, table: str, run_id: str, files: Sequence[SourceFileKey], *, again: bool
) -> list[FileClaim]:
    """Claim files for a batch, and say what became of each, in their order. again: try those with errors once more.

    Raises NoSuchTableError, JobEndedError.
    """
    table_id = catch_up_by_name(services, namespace, table)
    keys = [file.key for file in files]
    named = {
        "table_id": table_id,
        "run_id": run_id,
        "keys": keys,
        "names": [file.name for file in files],
        "sizes": [file.size for file in files],
        "versions": [file.version for file in files],
        "again": again,
    }
    principal = services.caller.principal.name
    with services.database.transaction() as cursor:
        expired = [row[0] for row in cursor.execute(_SQL.expired, named).fetchall()]
        _give_up(cursor, table_id, expired)
        cursor.execute(_SQL.begin, {**named, "principal": principal, "seconds": _LEASE_SECONDS})
        if (state := _read_state(cursor, table_id, run_id)) != "open":
            raise JobEndedError(f"Batch {run_id} is over ({state}): claim files with a new run id")
        cursor.execute(_SQL.claim, named)
        found = {row[0]: _read_claim(run_id, *row[1:]) for row in cursor.execute(_SQL.states, named).fetchall()}
        cursor.execute(_SQL.remove_empty, named)
    return [found[key] for key in keys]


def _read_claim(asked: str, run_id: str, error: str | None, state: BatchState, is_unfinished: bool) -> FileClaim:
    found = _find_file_state(error, state)
    if found == "loading" and run_id == asked:
        found = "claimed"
    return FileClaim(found, run_id, error, is_unfinished)


def _find_file_state(error: str | None, state: BatchState) -> FileState:
    if error is not None:
        return "failed"
    return "loading" if state in {"open", "void"} else "loaded"


def end_batch(services: Services, namespace: Namespace, table: str, run_id: str, error: str | None) -> BatchState:
    """End a batch: one that isn't committed is given up; its files have the error, or are free again without any.

    Returns the batch's state then: `ended` if it is committed. Raises NoSuchTableError, NoSuchJobError.
    """
    table_id = catch_up_by_name(services, namespace, table)
    named = {"table_id": table_id, "run_id": run_id}
    with services.database.transaction() as cursor:
        if error is not None:
            _void(cursor, table_id, [run_id])
            cursor.execute(_SQL.note_error, {**named, "error": error[:_MAX_ERROR_CHARACTERS]})
        else:
            _give_up(cursor, table_id, [run_id])
        cursor.execute(_SQL.end, named)
        state = _read_state(cursor, table_id, run_id)
    if state is None:
        raise NoSuchJobError(f"No such batch of files of {'.'.join((*namespace, table))}: {run_id}")
    return state


def _void(cursor: Transaction, table_id: int, run_ids: Sequence[str]) -> None:
    cursor.execute(_SQL.give_up, {"table_id": table_id, "run_ids": list(run_ids)})


def _give_up(cursor: Transaction, table_id: int, run_ids: Sequence[str]) -> None:
    if run_ids:
        _void(cursor, table_id, run_ids)
        cursor.execute(_SQL.forget_files, {"table_id": table_id, "run_ids": list(run_ids)})


def _read_state(cursor: Transaction, table_id: int, run_id: str) -> BatchState | None:
    row = cursor.execute(_SQL.state, {"table_id": table_id, "run_id": run_id}).fetchone()
    return None if row is None else row[0]


def list_files(
    services: Services,
    namespace: Namespace,
    table: str,
    page: PageRequest,
    *,
    run_id: str | None = None,
    state: FileState | None = None,
) -> ListPage[RecordedFile]:
    """List the files of a table, the last ones first. Raises NoSuchTableError."""
    table_id = catch_up_by_name(services, namespace, table)
    asked = {"table_id": table_id, "run_id": run_id, "state": state, "before": page.after_number, "limit": page.fetch}
    with services.database.reading() as cursor:
        rows = cursor.execute(_SQL.list, asked).fetchall()
    found = [_read_file(*row) for row in rows]
    return cut_page(found, page, lambda file: str(file.number))


def _read_file(
    number: int,
    name: str,
    size: int,
    version: str,
    run_id: str,
    error: str | None,
    of_batch: BatchState,
    noted: datetime,
    snapshot_id: int | None,
) -> RecordedFile:
    state = _find_file_state(error, of_batch)
    return RecordedFile(number, SourceFileKey(name, size, version), run_id, state, noted, error, snapshot_id)
