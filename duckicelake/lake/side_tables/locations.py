"""Find which tables and views own which folders and files, and which files are shared or unnamed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from psycopg import Cursor

from duckicelake.lake.ducklake import native
from duckicelake.postgres.queries import Row, Transaction, load_queries

_OWNERSHIP_SQL = load_queries("lake", "ownership")
LocationOwner = Sequence[str] | None
"""Schema and name of the table or view that a place belongs to; None if they are unknown by now."""
OwnedLocation = tuple[str, LocationOwner]
"""A canonical location, and its owner."""
_FOLDERS_SQL = load_queries("lake", "file_folders")
_CLONES_SQL = load_queries("lake", "clones")
_GARBAGE_SQL = load_queries("lake", "garbage")


def record_zones(cursor: Cursor[Row], prefixes: Iterable[str]) -> None:
    """Record the canonical prefixes below which the lake keeps files: no cleanup gets any other file."""
    parameters = {"prefixes": list(prefixes)}
    cursor.execute(_OWNERSHIP_SQL.forget_zones, parameters)
    cursor.execute(_OWNERSHIP_SQL.record_zones, parameters)


def read_zones(cursor: Transaction) -> list[str]:
    """Read the canonical prefixes below which the lake keeps files."""
    return [prefix for (prefix,) in cursor.execute(_OWNERSHIP_SQL.zones).fetchall()]


def find_owners_of_folders(
    cursor: Cursor[Row], prefixes: Sequence[str], folders: Sequence[str], table_id: int | None
) -> list[OwnedLocation]:
    """Find tables but this one, and views, at one of the canonical prefixes, or below one of the folders."""
    parameters = {"prefixes": prefixes, "folders": folders, "table_id": table_id}
    return cursor.execute(_OWNERSHIP_SQL.places, parameters).fetchall()


def read_data_path(cursor: Cursor[Row]) -> str:
    """Read DuckLake's DATA_PATH, canonical."""
    row = cursor.execute(_OWNERSHIP_SQL.data_path).fetchone()
    assert row is not None
    return str(row[0])


def find_ducklake_folders(cursor: Cursor[Row], prefixes: Sequence[str]) -> list[OwnedLocation]:
    """Return those of the canonical prefixes where DuckLake keeps a table's own files."""
    parameters = {"data_path": read_data_path(cursor), "prefixes": prefixes}
    return cursor.execute(_OWNERSHIP_SQL.folders, parameters).fetchall()


def find_owners_of_files_below(cursor: Cursor[Row], folder: str, table_id: int | None) -> list[LocationOwner]:
    """Find the tables but this one that have or had files below the canonical folder."""
    found = cursor.execute(_OWNERSHIP_SQL.files_below, {"folder": folder, "table_id": table_id}).fetchall()
    return [owner for (owner,) in found]


def read_last_name(cursor: Cursor[Row], table_id: int) -> tuple[str, str, bool] | None:
    """Read the last schema and name of a table, and whether it still exists; None if they are unknown by now."""
    return cursor.execute(_OWNERSHIP_SQL.name_of, {"table_id": table_id}).fetchone()


def find_owned_files(cursor: Cursor[Row], paths: Sequence[str], table_id: int | None) -> list[OwnedLocation]:
    """Find those of the files that tables but this one have or had."""
    return cursor.execute(_OWNERSHIP_SQL.files, {"paths": paths, "table_id": table_id}).fetchall()


def find_file_folders(cursor: Cursor[Row], table_id: int, known: Sequence[str], most: int) -> list[str]:
    """Find up to `most` folders of data, delete and metadata files outside the known folders, which end in slashes.

    Partitions' folders (`…/day=1/`) count as the folder that they are in. Each folder found takes one index look-up.
    """
    found: list[str] = []
    least = ""
    while len(found) < most:
        row = cursor.execute(_FOLDERS_SQL.next_place, {"table_id": table_id, "least": least}).fetchone()
        if row is None:
            break
        holding = next((folder for folder in (*known, *found) if row[0].startswith(folder)), None)
        if holding is None:
            holding = _get_folder(row[0])
            found.append(holding)
        least = f"{holding[:-1]}0"  # the first text that doesn't begin with the folder: 0 comes after /
    return found


def _get_folder(path: str) -> str:
    segments = path.split("/")[:-1]
    partition = next((place for place, segment in enumerate(segments) if "=" in segment), len(segments))
    return "/".join((*segments[:partition], ""))


