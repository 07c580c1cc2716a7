"""Read DuckLake's tables as values of `lake.model`, inside the caller's transaction."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import NamedTuple

from psycopg import Cursor

from duckicelake.errors import DamagedTableError, NoSuchNamespaceError, format_count
from duckicelake.iceberg.identifiers import format_full_name
from duckicelake.lake.changes import Creation
from duckicelake.lake.ducklake.definition import build_folder_name
from duckicelake.lake.ducklake.snapshots import ROWS_CHECKED_JSON
from duckicelake.lake.model import (
    Column,
    ColumnStats,
    LakeChange,
    MappedName,
    NameMap,
    PartitionKey,
    SortKey,
    TableDefinition,
    complete_kinds,
    find_flaw,
    parse_changes,
)
from duckicelake.lake.state import PackedStats
from duckicelake.postgres.pipeline import BatchedQuery, fetch_all_batched
from duckicelake.postgres.queries import Row, load_queries

_SQL = load_queries("lake", "native")
ROW_MOVING_KINDS = frozenset({"inline_flush", "flushed_inlined", "compacted_table"})
"""Kinds of changes that may take inlined rows out of Postgres."""
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
    """Read the id of the newest DuckLake snapshot."""
    row = cursor.execute(_SQL.newest).fetchone()
    assert row is not None
    return int(row[0])


def read_changes(cursor: Cursor[Row], table_id: int, after: int, upto: int) -> tuple[LakeChange, ...]:
    """Read the DuckLake snapshots in (after, upto] that touch the table, oldest first; `upto` must exist.

    Their kinds are what they did, also where `changes_made` doesn't say it (`complete_kinds`). If some were expired or
    aren't recorded, their changes are unknown. The last one then counts as a rewrite of history.
    """
    parameters = {"table_id": table_id, "after": after, "upto": upto, "mark": f":{table_id}"}
    rows = cursor.execute(_SQL.changes, parameters).fetchall()
    found = (
        LakeChange(at, time, complete_kinds(parse_kinds(text, table_id, begins=begins), has_delete_file=deletes))
        for _, at, time, text, begins, deletes in rows
        if at is not None
    )
    touching = _leave_out_drops([change for change in found if change.kinds])
    if rows[0][0] != upto - after:
        kinds = frozenset({"compacted_table", "altered_table"})
        touching = [change for change in touching if change.snapshot_id < upto]
        touching.append(LakeChange(upto, read_snapshot_time(cursor, upto), kinds))
    return tuple(touching)


def _leave_out_drops(changes: Sequence[LakeChange]) -> list[LakeChange]:
    """Leave out the drops after which the table came back: nothing of it has changed by them."""
    last = max((change.snapshot_id for change in changes if "created_table" in change.kinds), default=-1)
    kept = (
        replace(change, kinds=change.kinds - {"dropped_table"}) if change.snapshot_id < last else change
        for change in changes
    )
    return [change for change in kept if change.kinds]


def are_rows_checked(cursor: Cursor[Row], snapshot_ids: Sequence[int]) -> bool:
    """Return whether the writers of these snapshots checked all rows by the tables' constraints."""
    parameters = {"snapshot_ids": list(snapshot_ids), "mark": ROWS_CHECKED_JSON}
    found = cursor.execute(_SQL.count_marked, parameters).fetchone()
    return found == (len(snapshot_ids),)


def parse_kinds(changes_made: str | None, table_id: int, *, begins: bool) -> frozenset[str]:
    """Parse the kinds of `changes_made` that concern the table. begins: the table gets a name at that snapshot.

    DuckLake 0.2 recorded a rename as a drop and a creation of one id.
    """
    tokens = parse_changes(changes_made)
    named = {kind for kind, value in tokens if kind in _KINDS_BY_TABLE_ID and value == str(table_id)}
    if begins:
        named = (named | {"created_table"}) - {"dropped_table"}
    return frozenset(named)


