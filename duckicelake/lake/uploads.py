"""Files that clients uploaded for commits that were accepted, manifest lists and manifests, in a table of their own.

They are recorded in the commit's transaction, so what came of a commit is known for each: it was accepted.
"""

from collections.abc import Sequence
from typing import NamedTuple

from psycopg import Cursor

from duckicelake.lake.postgres.database import Row, Transaction
from duckicelake.lake.postgres.documents import document
from duckicelake.lake.postgres.queries import queries
from duckicelake.lake.postgres.telling import tell

_SQL = queries("uploads")


class UploadRow(NamedTuple):
    """A `duckicelake_upload` row that is due. location: its table's, None if there is no such table any more."""

    upload_id: int
    table_id: int
    paths: list[str]
    location: str | None


def record(cursor: Cursor[Row], table_id: int, uploads: Sequence[Sequence[str]]) -> None:
    """Record the paths that were uploaded for each of some snapshots; the files become due after 7 days."""
    if uploads:
        tell(cursor, _SQL.insert, {"table_id": table_id, "uploads": document([list(paths) for paths in uploads])})


def due(cursor: Transaction, most: int) -> list[UploadRow]:
    """The oldest uploads that are due."""
    return [UploadRow(*row) for row in cursor.execute(_SQL.due, {"most": most}).fetchall()]


def settle(cursor: Transaction, done: Sequence[int], needed: Sequence[int]) -> None:
    """Forget the uploads whose files are deleted; the needed ones become due again after 7 days."""
    if done:
        cursor.execute(_SQL.forget, {"upload_ids": list(done)})
    if needed:
        cursor.execute(_SQL.postpone, {"upload_ids": list(needed)})
