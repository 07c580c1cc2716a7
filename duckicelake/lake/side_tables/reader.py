"""Read the side tables as values of `lake.state`, inside the caller's transaction."""

from collections.abc import Iterable, Sequence
from itertools import groupby, repeat
from operator import itemgetter
from typing import NamedTuple

from psycopg import Cursor

from duckicelake.lake.model import InlinedKey, ObjectTag
from duckicelake.lake.state import (
    DeletionRow,
    Entry,
    FileRow,
    LiveFile,
    ManifestRow,
    SnapshotRow,
    TableRow,
    TableState,
    VirtualFileRow,
)
from duckicelake.postgres.pipeline import BatchedQuery, fetch_all_batched
from duckicelake.postgres.queries import Row, load_queries
from duckicelake.properties import get_max_previous_versions

_SQL = load_queries("lake", "state")


class TableStanding(NamedTuple):
    """DuckLake's newest snapshot, the expiry epoch, and of a table that Iceberg clients have seen its side-table row.

    overdue: listed snapshots whose files DuckLake gave up, and that were held long enough (design §6.6).
    is_unchecked: whether it has manifests that were written before their metrics had a contract.
    is_unexamined: whether it was served before files that DuckDB added, and requirements, were examined.
    tags: live ones besides comments.
    """

    newest: int
    epoch: int
    overdue: frozenset[int]
    is_unchecked: bool
    is_unexamined: bool
    tags: tuple[ObjectTag, ...]
    row: TableRow | None


def find_table_id(cursor: Cursor[Row], schema_name: str, table_name: str) -> int | None:
    """Find the id of the live table of that name."""
    row = cursor.execute(_SQL.table_id, {"schema_name": schema_name, "table_name": table_name}).fetchone()
    return row[0] if row else None


def read_table_row(cursor: Cursor[Row], table_id: int) -> TableRow | None:
    """Read the side-table row; None for a table that no Iceberg client has seen yet."""
    row = cursor.execute(_SQL.table_row, {"table_id": table_id}).fetchone()
    return TableRow(*row) if row else None


def read_table_state(cursor: Cursor[Row], row: TableRow, before: TableState | None = None) -> TableState:
    """Read everything that the table's metadata.json is made of.

    before: an older state of the table, every manifest list of it written. The new one shares its rows, which never
    change: of a long history only the end is read.
    """
    known, known_log = (before.snapshots, before.snapshot_log) if before else ((), ())
    queries = (_SQL.snapshot_extent, _SQL.log_extent) if before else (_SQL.snapshot_log,)
    newer, metadata, *found = fetch_all_batched(
        cursor,
        _build_snapshots_query(row.table_id, known),
        _build_metadata_query(row, before),
        *(BatchedQuery(query, {"table_id": row.table_id, "most": None}) for query in queries),
    )
    if before is None:
        location, metadata_log = _build_metadata_log(row, metadata)
        return TableState(row, _parse_snapshots(newer), tuple(reversed(found[0])), metadata_log, location)
    files = _join_metadata_files(metadata, before, row)
    if files is None:
        [files] = fetch_all_batched(cursor, _build_metadata_query(row, None))
    extent, log_extent = ((rows[0] if rows else None) for rows in found)
    snapshots = _join_snapshots(known, newer, extent)
    if snapshots is None:
        snapshots = _parse_snapshots(*fetch_all_batched(cursor, _build_snapshots_query(row.table_id, ())))
    log = _read_snapshot_log(cursor, row.table_id, known_log, log_extent)
    location, metadata_log = _build_metadata_log(row, files)
    return TableState(row, snapshots, log, metadata_log, location)


def read_snapshot_page(
    cursor: Cursor[Row], table_id: int, before: int | None, most: int
) -> tuple[list[SnapshotRow], int, bool]:
    """Read (the newest listed snapshots, or those before one, newest first; how many are listed; whether that one is).

    The rows have neither manifests nor a manifest list.
    """
    parameters = {"table_id": table_id, "before": before, "most": most}
    [[counted], rows] = fetch_all_batched(
        cursor, BatchedQuery(_SQL.snapshot_count, parameters), BatchedQuery(_SQL.snapshot_page, parameters)
    )
    return [SnapshotRow(*row) for row in rows], counted[0], counted[1]


def _build_snapshots_query(table_id: int, known: tuple[SnapshotRow, ...]) -> BatchedQuery:
    """Build the query for the listed snapshots that come after the known ones in DuckLake."""
    return BatchedQuery(_SQL.snapshots, {"table_id": table_id, "after": known[-1].ducklake_id if known else -1})


