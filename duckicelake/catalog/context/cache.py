"""Cache the newest version of each table, with its manifests and the responses to loads of it."""

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from math import inf
from threading import Lock
from typing import Final

from duckicelake.bridge.artifacts import Artifact
from duckicelake.bridge.commit.increments import Base
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.lake.conflicts import StaleBaseError
from duckicelake.lake.model import ObjectTag
from duckicelake.lake.side_tables import reader
from duckicelake.lake.state import ManifestRow, TableRow, TableState
from duckicelake.postgres.database import Database

_MAX_INHERITED_MANIFESTS: Final = 50
DEFAULT_SIZE = 1024
DEFAULT_BYTES = 256 * 1024 * 1024
_OBJECT_BYTES_PER_JSON_BYTE: Final = 9
"""Bytes that the parsed rows and metadata of a table take for each byte of its JSON; measured, of long histories."""
_MIN_ENTRY_BYTES: Final = 4096


class ManifestLostError(StaleBaseError):
    """Manifests of a loaded version are no longer recorded as written: their files got lost."""


@dataclass(slots=True)
class ManifestCache:
    """Rows of manifests, valid while the version is the newest. Entries are only added, so threads may share it.

    Attributes:
        lake: What DuckLake has of the table; None until it is read.

    """

    manifests: dict[int, ManifestRow] = field(default_factory=dict)
    lake: Base | None = None

    def manifests_of(self, database: Database, manifest_ids: Iterable[int]) -> dict[int, ManifestRow]:
        """Return manifests by id, and read the unknown ones.

        A manifest that isn't written has no path, and is read again the next time.
        """
        wanted = list(manifest_ids)
        found = {manifest_id: row for manifest_id in wanted if (row := self.manifests.get(manifest_id)) is not None}
        missing = [manifest_id for manifest_id in wanted if manifest_id not in found]
        if missing:
            with database.statement(only_reads=True) as cursor:
                read = reader.read_manifests(cursor, missing)
            self.manifests.update((id_, row) for id_, row in read.items() if row.path is not None)
            found |= read
        return {manifest_id: found[manifest_id] for manifest_id in wanted}

    def inherit(self, before: "ManifestCache") -> None:
        """Take over the last manifests that an older version listed.

        Concurrent appends build on versions some commits behind.
        """
        known = before.manifests.copy()  # at once: other threads add to it
        older = [manifest_id for manifest_id in known.items() if manifest_id[0] not in self.manifests]
        self.manifests = {**dict(older[-_MAX_INHERITED_MANIFESTS:]), **self.manifests}


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """A response to a load, in JSON.

    Attributes:
        pieces: The pieces of the body.
        etag: The entity tag; None for a table that no client can load yet.
        until_ms: Epoch milliseconds until which the response may be sent again.
        seen: `Freshness.seen`, if the response may be sent again only while that stays the same.

    """

    pieces: tuple[bytes, ...] = field(repr=False)
    etag: str | None
    until_ms: float = inf
    seen: str | None = None

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)


