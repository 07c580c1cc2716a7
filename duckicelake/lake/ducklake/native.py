"""Read DuckLake's tables as values of `lake.model`, inside the caller's transaction."""

from collections import defaultdict
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from psycopg import Cursor

from duckicelake.errors import DamagedTable, NoSuchNamespace
from duckicelake.lake.changes import Creation
from duckicelake.lake.ducklake import inlined_rows
from duckicelake.lake.ducklake import schemas as lake_names
from duckicelake.lake.ducklake.definition import build_folder_name
from duckicelake.lake.ducklake.snapshots import ROWS_CHECKED_JSON
from duckicelake.lake.model import (
    Column,
    ColumnStats,
    InlinedDelete,
    InlinedRow,
    LakeChange,
    LakeFile,
    MappedName,
    NameMap,
    PartitionKey,
    SortKey,
    TableDefinition,
    find_flaw,
    parse_changes,
)
from duckicelake.lake.packed import PackedStats
from duckicelake.lake.state import NativeWindow, Reach
from duckicelake.postgres.database import Row
from duckicelake.postgres.queries import load_queries
from duckicelake.postgres.statements import BatchedQuery, fetch_all_batched

_SQL = load_queries("lake", "native")
ROW_MOVING_KINDS = frozenset({"inline_flush", "flushed_inlined", "compacted_table"})
"""What may take inlined rows out of Postgres."""
_PATH_INDEX = LakeFile._fields.index("path")
_DEFINITION_KINDS = frozenset({"created_table", "altered_table"})
_ADDITION_KINDS = frozenset({"inlined_insert", "inserted_into_table"})
_FILE_PRESERVING_KINDS = frozenset(
    {
        *_DEFINITION_KINDS,
        *_ADDITION_KINDS,
        "inlined_delete",
        "deleted_from_table",
        "rewrite_delete",
        "inline_flush",
    }
)
"""What ends rows of files, but takes none away: the others take rows of what older snapshots show."""
_KINDS_BY_TABLE_ID = frozenset(
    {
        "inserted_into_table",
        "deleted_from_table",
        "altered_table",
        "dropped_table",
        "inlined_insert",
        "inlined_delete",
        "inline_flush",
        "flushed_inlined",
        "merge_adjacent",
        "rewrite_delete",
        "compacted_table",
    }
)


def read_newest_snapshot(cursor: Cursor[Row]) -> int:
    """The id of the newest DuckLake snapshot."""
    row = cursor.execute(_SQL.newest).fetchone()
    assert row is not None
    return int(row[0])


def read_changes(cursor: Cursor[Row], table_id: int, after: int, upto: int) -> tuple[LakeChange, ...]:
    """The DuckLake snapshots in (after, upto] that touch the table, oldest first; `upto` is one that there is.

    Where some were expired or aren't recorded their changes are not known: the last one then counts as a rewrite of
    history.
    """
    parameters = {"table_id": table_id, "after": after, "upto": upto, "mark": f":{table_id}"}
    rows = cursor.execute(_SQL.changes, parameters).fetchall()
    found = (
        LakeChange(at, time, parse_kinds(text, table_id, begins=begins))
        for _, at, time, text, begins in rows
        if at is not None
    )
    touching = [change for change in found if change.kinds]
    if rows[0][0] != upto - after:
        kinds = frozenset({"compacted_table", "altered_table"})
        touching = [change for change in touching if change.snapshot_id < upto]
        touching.append(LakeChange(upto, read_snapshot_time(cursor, upto), kinds))
    return tuple(touching)


def are_rows_checked(cursor: Cursor[Row], snapshot_ids: Sequence[int]) -> bool:
    """Whether all rows of these DuckLake snapshots were checked by their tables' constraints as they were written."""
    parameters = {"snapshot_ids": list(snapshot_ids), "mark": ROWS_CHECKED_JSON}
    found = cursor.execute(_SQL.count_marked, parameters).fetchone()
    return found == (len(snapshot_ids),)


