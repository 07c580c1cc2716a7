"""Read what DuckLake's snapshots of a window changed in a table, inside the caller's transaction."""

from collections.abc import Sequence
from typing import NamedTuple

from psycopg import Cursor

from duckicelake.errors import DamagedTableError
from duckicelake.lake.ducklake import inlined_rows
from duckicelake.lake.ducklake.native import (
    check_table_stats,
    read_definition,
    read_file_stats,
    read_name_maps,
    read_partition_values,
    read_path_prefix,
)
from duckicelake.lake.model import ADDITION_KINDS, REMOVAL_KINDS, InlinedDelete, InlinedRow, LakeChange, LakeFile
from duckicelake.lake.state import NativeWindow, Reach
from duckicelake.postgres.pipeline import BatchedQuery, fetch_all_batched
from duckicelake.postgres.queries import Row, load_queries

_SQL = load_queries("lake", "native")
_PATH_INDEX = LakeFile._fields.index("path")
_DEFINITION_KINDS = frozenset({"created_table", "altered_table"})
_FILE_PRESERVING_KINDS = frozenset(
    {
        *_DEFINITION_KINDS,
        *ADDITION_KINDS,
        *REMOVAL_KINDS,
        "rewrite_delete",
        "inline_flush",
    }
)
"""Kinds of changes that end rows of files, but delete no rows: the others delete rows that older snapshots show."""


class WindowBasis(NamedTuple):
    """Facts about a table that a read of its window needs.

    first, last: ids of the files that were added in the window, if known. inlined: the tables of inlined rows.
    has_deletes: whether there are inlined deletes. damaged: tables of inlined rows without DuckLake's first three
    columns.
    """

    first: int | None
    last: int | None
    inlined: Sequence[str]
    has_deletes: bool
    damaged: Sequence[str] = ()


def build_basis_query(table_id: int, after: int, upto: int) -> BatchedQuery:
    """Build the query for the fields of a WindowBasis."""
    return BatchedQuery(_SQL.ground, {"table_id": table_id, "after": after, "upto": upto})


def compute_reach(ground: WindowBasis, after: int, touching: Sequence[LakeChange]) -> Reach | None:
    """Compute what these changes alone can have changed in a table; None if all of its files must be read.

    No snapshot of the window may have expired since `after`: rows that only it showed would be missing.
    """
    if not all(change.kinds <= _FILE_PRESERVING_KINDS for change in touching):
        return None
    if not touching:
        return Reach(after, 0, -1)
    return None if ground.first is None or ground.last is None else Reach(after, ground.first, ground.last)


def read_window(
    cursor: Cursor[Row],
    table_id: int,
    after: int,
    upto: int,
    touching: Sequence[LakeChange],
    ground: WindowBasis,
    reach: Reach,
) -> NativeWindow:
    """Read all that a catch-up with these changes needs. Raises DamagedTableError."""
    inlined_rows.check_intact(ground.damaged)
    parameters = {
        "table_id": table_id,
        "after": after,
        "upto": upto,
        "live": list(reach.live),
        "first": reach.first,
        "last": reach.last,
    }
    of_files = (_SQL.data_files, _SQL.delete_files, _SQL.missing_data_files, _SQL.table_stats)
    names, asked = ground.inlined, [BatchedQuery(query, parameters) for query in of_files]
    asked_rows = inlined_rows.build_rows_query if reach.served is None else inlined_rows.build_new_rows_query
    with inlined_rows.translate_damage(*names):
        data, deletes, vanished, sizes, *of_rows = fetch_all_batched(cursor, *asked, *asked_rows(names, after, upto))
        rows, before = inlined_rows.parse_inlined_rows(
            dict(zip(names, of_rows, strict=True)), counted=reach.served is not None
        )
        if before != reach.served:
            of_rows = fetch_all_batched(cursor, *inlined_rows.build_rows_query(names, after, upto))
            rows, before = inlined_rows.parse_inlined_rows(dict(zip(names, of_rows, strict=True)), counted=False)
    prefix = read_path_prefix(cursor, table_id) if data or deletes else ""
    data_files, delete_files = (_parse_lake_files(found, prefix) for found in (data, deletes))
    new = [file.file_id for file in data_files]
    defined = [change.snapshot_id for change in touching if change.kinds & _DEFINITION_KINDS]
    definitions = {at: found for at in defined if (found := read_definition(cursor, table_id, at))}
    _check_delete_files(cursor, delete_files, upto)
    return NativeWindow(
        after=after,
        upto=upto,
        changes=tuple(touching),
        definitions=definitions,
        data_files=data_files,
        vanished=frozenset(file_id for (file_id,) in vanished),
        delete_files=delete_files,
        rows=rows,
        all_rows=before is None,
        deletes=_read_inlined_deletes(cursor, table_id, upto, reach) if ground.has_deletes else (),
        stats=read_file_stats(cursor, new),
        partition_values=read_partition_values(cursor, [f.file_id for f in data_files if f.partition_id is not None]),
        next_row_id=_check_next_row_id(check_table_stats(cursor, table_id, sizes), data_files, rows),
        name_maps=read_name_maps(cursor, {file.mapping_id for file in data_files if file.mapping_id is not None}),
    )


