"""Definer views on a real lake over HTTP: what they lend to whom, and attempts to have them lend more."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import duckdb
import httpx
import pytest

from duckicelake.catalog import grants
from duckicelake.catalog.context.rights import RightsCache
from duckicelake.catalog.warehouse_options import change_options
from duckicelake.lake.ducklake.database import build_attach_source
from duckicelake.lake.side_tables import grants as stored_grants
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.query import service
from duckicelake.query.processes import QueryLimits
from duckicelake.server.auth.oauth_clients import OAuthClient
from tests.server.auth.test_grants import HR, PEOPLE, SALES, Governed, governed
from tests.support.backends import Bucket
from tests.support.client import SCHEMA
from tests.support.logins import SECRET, Server, bearing
from tests.support.policies import restrict
from tests.support.s3_lakes import s3_lake
from tests.support.servers import running
from tests.support.view_requests import creation, replacement, set_properties

__all__ = ["governed"]

DEFINER = {"ducklake.view-security": "definer"}
PAY = f"{HR}/tables/t"
LIMITS = QueryLimits(processes=2, memory_bytes=128 * 1024**2, disk_bytes=0, seconds=20.0, rows=1_000_000)
Json = Any


@pytest.fixture
def lake(governed: Governed) -> Governed:
    """The owner, who owns sales and may read hr.t, has the definer view sales.d over it; ann may read that view."""
    governed.give("owner", "select", "table:hr.t")
    assert make(governed, "owner", "d", "SELECT id FROM hr.t", **DEFINER).status_code == 200
    governed.give("ann", "select", "view:sales.d")
    return governed


def make(
    lake: Governed,
    who: str,
    name: str,
    sql: str,
    path: str = SALES,
    dialects: Sequence[str] = ("spark", "duckdb"),
    **properties: str,
) -> httpx.Response:
    queries = dict.fromkeys(dialects, sql)
    body = creation(name, queries, {"id": 1, "name": "id", "type": "long", "required": False}, properties=properties)
    body["view-version"]["default-namespace"] = [path.rpartition("/")[2]]
    return lake.ask(who, "POST", f"{path}/views", body)


def commit(lake: Governed, who: str, name: str, *updates: Json, path: str = SALES) -> int:
    return lake.status(who, "POST", f"{path}/views/{name}", {"requirements": [], "updates": list(updates)})


def rewrite(lake: Governed, who: str, name: str, sql: str) -> int:
    field = {"id": 1, "name": "id", "type": "long", "required": False}
    queries = {"spark": sql, "duckdb": sql}
    return commit(lake, who, name, *replacement(queries, field, default_namespace=["sales"]))


def through(lake: Governed, who: str, *chain: str, path: str = PAY, worker: int = 0) -> int:
    """Load a table through views, each as `namespace.name`."""
    text = quote(",".join(view.replace(".", "%1F") for view in chain), safe="")
    return lake.status(who, "GET", f"{path}?referenced-by={text}", worker=worker)


def test_definer_view_lends_what_it_reads(lake: Governed) -> None:
    assert lake.status("ann", "GET", PAY) == 403
    assert through(lake, "ann", "sales.d") == through(lake, "ann", "sales.d", worker=1) == 200
    assert lake.status("ann", "GET", PAY) == 403
    assert through(lake, "ann", "sales.d", path=f"{HR}/tables/t2") == 403
    assert through(lake, "bob", "sales.d") == 403
    assert lake.status("ann", "GET", f"{SALES}/views/d") == 200


def test_definers_rights_are_kept_and_end_with_the_next_load(lake: Governed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker keeps them while nothing changes; what another one takes or gives counts for its very next load."""
    definer = lake.sql("SELECT principal_id FROM duckicelake_principal WHERE name = 'owner'")[0][0]
    read: list[int | None] = []
    read_held = stored_grants.read_held

    def note(cursor: Any, place: Any, principal_id: int | None, groups: Any) -> Any:
        read.append(principal_id)
        return read_held(cursor, place, principal_id, groups)

    monkeypatch.setattr(stored_grants, "read_held", note)
    for _ in range(2):  # the first may come before the worker has looked for changes
        assert through(lake, "ann", "sales.d", worker=1) == 200
    read.clear()
    assert [through(lake, "ann", "sales.d", worker=1) for _ in range(5)] == [200] * 5
    assert definer not in read
    for _ in range(3):
        lake.take("owner", "select", "table:hr.t")
        assert through(lake, "ann", "sales.d", worker=1) == 403
        lake.give("owner", "select", "table:hr.t")
        assert through(lake, "ann", "sales.d", worker=1) == 200