def find_folder_sharers(cursor: Cursor[Row], table_id: int | None, folder: str) -> list[LocationOwner]:
    """Find the other tables whose own files are in the same folder, as after some renames.

    A dropped table's files may still exist: they belong to its last namespace.
    """
    parameters = {"table_id": -1 if table_id is None else table_id, "folder": folder}
    return [owner for (owner,) in cursor.execute(_FOLDERS_SQL.sharers, parameters).fetchall()]


@dataclass(frozen=True, slots=True)
class LocatedFile:
    """Where DuckLake finds a data file, absolute, and the map of what it calls the columns, None if they have ids.

    row_id_start: the row id of its first row, None if the file holds its row ids.
    """

    data_file_id: int
    path: str
    file_size_bytes: int
    mapping_id: int | None
    row_id_start: int | None


def read_located_files(cursor: Transaction, table_id: int, data_file_ids: Iterable[int]) -> dict[int, LocatedFile]:
    """Read DuckLake's remaining rows of a table's data files, by id."""
    parameters = {"prefix": native.read_path_prefix(cursor, table_id), "data_file_ids": list(data_file_ids)}
    found = (LocatedFile(*row) for row in cursor.execute(_CLONES_SQL.lake_files, parameters).fetchall())
    return {file.data_file_id: file for file in found}


def record_sharing(cursor: Transaction, source_id: int, clone_id: int) -> None:
    """Note that the two share files, in the transaction that makes both say `gc.enabled=false`."""
    cursor.execute(_CLONES_SQL.guard, {"table_ids": [source_id, clone_id]})
    cursor.execute(_CLONES_SQL.share_places, {"source_id": source_id, "clone_id": clone_id})


def is_guarded_by_us(cursor: Transaction, table_id: int) -> bool:
    """Return whether the server itself set the table's `gc.enabled=false`."""
    return cursor.execute(_CLONES_SQL.is_ours, {"table_id": table_id}).fetchone() is not None


def is_sharing(cursor: Transaction, table_id: int) -> bool:
    """Return whether another table needs a file that the table names, or one in its location."""
    row = cursor.execute(_CLONES_SQL.shares, {"table_id": table_id}).fetchone()
    return row is not None and bool(row[0])


def read_guarded_tables(cursor: Transaction) -> Sequence[tuple[int, str, str]]:
    """Read (id, schema, name) of the live tables that the server guards."""
    return cursor.execute(_CLONES_SQL.guarded).fetchall()


def remove_guard(cursor: Transaction, table_id: int) -> None:
    """Note that the server doesn't guard the table any more."""
    cursor.execute(_CLONES_SQL.unguard, {"table_id": table_id})


def read_shared_folders(cursor: Transaction, table_id: int) -> list[str]:
    """Read canonical folders, ending in slashes, of files that the table shares or shared."""
    return [prefix for (prefix,) in cursor.execute(_CLONES_SQL.shared_places, {"table_id": table_id}).fetchall()]


def find_unnamed_files(cursor: Transaction, names: Sequence[str]) -> set[str]:
    """Find the file names that no row has, in any folder: links give a file other paths than its row says."""
    return {name for (name,) in cursor.execute(_GARBAGE_SQL.unnamed, {"names": list(names)}).fetchall()}


def read_metadata_file_names(cursor: Transaction) -> frozenset[str]:
    """Read the names of files that only tables' and views' metadata names."""
    return frozenset(name for (name,) in cursor.execute(_GARBAGE_SQL.named_in_metadata).fetchall())


def read_live_tables(cursor: Transaction) -> dict[str, int]:
    """Read the ids of the live tables that Iceberg clients have seen, by their canonical locations."""
    return dict(cursor.execute(_GARBAGE_SQL.live_tables).fetchall())


def read_foreign_folders(cursor: Transaction) -> frozenset[str]:
    """Read canonical prefixes below which other catalogs may keep files that this one doesn't know."""
    return frozenset(place for (place,) in cursor.execute(_GARBAGE_SQL.foreign_places).fetchall())


def find_unreleased_tables(cursor: Transaction) -> list[int]:
    """Find the ids of live tables that have files of snapshots which have left their history."""
    return [table_id for (table_id,) in cursor.execute(_GARBAGE_SQL.unreleased).fetchall()]
