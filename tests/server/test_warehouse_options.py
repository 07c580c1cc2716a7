"""Options of warehouses: quotas that hold for Iceberg and DuckDB alike, throttles, policies, retention."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.warehouse_places import NewWarehouse
from duckicelake.catalog.warehouse_registry import create_warehouse
from duckicelake.catalog.warehouses import find_warehouse
from duckicelake.cli.serve.background_tasks import build_thresholds, run_warehouse_tasks
from duckicelake.cli.wiring.services import check_policies
from duckicelake.lake.ducklake.database import build_duckdb_attach
from duckicelake.lake.ducklake.dropped import set_retention
from duckicelake.server.app import create_app
from duckicelake.server.auth.oauth_clients import OAuthClient
from duckicelake.server.telemetry.logs import make_logger
from duckicelake.settings.model import Settings
from tests.conftest import new_duckdb
from tests.server.test_warehouses import LOG, Site, site_of, wait_until
from tests.support.client import SCHEMA
from tests.support.logins import SECRET, Server, token
from tests.support.servers import Serve

TABLES = "namespaces/ns/tables"


@pytest.fixture
def site(services: Services, tmp_path: Path, serve: Serve) -> Iterator[Site]:
    site = site_of(services, tmp_path, serve, check_policies=check_policies)
    for name in ("north", "south"):
        create_warehouse(site.services, site.wiring, NewWarehouse(name))
    with services.database.transaction() as cursor:
        set_retention(cursor, 7 * 86_400)
    yield site
    site.app.warehouses.close()


def change(site: Site, warehouse: str, **options: str | None) -> httpx.Response:
    changes = {name.replace("_", "-"): value for name, value in options.items()}
    return site.http.post(f"/management/v1/warehouses/{warehouse}/options", json={"options": changes})


def read(site: Site, warehouse: str) -> dict[str, str]:
    found: dict[str, str] = site.http.get(f"/management/v1/warehouses/{warehouse}/options").json()["options"]
    return found


def create(site: Site, warehouse: str, name: str) -> httpx.Response:
    return site.http.post(site.url(warehouse, TABLES), json={"name": name, "schema": SCHEMA})


@pytest.mark.parametrize("which", ["north", "duckicelake"])
def test_option_is_set_read_and_unset(site: Site, which: str) -> None:
    default = read(site, which)
    assert default == {"drop-retention-seconds": "604800"}
    changed = change(site, which, max_tables="10", max_namespaces="5", drop_retention_seconds="60.5")
    assert changed.json()["options"] == {"drop-retention-seconds": "60.5", "max-namespaces": "5", "max-tables": "10"}
    assert read(site, which) == changed.json()["options"]
    assert read(site, "south") == default
    assert change(site, which, max_tables=None, max_namespaces=None, drop_retention_seconds=None).json() == {
        "options": default
    }


def test_bad_option_changes_nothing(site: Site, subtests: pytest.Subtests) -> None:
    for which, options, status, message in [
        ("north", {"max-table": "1"}, 400, "There is no option 'max-table' of a warehouse: expected one of max-tables"),
        ("north", {"grants": "on"}, 400, "There is no option 'grants'"),
        ("north", {"maintenance.flush.Min_Rows": "1"}, 400, "did you mean maintenance.flush.min-rows?"),
        ("north", {"max-tables": "-1"}, 400, "Invalid max-tables '-1': expected a whole number"),
        ("north", {"max-tables": "9" * 19}, 400, "expected a whole number"),
        ("north", {"max-tables": 5}, 400, "options.max-tables"),
        ("north", {"max-requests": "0"}, 400, "Invalid max-requests '0': expected more than 0"),
        ("north", {"drop-retention-seconds": "1 day"}, 400, "expected a number, as 10 or 0.5"),
        ("north", {"maintenance.flush.min-rows": "x"}, 400, "maintenance.flush.min-rows"),
        ("north", {"maintenance.flush.min-rows": ""}, 400, "expected 1 to 1000 characters"),
        ("duckicelake", {"max-requests": "5"}, 400, "that takes it from the settings"),
        ("west", {"max-tables": "1"}, 404, "No such warehouse: west"),
        ("We st", {"max-tables": "1"}, 404, "No such warehouse: We%20st"),
    ]:
        with subtests.test(which):
            body = {"options": {"max-namespaces": "7", **options}}
            answer = site.http.post(f"/management/v1/warehouses/{which}/options", json=body)
            assert answer.status_code == status, answer.text
            assert message in answer.json()["error"]["message"]
            assert read(site, "north") == {"drop-retention-seconds": "604800"}


@pytest.mark.parametrize("which", ["north", ""])
def test_quota_of_tables_is_exact_for_requests_at_once(site: Site, which: str) -> None:
    site.http.post(site.url(which, "namespaces"), json={"namespace": ["ns"]})
    assert change(site, which or "duckicelake", max_tables="5").status_code == 200
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(partial(create, site, which), (f"t{number}" for number in range(16))))
    refused = [answer for answer in answers if answer.status_code != 200]
    assert len(refused) == 11
    assert {(answer.status_code, answer.json()["error"]["type"]) for answer in refused} == {
        (403, "QuotaExceededException")
    }
    assert refused[0].json()["error"]["message"] == (
        "The warehouse may have 5 tables (max-tables), and has 5: this would make it 6"
    )
    names = site.names(which)
    assert len(names) == 5
    assert site.http.delete(site.url(which, f"{TABLES}/{names[0]}")).status_code == 204
    assert create(site, which, "again").status_code == 200
    undrop = site.http.post(site.url(which, "namespaces/ns/undrop"), json={"kind": "table", "name": names[0]})
    assert (undrop.status_code, undrop.json()["error"]["type"]) == (403, "QuotaExceededException")


def test_lowered_quota_refuses_new_tables_alone(site: Site) -> None:
    for name in ("a", "b"):
        site.create_table("north", name)
    assert change(site, "north", max_tables="1").status_code == 200
    renamed = {"source": {"namespace": ["ns"], "name": "a"}, "destination": {"namespace": ["ns"], "name": "c"}}
    assert site.http.post(site.url("north", "tables/rename"), json=renamed).status_code == 204
    moved = site.http.post(site.url("north", "namespaces/ns/rename"), json={"destination": ["other"]})
    assert moved.status_code == 200, moved.text
    assert site.http.delete(site.url("north", "namespaces/other/tables/b")).status_code == 204
    again = site.http.post(site.url("north", "namespaces/other/tables"), json={"name": "b", "schema": SCHEMA})
    assert again.status_code == 403


def test_quota_of_namespaces_leaves_out_main(site: Site) -> None:
    change(site, "north", max_namespaces="1")
    made = [site.http.post(site.url("north", "namespaces"), json={"namespace": [name]}) for name in ("a", "b")]
    assert [answer.status_code for answer in made] == [200, 403]
    message = made[1].json()["error"]["message"]
    assert message == "The warehouse may have 1 namespaces (max-namespaces), and has 1: this would make it 2"


def test_duckdb_is_held_to_the_same_quotas(site: Site, extensions: None) -> None:
    change(site, "north", max_tables="2", max_namespaces="1")
    row = find_warehouse(site.services, "north")
    with new_duckdb() as duck:
        duck.execute(build_duckdb_attach(site.services.database.url, "lake", schema=row.schema_name))
        duck.execute("CREATE SCHEMA lake.s")
        duck.execute("CREATE TABLE lake.s.a AS SELECT 1 AS id")
        duck.execute("CREATE TABLE lake.s.b AS SELECT 1 AS id")
        for statement, limit in (("CREATE TABLE lake.s.c(id INT)", "max-tables"), ("CREATE SCHEMA lake.x", "max-name")):
            with pytest.raises(duckdb.Error, match=limit):
                duck.execute(statement)
        duck.execute("CREATE OR REPLACE TABLE lake.s.a AS SELECT 2 AS id")
        duck.execute("INSERT INTO lake.s.a VALUES (3)")
        assert duck.execute("SELECT sum(id) FROM lake.s.a").fetchone() == (5,)


def test_rate_of_a_warehouse_is_its_own_and_counts_answers_from_memory(site: Site) -> None:
    for name in ("north", "south"):
        site.create_table(name)
    load = partial(site.http.get, site.url("north", f"{TABLES}/t"))
    assert {load().status_code for _ in range(3)} == {200}
    assert change(site, "north", requests_per_second="5").status_code == 200
    time.sleep(1.2)  # so long answers may come from memory
    answers = [load() for _ in range(20)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert 10 <= len(refused) <= 15
    assert refused[0].json()["error"]["type"] == "TooManyRequestsException"
    assert "5 requests in a second (requests-per-second)" in refused[0].json()["error"]["message"]
    assert int(refused[0].headers["Retry-After"]) >= 1
    assert site.http.get(site.url("south", f"{TABLES}/t")).status_code == 200
    assert read(site, "north")["requests-per-second"] == "5"  # who manages it isn't throttled by it
    metrics = site.http.get("/metrics").text
    assert f'duckicelake_warehouse_refusals_total{{warehouse="north"}} {len(refused)}.0' in metrics
    assert 'duckicelake_warehouse_request_seconds_count{warehouse="south"}' in metrics
    change(site, "north", requests_per_second=None)
    time.sleep(1.2)
    assert {load().status_code for _ in range(20)} == {200}


def test_requests_at_once_are_limited(site: Site) -> None:
    site.create_table("north")
    change(site, "north", max_requests="1")
    url = site.url("north", "events")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(site.http.get, url, params={"wait": "3"})
        wait_until(lambda: site.http.get(site.url("north", "namespaces")).status_code == 429, 3)
        refused = site.http.get(site.url("north", "namespaces"))
        assert "1 requests answered by a worker at a time (max-requests)" in refused.json()["error"]["message"]
        assert waiting.result().status_code == 200
    assert site.http.get(site.url("north", "namespaces")).status_code == 200


def test_policies_and_thresholds_are_the_warehouses_own(services: Services, tmp_path: Path, serve: Serve) -> None:
    settings = Settings(flush_rows=1000, flush_age=60)
    tasks = partial(run_warehouse_tasks, settings)
    site = site_of(services, tmp_path, serve, check_policies=check_policies, run_tasks=tasks)
    create_warehouse(site.services, site.wiring, NewWarehouse("north"))
    site.create_table("north")
    site.create_table("")
    options = {"maintenance.compaction.min-files": "2", "flush-rows": "2"}
    answer = site.http.post("/management/v1/warehouses/north/options", json={"options": options})
    assert answer.status_code == 200, answer.text
    row = find_warehouse(services, "north")
    thresholds = build_thresholds(settings, row.options)
    assert (thresholds.rows, thresholds.bytes, thresholds.age) == (2, None, 60_000)

    def policies(prefix: str) -> dict[str, str]:
        found: dict[str, str] = site.http.get(f"/pipeline/v1/{prefix}tables").json()["tables"][0]["policies"]
        return found

    assert policies("north/")["maintenance.compaction.min-files"] == "2"
    assert "maintenance.compaction.min-files" not in policies("")
    assert site.post_rows("north", {"id": 1, "name": "a"}, {"id": 2, "name": "b"}).status_code == 200

    def waiting() -> int:
        found: int = site.http.get("/pipeline/v1/north/tables").json()["tables"][0]["inlined-rows"]
        return found

    wait_until(lambda: waiting() == 0, 15)
    site.app.warehouses.close()


def test_retention_is_the_warehouses_own(site: Site) -> None:
    change(site, "north", drop_retention_seconds="0")
    for name, count in (("north", 0), ("south", 1)):
        site.create_table(name)
        assert site.http.delete(site.url(name, f"{TABLES}/t")).status_code == 204
        assert len(site.http.get(site.url(name, "dropped")).json()["dropped"]) == count


@pytest.mark.parametrize("which", ["north", ""])
def test_lists_show_what_was_dropped(site: Site, which: str) -> None:
    def names(path: str, **parameters: str) -> list[Any]:
        answer = site.http.get(site.url(which, path), params={"dropped": "true", **parameters})
        assert answer.status_code == 200, answer.text
        body = answer.json()
        return [one["name"] for one in body["identifiers"]] if "identifiers" in body else body["namespaces"]

    for name in ("a", "b"):
        site.create_table(which, name)
    assert names(TABLES) == names("namespaces/ns/views") == names("namespaces") == []
    for name in ("b", "a"):
        assert site.http.delete(site.url(which, f"{TABLES}/{name}")).status_code == 204
    site.create_table(which, "a")
    site.http.delete(site.url(which, f"{TABLES}/a"))
    assert site.names(which) == []
    assert names(TABLES) == ["a", "b"]
    first = site.http.get(site.url(which, TABLES), params={"dropped": True, "pageToken": "", "pageSize": 1}).json()
    assert first["identifiers"] == [{"namespace": ["ns"], "name": "a"}]
    assert names(TABLES, pageToken=first["next-page-token"]) == ["b"]
    assert site.http.post(site.url(which, "namespaces"), json={"namespace": ["ns", "deep"]}).status_code == 200
    for namespace in ("ns%1Fdeep", "ns"):
        assert site.http.delete(site.url(which, f"namespaces/{namespace}")).status_code == 204
    assert names("namespaces") == [["ns"], ["ns", "deep"]]
    assert names("namespaces", parent="ns") == [["ns", "deep"]]
    assert names(TABLES) == ["a", "b"]  # though their namespace is gone, too


def test_who_owns_a_warehouse_cannot_change_its_options(site: Site, serve: Serve) -> None:
    client = OAuthClient("tenant", SECRET, ("wh:north:*", "ns:ns:r"))
    app = create_app(
        site.services, log=make_logger(LOG), authentication=Server().authentication(client), wiring=site.wiring
    )
    http = serve(app)
    headers = {"Authorization": f"Bearer {token(http, 'tenant')}"}
    assert http.get("/v1/north/namespaces", headers=headers).status_code == 200
    for method in ("GET", "POST"):
        for path in ("/management/v1/warehouses/north/options", "/v1/north/options", "/management/v1/options"):
            body = {"options": {"max-tables": "9"}}
            answer = http.request(method, path, headers=headers, json=body)
            assert answer.status_code in (403, 404, 405), (path, answer.text)
    assert read(site, "north") == {"drop-retention-seconds": "604800"}
    app.warehouses.close()


def test_options_go_with_their_warehouse(site: Site) -> None:
    change(site, "north", max_requests="3")
    assert site.http.delete("/management/v1/warehouses/north", params={"force": True}).status_code == 200
    with site.services.database.reading() as cursor:
        assert cursor.execute("SELECT count(*) FROM duckicelake_warehouse_option").fetchall() == [(0,)]