def _read_inlined_deletes(cursor: Cursor[Row], table_id: int, upto: int, reach: Reach) -> tuple[InlinedDelete, ...]:
    return inlined_rows.read_inlined_deletes(cursor, table_id, upto, reach.deletes_after, (reach.first, reach.last))


def _check_delete_files(cursor: Cursor[Row], found: Sequence[LakeFile], upto: int) -> None:
    """Raise DamagedTableError if a file has several live delete files: DuckDB reads its rows once for each."""
    if not found:
        return
    targets = [file.target_id for file in found]
    doubled = cursor.execute(_SQL.doubled_deletes, {"targets": targets, "upto": upto}).fetchone()
    if doubled is not None:
        data_file_id, delete_file_ids = doubled
        raise DamagedTableError(f"data file {data_file_id} has more than one live delete file: {delete_file_ids}")


def _parse_lake_files(rows: Sequence[Row], prefix: str) -> tuple[LakeFile, ...]:
    """Parse rows of files. prefix: of relative paths; the first column of each row says whether its path is one."""
    found = []
    for is_relative, *row in rows:
        if is_relative and row[_PATH_INDEX] is not None:
            row[_PATH_INDEX] = prefix + row[_PATH_INDEX]
        file = LakeFile._make(row)
        if None in (file.path, file.file_format, file.record_count, file.file_size_bytes) or file.record_count < 0:
            raise DamagedTableError(
                f"the row of file {file.file_id} ({file.path}) lacks a value or counts less than 0 rows"
            )
        found.append(file)
    return tuple(found)


def _check_next_row_id(
    stats: tuple[int, int, int] | None, data_files: Sequence[LakeFile], rows: Sequence[InlinedRow]
) -> int:
    """Return DuckLake's next row id. Raises DamagedTableError if a row has that id already."""
    next_row_id = stats[1] if stats else 0
    in_files = (file.row_id_start for file in data_files if file.row_id_start is not None and file.record_count)
    highest = max(max(in_files, default=-1), max((row.key.row_id for row in rows), default=-1))
    if highest >= next_row_id:
        raise DamagedTableError(f"the next row id in ducklake_table_stats is {next_row_id}, but {highest} is in use")
    return next_row_id


def has_changed_rows(cursor: Cursor[Row], table_id: int, at: int) -> bool:
    """Return whether a snapshot brought rows of a table, or removed some that it had before.

    Of a transaction that inserts rows and deletes them, DuckLake says that it inserted some, and keeps nothing.
    Raises DamagedTableError.
    """
    parameters = {"table_id": table_id, "at": at}
    if cursor.execute(_SQL.has_changed_files, parameters).fetchone() == (True,):
        return True
    names = [*inlined_rows.read_inlined_tables(cursor, table_id)]
    return inlined_rows.has_changed_rows(cursor, names, at) or bool(
        inlined_rows.read_inlined_deletes(cursor, table_id, at, at - 1)
    )
