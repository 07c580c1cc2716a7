"""Keys and signatures in answers: who gets which, for which folders, and what caches may make of it."""

import io
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import duckdb
import httpx
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from fastapi import FastAPI

from duckicelake.catalog.context.services import Services
from duckicelake.errors import UnavailableError
from duckicelake.lake.ducklake.database import build_duckdb_attach
from duckicelake.lake.side_tables.audit import AuditFilter, read_entries
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.server.app import create_app
from duckicelake.server.auth.oauth_clients import OAuthClient
from duckicelake.server.http.scope import parse_access_request
from duckicelake.server.telemetry.logs import make_logger
from tests.support.backends import Bucket
from tests.support.client import SCHEMA
from tests.support.logins import SECRET, Server, bearing, token
from tests.support.s3_lakes import s3_lake
from tests.support.servers import running

Json = dict[str, Any]
KEYS = {"X-Iceberg-Access-Delegation": "vended-credentials"}
SIGNATURES = {"X-Iceberg-Access-Delegation": "remote-signing"}
TABLES = "/v1/namespaces/ns/tables"
TABLE = f"{TABLES}/t"
UNCOVERED = "duckicelake.uncovered-locations"


@pytest.fixture
def services(postgres: EmbeddedPostgres, bucket: Bucket) -> Iterator[Services]:
    with s3_lake(postgres, bucket, f"{bucket.uri}/allowed") as opened:
        yield opened


@pytest.fixture
def log() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def http(services: Services, serve: Callable[[FastAPI], httpx.Client], log: io.StringIO) -> httpx.Client:
    client = serve(create_app(services, log=make_logger(log, "json")))
    client.timeout = httpx.Timeout(30)
    client.post("/v1/namespaces", json={"namespace": ["ns"]}).raise_for_status()
    client.post(TABLES, json={"name": "t", "schema": SCHEMA}).raise_for_status()
    return client


def prefixes(answer: httpx.Response) -> list[str]:
    return [each["prefix"] for each in answer.json().get("storage-credentials", [])]


def test_load_without_a_wish_gives_nothing(http: httpx.Client) -> None:
    answer = http.get(TABLE).json()
    assert answer["config"] == {}
    assert set(answer) == {"metadata-location", "metadata", "config"}


def test_keys_come_for_each_folder_of_the_table_and_in_the_config(http: httpx.Client, bucket: Bucket) -> None:
    loaded = http.get(TABLE, headers=KEYS)
    answer = loaded.json()
    location = answer["metadata"]["location"]
    assert prefixes(loaded) == [f"{location}/", f"{bucket.uri}/lake/ducklake/ns/t/"]
    for credential in answer["storage-credentials"]:
        config = credential["config"]
        endpoint, _, query = config.pop("client.refresh-credentials-endpoint").partition("?prefix=")
        assert (endpoint, unquote(query)) == ("v1/namespaces/ns/tables/t/credentials", credential["prefix"])
        assert {config.pop(f"s3.{name}") for name in ("access-key-id", "secret-access-key", "session-token")} != {""}
        assert int(config.pop("s3.session-token-expires-at-ms")) > 1_700_000_000_000
        assert config == {
            "s3.endpoint": f"{bucket.minio.endpoint}/",
            "s3.region": "us-east-1",
            "client.region": "us-east-1",
            "s3.path-style-access": "true",
            "client.refresh-credentials-enabled": "true",
        }
    again = http.get(TABLE, headers=KEYS).json()
    assert again["config"] == again["storage-credentials"][0]["config"]


def test_config_shows_how_the_store_is_reached(http: httpx.Client, bucket: Bucket) -> None:
    assert http.get("/v1/config").json()["defaults"] == {
        "s3.endpoint": f"{bucket.minio.endpoint}/",
        "s3.region": "us-east-1",
        "client.region": "us-east-1",
        "s3.path-style-access": "true",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
    }


