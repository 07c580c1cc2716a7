"""Read inlined rows of a table, and replace them with data files in one transaction."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from psycopg import Cursor, sql

from duckicelake.errors import DamagedTableError, NoSuchTableError, format_count
from duckicelake.lake.conflicts import StaleBaseError
from duckicelake.lake.ducklake import inlined_rows, native
from duckicelake.lake.ducklake.data_files import build_data_file_rows
from duckicelake.lake.ducklake.roles import act_as_owner
from duckicelake.lake.ducklake.snapshots import (
    SnapshotAllocation,
    begin_snapshot,
    record_changes,
    try_session_lock,
)
from duckicelake.lake.formats import INLINED_ALIAS
from duckicelake.lake.model import Column, ColumnStats, InlinedKey, LakeFile, TableDefinition, find_children
from duckicelake.lake.state import PackedStats
from duckicelake.postgres.pipeline import execute_writes, json_param
from duckicelake.postgres.queries import Row, load_queries

_SQL = load_queries("lake", "flush")
_LEASE_KEY: Final = 0x666C7573  # "flus"; a key of two parts, the other is the table
_REPLACEMENT_KINDS: Final = frozenset({"merge_adjacent", "rewrite_delete", "deleted_from_table"})
"""What makes other files, or delete files, of those that inlined deletes are about."""


@dataclass(frozen=True, slots=True)
class CopiedTable:
    """A table of inlined rows, copied to a CSV file: row id, begin, end, then the columns' values.

    longest: bytes of the longest row.
    """

    name: str
    columns: tuple[Column, ...]
    rows: int
    copy: Path
    longest: int


@dataclass(frozen=True, slots=True)
class InlinedFileDeletes:
    """Positions of a data file with the snapshots that deleted them, which only Postgres has; and its delete file."""

    data_file_id: int
    path: str
    positions: Mapping[int, int]
    before: LakeFile | None


@dataclass(frozen=True, slots=True)
class FlushSource:
    """What a table has inlined at a snapshot, as far as it can be flushed. prefix: of its files' relative paths."""

    table_id: int
    at: int
    definition: TableDefinition
    prefix: str
    has_folders: bool
    tables: tuple[CopiedTable, ...]
    deletes: tuple[InlinedFileDeletes, ...]


@dataclass(frozen=True, slots=True)
class FlushedFile:
    """A data file of rows that were inlined; `path` is relative. deletes: the delete file of rows that had ended."""

    inlined_table: str
    path: str
    begin_snapshot: int
    partial_max: int
    record_count: int
    file_size_bytes: int
    footer_size: int
    row_id_start: int
    row_group_count: int
    stats: Sequence[ColumnStats]
    partition_values: Sequence[str | None] = ()
    deletes: "FlushedDeletes | None" = None


@dataclass(frozen=True, slots=True)
class FlushedDeletes:
    """A delete file; `path` is relative."""

    path: str
    begin_snapshot: int
    partial_max: int
    delete_count: int
    file_size_bytes: int
    footer_size: int
    row_group_count: int


FindPlaces = Callable[[str, Sequence[InlinedKey]], Sequence[tuple[str, int]]]
"""Finds the path and position in its new file for every row of an inlined table."""


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """What is to be written. deletes: in the order of `source.deletes`."""

    source: FlushSource
    files: Sequence[FlushedFile]
    deletes: Sequence[FlushedDeletes]
    places: FindPlaces

    @property
    def file_ids(self) -> int:
        """How many ids it takes."""
        return len(self.files) + len(self.deletes) + sum(file.deletes is not None for file in self.files)


@contextmanager
def hold_flush_lease(cursor: Cursor[Row], table_id: int) -> Iterator[bool]:
    """Try to take the lease to flush the table for this session, without a transaction; yield whether it is taken."""
    parameters = {"key": _LEASE_KEY, "table_id": table_id % 2**31}
    with try_session_lock(cursor, _SQL.keep_lease, _SQL.leave_lease, parameters) as is_held:
        yield is_held


def read_flush_source(cursor: Cursor[Row], table_id: int, folder: Path) -> FlushSource:
    """Read what is inlined now, and copy the rows to files in the folder. Raises NoSuchTableError, DamagedTableError.

    The transaction must see one state.
    """
    at = native.read_newest_snapshot(cursor)
    definition = native.read_definition(cursor, table_id, at)
    if definition is None:
        raise NoSuchTableError(f"Table {table_id} does not exist any more")
    prefix = native.read_path_prefix(cursor, table_id)
    copied = (
        _copy_table(cursor, table_id, name, since, at, folder)
        for name, since in inlined_rows.read_inlined_tables(cursor, table_id).items()
    )
    option = cursor.execute(_SQL.folders, {"table_id": table_id}).fetchone()
    return FlushSource(
        table_id=table_id,
        at=at,
        definition=definition,
        prefix=prefix,
        has_folders=option is None or option[0].lower() != "false",
        tables=tuple(table for table in copied if table.rows),
        deletes=tuple(_read_file_deletes(cursor, table_id, at, prefix)),
    )


