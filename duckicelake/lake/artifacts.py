"""Which files were written for a table. All of it can be found out again by writing them again."""

from collections.abc import Sequence

from psycopg import Cursor

from duckicelake.lake.changes import WrittenFile
from duckicelake.lake.postgres.database import Row
from duckicelake.lake.postgres.documents import document
from duckicelake.lake.postgres.queries import queries
from duckicelake.lake.state import TableRow
from duckicelake.lake.writing.side_tables import unschedule

_SQL = queries("artifacts")


def record(cursor: Cursor[Row], row: TableRow, files: Sequence[WrittenFile]) -> bool:
    """Note that files of a table's version were written, its metadata.json last; whether that is the newest version.

    If it isn't, its metadata.json isn't noted, nor are lists of snapshots that have left history. Files may have been
    another table's of the same UUID, and let go of: they are kept from cleanups.
    """
    parameters = {
        "table_id": row.table_id,
        "version": row.version,
        "caught_up_to": row.caught_up_to,
        "files": _document(files),
    }
    is_newest, may_be_scheduled = cursor.execute(_SQL.record, parameters).fetchone() or (False, False)
    if may_be_scheduled:
        unschedule(cursor, [file.path for file in files])
    return bool(is_newest)


def forget_lists(cursor: Cursor[Row], table_id: int, snapshot_ids: Sequence[int]) -> None:
    """Forget what was written for snapshots that left history, in the transaction that makes others of the same ids."""
    if snapshot_ids:
        cursor.execute(_SQL.forget_lists, {"table_id": table_id, "snapshot_ids": list(snapshot_ids)})


def record_with(cursor: Cursor[Row], table_id: int, files: Sequence[WrittenFile]) -> None:
    """Note, in the transaction that makes the newest version, that its files were written before."""
    cursor.execute(_SQL.record_with, {"table_id": table_id, "files": _document(files)})


def _document(files: Sequence[WrittenFile]) -> str:
    return document([_row(file) for file in files])


def _row(file: WrittenFile) -> dict[str, object]:
    return {
        "kind": file.kind,
        "object_id": file.object_id,
        "path": file.path,
        "length": file.length,
        "sha256": f"\\x{file.sha256.hex()}",
        "timestamp_ms": file.timestamp_ms,
        "facts": file.facts,
    }
