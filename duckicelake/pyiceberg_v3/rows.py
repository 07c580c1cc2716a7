"""Write rows of version 3: defaults, row lineage, and its inheritance by copied and upserted rows."""

from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from copy import copy
from itertools import chain, count
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyiceberg.io.pyarrow
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, FileScanTask, Transaction, UpsertResult
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.upsert_util import create_match_filter, has_duplicate_rows
from pyiceberg.types import LongType, NestedField, UnknownType

from duckicelake.pyiceberg_v3 import manifest_io
from duckicelake.pyiceberg_v3.installation import Patch, patch
from duckicelake.pyiceberg_v3.manifest_io import V3

ROW_ID_FIELD: Final = NestedField(2147483540, "_row_id", LongType(), required=False)
LAST_UPDATED_FIELD: Final = NestedField(2147483539, "_last_updated_sequence_number", LongType(), required=False)
LINEAGE_FIELDS: Final = (ROW_ID_FIELD, LAST_UPDATED_FIELD)
_PLACE_COLUMN: Final = "__place"
_existing: ContextVar[pa.Table | None] = ContextVar("existing", default=None)
"""During an upsert: the row ids of the table's rows by their keys."""


def replace_schema_fields(schema: Schema, fields: Sequence[NestedField]) -> Schema:
    """Copy a schema with other fields and the same id."""
    return Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)


def inherit_lineage(
    rows: pa.Table, positions: pa.Array, first_row_id: int | None, sequence_number: int | None
) -> pa.Table:
    """Fill missing row ids and sequence numbers (spec, Row Lineage Assignment); drop columns without any value.

    positions: of the rows in their file. first_row_id: the file's, None if it isn't assigned yet.
    """
    if first_row_id is not None:
        rows = fill_column(rows, ROW_ID_FIELD.name, pc.add(positions, first_row_id))
        rows = fill_column(rows, LAST_UPDATED_FIELD.name, pa.scalar(sequence_number, pa.int64()))
    return rows.drop_columns([field.name for field in LINEAGE_FIELDS if rows[field.name].null_count == len(rows)])


def fill_column(rows: pa.Table, name: str, values: pa.Array | pa.Scalar) -> pa.Table:
    return rows.set_column(rows.column_names.index(name), name, pc.coalesce(rows[name], values))


class RewrittenFile(FileScanTask):
    """A scan task for a file that is rewritten."""

    is_committed: bool

    def __init__(self, task: FileScanTask, last_sequence_number: int) -> None:
        super().__init__(task.file, task.delete_files, task.residual)
        self.is_committed = (manifest_io.get_data_sequence_number(task.file) or 0) <= last_sequence_number


class RewriteScan(DataScan):
    """A scan for the files that a transaction rewrites."""

    last_sequence_number: int
    """The last one from the catalog. Files of this transaction have provisional ones."""

    def update(self, **overrides: Any) -> "RewriteScan":
        updated = super().update(**overrides)
        updated.last_sequence_number = self.last_sequence_number
        return updated

    def plan_files(self) -> list[FileScanTask]:
        return [RewrittenFile(task, self.last_sequence_number) for task in super().plan_files()]


@patch(Transaction, "_scan")
def _patch_scan(original: Callable[..., DataScan]) -> Any:
    """PyIceberg reads rows to copy like any others."""

    def scan(self: Transaction, *arguments: Any, **named: Any) -> DataScan:
        plain = original(self, *arguments, **named)
        if plain.table_metadata.format_version < V3:
            return plain
        rewrite = RewriteScan(plain.table_metadata, plain.io, plain.row_filter, case_sensitive=plain.case_sensitive)
        rewrite.last_sequence_number = read_last_sequence_number(self._table.metadata)
        return rewrite

    return scan


def read_last_sequence_number(metadata: TableMetadata) -> int:
    return 0 if isinstance(metadata, TableMetadataV1) else metadata.last_sequence_number


@patch(ArrowScan, "to_table")
def _patch_to_table(original: Callable[[ArrowScan, Iterable[FileScanTask]], pa.Table]) -> Any:
    """PyIceberg has no lineage columns, so a copied row would become a new one."""

    def to_table(self: ArrowScan, tasks: Iterable[FileScanTask]) -> pa.Table:
        match tasks:
            case [RewrittenFile() as task]:
                widened = copy(self)
                schema = self._projected_schema
                widened._projected_schema = replace_schema_fields(schema, [*schema.fields, *LINEAGE_FIELDS])
                return add_lineage(original(widened, tasks), task, self)
            case _:
                return original(self, tasks)

    return to_table


