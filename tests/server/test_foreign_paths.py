"""Whoever writes a warehouse's DuckLake tables in Postgres names another warehouse's files, in each column for paths.

Both are in one bucket, which the server's key reaches whole. Neither the server nor the keys that it gives may touch
the other's files.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from io import StringIO
from typing import Any

import httpx
import psycopg
import pytest
from botocore.exceptions import ClientError
from duckdb_extensions import import_extension
from psycopg import sql

from duckicelake.catalog import gc
from duckicelake.catalog.context.rights import RightsCache
from duckicelake.catalog.context.services import Services, read_clock_ms
from duckicelake.catalog.warehouses import WarehouseWiring, close_warehouse, find_warehouse, open_warehouse
from duckicelake.errors import CatalogError
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.query import service
from duckicelake.server.api import App
from duckicelake.server.app import create_app
from duckicelake.server.telemetry.logs import make_logger
from duckicelake.storage.confined import confine
from tests.conftest import new_duckdb
from tests.query.test_s3 import LIMITS
from tests.server.test_storage_profiles import s3_client
from tests.support.backends import Bucket
from tests.support.client import SCHEMA
from tests.support.s3_lakes import Clock, access_to, s3_lake
from tests.support.servers import running

SECRET = "south-secret"
KEYS = {"X-Iceberg-Access-Delegation": "vended-credentials"}
SIGNATURES = {"X-Iceberg-Access-Delegation": "remote-signing"}


@dataclass
class Lakes:
    """A server with the warehouses north and south, each with the tables ns.made by Iceberg and ns.d by DuckDB."""

    services: Services
    wiring: WarehouseWiring
    app: App
    http: httpx.Client
    bucket: Bucket

    def execute(self, statement: str, warehouse: str = "north") -> list[Any]:
        """Run a statement as one who writes a warehouse's catalog."""
        with psycopg.connect(self.services.database.url, autocommit=True) as connection:
            schema = "public" if warehouse == "" else f"warehouse_{warehouse}"
            connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(schema)))
            found = connection.execute(statement)
            return found.fetchall() if found.description else []

    @contextmanager
    def open(self, name: str) -> Iterator[Services]:
        """Open a warehouse as a command does."""
        own = open_warehouse(self.services, self.wiring, find_warehouse(self.services, name))
        try:
            yield own
        finally:
            close_warehouse(self.services, own)

    def list_objects(self, prefix: str) -> dict[str, str]:
        options = self.bucket.options()
        client = options.session().client("s3", endpoint_url=options.endpoint, config=options.config())
        found = client.list_objects_v2(Bucket=self.bucket.name, Prefix=prefix).get("Contents", ())
        return {item["Key"]: item["ETag"] for item in found}


@pytest.fixture(scope="module")
def lakes(postgres: EmbeddedPostgres, module_bucket: Bucket, extensions: None) -> Iterator[Lakes]:
    bucket = module_bucket
    with s3_lake(postgres, bucket) as opened, ExitStack() as stack:
        roots = (f"{bucket.uri}/warehouses",)
        policy = replace(opened.policy, foreign=roots)
        services = replace(
            opened,
            policy=policy,
            store=confine(opened.store, policy),
            rights=RightsCache.of_first(opened.database),
        )
        wiring = WarehouseWiring(roots=roots, build_access=lambda _: access_to(bucket, stack, Clock()))
        app = create_app(services, log=make_logger(StringIO()), wiring=wiring)
        stack.callback(app.warehouses.close)
        service._limits[services.database] = LIMITS
        stack.callback(service.end_processes)
        stack.callback(service._limits.pop, services.database)
        uri = stack.enter_context(running(app))
        http = stack.enter_context(httpx.Client(base_url=uri, timeout=60))
        made = Lakes(services, wiring, app, http, bucket)
        for name in ("", "south"):
            prepare(made, name)
        yield made


def prepare(lakes: Lakes, name: str) -> None:
    """Make a warehouse with rows in S3, by both kinds of clients; those of south are secret."""
    http, prefix = lakes.http, f"/v1/{name}" if name else "/v1"
    if name:
        http.post("/management/v1/warehouses", json={"name": name}).raise_for_status()
    http.post(f"{prefix}/namespaces", json={"namespace": ["ns"]}).raise_for_status()
    http.post(f"{prefix}/namespaces/ns/tables", json={"name": "made", "schema": SCHEMA}).raise_for_status()
    text = SECRET if name == "south" else "own"
    rows = [{"id": number, "name": f"{text} {number}"} for number in range(3)]
    http.post(f"{prefix}/namespaces/ns/tables/made/rows", json=rows).raise_for_status()
    http.post(f"{prefix}/namespaces/ns/tables/made/rows/flush").raise_for_status()
    minio = lakes.bucket.minio
    import_extension("httpfs")
    with new_duckdb() as duck:
        duck.execute("LOAD httpfs")
        duck.execute(
            f"CREATE SECRET (TYPE s3, KEY_ID '{minio.access_key}', SECRET '{minio.secret_key}', ENDPOINT "
            f"'{minio.endpoint.removeprefix('http://')}', USE_SSL false, URL_STYLE 'path', REGION '{minio.region}')"
        )
        schema = f", METADATA_SCHEMA 'warehouse_{name}'" if name else ""
        source = lakes.services.database.url.replace("'", "''")
        duck.execute(f"ATTACH 'ducklake:postgres:{source}' AS lake (DATA_INLINING_ROW_LIMIT 0{schema})")
        duck.execute(f"CREATE TABLE lake.ns.d AS SELECT i AS id, '{text} ' || i AS name FROM range(100) r(i)")
        duck.execute("DELETE FROM lake.ns.d WHERE id = 5")


