"""What DuckDB does to tables and their columns: every kind of DDL that it has for a lake."""

from dataclasses import replace
from random import Random

import duckdb

from tests.model.choices import (
    PARTITION_TRANSFORMS,
    fillable,
    has_keys,
    has_more_columns,
    has_room,
    loose,
    names,
    new_place,
    quoted,
    renamable,
    structs,
    widenable,
)
from tests.model.lake import FIELD_TYPES, Lake
from tests.model.model import Table
from tests.model.operations import Client
from tests.model.operations_duckdb import insert_sql
from tests.model.values import WIDER, definition, plain_literal, some_value, sql_type, tuples

DUCKDB_TABLES = Client("duckdb")


@DUCKDB_TABLES.may(weight=2, when=lambda _: True)
def create(lake: Lake, _: Table, random: Random) -> None:
    if place := new_place(lake, random):
        columns = lake.new_columns(random)
        lake.sql(f"CREATE TABLE lake.{'.'.join(place)} ({definition(columns)})")
        lake.add_table(*place, columns, 2)


@DUCKDB_TABLES.may(tables_needed=0)
def create_as(lake: Lake, _: Table, random: Random) -> None:
    if place := new_place(lake, random):
        columns = lake.new_columns(random)
        table = lake.add_table(*place, columns, 2)
        rows = lake.new_rows(table, random.choice([3, 12]), random)
        lake.sql(f"CREATE TABLE {table.in_duckdb} AS FROM (VALUES {tuples(columns, rows)}) AS s({names(columns)})")
        table.main = table.main.having(*rows)


@DUCKDB_TABLES.may(tables_needed=2)
def drop(lake: Lake, table: Table, random: Random) -> None:
    lake.sql(f"DROP TABLE {table.in_duckdb}")
    lake.tables.remove(table)


@DUCKDB_TABLES.may()
def drop_and_create_again(lake: Lake, table: Table, random: Random) -> None:
    columns = lake.new_columns(random)
    lake.tables.remove(table)
    again = lake.add_table(table.namespace, table.name, columns, 2)
    statements = [f"DROP TABLE {table.in_duckdb}", f"CREATE TABLE {table.in_duckdb} ({definition(columns)})"]
    rows = lake.new_rows(again, random.choice([2, 12]), random)
    (lake.together if random.random() < 0.5 else lake.sql)(*statements, insert_sql(again, rows))
    again.main = again.main.having(*rows)


@DUCKDB_TABLES.may()
def rename(lake: Lake, table: Table, random: Random) -> None:
    if free := lake.free_names(table.namespace):
        name = random.choice(free)
        lake.sql(f"ALTER TABLE {table.in_duckdb} RENAME TO {name}")
        table.name = name


@DUCKDB_TABLES.may(tables_needed=0)
def create_view(lake: Lake, _: Table, random: Random) -> None:
    name = f"view{len(lake.views)}"
    lake.sql(f"CREATE OR REPLACE VIEW lake.ns.{name} AS SELECT {random.randint(1, 9)} AS n")
    lake.views.add(name)


@DUCKDB_TABLES.may(when=lambda _: True)
def drop_view(lake: Lake, _: Table, random: Random) -> None:
    if lake.views:
        name = random.choice(sorted(lake.views))
        lake.sql(f"DROP VIEW lake.ns.{name}")
        lake.views.remove(name)


@DUCKDB_TABLES.may()
def macros(lake: Lake, table: Table, random: Random) -> None:
    """Iceberg knows no macros; they must not be in the way."""
    lake.sql("CREATE MACRO lake.ns.twice(x) AS x * 2", "DROP MACRO lake.ns.twice")


# Columns


@DUCKDB_TABLES.may(weight=2, when=has_room)
def add_column(lake: Lake, table: Table, random: Random) -> None:
    column = lake.new_column(table.columns, random, unheard=table.files_without_ids)
    if column.type in {"int", "long", "string"} and random.random() < 0.6:
        column = replace(column, default=some_value(column, random, required=True))
    default = f" DEFAULT {plain_literal(column.default)}" if column.default is not None else ""
    lake.sql(f"ALTER TABLE {table.in_duckdb} ADD COLUMN {quoted(column.name)} {sql_type(column)}{default}")
    table.lacks_names |= table.files_without_ids
    table.reshape((*table.columns, column))


@DUCKDB_TABLES.may(when=has_more_columns)
def drop_column(lake: Lake, table: Table, random: Random) -> None:
    column = random.choice(loose(table))
    lake.sql(f"ALTER TABLE {table.in_duckdb} DROP COLUMN {quoted(column.name)}")
    table.forget(column)


@DUCKDB_TABLES.may(when=lambda table: bool(renamable(table)))
def rename_column(lake: Lake, table: Table, random: Random) -> None:
    column = random.choice(renamable(table))
    name = lake.new_column(table.columns, random, unheard=table.files_without_ids).name
    lake.sql(f"ALTER TABLE {table.in_duckdb} RENAME COLUMN {quoted(column.name)} TO {quoted(name)}")
    table.change(replace(column, name=name))


