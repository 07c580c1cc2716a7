"""The newest version of each table in memory, with its manifests."""

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from math import inf
from threading import Lock
from typing import Final

from duckicelake.bridge.commit.increments import Base
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.lake.conflicts import StaleBaseError
from duckicelake.lake.side_tables import reader
from duckicelake.lake.state import ManifestRow, TableRow, TableState
from duckicelake.postgres.database import Database

_OLDER: Final = 50
DEFAULT_SIZE = 1024
DEFAULT_BYTES = 256 * 1024 * 1024
_OBJECTS: Final = 9
"""Bytes that the parsed rows and metadata of a table take for each byte of its JSON; measured, of long histories."""
_MIN_ENTRY_BYTES: Final = 4096


class ManifestLostError(StaleBaseError):
    """Manifests of a version that was loaded aren't recorded as written any more: their files got lost."""


@dataclass(slots=True)
class ManifestCache:
    """Rows that hold as long as the version is the newest; entries are only added, so that threads may share it.

    `lake` is what DuckLake has of the table, None until it was read.
    """

    manifests: dict[int, ManifestRow] = field(default_factory=dict)
    lake: Base | None = None

    def manifests_of(self, database: Database, manifest_ids: Iterable[int]) -> dict[int, ManifestRow]:
        """Return manifests by id, those that aren't known yet read.

        One that isn't written has no path, and is read again.
        """
        wanted = list(manifest_ids)
        found = {manifest_id: row for manifest_id in wanted if (row := self.manifests.get(manifest_id)) is not None}
        missing = [manifest_id for manifest_id in wanted if manifest_id not in found]
        if missing:
            with database.statement() as cursor:
                read = reader.read_manifests(cursor, missing)
            self.manifests.update((id_, row) for id_, row in read.items() if row.path is not None)
            found |= read
        return {manifest_id: found[manifest_id] for manifest_id in wanted}

    def inherit(self, before: "ManifestCache") -> None:
        """Take over the last of what is known of manifests that an older version listed.

        Clients that append at the same time build on those: they are some commits behind.
        """
        known = before.manifests.copy()  # at once: other threads add to it
        older = [manifest_id for manifest_id in known.items() if manifest_id[0] not in self.manifests]
        self.manifests = {**dict(older[-_OLDER:]), **self.manifests}


@dataclass(frozen=True, slots=True)
class Materialized:
    """A version of a table whose files all exist; `body` is its metadata.json."""

    row: TableRow
    state: TableState
    metadata: TableMetadata
    location: str
    body: bytes
    known: ManifestCache = field(default_factory=ManifestCache, compare=False, repr=False)

    def with_row(self, row: TableRow) -> "Materialized":
        """Return the same version, checked up to where the row says."""
        return self if row == self.row else replace(self, row=row, state=replace(self.state, row=row))


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """A JSON answer about a table, in pieces, with its entity tag; None for one that nobody can load yet."""

    pieces: tuple[bytes, ...] = field(repr=False)
    etag: str | None

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)


@dataclass(frozen=True, slots=True)
class CachedResponse:
    """What was answered to a load. until_ms: how long it may be said again.

    seen: what Postgres held then (`Freshness.seen`), if it may be said again only while that is all that it holds.
    """

    loaded: LoadedTable
    until_ms: float = inf
    seen: str | None = None


@dataclass(slots=True)
class Answers:
    """What was made to answer loads of one version: its metadata by representation, and whole answers by who asks."""

    bodies: dict[str, bytes] = field(default_factory=dict)
    responses: dict[Hashable, CachedResponse] = field(default_factory=dict)
    size: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """Under which (schema name, table name) a table was found right, and when that was asked, by a monotonic clock."""

    name: tuple[str, str]
    at: float


