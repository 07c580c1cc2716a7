"""The newest version of each table in memory; it was committed, and is served only after a freshness check."""

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock

from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.lake.state import TableRow, TableState

DEFAULT_SIZE = 1024


@dataclass(frozen=True, slots=True)
class Materialized:
    """A version of a table whose files all exist; `body` is its metadata.json."""

    row: TableRow
    state: TableState
    metadata: TableMetadata
    location: str
    body: bytes


@dataclass(frozen=True, slots=True)
class CachedTable:
    """A table that was as new as DuckLake snapshot `checked_upto` and expiry `epoch`."""

    materialized: Materialized
    checked_upto: int
    epoch: int


@dataclass(slots=True)
class TableCache:
    """A least-recently-used cache by table id, safe to share between threads."""

    most: int = DEFAULT_SIZE
    _tables: OrderedDict[int, CachedTable] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)
    hits: int = 0
    misses: int = 0

    def get(self, table_id: int) -> CachedTable | None:
        """The cached table, if any; counts as a use."""
        with self._lock:
            found = self._tables.get(table_id)
            if found is not None:
                self._tables.move_to_end(table_id)
            return found

    def put(self, table: CachedTable) -> None:
        """Keep the table unless a newer version is there."""
        table_id, version = table.materialized.row.table_id, table.materialized.row.version
        with self._lock:
            present = self._tables.get(table_id)
            if present is None or present.materialized.row.version <= version:
                self._tables[table_id] = table
                self._tables.move_to_end(table_id)
            while len(self._tables) > self.most:
                self._tables.popitem(last=False)

    def statistics(self) -> dict[str, int]:
        """How many tables are kept, and how many loads found theirs here."""
        with self._lock:
            return {"tables": len(self._tables), "hits": self.hits, "misses": self.misses}

    def count(self, *, hit: bool) -> None:
        """Count a served load."""
        with self._lock:
            self.hits, self.misses = self.hits + hit, self.misses + (not hit)
