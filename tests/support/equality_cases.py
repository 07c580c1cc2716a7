"""Tables with equality deletes, generated and written by PyArrow, and what the specification says they delete."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from duckicelake.iceberg.manifest.entry import FileContent
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.iceberg.values import to_json
from duckicelake.lake.state import FileRow

Json = dict[str, Any]
Row = Mapping[int, Any]
STRUCT = 100
"""The id of the struct that nested delete columns are in."""


def _float(bits: str) -> float:
    value: float = struct.unpack(">d", bytes.fromhex(bits))[0]
    return value


_FLOATS = [
    0.0,
    -0.0,
    float("nan"),
    _float("fff8000000000001"),
    float("inf"),
    -1.5,
    struct.unpack("<f", b"\x9a\x99\x19\x3e")[0],
]
_DECIMALS = [Decimal("0E-2"), Decimal("-0.01"), Decimal("1234567.89")]
_MICROS = [0, -1, 1_577_836_800_000_000, 1_577_836_800_000_001, -86_400_000_000]
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, False]),
    "int": (pa.int32(), [0, 1, -1, 2**31 - 1, -(2**31)]),
    "long": (pa.int64(), [0, 1, -1, 2**31 - 1, 2**63 - 1, -(2**63)]),
    "float": (pa.float32(), _FLOATS),
    "double": (pa.float64(), [*_FLOATS, 0.15, 1e300]),
    "decimal(9, 2)": (pa.decimal128(9, 2), _DECIMALS),
    "decimal(38, 2)": (pa.decimal128(38, 2), [*_DECIMALS, Decimal("123456789012345678901234567890123456.78")]),
    "date": (pa.date32(), [0, -1, 18262, -800000, 2_000_000]),
    "time": (pa.time64("us"), [0, 1, 86_399_999_999]),
    "timestamp": (pa.timestamp("us"), _MICROS),
    "timestamptz": (pa.timestamp("us", "UTC"), _MICROS),
    "timestamp_ns": (pa.timestamp("ns"), [0, 1, 1_577_836_800_000_000_000, 1_577_836_800_000_000_001]),
    "string": (pa.string(), ["", "a", "A", "a ", "é", "e\u0301", "a\0b", "🦆", "null"]),
    "uuid": (pa.uuid(), [UUID(int=0), UUID(int=1), UUID(int=2**128 - 1)]),
    "fixed[4]": (pa.binary(4), [b"\0\0\0\0", b"\xff\x00'\\", b"abcd"]),
    "binary": (pa.binary(), [b"", b"\0", b"\xff", b"abcd"]),
}
STORED = TYPES | {"recent date": (pa.date32(), [0, -1, 18262])}
"""What files may hold: dates may become nanoseconds, which don't reach as far."""
NARROWER = {
    "long": "int",
    "double": "float",
    "decimal(38, 2)": "decimal(9, 2)",
    "timestamp": "date",
    "timestamp_ns": "recent date",
}
_DAY = {"timestamp": 86_400_000_000, "timestamp_ns": 86_400_000_000_000}
_INTEGERS = {"date": pa.int32(), "recent date": pa.int32(), "time": pa.int64()} | dict.fromkeys(
    ("timestamp", "timestamptz", "timestamp_ns"), pa.int64()
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its default is None or a value; `name` is what the schema calls it now."""

    id: int
    name: str
    type: str
    nested: bool = False
    default: Any = None

    def field(self) -> Json:
        kind = PrimitiveType.parse(self.type)
        default = {} if self.default is None else {"initial-default": to_json(kind, self.default)}
        return {"id": self.id, "name": self.name, "type": self.type, "required": False, **default}


@dataclass(frozen=True, slots=True)
class Stored:
    """A column as a file has it, under a name of its own and perhaps with the type it had before."""

    id: int
    name: str
    type: str
    nested: bool


@dataclass(frozen=True, slots=True)
class File:
    """A file of rows as they are stored: values by field id; STRUCT maps to None in rows whose struct is null."""

    columns: tuple[Stored, ...]
    rows: tuple[Row, ...]
    sequence_number: int
    has_ids: bool = True
    equality_ids: tuple[int, ...] = ()
    struct_id: int = STRUCT


@dataclass(frozen=True, slots=True)
class Case:
    columns: tuple[Column, ...]
    data: tuple[File, ...]
    deletes: tuple[File, ...]


def table_metadata(location: str, columns: Sequence[Column], **changes: Any) -> TableMetadata:
    """The metadata of a table of version 3 with these columns; `changes` replace what its JSON says."""
    top = [column.field() for column in columns if not column.nested]
    nested = {"type": "struct", "fields": [column.field() for column in columns if column.nested]}
    group = {"id": STRUCT, "name": "s", "type": nested, "required": False}
    document = {
        "format-version": 3,
        "table-uuid": str(UUID(int=7)),
        "location": location,
        "last-sequence-number": 9,
        "last-updated-ms": 0,
        "last-column-id": 200,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": [*top, *([group] if nested["fields"] else [])]}],
        "current-schema-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "default-spec-id": 0,
        "last-partition-id": 999,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "next-row-id": 0,
    }
    return TableMetadata.model_validate(document | {name.replace("_", "-"): value for name, value in changes.items()})


def new_file(file_id: int, path: str, sequence_number: int, **changes: Any) -> FileRow:
    """A row for a Parquet file that exists or not; with equality ids, of equality deletes."""
    metrics = dict(changes.pop("metrics", {}))
    ids = changes.pop("equality_ids", ())
    values: dict[str, Any] = {
        "content": int(FileContent.EQUALITY_DELETES if ids else FileContent.DATA),
        "file_format": "PARQUET",
        "spec_id": 0,
        "partition": [],
        "record_count": 1,
        "file_size_in_bytes": 1,
        "added_snapshot_id": 1,
        "file_sequence_number": sequence_number,
    }
    metrics |= {"equality_ids": list(ids)} if ids else {}
    return FileRow(file_id=file_id, path=path, sequence_number=sequence_number, metrics=metrics, **values | changes)


def write(file: File, folder: Path, file_id: int) -> FileRow:
    """Write a file as an engine would."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{uuid4()}.parquet"
    top = [column for column in file.columns if not column.nested]
    nested = [column for column in file.columns if column.nested]
    arrays = [array(column.type, [row.get(column.id) for row in file.rows]) for column in top]
    fields = [arrow_field(column, file.has_ids) for column in top]
    if nested:
        parts = [arrow_field(column, file.has_ids) for column in nested]
        values = [array(column.type, [row.get(column.id) for row in file.rows]) for column in nested]
        mask = pa.array([STRUCT in row for row in file.rows], pa.bool_())
        arrays.append(pa.StructArray.from_arrays(values, fields=parts, mask=mask))
        fields.append(with_id(pa.field("s", pa.struct(parts)), file.struct_id, file.has_ids))
    pq.write_table(pa.Table.from_arrays(arrays, schema=pa.schema(fields)), path, row_group_size=2)
    size = path.stat().st_size
    return new_file(
        file_id, f"file://{path}", file.sequence_number, equality_ids=file.equality_ids, file_size_in_bytes=size
    )


def arrow_field(column: Stored, has_ids: bool) -> pa.Field:
    return with_id(pa.field(column.name, STORED[column.type][0]), column.id, has_ids)


def with_id(arrow: pa.Field, field_id: int, has_ids: bool = True) -> pa.Field:
    return arrow.with_metadata({"PARQUET:field_id": str(field_id)}) if has_ids else arrow


def array(kind: str, values: Sequence[Any]) -> pa.Array:
    """Values as `iceberg.values` has them, in Arrow."""
    arrow = STORED[kind][0]
    if kind in _INTEGERS:
        return pa.array(values, _INTEGERS[kind]).cast(arrow)
    if kind == "uuid":
        return pa.ExtensionArray.from_storage(arrow, pa.array([v and v.bytes for v in values], pa.binary(16)))
    return pa.array(values, arrow)


def deleted(case: Case) -> list[list[set[int]]]:
    """What the specification says: the deleted positions of each data file, by delete file."""
    return [[_deleted(case, delete, data) for data in case.data] for delete in case.deletes]


def _deleted(case: Case, delete: File, data: File) -> set[int]:
    if data.sequence_number >= delete.sequence_number:
        return set()
    columns = {column.id: column for column in case.columns}
    keys = {tuple(_value(columns[i], delete, row) for i in delete.equality_ids) for row in delete.rows}
    rows = (tuple(_value(columns[i], data, row) for i in delete.equality_ids) for row in data.rows)
    return {position for position, row in enumerate(rows) if row in keys}


def _value(column: Column, file: File, row: Row) -> Any:
    """What a reader of the table finds in a row, as a value that is equal where Java's is."""
    stored = next((each for each in file.columns if each.id == column.id), None)
    if column.nested and (STRUCT in row or not any(each.nested for each in file.columns)):
        return None
    value = column.default if stored is None else row.get(column.id)
    if value is not None and stored and stored.type.endswith("date") and column.type in _DAY:
        value *= _DAY[column.type]
    if isinstance(value, float):
        return "nan" if value != value else struct.pack(">d", value)
    return value


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A table, up to three data files in any state of the schema's evolution, up to three delete files."""
    kinds = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=3))
    columns = tuple(draw(_column(number + 1, kind)) for number, kind in enumerate(kinds))
    data = draw(st.lists(_data_file(columns), min_size=1, max_size=3))
    deletes = draw(st.lists(_delete_file(columns, data), min_size=1, max_size=3))
    return Case(columns, tuple(data), tuple(deletes))