def _parse_snapshots(rows: Sequence[Row]) -> tuple[SnapshotRow, ...]:
    return tuple(SnapshotRow(*columns) for columns in rows)


def _join_snapshots(
    known: tuple[SnapshotRow, ...], newer: Sequence[Row], extent: Row | None
) -> tuple[SnapshotRow, ...] | None:
    """Join all listed snapshots; None if others than the oldest of those known have left.

    Rows never change: their number and the first of them identify all.
    """
    found = _parse_snapshots(newer)
    if not known:
        return found
    count, first = extent or (0, None)
    listed = (*known, *found)[-count:]
    return listed if len(listed) == count and listed[0].snapshot_id == first else None


def _read_snapshot_log(
    cursor: Cursor[Row], table_id: int, known: tuple[tuple[int, int], ...], extent: Row | None
) -> tuple[tuple[int, int], ...]:
    """Read the log, which loses entries at its beginning and gains some at its end; all of a rewritten one."""
    parameters: dict[str, object] = {"table_id": table_id, "most": None}
    if not known or extent is None or extent[:2] not in known:
        return tuple(reversed(cursor.execute(_SQL.snapshot_log, parameters).fetchall()))
    kept = known[known.index(extent[:2]) :]
    parameters["most"] = max(0, extent[2] - len(kept)) + 1
    end = tuple(reversed(cursor.execute(_SQL.snapshot_log, parameters).fetchall()))
    return (*kept, *end[1:]) if end[0] == kept[-1] else _read_snapshot_log(cursor, table_id, (), None)


def _build_metadata_query(row: TableRow, before: TableState | None) -> BatchedQuery:
    """Build the query for the metadata files of the newest versions, down to that of an older state."""
    most = _count_logged(row) + 1
    if before is not None:
        most = min(most, max(0, row.version - before.row.version) + 1)
    return BatchedQuery(_SQL.metadata_log, {"table_id": row.table_id, "version": row.version, "most": most})


def _join_metadata_files(newest_first: Sequence[Row], before: TableState, row: TableRow) -> Sequence[Row] | None:
    """Join the metadata files of all versions; None if those read don't go down to the one of the older state.

    Its log is older than its file, so its entries need no version but one below that.
    """
    end = newest_first[-1][:2] if newest_first else None
    if end != (before.row.version, before.metadata_location) or _is_log_longer(row, before):
        return None
    return (*newest_first, *((before.row.version - 1, *entry) for entry in reversed(before.metadata_log)))


def _is_log_longer(row: TableRow, before: TableState) -> bool:
    return _count_logged(row) > _count_logged(before.row)


def _build_metadata_log(row: TableRow, newest_first: Sequence[Row]) -> tuple[str | None, tuple[tuple[str, int], ...]]:
    """Return the path of this version's metadata.json, if written, and those of the versions before it."""
    location = newest_first[0][1] if newest_first and newest_first[0][0] == row.version else None
    older = [(path, time) for version, path, time in newest_first if version < row.version]
    return location, tuple(reversed(older[: _count_logged(row)]))


def _count_logged(row: TableRow) -> int:
    """Return how many entries the metadata log of the table keeps."""
    return get_max_previous_versions(row.metadata.get("properties", {}))


def read_locations(cursor: Cursor[Row], table_id: int) -> list[str]:
    """Read the locations that the table has or had, as far as metadata of it still lies there."""
    return [location for (location,) in cursor.execute(_SQL.locations, {"table_id": table_id}).fetchall()]


def read_outdated_metadata(cursor: Cursor[Row], row: TableRow) -> list[str]:
    """Read the server's metadata files that the metadata log no longer names."""
    parameters = {"table_id": row.table_id, "version": row.version, "kept": _count_logged(row) + 1}
    return [path for (path,) in cursor.execute(_SQL.outdated_metadata, parameters).fetchall()]


def read_manifests(cursor: Cursor[Row], manifest_ids: Sequence[int]) -> dict[int, ManifestRow]:
    """Read manifests by id."""
    rows = cursor.execute(_SQL.manifests, {"manifest_ids": list(manifest_ids)}).fetchall() if manifest_ids else ()
    return {row[0]: ManifestRow(*row) for row in rows}


