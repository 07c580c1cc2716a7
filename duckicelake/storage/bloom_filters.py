"""Bloom filters of Parquet files: whether a file may hold any of a few keys, known without reading its columns."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import duckdb

MOST_KEYS: Final = 64
"""Each is looked up by itself, in a fifth of a millisecond."""
TYPES: Final = frozenset({"INTEGER", "BIGINT", "VARCHAR"})
"""DuckDB's types of columns whose filters are asked."""
_FILTERED = """
SELECT path_in_schema FROM parquet_metadata($file)
GROUP BY path_in_schema HAVING bool_and(bloom_filter_offset IS NOT NULL)
"""
_EXCLUDES = "SELECT coalesce(bool_and(bloom_filter_excludes), false) FROM parquet_bloom_probe($file, $column, $value)"


def rule_out(
    connection: duckdb.DuckDBPyConnection, file: Path, columns: Mapping[int, str], keys: Sequence[tuple[Any, ...]]
) -> bool:
    """Whether no row of the file has one of the keys, as its filters tell; they never tell of nulls.

    columns: names of top-level columns of `TYPES`, by their place in a key. Up to `MOST_KEYS` keys are looked up.
    """
    if not columns or len(keys) > MOST_KEYS:
        return False
    filtered = {name for (name,) in connection.execute(_FILTERED, {"file": str(file)}).fetchall()}
    probed = {place: name for place, name in columns.items() if name in filtered}
    return bool(probed) and all(_is_excluded(connection, file, probed, key) for key in keys)


def _is_excluded(
    connection: duckdb.DuckDBPyConnection, file: Path, columns: Mapping[int, str], key: tuple[Any, ...]
) -> bool:
    parameters = ({"file": str(file), "column": name, "value": key[place]} for place, name in columns.items())
    return any(
        each["value"] is not None and connection.execute(_EXCLUDES, each).fetchall() == [(True,)] for each in parameters
    )