def _copy_table(cursor: Cursor[Row], table_id: int, name: str, since: int | None, at: int, folder: Path) -> CopiedTable:
    definition = None if since is None else native.read_definition(cursor, table_id, since)
    if definition is None:
        raise DamagedTableError(f"the columns of {name}, a table of its inlined rows, are unknown")
    top = find_children(definition.columns, None)
    copy = folder / f"{name}.csv"
    with copy.open("wb") as file:
        rows, longest = inlined_rows.copy_table(cursor, name, top, at, file)
    if rows:
        inlined_rows.check_decodable(name, definition.columns)
    return CopiedTable(name, definition.columns, rows, copy, longest)


def _read_file_deletes(cursor: Cursor[Row], table_id: int, at: int, prefix: str) -> Iterable[InlinedFileDeletes]:
    """Read inlined deletes by data file, without those older than the end of an earlier delete file.

    Those stay inlined: two delete files would hold at one time.
    """
    positions: dict[int, dict[int, int]] = {}
    for delete in inlined_rows.read_inlined_deletes(cursor, table_id, at):
        positions.setdefault(delete.data_file_id, {})[delete.position] = delete.begin_snapshot
    if not positions:
        return
    parameters = {"table_id": table_id, "data_file_ids": list(positions), "prefix": prefix}
    for data_file_id, path, *delete_file, ended in cursor.execute(_SQL.files_with_deletes, parameters).fetchall():
        found = positions[data_file_id]
        if ended is None or ended <= min(found.values()):
            yield InlinedFileDeletes(data_file_id, path, found, _build_delete_file(data_file_id, *delete_file))


def _build_delete_file(
    data_file_id: int, id_: int | None, begin: int, path: str, file_format: str, count: int, size: int
) -> LakeFile | None:
    return None if id_ is None else LakeFile(id_, data_file_id, begin, None, path, file_format, count, size)


def write_flush(cursor: Cursor[Row], flush: FlushPlan) -> int:
    """Write the snapshot that flushes. Raises StaleBaseError if its base was changed or flushed meanwhile.

    Raises NoSuchTableError if the table was dropped.
    """
    source, table_id = flush.source, flush.source.table_id
    snapshot = begin_snapshot(cursor, schema_change=False, file_ids=flush.file_ids)
    _check_source(cursor, source, snapshot.id - 1)
    cursor.execute(load_queries("lake", "write").wait_briefly)
    late = {table.name: _take_rows(cursor, table, source.at) for table in source.tables}
    _take_deletes(cursor, source)
    ids = _write_files(cursor, flush, snapshot)
    for name, ended in late.items():
        _inline_late_deletes(cursor, flush, name, ended, ids)
    kinds = ["inline_flush", *(["rewrite_delete"] if flush.deletes else [])]
    record_changes(cursor, snapshot.id, [f"{kind}:{table_id}" for kind in kinds])
    return snapshot.id


def _check_source(cursor: Cursor[Row], source: FlushSource, upto: int) -> None:
    kinds: AbstractSet[str] = frozenset().union(
        *(change.kinds for change in native.read_changes(cursor, source.table_id, source.at, upto))
    )
    if "dropped_table" in kinds:
        raise NoSuchTableError(f"Table {source.table_id} does not exist any more")
    in_the_way = kinds & (native.ROW_MOVING_KINDS | (_REPLACEMENT_KINDS if source.deletes else frozenset()))
    if in_the_way:
        raise StaleBaseError(f"table {source.table_id} has had {', '.join(sorted(in_the_way))}")
    if "altered_table" in kinds:
        _check_partitioning(cursor, source, upto)


def _check_partitioning(cursor: Cursor[Row], source: FlushSource, upto: int) -> None:
    """Raise StaleBaseError if the table is partitioned otherwise since: DuckDB would skip files by partition values."""
    definition = native.read_definition(cursor, source.table_id, upto)
    if definition is None or definition.partition_id != source.definition.partition_id:
        raise StaleBaseError(f"table {source.table_id} is partitioned otherwise by now")


def _take_rows(cursor: Cursor[Row], table: CopiedTable, at: int) -> dict[InlinedKey, int]:
    """Delete the rows that were read; those that ended since, with when."""
    name = sql.Identifier(table.name)
    late = sql.SQL(
        f"SELECT _dl_begin, _dl_row_id, _dl_end FROM {{}} {INLINED_ALIAS} "
        "WHERE _dl_begin <= %(at)s AND _dl_end > %(at)s"
    )
    taken = sql.SQL(
        f"DELETE FROM {{0}} WHERE ctid IN (SELECT ctid FROM {{0}} {INLINED_ALIAS} WHERE _dl_begin <= %(at)s)"
    )
    ended = cursor.execute(late.format(name), {"at": at}).fetchall()
    deleted = cursor.execute(taken.format(name), {"at": at})
    _check_count(deleted.rowcount, table.rows, table.name)
    return {InlinedKey(table.name, begin, row_id): end for begin, row_id, end in ended}


