"""A warehouse gets another name at run time: what is in it stays, the old name ends on all workers."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event

import httpx
import pytest
from pyiceberg.catalog.rest import RestCatalog

from duckicelake.catalog.warehouse_places import NewWarehouse
from duckicelake.catalog.warehouse_registry import create_warehouse
from tests.server.routes.test_idempotency import uuid7
from tests.server.test_warehouses import ROWS, Site, site_of, wait_until
from tests.server.test_warehouses import site as site  # noqa: PLC0414
from tests.support.servers import Serve


def rename(site: Site, name: str, new_name: str, key: str | None = None) -> httpx.Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    return site.http.post(f"/management/v1/warehouses/{name}/rename", json={"name": new_name}, headers=headers)


def test_renamed_warehouse_keeps_all_but_its_name(site: Site) -> None:
    site.create_table("north")
    before = site.http.get("/management/v1/warehouses/north").json()
    table = site.http.get("/v1/north/namespaces/ns/tables/t").json()["metadata"]
    answer = rename(site, "north", "arctic")
    assert answer.status_code == 200, answer.text
    assert answer.json() == {**before, "name": "arctic", "prefix": "arctic"}
    assert site.http.get("/v1/north/namespaces").status_code == 404
    assert site.http.get("/v1/config", params={"warehouse": "arctic"}).json()["overrides"] == {"prefix": "arctic"}
    assert site.http.get("/v1/arctic/namespaces/ns/tables/t").json()["metadata"] == table
    assert site.post_rows("arctic", {"id": 1, "name": "a"}).status_code == 200


def test_old_name_ends_on_other_workers_within_a_second(site: Site, tmp_path: Path, serve: Serve) -> None:
    site.create_table("north")
    url = "/v1/{}/namespaces/ns/tables/t"
    other = site_of(site.services, tmp_path, serve)
    with closing(other.app.warehouses):
        for _ in range(4):  # by the route, by memory, and as the same bytes again
            assert other.http.get(url.format("north")).status_code == 200
        begun = time.monotonic()
        assert rename(site, "north", "arctic").status_code == 200
        assert other.http.get(url.format("arctic")).status_code == 200
        wait_until(lambda: other.http.get(url.format("north")).status_code == 404, seconds=5)
        assert time.monotonic() - begun < 2.0  # the registry is read once a second, on a busy machine a little later


def test_rename_under_load_loses_no_row(site: Site) -> None:
    """Rows that are answered with 200 are there, under whichever name they were posted; others were refused whole."""
    site.create_table("north")
    accepted: list[int] = []
    ended = Event()

    def post(worker: int) -> None:
        number = worker
        while not ended.is_set():
            for name in ("north", "arctic"):
                answer = site.post_rows(name, {"id": number, "name": name})
                assert answer.status_code in (200, 404), answer.text
                if answer.status_code == 200:
                    accepted.append(number)
                number += 4

    with ThreadPoolExecutor(4) as threads:
        posting = [threads.submit(post, worker) for worker in range(4)]
        for old, new in (("north", "arctic"), ("arctic", "north"), ("north", "arctic")):
            time.sleep(0.5)
            assert rename(site, old, new).status_code == 200
        time.sleep(0.5)
        ended.set()
        for one in posting:
            one.result()
    catalog = RestCatalog("arctic", uri=str(site.http.base_url), warehouse="arctic")
    assert sorted(catalog.load_table("ns.t").scan().to_arrow()["id"].to_pylist()) == sorted(accepted)


def test_pyiceberg_writes_through_the_new_name(site: Site) -> None:
    uri = str(site.http.base_url)
    old = RestCatalog("north", uri=uri, warehouse="north")
    old.create_namespace("ns")
    old.create_table("ns.t", schema=ROWS.schema).append(ROWS)
    assert rename(site, "north", "arctic").status_code == 200
    new = RestCatalog("arctic", uri=uri, warehouse="arctic")
    table = new.load_table("ns.t")
    table.append(ROWS)
    assert table.scan().to_arrow().num_rows == 4


def test_old_name_is_free_for_another_warehouse(site: Site) -> None:
    site.create_table("north")
    assert rename(site, "north", "arctic").status_code == 200
    again = site.http.post("/management/v1/warehouses", json={"name": "north"})
    assert again.status_code == 200, again.text
    assert again.json()["metadata-schema"] == "warehouse_north_2"
    assert again.json()["location"].endswith("/north-2")
    site.create_table("north")
    assert site.names("north") == site.names("arctic") == ["t"]
    assert site.http.get("/v1/north/namespaces/ns/tables/t").json() != (
        site.http.get("/v1/arctic/namespaces/ns/tables/t").json()
    )


def test_bad_rename_changes_nothing(site: Site, subtests: pytest.Subtests) -> None:
    for name, new_name, status, message in [
        ("west", "arctic", 404, "No such warehouse"),
        ("north", "south", 409, "exists"),
        ("north", "north", 409, "exists"),
        ("north", "Arctic", 400, "lower-case"),
        ("north", "namespaces", 400, "routes"),
        ("north", "duckicelake", 400, "routes"),
        ("duckicelake", "arctic", 404, "No such warehouse"),
    ]:
        with subtests.test(name):
            answer = rename(site, name, new_name)
            assert (answer.status_code, message in answer.text) == (status, True), answer.text
            listed = site.http.get("/management/v1/warehouses").json()["warehouses"]
            assert [one["name"] for one in listed] == ["north", "south"]


def test_requests_with_a_key_have_one_effect(site: Site) -> None:
    """Sent again, a creation, a rename and a drop answer as the first time, and do nothing more."""
    keys = [uuid7() for _ in range(4)]
    created = [
        site.http.post("/management/v1/warehouses", json={"name": "west"}, headers={"Idempotency-Key": keys[0]})
        for _ in range(2)
    ]
    assert [answer.status_code for answer in created] == [200, 200]
    assert created[0].json() == created[1].json()
    other = site.http.post("/management/v1/warehouses", json={"name": "east"}, headers={"Idempotency-Key": keys[0]})
    assert other.status_code == 422
    renamed = [rename(site, "west", "pacific", keys[1]) for _ in range(2)]
    assert [answer.status_code for answer in renamed] == [200, 200]
    assert renamed[0].json() == renamed[1].json()
    site.create_table("pacific")
    refused = [
        site.http.delete("/management/v1/warehouses/pacific", headers={"Idempotency-Key": keys[2]}) for _ in range(2)
    ]
    assert [answer.status_code for answer in refused] == [409, 409]
    dropped = [
        site.http.delete(
            "/management/v1/warehouses/pacific", params={"force": "true"}, headers={"Idempotency-Key": keys[3]}
        )
        for _ in range(2)
    ]
    assert [answer.status_code for answer in dropped] == [200, 200]
    assert dropped[0].json() == dropped[1].json() == {"tables": 1, "views": 0, "namespaces": 1}


def test_creations_with_one_key_at_once_make_one_warehouse(site: Site) -> None:
    key = uuid7()

    def create(_: int) -> httpx.Response:
        return site.http.post("/management/v1/warehouses", json={"name": "west"}, headers={"Idempotency-Key": key})

    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(create, range(4)))
    assert {answer.status_code for answer in answers} == {200}, [answer.text for answer in answers]
    assert len({answer.json()["warehouse-id"] for answer in answers}) == 1


def test_warehouse_that_is_being_created_keeps_its_name(site: Site) -> None:
    create_warehouse(site.services, site.wiring, NewWarehouse("west"))
    with site.services.database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_warehouse SET state = 'dropping' WHERE name = 'west'")
    assert rename(site, "west", "east").status_code == 409