def parse_kinds(changes_made: str | None, table_id: int, *, begins: bool) -> frozenset[str]:
    """The words of `changes_made` that are about the table, which gets a name at that snapshot if it `begins`.

    DuckLake 0.2 called a rename a drop and a creation of one id.
    """
    tokens = parse_changes(changes_made)
    named = {kind for kind, value in tokens if kind in _KINDS_BY_TABLE_ID and value == str(table_id)}
    if begins:
        named = (named | {"created_table"}) - {"dropped_table"}
    return frozenset(named)


def read_definition(cursor: Cursor[Row], table_id: int, at: int) -> TableDefinition | None:
    """What the table is at a snapshot; None if it isn't there, DamagedTable if its rows don't make sense."""
    parameters = {"table_id": table_id, "at": at}
    wanted = (_SQL.table_names, _SQL.columns, _SQL.partition_keys, _SQL.table_comment, _SQL.sort_keys)
    names, found, keys, comment, sort_keys = fetch_all_batched(
        cursor, *(BatchedQuery(each, parameters) for each in wanted)
    )
    if not names:
        return None
    table_uuid, schema_name, table_name = names[0]
    if not table_uuid:
        raise DamagedTable("it has no uuid")
    return TableDefinition(
        table_id=table_id,
        table_uuid=table_uuid,
        schema_name=schema_name,
        table_name=table_name,
        columns=_parse_columns(found),
        partition_id=keys[0][0] if keys else None,
        partition_keys=tuple(PartitionKey(column, transform) for _, column, transform in keys if transform),
        sort_keys=tuple(SortKey(*row) for row in sort_keys),
        comment=comment[0][0] if comment else None,
    )


def read_columns(cursor: Cursor[Row], table_id: int, at: int) -> tuple[Column, ...]:
    """What columns a table has at a snapshot; DamagedTable if they don't make sense, as where it isn't there."""
    return _parse_columns(cursor.execute(_SQL.columns, {"table_id": table_id, "at": at}).fetchall())


def _parse_columns(rows: Sequence[Row]) -> tuple[Column, ...]:
    found = tuple(Column(*row) for row in rows)
    flaw = find_flaw(found)
    if flaw is not None:
        raise DamagedTable(flaw)
    return found


def read_full_name(cursor: Cursor[Row], table_id: int) -> str:
    """The newest name of a table, with its namespace's."""
    row = cursor.execute(_SQL.full_name, {"table_id": table_id}).fetchone()
    return lake_names.format_full_name(*row) if row else f"with id {table_id}"


def read_path_prefix(cursor: Cursor[Row], table_id: int) -> str:
    """The folder, with its final slash, that relative paths of the table's files begin with."""
    row = cursor.execute(_SQL.path_prefix, {"table_id": table_id}).fetchone()
    assert row is not None
    return str(row[0])


def predict_path_prefix(cursor: Cursor[Row], creation: Creation) -> str:
    """What `path_prefix` will be once the table is created; NoSuchNamespace."""
    row = cursor.execute(_SQL.schema_prefix, {"schema_name": creation.schema_name}).fetchone()
    if row is None:
        raise NoSuchNamespace(f"Namespace does not exist: {creation.schema_name}")
    return f"{row[0]}{build_folder_name(creation)}"


class WindowBasis(NamedTuple):
    """What reading a window begins with.

    first, last: ids of files that came in it, if that can be told. inlined: the tables of inlined rows. has_deletes:
    whether deletes are inlined.
    """

    first: int | None
    last: int | None
    inlined: Sequence[str]
    has_deletes: bool


def build_basis_query(table_id: int, after: int, upto: int) -> BatchedQuery:
    """What finds the fields of a Ground."""
    return BatchedQuery(_SQL.ground, {"table_id": table_id, "after": after, "upto": upto})


def compute_reach(ground: WindowBasis, after: int, touching: Sequence[LakeChange]) -> Reach | None:
    """What these changes alone can have changed of a table; None if all of its files have to be looked at.

    No snapshot of the window may have expired since `after`: what was visible there only would be gone.
    """
    if not all(change.kinds <= _FILE_PRESERVING_KINDS for change in touching):
        return None
    if not touching:
        return Reach(after, 0, -1)
    return None if ground.first is None or ground.last is None else Reach(after, ground.first, ground.last)