def read_manifest_entries(cursor: Cursor[Row], manifest_ids: Sequence[int]) -> dict[int, tuple[Entry, ...]]:
    """Read the entries of manifests by manifest id, in manifest order: added, deleted, existing."""
    rows = cursor.execute(_SQL.entries, {"manifest_ids": list(manifest_ids)}).fetchall() if manifest_ids else ()
    groups = groupby(rows, key=itemgetter(0))
    return {manifest_id: tuple((row[1], FileRow(*row[2:])) for row in group) for manifest_id, group in groups}


def read_live_files(cursor: Cursor[Row], manifest_ids: Sequence[int]) -> tuple[LiveFile, ...]:
    """Read the files that the manifests list as live, in short."""
    rows = cursor.execute(_SQL.live_files, {"manifest_ids": list(manifest_ids)}).fetchall()
    return tuple(LiveFile(*row) for row in rows)


def build_virtual_files_query(table_id: int, manifest_ids: Sequence[int]) -> BatchedQuery:
    """Build the query for live files of the manifests that serve inlined rows; each after its rows."""
    return BatchedQuery(_SQL.live_virtual, {"table_id": table_id, "manifest_ids": list(manifest_ids)})


def read_live_data_files(
    cursor: Cursor[Row], table_id: int, at: int, *, lake_ids: Iterable[int] = (), file_ids: Iterable[int] = ()
) -> tuple[LiveFile, ...]:
    """Read data files by DuckLake's ids or their own, of those on main at a DuckLake snapshot."""
    parameters = {"table_id": table_id, "at": at, "lake_ids": list(lake_ids), "file_ids": list(file_ids)}
    return tuple(LiveFile(*row) for row in cursor.execute(_SQL.live_data, parameters).fetchall())


def read_live_delete_files(
    cursor: Cursor[Row], table_id: int, manifest_ids: Sequence[int], data_file_ids: Iterable[int]
) -> tuple[LiveFile, ...]:
    """Read the manifests' live delete files that delete from any of the data files."""
    parameters = {"table_id": table_id, "manifest_ids": list(manifest_ids), "file_ids": list(data_file_ids)}
    return tuple(LiveFile(*row) for row in cursor.execute(_SQL.live_deletes, parameters).fetchall())


def read_files(cursor: Cursor[Row], file_ids: Iterable[int]) -> dict[int, FileRow]:
    """Read files by id."""
    ids = list(file_ids)
    rows = cursor.execute(_SQL.files, {"file_ids": ids}).fetchall() if ids else ()
    return {row[0]: FileRow(*row) for row in rows}


def read_virtual_files(cursor: Cursor[Row], table_id: int, file_ids: Iterable[int]) -> dict[int, VirtualFileRow]:
    """Read those of the files that serve inlined rows, by file id."""
    rows = cursor.execute(_SQL.virtual_files, {"table_id": table_id, "file_ids": list(file_ids)}).fetchall()
    return {
        file_id: VirtualFileRow(file_id, tuple(map(InlinedKey, repeat(name), begins, row_ids)))
        for file_id, name, row_ids, begins in rows
    }


def read_deletions(cursor: Cursor[Row], table_id: int, delete_file_ids: Iterable[int]) -> tuple[DeletionRow, ...]:
    """Read the positions that the delete files remove."""
    rows = cursor.execute(_SQL.deletions, {"table_id": table_id, "file_ids": list(delete_file_ids)}).fetchall()
    return tuple(DeletionRow(*row) for row in rows)


def allocate_file_ids(cursor: Cursor[Row], count: int) -> list[int]:
    """Allocate ids for files that a commit will add; ids of a commit that fails stay unused."""
    return [row[0] for row in cursor.execute(_SQL.file_ids, {"count": count}).fetchall()]


def allocate_manifest_ids(cursor: Cursor[Row], count: int) -> list[int]:
    """Allocate ids for manifests that a commit will add; ids of a commit that fails stay unused."""
    return [row[0] for row in cursor.execute(_SQL.manifest_ids, {"count": count}).fetchall()]


def find_data_files_at(cursor: Cursor[Row], table_id: int, paths: Iterable[str]) -> set[int]:
    """Find the ids of the data files that the table ever had at the paths."""
    rows = cursor.execute(_SQL.data_files_at, {"table_id": table_id, "paths": list(paths)}).fetchall()
    return {row[0] for row in rows}


def find_live_among(cursor: Cursor[Row], manifest_ids: Sequence[int], file_ids: Iterable[int]) -> list[tuple[int, int]]:
    """Find (manifest id, file id) of those of the files that the manifests list as live."""
    parameters = {"manifest_ids": list(manifest_ids), "file_ids": list(file_ids)}
    rows = cursor.execute(_SQL.live_among, parameters).fetchall()
    return [(manifest_id, file_id) for manifest_id, file_id in rows]