def add_lineage(rows: pa.Table, task: RewrittenFile, scan: ArrowScan) -> pa.Table:
    """Add lineage columns to a file's rows. Rows of this transaction get their ids at the commit."""
    positions = list_live_positions(task, scan)
    if len(positions) != len(rows):
        raise ValueError(f"{task.file.file_path} has {len(rows)} live rows, but its manifest says {len(positions)}")
    first_row_id = manifest_io.get_first_row_id(task.file) if task.is_committed else None
    return inherit_lineage(rows, positions, first_row_id, manifest_io.get_data_sequence_number(task.file))


def list_live_positions(task: FileScanTask, scan: ArrowScan) -> pa.Array:
    deletes = pyiceberg.io.pyarrow._read_all_delete_files(scan._io, [task]).get(task.file.file_path)
    if not deletes:
        return pa.array(range(task.file.record_count), pa.int64())
    return pyiceberg.io.pyarrow._combine_positional_deletes(deletes, 0, task.file.record_count)


COPY_PATCHES: tuple[Patch, ...] = (_patch_scan, _patch_to_table)


@patch(Transaction, "upsert")
def _patch_upsert(original: Callable[..., UpsertResult]) -> Any:
    """PyIceberg deletes rows that an upsert changes, and appends them as new ones."""

    def upsert(
        self: Transaction,
        df: pa.Table,
        join_cols: list[str] | None = None,
        when_matched_update_all: bool = True,
        when_not_matched_insert_all: bool = True,
        case_sensitive: bool = True,
        branch: str | None = MAIN_BRANCH,
        **named: Any,
    ) -> UpsertResult:
        options = when_matched_update_all, when_not_matched_insert_all, case_sensitive, branch
        keys = list_identifier_columns(self) if join_cols is None else join_cols
        if self.table_metadata.format_version < V3 or not keys or not when_matched_update_all:
            return original(self, df, join_cols, *options, **named)
        token = _existing.set(match_row_ids(self, df, keys, case_sensitive, branch))
        try:
            return original(self, df, join_cols, *options, **named)
        finally:
            _existing.reset(token)

    return upsert


def list_identifier_columns(transaction: Transaction) -> list[str]:
    schema = transaction.table_metadata.schema()
    names = (schema.find_column_name(field_id) for field_id in schema.identifier_field_ids)
    return [name for name in names if name is not None]


def match_row_ids(
    transaction: Transaction, df: pa.Table, keys: list[str], case_sensitive: bool, branch: str | None
) -> pa.Table:
    """Return the keys of `df` that the table has, with their row ids. Raises ValueError for duplicate keys."""
    rows = read_key_rows(transaction, df, keys, case_sensitive, branch)
    matched = rows.join(df.select(keys).cast(rows.select(keys).schema), keys, join_type="left semi")
    if has_duplicate_rows(matched, keys):
        raise ValueError("Target table has duplicate rows, aborting upsert")
    return matched


def read_key_rows(
    transaction: Transaction, df: pa.Table, keys: list[str], case_sensitive: bool, branch: str | None
) -> pa.Table:
    """Read keys and row ids of all rows in files that may have a key of `df`."""
    metadata = transaction.table_metadata
    scan = transaction._scan(create_match_filter(df, keys), case_sensitive)
    scan = scan.use_ref(branch) if branch in metadata.refs else scan
    schema = metadata.schema().select(*keys, case_sensitive=case_sensitive)
    reader = ArrowScan(metadata, scan.io, schema, AlwaysTrue(), case_sensitive)
    empty = schema_to_pyarrow(
        replace_schema_fields(schema, [*schema.fields, ROW_ID_FIELD]), include_field_ids=False
    ).empty_table()
    parts = [reader.to_table([task]) for task in scan.plan_files()]
    return pa.concat_tables([empty, *parts], promote_options="permissive").select([*keys, ROW_ID_FIELD.name])