def test_forged_chain_lends_nothing(lake: Governed, subtests: pytest.Subtests) -> None:
    for chain in [
        ("sales.v",),
        ("sales.none",),
        ("sales.d", "sales.v"),
        ("sales.v", "sales.d"),
        ("sales.d", "sales.d"),
        ("hr.v",),
        ("hr.t",),
        ("sales.d",) * 21,
        ("d",),
        ("SALES.D",),
    ]:
        with subtests.test(str(chain)):
            assert through(lake, "ann", *chain) == 403


def test_invoker_view_lends_nothing(lake: Governed) -> None:
    assert make(lake, "owner", "i", "SELECT id FROM hr.t").status_code == 200
    lake.give("ann", "select", "view:sales.i")
    assert through(lake, "ann", "sales.i") == 403


def test_loan_is_for_one_load_of_the_table(lake: Governed) -> None:
    """No plan, no history, no change; what comes next is refused as before."""
    text = "sales%251Fd"
    for method, path in (
        ("HEAD", ""),
        ("POST", "/plan"),
        ("GET", "/history"),
        ("DELETE", ""),
        ("POST", "/rows"),
        ("POST", "/sign"),
        ("POST", "/metrics"),
        ("GET", "/credentials"),
    ):
        body: Json = {} if method == "POST" else None
        assert lake.status("ann", method, f"{PAY}{path}?referenced-by={text}", body) == 403, (method, path)


def test_who_may_only_alter_can_not_redirect_the_owners_rights(lake: Governed) -> None:
    lake.give("owner", "select", "table:hr.t2")
    lake.give("eve", "select alter", "view:sales.d")
    assert rewrite(lake, "eve", "d", "SELECT id FROM hr.t2") == 403
    assert commit(lake, "eve", "d", set_properties(**DEFINER)) == 403
    assert through(lake, "ann", "sales.d") == 200
    assert commit(lake, "eve", "d", set_properties(**{"ducklake.view-security": "invoker"})) == 200
    assert through(lake, "ann", "sales.d") == 403
    assert rewrite(lake, "eve", "d", "SELECT id FROM hr.t2") == 200
    assert commit(lake, "eve", "d", set_properties(**DEFINER)) == 403
    assert through(lake, "ann", "sales.d", path=f"{HR}/tables/t2") == 403


def test_other_properties_keep_the_loan(lake: Governed) -> None:
    lake.give("eve", "alter", "view:sales.d")
    assert commit(lake, "eve", "d", set_properties(comment="pay")) == 200
    assert through(lake, "ann", "sales.d") == 200


def test_owner_who_changes_the_sql_lends_what_it_reads_then(lake: Governed) -> None:
    assert rewrite(lake, "owner", "d", "SELECT id FROM hr.t2") == 403  # the owner may not read that
    lake.give("owner", "select", "table:hr.t2")
    assert rewrite(lake, "owner", "d", "SELECT id FROM hr.t2") == 200
    assert through(lake, "ann", "sales.d") == 403
    assert through(lake, "ann", "sales.d", path=f"{HR}/tables/t2") == 200


def test_definer_must_read_what_the_view_reads(governed: Governed) -> None:
    assert make(governed, "owner", "d", "SELECT id FROM hr.t", **DEFINER).status_code == 403
    assert make(governed, "owner", "d", "SELECT 1 AS id", **DEFINER).status_code == 400
    assert make(governed, "owner", "d", "SELECT id FROM t", **{"ducklake.view-security": "x"}).status_code == 400
    assert make(governed, "owner", "d", "SELECT id FROM t", **DEFINER).status_code == 200


def test_rights_of_the_definer_end_at_once(lake: Governed) -> None:
    lake.take("owner", "select", "table:hr.t")
    assert through(lake, "ann", "sales.d", worker=1) == 403
    lake.give("owner", "select", "table:hr.t")
    assert through(lake, "ann", "sales.d", worker=1) == 200
    lake.take("owner", "ownership", "namespace:sales")
    lake.take("owner", "ownership", "view:sales.d")
    assert through(lake, "ann", "sales.d") == 403