def read_files_without_row_ids(cursor: Cursor[Row], table_id: int) -> list[tuple[int, int]]:
    """Read (file id, record count) of data files that were never on main: DuckLake gave their rows no ids."""
    rows = cursor.execute(_SQL.files_without_row_ids, {"table_id": table_id}).fetchall()
    return [(file_id, record_count) for file_id, record_count in rows]


def find_sharing_tables(cursor: Cursor[Row], paths: Iterable[str]) -> frozenset[tuple[str, str]]:
    """Find live tables, as (schema, name), that have a file at one of the paths."""
    rows = cursor.execute(_SQL.sharing, {"paths": list(paths)}).fetchall()
    return frozenset((schema, name) for schema, name in rows)


def find_manifests_at(cursor: Cursor[Row], table_id: int, paths: Iterable[str]) -> dict[str, int]:
    """Find the ids of the table's manifests that were written at the paths."""
    rows = cursor.execute(_SQL.manifests_at, {"table_id": table_id, "paths": list(paths)}).fetchall()
    return dict(rows)


def read_data_file_deletions(
    cursor: Cursor[Row], table_id: int, data_file_ids: Iterable[int]
) -> tuple[DeletionRow, ...]:
    """Read all deletions from the data files, by any delete file they ever had."""
    rows = cursor.execute(_SQL.deletions_of, {"table_id": table_id, "file_ids": list(data_file_ids)}).fetchall()
    return tuple(DeletionRow(*row) for row in rows)


def read_artifacts(cursor: Cursor[Row], table_id: int) -> dict[str, int]:
    """Read the lengths of all files recorded as written, by path, without the metadata of older versions."""
    return dict(cursor.execute(_SQL.artifacts, {"table_id": table_id}).fetchall())


def read_main_artifacts(cursor: Cursor[Row], table_id: int, *, with_last: bool) -> dict[str, int]:
    """Read the lengths of the newest metadata and of the list and manifests of main, by path.

    with_last: also those of files written in the last two minutes of writing; a power loss takes no more.
    """
    wanted = (_SQL.main_artifacts, _SQL.last_artifacts) if with_last else (_SQL.main_artifacts,)
    found = fetch_all_batched(cursor, *(BatchedQuery(query, {"table_id": table_id}) for query in wanted))
    return {path: length for rows in found for path, length in rows}


def forget_artifacts(cursor: Cursor[Row], table_id: int, paths: Sequence[str]) -> None:
    """Delete the records of written files, so that they and the files that name them are written again."""
    cursor.execute(_SQL.forget_artifacts, {"table_id": table_id, "paths": list(paths)})


def forget_metadata(cursor: Cursor[Row], table_id: int, paths: Sequence[str]) -> None:
    """Delete the records of old metadata files, which are deleted."""
    cursor.execute(_SQL.forget_metadata, {"table_id": table_id, "paths": list(paths)})


def read_epoch(cursor: Cursor[Row]) -> int:
    """Read a number that grows whenever DuckDB expires snapshots or sets an option of a table."""
    row = cursor.execute(_SQL.epoch).fetchone()
    assert row is not None
    return int(row[0])


def read_standing(cursor: Cursor[Row], table_id: int) -> TableStanding:
    """Read how far a table is behind DuckLake."""
    [[found]] = fetch_all_batched(cursor, BatchedQuery(_SQL.standing, {"table_id": table_id}))
    newest, epoch, overdue, is_unchecked, is_unexamined, tags, *columns = found
    row = TableRow(*columns) if columns[0] is not None else None
    found_tags = tuple(ObjectTag(*tag) for tag in tags or ())
    return TableStanding(newest, epoch, frozenset(overdue), is_unchecked, is_unexamined, found_tags, row)


def mark_examined(cursor: Cursor[Row], table_id: int, replaced: Iterable[int]) -> None:
    """Record that a table's served state is examined, and that files were replaced by others of DuckLake's rows."""
    cursor.execute(_SQL.forget_lake_files, {"file_ids": list(replaced)})
    cursor.execute(_SQL.set_examined, {"table_id": table_id})


def find_expired_snapshots(cursor: Cursor[Row], table_id: int) -> frozenset[int]:
    """Find listed snapshots whose DuckLake snapshot DuckDB has expired."""
    return frozenset(row[0] for row in cursor.execute(_SQL.expired, {"table_id": table_id}).fetchall())