def read_options(cursor: Cursor[Row], table_id: int) -> dict[str, str]:
    """Read the options that the table itself has, not those of its schema or the lake."""
    return dict(cursor.execute(_SQL.options, {"table_id": table_id}).fetchall())


def read_definition(cursor: Cursor[Row], table_id: int, at: int) -> TableDefinition | None:
    """Read the table's definition at a snapshot; None if it isn't there.

    Raises DamagedTableError for contradicting rows.
    """
    parameters = {"table_id": table_id, "at": at}
    wanted = (_SQL.table_names, _SQL.columns, _SQL.partition_keys, _SQL.table_comment, _SQL.sort_keys)
    names, found, keys, comment, sort_keys = fetch_all_batched(
        cursor, *(BatchedQuery(query, parameters) for query in wanted)
    )
    if not names:
        return None
    table_uuid, schema_name, table_name = names[0]
    if not table_uuid:
        raise DamagedTableError("it has no uuid")
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
    """Read the table's columns at a snapshot.

    Raises DamagedTableError if they contradict each other or there are none.
    """
    return _parse_columns(cursor.execute(_SQL.columns, {"table_id": table_id, "at": at}).fetchall())


def _parse_columns(rows: Sequence[Row]) -> tuple[Column, ...]:
    found = tuple(Column(*row) for row in rows)
    flaw = find_flaw(found)
    if flaw is not None:
        raise DamagedTableError(flaw)
    return found


def read_full_name(cursor: Cursor[Row], table_id: int) -> str:
    """Read the newest name of a table, with its namespace's."""
    row = cursor.execute(_SQL.full_name, {"table_id": table_id}).fetchone()
    return format_full_name(*row) if row else f"with id {table_id}"


def read_path_prefix(cursor: Cursor[Row], table_id: int) -> str:
    """Read the folder, with its final slash, that relative paths of the table's files begin with."""
    row = cursor.execute(_SQL.path_prefix, {"table_id": table_id}).fetchone()
    assert row is not None
    return str(row[0])


def predict_path_prefix(cursor: Cursor[Row], creation: Creation) -> str:
    """Predict `read_path_prefix` of a table that is to be created. Raises NoSuchNamespaceError."""
    row = cursor.execute(_SQL.schema_prefix, {"schema_name": creation.schema_name}).fetchone()
    if row is None:
        raise NoSuchNamespaceError(f"Namespace does not exist: {creation.schema_name}")
    return f"{row[0]}{build_folder_name(creation)}"


def read_file_stats(cursor: Cursor[Row], data_file_ids: Sequence[int]) -> dict[int, PackedStats]:
    """Read column statistics by data file."""
    if not data_file_ids:
        return {}
    found = cursor.execute(_SQL.file_stats, {"data_file_ids": list(data_file_ids)})
    return {file_id: PackedStats.from_text(text.encode()) for file_id, text in found}


def read_partition_values(
    cursor: Cursor[Row], data_file_ids: Sequence[int]
) -> dict[int, dict[PartitionKey, str | None]]:
    """Read partition values by data file and key."""
    found: defaultdict[int, dict[PartitionKey, str | None]] = defaultdict(dict)
    if not data_file_ids:
        return found
    for file_id, column, transform, value in cursor.execute(
        _SQL.partition_values, {"data_file_ids": list(data_file_ids)}
    ).fetchall():
        found[file_id][PartitionKey(column, transform)] = value
    return found


def read_table_stats(cursor: Cursor[Row], table_id: int) -> tuple[int, int, int] | None:
    """Read (record_count, next_row_id, file_size_bytes); None before the first insert.

    Raises DamagedTableError if the row is missing later: a count from zero would give row ids twice.
    """
    return check_table_stats(cursor, table_id, cursor.execute(_SQL.table_stats, {"table_id": table_id}).fetchall())