@pytest.mark.parametrize(
    "ending",
    [
        "UPDATE duckicelake_principal SET is_disabled = true WHERE name = 'owner'",
        "DELETE FROM duckicelake_principal WHERE name = 'owner'",
        "UPDATE duckicelake_principal SET scopes = '{ns:sales:*}' WHERE name = 'owner'",
    ],
)
def test_definer_who_is_gone_lends_nothing(lake: Governed, ending: str) -> None:
    lake.sql(ending)
    assert through(lake, "ann", "sales.d") == 403


def test_scopes_of_the_reader_stay_the_bound(lake: Governed) -> None:
    lake.give("reader", "select", "view:sales.d")  # whose scope is ns:sales:r
    assert through(lake, "reader", "sales.d") == 403
    assert lake.status("reader", "GET", f"{SALES}/views/d") == 200


def test_rename_keeps_the_loan_and_a_move_ends_it(lake: Governed) -> None:
    def rename(who: str, source: list[str], target: list[str]) -> int:
        names = [{"namespace": name[:-1], "name": name[-1]} for name in (source, target)]
        return lake.status(who, "POST", "/v1/views/rename", dict(zip(("source", "destination"), names, strict=True)))

    assert rename("owner", ["sales", "d"], ["sales", "e"]) == 204
    assert through(lake, "ann", "sales.d") == 403
    assert through(lake, "ann", "sales.e") == 200
    assert rename("owner", ["sales", "e"], ["sales", "eu", "e"]) == 204
    assert lake.status("ann", "GET", "/v1/namespaces/sales%1Feu/views/e") == 200
    assert through(lake, "ann", "sales.eu.e") == 403


def test_undrop_and_new_views_of_the_name_lend_nothing(lake: Governed) -> None:
    assert lake.status("owner", "DELETE", f"{SALES}/views/d") == 204
    assert lake.status("owner", "POST", f"{SALES}/undrop", {"kind": "view", "name": "d"}) == 200
    assert through(lake, "ann", "sales.d") == 403
    assert commit(lake, "owner", "d", set_properties(**DEFINER)) == 200
    assert through(lake, "ann", "sales.d") == 200
    assert lake.status("owner", "DELETE", f"{SALES}/views/d") == 204
    lake.give("eve", "create", "namespace:sales")
    assert make(lake, "eve", "d", "SELECT id FROM hr.t").status_code == 200
    lake.give("ann", "select", "view:sales.d")
    assert through(lake, "ann", "sales.d") == 403
    assert make(lake, "eve", "d2", "SELECT id FROM hr.t", **DEFINER).status_code == 403


def test_registered_metadata_lends_nothing(lake: Governed) -> None:
    location = lake.ask("owner", "GET", f"{SALES}/views/d").json()["metadata-location"]
    lake.give("eve", "create select", "namespace:sales")
    body = {"name": "r", "metadata-location": location}
    assert lake.status("eve", "POST", f"{SALES}/register-view", body) == 403
    assert lake.status("owner", "POST", f"{SALES}/register-view", body) in (200, 403)


def test_duckdb_changes_end_the_loan(lake: Governed) -> None:
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{build_attach_source(lake.url)}' AS lake")
        connection.execute("CREATE OR REPLACE VIEW lake.sales.d AS SELECT id FROM lake.hr.t")
    lake.give("ann", "select", "view:sales.d")
    assert through(lake, "ann", "sales.d") == 403
    assert commit(lake, "owner", "d", set_properties(**DEFINER)) == 200
    assert through(lake, "ann", "sales.d") == 200


