"""A lake in Google Cloud Storage and one in Azure: PyIceberg with the keys that it is given, and DuckDB beside it."""

import json
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from duckicelake.catalog.context.rights import RightsCache
from duckicelake.catalog.context.secret_keys import SecretKeys
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.gc import delete_orphans, find_orphans
from duckicelake.catalog.storage_profiles import ProfileRules, StorageProfile, StorageProfileSpec
from duckicelake.cli.wiring.profile_settings import open_profile
from duckicelake.cli.wiring.services import open_services
from duckicelake.lake.ducklake.database import build_duckdb_attach
from duckicelake.lake.side_tables.locations import record_zones
from duckicelake.maintenance.policy import parse_policy
from duckicelake.maintenance.task import UpkeepTask
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.query import service
from duckicelake.query.processes import QueryLimits
from duckicelake.rewrites.actions import compact
from duckicelake.server.app import create_app
from duckicelake.settings.model import Settings
from duckicelake.storage.bucket_store import BucketStore
from duckicelake.storage.gcs_vendor import GcsVendor
from duckicelake.storage.policy import canonicalize
from duckicelake.storage.probe import try_warehouse
from duckicelake.storage.protocol import unwrap
from tests.conftest import new_duckdb, new_lake
from tests.other_catalogs.test_parquet_copy import SourceTable
from tests.rewrites.test_compaction import Control
from tests.support.client import SCHEMA
from tests.support.commands import invoke
from tests.support.policies import restrict
from tests.support.servers import running
from tests.support.stores import AzureContainer, GcsBucket, make_key_file

pytestmark = pytest.mark.stores
KEYS = {"X-Iceberg-Access-Delegation": "vended-credentials"}
TABLE = "/v1/namespaces/ns/tables/t"
QUERY = "/sql/v1/query"
LIMITS = QueryLimits(processes=2, memory_bytes=256 * 1024**2, disk_bytes=256 * 1024**2, seconds=60.0, rows=10_000)


@contextmanager
def open_lake(postgres: EmbeddedPostgres, **settings: Any) -> Iterator[Services]:
    """A server's services on a lake, as the settings make them."""
    warehouse = settings["warehouse"]
    with new_lake(postgres, warehouse) as url, open_services(Settings(database_url=url, **settings)) as services:
        with services.database.transaction() as cursor:
            record_zones(cursor, map(canonicalize, (services.policy.data_path, services.policy.data_zone)))
        yield services


@pytest.fixture
def on_gcs(postgres: EmbeddedPostgres, gcs_bucket: GcsBucket, tmp_path: Path) -> Iterator[Services]:
    (tmp_path / "key.json").write_text(make_key_file())
    with open_lake(
        postgres,
        warehouse=f"{gcs_bucket.uri}/lake",
        gcs_endpoint=gcs_bucket.fake.endpoint,
        gcs_sts_endpoint=gcs_bucket.tokens.endpoint,
        gcs_key_file=tmp_path / "key.json",
    ) as services:
        yield services


@pytest.fixture
def on_azure(postgres: EmbeddedPostgres, azure_container: AzureContainer) -> Iterator[Services]:
    with open_lake(
        postgres,
        warehouse=f"{azure_container.uri}/lake",
        azure_endpoint=azure_container.azurite.endpoint,
        azure_account_key=azure_container.azurite.key,
        azure_vending="container",
    ) as services:
        yield services


@pytest.fixture(params=["on_gcs", "on_azure"])
def services(request: pytest.FixtureRequest) -> Services:
    found: Services = request.getfixturevalue(request.param)
    return found


