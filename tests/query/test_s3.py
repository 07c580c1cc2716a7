"""Queries over a lake in S3, on a real MinIO with STS: the rows, and nothing but the folders of the query's tables."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import duckdb
import httpx
import pytest
from duckdb_extensions import import_extension

from duckicelake.catalog.context.rights import RightsCache
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.context.storage_access import StorageAccess
from duckicelake.iceberg.read_restrictions import Mask
from duckicelake.lake.ducklake.database import build_duckdb_attach
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.query import processes, service
from duckicelake.query.processes import QueryLimits, find_extension
from duckicelake.query.protocol import open_lake
from duckicelake.query.queries import build_open_order
from duckicelake.query.reach import build_secrets
from duckicelake.server.app import create_app
from duckicelake.server.auth.oauth_clients import OAuthClient
from duckicelake.storage.sts_vendor import S3Keys, StaticVendor
from scripts.backends_job.minio import create_bucket
from tests.support.backends import Bucket
from tests.support.logins import SECRET, Server, bearing, token
from tests.support.policies import restrict
from tests.support.s3_lakes import s3_lake
from tests.support.servers import Serve

ROUTE = "/sql/v1/query"
LIMITS = QueryLimits(processes=2, memory_bytes=256 * 1024**2, disk_bytes=0, seconds=30.0, rows=1_000_000)


@pytest.fixture
def services(postgres: EmbeddedPostgres, bucket: Bucket) -> Iterator[Services]:
    with s3_lake(postgres, bucket) as opened:
        service._limits[opened.database] = LIMITS
        yield opened
        del service._limits[opened.database]
        service.end_processes()


@pytest.fixture
def lake(services: Services, bucket: Bucket, extensions: None) -> Iterator[duckdb.DuckDBPyConnection]:
    """Namespaces `open` and `shut`, each with a table `t` whose rows are in S3 and in Postgres."""
    with duckdb_beside(services, bucket) as duck:
        for name in ("open", "shut"):
            duck.execute(f"CREATE SCHEMA lake.{name}")
            duck.execute(f"CREATE TABLE lake.{name}.t AS SELECT i AS id, 'n' || i AS name FROM range(100) r(i)")
            duck.execute(f"INSERT INTO lake.{name}.t VALUES (1000, NULL)")
            duck.execute(f"DELETE FROM lake.{name}.t WHERE id = 5")
        yield duck


@contextmanager
def duckdb_beside(services: Services, bucket: Bucket) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB on the same lake, with keys of the store's own."""
    import_extension("httpfs")
    minio = bucket.minio
    with duckdb.connect() as connection:
        connection.execute("LOAD ducklake; LOAD postgres_scanner; LOAD httpfs")
        connection.execute(
            f"CREATE SECRET (TYPE s3, KEY_ID '{minio.access_key}', SECRET '{minio.secret_key}', "
            f"ENDPOINT '{minio.endpoint.removeprefix('http://')}', USE_SSL false, URL_STYLE 'path', "
            f"REGION '{minio.region}')"
        )
        yield connection.execute(build_duckdb_attach(services.database.url))


