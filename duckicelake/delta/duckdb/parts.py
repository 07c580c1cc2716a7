"""Which files of a table are read alike: each part is one scan of what DuckDB is asked for."""

from collections.abc import Iterable, Sequence
from typing import Final

from pyroaring import BitMap64

from duckicelake.delta.duckdb.log import LiveFile, Table
from duckicelake.delta.duckdb.scan import Part
from duckicelake.delta.duckdb.store import DuckStore, escaped
from duckicelake.delta.duckdb.types import has_instants
from duckicelake.delta.log import DeltaLog

_UTC: Final = frozenset({"UTC", "Etc/UTC"})
_MOST_CONSTANTS: Final = 32
"""Sets of partition values, each of which may have a scan of its own; a scan of several finds them by a join."""


def parts_of(table: Table, files: Sequence[LiveFile], zone: str) -> list[Part]:
    """The files in parts, `zone` being the session's; those with deleted rows are apart from those without."""
    old = _with_int96(table, files, zone)
    few = len({tuple(file.partition_values) for file in files}) <= _MOST_CONSTANTS
    parts: dict[tuple[object, ...], list[LiveFile]] = {}
    for file in files:
        values = tuple(file.partition_values) if few else ()
        parts.setdefault((values, file.vector is not None, file.location in old), []).append(file)
    return [Part(alike, _deleted(table, alike), key[-1] is True) for key, alike in parts.items()]


def _with_int96(table: Table, files: Sequence[LiveFile], zone: str) -> set[str]:
    """Files with instants that DuckDB would take for ones of the session's zone: footers tell, if that isn't UTC."""
    if not files or zone in _UTC or not any(has_instants(each.type) for each in table.data_columns):
        return set()
    patterns = [escaped(file.location) for file in files]
    query = "SELECT DISTINCT file_name FROM parquet_schema(?) WHERE type = 'INT96'"
    return {name for (name,) in table.connection.execute(query, [patterns]).fetchall()}


def _deleted(table: Table, files: Sequence[LiveFile]) -> list[tuple[int, Iterable[int]]]:
    """The positions by each file's index, for those that have a vector."""
    vectors = [(index, file.vector, file.location) for index, file in enumerate(files) if file.vector is not None]
    if not vectors:
        return []
    log = DeltaLog(DuckStore(table.connection), table.root)
    return [(index, BitMap64.deserialize(log.positions(vector, location))) for index, vector, location in vectors]