def is_addition_only(touching: Sequence[LakeChange]) -> bool:
    """Whether all rows that there were before these changes should be there as they were."""
    return all(change.kinds <= _ADDITION_KINDS for change in touching)


def read_window(
    cursor: Cursor[Row],
    table_id: int,
    after: int,
    upto: int,
    touching: Sequence[LakeChange],
    ground: WindowBasis,
    reach: Reach,
) -> NativeWindow:
    """Everything that catching up with these changes needs; DamagedTable."""
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
    data_files, delete_files = (_parse_lake_files(each, prefix) for each in (data, deletes))
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
        next_row_id=_check_next_row_id(_check_table_stats(cursor, table_id, sizes), data_files, rows),
        name_maps=read_name_maps(cursor, {file.mapping_id for file in data_files if file.mapping_id is not None}),
    )


def _read_inlined_deletes(cursor: Cursor[Row], table_id: int, upto: int, reach: Reach) -> tuple[InlinedDelete, ...]:
    return inlined_rows.read_inlined_deletes(cursor, table_id, upto, reach.deletes_after, (reach.first, reach.last))


def _check_delete_files(cursor: Cursor[Row], found: Sequence[LakeFile], upto: int) -> None:
    """DamagedTable if the target of one of them has several live ones: DuckDB reads its rows once for each."""
    if not found:
        return
    targets = [file.target_id for file in found]
    doubled = cursor.execute(_SQL.doubled_deletes, {"targets": targets, "upto": upto}).fetchone()
    if doubled is not None:
        data_file_id, delete_file_ids = doubled
        raise DamagedTable(f"data file {data_file_id} has more than one live delete file: {delete_file_ids}")


def _parse_lake_files(rows: Sequence[Row], prefix: str) -> tuple[LakeFile, ...]:
    """prefix: of the paths that are relative, as the beginning of each row says."""
    found = []
    for is_relative, *row in rows:
        if is_relative and row[_PATH_INDEX] is not None:
            row[_PATH_INDEX] = prefix + row[_PATH_INDEX]
        file = LakeFile._make(row)
        if None in (file.path, file.file_format, file.record_count, file.file_size_bytes) or file.record_count < 0:
            raise DamagedTable(f"the row of file {file.file_id} ({file.path}) lacks a value or counts less than 0 rows")
        found.append(file)
    return tuple(found)


def read_file_stats(cursor: Cursor[Row], data_file_ids: Sequence[int]) -> dict[int, PackedStats]:
    """Column statistics by data file."""
    if not data_file_ids:
        return {}
    found = cursor.execute(_SQL.file_stats, {"data_file_ids": list(data_file_ids)})
    return {file_id: PackedStats.from_text(text.encode()) for file_id, text in found}


def read_partition_values(
    cursor: Cursor[Row], data_file_ids: Sequence[int]
) -> dict[int, dict[PartitionKey, str | None]]:
    """Partition values by data file and key."""
    found: defaultdict[int, dict[PartitionKey, str | None]] = defaultdict(dict)
    if not data_file_ids:
        return found
    for file_id, column, transform, value in cursor.execute(
        _SQL.partition_values, {"data_file_ids": list(data_file_ids)}
    ).fetchall():
        found[file_id][PartitionKey(column, transform)] = value
    return found


def read_name_maps(cursor: Cursor[Row], mapping_ids: AbstractSet[int]) -> dict[int, NameMap]:
    """What files without field ids call the columns, by mapping id; DamagedTable."""
    if not mapping_ids:
        return {}
    found = _parse_name_maps(cursor.execute(_SQL.name_maps, {"mapping_ids": list(mapping_ids)}).fetchall())
    missing = sorted(set(mapping_ids) - found.keys())
    if missing:
        raise DamagedTable(f"no row of ducklake_name_mapping says what files of mapping {missing[0]} call the columns")
    return found


def read_newest_name_maps(cursor: Cursor[Row], table_id: int) -> dict[NameMap, int]:
    """The table's last hundred maps, with their ids: DuckDB reads all of a lake, so that none should be there twice."""
    found = _parse_name_maps(cursor.execute(_SQL.newest_name_maps, {"table_id": table_id}).fetchall())
    return {name_map: mapping_id for mapping_id, name_map in found.items()}


