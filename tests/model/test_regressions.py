"""What runs of the model found, each as short as it became."""

import duckdb
import pytest

from duckicelake.catalog.context.services import Services
from tests.support import engine
from tests.support.client import SCHEMA, Client, Json, duckdb_rows, new_client, pyiceberg_rows


@pytest.fixture
def client(services: Services) -> Client:
    return new_client(services)


def test_bucket_keys_that_a_later_snapshot_of_a_request_takes_back_leave_a_table_that_duckdb_reads(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    client.append((1, "a"), (2, "b"))
    ducklake.execute("ALTER TABLE lake.ns.t SET PARTITIONED BY (bucket(3, name))")

    two_snapshots = engine.then(engine.delete_rows([1]), engine.append((3, "c")))
    client.commit(two_snapshots(client.metadata()))

    ducklake.execute("INSERT INTO lake.ns.t VALUES (4, 'd')")
    assert duckdb_rows(ducklake) == pyiceberg_rows(client.load()) == [(2, "b"), (3, "c"), (4, "d")]


def test_duckdb_finds_what_it_inserts_after_a_client_widened_a_column_whose_statistics_it_has_cached(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create(schema=with_third_column("int"))
    ducklake.execute("INSERT INTO lake.ns.t VALUES (1, 'a', 7)")
    ducklake.execute("FROM lake.ns.t WHERE number = 7").fetchall()

    widen: Json = {"action": "add-schema", "schema": with_third_column("long")}
    client.commit({"requirements": [], "updates": [widen, {"action": "set-current-schema", "schema-id": -1}]})
    ducklake.execute("INSERT INTO lake.ns.t VALUES (2, 'b', -1)")
    ducklake.execute("INSERT INTO lake.ns.t VALUES (3, 'c', 9)")

    assert ducklake.execute("SELECT id FROM lake.ns.t WHERE number = -1").fetchall() == [(2,)]


def with_third_column(type_: str) -> Json:
    return {**SCHEMA, "fields": [*SCHEMA["fields"], {"id": 3, "name": "number", "type": type_, "required": False}]}
