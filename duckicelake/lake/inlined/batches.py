"""PURE. Batches of posted rows as values, with no ids that only the lock gives."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from duckicelake.lake.additions import NewDataFile
from duckicelake.lake.model import ColumnStats, Extent, TableDefinition
from duckicelake.lake.side_tables.audit import RequestOrigin
from duckicelake.lake.txn import TxnApp, TxnId

DEFAULT_INLINED_ROWS: Final = 10
"""DuckLake's, where no option says how many rows are inlined."""

_UNQUOTED_TYPES: Final = frozenset({"smallint", "integer", "bigint", "real", "double precision", "boolean", "uuid"})
"""Types in Postgres whose values need no quotes in an array."""

InliningOptions = Sequence[Sequence[Any]]
"""(scope, scope id, value) of each option that says how many rows are inlined."""
WidenStats = Callable[
    [Mapping[int, ColumnStats] | None, Sequence[Iterable[ColumnStats | Extent]]], dict[int, ColumnStats | None]
]
"""Table-wide statistics, None before the first rows, after adding rows that hold this; a column with None has none."""


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Rows to be inlined, of one batch or several. columns: the values of each as `packed` makes them."""

    columns: Sequence[str]
    extents: Sequence[Extent]


PackRows = Callable[[Sequence[Any]], PackedRows]
"""Packs what the batches for a table have as `rows`."""


@dataclass(frozen=True, slots=True)
class InlinedTable:
    """The table that takes a table's inlined rows: `types` are those of its columns in Postgres, in order.

    It is to be made if `registered`, the one that took them so far, is another or None; for this schema version.
    """

    name: str
    version: int
    types: tuple[str, ...]
    registered: str | None


@dataclass(frozen=True, slots=True)
class InsertTarget:
    """A table as batches were prepared for it. lake_version: DuckLake's newest schema version then.

    inlined: None for a table whose rows can't be inlined.
    """

    definition: TableDefinition
    schema_id: int
    lake_version: int
    options: InliningOptions
    inlined: InlinedTable | None

    @property
    def limit(self) -> int:
        """How many rows of a batch are inlined at most."""
        return 0 if self.inlined is None else _find_limit(self.options, self.definition.table_id, self.schema_id)


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Rows for a table, inlined or as files; all of them are there afterwards or none. origin: whose request it was.

    rows: those to be inlined, for `pack`. files: in their place. txn: the batch is this version of a producer.
    key: of a request that must not run twice. untouched_since: the DuckLake snapshot after which nothing may have
    touched the table.
    """

    target: InsertTarget
    origin: RequestOrigin
    count: int
    widen: WidenStats
    pack: PackRows
    rows: Any = None
    files: Sequence[NewDataFile] = ()
    txn: TxnId | None = None
    key: UUID | None = None
    untouched_since: int | None = None

    @property
    def has_new_table(self) -> bool:
        """Whether the table of inlined rows is to be made: clients of DuckDB look for it once the schema changes."""
        inlined = self.target.inlined
        return not self.files and inlined is not None and inlined.name != inlined.registered

    @property
    def table_id(self) -> int:
        return self.target.definition.table_id

    @property
    def app(self) -> TxnApp | None:
        """The producer that numbers its batches, if one does."""
        return None if self.txn is None else self.txn.get_app(self.table_id)


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """Where a batch's rows are: in this DuckLake snapshot, with row ids from the first one on."""

    snapshot_id: int
    first_row_id: int
    count: int


def pack_values(values: Iterable[str | bytes | None], kind: str) -> str:
    """Encode values of a column of this type as elements of a Postgres array; commas join lists of them."""
    if kind in _UNQUOTED_TYPES:
        return ",".join(["NULL" if value is None else str(value) for value in values])
    return ",".join(map(_format_element, values))


def _format_element(value: str | bytes | None) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f'"\\\\x{value.hex()}"'
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _find_limit(options: InliningOptions, table_id: int, schema_id: int) -> int:
    found = {(scope, scope_id): value for scope, scope_id, value in options}
    for key in (("table", table_id), ("schema", schema_id), (None, None)):
        if key in found:
            return int(found[key])
    return DEFAULT_INLINED_ROWS
