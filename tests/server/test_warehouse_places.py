"""Attempts to reach another warehouse's folder, or one of no warehouse, by each request that names a place."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.warehouse_registry import adopt_data_path
from duckicelake.errors import InvalidRequestError
from duckicelake.lake.ducklake.database import build_attach_source
from duckicelake.lake.setup.migrations import load_migrations
from tests.conftest import new_duckdb
from tests.server.test_warehouses import Site, site_of, wait_until
from tests.support.client import SCHEMA
from tests.support.servers import Serve
from tests.support.view_requests import creation


@pytest.fixture
def site(services: Services, tmp_path: Path, serve: Serve) -> Iterator[Site]:
    found = site_of(services, tmp_path, serve)
    for name in ("north", "south"):
        found.http.post("/management/v1/warehouses", json={"name": name}).raise_for_status()
        found.create_table(name)
        assert found.post_rows(name, {"id": 1, "name": name}).status_code == 200
        found.http.post(f"/v1/{name}/namespaces/ns/tables/t/rows/flush").raise_for_status()
    yield found
    found.app.warehouses.close()


def path_of(location: str) -> str:
    return "/" + location.split(":", 1)[-1].lstrip("/")


def spell(target: str, own: str, link: str) -> list[str]:
    """All spellings of a place that is another's, some from within the own place."""
    up = "/".join([".."] * own.count("/"))
    return [
        *(target, f"file:{target}", f"file://{target}", f"FILE://{target}", f"file://localhost{target}"),
        *(f"{target}/", f"{target}//", f"/.{target}", f"//{target}", f"{target}/.", f"{target}/x/.."),
        *(f"{own}/{up}{target}", f"file:{own}/{up}{target}", f"{own}/x/../{up}{target}", f"{own}/./{up}{target}"),
        *(
            f"{own}/%2e%2e/{up}{target}",
            f"{own}/%2E%2E%2F{up}{target}",
            f"{own}\\..\\..{target}",
            f"{own}/\uff0e\uff0e{target}",
        ),
        *(f"{link}{target}", f"file:{link}{target}", f"{link}/../{link.rpartition('/')[2]}{target}"),
        *(f"s3a://{target}", f"s3://bucket{target}", f"s3a:/{target}", f"hdfs://x{target}", f"http://x{target}"),
        *(
            f"{target}\x00",
            f"{own}\x00/../{target}",
            f"{target}\n",
            target.upper(),
            f"{target}.",
            f"{target}. ",
            ".",
        ),
        *(".", "..", "/", "file:///", "~", "$HOME", "/proc/self/root" + target, "file://user@host" + target),
    ]


def list_files(*folders: Path) -> dict[str, tuple[int, int]]:
    found = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in found}


@pytest.mark.parametrize("whose", ["another warehouse's", "the first warehouse's", "no warehouse's"])
def test_no_request_leads_out_of_its_warehouse(site: Site, tmp_path: Path, whose: str) -> None:
    south = site.http.get("/v1/south/namespaces/ns/tables/t").json()
    own = path_of(site.http.get("/v1/north/namespaces/ns/tables/t").json()["metadata"]["location"])
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.json").write_text("secret")
    targets = {
        "another warehouse's": path_of(south["metadata"]["location"]),
        "the first warehouse's": path_of(str(site.services.policy.warehouse)) + "/data/ns",
        "no warehouse's": str(outside),
    }
    metadata = path_of(south["metadata-location"]) if whose == "another warehouse's" else f"{outside}/secret.json"
    link = Path(own, "link")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to("/")
    watched = [tmp_path / "warehouses" / "south", outside]
    before = list_files(*watched)
    for number, place in enumerate(spell(targets[whose], own, str(link))):
        check_requests(site, place, number, tmp_path)
    for place in spell(metadata, own, str(link)):
        for request in ("register", "register-view"):
            body = {"name": "stolen", "metadata-location": place}
            answer = site.http.post(f"/v1/north/namespaces/ns/{request}", json=body)
            assert answer.status_code in {400, 403, 404}, (request, place, answer.text)
            assert "secret" not in answer.text.replace("secret.json", "")
    assert list_files(*watched) == before
    for warehouse, rows in (("north", 1), ("south", 1)):
        loaded = site.http.get(f"/v1/{warehouse}/namespaces/ns/tables/t").json()["metadata"]
        assert loaded["snapshots"][-1]["summary"]["total-records"] == str(rows)


