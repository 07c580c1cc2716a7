"""Manifests that were written before their metrics had a contract: which there are, and what becomes of them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from psycopg import Cursor

from duckicelake.lake.model import KnownColumns
from duckicelake.lake.postgres.database import Row
from duckicelake.lake.postgres.documents import document
from duckicelake.lake.postgres.queries import queries

_SQL = queries("contract")


def unchecked(cursor: Cursor[Row], table_id: int, files: int) -> list[int]:
    """Ids of some manifests of an older contract, which list about so many files; empty if there are none."""
    rows = cursor.execute(_SQL.unchecked, {"table_id": table_id, "files": files}).fetchall()
    return [manifest_id for (manifest_id,) in rows]


def known_of(cursor: Cursor[Row], data_file_ids: Iterable[int]) -> dict[int, KnownColumns]:
    """What DuckLake knows of those of its data files that it still has."""
    rows = cursor.execute(_SQL.known_of, {"data_file_ids": list(data_file_ids)}).fetchall()
    return {file_id: KnownColumns(go_by_name, frozenset(columns)) for file_id, go_by_name, columns in rows}


def is_at(cursor: Cursor[Row], table_id: int, version: int) -> bool:
    """Whether the table is at this version, which it keeps until the end of the transaction."""
    row = cursor.execute(queries("write").lock_table, {"table_id": table_id}).fetchone()
    return row is not None and row[0] == version


def set_metrics(cursor: Cursor[Row], table_id: int, metrics: Mapping[int, Mapping[str, Any]]) -> None:
    """Replace the metrics of files, by their ids."""
    rows = [{"file_id": file_id, "metrics": dict(found)} for file_id, found in metrics.items()]
    cursor.execute(_SQL.set_metrics, {"table_id": table_id, "rows": document(rows)})


def keep(cursor: Cursor[Row], table_id: int, manifest_ids: Sequence[int], contract: int) -> None:
    """Note that manifests keep the contract as they are."""
    parameters = {"table_id": table_id, "manifest_ids": list(manifest_ids), "contract": contract}
    cursor.execute(_SQL.keep, parameters)


def forget(cursor: Cursor[Row], table_id: int, manifest_ids: Sequence[int]) -> None:
    """Take back that manifests, and the lists that name them, were written; the table gets a version without them."""
    cursor.execute(_SQL.forget, {"table_id": table_id, "manifest_ids": list(manifest_ids)})
