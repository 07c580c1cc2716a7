"""Record which files were written for a table, and which manifests keep the metrics contract."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from psycopg import Cursor

from duckicelake.lake.changes import WrittenFile
from duckicelake.lake.model import KnownColumns
from duckicelake.lake.side_tables.writer import build_artifact_row, cancel_deletion
from duckicelake.lake.state import TableRow
from duckicelake.postgres.pipeline import json_param
from duckicelake.postgres.queries import Row, load_queries

_SQL = load_queries("lake", "artifacts")
_CONTRACT_SQL = load_queries("lake", "contract")


def record_versions(cursor: Cursor[Row], versions: Sequence[tuple[TableRow, Sequence[WrittenFile]]]) -> list[bool]:
    """Record the written files of versions; return of each version whether its metadata.json counts.

    It counts if the version is its table's newest and has no other metadata.json. Of an older version it isn't
    recorded, nor are lists of snapshots that have left history. Files may have been another table's of the same UUID,
    and released: they are kept from cleanups.
    """
    in_order = sorted(versions, key=lambda version: version[0].table_id)  # two that record can't deadlock
    identities = [_build_identity(row) | {"caught_up_to": row.caught_up_to} for row, _ in in_order]
    artifacts = [_build_identity(row) | build_artifact_row(file) for row, files in in_order for file in files]
    parameters = {"versions": json_param(identities), "files": json_param(artifacts)}
    rows = cursor.execute(_SQL.record, parameters).fetchall()
    if any(may_be_scheduled for *_, may_be_scheduled in rows):
        cancel_deletion(cursor, [file.path for _, files in in_order for file in files])
    counting = {(table_id, version) for table_id, version, counts, _ in rows if counts}
    return [(row.table_id, row.version) in counting for row, _ in versions]


def _build_identity(row: TableRow) -> dict[str, object]:
    return {"table_id": row.table_id, "version": row.version}


def find_unchecked_manifests(cursor: Cursor[Row], table_id: int, files: int) -> list[int]:
    """Find ids of some manifests of an older contract, which list about so many files; empty if there are none."""
    rows = cursor.execute(_CONTRACT_SQL.unchecked, {"table_id": table_id, "files": files}).fetchall()
    return [manifest_id for (manifest_id,) in rows]


def read_known_columns(cursor: Cursor[Row], data_file_ids: Iterable[int]) -> dict[int, KnownColumns]:
    """Read what DuckLake knows of the columns of those of its data files that it still has."""
    rows = cursor.execute(_CONTRACT_SQL.known_of, {"data_file_ids": list(data_file_ids)}).fetchall()
    return {file_id: KnownColumns(go_by_name, frozenset(columns)) for file_id, go_by_name, columns in rows}


def is_at_version(cursor: Cursor[Row], table_id: int, version: int) -> bool:
    """Return whether the table is at this version, which it keeps until the end of the transaction."""
    row = cursor.execute(load_queries("lake", "write").lock_table, {"table_id": table_id}).fetchone()
    return row is not None and row[0] == version


def replace_metrics(cursor: Cursor[Row], table_id: int, metrics: Mapping[int, Mapping[str, Any]]) -> None:
    """Replace the metrics of files, by their ids."""
    rows = [{"file_id": file_id, "metrics": dict(found)} for file_id, found in metrics.items()]
    cursor.execute(_CONTRACT_SQL.set_metrics, {"table_id": table_id, "rows": json_param(rows)})


def mark_contract(cursor: Cursor[Row], table_id: int, manifest_ids: Sequence[int], contract: int) -> None:
    """Note that manifests keep the contract as they are."""
    parameters = {"table_id": table_id, "manifest_ids": list(manifest_ids), "contract": contract}
    cursor.execute(_CONTRACT_SQL.keep, parameters)


def forget_manifests(cursor: Cursor[Row], table_id: int, manifest_ids: Sequence[int]) -> None:
    """Take back that manifests, and the lists that name them, were written; the table gets a version without them."""
    cursor.execute(_CONTRACT_SQL.forget, {"table_id": table_id, "manifest_ids": list(manifest_ids)})