ATTACKS = {
    "ducklake_metadata.value": "UPDATE ducklake_metadata SET value = '{south}/ducklake/' WHERE key = 'data_path'",
    "ducklake_schema.path": "UPDATE ducklake_schema SET path = '{south}/ducklake/ns/', path_is_relative = false "
    "WHERE schema_name = 'ns'",
    "ducklake_table.path": "UPDATE ducklake_table SET path = CASE table_name WHEN 'd' THEN '{south}/ducklake/ns/d/' "
    "ELSE '{made}/' END, path_is_relative = false",
    "ducklake_data_file.path": "UPDATE ducklake_data_file SET path = '{file}', path_is_relative = false, "
    "file_size_bytes = {size}, footer_size = NULL, mapping_id = NULL",
    "ducklake_delete_file.path": "UPDATE ducklake_delete_file SET path = '{file}', path_is_relative = false, "
    "file_size_bytes = {size}",
    "ducklake_files_scheduled_for_deletion.path": "INSERT INTO ducklake_files_scheduled_for_deletion VALUES "
    "(1000, '{file}', false, now() - interval '9 days')",
    "duckicelake_table.location": "UPDATE duckicelake_table SET location = '{made}'",
    "duckicelake_file.path": "UPDATE duckicelake_file SET path = '{file}'",
    "duckicelake_file_ref.path": "UPDATE duckicelake_file_ref SET path = '{file}'",
    "duckicelake_artifact.path": "UPDATE duckicelake_artifact SET path = '{file}'",
    "duckicelake_upload.paths": "UPDATE duckicelake_upload SET paths = ARRAY['{file}']",
    "duckicelake_zone.prefix": "INSERT INTO duckicelake_zone VALUES ('{south}')",
    "duckicelake_shared_place.prefix": "INSERT INTO duckicelake_shared_place SELECT table_id, '{made}/' FROM "
    "duckicelake_table",
}
"""How each column that holds paths is made to name files of south."""
NO_PATHS = {
    "ducklake_file_variant_stats.variant_path",  # of a field
    "duckicelake_nested_schema.possible_paths",  # computed from names
    "duckicelake_warehouse.location",  # the registry, which the first warehouse alone has
    "duckicelake_warehouse.data_path",
    "duckicelake_view.metadata_location",  # written, and never read
    "duckicelake_delta_vector.path",  # of tables that are imported from Delta: tests/delta
    "duckicelake_delta_version.vectors_path",
}


def mark(column: str) -> Any:
    """Put all attacks but one into a suite."""
    return pytest.param(column, marks=() if column == "ducklake_table.path" else pytest.mark.model)


def test_every_column_for_paths_has_its_attack(lakes: Lakes) -> None:
    found = lakes.execute(
        "SELECT table_name || '.' || column_name FROM information_schema.columns WHERE table_schema = current_schema() "
        "AND column_name ~ '(^|_)(paths?|locations?|folders?|prefix|places?)($|_)' AND data_type <> 'boolean'",
        "south",
    )
    assert {name for (name,) in found} | {"ducklake_metadata.value"} == ATTACKS.keys() | NO_PATHS


@pytest.mark.parametrize("column", [mark(column) for column in ATTACKS])
def test_no_file_of_another_warehouse_is_touched(lakes: Lakes, column: str, subtests: pytest.Subtests) -> None:
    name = f"north{[*ATTACKS].index(column)}"
    prepare(lakes, name)
    attack(lakes, name, column)
    check(lakes, name, subtests)
    lakes.http.delete(f"/management/v1/warehouses/{name}", params={"force": True, "keep-lake": True}).raise_for_status()


@pytest.mark.model
@pytest.mark.parametrize("column", ["ducklake_table.path", "ducklake_data_file.path", "ducklake_metadata.value"])
def test_first_warehouse_touches_no_other(lakes: Lakes, column: str, subtests: pytest.Subtests) -> None:
    attack(lakes, "", column)
    check(lakes, "", subtests)


