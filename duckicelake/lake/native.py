"""Reads of DuckLake's own tables, as values of `model`; each function runs inside the caller's transaction."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import LiteralString

from psycopg import Cursor, sql

from duckicelake.errors import NoSuchNamespace
from duckicelake.lake.changes import Creation
from duckicelake.lake.database import Row
from duckicelake.lake.definition import folder_name
from duckicelake.lake.model import (
    Column,
    ColumnStats,
    InlinedDelete,
    InlinedKey,
    InlinedRow,
    LakeChange,
    LakeFile,
    MappedName,
    NameMap,
    PartitionKey,
    SortKey,
    TableDefinition,
    parse_changes,
)
from duckicelake.lake.queries import queries
from duckicelake.lake.state import LiveFiles, NativeWindow

_SQL = queries("native")
_DEFINES = frozenset({"created_table", "altered_table"})
_BY_TABLE_ID = frozenset(
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


def newest_snapshot(cursor: Cursor[Row]) -> int:
    """The id of the newest DuckLake snapshot."""
    row = cursor.execute(_SQL.newest).fetchone()
    assert row is not None
    return int(row[0])


def changes(cursor: Cursor[Row], table_id: int, after: int, upto: int) -> tuple[LakeChange, ...]:
    """The DuckLake snapshots in (after, upto] that touch the table, oldest first.

    Where some were expired their changes are not known: the last one then counts as a rewrite of history.
    """
    rows = cursor.execute(_SQL.changes, {"after": after, "upto": upto}).fetchall()
    begins = {row[0] for row in cursor.execute(_SQL.table_begins, {"table_id": table_id}).fetchall()}
    found = [LakeChange(at, time, _kinds(text, table_id, at in begins)) for at, time, text in rows]
    touching = [change for change in found if change.kinds]
    if len(rows) < upto - after and rows:
        last = rows[-1]
        kinds = frozenset({"compacted_table", "altered_table"})
        touching = [c for c in touching if c.snapshot_id < last[0]] + [LakeChange(last[0], last[1], kinds)]
    return tuple(touching)


def _kinds(changes_made: str | None, table_id: int, begins: bool) -> frozenset[str]:
    tokens = parse_changes(changes_made)
    named = {kind for kind, value in tokens if kind in _BY_TABLE_ID and value == str(table_id)}
    return frozenset(named | ({"created_table"} if begins else set()))


def definition(cursor: Cursor[Row], table_id: int, at: int) -> TableDefinition | None:
    """What the table is at a snapshot; None if it isn't there."""
    parameters = {"table_id": table_id, "at": at}
    names = cursor.execute(_SQL.table_names, parameters).fetchone()
    if names is None:
        return None
    columns = tuple(Column(*row) for row in cursor.execute(_SQL.columns, parameters).fetchall())
    keys = cursor.execute(_SQL.partition_keys, parameters).fetchall()
    comment = cursor.execute(_SQL.table_comment, parameters).fetchone()
    return TableDefinition(
        table_id=table_id,
        table_uuid=names[0],
        schema_name=names[1],
        table_name=names[2],
        columns=columns,
        partition_id=keys[0][0] if keys else None,
        partition_keys=tuple(PartitionKey(column, transform) for _, column, transform in keys if transform),
        sort_keys=tuple(SortKey(*row) for row in cursor.execute(_SQL.sort_keys, parameters).fetchall()),
        comment=comment[0] if comment else None,
    )


def path_prefix(cursor: Cursor[Row], table_id: int) -> str:
    """The folder, with its final slash, that relative paths of the table's files begin with."""
    row = cursor.execute(_SQL.path_prefix, {"table_id": table_id}).fetchone()
    assert row is not None
    return str(row[0])


def new_path_prefix(cursor: Cursor[Row], creation: Creation) -> str:
    """What `path_prefix` will be once the table is created; NoSuchNamespace."""
    row = cursor.execute(_SQL.schema_prefix, {"schema_name": creation.schema_name}).fetchone()
    if row is None:
        raise NoSuchNamespace(f"Namespace does not exist: {creation.schema_name}")
    return f"{row[0]}{folder_name(creation)}"


