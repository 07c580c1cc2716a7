"""Which files were written for a table. All of it can be found out again by writing them again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from psycopg import Cursor

from duckicelake.lake.database import Row
from duckicelake.lake.queries import queries
from duckicelake.lake.side_tables import unschedule

_SQL = queries("artifacts")


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A `duckicelake_artifact` row; `facts` are what manifest lists repeat of a manifest."""

    kind: str
    object_id: int
    path: str
    length: int
    sha256: bytes
    timestamp_ms: int
    facts: Mapping[str, Any] | None


def record(cursor: Cursor[Row], table_id: int, files: Sequence[WrittenFile], version: int) -> bool:
    """Note that files were written, the metadata.json of a version last; whether that is the newest version.

    If it isn't, its metadata.json isn't noted. Not waited for: a crash of Postgres may forget it, as if the server had
    died before. Files may have been another table's of the same UUID, and let go of: they are kept from cleanups.
    """
    paths = [file.path for file in files]
    parameters = {
        "table_id": table_id,
        "version": version,
        "kinds": [file.kind for file in files],
        "object_ids": [file.object_id for file in files],
        "paths": paths,
        "lengths": [file.length for file in files],
        "hashes": [file.sha256 for file in files],
        "times": [file.timestamp_ms for file in files],
        "facts": [None if file.facts is None else orjson.dumps(file.facts).decode() for file in files],
    }
    is_newest, may_be_scheduled = cursor.execute(_SQL.record, parameters).fetchone() or (False, False)
    if may_be_scheduled:
        unschedule(cursor, paths)
    return bool(is_newest)
