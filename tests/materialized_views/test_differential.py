"""Random queries over random histories: after each refresh, the table has what the query gives at the snapshot read."""

import json
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import duckdb
import pytest

from duckicelake.catalog.rows.inserts import PostedRows, append_rows
from duckicelake.errors import CatalogError
from tests.materialized_views.conftest import Views, write_query

HISTORIES = [(7, 3), *(pytest.param(seed, 9, marks=pytest.mark.model) for seed in range(100, 130))]
"""Seeds, and refreshes of each view."""
_VALUES = ("NULL", "0", "1", "-3", "2.50", "9999999.99")
_TEXTS = ("NULL", "''", "'a'", "'ß'", "'NaN'", "'longer than the others are'")
_FLOATS = ("NULL", "'NaN'", "'-0.0'", "0.0", "1.5", "'Infinity'")
_CONDITIONS = (
    "k > 1",
    "v IS NOT NULL",
    "s <> 'a'",
    "d < 1",
    "k IS NULL OR v < 3",
    "true",
    "v + k > 2",
    "s IN ('a', 'ß')",
)
_ROW_ITEMS = (
    "k",
    "v",
    "s",
    "d",
    "upper(s) AS u",
    "k * 2 + 1 AS k2",
    "coalesce(v, 0) AS v0",
    "CASE WHEN k > 1 THEN s END AS c",
)
_KEYS = ("k", "s", "k % 2 AS odd", "v", "d")
_AGGREGATES = (
    *("count(*) AS n", "count(v) AS nv", "sum(k) AS sk", "sum(v) AS sv", "min(v) AS low", "max(s) AS high"),
    *("sum(v) FILTER (k > 1) AS part", "sum(d) AS sd", "avg(v) AS av", "count(DISTINCT s) AS ds", "min(k) AS mk"),
)
_JOINED = "SELECT t.k, count(*) AS n, sum(w) AS w FROM (FROM {t}) AS t JOIN (FROM {u}) AS u USING (k) GROUP BY t.k"


@dataclass
class History:
    """A table `t`, a table `u` beside it, and what happens to them."""

    views: Views
    random: random.Random
    columns: int = 0

    def row(self) -> str:
        choose = self.random.choice
        return f"({choose(('NULL', '1', '2', '3', '-7'))}, {choose(_VALUES)}, {choose(_TEXTS)}, {choose(_FLOATS)})"

    def begin(self) -> None:
        self.views.lake.run(
            "CREATE TABLE t (k INT, v DECIMAL(10,2), s VARCHAR, d DOUBLE)", "CREATE TABLE u (k INT, w INT)",
            "INSERT INTO u VALUES (1, 10), (2, 20), (NULL, 30)",
        )  # fmt: skip

    def insert(self) -> None:
        rows = ", ".join(self.row() for _ in range(self.random.randint(1, 4)))
        self.views.lake.run(f"INSERT INTO t (k, v, s, d) VALUES {rows}")

    def insert_many(self) -> None:
        self.views.lake.run("INSERT INTO t (k, v, s, d) SELECT i % 5, i / 4, 'r' || i % 3, i / 8 FROM range(40) r(i)")

    def post(self) -> None:
        rows = [{"k": self.random.randint(0, 4), "v": "1.25", "s": "posted"}, {"k": None}]
        append_rows(self.views.services, PostedRows(("main",), "t", json.dumps(rows).encode(), "application/json"))

    def insert_elsewhere(self) -> None:
        self.views.lake.run("INSERT INTO u VALUES (3, 5)")

    def delete(self) -> None:
        self.views.lake.run(f"DELETE FROM t WHERE {self.random.choice(_CONDITIONS[:5])}")

    def update(self) -> None:
        self.views.lake.run("UPDATE t SET v = v + 1 WHERE k = 2")

    def flush(self) -> None:
        self.views.lake.run("CALL ducklake_flush_inlined_data('lake')")

    def merge(self) -> None:
        self.views.lake.run("CALL ducklake_merge_adjacent_files('lake')")

    def rewrite(self) -> None:
        with suppress(duckdb.Error):  # DuckDB 1.5.5 fails where inlined rows are older than a column
            self.views.lake.run("CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)")

    def add_column(self) -> None:
        self.columns += 1
        self.views.lake.run(f"ALTER TABLE t ADD COLUMN x{self.columns} INT DEFAULT {self.columns}")

    def rename(self) -> None:
        self.views.lake.run("ALTER TABLE t RENAME TO t_other", "ALTER TABLE t_other RENAME TO t")

    def expire(self) -> None:
        self.views.lake.run("CALL ducklake_expire_snapshots('lake', older_than => now())")

    def step(self) -> None:
        appends: list[Callable[[], None]] = [self.insert, self.insert, self.insert_many, self.post]
        moves: list[Callable[[], None]] = [self.flush, self.merge, self.rewrite]
        others: list[Callable[[], None]] = [
            self.delete,
            self.update,
            self.add_column,
            self.rename,
            self.insert_elsewhere,
        ]
        self.random.choice(self.random.choices((appends, moves, others, [self.expire]), (10, 6, 3, 1))[0])()


def write_random_query(source: random.Random) -> str:
    """Write a query, mostly of a shape that can be followed."""
    shape = source.choice(("rows", "rows", "groups", "groups", "groups", "total", "joined", "distinct", "nested"))
    where, keys = source.choice(_CONDITIONS), source.sample(_KEYS, source.randint(1, 2))
    aggregates = ", ".join(source.sample(_AGGREGATES, source.randint(1, 3)))
    items = ", ".join(source.sample(_ROW_ITEMS, source.randint(1, 4)))
    match shape:
        case "rows":
            return f"SELECT {items} FROM {{t}} WHERE {where}"
        case "groups":
            aliases = ", ".join(key.rpartition(" ")[2] for key in keys)
            groups = source.choice(("ALL", aliases, ", ".join(str(place + 1) for place in range(len(keys)))))
            return f"SELECT {', '.join(keys)}, {aggregates} FROM {{t}} WHERE {where} GROUP BY {groups}"
        case "total":
            return f"SELECT {aggregates} FROM {{t}} WHERE {where}"
        case "joined":
            return _JOINED
        case "distinct":
            return f"SELECT DISTINCT {items} FROM {{t}}"
        case _:
            return f"SELECT k AS kk, count(*) AS n FROM (SELECT * FROM {{t}} WHERE {where}) GROUP BY k"


@pytest.mark.parametrize(("seed", "refreshes"), HISTORIES)
def test_view_is_its_query_at_the_snapshot_that_was_read(views: Views, seed: int, refreshes: int) -> None:
    source = random.Random(seed)
    history = History(views, source)
    history.begin()
    history.insert()
    queries = {f"mv{number}": write_random_query(source) for number in range(3)}
    for name, sql in queries.items():
        views.create(name, sql)
        views.assert_exact(name, sql)
    for _ in range(refreshes):
        for _ in range(source.randint(1, 3)):
            history.step()
        for name, sql in queries.items():
            try:
                views.refresh(name)
            except CatalogError as error:
                pytest.fail(f"{write_query(sql)}: {error}")
            views.assert_exact(name, sql)