def window(
    cursor: Cursor[Row], table_id: int, after: int, upto: int, touching: Sequence[LakeChange], live: LiveFiles
) -> NativeWindow:
    """Everything that catching up with these changes needs."""
    ids = [file.ducklake_id for file in live.files if file.content == 0 and file.ducklake_id is not None]
    parameters = {
        "table_id": table_id,
        "after": after,
        "upto": upto,
        "live": ids,
        "prefix": path_prefix(cursor, table_id),
    }
    data_files = _lake_files(cursor, _SQL.data_files, parameters)
    new = [file.file_id for file in data_files]
    vanished = {row[0] for row in cursor.execute(_SQL.missing_data_files, parameters).fetchall()}
    defined = [change.snapshot_id for change in touching if change.kinds & _DEFINES]
    definitions = {at: found for at in defined if (found := definition(cursor, table_id, at))}
    return NativeWindow(
        after=after,
        upto=upto,
        changes=tuple(touching),
        definitions=definitions,
        data_files=data_files,
        vanished=frozenset(vanished),
        delete_files=_lake_files(cursor, _SQL.delete_files, parameters),
        rows=inlined_rows(cursor, table_id, after, upto),
        deletes=inlined_deletes(cursor, table_id, upto),
        stats=file_stats(cursor, new),
        partition_values=partition_values(cursor, new),
        next_row_id=(table_stats(cursor, table_id) or (0, 0, 0))[1],
        name_maps=name_maps(cursor, {file.mapping_id for file in data_files if file.mapping_id is not None}),
    )


def live_delete_files(cursor: Cursor[Row], table_id: int, data_file_ids: Iterable[int]) -> tuple[LakeFile, ...]:
    """The delete file of each of the data files that has one now."""
    parameters = {
        "table_id": table_id,
        "prefix": path_prefix(cursor, table_id),
        "data_file_ids": list(data_file_ids),
    }
    return _lake_files(cursor, _SQL.live_delete_files, parameters)


def _lake_files(cursor: Cursor[Row], query: LiteralString, parameters: Mapping[str, object]) -> tuple[LakeFile, ...]:
    return tuple(LakeFile(*row) for row in cursor.execute(query, parameters).fetchall())


def file_stats(cursor: Cursor[Row], data_file_ids: Sequence[int]) -> dict[int, tuple[ColumnStats, ...]]:
    """Column statistics by data file."""
    found: defaultdict[int, list[ColumnStats]] = defaultdict(list)
    for row in cursor.execute(_SQL.file_stats, {"data_file_ids": list(data_file_ids)}).fetchall():
        found[row[0]].append(ColumnStats(*row[1:]))
    return {file_id: tuple(stats) for file_id, stats in found.items()}


def partition_values(cursor: Cursor[Row], data_file_ids: Sequence[int]) -> dict[int, dict[PartitionKey, str | None]]:
    """Partition values by data file and key."""
    found: defaultdict[int, dict[PartitionKey, str | None]] = defaultdict(dict)
    for file_id, column, transform, value in cursor.execute(
        _SQL.partition_values, {"data_file_ids": list(data_file_ids)}
    ).fetchall():
        found[file_id][PartitionKey(column, transform)] = value
    return found


def name_maps(cursor: Cursor[Row], mapping_ids: Iterable[int]) -> dict[int, NameMap]:
    """What files without field ids call the columns, by mapping id."""
    found: defaultdict[int, list[MappedName]] = defaultdict(list)
    for row in cursor.execute(_SQL.name_maps, {"mapping_ids": list(mapping_ids)}).fetchall():
        found[row[0]].append(MappedName(*row[1:]))
    return {mapping_id: NameMap(tuple(names)) for mapping_id, names in found.items()}


def table_stats(cursor: Cursor[Row], table_id: int) -> tuple[int, int, int] | None:
    """(record_count, next_row_id, file_size_bytes); None before the first insert."""
    row = cursor.execute(_SQL.table_stats, {"table_id": table_id}).fetchone()
    return (row[0], row[1], row[2]) if row else None