def attack(lakes: Lakes, name: str, column: str) -> None:
    (file, size), made = find_file(lakes), find_location(lakes, "south")
    names = {"south": f"{lakes.bucket.uri}/warehouses/south", "file": file, "size": size, "made": made}
    lakes.execute(ATTACKS[column].format(**names), name)
    if name:
        options = {"max-requests": str(1000 + [*ATTACKS].index(column))}
        lakes.http.post(f"/management/v1/warehouses/{name}/options", json={"options": options})  # it is opened anew


def find_file(lakes: Lakes) -> tuple[str, int]:
    """Find a data file of south's, and its length."""
    ((path, size),) = lakes.execute(
        "SELECT f.path, file_size_bytes FROM ducklake_data_file f JOIN ducklake_table t USING (table_id) "
        "WHERE table_name = 'd' AND f.path_is_relative",
        "south",
    )
    return f"{lakes.bucket.uri}/warehouses/south/ducklake/ns/d/{path}", size


def find_location(lakes: Lakes, name: str) -> str:
    loaded = lakes.http.get(f"/v1/{name}/namespaces/ns/tables/made")
    return str(loaded.json()["metadata"]["location"])


def list_requests(name: str, file: str, table: str) -> list[tuple[str, str, Any, dict[str, str]]]:
    """List what a writer of the warehouse may ask for, in an order in which the later ones find something."""
    prefix = f"/v1/{name}".rstrip("/")
    path = f"{prefix}/namespaces/ns/tables/{table}"
    signed = {"region": "us-east-1", "method": "GET", "uri": file, "headers": {}}
    delta = [{"action": "set-properties", "updates": {"delta.enabled": "true"}}]
    return [
        ("GET", path, None, KEYS),
        ("GET", path, None, SIGNATURES),
        ("GET", f"{path}/credentials", None, {}),
        ("POST", f"{path}/sign", signed, {}),
        ("POST", f"{path}/sign", signed | {"method": "PUT"}, {}),
        ("POST", f"{path}/plan", {"case-sensitive": True}, KEYS),
        ("POST", f"/sql/v1/{name}/query".replace("//", "/"), {"sql": f"SELECT * FROM ns.{table}"}, {}),
        ("POST", f"{path}/rows", [{"id": 7, "name": "new"}], {}),
        ("DELETE", f"{path}/rows?filter=id%20%3D%207", None, {}),
        ("POST", f"{path}/rows/flush", None, {}),
        ("POST", path, {"requirements": [], "updates": delta}, {}),
        ("GET", f"{path}/history", None, {}),
        ("POST", f"{path}/expire", {"older-than-ms": read_clock_ms() + 1000}, {}),
        ("DELETE", f"{path}?purgeRequested=true", None, {}),
    ]


def check(lakes: Lakes, name: str, subtests: pytest.Subtests) -> None:
    """Send all requests, and collect garbage: south has the files that it had, and no answer has one of its rows."""
    before, (file, _) = lakes.list_objects("warehouses/south/"), find_file(lakes)
    given: list[dict[str, str]] = []
    uri = f"{lakes.bucket.minio.endpoint}/{file.removeprefix('s3://')}"
    for table in ("made", "d"):
        for method, path, body, headers in list_requests(name, uri, table):
            with subtests.test(f"{method} {path}"):
                answer = lakes.http.request(method, path, json=body, headers=headers)
                assert answer.status_code != 500, answer.text
                assert SECRET not in answer.text
                if path.endswith("/sign"):
                    assert answer.status_code >= 400
                given += find_keys(answer)
    with subtests.test("keys"):
        bucket, _, key = file.removeprefix("s3://").partition("/")
        for keys in given:
            with closing(s3_client(lakes.bucket.minio, keys)) as client:
                with pytest.raises(ClientError, match="AccessDenied"):
                    client.get_object(Bucket=bucket, Key=key)
                with pytest.raises(ClientError, match="AccessDenied"):
                    client.put_object(Bucket=bucket, Key=f"{key}2", Body=b"x")
    with subtests.test("garbage"), lakes.open(name) if name else ExitStack() as opened:
        own = opened if isinstance(opened, Services) else lakes.services
        for act in (collect_orphans, gc.collect_uploads, gc.prepare_deletion):
            with suppress(CatalogError):
                act(own)
    assert lakes.list_objects("warehouses/south/") == before
    rows = lakes.http.post("/sql/v1/south/query", json={"sql": "SELECT count(*) AS n FROM ns.d"}).text
    assert json.loads(rows.splitlines()[0]) == {"n": 99}


def collect_orphans(services: Services) -> None:
    gc.delete_orphans(services, gc.find_orphans(services, read_clock_ms() + 3_600_000))


def find_keys(answer: httpx.Response) -> list[dict[str, str]]:
    try:
        found = answer.json()
    except ValueError:
        return []
    credentials = found.get("storage-credentials", ()) if isinstance(found, dict) else ()
    return [one["config"] for one in credentials if "s3.access-key-id" in one["config"]]
