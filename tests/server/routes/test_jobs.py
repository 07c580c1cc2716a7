"""Jobs of the pipeline, by its own client against a live server: leases, what is told of them, and to whom."""

import base64
import time
from collections.abc import Callable
from uuid import uuid4

import httpx
import psycopg
import pytest
from fastapi import FastAPI

from duckicelake.catalog.context.services import Services
from duckicelake.errors import BadInputError, JobConflictError, LeaseLostError, MissingTableError, NotAllowedError
from duckicelake.pipeline import job as running_jobs
from duckicelake.pipeline.job import run_job
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.connection import Connection
from duckicelake.rest.http import Json
from duckicelake.server.app import create_app
from duckicelake.server.auth.oauth_clients import OAuthClient
from tests.support.client import SCHEMA
from tests.support.logins import SECRET, Server, bearing, token

Serve = Callable[[FastAPI], httpx.Client]
SALES = ("sales", "eu")


@pytest.fixture
def http(services: Services, serve: Serve) -> httpx.Client:
    return serve(create_app(services))


@pytest.fixture
def client(http: httpx.Client) -> CatalogClient:
    return CatalogClient(Connection(str(http.base_url)))


@pytest.fixture
def logged_in(services: Services, serve: Serve) -> Callable[[str], CatalogClient]:
    """A client of each of these names, whose scopes are: all, those of a writer, a reader, or of a namespace beside."""
    server = Server()
    scopes = {"root": "*", "etl": "ns:sales.eu:rw", "bi": "ns:sales:r", "hr": "ns:hr:*"}
    clients = [OAuthClient(name, SECRET, (scope,)) for name, scope in scopes.items()]
    uri = str(serve(server.app(services, server.authentication(*clients))).base_url)
    return lambda name: CatalogClient(Connection(uri, credential=f"{name}:{SECRET}"))


def new_job(**fields: object) -> Json:
    return {"id": str(uuid4()), "kind": "compact", "engine": "a test", "lease": "maintenance", **fields}


def let_lapse(database_url: str) -> None:
    """As if no one had renewed anything for a while."""
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE duckicelake_job SET lease_until = now() - interval '1 second'")


def results(client: CatalogClient, **filters: str) -> list[str]:
    return [job["result"] for job in client.jobs(**filters)]


def test_job_is_reported_as_running_and_then_with_what_came_of_it(client: CatalogClient) -> None:
    with run_job(client, "ingest", SALES, "t", run_id="r-1", parameters={"mode": "append"}) as job:
        (begun,) = client.jobs()
        job.ends("unchanged", "nothing is new", snapshot_ids=[2**62 + 1], rows=7)
    (ended,) = client.jobs()
    assert (begun["result"], begun["ended"], begun["run-id"]) == ("running", None, "r-1")
    assert (ended["id"], ended["kind"], ended["namespace"], ended["table"]) == (job.id, "ingest", ["sales", "eu"], "t")
    assert (ended["result"], ended["message"], ended["counts"]) == ("unchanged", "nothing is new", {"rows": 7})
    assert (ended["snapshot-ids"], ended["parameters"]) == ([2**62 + 1], {"mode": "append"})
    assert begun["started"] <= ended["ended"]


def test_job_that_raises_is_reported_as_failed_with_the_reason(client: CatalogClient) -> None:
    with pytest.raises(BadInputError), run_job(client, "sort", SALES, "t"):
        raise BadInputError("no such\ncolumn")
    (job,) = client.jobs()
    assert (job["result"], job["message"]) == ("failed", "no such column")


def test_lease_is_one_jobs_until_it_ends(client: CatalogClient) -> None:
    with run_job(client, "compact", SALES, "t", lease="maintenance") as first:
        refusal = f"sales.eu.t is held by job {first.id}.*anonymous.* until "
        with pytest.raises(JobConflictError, match=refusal), run_job(client, "sort", SALES, "t", lease="maintenance"):
            raise AssertionError("the second job runs, too")
        with run_job(client, "sort", SALES, "other", lease="maintenance"), run_job(client, "ingest", SALES, "t"):
            pass
    with run_job(client, "sort", SALES, "t", lease="maintenance"):
        pass
    assert results(client, table="t", namespace="sales\x1feu") == ["done", "done", "done"]


def test_lease_that_was_not_renewed_is_taken_over_and_its_job_must_not_commit(
    client: CatalogClient, database_url: str
) -> None:
    with run_job(client, "compact", SALES, "t", lease="maintenance") as slow:
        let_lapse(database_url)
        assert results(client) == ["lost"]
        with run_job(client, "sort", SALES, "t", lease="maintenance") as quick:
            quick.check()
        with pytest.raises(LeaseLostError, match="another job took over"):
            slow.check()
    assert results(client) == ["done", "lost"]