def test_nested_views_are_followed_link_by_link(lake: Governed) -> None:
    """i (invoker, ann may read) over d; o (definer) over i, an invoker in a definer."""
    assert make(lake, "owner", "i", "SELECT id FROM sales.d").status_code == 200
    lake.give("ann", "select", "view:sales.i")
    assert through(lake, "ann", "sales.i", "sales.d") == 200
    lake.take("ann", "select", "view:sales.d")
    assert through(lake, "ann", "sales.i", "sales.d") == 403
    assert through(lake, "ann", "sales.i", path=f"{SALES}/views/d") == 403
    assert make(lake, "owner", "j", "SELECT id FROM hr.t").status_code == 200
    assert make(lake, "owner", "o", "SELECT id FROM sales.j", **DEFINER).status_code == 200
    lake.give("ann", "select", "view:sales.o")
    assert through(lake, "ann", "sales.o", path=f"{SALES}/views/j") == 200
    assert through(lake, "ann", "sales.o", "sales.j") == 200
    assert through(lake, "ann", "sales.o") == 403
    assert through(lake, "ann", "sales.j") == 403


def test_views_in_the_place_of_what_a_definer_view_reads_lend_nothing(lake: Governed) -> None:
    """Eve may make things in sales, and read nothing of hr. She puts views where o reads a view and a table."""
    assert make(lake, "owner", "j", "SELECT id FROM sales.t").status_code == 200
    sql = "SELECT j.id FROM sales.j JOIN sales.t2 ON j.id = t2.id"
    assert make(lake, "owner", "o", sql, **DEFINER).status_code == 200
    lake.give("ann", "select", "view:sales.o")
    lake.give("eve", "select alter drop create", "namespace:sales")
    assert through(lake, "ann", "sales.o", path=f"{SALES}/tables/t2") == 200
    assert rewrite(lake, "eve", "j", "SELECT id FROM hr.t") == 200
    assert through(lake, "ann", "sales.o", "sales.j") == 403
    assert through(lake, "ann", "sales.o", path=f"{SALES}/tables/t2") == 403
    assert commit(lake, "owner", "o", set_properties(**DEFINER)) == 200
    assert lake.status("eve", "DELETE", f"{SALES}/tables/t2") == 204
    assert make(lake, "eve", "t2", "SELECT id FROM hr.t").status_code == 200
    assert through(lake, "ann", "sales.o", "sales.t2") == 403
    assert lake.status("eve", "DELETE", f"{SALES}/views/t2") == 204
    assert lake.status("boss", "POST", f"{SALES}/tables", {"name": "t2", "schema": SCHEMA}) == 200
    assert through(lake, "ann", "sales.o", path=f"{SALES}/tables/t2") == 200  # a table counts by its name


@pytest.mark.parametrize(
    ("sql", "lends"),
    [
        ("WITH t AS (SELECT 1 AS id) SELECT id FROM t", False),
        ("SELECT id FROM sales.t WHERE id IN (SELECT id FROM hr.t)", True),
        ("SELECT id FROM sales.t WHERE 'hr.t' = 'x' -- FROM hr.t", False),
        ("SELECT id FROM sales.t AS `hr.t`", False),
        ("SELECT id FROM other.hr.t", True),
        ("SELECT id FROM spark_catalog.hr.t", False),
    ],
)
def test_view_must_really_read_the_table(lake: Governed, sql: str, lends: bool) -> None:
    answer = make(lake, "owner", "q", sql, dialects=["spark"], **DEFINER)
    assert answer.status_code == 200 or not lends
    lake.give("ann", "select", "namespace:sales")
    assert through(lake, "ann", "sales.q") == (200 if lends else 403)


@pytest.fixture
def limits(governed: Governed) -> Iterator[None]:
    service._limits[governed.services.database] = LIMITS
    yield
    service._limits.clear()
    service.end_processes()


def query(lake: Governed, who: str, sql: str, **body: Json) -> httpx.Response:
    headers = bearing(lake.tokens[who])
    return lake.workers[1].post("/sql/v1/query", json={"sql": sql, **body}, headers=headers)


@pytest.mark.usefixtures("limits")
def test_queries_follow_the_same_rule(lake: Governed) -> None:
    lake.give("owner", "insert", "table:hr.t")
    assert lake.status("owner", "POST", f"{PAY}/rows", [{"id": 7}]) == 200
    assert query(lake, "ann", "SELECT id FROM hr.t").status_code == 403
    answer = query(lake, "ann", "SELECT id FROM sales.d")
    assert [json.loads(line) for line in answer.text.splitlines()] == [{"id": 7}], answer.text
    assert query(lake, "ann", "SELECT id FROM sales.d", explain=True).status_code == 403
    assert query(lake, "owner", "SELECT id FROM sales.d", explain=True).json()["scans"][0]["table"] == "hr.t"
    assert query(lake, "ann", "SELECT d.id FROM sales.d JOIN hr.t ON true").status_code == 403
    assert query(lake, "ann", "WITH d AS (SELECT * FROM hr.t) SELECT * FROM sales.d").status_code == 403
    lake.take("owner", "select", "table:hr.t")
    assert query(lake, "ann", "SELECT id FROM sales.d").status_code == 403