def _take_deletes(cursor: Cursor[Row], source: FlushSource) -> None:
    if source.deletes:
        name = f"ducklake_inlined_delete_{source.table_id}"
        query = sql.SQL("DELETE FROM {} WHERE begin_snapshot <= %(at)s AND file_id = ANY(%(files)s)")
        parameters = {"at": source.at, "files": [delete.data_file_id for delete in source.deletes]}
        deleted = cursor.execute(query.format(sql.Identifier(name)), parameters)
        _check_count(deleted.rowcount, sum(len(delete.positions) for delete in source.deletes), name)


def _check_count(found: int, wanted: int, name: str) -> None:
    if found != wanted:
        raise StaleBaseError(f"{name} has {format_count(found, 'row')} of the {wanted} that it had")


def _write_files(cursor: Cursor[Row], flush: FlushPlan, snapshot: SnapshotAllocation) -> dict[str, int]:
    """Register the new data files; return their ids by path."""
    source = flush.source
    ids = {file.path: snapshot.first_file_id + index for index, file in enumerate(flush.files)}
    rows = [_build_data_file(file, ids[file.path], source.definition.partition_id) for file in flush.files]
    values = [(ids[file.path], file.partition_values) for file in flush.files]
    stats = [(ids[file.path], PackedStats(file.stats)) for file in flush.files]
    execute_writes(cursor, [build_data_file_rows(source.table_id, rows, values, stats)])
    size = sum(file.file_size_bytes for file in flush.files)
    cursor.execute(_SQL.add_size, {"table_id": source.table_id, "size": size})
    with_values = {row.column_id for file in flush.files for row in file.stats if row.value_count}
    cursor.execute(_SQL.forget_unbounded, {"table_id": source.table_id, "column_ids": list(with_values)})
    for target in source.deletes:
        if target.before is not None:
            _remove_delete_file(cursor, target.before)
    targets = [(ids[file.path], file.deletes) for file in flush.files if file.deletes is not None]
    targets += [(delete.data_file_id, file) for delete, file in zip(source.deletes, flush.deletes, strict=True)]
    first = snapshot.first_file_id + len(ids)
    deletes = [
        {"delete_file_id": first + index, "data_file_id": target, **asdict(file)}
        for index, (target, file) in enumerate(targets)
    ]
    cursor.execute(_SQL.insert_delete_files, {"table_id": source.table_id, "files": json_param(deletes)})
    return ids


def _build_data_file(file: FlushedFile, data_file_id: int, partition_id: int | None) -> dict[str, object]:
    return {
        "data_file_id": data_file_id,
        "path": file.path,
        "path_is_relative": True,
        "begin_snapshot": file.begin_snapshot,
        "partial_max": file.partial_max,
        "record_count": file.record_count,
        "file_size_bytes": file.file_size_bytes,
        "footer_size": file.footer_size,
        "row_id_start": file.row_id_start,
        "row_group_count": file.row_group_count,
        "partition_id": partition_id if file.partition_values else None,
    }


def _remove_delete_file(cursor: Cursor[Row], file: LakeFile) -> None:
    """Take a delete file out of DuckLake: its deletes are in the one that comes."""
    removed = cursor.execute(_SQL.remove_delete_file, {"delete_file_id": file.file_id}).fetchall()
    _check_count(len(removed), 1, file.path)
    cursor.execute(load_queries("lake", "write").schedule, {"first_file_id": file.file_id, "paths": [file.path]})


def _inline_late_deletes(
    cursor: Cursor[Row], flush: FlushPlan, name: str, ended: Mapping[InlinedKey, int], ids: Mapping[str, int]
) -> None:
    """Note rows that ended after they were read as DuckDB does: as deletes of a data file that are inlined."""
    if not ended:
        return
    table = sql.Identifier(f"ducklake_inlined_delete_{flush.source.table_id}")
    made = sql.SQL("CREATE TABLE IF NOT EXISTS {} (file_id BIGINT, row_id BIGINT, begin_snapshot BIGINT)")
    with act_as_owner(cursor):
        cursor.execute(made.format(table))
    places = flush.places(name, list(ended))
    query = sql.SQL("INSERT INTO {} SELECT * FROM unnest(%(files)s::bigint[], %(rows)s::bigint[], %(ends)s::bigint[])")
    parameters = {
        "files": [ids[path] for path, _ in places],
        "rows": [position for _, position in places],
        "ends": list(ended.values()),
    }
    cursor.execute(query.format(table), parameters)