@pytest.mark.parametrize("staged", [False, True])
def test_created_and_staged_tables_come_with_keys_that_write(http: httpx.Client, bucket: Bucket, staged: bool) -> None:
    created = http.post(TABLES, json={"name": "u", "schema": SCHEMA, "stage-create": staged}, headers=KEYS)
    location = created.json()["metadata"]["location"]
    assert prefixes(created)[0] == f"{location}/"
    filesystem = files_of(created.json()["config"])
    with filesystem.open_output_stream(f"{location.removeprefix('s3://')}/data/a") as stream:
        stream.write(b"1")
    with pytest.raises(OSError, match="ACCESS_DENIED"):
        filesystem.open_output_stream(f"{location.removeprefix('s3://')}2/data/a").close()


def files_of(config: Json) -> pyarrow.fs.S3FileSystem:
    return pyarrow.fs.S3FileSystem(
        access_key=config["s3.access-key-id"],
        secret_key=config["s3.secret-access-key"],
        session_token=config["s3.session-token"],
        endpoint_override=config["s3.endpoint"],
        region=config["s3.region"],
    )


def test_registered_table_comes_with_keys_for_its_old_place(http: httpx.Client, services: Services) -> None:
    loaded = http.get(TABLE).json()
    http.delete(TABLE).raise_for_status()
    body = {"name": "again", "metadata-location": loaded["metadata-location"]}
    registered = http.post("/v1/namespaces/ns/register", json=body, headers=KEYS)
    assert prefixes(registered)[0] == loaded["metadata"]["location"] + "/"


def test_credentials_route_gives_all_or_those_of_a_prefix(http: httpx.Client) -> None:
    loaded = http.get(TABLE, headers=KEYS)
    everything = http.get(f"{TABLE}/credentials", params={"planId": "p", "referenced-by": "ns.v"})
    assert everything.json() == {"storage-credentials": loaded.json()["storage-credentials"]}
    assert everything.headers["cache-control"] == "no-store"
    for credential in loaded.json()["storage-credentials"]:
        refreshed = http.get(f"/{credential['config']['client.refresh-credentials-endpoint']}")
        assert refreshed.json() == {"storage-credentials": [credential]}
    assert http.get(f"{TABLE}/credentials", params={"prefix": "s3://other/"}).json() == {"storage-credentials": []}
    assert http.get(f"{TABLES}/gone/credentials").status_code == 404


def test_tag_is_that_of_wish_and_keys(http: httpx.Client, services: Services) -> None:
    plain, keys, signatures = (http.get(TABLE, headers=wish).headers["etag"] for wish in ({}, KEYS, SIGNATURES))
    assert len({plain, keys, signatures}) == 3
    for wish, tag in (({}, plain), (KEYS, keys), (SIGNATURES, signatures)):
        for known in (plain, keys, signatures):
            status = http.get(TABLE, headers={**wish, "If-None-Match": known}).status_code
            assert status == (304 if known == tag else 200)
    assert http.get(TABLE, headers={**KEYS, "If-None-Match": "*"}).status_code == 200
    services.clock.ahead_ms = 2_690_000  # type: ignore[attr-defined]
    assert http.get(TABLE, headers={**KEYS, "If-None-Match": keys}).status_code == 304
    services.clock.ahead_ms = 2_710_000  # type: ignore[attr-defined]  # the last quarter of their hour has begun
    assert http.get(TABLE, headers={**KEYS, "If-None-Match": keys}).status_code == 200


def test_signing_is_reported_to_new_and_old_clients(http: httpx.Client) -> None:
    answer = http.get(TABLE, headers=SIGNATURES).json()
    assert answer["remote-signing-config"] == {"properties": {}, "headers": {}}
    assert "storage-credentials" not in answer
    assert not any("key" in name or "token" in name for name in answer["config"])
    endpoint = "v1/namespaces/ns/tables/t/sign"
    report = {"s3.remote-signing-enabled": "true", "signer.endpoint": endpoint, "s3.signer.endpoint": endpoint}
    assert report.items() <= answer["config"].items()


def test_keys_are_given_before_signatures(http: httpx.Client) -> None:
    both = {"X-Iceberg-Access-Delegation": "remote-signing, vended-credentials, what comes next"}
    assert prefixes(http.get(TABLE, headers=both))