def test_pyiceberg_writes_and_reads_with_its_keys_and_gc_removes_what_is_no_tables(services: Services) -> None:
    rows = pa.table({"id": pa.array(range(100), pa.int64())})
    is_azure = services.policy.warehouse.startswith("abfss")
    if is_azure:
        pytest.importorskip("adlfs", reason="PyIceberg reads Azure by adlfs")
    implementation = "fsspec.FsspecFileIO" if is_azure else "pyarrow.PyArrowFileIO"
    with (
        running(create_app(services)) as uri,
        RestCatalog("lake", uri=uri, **{"py-io-impl": f"pyiceberg.io.{implementation}"}) as catalog,
    ):
        catalog.create_namespace("ns")
        table = catalog.create_table("ns.t", rows.schema)
        table.append(rows)
        table.append(rows)
        orphan = f"{table.location()}/data/orphan.parquet"
        services.store.write(orphan, b"left")
        catalog.load_table("ns.t").delete("id < 50")
        delete_orphans(services, find_orphans(services, services.clock() + 10_000))
        assert not services.store.exists(orphan)
        assert catalog.load_table("ns.t").scan().to_arrow().num_rows == 100


@contextmanager
def duckdb_beside(services: Services, gcs_bucket: GcsBucket) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB on the same lake, with a table `ns.t` of two files."""
    host = gcs_bucket.fake.endpoint.removeprefix("http://")
    with new_duckdb() as connection:
        connection.execute("INSTALL httpfs; LOAD httpfs")
        connection.execute(
            f"CREATE SECRET (TYPE gcs, BEARER_TOKEN 'any', ENDPOINT '{host}', URL_STYLE 'path', USE_SSL false)"
        )
        connection.execute(build_duckdb_attach(services.database.url))
        connection.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
        connection.execute("CREATE SCHEMA lake.ns; CREATE TABLE lake.ns.t AS SELECT i AS id FROM range(5000) r(i)")
        connection.execute("INSERT INTO lake.ns.t SELECT i FROM range(5000, 6000) r(i)")
        yield connection


@pytest.fixture
def queried(services: Services) -> Iterator[Services]:
    """The server may run queries."""
    service._limits[services.database] = LIMITS
    yield services
    del service._limits[services.database]
    service.end_processes()


def test_duckdb_and_the_server_see_each_others_rows_in_google_cloud_storage(
    on_gcs: Services, gcs_bucket: GcsBucket, extensions: None
) -> None:
    rows = pa.table({"id": pa.array(range(100), pa.int64())})
    with duckdb_beside(on_gcs, gcs_bucket) as connection:
        with running(create_app(on_gcs)) as uri, RestCatalog("lake", uri=uri) as catalog:
            table = catalog.load_table("ns.t")
            assert table.scan().to_arrow().num_rows == 6000
            table.append(rows)
        assert connection.execute("SELECT count(*), max(id) FROM lake.ns.t").fetchone() == (6100, 5999)


@pytest.mark.parametrize("services", ["on_gcs"], indirect=True)
def test_queries_changes_and_materialized_views_read_google_cloud_storage_by_tokens_for_their_tables(
    queried: Services, gcs_bucket: GcsBucket, extensions: None
) -> None:
    view = {"name": "totals", "query": "SELECT count(*) AS n, max(id) AS last FROM ns.t"}
    with (
        duckdb_beside(queried, gcs_bucket) as connection,
        running(create_app(queried)) as uri,
        httpx.Client(base_url=uri, timeout=60) as http,
    ):
        connection.execute("CREATE TABLE lake.ns.hidden AS SELECT 1 AS id")
        asked = http.post(QUERY, json={"sql": "SELECT count(*) AS n, sum(id)::BIGINT AS s FROM ns.t"})
        assert asked.text == '{"n": 6000, "s": 17997000}\n', asked.text
        rules = [rule for one in gcs_bucket.tokens.boundaries.values() for rule in list_rules(one)]
        assert {rule["availablePermissions"][0] for rule in rules} == {"inRole:roles/storage.objectViewer"}
        assert "/ns/t/" in str(rules)
        assert "hidden" not in str(rules)
        changes = http.get(f"{TABLE}/changes", params={"from": "0"})
        assert changes.text.count('"INSERT"') == 6000, changes.text[-500:]
        http.post("/v1/namespaces/ns/materialized-views", json=view).raise_for_status()
        connection.execute("DELETE FROM lake.ns.t WHERE id >= 5500")
        http.post("/v1/namespaces/ns/materialized-views/totals/refresh", json={}).raise_for_status()
        read = connection.execute("FROM lake.ns.totals").fetchone()
        assert read == (5500, 5499)


@pytest.mark.parametrize("services", ["on_gcs"], indirect=True)
def test_upkeep_rewrites_files_in_google_cloud_storage(
    queried: Services, gcs_bucket: GcsBucket, tmp_path: Path, extensions: None
) -> None:
    with duckdb_beside(queried, gcs_bucket) as connection:
        for number in range(4):
            connection.execute(f"INSERT INTO lake.ns.t SELECT {number}")
        task = UpkeepTask("compact", ("ns",), "t", "asked for", parse_policy({}), 128 * 1024 * 1024)
        outcome = compact(queried, task, Control())
        assert outcome.counts["rewritten files"] == 6
        files = connection.execute("FROM ducklake_list_files('lake', 't', schema => 'ns')").fetchall()
        found = connection.execute("SELECT count(*), sum(id) FROM lake.ns.t").fetchone()
        assert (len(files), found) == (1, (6004, 17997006))


@pytest.mark.parametrize("services", ["on_gcs"], indirect=True)
def test_policies_hold_in_google_cloud_storage(queried: Services, gcs_bucket: GcsBucket, extensions: None) -> None:
    """The caller gets no token, but the process of its query does."""
    guarded = replace(queried, rights=RightsCache.of_first(queried.database))
    with (
        duckdb_beside(guarded, gcs_bucket),
        running(create_app(guarded)) as uri,
        httpx.Client(base_url=uri, timeout=60) as http,
    ):
        restrict(guarded, "ns.t", {"type": "gt", "left": {"type": "reference", "id": 1}, "right": 5997}, masks={})
        found = http.post(QUERY, json={"sql": "FROM ns.t ORDER BY id"})
        assert found.text == '{"id": 5998}\n{"id": 5999}\n', found.text
        for path in ("", "/credentials"):
            assert http.get(f"{TABLE}{path}", headers=KEYS).status_code == 403


@pytest.mark.parametrize("services", ["on_azure"], indirect=True)
def test_what_needs_duckdb_is_refused_in_azure(queried: Services, tmp_path: Path) -> None:
    view = {"name": "totals", "query": "SELECT count(*) AS n FROM ns.t"}
    condition = {"name": "p", "table": {"namespace": ["ns"], "name": "t"}, "condition": "id < 5"}
    with running(create_app(queried)) as uri, httpx.Client(base_url=uri, timeout=60) as http:
        http.post("/v1/namespaces", json={"namespace": ["ns"]}).raise_for_status()
        http.post("/v1/namespaces/ns/tables", json={"name": "t", "schema": SCHEMA}).raise_for_status()
        answers = [
            http.post(QUERY, json={"sql": "SELECT count(*) FROM ns.t"}),
            http.get(f"{TABLE}/changes", params={"from": "0"}),
            http.post("/v1/namespaces/ns/materialized-views", json=view),
        ]
        for answer in answers:
            assert (answer.status_code, "Queries read folders, S3 and Google Cloud Storage" in answer.text) == (
                406,
                True,
            )
        refused = http.post("/management/v1/policies", json=condition)
        assert (refused.status_code, "all in S3 or in Google Cloud Storage" in refused.text) == (400, True)


def test_posted_rows_are_flushed_to_files(services: Services) -> None:
    with running(create_app(services)) as uri, httpx.Client(base_url=uri, timeout=60) as http:
        http.post("/v1/namespaces", json={"namespace": ["ns"]}).raise_for_status()
        http.post("/v1/namespaces/ns/tables", json={"name": "t", "schema": SCHEMA}).raise_for_status()
        http.post(f"{TABLE}/rows", json=[{"id": 3}]).raise_for_status()
        flushed = http.post(f"{TABLE}/rows/flush", json={})
        assert (flushed.json()["rows"], flushed.json()["files"]) == (1, 1), flushed.text


def test_load_writes_files_in_google_cloud_storage(on_gcs: Services, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id,name\n1,a\n2,b\n")
    with running(create_app(on_gcs)) as uri, RestCatalog("lake", uri=uri) as catalog:
        catalog.create_namespace("ns")
        loaded = invoke("load", f"{tmp_path}/rows.csv", "--table", "ns.t", "--uri", uri, "--yes")
        assert loaded.exit_code == 0, loaded.output
        assert catalog.load_table("ns.t").scan().to_arrow()["id"].to_pylist() == [1, 2]


@pytest.mark.parametrize("services", ["on_azure"], indirect=True)
def test_commands_that_write_to_azure_say_that_they_need_adlfs(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "adlfs", None)
    (tmp_path / "rows.csv").write_text("id,name\n1,a\n2,b\n")
    source = SourceTable(tmp_path, [{"id": 1, "name": "id", "required": False, "type": "long"}])
    source.properties = {"schema.name-mapping.default": json.dumps([{"field-id": 1, "names": ["id"]}])}
    source.add_orc(pa.table({"id": pa.array([4, 5], pa.int64())}))
    source.commit()
    metadata = next((source.folder / "metadata").glob("*.metadata.json"))
    commands = (
        ("load", f"{tmp_path}/rows.csv", "--table", "ns.t", "--yes"),
        ("register", "ns.t", str(metadata), "--rewrite"),
    )
    with running(create_app(services)) as uri, RestCatalog("lake", uri=uri) as catalog:
        catalog.create_namespace("ns")
        for command in commands:
            ran = invoke(*command, "--uri", uri)
            assert (ran.exit_code != 0, "pip install 'pyiceberg[adlfs]'" in ran.output) == (True, True), ran.output
        assert not catalog.table_exists("ns.t")


def list_rules(boundary: Any) -> list[Any]:
    found: list[Any] = boundary["accessBoundary"]["accessBoundaryRules"]
    return found


def test_load_gives_keys_in_each_stores_properties_and_renews_them(services: Services) -> None:
    with running(create_app(services)) as uri, httpx.Client(base_url=uri) as http:
        http.post("/v1/namespaces", json={"namespace": ["ns"]}).raise_for_status()
        http.post("/v1/namespaces/ns/tables", json={"name": "t", "schema": SCHEMA}).raise_for_status()
        assert http.get(TABLE).json()["config"] == {}
        answer = http.get(TABLE, headers=KEYS).json()
        renewed = http.get(f"{TABLE}/credentials").json()["storage-credentials"]
    first = answer["storage-credentials"][0]
    assert first["prefix"] == f"{answer['metadata']['location']}/"
    assert [each["prefix"] for each in renewed] == [each["prefix"] for each in answer["storage-credentials"]]
    host = services.policy.warehouse.partition("@")[2].partition("/")[0]
    names = (
        {
            "adls.connection-string",
            f"adls.sas-token.{host}",
            f"adls.sas-token-expires-at-ms.{host}",
            "adls.refresh-credentials-endpoint",
        }
        if host
        else {"gcs.oauth2.token", "gcs.oauth2.token-expires-at", "gcs.oauth2.refresh-credentials-endpoint"}
    )
    assert names <= set(first["config"])


def test_no_location_leads_out_of_the_warehouse(services: Services) -> None:
    """In any spelling, of a table that is created or a metadata file that is registered."""
    lake = services.policy.warehouse
    scheme, _, rest = lake.partition("://")
    bucket, _, _ = rest.partition("/")
    other = {"gs": "gcs", "abfss": "wasbs"}[scheme]
    elsewhere = {"gs": "gs://other", "abfss": "abfss://other@duckicelake.dfs.core.windows.net"}[scheme]
    outside = (
        f"{scheme}://{bucket}/lake2/t", f"{scheme}://{bucket}", f"{other}://{rest}2/t", f"{elsewhere}/lake/t",
        f"{lake}/../lake2/t", f"{lake}/./t", f"{lake}//t", f"{lake}/%2e%2e/t?x", f"s3://{bucket}/lake/t", "/etc",
        f"{scheme.upper()}://{bucket}/lake2/t", f"{lake}/t#x", f"{lake}\u0000/t", f"http://{bucket}/lake/t",
    )  # fmt: skip
    with running(create_app(services)) as uri, httpx.Client(base_url=uri, timeout=60, headers=KEYS) as http:
        http.post("/v1/namespaces", json={"namespace": ["ns"]}).raise_for_status()
        for number, place in enumerate(outside):
            body = {"name": f"t{number}", "schema": SCHEMA, "location": place}
            created = http.post("/v1/namespaces/ns/tables", json=body)
            metadata = {"name": f"r{number}", "metadata-location": f"{place}/metadata/v1.metadata.json"}
            registered = http.post("/v1/namespaces/ns/register", json=metadata)
            assert created.status_code in {400, 403}, (place, created.text)
            assert registered.status_code in {400, 403}, (place, registered.text)
        assert http.get("/v1/namespaces/ns/tables").json()["identifiers"] == []
        same = {"name": "same", "schema": SCHEMA, "location": f"{other}://{rest}/data/same"}
        answer = http.post("/v1/namespaces/ns/tables", json=same)
        assert answer.status_code == 200, answer.text


def test_doctor_finds_a_store_that_works(services: Services) -> None:
    store = unwrap(services.store)
    assert isinstance(store, BucketStore)
    assert try_warehouse(store).advice == ""


def seal_profile(root: str, key: tuple[str, str], **options: str) -> tuple[ProfileRules, StorageProfile]:
    """Make a profile with an encrypted key, and the rules that decrypt it."""
    keys, profile_id = SecretKeys.parse("k1:" + "s" * 32), uuid4()
    secret = keys.encrypt(json.dumps(key), f"storage-profile {profile_id}")
    spec = StorageProfileSpec("other", root, **options)
    return ProfileRules(keys), StorageProfile(profile_id, spec, secret, datetime.now(UTC))


def test_storage_profile_opens_a_bucket_of_google_by_the_json_of_its_key(gcs_bucket: GcsBucket) -> None:
    endpoints = {"endpoint": gcs_bucket.fake.endpoint, "sts_endpoint": gcs_bucket.tokens.endpoint}
    elsewhere = json.dumps({**json.loads(make_key_file()), "token_uri": "http://127.0.0.1:1/token"})
    rules, profile = seal_profile(f"{gcs_bucket.uri}/lakes", ("lake", elsewhere), **endpoints)
    opened = open_profile(Settings(allowed_addresses="127.0.0.1"), rules, f"{gcs_bucket.uri}/lakes/one", profile)
    with closing(opened.store):
        opened.store.check()
    assert isinstance(opened.access.vendor, GcsVendor)


def test_storage_profile_opens_a_container_of_azure_by_the_key_of_its_account(azure_container: AzureContainer) -> None:
    azurite = azure_container.azurite
    key = (azurite.account, azurite.key)
    rules, profile = seal_profile(f"{azure_container.uri}/lakes", key, endpoint=azurite.endpoint, vending="none")
    opened = open_profile(Settings(allowed_addresses="127.0.0.1"), rules, f"{azure_container.uri}/lakes/one", profile)
    with closing(opened.store):
        opened.store.check()
    assert opened.access.vendor is None
