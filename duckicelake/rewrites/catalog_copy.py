"""A copy of what a DuckLake catalog has of one table, for the process that reads the table's files.

DuckDB keeps its transaction in Postgres open for as long as a statement reads files. Meanwhile Postgres cleans up no
row that others change: a writer of small batches changes the same rows of the catalog each time, and gets slower and
slower. So a process copies the table's catalog into a file of its own, in a fifth of a second or less, and reads it.
A copy also leaves out files that DuckDB can't open: it opens all of a table, whichever it is asked for.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from duckicelake.bridge.values.types import quote_identifier
from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.services import Services
from duckicelake.lake.ducklake.database import build_attach_source
from duckicelake.lake.setup.format import list_tables_of
from duckicelake.query.processes import OpenOrder
from duckicelake.rewrites.source import TABLE_COPY, quote

_SOURCE: Final = "lake_in_postgres"
_EMPTY: Final = frozenset(
    {"ducklake_inlined_data_tables", "ducklake_files_scheduled_for_deletion", "ducklake_file_column_stats"}
)
"""Tables of which the copy has no rows: it has files alone, as DuckLake writes inlined rows otherwise in Postgres."""


def attach_postgres(services: Services, order: OpenOrder) -> OpenOrder:
    """Let a process attach the Postgres of the lake, too, from which it copies catalogs."""
    source = build_attach_source(services.database.url).removeprefix("ducklake:postgres:")
    attach = f"ATTACH {quote(source)} AS {_SOURCE} (TYPE postgres, READ_ONLY)"
    return replace(order, statements=(*order.statements, attach))


def describe_copy(services: Services, version: TableVersion, hidden: Collection[int] = ()) -> Mapping[str, Any]:
    """Describe a copy of a table's catalog as of a version: which rows of which tables.

    hidden: DuckLake's ids of the data files that the copy hasn't.
    """
    with services.database.statement(only_reads=True) as cursor:
        tables = list_tables_of(cursor, version.row.table_id)
    queries = {
        name: f"SELECT * FROM {quote_identifier(schema)}.{quote_identifier(name)} "
        f"WHERE {_write_condition(schema, name, columns, version, hidden)}"
        for schema, name, columns in tables
    }
    return {"source": _SOURCE, "copy": TABLE_COPY, "queries": queries}


def _write_condition(
    schema: str, name: str, columns: Collection[str], version: TableVersion, hidden: Collection[int]
) -> str:
    """Write which rows of a table of DuckLake's the copy has: those of the version, of files those that it has."""
    if name in _EMPTY:
        return "false"
    table, at = version.row.table_id, version.lake_snapshot
    is_there = f"begin_snapshot <= {at} AND (end_snapshot IS NULL OR end_snapshot > {at})"
    files = f"FROM {quote_identifier(schema)}.ducklake_data_file WHERE table_id = {table} AND {is_there}"
    if hidden:
        files += f" AND data_file_id NOT IN ({', '.join(map(str, sorted(hidden)))})"
    conditions = ["true"]
    if "table_id" in columns:
        conditions.append(f"(table_id = {table} OR table_id IS NULL)")
    if "begin_snapshot" in columns and "end_snapshot" in columns:
        conditions.append(is_there)
    if "data_file_id" in columns:
        conditions.append(f"data_file_id IN (SELECT data_file_id {files})")
    if name == "ducklake_name_mapping":
        conditions.append(f"mapping_id IN (SELECT mapping_id {files})")
    if "snapshot_id" in columns:
        conditions.append(f"snapshot_id = {at}")
    return " AND ".join(conditions)