def test_lapsed_lease_that_no_one_took_is_renewed(client: CatalogClient, database_url: str) -> None:
    with run_job(client, "compact", SALES, "t", lease="maintenance") as job:
        let_lapse(database_url)
        job.check()
        assert results(client) == ["running"]


def test_job_that_begins_again_after_its_lease_has_lapsed_holds_it_or_is_over(
    client: CatalogClient, database_url: str
) -> None:
    job = new_job()
    client.begin_job(SALES, "t", job)
    let_lapse(database_url)
    client.begin_job(SALES, "t", job)
    client.renew_job(SALES, "t", job["id"], {})
    assert results(client) == ["running"]
    let_lapse(database_url)
    client.begin_job(SALES, "t", new_job())
    with pytest.raises(JobConflictError, match="lost"):
        client.begin_job(SALES, "t", job)


def test_old_jobs_are_forgotten_but_not_while_they_run(client: CatalogClient, database_url: str) -> None:
    with run_job(client, "ingest", SALES, "t") as ended, run_job(client, "stream", SALES, "t") as runs:
        ended.ends("done")
    stream = new_job(kind="stream", lease=None)
    client.begin_job(SALES, "t", stream)
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE duckicelake_job SET started = started - interval '91 days'")
    latest = new_job()
    client.begin_job(SALES, "other", latest)
    assert [job["id"] for job in client.jobs()] == [latest["id"], stream["id"]], f"{ended.id} and {runs.id} ended"


def test_job_is_renewed_while_its_block_works(client: CatalogClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_jobs, "LEASE_SECONDS", 1)
    with run_job(client, "compact", SALES, "t") as job:
        job.counts["files"] = 3
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not next(client.jobs())["counts"]:
            time.sleep(0.02)
        (report,) = client.jobs()
    assert report["counts"] == {"files": 3}


def test_request_that_is_sent_again_changes_nothing(client: CatalogClient) -> None:
    job, end = new_job(), {"result": "done", "snapshot-ids": [5]}
    assert client.begin_job(SALES, "t", job)["id"] == client.begin_job(SALES, "t", job)["id"] == job["id"]
    assert client.end_job(SALES, "t", job["id"], end) == client.end_job(SALES, "t", job["id"], end)
    assert results(client) == ["done"]


def test_job_that_is_over_neither_goes_on_nor_ends_otherwise(client: CatalogClient) -> None:
    job = new_job()
    client.begin_job(SALES, "t", job)
    client.end_job(SALES, "t", job["id"], {"result": "failed", "message": "disk full"})
    for attempt in (
        lambda: client.begin_job(SALES, "t", job),
        lambda: client.renew_job(SALES, "t", job["id"], {}),
        lambda: client.end_job(SALES, "t", job["id"], {"result": "done"}),
    ):
        with pytest.raises(JobConflictError, match="failed"):
            attempt()
    assert results(client) == ["failed"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "mine"},
        {"lease-seconds": 0},
        {"lease": ""},
        {"id": "7"},
        {"parameters": {"a": "x" * 70_000}},
        {"parameters": {"a": 10**30}},
        {"engine": "a\x00"},
    ],
)
def test_wrong_job_is_refused(client: CatalogClient, wrong: Json) -> None:
    with pytest.raises(BadInputError):
        client.begin_job(SALES, "t", new_job(**wrong))
    assert results(client) == []


def test_list_is_filtered_and_comes_in_pages_newest_first(client: CatalogClient, http: httpx.Client) -> None:
    for number in range(5):
        with run_job(client, "ingest" if number % 2 else "sort", SALES, f"t{number}", run_id=f"r{number}"):
            pass
    paged, token = [], ""
    while token is not None:
        page = http.get("/pipeline/v1/jobs", params={"pageSize": 2, "pageToken": token}).json()
        paged.append([job["table"] for job in page["jobs"]])
        token = page["next-page-token"]
    assert paged == [["t4", "t3"], ["t2", "t1"], ["t0"]]
    assert [job["table"] for job in client.jobs(kind="ingest")] == ["t3", "t1"]
    assert [job["table"] for job in client.jobs(run_id="r2")] == ["t2"]
    assert results(client, result="failed") == results(client, namespace="sales") == []
    too_large = base64.urlsafe_b64encode(f"after:{2**63}".encode()).decode()
    for wrong in (
        {"pageToken": "YWZ0ZXI6eA"},
        {"pageToken": too_large},
        {"kind": "ingst"},
        {"result": "ok"},
        {"table": "t"},
    ):
        assert http.get("/pipeline/v1/jobs", params=wrong).status_code == 400


