"""A DuckLake catalog of one table without some of its files, for a process that reads the others.

DuckDB opens all files of a table, whichever it is asked for: one that is missing, or whose footer is damaged, fails
every read of the table. So a process copies what Postgres has of the table into a file of its own, without those files,
and attaches that.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from duckicelake.bridge.values.types import quote_identifier
from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.services import Services
from duckicelake.lake.ducklake.database import build_attach_source
from duckicelake.lake.setup.format import list_tables_of
from duckicelake.query.processes import OpenOrder
from duckicelake.query.statement import LAKE
from duckicelake.rewrites.source import quote

_SOURCE: Final = "lake_in_postgres"
_COPY: Final = "intact"
_FILE: Final = "intact.db"
_EMPTY: Final = frozenset({"ducklake_inlined_data_tables", "ducklake_files_scheduled_for_deletion"})
"""Tables of which the copy has no rows: rewrites read files alone."""


def attach_copy(services: Services, order: OpenOrder, version: TableVersion, hidden: Collection[int]) -> OpenOrder:
    """Let a process attach a copy of a table's catalog, as of a version, in place of the lake's.

    hidden: DuckLake's ids of the data files that the copy hasn't.
    """
    with services.database.statement(only_reads=True) as cursor:
        tables = list_tables_of(cursor, version.row.table_id)
    source = build_attach_source(services.database.url).removeprefix("ducklake:postgres:")
    statements = [
        f"ATTACH {quote(source)} AS {_SOURCE} (TYPE postgres, READ_ONLY)",
        f"ATTACH {quote(_FILE)} AS {_COPY}",
        "BEGIN",
    ]
    for schema, name, columns in tables:
        condition = _write_condition(schema, name, columns, version, hidden)
        read = f"SELECT * FROM {quote_identifier(schema)}.{quote_identifier(name)} WHERE {condition}"
        statements.append(
            f"CREATE TABLE {_COPY}.{quote_identifier(name)} AS FROM postgres_query('{_SOURCE}', {quote(read)})"
        )
    statements += [
        "COMMIT",
        f"DETACH {_COPY}",
        f"DETACH {_SOURCE}",
        f"ATTACH {quote(f'ducklake:{_FILE}')} AS {LAKE} (READ_ONLY)",
    ]
    return replace(order, statements=tuple(statements))


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
