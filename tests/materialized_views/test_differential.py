"""Random queries over random histories: after each refresh, the table has what the query gives at the snapshot read."""

import json
import random
from collections import Counter
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
_COMPARED = (("k", ("0", "1", "3", "-7")), ("v", _VALUES[1:]), ("s", _TEXTS[1:]), ("d", _FLOATS[1:]))
_UPDATES = ("v = v + 1", "k = k - 1", "k = NULL", "s = upper(s)", "s = s", "d = d / 2", "v = NULL", "k = 2, s = 'a'")
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
_SHAPES = ("rows", "groups", "groups", "total", "joined", "distinct", "nested")
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

    def insert_and_remove(self) -> None:
        """Write rows several times in one transaction, of which `changes_made` may say that it inserted alone."""
        removal = self.random.choice(["DELETE FROM t WHERE s = 'twice' AND k < 3", "UPDATE t SET v = 7 WHERE k = -20"])
        insert = "INSERT INTO t (k, v, s, d) SELECT i - 20, i, 'twice', 1 FROM range(30) r(i)"
        self.views.lake.run("BEGIN", insert, removal, "COMMIT")

    def post(self) -> None:
        rows = [{"k": self.random.randint(0, 4), "v": "1.25", "s": "posted"}, {"k": None}]
        append_rows(self.views.services, PostedRows(("main",), "t", json.dumps(rows).encode(), "application/json"))

    def insert_elsewhere(self) -> None:
        self.views.lake.run("INSERT INTO u VALUES (3, 5)")

    def delete(self) -> None:
        self.views.lake.run(f"DELETE FROM t WHERE {write_random_condition(self.random)}")

    def update(self) -> None:
        change = self.random.choice(_UPDATES)
        self.views.lake.run(f"UPDATE t SET {change} WHERE {write_random_condition(self.random)}")

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
        appends: list[Callable[[], None]] = [
            self.insert,
            self.insert,
            self.insert_many,
            self.insert_and_remove,
            self.post,
        ]
        moves: list[Callable[[], None]] = [self.flush, self.merge, self.rewrite]
        others: list[Callable[[], None]] = [
            self.delete,
            self.update,
            self.add_column,
            self.rename,
            self.insert_elsewhere,
        ]
        self.random.choice(self.random.choices((appends, moves, others, [self.expire]), (10, 6, 3, 1))[0])()


def write_random_condition(source: random.Random, depth: int = 0) -> str:
    """Write a comparison, or several joined by AND, OR and NOT."""
    column, values = source.choice(_COMPARED)
    match source.choice(("compare", "compare", "in", "null", "and", "or", "not") if depth < 2 else ("compare", "null")):
        case "compare":
            return f"{column} {source.choice(('=', '<>', '<', '>='))} {source.choice(values)}"
        case "in":
            return f"{column} IN ({', '.join(source.sample(values, 2))})"
        case "null":
            return f"{column} IS {source.choice(('', 'NOT '))}NULL"
        case "not":
            return f"NOT ({write_random_condition(source, depth + 1)})"
        case joint:
            sides = (write_random_condition(source, depth + 1) for _ in range(2))
            return f"({f' {joint.upper()} '.join(sides)})"


def write_random_query(source: random.Random, shape: str) -> str:
    """Write a query of a shape."""
    where, keys = write_random_condition(source), source.sample(_KEYS, source.randint(1, 2))
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
    shapes = ("rows", "groups", source.choice(_SHAPES))
    queries = {f"mv{number}": write_random_query(source, shape) for number, shape in enumerate(shapes)}
    for name, sql in queries.items():
        views.create(name, sql)
        views.assert_exact(name, sql)
    modes: Counter[str] = Counter()
    for number in range(refreshes):
        if number == 0:  # rows that are only added are followed
            history.insert_many()
        for _ in range(source.randint(1, 3) if number else 0):
            history.step()
        for name, sql in queries.items():
            try:
                modes[views.refresh(name).last.mode] += 1
            except CatalogError as error:
                pytest.fail(f"{write_query(sql)}: {error}")
            views.assert_exact(name, sql)
    assert modes["incremental"] >= 1, modes
