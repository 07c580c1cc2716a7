"""Which files were written for a table. All of it can be found out again by writing them again."""

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import Cursor

from duckicelake.lake.changes import WrittenFile
from duckicelake.lake.postgres.database import Row
from duckicelake.lake.postgres.documents import document
from duckicelake.lake.postgres.queries import queries
from duckicelake.lake.postgres.telling import tell
from duckicelake.lake.state import TableRow
from duckicelake.lake.writing.side_tables import unschedule

_SQL = queries("artifacts")


@dataclass(frozen=True, slots=True)
class WrittenVersion:
    """Files of a table's version that were written; its metadata.json is the last."""

    row: TableRow
    files: Sequence[WrittenFile]


def record(cursor: Cursor[Row], versions: Sequence[WrittenVersion]) -> list[bool]:
    """Note that files of versions were written; of each, whether it is its table's newest.

    If one isn't, its metadata.json isn't noted, nor are lists of snapshots that have left history. Files may have been
    another table's of the same UUID, and let go of: they are kept from cleanups.
    """
    in_order = sorted(versions, key=lambda each: each.row.table_id)  # of several that record, none waits for another
    parameters = {
        "versions": document([_identity(each.row) | {"caught_up_to": each.row.caught_up_to} for each in in_order]),
        "files": document([_identity(each.row) | _row(file) for each in in_order for file in each.files]),
    }
    rows = cursor.execute(_SQL.record, parameters).fetchall()
    if any(may_be_scheduled for *_, may_be_scheduled in rows):
        unschedule(cursor, [file.path for each in in_order for file in each.files])
    newest = {(table_id, version) for table_id, version, is_newest, _ in rows if is_newest}
    return [(each.row.table_id, each.row.version) in newest for each in versions]


def _identity(row: TableRow) -> dict[str, object]:
    return {"table_id": row.table_id, "version": row.version}


def forget_lists(cursor: Cursor[Row], table_id: int, snapshot_ids: Sequence[int]) -> None:
    """Forget what was written for snapshots that left history, in the transaction that makes others of the same ids."""
    if snapshot_ids:
        tell(cursor, _SQL.forget_lists, {"table_id": table_id, "snapshot_ids": list(snapshot_ids)})


def record_with(cursor: Cursor[Row], table_id: int, files: Sequence[WrittenFile]) -> None:
    """Note, in the transaction that makes the newest version, that its files were written before."""
    tell(cursor, _SQL.record_with, {"table_id": table_id, "files": _document(files)})


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
