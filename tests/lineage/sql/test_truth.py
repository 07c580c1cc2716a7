"""Nothing is left out: where DuckDB's result changes with a column of an input, the lineage has the column."""

import random
from collections.abc import Iterator
from typing import Any, Final

import duckdb
import pytest

from duckicelake.lineage.sql.model import SqlDataset
from tests.support.sql_lineage_cases import QUERIES, lineage_of

TYPES: Final = {
    "t": {"a": "INT", "b": "INT", "c": "INT", "k": "INT", "s": "STRUCT(f STRUCT(g INT), h INT)", "l": "INT[]"},
    "u": {"k": "INT", "x": "INT", "y": "INT", "d": "INT"},
    "z": {"x": "INT", "y": "INT"},
    "Mixed": {"Größe": "INT", "Ä": "INT", "lower": "INT"},
    "o": {"w": "INT", "q": "INT", "i": "INT", "k": "INT"},
    "p": {"r": "INT", "i": "INT"},
}
ROWS, TRIES = 12, 1
UNTOLD: Final = ("TABLESAMPLE", "/d/", "LIMIT 3", "RECURSIVE", "unnest(l) AS r", "UNPIVOT")
"""What gives other rows each time, reads files that aren't there, may have no end, or makes rows of a value's parts.

That the latter decide how many rows there are isn't said, as OpenLineage's listener in Spark doesn't say it.
"""
MORE: Final = [
    "SELECT a FROM t WHERE b > (SELECT avg(x) FROM u WHERE u.k > t.k)",
    "SELECT t.a, q.n FROM t LEFT JOIN (SELECT k, count(*) AS n FROM u WHERE d > 2 GROUP BY k) q USING (k)",
    "WITH q AS (SELECT k, max(x) AS m FROM u GROUP BY k HAVING count(*) > 1) SELECT a, m FROM t JOIN q USING (k)",
    "SELECT CASE WHEN EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND d > 3) THEN a ELSE b END AS n FROM t",
    "SELECT a, row_number() OVER (PARTITION BY b ORDER BY c, a, k) AS n FROM t",
    "SELECT n FROM (SELECT a AS n, row_number() OVER (ORDER BY c, a) AS r FROM t) WHERE r < 4",
    "SELECT k, list(x ORDER BY y, x) AS n FROM u GROUP BY k",
    "SELECT DISTINCT ON (k) k, x FROM u ORDER BY k, y, x",
    "SELECT max(x) FILTER (WHERE d > 3) AS n, min(y) AS m FROM u",
    "SELECT a FROM t WHERE (b, c) IN (SELECT x, y FROM u)",
    "SELECT x FROM u INTERSECT SELECT a FROM t",
    "SELECT k, x FROM u EXCEPT SELECT k, a FROM t",
    "SELECT a AS n FROM t UNION SELECT x FROM u WHERE d > 3",
    "SELECT list_filter(l, e -> e > b) AS n, a FROM t",
    "SELECT unnest(l) + a AS n FROM t",
    "SELECT count(*) AS n FROM t ANTI JOIN u USING (k)",
    "SELECT coalesce(nullif(a, b), c) AS n FROM t",
    "SELECT x FROM u ORDER BY y, x, k LIMIT 2",
    "SELECT a, (SELECT count(*) FROM u WHERE u.k = t.k) AS n FROM t",
    "SELECT one.a FROM t one WHERE NOT EXISTS (SELECT 1 FROM t two WHERE two.k = one.k AND two.b > one.b)",
]


@pytest.fixture(scope="module")
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    """Each table is a view of one that has its columns several times, with other values."""
    source = random.Random(1)
    with duckdb.connect(config={"threads": 1}) as connection:
        for name, columns in TYPES.items():
            spelled = ", ".join(
                f'"{column} {at}" {kind}' for at in range(TRIES + 1) for column, kind in columns.items()
            )
            connection.execute(f'CREATE TABLE "{name} all" ({spelled})')
            rows = [[value(kind, source) for _ in range(TRIES + 1) for kind in columns.values()] for _ in range(ROWS)]
            connection.executemany(f'INSERT INTO "{name} all" VALUES ({", ".join("?" * len(rows[0]))})', rows)
            choose(connection, name, 0)
        connection.execute("CREATE VIEW v AS SELECT a, b AS m FROM t")
        yield connection


@pytest.mark.parametrize("sql", [sql for sql, _ in QUERIES if not any(each in sql for each in UNTOLD)] + MORE)
def test_column_that_changes_the_result_is_in_the_lineage(db: duckdb.DuckDBPyConnection, sql: str) -> None:
    lineage = lineage_of(sql, "duckdb", lookup)
    assert lineage is not None
    decide = {f"{each.dataset.name}.{each.column}" for each in lineage.influence or {}}
    flows = {
        name: {f"{each.dataset.name}.{each.column}" for each in flow} for name, flow in (lineage.fields or {}).items()
    }
    before = result(db, sql)
    for table in {each.name for each in lineage.inputs}:
        for column in TYPES.get(table, ()):
            for other in range(1, TRIES + 1):
                choose(db, table, other, column)
                after = result(db, sql)
                choose(db, table, 0)
                named = f"{table}.{column}"
                different = {name for name in flows if before.get(name) != after.get(name)}
                missing = {name for name in different if named not in flows[name] | decide}
                assert missing == set(), f"{named} changes what it is said not to"


def choose(db: duckdb.DuckDBPyConnection, table: str, at: int, only: str | None = None) -> None:
    """Give a table's columns, or one of them, these of the values that there are for each."""
    columns = ", ".join(f'"{each} {at if only in {None, each} else 0}" AS "{each}"' for each in TYPES[table])
    db.execute(f'CREATE OR REPLACE VIEW "{table}" AS SELECT {columns} FROM "{table} all"')


def lookup(parts: tuple[str, ...]) -> SqlDataset | None:
    name = next((name for name in TYPES if name.lower() == parts[-1].lower()), None)
    return None if name is None else SqlDataset("lake", name, tuple(TYPES[name]))


def value(kind: str, source: random.Random) -> Any:
    if kind.startswith("STRUCT"):
        return {"f": {"g": source.randrange(6)}, "h": source.randrange(6)}
    if kind.endswith("[]"):
        return [source.randrange(6) for _ in range(source.randrange(4))]
    return None if source.random() < 0.1 else source.randrange(6)


def result(db: duckdb.DuckDBPyConnection, sql: str) -> dict[str, list[str]]:
    """The values of each column, in no order; nothing if DuckDB has no such query."""
    try:
        relation = db.execute(sql)
    except (duckdb.BinderException, duckdb.CatalogException):
        return {}
    names = [each[0] for each in relation.description]
    found = relation.fetchall()
    return {name: sorted(repr(row[at]) for row in found) for at, name in enumerate(names)}
