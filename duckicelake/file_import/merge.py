"""Merge loaded rows into a table by keys: files with such keys are written anew, and their rows keep their row ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual, LessThanOrEqual
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, DecimalType, IcebergType, IntegerType, LongType, NestedField, StringType

from duckicelake.errors import BadColumnError
from duckicelake.file_import.column_types import quote_name, to_duckdb_type
from duckicelake.file_import.data_files import translate_errors
from duckicelake.pipeline.destination import LoadRequest
from duckicelake.pipeline.epoch import INSERTED_KEY, UPDATED_KEY
from duckicelake.pyiceberg_v3.manifest_io import get_data_sequence_number, get_first_row_id
from duckicelake.pyiceberg_v3.rows import (
    LAST_UPDATED_FIELD,
    LINEAGE_FIELDS,
    ROW_ID_FIELD,
    build_storing_metadata,
    inherit_lineage,
    list_live_positions,
    replace_schema_fields,
)

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Transaction
    from pyiceberg.table.metadata import TableMetadata

_SOURCE: Final = "merge_source"
_MATCHES: Final = "merge_matches"
_V3: Final = 3
_AT_LEAST: Final[Any] = GreaterThanOrEqual
_AT_MOST: Final[Any] = LessThanOrEqual
_RANGED_TYPES: Final = IntegerType | LongType | DateType | StringType | DecimalType


@dataclass(frozen=True, slots=True)
class MergeColumns:
    """The columns of a merge, in the table's spelling. written: those that the files have."""

    keys: tuple[str, ...]
    written: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Rows to write as files. replaced: the files that they replace.

    Attributes:
        parts: queries, and the metadata of the table as it stores their rows.
        count: of the rows of all parts.
        summary: of the snapshot.

    """

    parts: Sequence[tuple[str, TableMetadata]]
    count: int
    replaced: Sequence[DataFile] = ()
    summary: Mapping[str, str] = field(default_factory=dict)


def find_merge_columns(
    request: LoadRequest, fields: Sequence[NestedField], shapes: Sequence[Mapping[str, IcebergType]]
) -> MergeColumns:
    """Find the columns of a merge. shapes: the columns of each group of files.

    Raises BadColumnError unless all files have the same columns, the keys among them.
    """
    if request.mode != "merge":
        return MergeColumns((), ())
    here = {field.name.lower(): field for field in fields}
    come = [frozenset(name.lower() for name in shape) for shape in shapes]
    uneven = frozenset[str]().union(*come) - frozenset(here).intersection(*come)
    if uneven:
        names = ", ".join(field.name for field in fields if field.name.lower() in uneven)
        raise BadColumnError(
            f"Only some of the files have {names}, so a merge can't know what the others leave as it is: "
            "merge files with other columns in runs of their own"
        )
    for key in request.keys:
        field = here.get(key.lower())
        if field is None or any(key.lower() not in shape for shape in come):
            where = str(request.target) if field is None else "a file"
            raise BadColumnError(f"--key {key}: {where} has no such column, but {', '.join(here)}")
        if not field.field_type.is_primitive:
            raise BadColumnError(f"--key {key}: {field.field_type} is no type of a key; expected a simple type")
    written = come[0] if come else frozenset()
    return MergeColumns(
        tuple(here[key.lower()].name for key in request.keys),
        tuple(field.name for field in fields if field.name.lower() in written),
    )


def stage_merge(
    duck: DuckDBPyConnection, transaction: Transaction, rows: str, columns: MergeColumns, *, is_new: bool
) -> StagedRows:
    """Match rows with those of the table; return what is to be written. rows: a query, no two of the same key."""
    metadata = transaction.table_metadata
    duck.execute(f"CREATE OR REPLACE TEMP TABLE {_SOURCE} AS {rows}")
    duck.execute(f"CREATE OR REPLACE TEMP TABLE {_MATCHES} (place BIGINT)")
    with translate_errors():
        replaced = [] if is_new else list(_find_matched_files(duck, transaction, columns.keys))
    updated = _count(duck, f"(SELECT DISTINCT place FROM {_MATCHES})")
    inserted = _count(duck, _SOURCE) - updated
    stored = build_storing_metadata(metadata, schema_to_pyarrow(Schema(*LINEAGE_FIELDS)))
    has_lineage = len(stored.schema().fields) == len(metadata.schema().fields) + len(LINEAGE_FIELDS)
    with_ids = [one for one in replaced if has_lineage and metadata.format_version >= _V3 and _has_ids(one.task)]
    without = [one for one in replaced if one not in with_ids]
    names = [field.name for field in metadata.schema().fields]
    fresh = f"SELECT {', '.join(map(quote_name, names))} FROM {_SOURCE} WHERE rowid NOT IN (FROM {_MATCHES})"
    parts = []
    if with_ids:
        duck.register("merge_old_with_ids", _open_rows(transaction, with_ids, metadata.schema(), has_ids=True))
        parts.append((_build_merged("merge_old_with_ids", metadata.schema(), columns, has_ids=True), stored))
    if without:
        duck.register("merge_old", _open_rows(transaction, without, metadata.schema(), has_ids=False))
        fresh = f"{_build_merged('merge_old', metadata.schema(), columns, has_ids=False)} UNION ALL {fresh}"
    if without or inserted or not parts:
        parts.append((fresh, metadata))
    return StagedRows(
        parts,
        inserted + sum(len(one.positions) for one in replaced),
        [one.task.file for one in replaced],
        {INSERTED_KEY: str(inserted), UPDATED_KEY: str(updated)},
    )


@dataclass(frozen=True, slots=True, eq=False)
class _MatchedFile:
    """A file of the table with rows of the keys. positions: of its rows that are not deleted."""

    task: FileScanTask
    positions: pa.Array


def _find_matched_files(
    duck: DuckDBPyConnection, transaction: Transaction, keys: Sequence[str]
) -> Iterator[_MatchedFile]:
    """Read the keys of each file that may have some, and note which rows of the source match."""
    metadata = transaction.table_metadata
    wanted = metadata.schema().select(*keys)
    scan = transaction._scan(_build_filter(duck, metadata.schema(), keys))  # noqa: SLF001 - as its own upsert reads
    for task in scan.plan_files():
        one = _MatchedFile(task, list_live_positions(task, ArrowScan(metadata, scan.io, wanted, AlwaysTrue())))
        duck.register("merge_keys", _open_rows(transaction, [one], wanted, has_ids=False))
        added = duck.execute(
            f"INSERT INTO {_MATCHES} SELECT DISTINCT s.rowid FROM merge_keys t JOIN {_SOURCE} s "
            f"ON {_build_condition(wanted, keys)}"
        ).fetchone()
        if added and added[0]:
            yield one


def _build_filter(duck: DuckDBPyConnection, schema: Schema, keys: Sequence[str]) -> BooleanExpression:
    """Build a filter by the least and greatest keys, for files whose bounds exclude them."""
    found: BooleanExpression = AlwaysTrue()
    for key in keys:
        if isinstance(schema.find_field(key).field_type, _RANGED_TYPES):
            bounds = duck.execute(f"SELECT min({quote_name(key)}), max({quote_name(key)}) FROM {_SOURCE}").fetchone()
            if bounds and bounds[0] is not None:
                found = And(found, _AT_LEAST(key, bounds[0]), _AT_MOST(key, bounds[1]))
    return found


def _build_condition(schema: Schema, keys: Sequence[str]) -> str:
    return " AND ".join(
        f"CAST(t.{quote_name(key)} AS {to_duckdb_type(schema.find_type(key))}) = s.{quote_name(key)}" for key in keys
    )


def _build_merged(old: str, schema: Schema, columns: MergeColumns, *, has_ids: bool) -> str:
    """Build the query for old rows, with the values of matching rows. Columns that no file has stay as they are."""

    def choose(field: NestedField) -> str:
        name = quote_name(field.name)
        value = f"CAST(t.{name} AS {to_duckdb_type(field.field_type)})"
        return f"CASE WHEN s.rowid IS NULL THEN {value} ELSE s.{name} END" if field.name in columns.written else value

    values = [f"{choose(field)} AS {quote_name(field.name)}" for field in schema.fields]
    if has_ids:
        last = f"t.{LAST_UPDATED_FIELD.name}"
        values += [
            f"t.{ROW_ID_FIELD.name} AS {ROW_ID_FIELD.name}",
            f"CASE WHEN s.rowid IS NULL THEN {last} END AS {LAST_UPDATED_FIELD.name}",
        ]
    return f"SELECT {', '.join(values)} FROM {old} t LEFT JOIN {_SOURCE} s ON {_build_condition(schema, columns.keys)}"


def _has_ids(task: FileScanTask) -> bool:
    return get_first_row_id(task.file) is not None


def _open_rows(
    transaction: Transaction, files: Sequence[_MatchedFile], schema: Schema, *, has_ids: bool
) -> pa.RecordBatchReader:
    """Open the rows of files that are not deleted as a stream, file after file."""
    wanted = replace_schema_fields(schema, [*schema.fields, *LINEAGE_FIELDS]) if has_ids else schema
    form = schema_to_pyarrow(wanted, include_field_ids=False)

    def read() -> Iterator[pa.RecordBatch]:
        scan = ArrowScan(
            transaction.table_metadata,
            transaction._table.io,  # noqa: SLF001 - PyIceberg's own transactions offer no other way to it
            wanted,
            AlwaysTrue(),
        )
        for one in files:
            first = 0
            for batch in _stream_batches(scan, one.task):
                rows = pa.Table.from_batches([batch])
                if has_ids:
                    rows = _fill_ids(rows, one, first)
                first += len(batch)
                yield from rows.cast(form).to_batches()

    return pa.RecordBatchReader.from_batches(form, read())


def _fill_ids(rows: pa.Table, one: _MatchedFile, first: int) -> pa.Table:
    positions = one.positions.slice(first, len(rows))
    return inherit_lineage(rows, positions, get_first_row_id(one.task.file), get_data_sequence_number(one.task.file))


def _stream_batches(scan: ArrowScan, task: FileScanTask) -> Iterator[pa.RecordBatch]:
    """Read a file in batches. `ArrowScan.to_record_batches` would have all of its rows in memory at once."""
    from pyiceberg.io.pyarrow import _read_all_delete_files

    deletes: dict[str, Any] = _read_all_delete_files(scan._io, [task])  # noqa: SLF001
    yield from scan._record_batches_from_scan_tasks_and_deletes([task], deletes)  # noqa: SLF001


def _count(duck: DuckDBPyConnection, rows: str) -> int:
    found = duck.execute(f"SELECT count(*) FROM {rows}").fetchone()
    return int(found[0]) if found else 0
