"""What DuckDB does to rows and files with the lake's catalog attached, knowing nothing of Iceberg."""

from collections.abc import Iterable
from random import Random

import duckdb

from tests.model.choices import foreign_file, has_values, names, quoted, some_ids, with_ids
from tests.model.lake import Lake
from tests.model.model import ID, Column, Row, Table, Version
from tests.model.operations import Client, has_rows
from tests.model.values import literal, some_value, tuples

DUCKDB = Client("duckdb")


def insert_sql(table: Table, rows: Iterable[Row]) -> str:
    return f"INSERT INTO {table.in_duckdb} ({names(table.columns)}) VALUES {tuples(table.columns, rows)}"


def changed(table: Table, column: Column, value: object, ids: Iterable[int]) -> Version:
    return table.main.having(*({**table.rows[id_], column.key: value} for id_ in ids))


@DUCKDB.may(weight=6)
def insert_few(lake: Lake, table: Table, random: Random) -> None:
    """So few that they are inlined."""
    rows = lake.new_rows(table, random.randint(1, 4), random)
    lake.sql(insert_sql(table, rows))
    table.main = table.main.having(*rows)


@DUCKDB.may(weight=4)
def insert_many(lake: Lake, table: Table, random: Random) -> None:
    """So many that they make a file."""
    rows = lake.new_rows(table, random.randint(11, 14), random)
    lake.sql(insert_sql(table, rows))
    table.main = table.main.having(*rows)


@DUCKDB.may(weight=5, when=has_rows)
def delete(lake: Lake, table: Table, random: Random) -> None:
    ids = some_ids(table.main, random)
    lake.sql(f"DELETE FROM {table.in_duckdb} WHERE {with_ids(ids)}")
    table.main = table.main.lacking(ids)


@DUCKDB.may(weight=2, when=has_rows)
def delete_newest(lake: Lake, table: Table, random: Random) -> None:
    """Those that are inlined, or a whole file."""
    ids = sorted(table.rows)[-random.randint(1, 14) :]
    lake.sql(f"DELETE FROM {table.in_duckdb} WHERE id >= {ids[0]}")
    table.main = table.main.lacking(ids)


@DUCKDB.may(weight=5, when=has_values)
def update(lake: Lake, table: Table, random: Random) -> None:
    column, ids = random.choice(table.columns[1:]), some_ids(table.main, random)
    value = some_value(column, random, required=column.key in table.required)
    lake.sql(f"UPDATE {table.in_duckdb} SET {quoted(column.name)} = {literal(column, value)} WHERE {with_ids(ids)}")
    table.main = changed(table, column, value, ids)


@DUCKDB.may(weight=2, when=has_values)
def merge_into(lake: Lake, table: Table, random: Random) -> None:
    """Update the rows that are there, insert the others."""
    known = [{**lake.new_row(table, random), ID: id_} for id_ in some_ids(table.main, random)[:5]]
    rows = known + lake.new_rows(table, random.randint(0, 3), random)
    sets = ", ".join(f"{quoted(column.name)} = s.{quoted(column.name)}" for column in table.columns[1:])
    values = ", ".join(f"s.{quoted(column.name)}" for column in table.columns)
    lake.sql(
        f"MERGE INTO {table.in_duckdb} AS t USING (VALUES {tuples(table.columns, rows)}) AS s({names(table.columns)}) "
        f"ON t.id = s.id WHEN MATCHED THEN UPDATE SET {sets} "
        f"WHEN NOT MATCHED THEN INSERT ({names(table.columns)}) VALUES ({values})"
    )
    table.main = table.main.having(*rows)


@DUCKDB.may(when=has_rows)
def truncate(lake: Lake, table: Table, random: Random) -> None:
    lake.sql(f"TRUNCATE {table.in_duckdb}" if random.random() < 0.5 else f"DELETE FROM {table.in_duckdb}")
    table.main = table.main.lacking(table.rows)