def check_table_stats(cursor: Cursor[Row], table_id: int, rows: Sequence[Row]) -> tuple[int, int, int] | None:
    """Return the only row of `ducklake_table_stats`; None before the first insert. Raises DamagedTableError."""
    if len(rows) == 1 and None not in rows[0]:
        records, next_row_id, size = rows[0]
        return records, next_row_id, size
    had_rows = cursor.execute(_SQL.had_rows, {"table_id": table_id}).fetchone()
    if rows or had_rows == (True,):
        raise DamagedTableError(
            f"ducklake_table_stats has {format_count(len(rows), 'row')} of it instead of a whole one"
        )
    return None


def read_all_stats(cursor: Cursor[Row], table_id: int) -> tuple[tuple[int, int, int] | None, dict[int, ColumnStats]]:
    """Read `read_table_stats`, and the table-wide statistics of columns by column id."""
    parameters = {"table_id": table_id}
    whole, of_columns = fetch_all_batched(
        cursor, BatchedQuery(_SQL.table_stats, parameters), BatchedQuery(_SQL.table_column_stats, parameters)
    )
    return check_table_stats(cursor, table_id, whole), {row[0]: ColumnStats(*row) for row in of_columns}


def lock_against_drop(cursor: Cursor[Row], table_id: int) -> bool:
    """Lock the table so that a drop waits for this transaction; return whether the table exists."""
    return cursor.execute(_SQL.keep, {"table_id": table_id}).fetchone() is not None


def read_created_at(cursor: Cursor[Row], table_id: int) -> int | None:
    """Read the id of the snapshot that created the table."""
    row = cursor.execute(_SQL.created_at, {"table_id": table_id}).fetchone()
    return row[0] if row else None


def read_snapshot_time(cursor: Cursor[Row], at: int) -> int:
    """Read when the snapshot was made, in epoch milliseconds."""
    row = cursor.execute(_SQL.time_of, {"at": at}).fetchone()
    assert row is not None
    return int(row[0])


def read_name_maps(cursor: Cursor[Row], mapping_ids: AbstractSet[int]) -> dict[int, NameMap]:
    """Read the names of columns in files without field ids, by mapping id. Raises DamagedTableError."""
    if not mapping_ids:
        return {}
    found = _parse_name_maps(cursor.execute(_SQL.name_maps, {"mapping_ids": list(mapping_ids)}).fetchall())
    missing = sorted(set(mapping_ids) - found.keys())
    if missing:
        raise DamagedTableError(
            f"no row of ducklake_name_mapping says what files of mapping {missing[0]} call the columns"
        )
    return found


def read_newest_name_maps(cursor: Cursor[Row], table_id: int) -> dict[NameMap, int]:
    """Read the table's last hundred maps by id, to write none twice: DuckDB reads all maps of a lake."""
    found = _parse_name_maps(cursor.execute(_SQL.newest_name_maps, {"table_id": table_id}).fetchall())
    return {name_map: mapping_id for mapping_id, name_map in found.items()}


def _parse_name_maps(rows: Sequence[Row]) -> dict[int, NameMap]:
    """Build maps from rows of a mapping's id and one of its names."""
    found: defaultdict[int, list[MappedName]] = defaultdict(list)
    for mapping_id, *name in rows:
        found[mapping_id].append(MappedName(*name))
    return {mapping_id: NameMap(tuple(names)) for mapping_id, names in found.items()}


class ColumnHistory(NamedTuple):
    """The columns that a table ever had.

    types: of all of them. types_by_id: of columns and fields with several types, without structs, lists and maps.
    has_dotted_names: whether a field's name began with the full name of a nested field.
    """

    types: frozenset[str]
    types_by_id: Mapping[int, frozenset[str]]
    has_dotted_names: bool


def read_column_history(cursor: Cursor[Row], table_id: int) -> ColumnHistory:
    """Read what columns a table ever had."""
    wanted = (_SQL.column_types, _SQL.column_types_by_id, _SQL.had_dotted_names)
    types, by_id, dotted = fetch_all_batched(cursor, *(BatchedQuery(query, {"table_id": table_id}) for query in wanted))
    types_by_id = {column_id: frozenset(found) for column_id, found in by_id}
    return ColumnHistory(frozenset(text for (text,) in types), types_by_id, dotted == [(True,)])
