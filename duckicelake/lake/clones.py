"""What tables share: which of them the server keeps from engines that delete files, and where shared files lie."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from duckicelake.lake import native
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lake.postgres.queries import queries

_SQL = queries("clones")


@dataclass(frozen=True, slots=True)
class LakeFile:
    """Where DuckLake finds a data file, absolute, and the map of what it calls the columns, None if they have ids."""

    data_file_id: int
    path: str
    file_size_bytes: int
    mapping_id: int | None


def lake_files(cursor: Transaction, table_id: int, data_file_ids: Iterable[int]) -> dict[int, LakeFile]:
    """DuckLake's rows of a table's data files, by id; those that it still has."""
    parameters = {"prefix": native.path_prefix(cursor, table_id), "data_file_ids": list(data_file_ids)}
    found = (LakeFile(*row) for row in cursor.execute(_SQL.lake_files, parameters).fetchall())
    return {file.data_file_id: file for file in found}


def share(cursor: Transaction, source_id: int, clone_id: int) -> None:
    """Note that the two share files, in the transaction that makes both say `gc.enabled=false`."""
    cursor.execute(_SQL.guard, {"table_ids": [source_id, clone_id]})
    cursor.execute(_SQL.share_places, {"source_id": source_id, "clone_id": clone_id})


def is_guarded_by_us(cursor: Transaction, table_id: int) -> bool:
    """Whether it was the server that made the table say `gc.enabled=false`."""
    return cursor.execute(_SQL.is_ours, {"table_id": table_id}).fetchone() is not None


def shares(cursor: Transaction, table_id: int) -> bool:
    """Whether another table needs a file that the table names, or one in its location."""
    row = cursor.execute(_SQL.shares, {"table_id": table_id}).fetchone()
    return row is not None and bool(row[0])


def guarded(cursor: Transaction) -> Sequence[tuple[int, str, str]]:
    """(id, schema, name) of the live tables that the server guards."""
    return cursor.execute(_SQL.guarded).fetchall()


def unguard(cursor: Transaction, table_id: int) -> None:
    """Note that the server doesn't guard the table any more."""
    cursor.execute(_SQL.unguard, {"table_id": table_id})


def shared_places(cursor: Transaction, table_id: int) -> list[str]:
    """Canonical folders, each ending in /, in which files lie that the table shares or shared."""
    return [prefix for (prefix,) in cursor.execute(_SQL.shared_places, {"table_id": table_id}).fetchall()]
