"""Which tables and views live where, dropped ones included, and the zones that are the lake's at all."""

from collections.abc import Iterable, Sequence

from psycopg import Cursor

from duckicelake.lake.postgres.database import Row
from duckicelake.lake.postgres.queries import queries

_SQL = queries("ownership")

Owned = tuple[str, str | None]
"""A canonical location, and the schema of whose it is; None if nobody knows any more."""


def record_zones(cursor: Cursor[Row], prefixes: Iterable[str]) -> None:
    """Note below which canonical prefixes the lake keeps files: no cleanup is told of any other file."""
    parameters = {"prefixes": list(prefixes)}
    cursor.execute(_SQL.forget_zones, parameters)
    cursor.execute(_SQL.record_zones, parameters)


def places(cursor: Cursor[Row], prefixes: Sequence[str], folders: Sequence[str], table_id: int | None) -> list[Owned]:
    """Tables but this one, and views, that live at one of the canonical prefixes, or below one of the folders."""
    parameters = {"prefixes": prefixes, "folders": folders, "table_id": table_id}
    return cursor.execute(_SQL.places, parameters).fetchall()


def data_path(cursor: Cursor[Row]) -> str:
    """DuckLake's DATA_PATH, canonical."""
    row = cursor.execute(_SQL.data_path).fetchone()
    assert row is not None
    return str(row[0])


def ducklake_folders(cursor: Cursor[Row], prefixes: Sequence[str]) -> list[Owned]:
    """Those of the canonical prefixes where DuckLake keeps a table's own files."""
    parameters = {"data_path": data_path(cursor), "prefixes": prefixes}
    return cursor.execute(_SQL.folders, parameters).fetchall()


def files_below(cursor: Cursor[Row], folder: str, table_id: int | None) -> list[str | None]:
    """The schemas of tables but this one that have or had files below the canonical folder."""
    found = cursor.execute(_SQL.files_below, {"folder": folder, "table_id": table_id}).fetchall()
    return [schema for (schema,) in found]


def name_of(cursor: Cursor[Row], table_id: int) -> tuple[str, str, bool] | None:
    """The schema and name of a table as it was last, and whether it is there still; None if nobody knows any more."""
    return cursor.execute(_SQL.name_of, {"table_id": table_id}).fetchone()


def files(cursor: Cursor[Row], paths: Sequence[str], table_id: int | None) -> list[Owned]:
    """Those of the files that tables but this one have or had."""
    return cursor.execute(_SQL.files, {"paths": paths, "table_id": table_id}).fetchall()