def test_signed_request_is_answered_as_the_specification_says(http: httpx.Client, bucket: Bucket) -> None:
    key = http.get(TABLE).json()["metadata-location"].removeprefix(bucket.uri)
    uri = f"{bucket.minio.endpoint}/{bucket.name}{key}"
    body = {"region": "us-east-1", "uri": uri, "method": "GET", "headers": {"Range": ["bytes=0-0"]}, "provider": "s3"}
    answer = http.post(f"{TABLE}/sign", json=body)
    assert answer.headers["cache-control"] == "private"
    headers = {name: ", ".join(values) for name, values in answer.json()["headers"].items()}
    assert httpx.get(answer.json()["uri"], headers={**headers, "Range": "bytes=0-0"}).content == b"{"
    written = http.post(f"{TABLE}/sign", json={**body, "method": "PUT"})
    assert written.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"uri": "http://evil/b/a"}, (403, "ForbiddenException")),
        ({"uri": "nothing"}, (400, "BadRequestException")),
        ({"provider": "gcs"}, (400, "BadRequestException")),
        ({"headers": {"x-amz-acl": ["public-read"]}}, (403, "ForbiddenException")),
    ],
)
def test_request_that_is_not_signed_says_why(
    http: httpx.Client, bucket: Bucket, change: Json, expected: tuple[int, str]
) -> None:
    location = http.get(TABLE).json()["metadata-location"].removeprefix("s3:/")
    body = {"region": "us-east-1", "uri": f"{bucket.minio.endpoint}{location}", "method": "PUT", "headers": {}}
    answer = http.post(f"{TABLE}/sign", json={**body, **change})
    assert (answer.status_code, answer.json()["error"]["type"]) == expected


def test_staged_table_is_signed_for_and_renewed_until_someone_has_its_place(http: httpx.Client, bucket: Bucket) -> None:
    staged = {"name": "new", "schema": SCHEMA, "stage-create": True}
    location = http.post(TABLES, json=staged, headers=SIGNATURES).json()["metadata"]["location"]
    body = {"region": "", "uri": f"{bucket.minio.endpoint}{location.removeprefix('s3:/')}/data/x", "method": "PUT"}
    assert http.post(f"{TABLES}/new/sign", json=body).status_code == 200
    renewed = http.get(f"{TABLES}/new/credentials", params={"prefix": f"{location}/"})
    assert prefixes(renewed) == [f"{location}/"]
    other = http.get(TABLE).json()["metadata"]["location"]
    for place in (
        other,
        location.replace("/new-", "/news-"),
        location[:-1],
        f"{location}0",
        location[:-8] + "ABCDEF01",
    ):
        uri = f"{bucket.minio.endpoint}{place.removeprefix('s3:/')}/data/x"
        assert http.post(f"{TABLES}/new/sign", json={**body, "uri": uri}).status_code == 404
        assert http.get(f"{TABLES}/new/credentials", params={"prefix": f"{place}/"}).status_code == 404
    http.delete(TABLE).raise_for_status()
    gone = f"{bucket.minio.endpoint}{other.removeprefix('s3:/')}/data/x"
    assert http.post(f"{TABLE}/sign", json={**body, "uri": gone}).status_code == 404


@pytest.fixture
def principals(services: Services) -> Iterator[Callable[[str], httpx.Client]]:
    """Log in with a scope, on a server with authentication."""
    scopes = {"all": "*", "reader": "ns:ns:r", "writer": "ns:ns:rw", "other": "ns:other:rw", "pen": "ns:ns:w"}
    server = Server()
    clients = [OAuthClient(name, SECRET, (scope,)) for name, scope in scopes.items()]
    with ExitStack() as stack:
        uri = stack.enter_context(running(server.app(services, server.authentication(*clients))))
        client = stack.enter_context(httpx.Client(base_url=uri, timeout=30))
        yield lambda name: _as(client, name)


def _as(client: httpx.Client, name: str) -> httpx.Client:
    client.headers.pop("Authorization", None)
    client.headers.update(bearing(token(client, name)))
    return client