def read_rows(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def read_problem(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["message"]


def find_file(lake: duckdb.DuckDBPyConnection, table: str) -> str:
    """A data file of the table in namespace `open` or `shut`."""
    found = lake.execute(f"SELECT data_file FROM ducklake_list_files('lake', 't', schema => '{table}')").fetchall()
    return str(found[0][0])


def test_rows_are_those_of_duckdb_whoever_wrote_them(
    services: Services, serve: Serve, lake: duckdb.DuckDBPyConnection
) -> None:
    http = serve(create_app(services))
    sql = "SELECT count(*) AS n, sum(id)::BIGINT AS s, count(name) AS names FROM {}open.t"
    for change in ("SELECT 1", "UPDATE lake.open.t SET name = NULL WHERE id < 10"):
        lake.execute(change)
        (row,) = read_rows(http.post(ROUTE, json={"sql": sql.format("")}, timeout=60))
        assert (row["n"], row["s"], row["names"]) == lake.execute(sql.format("lake.")).fetchone()
    joined = "SELECT count(*) AS n FROM open.t JOIN shut.t u USING (id)"
    assert read_rows(http.post(ROUTE, json={"sql": joined}, timeout=60)) == [{"n": 100}]
    assert read_rows(http.post(ROUTE, json={"sql": "SELECT 1 AS a"}, timeout=60)) == [{"a": 1}]


def test_each_principal_reads_its_own_tables(services: Services, serve: Serve, lake: duckdb.DuckDBPyConnection) -> None:
    server = Server()
    clients = OAuthClient("reader", SECRET, ("ns:open:r",)), OAuthClient("other", SECRET, ("ns:shut:r",))
    http = serve(server.app(services, server.authentication(*clients)))
    for name, mine, theirs in (("reader", "open", "shut"), ("other", "shut", "open"), ("reader", "open", "shut")):
        headers = bearing(token(http, name))
        answers = [
            http.post(ROUTE, json={"sql": f"SELECT count(*) AS n FROM {one}.t"}, headers=headers, timeout=60)
            for one in (mine, theirs)
        ]
        assert read_rows(answers[0]) == [{"n": 100}]
        assert answers[1].status_code == 403


def test_policies_hold_for_files_in_s3(services: Services, serve: Serve, lake: duckdb.DuckDBPyConnection) -> None:
    """The caller gets no keys, but the process of its query does, for the tables of the query alone."""
    guarded = replace(services, rights=RightsCache.of_first(services.database))
    http = serve(create_app(guarded))
    above_97 = {"type": "gt", "left": {"type": "reference", "id": 1}, "right": 97}
    restrict(guarded, "open.t", above_97, masks={2: Mask.ALPHANUM})
    found = read_rows(http.post(ROUTE, json={"sql": "FROM open.t ORDER BY id"}, timeout=60))
    assert found == [{"id": 98, "name": "xnn"}, {"id": 99, "name": "xnn"}, {"id": 1000, "name": None}]
    joined = {"sql": "SELECT count(*) AS n FROM open.t JOIN shut.t USING (id)"}
    assert read_rows(http.post(ROUTE, json=joined, timeout=60)) == [{"n": 3}]
    for path in ("", "/credentials"):
        assert http.get(f"/v1/namespaces/open/tables/t{path}").status_code == 403


def test_keys_that_the_server_shares_with_all_are_refused(
    services: Services, serve: Serve, bucket: Bucket, lake: duckdb.DuckDBPyConnection
) -> None:
    """Without STS, a process would hold keys that read every table."""
    static = StaticVendor(S3Keys(bucket.minio.access_key, bucket.minio.secret_key))
    for access in (StorageAccess(), StorageAccess(services.access.client, static)):
        http = serve(create_app(replace(services, access=access)))
        status, message = read_problem(http.post(ROUTE, json={"sql": "FROM open.t"}, timeout=60))
        assert (status, "this server has none: set DUCKICELAKE_S3_STS_ENDPOINT" in message) == (406, True)


def test_missing_extension_is_refused_with_what_installs_it(
    services: Services, serve: Serve, lake: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def import_module(name: str) -> object:
        raise ModuleNotFoundError(name)

    find_extension.cache_clear()
    monkeypatch.setattr(processes, "import_module", import_module)
    http = serve(create_app(services))
    status, message = read_problem(http.post(ROUTE, json={"sql": "FROM open.t"}, timeout=60))
    find_extension.cache_clear()
    assert (status, "pip install 'duckicelake[queries]'" in message) == (406, True)


@pytest.fixture
def locked(services: Services, lake: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB as a query's process has it while it reads `open.t`: what a statement past the whitelist could do."""
    order = build_open_order(services, is_restricted=False)
    with duckdb.connect(config={"allow_unsigned_extensions": True}) as duck:
        settings = {"threads": 1, "autoload_known_extensions": False, "autoinstall_known_extensions": False}
        settings["http_retries"] = 0  # a refusal takes 2 s with three
        opening = {"settings": {**settings, **order.settings}, "extensions": order.extensions}
        open_lake(duck, {**opening, "statements": order.statements, "directories": order.directories})
        for name, secret in build_secrets(services, [(("open",), "t")]).items():
            duck.execute(f"CREATE SECRET {name} {secret}")
        yield duck


def test_process_reaches_the_tables_of_the_query_alone(
    locked: duckdb.DuckDBPyConnection, lake: duckdb.DuckDBPyConnection, bucket: Bucket
) -> None:
    """By every function and statement that opens a file, whatever its place."""
    create_bucket(bucket.minio, f"{bucket.name}-other")
    ours, theirs = find_file(lake, "open"), find_file(lake, "shut")
    other = f"s3://{bucket.name}-other/x.parquet"
    beside = f"{bucket.uri}/beside.parquet"
    for file in (other, beside):
        lake.execute(f"COPY (SELECT 1) TO '{file}'")
    assert locked.execute(f"SELECT count(*) FROM '{ours}'").fetchone() == (100,)
    assert locked.execute("SELECT count(*) FROM lake.open.t").fetchone() == (100,)
    endpoint = bucket.minio.endpoint
    climbing = ours.rpartition("/")[0] + "/../../shut/t/" + theirs.rpartition("/")[2]
    places = (
        *(theirs, climbing, other, beside, theirs.replace("s3://", "s3a://"), theirs.replace("s3://", "s3n://")),
        *(f"{endpoint}/{theirs.removeprefix('s3://')}", "http://169.254.169.254/latest/meta-data/"),
        *("https://127.0.0.1:1/x", "hf://datasets/a/b/x.parquet", "gcs://b/x", "r2://b/x", "/etc/hostname"),
        *("file:///etc/hostname", theirs.rpartition("/")[0] + "/*", f"{bucket.uri}/**"),
    )
    readers = (
        *("FROM read_parquet('{}')", "FROM read_csv('{}')", "FROM read_json('{}')", "FROM read_text('{}')"),
        *("FROM read_blob('{}')", "FROM '{}'", "FROM parquet_metadata('{}')", "FROM parquet_schema('{}')"),
        *("FROM parquet_bloom_probe('{}', 'a', 1)", "FROM sniff_csv('{}')", "FROM iceberg_scan('{}')"),
        *("FROM iceberg_metadata('{}')", "FROM iceberg_snapshots('{}')", "ATTACH '{}' AS x (READ_ONLY)"),
        *("ATTACH 'ducklake:{}' AS x", "COPY (SELECT 1) TO '{}'", "IMPORT DATABASE '{}'"),
        *("INSTALL '{}'", "LOAD '{}'", "COPY lake.open.t FROM '{}'", "SET extension_directory = '{}'"),
    )
    attempts = [reader.format(place) for place in places for reader in readers]
    attempts += ["FROM lake.shut.t", "INSERT INTO lake.open.t VALUES (1, 'x')", "CREATE TABLE lake.open.u (a INT)"]
    assert [attempt for attempt in attempts if is_done(locked, attempt)] == []
    before = lake.execute(f"FROM glob('{bucket.uri}/**')").fetchall()
    for place in places:  # DuckDB reports no error for files that it couldn't write
        is_done(locked, f"EXPORT DATABASE '{place}'")
    assert lake.execute(f"FROM glob('{bucket.uri}/**')").fetchall() == before
    for place in places:  # a name is literal, and DuckDB gives it back without a look
        listing = f"FROM glob('{place}')"
        assert not is_done(locked, listing) or locked.execute(listing).fetchall() == [(place,)]


def is_done(locked: duckdb.DuckDBPyConnection, sql: str) -> bool:
    """Whether DuckDB carries a statement out."""
    try:
        locked.execute(sql).fetchall()
    except duckdb.Error:
        return False
    return True


def test_keys_read_and_write_nothing(locked: duckdb.DuckDBPyConnection, lake: duckdb.DuckDBPyConnection) -> None:
    folder = find_file(lake, "open").rpartition("/")[0]
    with pytest.raises(duckdb.Error, match="403"):
        locked.execute(f"COPY (SELECT 1) TO '{folder}/x.parquet'")


def test_settings_and_other_keys_stay_as_they_are(locked: duckdb.DuckDBPyConnection) -> None:
    for sql in (
        *("SET s3_endpoint = '127.0.0.1:1'", "SET s3_url_compatibility_mode = false", "SET http_proxy = '127.0.0.1:1'"),
        *("SET enable_external_access = true", "SET allowed_directories = ['/']", "RESET allowed_directories"),
        "CREATE SECRET (TYPE s3, PROVIDER credential_chain)",
    ):
        with pytest.raises(duckdb.Error):
            locked.execute(sql)


def test_file_name_leads_to_no_other_server(locked: duckdb.DuckDBPyConnection, lake: duckdb.DuckDBPyConnection) -> None:
    """DuckDB takes `?s3_endpoint=` in a name for an address, and would send the keys there."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        do_HEAD = do_GET  # noqa: N815

    with HTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        options = f"s3_endpoint=127.0.0.1:{listening.server_port}&s3_use_ssl=false"
        for end in (f"?{options}", f"?s3_url_style=path&{options}", f"#{options}"):
            with pytest.raises(duckdb.Error):
                locked.execute(f"FROM read_parquet('{find_file(lake, 'open')}{end}')").fetchall()
        listening.shutdown()
    assert asked == []


def test_materialized_view_reads_and_writes_the_store(
    services: Services, serve: Serve, lake: duckdb.DuckDBPyConnection
) -> None:
    http = serve(create_app(services))
    views = "/v1/namespaces/open/materialized-views"
    body = {"name": "mv", "query": "SELECT id % 10 AS k, count(*) AS n FROM t GROUP BY k"}
    assert http.post(views, json=body, timeout=60).status_code == 200
    lake.execute("INSERT INTO lake.open.t SELECT 2000 + i, 'x' FROM range(100) r(i)")
    refreshed = http.post(f"{views}/mv/refresh", json={}, timeout=60).json()
    assert refreshed["mode"] == "incremental", refreshed["reason"]
    expected = lake.execute("SELECT id % 10 AS k, count(*) AS n FROM lake.open.t GROUP BY k ORDER BY k").fetchall()
    assert lake.execute("FROM lake.open.mv ORDER BY k").fetchall() == expected
