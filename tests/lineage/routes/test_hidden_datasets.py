"""What lineage tells no one who may not read it, in whatever it is mentioned; and what forgers can't do to it."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from duckicelake.catalog.context.caller import GRANTED, Principal
from duckicelake.catalog.context.privileges import HeldGrant, ObjectRef, Privilege, Rights
from duckicelake.errors import NotFoundError
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lineage.graph.store import LOCK_KEY, record_events
from duckicelake.lineage.graph.traversal import GraphQuery, read_events, read_graph, read_run, search_datasets
from duckicelake.postgres.database import Database
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.server.auth.oauth_clients import OAuthClient
from tests.conftest import new_lake, services_of
from tests.support.lineage_events import (
    CATALOG,
    Json,
    columns,
    dataset_event,
    event,
    facet,
    foreign,
    job_event,
    run_id,
    table,
)
from tests.support.logins import SECRET, Server, bearing, token
from tests.support.servers import running

SCOPES = {"root": "*", "shop": "ns:shop:rw", "reader": "ns:shop:r", "nobody": ""}
SECRET_NAMES = ("vault", "gold", "karat")
GOLD, COINS, COPY = table("vault.gold"), table("shop.coins"), table("shop.copy")
QUERY = "INSERT INTO shop.coins SELECT karat FROM vault.gold"
DAY = 24 * 60


def report() -> Iterator[Json]:
    """A job that once read the vault and now doesn't; a table that was the vault's; columns from there."""
    minted = event(1, inputs=(GOLD,), outputs=(COINS,), job="mint")
    minted["job"]["facets"]["sql"] = facet(query=QUERY)
    yield minted
    yield event(2, inputs=(COPY,), outputs=(COINS,), job="mint")
    yield event(3, outputs=(table("vault.gold_rings", "/lake/1"),), job="forge")
    renamed = facet(
        lifecycleStateChange="RENAME", previousIdentifier={"namespace": CATALOG, "name": "vault.gold_rings"}
    )
    yield event(4, outputs=(table("shop.rings", "/lake/1", lifecycleStateChange=renamed),), job="give")
    yield event(5, outputs=(table("shop.rings", "/lake/1"),), job="polish")
    yield event(6, outputs=(table("shop.bars", columnLineage=columns(("weight", GOLD, "karat"))),), job="melt")


class Lake:
    def __init__(self, http: httpx.Client, database: Database) -> None:
        self.http, self.database = http, database
        self.headers = {who: bearing(token(http, who)) for who in SCOPES}

    def get(self, path: str, who: str = "reader", status: int = 200, **query: Any) -> httpx.Response:
        answer = self.http.get(path, params=query, headers=self.headers[who])
        assert answer.status_code == status, answer.text
        return answer

    def send(self, body: Json, who: str = "shop") -> httpx.Response:
        return self.http.post("/api/v1/lineage", json=body, headers=self.headers[who])


@pytest.fixture(scope="module")
def lake(postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    with new_lake(postgres, warehouse) as url, closing(open_lake_database(url, pool_size=4)) as database:
        server, services = Server(), services_of(database, warehouse)
        clients = [OAuthClient(who, SECRET, tuple(scopes.split())) for who, scopes in SCOPES.items()]
        with (
            running(server.app(services, server.authentication(*clients))) as uri,
            httpx.Client(base_url=uri, timeout=60) as http,
        ):
            with database.transaction() as cursor:
                record_events(cursor, list(report()), origin="catalog")
                record_events(cursor, [job_event(7, "view", (COPY,), (COINS,))], origin="catalog")
            yield Lake(http, database)


@pytest.mark.parametrize(
    ("path", "query"),
    [
        *(("/lineage/v1/graph", {"node": f"shop.{name}", "columns": "true"}) for name in ("coins", "rings", "bars")),
        *(("/lineage/v1/export", {"node": f"shop.{name}"}) for name in ("coins", "rings", "bars")),
        *((f"/lineage/v1/runs/{run_id(number)}", {}) for number in range(1, 7)),
        *((f"/api/v1/jobs/runs/{run_id(number)}/facets", {"type": "job"}) for number in range(1, 7)),
        *(
            (f"/api/v1/namespaces/{CATALOG.replace('/', '%2F')}/datasets/shop.{name}/versions", {})
            for name in ("coins", "rings")
        ),
        (f"/api/v1/namespaces/{CATALOG.replace('/', '%2F')}/datasets", {}),
        ("/api/v1/namespaces", {}),
        ("/api/v1/jobs", {}),
        ("/api/v1/events/lineage", {}),
        ("/api/v1/lineage", {"nodeId": f"dataset:{CATALOG}:shop.rings"}),
        ("/api/v1/column-lineage", {"nodeId": f"dataset:{CATALOG}:shop.bars"}),
        ("/api/v1/search", {"q": "%"}),
    ],
)
def test_nothing_hidden_is_mentioned(lake: Lake, path: str, query: dict[str, Any]) -> None:
    text = lake.get(path, **query).text
    assert [name for name in SECRET_NAMES if name in text] == []


def test_reader_of_one_table_sees_its_lineage_and_no_names_of_others(lake: Lake) -> None:
    coins = HeldGrant("table", 1, ObjectRef("table", ("shop",), "coins"), Privilege.SELECT)
    ann = Principal("ann", (GRANTED,), rights=Rights.build([coins]))
    graph = read_graph(lake.database, ann, GraphQuery("shop.coins", with_columns=True))
    assert [node.name for node in graph.nodes] == ["shop.coins"]
    shown = [graph, read_events(lake.database, ann, graph), search_datasets(lake.database, ann, "", 100)]
    runs = [read_run(lake.database, ann, run_id(number)) for number in (1, 2)]
    shown += [([io.table_name for io in run.io], run.facets, run.events) for run in runs]
    text = repr(shown)
    assert "shop.coins" in text
    assert [name for name in (*SECRET_NAMES, "copy", "rings", "bars") if name in text] == []
    for hidden in ("shop.copy", "shop.rings", "vault.gold"):
        with pytest.raises(NotFoundError):
            read_graph(lake.database, ann, GraphQuery(hidden))
    with pytest.raises(NotFoundError):
        read_run(lake.database, ann, run_id(5))


def test_former_name_that_is_hidden_finds_nothing(lake: Lake) -> None:
    lake.get("/lineage/v1/graph", node="vault.gold_rings", status=404)
    assert "shop.rings" in lake.get("/lineage/v1/graph", "root", node="vault.gold_rings").text


def test_what_is_not_hidden_is_reported(lake: Lake) -> None:
    assert len(lake.get(f"/lineage/v1/runs/{run_id(5)}").json()["events"]) == 1
    assert len(lake.get(f"/lineage/v1/runs/{run_id(2)}").json()["events"]) == 1
    assert QUERY in lake.get(f"/api/v1/jobs/runs/{run_id(1)}/facets", "root", type="job").text


def test_forged_event_is_not_shown_as_one_of_the_catalogs_run(lake: Lake) -> None:
    assert lake.send(event(5, "FAIL", minutes=0, errorMessage=facet(message="forged"))).status_code == 200
    for who in ("root", "reader"):
        assert "forged" not in lake.get(f"/lineage/v1/runs/{run_id(5)}", who).text
        assert "forged" not in lake.get("/lineage/v1/export", who, node="shop.rings").text


def test_forged_job_of_the_catalog_changes_nothing(lake: Lake) -> None:
    before = lake.get("/lineage/v1/graph", "root", node="shop.coins").json()
    forged = job_event(8, "view", (), (COINS,))
    forged["job"]["facets"]["sql"] = facet(query="forged")
    assert lake.send(forged).status_code == 200
    assert lake.send(event(90, job="view")).status_code == 200
    assert lake.get("/lineage/v1/graph", "root", node="shop.coins").json() == before
    assert "forged" not in lake.get("/api/v1/jobs", "root").text


def test_who_only_reads_a_table_does_not_describe_it(lake: Lake) -> None:
    described = table("shop.coins", documentation=facet(description="forged"))
    assert lake.send(event(91, inputs=(described,)), "reader").status_code == 200
    for namespace in lake.get("/api/v1/namespaces", "root").json()["namespaces"]:
        found = lake.get(f"/api/v1/namespaces/{quote(namespace['name'], safe='')}/datasets", "root")
        assert "forged" not in found.text


def test_events_of_who_was_granted_nothing_are_refused(lake: Lake) -> None:
    answer = lake.send(event(92, outputs=(foreign("pg://x", "t"),)), "nobody")
    assert answer.status_code == 403
    assert "with a grant" in answer.json()["error"]["message"]


def test_events_that_wait_for_others_hold_up_no_commit(lake: Lake) -> None:
    def sent(number: int) -> int:
        return lake.send(event(1000 + number, outputs=(foreign("pg://x", "t"),))).status_code

    with ThreadPoolExecutor(20) as threads, ExitStack() as held:
        held.enter_context(lake.database.transaction()).execute("SELECT pg_advisory_xact_lock(%s)", [LOCK_KEY])
        answers = [threads.submit(sent, number) for number in range(20)]
        refused = {each.result() for each in islice(as_completed(answers, timeout=60), 4)}
        body = {"namespace": ["free"]}
        lake.http.post("/v1/namespaces", json=body, headers=lake.headers["root"]).raise_for_status()
        held.close()
        assert refused == {503}
        assert Counter(each.result() for each in answers) == {200: 16, 503: 4}


def test_event_that_would_make_too_many_edges_is_refused(lake: Lake) -> None:
    many = tuple(foreign("pg://x", f"t{number}") for number in range(224))
    answer = lake.send(event(91, inputs=many, outputs=many))
    assert answer.status_code == 400
    assert "edges" in answer.text


def test_event_from_far_ahead_is_refused(lake: Lake) -> None:
    def sent(ahead: timedelta) -> int:
        time = (datetime.now(UTC) + ahead).isoformat()
        return lake.send(dataset_event(0, table("shop.copy")) | {"eventTime": time}).status_code

    assert sent(timedelta(days=2)) == 400
    assert sent(timedelta(hours=1)) == 200


@pytest.mark.parametrize("verb", ["append", "create-table", "view"])
def test_stored_name_of_a_job_is_shown_without_a_hidden_table(lake: Lake, verb: str) -> None:
    number = 200 + len(verb)
    whole, masked = (f"loader.{verb}.{subject}.0000{number:04x}" for subject in ("vault.gold", "several-namespaces"))
    report = event(number, inputs=(COPY,), outputs=(GOLD,), job=whole, job_namespace=CATALOG)
    with lake.database.transaction() as cursor:
        record_events(cursor, [report], origin="catalog")
    space = f"/api/v1/namespaces/{quote(CATALOG, safe='')}/jobs"
    paths: list[tuple[str, dict[str, Any]]] = [
        (space, {}),
        ("/api/v1/search", {"q": "loader"}),
        (f"{space}/NAME", {}),
        (f"{space}/NAME/runs", {}),
        (f"/api/v1/jobs/runs/{run_id(number)}", {}),
        (f"/lineage/v1/runs/{run_id(number)}", {}),
        ("/api/v1/lineage", {"nodeId": f"job:{CATALOG}:NAME"}),
    ]
    for who, shown, other in (("reader", masked, whole), ("root", whole, masked)):
        for path, query in paths:
            filled = {key: value.replace("NAME", shown) for key, value in query.items()}
            text = lake.get(path.replace("NAME", shown), who, **filled).text
            assert shown in text, path
            assert other not in text, path
    assert lake.get("/api/v1/search", q=f"{verb}.vault.gold").json()["totalCount"] == 0


def test_name_of_a_job_is_shown_without_a_hidden_former_name(lake: Lake) -> None:
    whole, masked = (f"loader.append.{subject}.00000abc" for subject in ("vault.gold_old", "several-namespaces"))
    renamed = facet(lifecycleStateChange="RENAME", previousIdentifier={"namespace": CATALOG, "name": "vault.gold_old"})
    given = table("shop.old", "/lake/9", lifecycleStateChange=renamed)
    before = event(250, outputs=(table("vault.gold_old", "/lake/9"),), job=whole, job_namespace=CATALOG)
    with lake.database.transaction() as cursor:
        record_events(cursor, [before, event(251, outputs=(given,), job="give")], origin="catalog")
    path = f"/lineage/v1/runs/{run_id(250)}"
    assert masked in lake.get(path).text
    assert whole not in lake.get(path).text
    assert whole in lake.get(path, "root").text