@pytest.mark.usefixtures("limits")
def test_query_cannot_say_where_a_view_finds_its_tables(lake: Governed) -> None:
    """A name without a namespace is in that of the view, whatever the query says."""
    lake.give("owner", "select", "namespace:hr")
    assert make(lake, "owner", "n", "SELECT id FROM t", **DEFINER).status_code == 200
    lake.give("ann", "select", "view:sales.n")
    lake.give("owner", "insert", "namespace:hr")
    assert lake.status("owner", "POST", f"{PAY}/rows", [{"id": 7}]) == 200
    answer = query(lake, "ann", "SELECT id FROM sales.n", namespace=["hr"])
    assert (answer.status_code, answer.text) == (200, "")


@pytest.mark.usefixtures("limits")
def test_conditions_are_not_computed_for_rows_that_a_view_hides(lake: Governed) -> None:
    """Nor are statistics read that know them: the view runs in a process without what reads these."""
    lake.give("owner", "insert", "table:hr.t")
    assert lake.status("owner", "POST", f"{PAY}/rows", [{"id": number} for number in range(1, 2000)]) == 200
    assert rewrite(lake, "owner", "d", "SELECT id FROM hr.t WHERE id % 1000 = 1") == 200
    answer = query(lake, "ann", "SELECT id FROM sales.d WHERE error(id::VARCHAR) IS NULL")
    assert answer.status_code != 200
    answer = query(lake, "ann", "SELECT id FROM sales.d WHERE 1000 // (id % 1000) > 0 ORDER BY id")
    assert [json.loads(line)["id"] for line in answer.text.splitlines()] == [1, 1001]
    used = [one.key for processes in service._processes.values() for one in processes._idle]
    assert sorted(key[-1] for key in used if key and key[0] == "ann") == ["False", "True"]
    assert query(lake, "owner", "SELECT id FROM hr.t LIMIT 1").status_code == 200
    used = [one.key for processes in service._processes.values() for one in processes._idle]
    assert sorted(key[-1] for key in used if key and key[0] == "owner") == ["False"]


@pytest.mark.usefixtures("limits")
def test_definer_view_lends_nothing_that_policies_hide_from_its_reader(lake: Governed) -> None:
    """By queries the reader sees the rest, by loads nothing. Whoever is kept from a part itself lends nothing."""
    lake.give("owner", "insert", "table:hr.t")
    assert lake.status("owner", "POST", f"{PAY}/rows", [{"id": number} for number in range(10)]) == 200
    above_7 = {"type": "gt", "left": {"type": "reference", "id": 1}, "right": 7}
    restrict(lake.services, "hr.t", above_7, to=("ann",))
    for statement, wanted in (("SELECT id FROM sales.d ORDER BY id", [8, 9]), ("SELECT count(*) FROM sales.d", [2])):
        answer = query(lake, "ann", statement)
        assert [next(iter(json.loads(line).values())) for line in answer.text.splitlines()] == wanted, answer.text
    assert query(lake, "ann", "SELECT id FROM sales.d", explain=True).status_code == 403
    assert through(lake, "ann", "sales.d", worker=1) == 403
    restrict(lake.services, "hr.t", above_7, to=("owner",))
    assert query(lake, "ann", "SELECT id FROM sales.d").status_code == 403