def _column(field_id: int, kind: str) -> st.SearchStrategy[Column]:
    finite = [value for value in TYPES[kind][1] if not (isinstance(value, float) and value - value != 0)]
    default = st.none() | st.sampled_from(finite)
    return st.builds(
        Column, st.just(field_id), st.just(f"Col {field_id}"), st.just(kind), nested=st.booleans(), default=default
    )


@st.composite
def _data_file(draw: st.DrawFn, columns: Sequence[Column]) -> File:
    has_ids = draw(st.booleans())
    stored = [draw(_stored(column, has_ids)) for column in columns if draw(st.integers(0, 3))]
    extra = Stored(50, "extra", "int", nested=False)
    ordered = tuple(draw(st.permutations([*stored, extra])))
    rows = draw(st.lists(_row(ordered), max_size=6))
    return File(ordered, tuple(rows), draw(st.integers(1, 3)), has_ids)


@st.composite
def _delete_file(draw: st.DrawFn, columns: Sequence[Column], data: Sequence[File]) -> File:
    """Rows of its own, and rows that some data file has, so that something is deleted."""
    ids = draw(st.lists(st.sampled_from([column.id for column in columns]), min_size=1, unique=True))
    stored = tuple(draw(_stored(column, True)) for column in draw(st.permutations(columns)))
    rows = draw(st.lists(_row(stored), max_size=4))
    types = {column.id: column.type for column in stored}
    for row in draw(st.lists(st.sampled_from([row for file in data for row in file.rows] or [{}]), max_size=3)):
        rows.append({i: row[i] if row.get(i) in STORED[types[i]][1] else None for i in types} | dict(_null_struct(row)))
    return File(stored, tuple(rows), draw(st.integers(1, 4)), equality_ids=tuple(ids))


