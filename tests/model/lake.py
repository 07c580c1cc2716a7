"""The lake under test with its three clients, and the model beside it."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import duckdb
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable

from duckicelake.catalog import tables
from duckicelake.catalog.context.services import Services
from duckicelake.iceberg.rest import CommitTableRequest
from tests.model.model import ID, Column, Row, Shown, Table, Version
from tests.model.reader import Reader
from tests.model.values import some_value
from tests.support.client import Json, local
from tests.support.seams import fresh

NAMESPACES = ("ns", "other")
COLUMN_NAMES = ("a", "b", "c", "d", "e", "f", "order", "Größe")
TABLE_NAMES = ("t", "u", "v", "w")
FIELD_TYPES = ("int", "string", "double")
"""Of fields of structs: DuckDB 1.5 can't read the dates, timestamps and decimals that it inlines in them."""
SIMPLE_TYPES = ("int", "long", "float", "double", "string", "boolean", "date", "timestamp", "decimal(5, 2)")


@dataclass(slots=True)
class Lake:
    """One lake. `log` says what was done, in words or statements that can be done again.

    `attach` gives one more DuckDB, to look at old versions: DuckDB 1.5 may have them wrong after it has rewritten
    files, as it then remembers today's columns as those of before, or after another one has flushed rows.
    """

    services: Services
    duck: duckdb.DuckDBPyConnection
    attach: Callable[[], duckdb.DuckDBPyConnection]
    catalog: Catalog
    format_version: int
    tables: list[Table] = field(default_factory=list)
    views: set[str] = field(default_factory=set)
    reader: Reader = field(default_factory=Reader)
    log: list[str] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: count(10))
    newest_checked: int = 0

    # DuckDB

    def sql(self, *statements: str) -> None:
        for statement in statements:
            self.log.append(f"duckdb {statement}")
            self.duck.execute(statement).fetchall()

    def together(self, *statements: str) -> None:
        """Run the statements as one transaction."""
        self.sql("BEGIN", *statements, "COMMIT")

    def duckdb_now(self, table: Table) -> Shown:
        return duckdb_shown(self.duck, table.in_duckdb)

    def duckdb_value(self, query: str) -> Any:
        ((value,),) = self.duck.execute(query).fetchall()
        return value

    def catalog_rows(self, query: str, parameters: Any = None) -> list[tuple[Any, ...]]:
        """Rows of the tables in Postgres."""
        with self.services.database.reading() as cursor:
            return [tuple(row) for row in cursor.execute(query, parameters).fetchall()]

    def newest(self) -> int:
        return int(self.catalog_rows("SELECT max(snapshot_id) FROM ducklake_snapshot")[0][0])

    # Iceberg

    def load(self, table: Table, *, restarted: bool = False) -> Json:
        services = fresh(self.services) if restarted else self.services
        loaded = tables.load_table(services, (table.namespace,), table.name)
        answer: Json = json.loads(loaded.body)
        return answer

    def data_folder(self, table: Table) -> Path:
        """Where clients put the table's data files: the server reads files of others only there (MISSING.md)."""
        return local(self.metadata(table)["location"]) / "data"

    def metadata(self, table: Table) -> Json:
        metadata: Json = self.load(table)["metadata"]
        return metadata

    def listed(self, table: Table) -> list[int]:
        """The snapshots that a ref may be set to, the oldest first; those that DuckDB expired meanwhile are gone."""
        found = {each["snapshot-id"] for each in self.metadata(table).get("snapshots", ())}
        return [id_ for id_ in table.snapshots if id_ in found]

    def commit(self, table: Table, what: str, body: Json) -> Json:
        """Commit as a server-side client does; the new metadata."""
        self.log.append(f"server {what} in {table.identifier}")
        request = CommitTableRequest.model_validate(body)
        answer = tables.commit_table(self.services, (table.namespace,), table.name, request)
        metadata: Json = json.loads(answer.body)["metadata"]
        return metadata

    def iceberg(self, table: Table, what: str) -> IcebergTable:
        """The table as PyIceberg loads it, to do something with it."""
        self.log.append(f"pyiceberg {what} in {table.identifier}")
        return self.catalog.load_table((table.namespace, table.name))

    # New things

    def new_rows(self, table: Table, number: int, random: Random) -> list[Row]:
        return [self.new_row(table, random) for _ in range(number)]

    def new_row(self, table: Table, random: Random) -> Row:
        values = {
            column.key: some_value(column, random, required=column.key in table.required) for column in table.columns
        }
        return values | {ID: next(self.numbers)}

    def new_column(
        self, siblings: Iterable[Column], random: Random, types: tuple[str, ...] = (), *, unheard: bool = False
    ) -> Column:
        """A column of a name that is free, or that was never there before."""
        type_ = random.choice(types or (*SIMPLE_TYPES, "struct"))
        fields: tuple[Column, ...] = ()
        if type_ == "struct":
            fields = (self.new_column((), random, FIELD_TYPES),)
            fields += (self.new_column(fields, random, FIELD_TYPES),)
        key = next(self.numbers)
        free = sorted(set(COLUMN_NAMES) - {column.name for column in siblings})
        return Column(key, f"n{key}" if unheard else random.choice(free), type_, fields)

    def new_columns(self, random: Random) -> tuple[Column, ...]:
        """Those of a new table: the ids, and others."""
        columns: tuple[Column, ...] = (Column(ID, "id", "long"),)
        for _ in range(random.randint(1, 4)):
            columns += (self.new_column(columns, random),)
        return columns

    def free_names(self, namespace: str) -> list[str]:
        taken = {table.name for table in self.tables if table.namespace == namespace} | self.views
        return sorted(set(TABLE_NAMES) - taken)

    def add_table(self, namespace: str, name: str, columns: tuple[Column, ...], format_version: int) -> Table:
        table = Table(namespace, name, Version(columns, {}), format_version)
        table.note_names()
        self.tables.append(table)
        return table


def duckdb_shown(connection: duckdb.DuckDBPyConnection, table_in_sql: str) -> Shown:
    answer = connection.execute(f"FROM {table_in_sql}")
    names = [str(column[0]) for column in answer.description or ()]
    order = sorted(range(len(names)), key=names.__getitem__)
    rows = [tuple(_plain(row[at]) for at in order) for row in answer.fetchall()]
    return Shown(tuple(names[at] for at in order), tuple(sorted(rows, key=repr)))


def _plain(value: Any) -> Any:
    return tuple(_plain(value[name]) for name in sorted(value)) if isinstance(value, dict) else value
