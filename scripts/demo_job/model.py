"""What must come out: the CSV files in an in-memory DuckDB, changed step by step, with no lake anywhere near it."""

from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa

from scripts.demo_job.dataset import COLUMNS, Dataset

Rows = list[tuple[Any, ...]]


class Model:
    """The expected tables. `run` changes them, the rest reads them."""

    def __init__(self, data: Dataset) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        for table, columns in COLUMNS.items():
            self._connection.execute(f"CREATE TABLE {table} ({columns})")
            self._connection.execute(f"COPY {table} FROM '{data.csv(table)}' (FORMAT csv, HEADER, NULLSTR 'NA')")
        self._connection.execute("CREATE TABLE csv_flights AS FROM flights")

    def run(self, *statements: str) -> None:
        for statement in statements:
            self._connection.execute(statement)

    def rows(self, query: str, parameters: Sequence[object] = ()) -> Rows:
        return self._connection.execute(query, parameters).fetchall()

    def value(self, query: str) -> Any:
        ((value,),) = self.rows(query)
        return value

    def table(self, name: str) -> pa.Table:
        return self.arrow(f"FROM {name}")

    def arrow(self, query: str) -> pa.Table:
        return self._connection.sql(query).to_arrow_table()