@dataclass(slots=True)
class Responses:
    """Responses to loads of one version, by the keys of requests, and metadata in the representations that they share.

    size: Bytes of both.
    """

    by_request: dict[Hashable, LoadedTable] = field(default_factory=dict)
    metadata: dict[str, bytes] = field(default_factory=dict)
    size: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """The (schema name, table name) by which a table was found current, and the monotonic seconds of the question."""

    name: tuple[str, str]
    at: float


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A version of a table: its rows, the metadata that the rows make, and the bytes of its metadata.json.

    Two versions are equal if these three are. All else is what this process knows besides.

    Attributes:
        body: The metadata.json.
        new_files: Files that are not recorded yet; empty for a version in the cache.
        known: The rows of its manifests that were read.
        checked_upto: The DuckLake snapshot at which the version was the newest.
        epoch: The expiry epoch at which it was.
        seen: `Freshness.seen` at which it was.
        found: The name by which it was found then; None if that is unknown.
        tags: DuckLake's tags of the table then, besides comments.
        row: The table's row.

    """

    state: TableState
    metadata: TableMetadata
    body: bytes
    new_files: tuple[Artifact, ...] = field(default=(), compare=False, repr=False)
    known: ManifestCache = field(default_factory=ManifestCache, compare=False, repr=False)
    checked_upto: int = field(default=0, compare=False)
    epoch: int = field(default=0, compare=False)
    seen: str = field(default="", compare=False)
    found: Found | None = field(default=None, compare=False)
    tags: tuple[ObjectTag, ...] = field(default=(), compare=False)
    responses: Responses = field(default_factory=Responses, compare=False, repr=False)
    row: TableRow = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "row", self.state.row)

    @property
    def location(self) -> str:
        """The path of the metadata.json."""
        assert self.state.metadata_location is not None
        return self.state.metadata_location

    @property
    def lake_snapshot(self) -> int:
        """The DuckLake snapshot at which DuckDB reads this version: others may have committed since it was checked."""
        return max(self.checked_upto, self.row.caught_up_to)

    @property
    def size(self) -> int:
        """Estimate the bytes in memory."""
        return _MIN_ENTRY_BYTES + len(self.body) * (1 + _OBJECT_BYTES_PER_JSON_BYTE) + self.responses.size


@dataclass(slots=True)
class TableCache:
    """A least-recently-used cache by table id and by name, safe to share between threads.

    It keeps as many tables as `most`, and not more than about `most_bytes`.
    """

    most: int = DEFAULT_SIZE
    most_bytes: int = DEFAULT_BYTES
    _tables: OrderedDict[int, TableVersion] = field(default_factory=OrderedDict)
    _sizes: dict[int, int] = field(default_factory=dict)
    _names: OrderedDict[tuple[str, str], int] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)
    size: int = 0
    hits: int = 0
    misses: int = 0

    def get(self, table_id: int) -> TableVersion | None:
        """Return the cached table, if any; counts as a use."""
        with self._lock:
            return self._mark_used(table_id)

    def version(self, table_id: int) -> tuple[TableState, TableMetadata] | None:
        """Return state and metadata of the cached version, with which newer ones share what did not change."""
        cached = self.get(table_id)
        return None if cached is None else (cached.state, cached.metadata)

    def find(self, schema_name: str, table_name: str) -> TableVersion | None:
        """Return the table that had this name when it was last loaded by it; counts as a use."""
        with self._lock:
            table_id = self._names.get((schema_name, table_name))
            return None if table_id is None else self._mark_used(table_id)

    def name(self, schema_name: str, table_name: str, table_id: int) -> None:
        """Keep the name of a table. Another table may have the name when it is looked up."""
        with self._lock:
            self._names[schema_name, table_name] = table_id
            self._names.move_to_end((schema_name, table_name))
            while len(self._names) > self.most:
                self._names.popitem(last=False)

    def put(self, table: TableVersion) -> None:
        """Keep the version and update the table's size, unless a newer version is in the cache.

        A table that takes more than all may is not kept, and lets the others stay.
        """
        table_id, version = table.row.table_id, table.row.version
        with self._lock:
            present = self._tables.get(table_id)
            if present is not None and present.row.version > version:
                return
            self._forget(table_id)
            if table.size > self.most_bytes:
                return
            self._tables[table_id] = table
            self._sizes[table_id] = table.size
            self.size += table.size
            while len(self._tables) > self.most or self.size > self.most_bytes:
                self._forget(next(iter(self._tables)))

    def forget(self, table_id: int) -> None:
        """Drop the table, so that the next request reads it."""
        with self._lock:
            self._forget(table_id)

    def keep_metadata(self, table: TableVersion, representation: str, body: bytes) -> None:
        """Keep the table's metadata in a representation."""
        with self._lock:
            table.responses.metadata[representation] = body
            table.responses.size += len(body)
        self.put(table)

    def keep_response(self, table: TableVersion, request: Hashable, response: LoadedTable) -> None:
        """Keep the response to a request. Its metadata is counted elsewhere; its last piece holds the rest."""
        responses = table.responses
        with self._lock:
            is_new = request not in responses.by_request
            responses.size += _MIN_ENTRY_BYTES + len(response.pieces[-1]) if is_new else 0
            responses.by_request[request] = response
        self.put(table)

    def statistics(self) -> dict[str, int]:
        """Return how many tables are kept, in how many bytes, and how many loads found theirs here."""
        with self._lock:
            return {"tables": len(self._tables), "bytes": self.size, "hits": self.hits, "misses": self.misses}

    def count(self, *, hit: bool) -> None:
        """Count a served load."""
        with self._lock:
            self.hits, self.misses = self.hits + hit, self.misses + (not hit)

    def _mark_used(self, table_id: int) -> TableVersion | None:
        found = self._tables.get(table_id)
        if found is not None:
            self._tables.move_to_end(table_id)
        return found

    def _forget(self, table_id: int) -> None:
        if self._tables.pop(table_id, None) is not None:
            self.size -= self._sizes.pop(table_id)
