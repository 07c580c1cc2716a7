"""Branches, tags and history of one table: what each must show, in a DuckDB that no lake ever touches."""

from collections.abc import Collection
from dataclasses import dataclass, field

import duckdb

from tests.engines.engines import Engines, Row, difference, placed, sorted_rows
from tests.engines.sequences import MERGE_ON_READ

FORMATS = {
    "v2": "'format-version'='2'",
    "v2-merge-on-read": f"'format-version'='2', {MERGE_ON_READ}",
    "v3": "'format-version'='3'",
    "v3-merge-on-read": f"'format-version'='3', {MERGE_ON_READ}",
}


@dataclass(slots=True)
class Refs:
    """A lake's table and its model, in which every branch or tag is a table of its name.

    `shown` is what each snapshot showed when it was first seen; `versions` what DuckDB read at each of its snapshots,
    with the snapshot of main's at that time.
    """

    engines: Engines
    name: str
    model: duckdb.DuckDBPyConnection = field(default_factory=duckdb.connect)
    shown: dict[int, list[Row]] = field(default_factory=dict)
    versions: dict[int, tuple[int, list[Row]]] = field(default_factory=dict)

    def spark(self, statement: str, *meanings: str) -> list[Row]:
        """Run a statement on `{t}` in Spark and what it means in the model; what Spark answers."""
        answer = self.engines.spark.sql(placed(statement, f"lake.{self.name}")).collect()
        self.mean(*meanings)
        return [tuple(row) for row in answer]

    def duck(self, statement: str, *meanings: str) -> None:
        self.engines.duck.execute(placed(statement, f"lake.{self.name}"))
        self.mean(*meanings)

    def same(self, statement: str) -> None:
        """A statement of Spark's on main that means in the model what it says."""
        self.spark(statement, statement.replace("{t}", "main"))

    def mean(self, *meanings: str) -> None:
        for meaning in meanings:
            self.model.execute(meaning)

    def call(self, procedure: str, *meanings: str) -> list[Row]:
        """Call a procedure of Spark's, its arguments after `table`."""
        head, _, arguments = procedure.removesuffix(")").partition("(")
        given = ", ".join(filter(None, (f"table => '{self.name}'", arguments)))
        return self.spark(f"CALL lake.system.{head}({given})", *meanings)

    def point(self, ref: str, source: str) -> None:
        """In the model: a branch or tag shows what another shows."""
        self.mean(f"CREATE TEMP TABLE moved AS FROM {source}", f"CREATE OR REPLACE TABLE {ref} AS FROM moved")
        self.mean("DROP TABLE moved")

    def rows(self, ref: str = "main") -> list[Row]:
        return sorted_rows(self.model.sql(f"FROM {ref}").to_arrow_table())

    def head(self, ref: str = "main") -> int:
        return self.engines.catalog.load_table(self.name).refs()[ref].snapshot_id

    def check(self) -> None:
        """Every engine shows of main and of every other ref what it must, and of old snapshots what they showed."""
        self.check_main()
        self.check_row_ids()
        table = self.engines.catalog.load_table(self.name)
        for ref, target in table.refs().items():
            if ref != "main":
                asked = f"SELECT * FROM lake.{self.name} VERSION AS OF '{ref}'"
                self.agree(f"Spark at {ref}", sorted_rows(self.engines.spark.sql(asked).toArrow()), self.rows(ref))
            self.shown.setdefault(target.snapshot_id, self.rows(ref))
        for snapshot in table.snapshots():
            got = sorted_rows(table.scan(snapshot_id=snapshot.snapshot_id).to_arrow())
            self.agree(f"{snapshot}", got, self.shown.setdefault(snapshot.snapshot_id, got))
        self.check_versions({snapshot.snapshot_id for snapshot in table.snapshots()})

    def check_row_ids(self) -> None:
        """A row of format version 3 has the same row id in Spark as in DuckDB."""
        if self.engines.catalog.load_table(self.name).format_version >= 3:
            asked = f"SELECT id, {{}} AS row_id FROM lake.{self.name}"
            known = sorted_rows(self.engines.duck.sql(asked.format("rowid")).to_arrow_table())
            self.agree("Spark's row ids", sorted_rows(self.engines.spark.sql(asked.format("_row_id")).toArrow()), known)

    def check_main(self) -> None:
        for engine, table in self.engines.read(self.name).items():
            self.agree(engine, sorted_rows(table), self.rows())
        self.versions.setdefault(max(self.ducklake_snapshots()), (self.head(), self.rows()))

    def check_versions(self, listed: Collection[int]) -> None:
        """DuckDB reads what it did; what Iceberg has expired, either that or not at all (design §6.5)."""
        for version in sorted(self.versions.keys() & self.ducklake_snapshots()):
            main, expected = self.versions[version]
            try:
                read = self.engines.duck.sql(f"FROM lake.{self.name} AT (VERSION => {version})").to_arrow_table()
            except duckdb.IOException:
                assert main not in listed, f"DuckDB at {version}"
            else:
                self.agree(f"DuckDB at {version}", sorted_rows(read), expected)

    def ducklake_snapshots(self) -> set[int]:
        return {
            row[0] for row in self.engines.duck.sql("SELECT snapshot_id FROM ducklake_snapshots('lake')").fetchall()
        }

    def forget(self) -> None:
        """Columns have changed, and old snapshots show them as they are now."""
        self.shown.clear()
        self.versions.clear()

    def agree(self, what: str, got: list[Row], expected: list[Row]) -> None:
        assert got == expected, f"{what}: {difference(expected, got)}"

    def snapshots(self) -> list[int]:
        return [each.snapshot_id for each in self.engines.catalog.load_table(self.name).snapshots()]


def created(engines: Engines, name: str, properties: str, partitioned: str = "") -> Refs:
    """A new table of this name, empty, with columns id, name and amount."""
    refs = Refs(engines, name)
    columns = "(id bigint, name string, amount int)"
    refs.spark(f"CREATE TABLE {{t}} {columns} {partitioned} TBLPROPERTIES ({properties})")
    refs.mean("SET TimeZone = 'UTC'", f"CREATE TABLE main {columns}")
    return refs
