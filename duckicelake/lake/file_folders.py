"""In which folders a table's files lie, found without reading all of them."""

from collections.abc import Sequence

from psycopg import Cursor

from duckicelake.lake.postgres.database import Row
from duckicelake.lake.postgres.queries import queries

_SQL = queries("file_folders")


def folders_of_files(cursor: Cursor[Row], table_id: int, known: Sequence[str], most: int) -> list[str]:
    """Folders of data, delete and metadata files that the known folders, ending in slashes, don't hold; `most` of them.

    Partitions' folders (`…/day=1/`) are one with the folder that they are in. One index look-up for each folder found.
    """
    found: list[str] = []
    least = ""
    while len(found) < most:
        row = cursor.execute(_SQL.next_place, {"table_id": table_id, "least": least}).fetchone()
        if row is None:
            break
        holding = next((folder for folder in (*known, *found) if row[0].startswith(folder)), None)
        if holding is None:
            holding = _folder_of(row[0])
            found.append(holding)
        least = f"{holding[:-1]}0"  # the first text that doesn't begin with the folder: 0 comes after /
    return found


def _folder_of(path: str) -> str:
    segments = path.split("/")[:-1]
    partition = next((place for place, segment in enumerate(segments) if "=" in segment), len(segments))
    return "/".join((*segments[:partition], ""))


def sharers(cursor: Cursor[Row], table_id: int | None, folder: str) -> list[str | None]:
    """The schemas of other tables whose own files DuckLake keeps in the same folder, as it does after some renames.

    A dropped table's files may be there still: they are its last namespace's.
    """
    parameters = {"table_id": -1 if table_id is None else table_id, "folder": folder}
    return [schema for (schema,) in cursor.execute(_SQL.sharers, parameters).fetchall()]
