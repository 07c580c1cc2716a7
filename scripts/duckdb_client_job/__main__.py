"""python -m scripts.duckdb_client_job: the turns, and what must hold after each. The last line is passed=N failed=M."""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import duckdb
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.types import StringType
from rich.console import Console

from scripts.demo_job.checks import Checks
from scripts.demo_job.connect import duckdb_lake, pyiceberg_catalog
from scripts.demo_job.stack import lake_on_servers

WIDTH = 160
TABLE = ("zoo", "birds")
NAME = "zoo.birds"
CREATE = "CREATE TABLE {t} (id BIGINT, name VARCHAR, legs INTEGER, seen TIMESTAMPTZ)"
SEEN = "TIMESTAMPTZ '2013-01-01 00:00:00+00' + INTERVAL (i) HOUR"
MANY = f"SELECT i::BIGINT id, 'bird ' || i AS name, (i % 3)::INTEGER legs, {SEEN} seen FROM range(1000, 3000) r(i)"


@dataclass(slots=True)
class Zoo:
    """Both clients and the model, an in-memory DuckDB that says what they must read."""

    duck: duckdb.DuckDBPyConnection
    catalog: Catalog
    checks: Checks
    model: duckdb.DuckDBPyConnection = field(default_factory=duckdb.connect)

    def by_duckdb(self, name: str, statement: str) -> None:
        self.duck.execute(statement.format(t=f"lake.{NAME}"))
        self.model.execute(statement.format(t="birds"))
        self.compare(f"DuckDB: {name}")

    def by_pyiceberg(self, name: str, act: Callable[[Table], object], *meaning: str) -> None:
        act(self.catalog.load_table(TABLE))
        for statement in meaning:
            self.model.execute(statement.format(t="birds"))
        self.compare(f"PyIceberg: {name}")

    def maintain(self, function: str, arguments: str = "") -> None:
        self.duck.execute(f"CALL {function}('lake'{arguments})")
        self.compare(f"DuckDB: {function}")

    def compare(self, name: str) -> None:
        expected = self.model.table("birds").to_arrow_table()
        self.checks.same_rows(f"{name}: DuckDB", expected, self.duck.table(f"lake.{NAME}").to_arrow_table())
        self.checks.same_rows(f"{name}: PyIceberg", expected, self.catalog.load_table(TABLE).scan().to_arrow())

    def arrow(self, query: str) -> pa.Table:
        return self.model.sql(query).to_arrow_table().cast(self.catalog.load_table(TABLE).schema().as_arrow())


def main() -> int:
    argparse.ArgumentParser(
        prog="scripts/duckdb-client", description="DuckDB and PyIceberg take turns on a fresh lake in Postgres and S3."
    ).parse_args()
    checks = Checks(Console(width=None if sys.stdout.isatty() else WIDTH))
    with lake_on_servers() as lake, pyiceberg_catalog(lake) as catalog, duckdb_lake(lake) as duck:
        zoo = Zoo(duck, catalog, checks)
        zoo.model.execute("SET TimeZone = 'UTC'")
        for title, chapter in CHAPTERS.items():
            with checks.section(title):
                chapter(zoo)
    return 0 if checks.report() else 1


def begin(zoo: Zoo) -> None:
    zoo.duck.execute("CREATE SCHEMA lake.zoo")
    zoo.checks.equal("PyIceberg lists DuckDB's schema", True, ("zoo",) in zoo.catalog.list_namespaces())
    zoo.by_duckdb("create", CREATE)
    zoo.checks.equal("PyIceberg lists DuckDB's table", [TABLE], zoo.catalog.list_tables("zoo"))


def fill(zoo: Zoo) -> None:
    zoo.by_duckdb(
        "small insert, inlined", "INSERT INTO {t} VALUES (1, 'duck', 2, NULL), (2, 'penguin', 2, now()::DATE)"
    )
    zoo.by_pyiceberg("append", lambda table: table.append(zoo.arrow(MANY)), f"INSERT INTO {{t}} {MANY}")
    zoo.by_duckdb("big insert", "INSERT INTO {t} SELECT id + 5000, name, legs, seen FROM {t} WHERE id < 1500")