@st.composite
def _stored(draw: st.DrawFn, column: Column, has_ids: bool) -> Stored:
    name = draw(st.sampled_from([column.name, f"old {column.id}"])) if has_ids else column.name
    kind = draw(st.sampled_from([column.type, NARROWER.get(column.type, column.type)]))
    return Stored(column.id, name, kind, column.nested)


@st.composite
def _row(draw: st.DrawFn, columns: Sequence[Stored]) -> Row:
    values = {column.id: draw(st.none() | st.sampled_from(STORED[column.type][1])) for column in columns}
    return values | (dict(_null_struct({STRUCT: None})) if draw(st.integers(0, 3)) == 0 else {})


def _null_struct(row: Row) -> Row:
    return {STRUCT: None} if STRUCT in row else {}


@dataclass(slots=True)
class Written:
    """The case as files and rows: data files have the ids 1, 2, …, delete files 101, 102, …"""

    table: TableMetadata
    data: list[FileRow] = field(default_factory=list)
    deletes: list[FileRow] = field(default_factory=list)


def write_case(case: Case, folder: Path) -> Written:
    return Written(
        table_metadata(f"file://{folder}", case.columns),
        [write(file, folder / "data", number) for number, file in enumerate(case.data, 1)],
        [write(file, folder / "data", number) for number, file in enumerate(case.deletes, 101)],
    )
