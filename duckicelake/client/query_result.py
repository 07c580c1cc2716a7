"""Queries of a server, and the rows that one answers: as Arrow's stream, or the first of them as JSON."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib import import_module
from itertools import count
from typing import Any, BinaryIO, Final

from duckicelake.client.models import Json
from duckicelake.errors import BadInputError, format_count
from duckicelake.extras import import_extra

ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"
JSON_LINES: Final = "application/x-ndjson"
QUERY_SECONDS: Final = 3600.0
"""How long a client waits for an answer; the server ends a query sooner."""
GRACE_SECONDS: Final = 5.0
"""How long a client waits beyond the time that it gives a query, for the server's own error."""


_INT_BITS: Final = 32
_LONG_BITS: Final = 64
_PRIMITIVES: Final[Mapping[str, str]] = {
    "bool": "boolean",
    **dict.fromkeys(("halffloat", "float"), "float"),
    "double": "double",
    "date32": "date",
    "time64": "time",
    **dict.fromkeys(("string", "large_string", "string_view"), "string"),
    **dict.fromkeys(("binary", "large_binary", "binary_view"), "binary"),
}
"""Iceberg's names of Arrow's types that have no parameters but a unit."""


@dataclass(frozen=True, slots=True)
class QueryInfo:
    """A query of a server. state: running, done, failed, cancelled or lost. progress: from 0 to 1, None if unknown."""

    query_id: str
    principal: str
    statement: str
    state: str
    progress: float | None
    rows: int
    started: datetime
    seconds: float


@dataclass(frozen=True, slots=True)
class SavedColumnInfo:
    """A column of a table that was made of a query's result. type: in DuckDB's spelling."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class SavedResultInfo:
    """A table that was made of a query's result; of a dry run, what it would be, without what only a table has.

    sources: full names of the tables that the query reads.
    """

    namespace: tuple[str, ...]
    name: str
    columns: tuple[SavedColumnInfo, ...]
    sources: tuple[str, ...]
    ducklake_snapshot_id: int
    table_uuid: str | None = None
    snapshot_id: int | None = None
    rows: int | None = None
    files: int | None = None
    bytes: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ScanInfo:
    """What a query reads of a table at most, by the catalog's statistics; numbers are None where it has none.

    Attributes:
        where: the conditions that leave out files.
        files: of the files_of_table.
        rows: before deletes.

    """

    table: str
    where: str | None
    files: int | None
    files_of_table: int | None
    rows: int | None
    bytes: int | None

    def describe(self) -> str:
        """Describe it in a line."""
        if self.files is None:
            return f"{self.table}: not known"
        files = f"{self.files:,} of {self.files_of_table:,} files"
        where = "" if self.where is None else f", where {self.where}"
        return f"{self.table}: {files}, {format_count(self.rows or 0, 'row')}, {(self.bytes or 0) / 1e6:,.1f} MB{where}"


@dataclass(frozen=True, slots=True)
class PlanInfo:
    """How a query is run, and what it reads. text: DuckDB's plan, drawn. scans: each scan of a table."""

    text: str
    scans: tuple[ScanInfo, ...]

    def lines(self) -> list[str]:
        """Return the plan and the scans as lines of text."""
        return [*self.text.rstrip().splitlines(), *(f"reads {scan.describe()}" for scan in self.scans)]


def parse_plan(plan: Json) -> PlanInfo:
    """Parse the plan of a query."""
    scans = []
    for scan in plan["scans"]:
        read, total = scan.get("read") or {}, scan.get("total") or {}
        counts = read.get("files"), total.get("files"), read.get("rows"), read.get("bytes")
        scans.append(ScanInfo(scan["table"], scan.get("where"), *counts))
    return PlanInfo(plan["plan"], tuple(scans))


@dataclass(frozen=True, slots=True)
class QueryPage:
    """The first rows of an answer, as JSON has them. is_cut: there are more than were wanted."""

    rows: list[dict[str, Json]]
    is_cut: bool


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The answer of a query. table: a `pyarrow.Table`."""

    table: Any = field(repr=False)

    @classmethod
    def read(cls, body: BinaryIO) -> "QueryResult":
        """Read Arrow's stream while it comes: a third of the CPU of one text of all bytes, which is copied twice."""
        return cls(import_extra("pyarrow").ipc.open_stream(body).read_all())

    def to_arrow(self) -> Any:
        """Return a `pyarrow.Table`."""
        return self.table

    def to_pandas(self) -> Any:
        """Return a data frame of pandas, which must be installed."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Return a data frame of Polars, which must be installed."""
        return import_module("polars").from_arrow(self.to_arrow())

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows, each a dictionary."""
        found: list[dict[str, Any]] = self.to_arrow().to_pylist()
        return found

    def to_schema(self) -> Json:
        """Return the columns as Iceberg's schema, as JSON. Raises BadInputError for a type that Iceberg has none of."""
        ids = count(1)
        return {"type": "struct", "fields": [_build_field(field, ids) for field in self.table.schema]}


def _build_field(field: Any, ids: Iterator[int]) -> Json:
    return {"id": next(ids), "name": field.name, "required": False, "type": _build_type(field.type, ids)}


def _build_type(type_: Any, ids: Iterator[int]) -> Json:
    """Build Iceberg's type of one of Arrow's."""
    types = import_extra("pyarrow.types")
    if types.is_struct(type_):
        return {"type": "struct", "fields": [_build_field(field, ids) for field in type_.fields]}
    if types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_):
        element = {"element-id": next(ids), "element-required": False}
        return {"type": "list", **element, "element": _build_type(type_.value_type, ids)}
    if types.is_map(type_):
        key, value = {"key-id": next(ids)}, {"value-id": next(ids), "value-required": False}
        parts = {"key": _build_type(type_.key_type, ids), "value": _build_type(type_.item_type, ids)}
        return {"type": "map", **key, **value, **parts}
    if types.is_decimal(type_):
        return f"decimal({type_.precision}, {type_.scale})"
    if types.is_timestamp(type_):
        return f"timestamp{'tz' if type_.tz else ''}{'_ns' if type_.unit == 'ns' else ''}"
    if types.is_integer(type_):
        bits = type_.bit_width + types.is_unsigned_integer(type_)
        name = "int" if bits <= _INT_BITS else "long" if bits <= _LONG_BITS else None
    else:
        name = _PRIMITIVES.get(str(type_).partition("[")[0])
    if name is None:
        raise BadInputError(f"Iceberg has no type for {type_}: cast the column to another one")
    return name