def change(zoo: Zoo) -> None:
    zoo.by_duckdb("small delete", "DELETE FROM {t} WHERE id IN (1, 1003)")
    zoo.by_duckdb("big delete", "DELETE FROM {t} WHERE id BETWEEN 2000 AND 2500")
    zoo.by_duckdb("update", "UPDATE {t} SET legs = 9 WHERE legs = 2 AND id < 1200")
    zoo.by_pyiceberg("delete", lambda table: table.delete("id >= 6000"), "DELETE FROM {t} WHERE id >= 6000")
    row = "SELECT 1500::BIGINT AS id, 'heron' AS name, 1::INTEGER AS legs, NULL::TIMESTAMPTZ AS seen"
    zoo.by_pyiceberg(
        "overwrite",
        lambda table: table.overwrite(zoo.arrow(row), overwrite_filter="id = 1500"),
        "DELETE FROM {t} WHERE id = 1500",
        f"INSERT INTO {{t}} {row}",
    )


def evolve(zoo: Zoo) -> None:
    zoo.by_duckdb("add column", "ALTER TABLE {t} ADD COLUMN remark VARCHAR")
    zoo.by_duckdb("fill it", "UPDATE {t} SET remark = 'odd' WHERE legs % 2 = 1 AND id < 1100")
    zoo.by_pyiceberg("add column", add_place, "ALTER TABLE {t} ADD COLUMN place VARCHAR")
    zoo.by_duckdb("rename column", "ALTER TABLE {t} RENAME COLUMN remark TO note")


def add_place(table: Table) -> None:
    with table.update_schema() as update:
        update.add_column("place", StringType())


def maintain(zoo: Zoo) -> None:
    zoo.maintain("ducklake_flush_inlined_data")
    zoo.maintain("ducklake_merge_adjacent_files")
    zoo.maintain("ducklake_expire_snapshots", ", older_than => now()")
    zoo.maintain("ducklake_cleanup_old_files", ", cleanup_all => true")


def look_around(zoo: Zoo) -> None:
    filtered = zoo.catalog.load_table(TABLE).scan(row_filter="legs = 9", selected_fields=("id", "name")).to_arrow()
    expected = zoo.model.sql("SELECT id, name FROM birds WHERE legs = 9").to_arrow_table()
    zoo.checks.same_rows("PyIceberg: filter and projection", expected, filtered)
    files = zoo.catalog.load_table(TABLE).inspect.files()["file_path"].to_pylist()
    zoo.checks.equal("every file is in the bucket", True, bool(files) and all(f.startswith("s3://") for f in files))
    counted = zoo.catalog.load_table(TABLE).scan().count()
    zoo.checks.equal("PyIceberg counts from metadata", zoo.model.sql("FROM birds").count("*").fetchall(), [(counted,)])


def end(zoo: Zoo) -> None:
    zoo.duck.execute(f"DROP TABLE lake.{NAME}")
    zoo.checks.equal("PyIceberg lists no table any more", [], zoo.catalog.list_tables("zoo"))
    zoo.catalog.drop_namespace("zoo")
    found = zoo.duck.sql("SELECT schema_name FROM duckdb_schemas() WHERE database_name = 'lake'").fetchall()
    zoo.checks.equal("DuckDB has no schema any more", False, ("zoo",) in found)


CHAPTERS: dict[str, Callable[[Zoo], None]] = {
    "DuckDB makes a table": begin,
    "Both write to it": fill,
    "Both change rows": change,
    "Both change columns": evolve,
    "DuckDB tidies up": maintain,
    "PyIceberg looks around": look_around,
    "Both take it away": end,
}


if __name__ == "__main__":
    sys.exit(main())