def check_requests(site: Site, place: str, number: int, tmp_path: Path) -> None:
    """Send it by each request that gives a table, view or warehouse a place: refused, or it lies in the own one."""
    table, url = f"t{number}", "/v1/north/namespaces/ns"
    uses: list[tuple[str, Any]] = [
        (f"{url}/tables", {"name": table, "schema": SCHEMA, "location": place}),
        (f"{url}/tables", {"name": f"s{number}", "schema": SCHEMA, "location": place, "stage-create": True}),
        (f"{url}/views", creation(f"v{number}") | {"location": place}),
        (f"{url}/tables/t", {"requirements": [], "updates": [{"action": "set-location", "location": place}]}),
    ]
    for name in ("write.data.path", "write.metadata.path"):
        updates = [{"action": "set-properties", "updates": {name: place}}]
        uses.append((f"{url}/tables/t", {"requirements": [], "updates": updates}))
    for path, body in uses:
        answer = site.http.post(path, json=body)
        if answer.status_code != 200:
            assert answer.status_code in {400, 403}, (path, body, answer.text)
            continue
        assert "/warehouses/north/" in path_of(place), (path, body)
        assert ".." not in place.split("/"), (path, body)
        if path.endswith("/t"):
            undo = {"action": "remove-properties", "removals": ["write.data.path", "write.metadata.path"]}
            site.http.post(path, json={"requirements": [], "updates": [undo]}).raise_for_status()
    answer = site.http.post("/management/v1/warehouses", json={"name": f"w{number}", "location": place})
    if answer.status_code == 200:
        assert Path(answer.json()["location"].removeprefix("file:")).resolve().is_relative_to(tmp_path / "warehouses")
    else:
        assert answer.status_code in {400, 403, 409}, (place, answer.text)


def test_adopted_lake_has_its_files_in_no_place_of_others(
    site: Site, tmp_path: Path, extensions: None, subtests: pytest.Subtests
) -> None:
    """Whoever writes a lake's catalog chooses its DATA_PATH: north's folder, and links and .. that lead out."""
    url, roots, outside = site.services.database.url, tmp_path / "warehouses", tmp_path / "outside"
    outside.mkdir()
    (roots / "out").symlink_to(outside)
    (roots / "north-link").symlink_to(roots / "north")
    (roots / "first-link").symlink_to(path_of(str(site.services.policy.warehouse)))
    before = list_files(roots)
    for number, (place, message) in enumerate(
        [
            (f"{roots}/north/ducklake/", "overlaps"),
            (f"{roots}/north/new/", "overlaps"),
            (f"{roots}/north/../north/new/", "overlaps"),
            (f"{roots}/", "expected a folder below"),
            (f"{roots}/../outside/", "expected a folder below"),
            (f"{outside}/", "expected a folder below"),
            (f"{roots}/out/", "symbolic link"),
            (f"{roots}/out/deep/", "symbolic link"),
            (f"{roots}/north-link/new/", "overlaps"),
            (f"{roots}/first-link/ducklake/", "symbolic link"),
        ]
    ):
        with subtests.test(place):
            with new_duckdb() as duckdb:
                duckdb.execute(
                    f"ATTACH '{build_attach_source(url)}' AS old (METADATA_SCHEMA 'old{number}', DATA_PATH '{place}')"
                )
            body = {"name": "old", "adopted-schema": f"old{number}"}
            answer = site.http.post("/management/v1/warehouses", json=body)
            assert (answer.status_code, message in answer.text) == (400, True), answer.text
            assert [one["name"] for one in site.http.get("/management/v1/warehouses").json()["warehouses"]] == [
                "north",
                "south",
            ]
    assert list_files(roots, outside) == before


def test_warehouse_is_in_no_folder_that_a_link_leads_to(site: Site, tmp_path: Path, subtests: pytest.Subtests) -> None:
    """By its location, and by its name alone."""
    roots, outside = tmp_path / "warehouses", tmp_path / "outside"
    outside.mkdir()
    for name, target in {"east": outside, "west": roots / "north", "up": tmp_path}.items():
        (roots / name).symlink_to(target)
    bodies = [
        {"name": "east"},
        {"name": "west"},
        {"name": "x", "location": f"{roots}/east/x"},
        {"name": "x", "location": f"{roots}/west"},
        {"name": "x", "location": f"{roots}/up/warehouses/north"},
        {"name": "x", "location": f"file://{roots}/up/outside/x"},
    ]
    for body in bodies:
        with subtests.test(f"{body}"):
            answer = site.http.post("/management/v1/warehouses", json=body)
            assert (answer.status_code, "link" in answer.text or "overlaps" in answer.text) == (400, True), answer.text
    assert [*outside.iterdir()] == []
    (roots / "own").mkdir()
    (roots / "alias").symlink_to(roots / "own")
    aliased = {"name": "x", "location": f"{roots}/alias"}  # of this folder of warehouses, and no one's
    assert site.http.post("/management/v1/warehouses", json=aliased).status_code == 200
    again = site.http.post("/management/v1/warehouses", json={"name": "own"})
    assert (again.status_code, "overlaps" in again.text) == (400, True), again.text


