"""Read the names and types that columns of a table have had, in files and in DuckLake."""

from collections import defaultdict
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from psycopg import Cursor

from duckicelake.errors import DamagedTableError
from duckicelake.lake.model import MappedName, NameMap
from duckicelake.postgres.queries import Row, load_queries

_SQL = load_queries("lake", "native")


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
    """Read the table's last hundred maps, with their ids, to write none twice: DuckDB reads all maps of a lake."""
    found = _parse_name_maps(cursor.execute(_SQL.newest_name_maps, {"table_id": table_id}).fetchall())
    return {name_map: mapping_id for mapping_id, name_map in found.items()}


def _parse_name_maps(rows: Sequence[Row]) -> dict[int, NameMap]:
    """Build maps from rows of a mapping's id and one of its names."""
    found: defaultdict[int, list[MappedName]] = defaultdict(list)
    for mapping_id, *name in rows:
        found[mapping_id].append(MappedName(*name))
    return {mapping_id: NameMap(tuple(names)) for mapping_id, names in found.items()}


def read_column_types(cursor: Cursor[Row], table_id: int) -> frozenset[str]:
    """Read the types that columns of the table ever had."""
    return frozenset(row[0] for row in cursor.execute(_SQL.column_types, {"table_id": table_id}).fetchall())


def read_column_types_by_id(cursor: Cursor[Row], table_id: int) -> dict[int, frozenset[str]]:
    """Read the types of columns and fields that had several, without structs, lists and maps."""
    rows = cursor.execute(_SQL.column_types_by_id, {"table_id": table_id}).fetchall()
    return {column_id: frozenset(types) for column_id, types in rows}


def has_had_dotted_names(cursor: Cursor[Row], table_id: int) -> bool:
    """Return whether a table ever had a field whose name begins as the full name of a nested field."""
    return cursor.execute(_SQL.had_dotted_names, {"table_id": table_id}).fetchone() == (True,)