@DUCKDB.may(weight=3, when=has_rows)
def several_statements(lake: Lake, table: Table, random: Random) -> None:
    """One transaction that inserts, updates what it inserted, and deletes."""
    lake.sql("BEGIN")
    for _ in range(random.randint(2, 4)):
        possible = [insert_few, insert_many]
        possible += [delete, delete_newest] if has_rows(table) else []
        possible += [update] if has_values(table) else []
        random.choice(possible)(lake, table, random)
    lake.sql("COMMIT")


@DUCKDB.may(tables_needed=2)
def several_tables(lake: Lake, table: Table, random: Random) -> None:
    """One transaction, so one DuckLake snapshot, of two tables."""
    other = random.choice([each for each in lake.tables if each is not table])
    lake.sql("BEGIN")
    for each in (table, other):
        random.choice([insert_few, delete])(lake, each, random) if each.rows else insert_many(lake, each, random)
    lake.sql("COMMIT")


@DUCKDB.may()
def roll_back(lake: Lake, table: Table, random: Random) -> None:
    rows = lake.new_rows(table, random.choice([2, 12]), random)
    lake.sql("BEGIN", insert_sql(table, rows), f"DELETE FROM {table.in_duckdb}", "ROLLBACK")


@DUCKDB.may(when=lambda table: not table.partitioned and table.names_mean_one)
def add_data_files(lake: Lake, table: Table, random: Random) -> None:
    """A file that somebody else wrote, without field ids.

    Not where a name has meant two columns, nor into partitions whose values its folder doesn't say (MISSING.md).
    """
    rows = lake.new_rows(table, random.randint(1, 12), random)
    path = foreign_file(lake, table, rows, lake.data_folder(table))
    options = f"schema => '{table.namespace}', allow_missing => true"
    lake.sql(f"CALL ducklake_add_data_files('lake', '{table.name}', '{path}', {options})")
    table.main = table.main.having(*rows)
    table.files_without_ids = True


# Maintenance


@DUCKDB.may(weight=4, when=lambda table: not table.is_partitioned_by_text)
def flush(lake: Lake, table: Table, random: Random) -> None:
    lake.sql(
        f"CALL ducklake_flush_inlined_data('lake', schema_name => '{table.namespace}', table_name => '{table.name}')"
    )


@DUCKDB.may(weight=3)
def merge_files(lake: Lake, table: Table, random: Random) -> None:
    """DuckDB 1.5 forgets the row ids in files of updated rows if it merges them with the files after them."""
    lake.sql(f"CALL ducklake_merge_adjacent_files('lake', '{table.name}', schema => '{table.namespace}')")
    table.row_ids = {}


@DUCKDB.may(weight=2)
def rewrite_files(lake: Lake, table: Table, random: Random) -> None:
    """DuckDB 1.5 fails, and changes nothing, where rows were inlined before a column got its name."""
    options = f"schema => '{table.namespace}', delete_threshold => {random.choice([0, 0.5])}"
    try:
        lake.sql(f"CALL ducklake_rewrite_data_files('lake', '{table.name}', {options})")
    except duckdb.TransactionException as error:
        if "inlined-data aggregates" not in str(error):
            raise
    else:
        table.rewritten = True


@DUCKDB.may()
def expire_some(lake: Lake, _: Table, random: Random) -> None:
    """All but the newest snapshots of the lake."""
    keep = lake.newest() - random.randint(0, 6)
    old = [id_ for (id_,) in lake.catalog_rows("SELECT snapshot_id FROM ducklake_snapshot") if id_ < keep]
    if old:
        lake.sql(f"CALL ducklake_expire_snapshots('lake', versions => {sorted(old)})")


@DUCKDB.may()
def expire_and_clean(lake: Lake, _: Table, random: Random) -> None:
    """Forget all that DuckDB may, and delete every file that it thinks nobody needs."""
    lake.sql(
        "CALL ducklake_expire_snapshots('lake', older_than => now() + INTERVAL 1 HOUR)",
        "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)",
        "CALL ducklake_delete_orphaned_files('lake', cleanup_all => true)",
    )


@DUCKDB.may()
def checkpoint(lake: Lake, _: Table, random: Random) -> None:
    if any(table.is_partitioned_by_text for table in lake.tables):
        return
    lake.sql("CHECKPOINT lake")
    for each in lake.tables:
        each.rewritten = True
        each.row_ids = {}