def test_data_path_of_an_adopted_lake_stays_as_the_registry_has_it(
    site: Site, tmp_path: Path, extensions: None
) -> None:
    url, roots = site.services.database.url, tmp_path / "warehouses"
    with new_duckdb() as duckdb:
        duckdb.execute(f"ATTACH '{build_attach_source(url)}' AS o (METADATA_SCHEMA 'old', DATA_PATH '{roots}/old/')")
        duckdb.execute("CREATE TABLE o.t AS SELECT i AS id FROM range(100) r(i)")
    body = {"name": "kept", "adopted-schema": "old"}
    site.http.post("/management/v1/warehouses", json=body).raise_for_status()
    load = "/v1/kept/namespaces/main/tables/t"
    assert site.http.get(load).status_code == 200

    def move(place: str) -> None:
        with site.services.database.transaction() as cursor:
            cursor.execute("UPDATE old.ducklake_metadata SET value = %s WHERE key = 'data_path'", (place,))
        changed = {"options": {"max-requests": f"{1000 + len(place)}"}}
        site.http.post("/management/v1/warehouses/kept/options", json=changed)  # it is opened anew

    for place in (f"{roots}/south/ducklake/", "/etc/", f"{roots}/new/"):
        move(place)
        refused = site.http.get(load)
        assert (refused.status_code, "isn't in the warehouse" in refused.text) == (503, True), refused.text
        if not place.endswith("new/"):
            with pytest.raises(InvalidRequestError, match=r"overlaps|expected a folder below"):
                adopt_data_path(site.services, site.wiring, "kept")
    assert "from now on" in adopt_data_path(site.services, site.wiring, "kept")[0]
    assert adopt_data_path(site.services, site.wiring, "kept") == []
    (roots / "old").rename(roots / "new")
    wait_until(lambda: site.http.get(load).status_code == 200, 5)  # a worker reads the registry once a second


def test_further_places_are_allowed_below_the_roots(
    site: Site, tmp_path: Path, extensions: None, subtests: pytest.Subtests
) -> None:
    roots, options = tmp_path / "warehouses", "/management/v1/warehouses/north/options"
    first = path_of(str(site.services.policy.warehouse))
    (roots / "to-south").symlink_to(roots / "south")
    for place, message in (
        (f"{roots}/south", "overlaps"),
        (f"{roots}/south/x", "overlaps"),
        (f"{roots}/to-south/x", "overlaps"),
        (f"{roots}", "expected a folder below"),
        (f"{roots}/x,{first}", "expected a folder below"),
        (f"{tmp_path}/outside", "expected a folder below"),
        ("x", "absolute path"),
        ("", "separated by commas"),
        (f"{roots}/x,", "separated by commas"),
    ):
        with subtests.test(place):
            answer = site.http.post(options, json={"options": {"allowed-locations": place}})
            assert (answer.status_code, message in answer.text) == (400, True), answer.text
    landing = roots / "landing"
    landing.mkdir()
    with new_duckdb() as duckdb:
        source = build_attach_source(site.services.database.url)
        duckdb.execute(f"ATTACH '{source}' AS o (METADATA_SCHEMA 'warehouse_north', DATA_INLINING_ROW_LIMIT 0)")
        duckdb.execute("CREATE TABLE o.ns.added (id BIGINT)")
        duckdb.execute(f"COPY (SELECT 1::BIGINT AS id) TO '{landing}/x.parquet'")
        duckdb.execute(f"CALL ducklake_add_data_files('o', 'added', '{landing}/x.parquet', schema => 'ns')")
    load = "/v1/north/namespaces/ns/tables/added"
    refused = site.http.get(load)
    assert (refused.status_code, "allowed-locations" in refused.text) == (406, True), refused.text
    changed = site.http.post(options, json={"options": {"allowed-locations": f"{landing}/"}})
    assert changed.status_code == 200, changed.text
    assert site.http.get(load).status_code == 200
    taken = site.http.post("/management/v1/warehouses", json={"name": "landing"})
    assert (taken.status_code, "overlaps" in taken.text) == (400, True)
    placed = {"name": "placed", "schema": SCHEMA, "location": f"file:{landing}/placed"}
    assert site.http.post("/v1/north/namespaces/ns/tables", json=placed).status_code == 200


def test_upgrade_notes_where_adopted_lakes_have_their_files(site: Site) -> None:
    """As the registry was before migration 0074: only rows of this database that were adopted have a DATA_PATH."""
    migration = next(one for one in load_migrations() if one.number == 74)
    with site.services.database.transaction() as cursor:
        cursor.execute("ALTER TABLE duckicelake_warehouse DROP COLUMN data_path")
        cursor.execute("UPDATE duckicelake_warehouse SET is_adopted = true WHERE name = 'north'")
        cursor.execute(
            "INSERT INTO duckicelake_warehouse (warehouse_id, name, schema_name, location, is_adopted, state) "
            "SELECT gen_random_uuid(), 'gone', 'no_such_schema', '/nowhere', true, state FROM duckicelake_warehouse "
            "WHERE name = 'north'"
        )
        ((path,),) = cursor.execute(
            "SELECT value FROM warehouse_north.ducklake_metadata WHERE key = 'data_path' AND scope IS NULL"
        ).fetchall()
        cursor.execute(
            "INSERT INTO warehouse_north.ducklake_metadata (key, value, scope, scope_id) "
            "VALUES ('data_path', '/elsewhere/', 'schema', 1)"
        )
        cursor.execute(migration.sql)
        found = cursor.execute("SELECT name, data_path FROM duckicelake_warehouse ORDER BY name").fetchall()
    assert found == [("gone", None), ("north", path), ("south", None)]
