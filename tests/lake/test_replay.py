"""Whatever DuckDB does to a table, Iceberg readers see its rows, at every listed snapshot (design §6.17)."""

import random
from contextlib import contextmanager
from itertools import product

import duckdb
import pytest

from tests.support.lakes import assert_same_rows
from tests.support.row_lineage import lineage

FLUSH = "CALL ducklake_flush_inlined_data('lake')"
MERGE = "CALL ducklake_merge_adjacent_files('lake')"
REWRITE = "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0.01)"
EXPIRE = "CALL ducklake_expire_snapshots('lake', older_than => now())"


def rows(first, count, columns):
    values = ", ".join(f"(i % 3)::{kind}" if kind != "VARCHAR" else "'v' || (i % 5)" for _, kind in columns)
    return f"INSERT INTO t SELECT i, {values} FROM range({first}, {first + count}) r(i)"


class Plan:
    """Generates statements that DuckDB accepts, with the columns that the table has by then."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.columns = [("name", "VARCHAR"), ("amount", "INTEGER")]
        self.next_row = 0
        self.next_column = 0

    def statement(self):
        kinds = {
            self.small: 6, self.large: 3, self.delete: 4, self.update: 4, self.delete_all: 1,
            self.add_column: 1, self.rename_column: 1, self.drop_column: 1, self.widen: 1, self.partition: 1,
        }  # fmt: skip
        maintenance = {FLUSH: 2, MERGE: 2, REWRITE: 1, EXPIRE: 1, "CHECKPOINT lake": 1}
        choices = [*kinds, *maintenance]
        chosen = self.random.choices(choices, [*kinds.values(), *maintenance.values()])[0]
        return chosen if isinstance(chosen, str) else chosen()

    def insert(self, count):
        first, self.next_row = self.next_row, self.next_row + count
        return rows(first, count, self.columns)

    def small(self):
        return self.insert(self.random.randint(1, 4))

    def large(self):
        return self.insert(40)

    def which(self):
        low = self.random.randint(0, self.next_row)
        return self.random.choice([f"id >= {low} AND id < {low + 5}", f"id % 7 = {low % 7}", f"id > {low}"])

    def delete(self):
        return f"DELETE FROM t WHERE {self.which()}"

    def delete_all(self):
        return "DELETE FROM t"

    def update(self):
        texts = [name for name, kind in self.columns if kind == "VARCHAR"]
        change = f"{texts[0]} = 'changed' || id" if texts else "id = id"
        return f"UPDATE t SET {change} WHERE {self.which()}"

    def add_column(self):
        self.next_column += 1
        self.columns.append((f"c{self.next_column}", self.random.choice(["VARCHAR", "INTEGER", "DOUBLE"])))
        name, kind = self.columns[-1]
        return f"ALTER TABLE t ADD COLUMN {name} {kind}"

    def rename_column(self):
        self.next_column += 1
        index = self.random.randrange(len(self.columns))
        old, kind = self.columns[index]
        self.columns[index] = (f"r{self.next_column}", kind)
        return f"ALTER TABLE t RENAME COLUMN {old} TO r{self.next_column}"

    def drop_column(self):
        if len(self.columns) == 1:
            return self.add_column()
        return f"ALTER TABLE t DROP COLUMN {self.columns.pop()[0]}"

    def widen(self):
        for index, (name, kind) in enumerate(self.columns):
            if kind == "INTEGER":
                self.columns[index] = (name, "BIGINT")
                return f"ALTER TABLE t ALTER COLUMN {name} SET DATA TYPE BIGINT"
        return self.small()

    def partition(self):
        return self.random.choice(
            ["ALTER TABLE t SET PARTITIONED BY (bucket(3, id))", "ALTER TABLE t RESET PARTITIONED BY"]
        )


RUNS = [
    pytest.param(version, seed, marks=() if seed % 3 == 0 else pytest.mark.model)
    for version, seed in (*product((2,), range(6)), *product((3,), range(6, 12)))
]
"""One seed in three runs always, two of each format version; the suite `model` has the others."""


@pytest.mark.parametrize(("format_version", "seed"), RUNS)
def test_any_sequence_of_duckdb_statements_reads_the_same_on_both_sides(lake, format_version, seed):
    plan = Plan(seed)
    done = ["CREATE TABLE t (id BIGINT, name VARCHAR, amount INTEGER)"]
    lake.run(*done)
    lake.upgrade(format_version)
    truth = {}  # read at once: DuckDB itself rewrites the past, and its flush can leave duplicates there
    try:
        for _ in range(14):
            done.append(plan.statement())
            with suppress_duckdbs_own_bugs():
                lake.run(done[-1])
            truth[lake.newest()] = lake.duck_rows()
            if plan.random.random() < 0.4:
                assert_same_rows(lake, truth=truth)
                assert_same_lineage(lake)
        assert_same_rows(lake, truth=truth)
        assert_same_lineage(lake)
    except Exception as error:
        error.add_note(";\n".join(done))
        raise


def assert_same_lineage(lake):
    """Row ids and the snapshots that last changed rows are the same numbers on both sides, from version 3 on."""
    metadata = lake.metadata()
    if metadata.format_version > 2:
        assert lineage(lake.static()) == sorted(lake.duck.sql("SELECT rowid, snapshot_id FROM t").fetchall())
        given = lake.sql("SELECT coalesce(max(next_row_id), 0) FROM ducklake_table_stats")
        assert given == [(metadata.next_row_id,)]


@contextmanager
def suppress_duckdbs_own_bugs():
    """The released extension can't rewrite files of a table that has inlined rows of before a rename."""
    try:
        yield
    except duckdb.TransactionException as error:
        if "Failed to read inlined-data aggregates" not in str(error):
            raise
