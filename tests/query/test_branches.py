"""Queries of branches with commits of their own: the rows are those that PyIceberg reads of the branch."""

import json
from typing import Any

import duckdb
import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

from duckicelake.catalog.context.services import Services
from duckicelake.server.auth.oauth_clients import OAuthClient
from tests.support.logins import SECRET, Server, bearing, token
from tests.support.servers import Serve

pytestmark = pytest.mark.usefixtures("limits")

ROUTE = "/sql/v1/query"
SQL = "SELECT id, name FROM {} ORDER BY id"


@pytest.fixture
def table(http: httpx.Client, ducklake: duckdb.DuckDBPyConnection) -> Table:
    """Rows of files and of Postgres on `main`; a branch `side` that appended to both and deleted from both."""
    ducklake.execute("CREATE SCHEMA ns")
    ducklake.execute("CREATE TABLE ns.t AS SELECT i AS id, 'n' || i AS name FROM range(50) r(i)")
    ducklake.execute("INSERT INTO ns.t VALUES (100, NULL), (101, 'inlined')")
    ducklake.execute("DELETE FROM ns.t WHERE id = 5")
    found = RestCatalog("lake", uri=str(http.base_url)).load_table("ns.t")
    head = found.current_snapshot()
    assert head is not None
    with found.manage_snapshots() as manage:
        manage.create_branch(head.snapshot_id, "side").create_branch(head.snapshot_id, "still")
    found.append(pa.table({"id": [200, 201], "name": ["side", None]}), branch="side")
    found.delete("id in (7, 101, 200)", branch="side")
    ducklake.execute("INSERT INTO ns.t VALUES (300, 'main')")
    ducklake.execute("ALTER TABLE ns.t ADD COLUMN later INT DEFAULT 4")
    return found.refresh()


def read(answer: httpx.Response) -> list[tuple[Any, ...]]:
    assert answer.status_code == 200, answer.text
    return [tuple(json.loads(line).values()) for line in answer.text.splitlines()]


def read_by_pyiceberg(table: Table, ref: str) -> list[tuple[Any, ...]]:
    snapshot = table.snapshot_by_name(ref)
    assert snapshot is not None
    rows = table.scan(snapshot_id=snapshot.snapshot_id, selected_fields=("id", "name")).to_arrow().sort_by("id")
    return [tuple(row.values()) for row in rows.to_pylist()]


@pytest.mark.parametrize("ref", ["side", "still", "main"])
def test_rows_of_a_branch_are_those_of_pyiceberg(http: httpx.Client, table: Table, ref: str) -> None:
    expected = read_by_pyiceberg(table, ref)
    assert len(expected) == {"side": 50, "still": 51, "main": 52}[ref]
    for sql, at in ((SQL.format("ns.t"), ref), (SQL.format(f"ns.t AT (VERSION => '{ref}')"), None)):
        answer = http.post(ROUTE, json={"sql": sql, **({} if at is None else {"at": at})}, timeout=60)
        assert read(answer) == expected


def test_branches_are_joined_with_main_and_with_each_other(http: httpx.Client, table: Table) -> None:
    sql = """
        WITH gone AS (SELECT id FROM ns.t EXCEPT SELECT id FROM ns.t AT (VERSION => 'side'))
        SELECT (SELECT list(id ORDER BY id) FROM gone) AS gone, count(*) AS n
        FROM ns.t AT (VERSION => 'side') JOIN ns.t AT (VERSION => 'still') USING (id)
    """
    assert read(http.post(ROUTE, json={"sql": sql}, timeout=60)) == [([7, 101, 300], 49)]
    aliased = "SELECT t.a FROM ns.t AT (VERSION => 'side') WHERE t.id = 201"
    assert http.post(ROUTE, json={"sql": aliased}, timeout=60).status_code == 400
    for text in ("SELECT t.id FROM ns.t AT (VERSION => 'side') WHERE t.id = 201", "SELECT count(*) + 200 FROM ns.t"):
        assert http.post(ROUTE, json={"sql": text}, timeout=60).status_code == 200


def test_columns_of_a_branch_are_those_of_its_snapshot(http: httpx.Client, table: Table) -> None:
    for at, columns in ({"at": "side"}, 2), ({}, 3):
        (row, *_) = read(http.post(ROUTE, json={"sql": "FROM ns.t", **at}, timeout=60))
        assert len(row) == columns


def test_unknown_branch_is_named(http: httpx.Client, table: Table) -> None:
    for body in ({"sql": "FROM ns.t", "at": "nope"}, {"sql": "SELECT * FROM ns.t AT (VERSION => 'nope')"}):
        answer = http.post(ROUTE, json=body, timeout=60)
        assert (answer.status_code, "'nope' is no branch or tag" in answer.text) == (400, True)


def test_branch_is_refused_like_its_table(
    services: Services, serve: Serve, http: httpx.Client, table: Table, ducklake: duckdb.DuckDBPyConnection
) -> None:
    server = Server()
    other = serve(server.app(services, server.authentication(OAuthClient("other", SECRET, ("ns:elsewhere:r",)))))
    headers = bearing(token(other, "other"))
    for body in ({"sql": "FROM ns.t", "at": "side"}, {"sql": "SELECT * FROM ns.t AT (VERSION => 'side')"}):
        assert other.post(ROUTE, json=body, headers=headers, timeout=60).status_code == 403
    sql = f"SELECT * FROM iceberg_scan('{table.metadata_location}')"
    assert http.post(ROUTE, json={"sql": sql}).status_code == 400