def table_column_stats(cursor: Cursor[Row], table_id: int) -> dict[int, ColumnStats]:
    """Table-wide column statistics by column id."""
    rows = cursor.execute(_SQL.table_column_stats, {"table_id": table_id}).fetchall()
    return {row[0]: ColumnStats(*row) for row in rows}


def inlined_tables(cursor: Cursor[Row], table_id: int) -> dict[str, int]:
    """The tables of inlined rows, each with the snapshot whose columns it has."""
    return dict(cursor.execute(_SQL.inlined_tables, {"table_id": table_id}).fetchall())


def inlined_rows(cursor: Cursor[Row], table_id: int, after: int, upto: int) -> tuple[InlinedRow, ...]:
    """All inlined rows that are visible somewhere in (after, upto]."""
    found: list[InlinedRow] = []
    for name in inlined_tables(cursor, table_id):
        query = sql.SQL(
            "SELECT begin_snapshot, row_id, end_snapshot FROM {} "
            "WHERE begin_snapshot <= %(upto)s AND (end_snapshot IS NULL OR end_snapshot > %(after)s)"
        ).format(sql.Identifier(name))
        rows = cursor.execute(query, {"after": after, "upto": upto}).fetchall()
        found += [InlinedRow(InlinedKey(name, begin, row), end) for begin, row, end in rows]
    return tuple(found)


def inlined_values(
    cursor: Cursor[Row], keys: Sequence[InlinedKey], columns: Sequence[str]
) -> list[tuple[str | bytes | None, ...]]:
    """The values of inlined rows of one table in the order of `keys`, as texts (bytes where Postgres holds bytea)."""
    (name,) = {key.inlined_table for key in keys}
    query = sql.SQL(
        "SELECT {} FROM unnest(%(begins)s::bigint[], %(rows)s::bigint[]) WITH ORDINALITY AS k (begin, row, ordinal) "
        "JOIN {} AS i ON i.begin_snapshot = k.begin AND i.row_id = k.row ORDER BY k.ordinal"
    ).format(sql.SQL(", ").join(_as_text(cursor, name, columns)), sql.Identifier(name))
    parameters = {"begins": [key.begin_snapshot for key in keys], "rows": [key.row_id for key in keys]}
    return [tuple(row) for row in cursor.execute(query, parameters).fetchall()]


def _as_text(cursor: Cursor[Row], name: str, columns: Sequence[str]) -> list[sql.Composable]:
    """DuckDB leaves names in capitals unquoted, which Postgres lowers."""
    rows = cursor.execute(_SQL.column_types, {"name": name}).fetchall()
    own = {column.lower(): (column, type_) for column, type_ in rows}
    return [
        sql.SQL("i.{}" if type_ == "bytea" else "i.{}::text").format(sql.Identifier(column))
        for column, type_ in (own[name.lower()] for name in columns)
    ]


def inlined_deletes(cursor: Cursor[Row], table_id: int, upto: int) -> tuple[InlinedDelete, ...]:
    """All inlined deletes of data files, up to a snapshot."""
    name = f"ducklake_inlined_delete_{table_id}"
    exists = cursor.execute(_SQL.inlined_delete_table, {"name": name}).fetchone()
    if not exists or not exists[0]:
        return ()
    query = sql.SQL("SELECT file_id, row_id, begin_snapshot FROM {} WHERE begin_snapshot <= %(upto)s ORDER BY 1, 2")
    rows = cursor.execute(query.format(sql.Identifier(name)), {"upto": upto}).fetchall()
    return tuple(InlinedDelete(*row) for row in rows)


def created_at(cursor: Cursor[Row], table_id: int) -> int | None:
    """The snapshot that created the table."""
    row = cursor.execute(_SQL.created_at, {"table_id": table_id}).fetchone()
    return row[0] if row else None


def time_of(cursor: Cursor[Row], at: int) -> int:
    """When the snapshot was made, in epoch milliseconds."""
    row = cursor.execute(_SQL.time_of, {"at": at}).fetchone()
    assert row is not None
    return int(row[0])
