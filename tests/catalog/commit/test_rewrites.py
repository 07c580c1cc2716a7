"""A client rewrites a table while a transaction of DuckDB's is open that commits after it."""

import duckdb
import pytest

from tests.conftest import Attach
from tests.support import engine
from tests.support.client import Client

SOURCES = {"files": "SELECT range, 'x' FROM range(20)", "Postgres": "VALUES (1, 'x'), (2, 'y'), (3, 'z')"}
OPERATIONS = {
    "DELETE FROM {t} WHERE id = 1": False,
    "UPDATE {t} SET name = 'changed' WHERE id = 1": False,
    "DELETE FROM {t} WHERE id < 15": False,
    "INSERT INTO {t} VALUES (99, 'small')": True,
    "INSERT INTO {t} SELECT range, 'large' FROM range(100, 120)": True,
}
"""What DuckDB does, and whether it goes together with a rewrite. Its small deletes are rows in Postgres that name a
file: if the file is gone they would be lost unseen, and updates would double their rows."""


@pytest.mark.parametrize("source", list(SOURCES))
def test_rewrite_lets_inserts_pass_and_refuses_what_deletes(client: Client, attach: Attach, source: str) -> None:
    writer, other = attach(), attach()
    for number, (operation, goes_together) in enumerate(OPERATIONS.items()):
        table = f"lake.ns.t{number}"
        client.create(f"t{number}")
        other.execute(f"INSERT INTO {table} {SOURCES[source]}")
        before = sorted(other.sql(f"FROM {table}").fetchall())
        writer.execute("BEGIN").execute(operation.replace("{t}", table))
        client.commit(engine.compact()(client.metadata(f"t{number}")), f"t{number}")
        if goes_together:
            writer.execute("COMMIT")
            assert sorted(other.sql(f"FROM {table} WHERE id < 99").fetchall()) == before
            assert other.sql(f"FROM {table} WHERE id >= 99").fetchall()
        else:
            with pytest.raises(duckdb.TransactionException, match="conflict"):
                writer.execute("COMMIT")
            assert sorted(other.sql(f"FROM {table}").fetchall()) == before


def test_flush_by_a_client_says_so(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    client.create()
    ducklake.execute(f"INSERT INTO lake.ns.t {SOURCES['Postgres']}")
    client.commit(engine.compact()(client.metadata()))
    (changes,) = ducklake.sql("SELECT changes FROM lake.snapshots() ORDER BY snapshot_id DESC LIMIT 1").fetchall()
    assert changes == ({"flushed_inlined": ["2"]},)
    assert sorted(ducklake.sql("FROM lake.ns.t").fetchall()) == [(1, "x"), (2, "y"), (3, "z")]