def test_keys_may_do_what_their_principal_may(principals: Callable[[str], httpx.Client], bucket: Bucket) -> None:
    admin = principals("all")
    for name in ("ns", "other"):
        admin.post("/v1/namespaces", json={"namespace": [name]}).raise_for_status()
    location = admin.post(TABLES, json={"name": "t", "schema": SCHEMA}).json()["metadata"]["location"]
    path = location.removeprefix("s3://")
    for name, writes in (("all", True), ("writer", True), ("reader", False)):
        filesystem = files_of(principals(name).get(TABLE, headers=KEYS).json()["config"])
        assert filesystem.get_file_info(pyarrow.fs.FileSelector(f"{path}/metadata"))
        if writes:
            filesystem.open_output_stream(f"{path}/data/{name}").close()
        else:
            with pytest.raises(OSError, match="ACCESS_DENIED"):
                filesystem.open_output_stream(f"{path}/data/{name}").close()
    for route in (TABLE, f"{TABLE}/credentials"):
        assert principals("other").get(route, headers=KEYS).status_code == 403
    pen = principals("pen").get(f"{TABLE}/credentials").json()["storage-credentials"][0]["config"]
    files_of(pen).open_output_stream(f"{path}/data/pen").close()
    uri = f"{bucket.minio.endpoint}/{path}/data/x"
    for name, status in (("writer", 200), ("reader", 403), ("other", 403)):
        body = {"region": "", "uri": uri, "method": "PUT", "headers": {}}
        assert principals(name).post(f"{TABLE}/sign", json=body).status_code == status


@contextmanager
def duckdb_beside(services: Services, bucket: Bucket) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB on the same lake, with keys of the store's own; the lake is its `lake`."""
    minio = bucket.minio
    with duckdb.connect() as connection:
        connection.execute("LOAD ducklake; LOAD postgres_scanner; LOAD httpfs")
        connection.execute(
            f"CREATE SECRET (TYPE s3, KEY_ID '{minio.access_key}', SECRET '{minio.secret_key}', "
            f"ENDPOINT '{minio.endpoint.removeprefix('http://')}', USE_SSL false, URL_STYLE 'path')"
        )
        connection.execute(build_duckdb_attach(services.database.url))
        yield connection


def register(services: Services, bucket: Bucket, *locations: str) -> None:
    """Write Parquet at the locations and add it to the table."""
    with duckdb_beside(services, bucket) as connection:
        for location in locations:
            connection.execute(f"COPY (SELECT 1::bigint AS id, 'a' AS name) TO '{location}' (FORMAT parquet)")
            connection.execute(f"CALL ducklake_add_data_files('lake', 't', '{location}', schema => 'ns')")


def test_files_from_elsewhere_are_covered_where_allowed_and_named_where_not(
    http: httpx.Client, services: Services, bucket: Bucket, extensions: None
) -> None:
    allowed, stranger = f"{bucket.uri}/allowed/import", f"{bucket.uri}/stranger"
    register(services, bucket, f"{allowed}/day=1/a.parquet", f"{allowed}/day=2/b.parquet", f"{stranger}/c.parquet")
    loaded = http.get(TABLE, headers=KEYS)
    assert prefixes(loaded)[2:] == [f"{allowed}/"]
    assert json.loads(loaded.json()["config"][UNCOVERED]) == [f"{stranger}/"]
    signed = http.get(TABLE, headers=SIGNATURES)
    assert json.loads(signed.json()["config"][UNCOVERED]) == [f"{stranger}/"]


def test_files_of_another_table_are_covered_for_who_may_read_it(
    principals: Callable[[str], httpx.Client], services: Services, bucket: Bucket, extensions: None
) -> None:
    admin = principals("all")
    for name in ("ns", "other"):
        admin.post("/v1/namespaces", json={"namespace": [name]}).raise_for_status()
    secret = admin.post("/v1/namespaces/other/tables", json={"name": "secret", "schema": SCHEMA}).json()["metadata"]
    admin.post(TABLES, json={"name": "t", "schema": SCHEMA}).raise_for_status()
    register(services, bucket, f"{secret['location']}/data/a.parquet")
    folder = f"{secret['location']}/data/"
    assert folder in prefixes(principals("all").get(TABLE, headers=KEYS))
    answer = principals("writer").get(TABLE, headers=KEYS)
    assert folder not in prefixes(answer)
    assert json.loads(answer.json()["config"][UNCOVERED]) == [folder]