def keep_row_ids(df: pa.Table) -> pa.Table:
    """Add the ids of the replaced rows to rows of an upsert; return other rows unchanged."""
    existing = _existing.get()
    if existing is None or ROW_ID_FIELD.name in df.column_names:
        return df
    keys = [name for name in existing.column_names if name != ROW_ID_FIELD.name]
    wanted = df.select(keys).cast(existing.select(keys).schema).append_column(_PLACE_COLUMN, pa.array(range(len(df))))
    row_ids = wanted.join(existing, keys, join_type="left outer").sort_by(_PLACE_COLUMN)[ROW_ID_FIELD.name]
    return df if row_ids.null_count == len(df) else df.append_column(ROW_ID_FIELD.name, row_ids)


UPSERT_PATCHES: tuple[Patch, ...] = (_patch_upsert,)


@patch(pyiceberg.io.pyarrow, "_dataframe_to_data_files")
def _patch_data_files(original: Callable[..., Iterable[DataFile]]) -> Any:
    """PyIceberg stores exactly the columns of the table's schema, null for those that rows lack."""

    def dataframe_to_data_files(
        table_metadata: TableMetadata,
        df: pa.Table | pa.RecordBatchReader,
        io: FileIO,
        write_uuid: UUID | None = None,
        counter: "count[int] | None" = None,
    ) -> Iterable[DataFile]:
        if table_metadata.format_version < V3:
            return original(table_metadata, df, io, write_uuid, counter)
        counter = count(0) if counter is None else counter
        parts = split_stored_rows(df, table_metadata.schema())
        written = (
            original(build_storing_metadata(table_metadata, part.schema), part, io, write_uuid, counter)
            for part in parts
        )
        return chain.from_iterable(written)

    return dataframe_to_data_files


def split_stored_rows(
    df: pa.Table | pa.RecordBatchReader, schema: Schema
) -> Iterable[pa.Table] | Iterable[pa.RecordBatchReader]:
    """Divide rows to store into those with row ids and those without.

    The specification allows both in one file, but DuckLake reads a missing id of such a file as null.
    """
    if not isinstance(df, pa.Table):
        return [build_stored_stream(df, schema)]
    rows = build_stored_rows(keep_row_ids(df), schema)
    if ROW_ID_FIELD not in find_lineage_fields(rows.schema, schema):
        return [rows]
    is_known = pc.is_valid(rows[ROW_ID_FIELD.name])
    parts = rows.filter(is_known), rows.filter(pc.invert(is_known)).drop_columns([ROW_ID_FIELD.name])
    return [part for part in parts if len(part)]


def build_stored_rows(rows: pa.Table, schema: Schema) -> pa.Table:
    """Fill columns that rows lack by their `write-default` (spec, Default values); drop columns of type unknown."""
    unknown = [field.name for field in schema.fields if is_unknown(field) and field.name in rows.column_names]
    rows = rows.drop_columns(unknown)
    for field in schema.fields:
        if field.write_default is not None and field.name not in rows.column_names:
            rows = rows.append_column(field.name, repeat_default(field, len(rows)))
    return rows


def build_stored_stream(reader: pa.RecordBatchReader, schema: Schema) -> pa.RecordBatchReader:
    tables = (build_stored_rows(pa.Table.from_batches([batch]), schema) for batch in reader)
    batches = (batch for table in tables for batch in table.to_batches())
    return pa.RecordBatchReader.from_batches(build_stored_rows(reader.schema.empty_table(), schema).schema, batches)


def build_storing_metadata(metadata: TableMetadata, columns: pa.Schema) -> TableMetadata:
    """Build metadata whose current schema makes PyIceberg store these columns."""
    schema = metadata.schema()
    known = [field for field in schema.fields if not is_unknown(field)]
    current = replace_schema_fields(schema, known + find_lineage_fields(columns, schema))
    schemas = [current if other.schema_id == current.schema_id else other for other in metadata.schemas]
    return metadata.model_copy(update={"schemas": schemas})


def find_lineage_fields(columns: pa.Schema, schema: Schema) -> list[NestedField]:
    """Return the lineage fields among the columns, without a table's own columns of such names."""
    return [field for field in LINEAGE_FIELDS if field.name in columns.names and field.name not in schema.column_names]


def is_unknown(field: NestedField) -> bool:
    return isinstance(field.field_type, UnknownType)


def repeat_default(field: NestedField, times: int) -> pa.Array:
    kind = schema_to_pyarrow(field.field_type, include_field_ids=False)
    return pa.repeat(pa.scalar(field.write_default, kind), times)


STORE_PATCHES: tuple[Patch, ...] = (_patch_data_files,)
