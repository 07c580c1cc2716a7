"""DuckDB on the same lake, through the real `ducklake` extension: it asks, then writes, and the others must see it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from scripts.demo_job.checks import Checks
from scripts.demo_job.model import Model
from scripts.demo_job.questions import QUESTIONS

Readers = Mapping[str, Callable[[str], pa.Table]]


@dataclass(frozen=True, slots=True)
class Change:
    """One native write. DuckLake keeps at most ten rows in the catalog itself (inlined), more of them in files."""

    name: str
    table: str
    statement: str


CHANGES = (
    Change("small insert", "airlines", "INSERT INTO airlines VALUES ('D1', 'Duck Air'), ('I1', 'Iceberg Air')"),
    Change("small update", "airlines", "UPDATE airlines SET name = 'American Eagle' WHERE carrier IN ('MQ', 'D1')"),
    Change("small delete", "airlines", "DELETE FROM airlines WHERE carrier IN ('I1', 'YV')"),
    Change("small delete in a file", "flights", "DELETE FROM flights WHERE carrier = 'HA' AND month = 1 AND day < 6"),
    Change(
        "big insert",
        "flights",
        """INSERT INTO flights SELECT * REPLACE (year + 1 AS year, time_hour + INTERVAL 1 YEAR AS time_hour)
           FROM flights WHERE month = 1 AND day = 1""",
    ),
    Change("big update", "flights", "UPDATE flights SET dep_delay = 0 WHERE dep_delay < 0 AND month = 6 AND day < 8"),
    Change("big delete", "flights", "DELETE FROM flights WHERE month = 3 AND carrier = 'EV'"),
)


def ask(lake: duckdb.DuckDBPyConnection, model: Model, checks: Checks) -> None:
    for question, query in QUESTIONS.items():
        checks.equal(f"DuckDB: {question}", model.rows(query), lake.execute(query).fetchall())


def change(lake: duckdb.DuckDBPyConnection, readers: Readers, model: Model, checks: Checks) -> None:
    """Each change is made in DuckDB and in the model; then every engine must read the model's rows."""
    for step in CHANGES:
        lake.execute(step.statement)
        model.run(step.statement)
        for engine, read in readers.items():
            name = f"{engine} after DuckDB's {step.name} in {step.table}"
            checks.same_rows(name, model.table(step.table), read(step.table))