def _parse_name_maps(rows: Sequence[Row]) -> dict[int, NameMap]:
    """Of rows that are a mapping's id and one of its names."""
    found: defaultdict[int, list[MappedName]] = defaultdict(list)
    for mapping_id, *name in rows:
        found[mapping_id].append(MappedName(*name))
    return {mapping_id: NameMap(tuple(names)) for mapping_id, names in found.items()}


def read_column_types(cursor: Cursor[Row], table_id: int) -> frozenset[str]:
    """The types that columns of the table ever had."""
    return frozenset(row[0] for row in cursor.execute(_SQL.column_types, {"table_id": table_id}).fetchall())


def read_column_types_by_id(cursor: Cursor[Row], table_id: int) -> dict[int, frozenset[str]]:
    """The types of the columns and fields of a table that had several, structs, lists and maps left out."""
    rows = cursor.execute(_SQL.column_types_by_id, {"table_id": table_id}).fetchall()
    return {column_id: frozenset(types) for column_id, types in rows}


def has_had_dotted_names(cursor: Cursor[Row], table_id: int) -> bool:
    """Whether a table ever had a field whose name begins as the full name of one that is in another."""
    return cursor.execute(_SQL.had_dotted_names, {"table_id": table_id}).fetchone() == (True,)


def read_table_stats(cursor: Cursor[Row], table_id: int) -> tuple[int, int, int] | None:
    """(record_count, next_row_id, file_size_bytes); None before the first insert, and after it DamagedTable.

    To go on from no row ids would give them twice.
    """
    return _check_table_stats(cursor, table_id, cursor.execute(_SQL.table_stats, {"table_id": table_id}).fetchall())


def _check_table_stats(cursor: Cursor[Row], table_id: int, rows: Sequence[Row]) -> tuple[int, int, int] | None:
    if len(rows) == 1 and None not in rows[0]:
        records, next_row_id, size = rows[0]
        return records, next_row_id, size
    had_rows = cursor.execute(_SQL.had_rows, {"table_id": table_id}).fetchone()
    if rows or had_rows == (True,):
        raise DamagedTable(f"ducklake_table_stats has {len(rows)} rows of it instead of a whole one")
    return None


def _check_next_row_id(
    stats: tuple[int, int, int] | None, data_files: Sequence[LakeFile], rows: Sequence[InlinedRow]
) -> int:
    """DuckLake's; DamagedTable if that one was given before."""
    next_row_id = stats[1] if stats else 0
    in_files = (file.row_id_start for file in data_files if file.row_id_start is not None and file.record_count)
    highest = max(max(in_files, default=-1), max((row.key.row_id for row in rows), default=-1))
    if highest >= next_row_id:
        raise DamagedTable(f"the next row id in ducklake_table_stats is {next_row_id}, but {highest} is in use")
    return next_row_id


def read_all_stats(cursor: Cursor[Row], table_id: int) -> tuple[tuple[int, int, int] | None, dict[int, ColumnStats]]:
    """`table_stats`, and the table-wide statistics of columns by column id."""
    parameters = {"table_id": table_id}
    whole, of_columns = fetch_all_batched(
        cursor, BatchedQuery(_SQL.table_stats, parameters), BatchedQuery(_SQL.table_column_stats, parameters)
    )
    return _check_table_stats(cursor, table_id, whole), {row[0]: ColumnStats(*row) for row in of_columns}


def lock_against_drop(cursor: Cursor[Row], table_id: int) -> bool:
    """Whether the table is there; who drops it waits for this transaction to end."""
    return cursor.execute(_SQL.keep, {"table_id": table_id}).fetchone() is not None


def read_created_at(cursor: Cursor[Row], table_id: int) -> int | None:
    """The snapshot that created the table."""
    row = cursor.execute(_SQL.created_at, {"table_id": table_id}).fetchone()
    return row[0] if row else None


def read_snapshot_time(cursor: Cursor[Row], at: int) -> int:
    """When the snapshot was made, in epoch milliseconds."""
    row = cursor.execute(_SQL.time_of, {"at": at}).fetchone()
    assert row is not None
    return int(row[0])
