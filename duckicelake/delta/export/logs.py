"""SQL of the Delta logs kept beside tables, and of the versions recorded in them (migration 0022)."""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from duckicelake.lake.ducklake.snapshots import LOCK_KEY
from duckicelake.postgres.pipeline import json_param
from duckicelake.postgres.queries import Transaction, load_queries

_SQL = load_queries("delta.export", "logs")
KEEPER_KEY: Final = LOCK_KEY + 4
_BATCH_VERSIONS: Final = 100
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LogRow:
    """A log from version `oldest` to `version`. protocol, metadata: Delta's actions of the newest version.

    table_version: the newest version of the table's metadata in the log. is_looked_at: the log has all of it, or
    `problem` says why not.
    """

    root: str
    version: int
    oldest: int
    protocol: Json
    metadata: Json
    table_version: int
    is_looked_at: bool
    problem: str | None


@dataclass(frozen=True, slots=True)
class VersionRow:
    """A version of a log, and the snapshot of main since `logged_ms`."""

    version: int
    snapshot_id: int | None
    logged_ms: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class LoggedVersion:
    """The files of a version: its own, and that of its new deletion vectors."""

    version: int
    body: bytes
    vectors_path: str | None
    vectors: bytes | None


@dataclass(frozen=True, slots=True)
class LogAddition:
    """A version to add, of a table whose metadata has reached `table_version`.

    vectors_of: hash and descriptor by data file; None if it has none any more.
    """

    row: VersionRow
    table_version: int
    root: str
    protocol: Json
    metadata: Json
    files: LoggedVersion
    vectors_of: Mapping[str, tuple[bytes, Json] | None]


def is_keeper_free(cursor: Transaction) -> bool:
    """Return whether no process keeps Delta logs now."""
    return cursor.execute(_SQL.is_free, {"key": KEEPER_KEY}).fetchone() == (True,)


def take_lead(cursor: Transaction) -> bool:
    """Try to become the keeper of Delta logs for this session; False if another process is."""
    return cursor.execute(_SQL.lead, {"key": KEEPER_KEY}).fetchone() == (True,)


def read_versions(cursor: Transaction) -> dict[int, int]:
    """Read the metadata versions of all live tables that Iceberg clients have seen, by table id."""
    return dict(cursor.execute(_SQL.versions).fetchall())


def find_enabled(cursor: Transaction, table_ids: Iterable[int]) -> frozenset[int]:
    """Find the tables that want a log."""
    return frozenset(row[0] for row in cursor.execute(_SQL.enabled, {"table_ids": list(table_ids)}).fetchall())


def find_abandoned(cursor: Transaction) -> list[int]:
    """Find tables with a log that don't want it any more, or are gone."""
    return [row[0] for row in cursor.execute(_SQL.abandoned).fetchall()]


def read_log(cursor: Transaction, table_id: int) -> LogRow | None:
    """Read the log of a table."""
    row = cursor.execute(_SQL.log, {"table_id": table_id}).fetchone()
    return None if row is None else LogRow(*row)


def read_newest_version(cursor: Transaction, table_id: int) -> VersionRow | None:
    """Read the newest version of a table's log."""
    row = cursor.execute(_SQL.newest, {"table_id": table_id}).fetchone()
    return None if row is None else VersionRow(*row)


def add_version(cursor: Transaction, table_id: int, new: LogAddition) -> bool:
    """Add the next version; False if its number exists by now, or a newer table version is in the log."""
    version = new.row.version
    state = {
        "table_id": table_id,
        "version": version,
        "table_version": new.table_version,
        "protocol": new.protocol,
        "metadata": new.metadata,
    }
    if version == 0:
        if cursor.execute(_SQL.begin, {**state, "root": new.root}).fetchone() is None:
            return False
    elif cursor.execute(_SQL.lock, state).fetchone() != (version - 1, True):
        return False
    row = {
        **state,
        "snapshot_id": new.row.snapshot_id,
        "logged_ms": new.row.logged_ms,
        "timestamp_ms": new.row.timestamp_ms,
        "body": zlib.compress(new.files.body),
        "vectors_path": new.files.vectors_path,
        "vectors": None if new.files.vectors is None else zlib.compress(new.files.vectors),
    }
    cursor.execute(_SQL.add_version, row)
    cursor.execute(_SQL.end_vectors, {**state, "paths": list(new.vectors_of)})
    begun = [
        {"path": path, "sha256": vector[0].hex(), "descriptor": vector[1]}
        for path, vector in new.vectors_of.items()
        if vector is not None
    ]
    if begun:
        cursor.execute(_SQL.begin_vectors, {**state, "vectors": json_param(begun)})
    cursor.execute(_SQL.advance, state)
    return True


def note_looked_at(cursor: Transaction, table_id: int, table_version: int, problem: str | None) -> None:
    """Record the table version that the log was checked against, and the problem; None: it is up to date."""
    cursor.execute(_SQL.looked_at, {"table_id": table_id, "table_version": table_version, "problem": problem})


def read_vectors(cursor: Transaction, table_id: int, paths: Sequence[str]) -> dict[str, tuple[bytes, Json]]:
    """Read hash and descriptor of data files' deletion vectors in the newest version, by path."""
    if not paths:
        return {}
    rows = cursor.execute(_SQL.vectors, {"table_id": table_id, "paths": list(paths)}).fetchall()
    return {path: (bytes(digest), descriptor) for path, digest, descriptor in rows}


def read_version_files(
    cursor: Transaction, table_id: int, after: int = -1, *, unwritten_only: bool = True
) -> list[LoggedVersion]:
    """Read the files of some next versions, in order: those that may be missing, or all."""
    asked = {"table_id": table_id, "after": after, "all": not unwritten_only, "most": _BATCH_VERSIONS}
    return [
        LoggedVersion(version, zlib.decompress(body), path, None if data is None else zlib.decompress(data))
        for version, body, path, data in cursor.execute(_SQL.unwritten, asked).fetchall()
    ]


def note_written(cursor: Transaction, table_id: int, numbers: Iterable[int]) -> None:
    """Record that the files of these versions are written."""
    cursor.execute(_SQL.written, {"table_id": table_id, "versions": list(numbers)})


def find_oldest_readable(cursor: Transaction, table_id: int) -> int:
    """Find the oldest version from which on all data files are kept.

    One more than the newest if there is none.
    """
    row = cursor.execute(_SQL.readable, {"table_id": table_id}).fetchone()
    assert row is not None
    return int(row[0])


def find_needless_vectors(cursor: Transaction, table_id: int, oldest: int) -> Iterator[str]:
    """Find files of deletion vectors that no version from `oldest` on needs."""
    rows = cursor.execute(_SQL.vector_files, {"table_id": table_id, "oldest": oldest}).fetchall()
    return (path for (path,) in rows)


def cut_versions(cursor: Transaction, table_id: int, oldest: int) -> None:
    """Delete the versions before `oldest`, except their vectors that are needed."""
    for query in (_SQL.cut, _SQL.cut_versions, _SQL.cut_vectors):
        cursor.execute(query, {"table_id": table_id, "oldest": oldest})


def forget_log(cursor: Transaction, table_id: int) -> None:
    """Delete the records of a log."""
    cursor.execute(_SQL.forget, {"table_id": table_id})