def test_jobs_are_shown_to_who_may_read_and_run_by_who_may_write(
    logged_in: Callable[[str], CatalogClient],
) -> None:
    with run_job(logged_in("etl"), "ingest", SALES, "t") as job:
        assert results(logged_in("bi")) == results(logged_in("etl")) == ["running"]
        assert results(logged_in("hr")) == []
        with pytest.raises(NotAllowedError), run_job(logged_in("bi"), "ingest", SALES, "t"):
            raise AssertionError("a reader runs jobs")
        with pytest.raises(MissingTableError, match="No such job of yours"):
            logged_in("root").end_job(SALES, "t", job.id, {"result": "failed"})
        with pytest.raises(NotAllowedError):
            logged_in("hr").end_job(SALES, "t", job.id, {"result": "failed"})
    (report,) = logged_in("root").jobs()
    assert (report["result"], report["principal"]) == ("done", "etl")


@pytest.mark.parametrize("path", ["jobs", "tables"])
def test_pages_show_nothing_of_what_their_reader_may_not_see(
    services: Services, serve: Serve, client: CatalogClient, path: str
) -> None:
    server = Server()
    http = serve(server.app(services, server.authentication(OAuthClient("sales", SECRET, ("ns:sales:r",)))))
    http.headers.update(bearing(token(http, "sales")))
    for namespace in ("hr", "sales"):
        client.post("/v1/namespaces", {"namespace": [namespace]})
        for number in range(3):
            client.post(f"/v1/namespaces/{namespace}/tables", {"name": f"t{number}", "schema": SCHEMA})
            client.begin_job((namespace,), f"t{number}", new_job(run_id=namespace))

    def page(**query: str) -> tuple[list[str], str | None]:
        answer = http.get(f"/pipeline/v1/{path}", params={"pageSize": 1, "pageToken": "", **query}).json()
        return [each["table"] for each in answer[path]], answer["next-page-token"]

    assert page(namespace="hr") == page(namespace="nothing") == ([], None)
    if path == "jobs":
        assert page(**{"run-id": "hr"}) == page(namespace="hr", table="t1") == ([], None)
    listed, token_of_next = page()
    while token_of_next is not None:
        shown, token_of_next = page(pageToken=token_of_next)
        assert len(shown) == 1, "a page of others' is empty, and so tells how many there are"
        listed += shown
    assert sorted(listed) == ["t0", "t1", "t2"]


def test_jobs_are_counted_by_kind_and_result(client: CatalogClient, http: httpx.Client) -> None:
    with run_job(client, "flush", SALES, "t"):
        pass
    with pytest.raises(BadInputError), run_job(client, "flush", SALES, "t"):
        raise BadInputError("so")
    report = http.get("/metrics").text
    assert 'duckicelake_jobs_total{kind="flush",result="done"} 1.0' in report
    assert 'duckicelake_jobs_total{kind="flush",result="failed"} 1.0' in report


def test_old_jobs_are_forgotten(client: CatalogClient, database_url: str) -> None:
    for table in ("old", "young"):
        with run_job(client, "flush", SALES, table):
            pass
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE duckicelake_job SET started = now() - interval '91 days' WHERE table_name = 'old'")
    with run_job(client, "flush", SALES, "new"):
        pass
    assert [job["table"] for job in client.jobs()] == ["new", "young"]


def test_plan_says_what_is_due_and_why(http: httpx.Client, client: CatalogClient) -> None:
    client.post("/v1/namespaces", {"namespace": ["sales"]})
    for name, rows in (("due", "2"), ("odd", "x")):
        table = {"name": name, "schema": SCHEMA, "properties": {"maintenance.flush.min-rows": rows}}
        client.post("/v1/namespaces/sales/tables", table)
    client.post("/v1/namespaces/sales/tables/due/rows", [{"id": 1}, {"id": 2}])
    answer = http.get("/pipeline/v1/plan", params={"namespace": "sales"}).json()
    flush = next(job for job in answer["jobs"] if job["kind"] == "flush")
    assert (flush["table"], flush["why"]) == ("due", "2 rows in Postgres, from 2 on they go to a file")
    assert {job["table"] for job in answer["jobs"]} == {"due"}
    (problem,) = answer["problems"]
    assert "sales.odd is left alone: the property maintenance.flush.min-rows is 'x'" in problem
    assert answer["tables"] == 2
    assert http.get("/pipeline/v1/plan", params={"namespace": "sales", "table": "none"}).status_code == 404