@pytest.fixture
def s3(postgres: EmbeddedPostgres, bucket: Bucket) -> Iterator[Governed]:
    """A lake on S3. The owner has the definer view ns.d over ns.t, and ann may read that view alone."""
    with s3_lake(postgres, bucket) as opened, ExitStack() as stack:
        services = replace(opened, rights=RightsCache.of_first(opened.database))
        clients = [OAuthClient(who, SECRET, ("grants",)) for who in PEOPLE]
        clients += [OAuthClient("root", SECRET, ("*",)), OAuthClient("reader", SECRET, ("ns:sales:r",))]
        server = Server()
        uri = stack.enter_context(running(server.app(services, server.authentication(*clients))))
        http = stack.enter_context(httpx.Client(base_url=uri, timeout=60))
        lake = Governed(services.database.url, services, [http])
        for who in PEOPLE:
            lake.sql("INSERT INTO duckicelake_principal (name, kind) VALUES (%s, 'service')", who)
        assert lake.status("root", "POST", "/v1/namespaces", {"namespace": ["ns"]}) == 200
        assert lake.status("root", "POST", "/v1/namespaces/ns/tables", {"name": "t", "schema": SCHEMA}) == 200
        lake.give("owner", "ownership", "namespace:ns")
        grants.set_grants(services, is_on=True)
        time.sleep(1.5)
        assert make(lake, "owner", "d", "SELECT id FROM ns.t", "/v1/namespaces/ns", **DEFINER).status_code == 200
        lake.give("ann", "select", "view:ns.d")
        yield lake


def test_keys_come_through_definer_views_only_where_the_warehouse_says_so(s3: Governed) -> None:
    path = "/v1/namespaces/ns/tables/t"
    through_view = f"{path}?referenced-by=ns%251Fd"
    keys: dict[str, Any] = {"X_Iceberg_Access_Delegation": "vended-credentials"}
    signatures: dict[str, Any] = {"X_Iceberg_Access_Delegation": "remote-signing"}
    assert "storage-credentials" in s3.ask("owner", "GET", path, **keys).json()
    for wish in (keys, signatures, {}):
        answer = s3.ask("ann", "GET", through_view, **wish)
        assert (answer.status_code, answer.json()["config"]) == (200, {})
        assert "storage-credentials" not in answer.json()
    assert s3.status("ann", "GET", f"{path}/credentials?referenced-by=ns%251Fd") == 403
    change_options(s3.services, {"definer-keys": "on"}, lambda _: None)
    assert s3.ask("ann", "GET", through_view, **signatures).json()["config"] == {}
    given = s3.ask("ann", "GET", through_view, **keys).json()
    refresh = given["storage-credentials"][0]["config"]["client.refresh-credentials-endpoint"]
    assert s3.status("ann", "GET", f"/{refresh}") == 200
    assert s3.status("ann", "GET", f"/{refresh.partition('&')[0]}") == 403
    assert s3.status("ann", "GET", path, **keys) == 403
    ((detail,),) = s3.sql(
        "SELECT detail FROM duckicelake_audit WHERE principal = 'ann' AND detail ->> 'vended' IS NOT NULL LIMIT 1"
    )
    assert (detail["definer"], detail["write"]) == ("owner", [])
    change_options(s3.services, {"definer-keys": None}, lambda _: None)
    assert "storage-credentials" not in s3.ask("ann", "GET", through_view, **keys).json()


def test_queries_through_a_definer_view_get_keys_of_its_tables_for_themselves_alone(s3: Governed) -> None:
    """Over S3: the rows of files, now and at a tag; the next query of the same process can't read them by name."""
    service._limits[s3.services.database] = LIMITS
    try:
        s3.give("owner", "insert", "table:ns.t")
        assert s3.status("owner", "POST", "/v1/namespaces/ns/tables/t/rows", [{"id": 7}]) == 200
        assert s3.status("owner", "POST", "/v1/namespaces/ns/tables/t/rows/flush", {}) == 200
        ((file,),) = s3.sql("SELECT path FROM ducklake_data_file")
        headers = bearing(s3.tokens["ann"])
        for body in ({}, {"at": "main"}):
            answer = s3.workers[0].post("/sql/v1/query", json={"sql": "SELECT id FROM ns.d", **body}, headers=headers)
            assert (answer.status_code, answer.text) == (200, '{"id":7}\n'), (body, answer.text)
        for sql in ("FROM ns.t", f"FROM '{file}'", "SELECT d.id FROM ns.d JOIN ns.t USING (id)"):
            assert s3.workers[0].post("/sql/v1/query", json={"sql": sql}, headers=headers).status_code in {400, 403}
    finally:
        service._limits.clear()
        service.end_processes()
