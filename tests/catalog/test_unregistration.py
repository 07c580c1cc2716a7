"""Tables that are given up, and tables of ours that come back."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

from duckicelake.catalog import tables
from duckicelake.catalog.context.services import Services
from duckicelake.errors import NoSuchTableError
from tests.support import engine
from tests.support.client import (
    ARROW,
    NS,
    Client,
    Row,
    append,
    assert_files,
    duckdb_rows,
    pyiceberg_rows,
)
from tests.support.foreign_catalog import (
    CLEANERS,
    OtherCatalog,
    register,
    rows_by_snapshot,
    unregister,
)
from tests.support.row_lineage import lineage
from tests.support.seams import fresh

ROWS: list[Row] = [(number, f"r{number}") for number in range(20)]


def test_table_of_version_3_comes_back_with_its_vectors_and_row_ids(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create(properties={"format-version": "3"})
    client.commit(engine.append(*ROWS)(client.metadata()))
    ducklake.execute("UPDATE lake.ns.t SET name = 'updated' WHERE id < 3")
    client.commit(engine.delete_rows([5, 6])(client.metadata()))
    client.commit(engine.append((100, "on a branch"), branch="b")(client.metadata()))
    given = unregister(client)
    answer = register(client, given["metadata-location"], "t")
    assert rows_by_snapshot(answer["metadata-location"]) == rows_by_snapshot(given["metadata-location"])
    assert duckdb_rows(ducklake) == pyiceberg_rows(answer)
    assert answer["metadata"]["next-row-id"] == given["metadata"]["next-row-id"]
    ids = lineage(StaticTable.from_metadata(answer["metadata-location"]))
    assert ids == lineage(StaticTable.from_metadata(given["metadata-location"]))
    assert sorted(ducklake.sql("SELECT rowid FROM lake.ns.t").fetchall()) == sorted((row_id,) for row_id, _ in ids)
    client.commit(engine.append((200, "after"))(client.metadata()))
    ducklake.execute("INSERT INTO lake.ns.t VALUES (201, 'after')")
    ids = lineage(StaticTable.from_metadata(client.load()["metadata-location"]))
    assert sorted(ducklake.sql("SELECT rowid FROM lake.ns.t").fetchall()) == sorted((row_id,) for row_id, _ in ids)
    assert len({row_id for row_id, _ in ids}) == len(ids) == 20


@pytest.mark.parametrize("name", ["t", "other"])
@pytest.mark.parametrize("version", ["2", "3"])
def test_rows_that_duckdb_updated_share_no_row_id_once_the_table_is_back(
    client: Client, ducklake: duckdb.DuckDBPyConnection, version: str, name: str
) -> None:
    """In version 2 the table counts anew, while files of updated rows still hold the ids of before."""
    client.create(properties={"format-version": version})
    for start in (0, 10, 20):
        client.commit(engine.append(*((number, "first") for number in range(start, start + 10)))(client.metadata()))
    ducklake.execute("UPDATE lake.ns.t SET name = 'updated' WHERE id IN (12, 25)")
    client.load()
    ducklake.execute("CALL ducklake_flush_inlined_data('lake')")
    ducklake.execute("UPDATE lake.ns.t SET name = 'inlined' WHERE id = 27")
    client.commit(engine.rewrite_rows(range(10))(client.metadata()))
    register(client, unregister(client)["metadata-location"], name)
    ducklake.execute(f"INSERT INTO lake.ns.{name} VALUES (200, 'after')")
    client.commit(engine.append((201, "after"))(client.metadata(name)), name)
    rows = ducklake.sql(f"SELECT id, rowid FROM lake.ns.{name}").fetchall()
    assert sorted(number for number, _ in rows) == [*range(10, 30), 200, 201]
    assert len({row_id for _, row_id in rows}) == len(rows)


def test_older_metadata_of_the_same_table_takes_its_place_and_the_newer_one_again(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    older = client.append(*ROWS)
    ducklake.execute("INSERT INTO lake.ns.t SELECT 100 + i, 'DuckDB' FROM range(30) r(i)")
    newer = client.load()
    etags = {tables.load_table(client.services, NS, "t").etag}
    for answer in (older, newer):
        register(client, answer["metadata-location"], "t", overwrite=True)
        for statement in CLEANERS[:2]:
            ducklake.execute(statement)
        loaded = tables.load_table(client.services, NS, "t")
        assert duckdb_rows(ducklake) == pyiceberg_rows(json.loads(loaded.body)) == pyiceberg_rows(answer)
        assert "gc.enabled" not in json.loads(loaded.body)["metadata"]["properties"]
        assert loaded.etag not in etags
        etags.add(loaded.etag)


def test_dropped_table_can_be_registered_again(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    client.create()
    client.append(*ROWS)
    ducklake.execute("INSERT INTO lake.ns.t VALUES (100, 'inlined')")
    ducklake.execute("DELETE FROM lake.ns.t WHERE id < 5")
    answer = client.load()
    tables.drop_table(client.services, NS, "t", purge=False)
    for statement in CLEANERS[:2]:
        ducklake.execute(statement)
    again = register(client, answer["metadata-location"], "t")
    assert "gc.enabled" not in again["metadata"]["properties"]
    assert pyiceberg_rows(again) == duckdb_rows(ducklake) == pyiceberg_rows(answer)
    client.append((200, "after"))
    ducklake.execute("INSERT INTO lake.ns.t VALUES (201, 'after')")
    assert pyiceberg_rows(client.load()) == duckdb_rows(ducklake)


def test_purge_keeps_the_files_of_a_table_that_says_so(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    client.create(properties={"gc.enabled": "false"})
    client.append(*ROWS)
    ducklake.execute("INSERT INTO lake.ns.t SELECT 100, 'DuckDB' FROM range(20)")
    answer = client.load()
    tables.drop_table(client.services, NS, "t", purge=True)
    for statement in CLEANERS[:2]:
        ducklake.execute(statement)
    assert_files(answer)
    assert pyiceberg_rows(register(client, answer["metadata-location"], "t")) == pyiceberg_rows(answer)


def test_table_that_moved_can_be_registered_again(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    client.create()
    old = client.append(*ROWS)["metadata"]
    client.commit(engine.delete_rows([1, 2])(old))
    moved = {"action": "set-location", "location": f"{old['location']}-moved"}
    client.commit({"requirements": [], "updates": [moved]})
    client.append((100, "new place"))
    given = unregister(client)
    answer = register(client, given["metadata-location"], "t")
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake) == pyiceberg_rows(given)
    assert_files(answer)


def test_unregistered_table_is_gone_here_and_lives_on_elsewhere(
    client: Client, ducklake: duckdb.DuckDBPyConnection, services: Services, tmp_path: Path
) -> None:
    client.create()
    client.append(*ROWS)
    ducklake.execute("INSERT INTO lake.ns.t VALUES (100, 'inlined')")
    ducklake.execute("DELETE FROM lake.ns.t WHERE id IN (1, 100)")
    late = append(client.metadata(), (200, "late"))
    expected = duckdb_rows(ducklake)
    given = unregister(client)
    assert given.keys() == {"metadata-location", "metadata"}
    assert_files(given)
    with pytest.raises(NoSuchTableError):
        client.commit(late)
    with pytest.raises(NoSuchTableError):
        unregister(client)
    assert not ducklake.sql("FROM duckdb_tables() WHERE schema_name = 'ns'").fetchall()
    for statement in CLEANERS[:2]:
        ducklake.execute(statement)
    other = OtherCatalog(str(tmp_path))
    table = other.register_table(("x", "t"), given["metadata-location"])
    table.append(pa.Table.from_pylist([{"id": 300, "name": "elsewhere"}], ARROW))
    found = [(row["id"], row["name"]) for row in other.load_table(("x", "t")).scan().to_arrow().to_pylist()]
    assert sorted(found) == sorted([*expected, (300, "elsewhere")])
    answer = register(client, other.pointers["x", "t"], "t")
    assert duckdb_rows(ducklake) == pyiceberg_rows(answer) == sorted(found)


def test_commits_while_a_table_is_given_up_are_in_what_is_given_or_fail(client: Client) -> None:
    client.create()
    client.append((1, "one"))
    acts = [lambda: Client(fresh(client.services)).append((2, "two"))]

    class Superseded:
        """Lets another client commit between the load and the drop."""

        def __getattr__(self, name: str) -> Any:
            if name == "transaction" and acts:
                acts.pop()()
            return getattr(client.services.database, name)

    given = unregister(Client(replace(fresh(client.services), database=Superseded())))
    assert pyiceberg_rows(given) == [(1, "one"), (2, "two")]
