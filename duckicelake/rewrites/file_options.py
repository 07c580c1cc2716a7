"""PURE. How DuckDB writes the files of rewrites: field ids, columns of row lineage, codec and Bloom filters."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from duckicelake.bridge.values.columns import to_columns
from duckicelake.bridge.values.types import build_field_ids, quote_identifier, to_duckdb_type
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, TableMetadata
from duckicelake.lake.model import Column, find_children
from duckicelake.maintenance.policy import find_filter_columns
from duckicelake.parquet.copy import PARQUET_FORMAT, ROW_ID_FIELD_ID, SEQUENCE_NUMBER_FIELD_ID
from duckicelake.properties import BLOOM_FILTER_FPP_PREFIX, COMPRESSION_CODEC

ROW_ID: Final = "_row_id"
LAST_UPDATED: Final = "_last_updated_sequence_number"
"""Iceberg's names of the columns of row lineage."""
_ROW_GROUP_ROWS: Final = 122_880
"""DuckDB's default."""
_WIDE_ROWS: Final = 16_384
_DICTIONARY_BYTES: Final = 64 * 1024 * 1024
_FALSE_POSITIVES: Final = 0.01
"""Iceberg's default."""
_WIDENED: Final = frozenset({"int32", "int64", "decimal(20,0)", "timestamp"})
"""Types of Iceberg's, as DuckLake has them, for narrower ones that Iceberg's readers misread."""
_CODECS: Final = {"lz4": "lz4_raw"} | {
    name: name for name in ("uncompressed", "snappy", "gzip", "zstd", "brotli", "lz4_raw")
}
"""DuckDB's names by Iceberg's."""


def write_columns(metadata: TableMetadata) -> list[str]:
    """Write the SQL of the columns of a table called t, in the types that Iceberg reads.

    DuckLake may have narrower ones, as UBIGINT, which DuckDB would write in a way that Iceberg's readers misread.
    """
    columns, written = to_columns(metadata.schema()), []
    for column in find_children(columns, None):
        name = quote_identifier(column.column_name)
        is_cast = not _WIDENED.isdisjoint(_find_leaf_types(column, columns))
        written.append(f"CAST(t.{name} AS {to_duckdb_type(column, columns)}) AS {name}" if is_cast else f"t.{name}")
    return written


def _find_leaf_types(column: Column, columns: Sequence[Column]) -> set[str]:
    children = find_children(columns, column.column_id)
    if not children:
        return {column.column_type}
    return {type_ for child in children for type_ in _find_leaf_types(child, columns)}


def write_file_options(metadata: TableMetadata, codec: str, *, has_wide_rows: bool) -> str:
    """Write the options of DuckDB's COPY. Raises InvalidRequestError for an unknown codec of the table's.

    codec: of tables that name none. The rows have the table's columns, the row id, and from format version 3 on when
    they were last updated. has_wide_rows: row groups have fewer, as a thread holds all of one.
    """
    row_group = f", ROW_GROUP_SIZE {_WIDE_ROWS}" if has_wide_rows else ""
    return (
        f"{PARQUET_FORMAT}, COMPRESSION {_find_codec(metadata, codec)}, FIELD_IDS {_write_field_ids(metadata)}"
        f"{row_group}{_write_filter_options(metadata)}"
    )


def _write_field_ids(metadata: TableMetadata) -> str:
    columns = to_columns(metadata.schema())
    ids = [
        f"{quote_identifier(one.column_name)}: {build_field_ids(one, columns)}" for one in find_children(columns, None)
    ]
    ids.append(f"{ROW_ID}: {ROW_ID_FIELD_ID}")
    if metadata.format_version >= ROW_LINEAGE_VERSION:
        ids.append(f"{LAST_UPDATED}: {SEQUENCE_NUMBER_FIELD_ID}")
    return f"{{{', '.join(ids)}}}"


def _find_codec(metadata: TableMetadata, default: str) -> str:
    """Return DuckDB's name of the table's codec, or the default if it has none. Raises InvalidRequestError."""
    name = metadata.properties.get(COMPRESSION_CODEC)
    if name is None:
        return default
    if name.lower() not in _CODECS:
        known = ", ".join(sorted(_CODECS))
        raise InvalidRequestError(
            f"The table's {COMPRESSION_CODEC} is {name!r}: rewrites write {known}. Set one of these"
        )
    return _CODECS[name.lower()]


def _write_filter_options(metadata: TableMetadata) -> str:
    """Have DuckDB write Bloom filters if the table wants one of any column.

    DuckDB writes them of columns with a dictionary alone, and has no option for one column: all get a dictionary of up
    to as many values as a row group has rows.
    """
    named = find_filter_columns(metadata.properties)
    if not named:
        return ""
    ratio = min(_parse_ratio(metadata.properties.get(f"{BLOOM_FILTER_FPP_PREFIX}{name}", "")) for name in named)
    return (
        f", DICTIONARY_SIZE_LIMIT {_ROW_GROUP_ROWS}, STRING_DICTIONARY_PAGE_SIZE_LIMIT {_DICTIONARY_BYTES}, "
        f"BLOOM_FILTER_FALSE_POSITIVE_RATIO {ratio}"
    )


def _parse_ratio(text: str) -> float:
    """Parse a share between 0 and 1; Iceberg's default for what is none."""
    with suppress(ValueError):
        if 0 < (ratio := float(text)) < 1:
            return ratio
    return _FALSE_POSITIVES
