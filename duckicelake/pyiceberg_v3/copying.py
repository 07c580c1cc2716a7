"""Copy-on-write: rows that are written again, because others of their file go, keep their lineage."""

from collections.abc import Callable, Iterable
from copy import copy
from typing import Any

import pyarrow as pa
import pyiceberg.io.pyarrow
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import DataScan, FileScanTask, Transaction
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1

from duckicelake.pyiceberg_v3 import lineage, records
from duckicelake.pyiceberg_v3.patching import Patch, patch
from duckicelake.pyiceberg_v3.records import V3


class RewrittenFile(FileScanTask):
    """A file that is read to be written again."""

    is_committed: bool

    def __init__(self, task: FileScanTask, last_sequence_number: int) -> None:
        super().__init__(task.file, task.delete_files, task.residual)
        self.is_committed = (records.data_sequence_number(task.file) or 0) <= last_sequence_number


class RewriteScan(DataScan):
    """A scan for the files that a transaction rewrites."""

    last_sequence_number: int
    """The last one that the catalog gave; what the transaction itself adds has provisional ones."""

    def update(self, **overrides: Any) -> "RewriteScan":
        updated = super().update(**overrides)
        updated.last_sequence_number = self.last_sequence_number
        return updated

    def plan_files(self) -> list[FileScanTask]:
        return [RewrittenFile(task, self.last_sequence_number) for task in super().plan_files()]


@patch(Transaction, "_scan")
def _scan(original: Callable[..., DataScan]) -> Any:
    """PyIceberg reads rows that it will copy as it reads any others."""

    def scan(self: Transaction, *arguments: Any, **named: Any) -> DataScan:
        plain = original(self, *arguments, **named)
        if plain.table_metadata.format_version < V3:
            return plain
        rewrite = RewriteScan(plain.table_metadata, plain.io, plain.row_filter, case_sensitive=plain.case_sensitive)
        rewrite.last_sequence_number = last_sequence_number(self._table.metadata)
        return rewrite

    return scan


def last_sequence_number(metadata: TableMetadata) -> int:
    return 0 if isinstance(metadata, TableMetadataV1) else metadata.last_sequence_number


@patch(ArrowScan, "to_table")
def _to_table(original: Callable[[ArrowScan, Iterable[FileScanTask]], pa.Table]) -> Any:
    """PyIceberg knows no lineage columns, so a copied row would be a new one."""

    def to_table(self: ArrowScan, tasks: Iterable[FileScanTask]) -> pa.Table:
        match tasks:
            case [RewrittenFile() as task]:
                widened = copy(self)
                schema = self._projected_schema
                widened._projected_schema = lineage.with_fields(schema, [*schema.fields, *lineage.FIELDS])
                return with_lineage(original(widened, tasks), task, self)
            case _:
                return original(self, tasks)

    return to_table


def with_lineage(rows: pa.Table, task: RewrittenFile, scan: ArrowScan) -> pa.Table:
    """The rows of a file as they are known outside: those of this transaction aren't yet, and get numbers later."""
    positions = live_positions(task, scan)
    if len(positions) != len(rows):
        raise ValueError(f"{task.file.file_path} has {len(rows)} live rows, its manifest says {len(positions)}")
    first_row_id = records.first_row_id(task.file) if task.is_committed else None
    return lineage.inherit(rows, positions, first_row_id, records.data_sequence_number(task.file))


def live_positions(task: FileScanTask, scan: ArrowScan) -> pa.Array:
    deletes = pyiceberg.io.pyarrow._read_all_delete_files(scan._io, [task]).get(task.file.file_path)
    if not deletes:
        return pa.array(range(task.file.record_count), pa.int64())
    return pyiceberg.io.pyarrow._combine_positional_deletes(deletes, 0, task.file.record_count)


PATCHES: tuple[Patch, ...] = (_scan, _to_table)