@DUCKDB_TABLES.may(when=lambda table: bool(widenable(table)))
def widen_type(lake: Lake, table: Table, random: Random) -> None:
    column = random.choice(widenable(table))
    wider = replace(column, type=WIDER[column.type])
    lake.sql(f"ALTER TABLE {table.in_duckdb} ALTER COLUMN {quoted(column.name)} SET DATA TYPE {sql_type(wider)}")
    table.change(wider)


@DUCKDB_TABLES.may(when=lambda table: bool(structs(table)))
def add_field(lake: Lake, table: Table, random: Random) -> None:
    parent = random.choice(structs(table))
    if len(parent.children) < 4:
        child = lake.new_column(parent.children, random, FIELD_TYPES, unheard=table.files_without_ids)
        path = f"{quoted(parent.name)}.{quoted(child.name)}"
        lake.sql(f"ALTER TABLE {table.in_duckdb} ADD COLUMN {path} {sql_type(child)}")
        table.lacks_names |= table.files_without_ids
        table.change(replace(parent, children=(*parent.children, child)))


@DUCKDB_TABLES.may(when=lambda table: bool(structs(table)))
def rename_field(lake: Lake, table: Table, random: Random) -> None:
    parent = random.choice(structs(table))
    child, name = (
        random.choice(parent.children),
        lake.new_column(parent.children, random, unheard=table.files_without_ids).name,
    )
    path = f"{quoted(parent.name)}.{quoted(child.name)}"
    lake.sql(f"ALTER TABLE {table.in_duckdb} RENAME COLUMN {path} TO {quoted(name)}")
    children = tuple(replace(each, name=name) if each == child else each for each in parent.children)
    table.change(replace(parent, children=children))


@DUCKDB_TABLES.may(when=lambda table: bool(structs(table)))
def drop_field(lake: Lake, table: Table, random: Random) -> None:
    parent = random.choice(structs(table))
    if len(parent.children) > 1:
        child = random.choice(parent.children)
        path = f"{quoted(parent.name)}.{quoted(child.name)}"
        lake.sql(f"ALTER TABLE {table.in_duckdb} DROP COLUMN {path}")
        table.change(replace(parent, children=tuple(each for each in parent.children if each != child)))


@DUCKDB_TABLES.may(when=lambda table: bool(fillable(table)))
def set_not_null(lake: Lake, table: Table, random: Random) -> None:
    """DuckDB refuses it where it has no statistics of the column, as of columns that were added to rows."""
    column = random.choice(fillable(table))
    try:
        lake.sql(f"ALTER TABLE {table.in_duckdb} ALTER COLUMN {quoted(column.name)} SET NOT NULL")
    except duckdb.CatalogException as error:
        if "stats are available" not in str(error):
            raise
    else:
        table.required |= {column.key}


@DUCKDB_TABLES.may(when=lambda table: bool(table.required))
def drop_not_null(lake: Lake, table: Table, random: Random) -> None:
    column = table.main.column(random.choice(sorted(table.required)))
    lake.sql(f"ALTER TABLE {table.in_duckdb} ALTER COLUMN {quoted(column.name)} DROP NOT NULL")
    table.required -= {column.key}


# What else a table has


@DUCKDB_TABLES.may()
def comment_on_table(lake: Lake, table: Table, random: Random) -> None:
    table.comments[None] = f"it's {random.randint(1, 99)}"
    lake.sql(f"COMMENT ON TABLE {table.in_duckdb} IS '{table.comments[None].replace(chr(39), chr(39) * 2)}'")


@DUCKDB_TABLES.may()
def comment_on_column(lake: Lake, table: Table, random: Random) -> None:
    column = random.choice(table.columns)
    table.comments[column.key] = f"column {random.randint(1, 99)}"
    lake.sql(f"COMMENT ON COLUMN {table.in_duckdb}.{quoted(column.name)} IS '{table.comments[column.key]}'")


@DUCKDB_TABLES.may(when=has_keys)
def partition(lake: Lake, table: Table, random: Random) -> None:
    """Not by the ids, by whose values statements find their rows: see `some_cell`."""
    known = [column for column in table.columns[1:] if column.type in PARTITION_TRANSFORMS]
    chosen = random.sample(known, min(len(known), random.randint(1, 2)))
    keys = [(column, random.choice(PARTITION_TRANSFORMS[column.type])) for column in chosen]
    fields = ", ".join(transform.format(quoted(column.name)) for column, transform in keys)
    lake.sql(f"ALTER TABLE {table.in_duckdb} SET PARTITIONED BY ({fields})")
    table.partition_by(tuple((column.key, transform) for column, transform in keys))


@DUCKDB_TABLES.may(when=lambda table: bool(table.partitioned))
def reset_partitions(lake: Lake, table: Table, random: Random) -> None:
    lake.sql(f"ALTER TABLE {table.in_duckdb} RESET PARTITIONED BY")
    table.partition_by(())


@DUCKDB_TABLES.may()
def sort(lake: Lake, table: Table, random: Random) -> None:
    direction = random.choice(["ASC", "DESC"])
    lake.sql(f"ALTER TABLE {table.in_duckdb} SET SORTED BY (id {direction})")


@DUCKDB_TABLES.may()
def reset_sort(lake: Lake, table: Table, random: Random) -> None:
    lake.sql(f"ALTER TABLE {table.in_duckdb} RESET SORTED BY")