def test_keys_from_memory_reach_no_folder_into_which_another_table_has_moved(
    principals: Callable[[str], httpx.Client], bucket: Bucket
) -> None:
    as_writer = KEYS | {"Authorization": principals("writer").headers["Authorization"]}
    admin = principals("all")
    for name in ("ns", "other"):
        admin.post("/v1/namespaces", json={"namespace": [name]}).raise_for_status()
    shared, others = f"{bucket.uri}/allowed/shared/", "/v1/namespaces/other/tables"
    made = {"name": "t", "schema": SCHEMA, "properties": {"write.data.path": shared.rstrip("/")}}
    admin.post(TABLES, json=made).raise_for_status()
    admin.post(others, json={"name": "secret", "schema": SCHEMA}).raise_for_status()
    for _ in range(5):  # the last of which come from memory
        assert shared in prefixes(admin.get(TABLE, headers=as_writer))
    move = {"action": "set-location", "location": f"{shared}of-another"}
    admin.post(f"{others}/secret", json={"requirements": [], "updates": [move]}).raise_for_status()
    answer = admin.get(TABLE, headers=as_writer)
    assert shared not in prefixes(answer)
    assert json.loads(answer.json()["config"][UNCOVERED]) == [shared]


def test_keys_open_no_place_where_another_has_left_files(
    principals: Callable[[str], httpx.Client], bucket: Bucket
) -> None:
    admin = principals("all")
    for name in ("ns", "other"):
        admin.post("/v1/namespaces", json={"namespace": [name]}).raise_for_status()
    former = f"{bucket.uri}/allowed/former"
    others = "/v1/namespaces/other/tables"
    admin.post(others, json={"name": "secret", "schema": SCHEMA, "location": former}).raise_for_status()
    move = {"action": "set-location", "location": f"{bucket.uri}/allowed/new"}
    admin.post(f"{others}/secret", json={"requirements": [], "updates": [move]}).raise_for_status()
    location = admin.post(TABLES, json={"name": "t", "schema": SCHEMA}).json()["metadata"]["location"]
    writer = principals("writer")
    for folder in (f"{former}/metadata", f"{bucket.uri}/allowed/free"):
        file = {"snapshot-id": 1, "statistics-path": f"{folder}/x.puffin", "file-size-in-bytes": 1}
        update = {"action": "set-partition-statistics", "partition-statistics": file}
        writer.post(TABLE, json={"requirements": [], "updates": [update]}).raise_for_status()
        answer = writer.get(TABLE, headers=KEYS)
        is_free = folder.endswith("free")
        assert (f"{folder}/" in prefixes(answer)) is is_free
        assert (UNCOVERED in answer.json()["config"]) is not is_free
    for place in (former, location.replace(bucket.uri, f"{bucket.uri}/")):
        body = {"name": "spy", "schema": SCHEMA, "location": place}
        assert writer.post(TABLES, json=body).status_code in {400, 403}


def test_repeated_creation_gives_no_keys_of_what_has_moved(http: httpx.Client) -> None:
    headers = {**KEYS, "Idempotency-Key": "01890a5d-ac96-774b-bcce-b302099a8057"}
    body = {"name": "new", "schema": SCHEMA}
    for _ in range(2):
        assert prefixes(http.post(TABLES, json=body, headers=headers))
    names = {"source": {"namespace": ["ns"], "name": "new"}, "destination": {"namespace": ["ns"], "name": "newer"}}
    http.post("/v1/tables/rename", json=names).raise_for_status()
    answer = http.post(TABLES, json=body, headers=headers)
    assert answer.status_code == 200
    assert prefixes(answer) == []


def test_keys_given_are_in_the_audit_trail_once(http: httpx.Client, services: Services) -> None:
    for _ in range(2):
        http.get(TABLE, headers=KEYS)
    with services.database.reading() as cursor:
        (entry,) = read_entries(cursor, AuditFilter(operation="load_table"), 10)
    location = http.get(TABLE).json()["metadata"]["location"]
    assert (entry.resource, entry.principal, entry.result) == ("ns.t", "anonymous", "ok")
    assert entry.detail["write"] == [f"{location}/"]
    assert entry.detail["vended"] == http.get(TABLE, headers=KEYS).json()["config"]["s3.access-key-id"]


