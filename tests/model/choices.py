"""What operations choose among: which columns, rows and places a table and the lake have for them."""

from collections.abc import Iterable
from pathlib import Path
from random import Random
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from tests.model.lake import NAMESPACES, Lake
from tests.model.model import ID, Column, Row, Table, Version
from tests.model.operations import has_rows
from tests.model.values import WIDER, named

MOST_TABLES = 3
PARTITION_TRANSFORMS = {
    "int": ("{}", "bucket(3, {})"),
    "long": ("{}", "bucket(3, {})"),
    "string": ("{}", "bucket(3, {})"),
    "boolean": ("{}",),
    "date": ("{}", "year({})"),
    "timestamp": ("year({})",),
}


def has_room(table: Table) -> bool:
    return len(table.columns) < 6


def has_values(table: Table) -> bool:
    """Rows with more than their ids."""
    return has_rows(table) and len(table.columns) > 1


def has_keys(table: Table) -> bool:
    return any(column.type in PARTITION_TRANSFORMS for column in table.columns[1:])


def has_more_columns(table: Table) -> bool:
    """A column besides the ids that nothing depends on."""
    return bool(loose(table))


def loose(table: Table) -> list[Column]:
    """Columns that may be dropped or renamed: not the ids, and none that the table is or was partitioned by.

    DuckLake refuses to drop columns that partition, and Iceberg's readers those that partitioned files which are left.
    """
    return [column for column in table.columns if column.key != ID and column.key not in table.ever_partitioned]


def renamable(table: Table) -> list[Column]:
    return [column for column in table.columns if column.key != ID]


def widenable(table: Table) -> list[Column]:
    """Not columns that partition: DuckLake refuses that."""
    return [column for column in loose(table) if column.type in WIDER]


def structs(table: Table) -> list[Column]:
    return [column for column in table.columns if column.children]


def fillable(table: Table) -> list[Column]:
    """Columns without nulls, in whatever may yet become main."""
    versions = [table.main, *table.branches.values(), *table.snapshots.values()]
    return [
        column
        for column in loose(table)
        if column.key not in table.required
        and all(row.get(column.key) is not None for version in versions for row in version.rows.values())
    ]


def quoted(name: str) -> str:
    return f'"{name}"'


def names(columns: Iterable[Column]) -> str:
    return ", ".join(quoted(column.name) for column in columns)


def with_ids(ids: Iterable[int]) -> str:
    return f"id IN ({', '.join(map(str, ids)) or 'NULL'})"


def some_ids(version: Version, random: Random) -> list[int]:
    """Few, many or all of a version's rows; at least one."""
    share = random.choice([0.05, 0.1, 0.5, 1])
    chosen = [id_ for id_ in version.rows if random.random() < share]
    return chosen or [random.choice(list(version.rows))]


def new_place(lake: Lake, random: Random) -> tuple[str, str] | None:
    namespace = random.choice(NAMESPACES)
    free = lake.free_names(namespace)
    return (namespace, random.choice(free)) if free and len(lake.tables) < MOST_TABLES else None


def foreign_file(lake: Lake, table: Table, rows: Iterable[Row], folder: Path) -> Path:
    """A file that somebody else wrote to the folder."""
    path = folder / f"{uuid4()}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = without_ids(lake.catalog.load_table(table.identifier).schema().as_arrow())
    pq.write_table(pa.Table.from_pylist([named(table.columns, row) for row in rows], schema=schema), path)
    return path


def without_ids(schema: pa.Schema) -> pa.Schema:
    return pa.schema([_without_ids(each) for each in schema])


def _without_ids(field: pa.Field) -> pa.Field:
    if pa.types.is_struct(field.type):
        return pa.field(field.name, pa.struct([_without_ids(each) for each in field.type]), field.nullable)
    return pa.field(field.name, field.type, field.nullable)