@dataclass(frozen=True, slots=True)
class CachedTable:
    """A table that was as new as DuckLake snapshot `checked_upto` and expiry `epoch`; `seen` as in `Freshness`.

    found: the name that it had at `checked_upto`, if that is known.
    """

    materialized: Materialized
    checked_upto: int
    epoch: int
    seen: str = ""
    found: Found | None = None
    answers: Answers = field(default_factory=Answers, compare=False)

    @property
    def size(self) -> int:
        """Bytes in memory, about."""
        return _MIN_ENTRY_BYTES + len(self.materialized.body) * (1 + _OBJECTS) + self.answers.size


@dataclass(slots=True)
class TableCache:
    """A least-recently-used cache by table id and by name, safe to share between threads.

    It keeps as many tables as `most`, and not more than about `most_bytes`.
    """

    most: int = DEFAULT_SIZE
    most_bytes: int = DEFAULT_BYTES
    _tables: OrderedDict[int, CachedTable] = field(default_factory=OrderedDict)
    _sizes: dict[int, int] = field(default_factory=dict)
    _names: OrderedDict[tuple[str, str], int] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)
    size: int = 0
    hits: int = 0
    misses: int = 0

    def get(self, table_id: int) -> CachedTable | None:
        """Return the cached table, if any; counts as a use."""
        with self._lock:
            return self._mark_used(table_id)

    def version(self, table_id: int) -> tuple[TableState, TableMetadata] | None:
        """Return a version of the table, all of it written, with which newer ones share what they have in common."""
        cached = self.get(table_id)
        return None if cached is None else (cached.materialized.state, cached.materialized.metadata)

    def find(self, schema_name: str, table_name: str) -> CachedTable | None:
        """Return the table that had this name when it was last loaded by it; counts as a use."""
        with self._lock:
            table_id = self._names.get((schema_name, table_name))
            return None if table_id is None else self._mark_used(table_id)

    def name(self, schema_name: str, table_name: str, table_id: int) -> None:
        """Remember a table's name, which may be another's by the time that it is looked for."""
        with self._lock:
            self._names[schema_name, table_name] = table_id
            self._names.move_to_end((schema_name, table_name))
            while len(self._names) > self.most:
                self._names.popitem(last=False)

    def put(self, table: CachedTable) -> None:
        """Keep the table, or count anew what it takes, unless a newer version is there."""
        table_id, version = table.materialized.row.table_id, table.materialized.row.version
        with self._lock:
            present = self._tables.get(table_id)
            if present is not None and present.materialized.row.version > version:
                return
            self._forget(table_id)
            self._tables[table_id] = table
            self._sizes[table_id] = table.size
            self.size += table.size
            while len(self._tables) > self.most or self.size > self.most_bytes:
                self._forget(next(iter(self._tables)))

    def forget(self, table_id: int) -> None:
        """Have the table read again by whoever wants it next."""
        with self._lock:
            self._forget(table_id)

    def keep_body(self, table: CachedTable, representation: str, body: bytes) -> None:
        """Keep what a representation of the table says."""
        with self._lock:
            table.answers.bodies[representation] = body
            table.answers.size += len(body)
        self.put(table)

    def keep_response(self, table: CachedTable, asking: Hashable, response: CachedResponse) -> None:
        """Keep an answer; its metadata is counted where it is kept by itself."""
        with self._lock:
            table.answers.size += (
                0 if asking in table.answers.responses else _MIN_ENTRY_BYTES + len(response.loaded.pieces[-1])
            )
            table.answers.responses[asking] = response
        self.put(table)

    def statistics(self) -> dict[str, int]:
        """Return how many tables are kept, in how many bytes, and how many loads found theirs here."""
        with self._lock:
            return {"tables": len(self._tables), "bytes": self.size, "hits": self.hits, "misses": self.misses}

    def count(self, *, hit: bool) -> None:
        """Count a served load."""
        with self._lock:
            self.hits, self.misses = self.hits + hit, self.misses + (not hit)

    def _mark_used(self, table_id: int) -> CachedTable | None:
        found = self._tables.get(table_id)
        if found is not None:
            self._tables.move_to_end(table_id)
        return found

    def _forget(self, table_id: int) -> None:
        if self._tables.pop(table_id, None) is not None:
            self.size -= self._sizes.pop(table_id)