def test_created_table_is_reported_of_even_if_there_are_no_keys_now(
    services: Services, serve: Callable[[FastAPI], httpx.Client]
) -> None:
    class Silent:
        def vend(self, holder: str, folders: Any) -> Any:  # noqa: ARG002
            raise UnavailableError("STS doesn't answer")

    client = serve(create_app(replace(services, access=replace(services.access, vendor=Silent()))))
    client.post("/v1/namespaces", json={"namespace": ["ns"]})
    created = client.post(TABLES, json={"name": "t", "schema": SCHEMA}, headers=KEYS)
    assert (created.status_code, created.json()["config"]) == (200, {})
    loaded = client.get(TABLE, headers=KEYS)
    assert (loaded.status_code, loaded.json()["error"]["message"]) == (503, "STS doesn't answer")


def test_no_key_of_the_server_is_in_any_answer_metric_or_log(
    http: httpx.Client, services: Services, bucket: Bucket, log: io.StringIO
) -> None:
    sign = {"region": "", "uri": f"{bucket.minio.endpoint}/{bucket.name}/x", "method": "GET", "headers": {}}
    location = http.get(TABLE).json()["metadata-location"].removeprefix("s3:/")
    said = []
    for wish in ({}, KEYS, SIGNATURES):
        for method, path, body in [
            ("GET", "/v1/config", None),
            ("GET", TABLE, None),
            ("GET", f"{TABLE}?snapshots=refs", None),
            ("GET", f"{TABLE}/credentials", None),
            ("POST", f"{TABLE}/sign", sign),
            ("POST", f"{TABLE}/sign", {**sign, "uri": f"{bucket.minio.endpoint}{location}"}),
            ("POST", TABLE, {"requirements": [], "updates": []}),
            ("POST", TABLES, {"name": "staged", "schema": SCHEMA, "stage-create": True}),
            ("POST", "/v1/namespaces/ns/register", {"name": "r", "metadata-location": f"{bucket.uri}/lake/data/none"}),
            ("GET", "/metrics", None),
            ("GET", "/readyz", None),
            ("GET", "/openapi.json", None),
            ("GET", "/v1/nothing", None),
        ]:
            answer = http.request(method, path, json=body, headers=wish)
            said += [answer.text, str(answer.headers)]
    with services.database.reading() as cursor:
        said += [repr(entry) for entry in read_entries(cursor, AuditFilter(), 1000)]
    said += [log.getvalue(), repr(services)]
    everything = "\n".join(said)
    keys = http.get(TABLE, headers=KEYS).json()["config"]
    assert keys["s3.session-token"] in everything
    assert keys["s3.session-token"] not in log.getvalue() + repr(services)
    assert bucket.minio.secret_key not in everything
    assert f"Credential={bucket.minio.access_key}/" not in everything
    assert f'access-key-id":"{bucket.minio.access_key}"' not in everything


def test_table_of_duckdb_comes_with_keys_for_its_files(
    http: httpx.Client, services: Services, bucket: Bucket, extensions: None
) -> None:
    with duckdb_beside(services, bucket) as connection:
        connection.execute("CREATE TABLE lake.ns.d AS SELECT range AS id FROM range(100)")
    loaded = http.get(f"{TABLES}/d", headers=KEYS)
    (credential,) = (each for each in loaded.json()["storage-credentials"] if "/ducklake/" in each["prefix"])
    filesystem = files_of(credential["config"])
    selector = pyarrow.fs.FileSelector(credential["prefix"].removeprefix("s3://"), recursive=True)
    (file,) = (info for info in filesystem.get_file_info(selector) if info.is_file)
    assert pq.read_table(file.path, filesystem=filesystem).num_rows == 100
    with pytest.raises(OSError, match="ACCESS_DENIED"):
        filesystem.delete_file(file.path)


@pytest.mark.parametrize(
    ("header", "count"),
    [([], 0), ([""], 0), ([","], 0), (["nothing,\xf6"], 0), (["vended-credentials"], 1), (["REMOTE-SIGNING "], 1),
     (["vended-credentials", "remote-signing"], 2), (["vended-credentials,remote-signing,x"], 2)],
)  # fmt: skip
def test_header_is_a_list_of_what_we_know_and_what_we_do_not(header: list[str], count: int) -> None:
    assert len(parse_access_request(tuple(header))) == count
