"""Warehouses on storage profiles: buckets and keys of their own, encrypted in Postgres, on a real S3 server."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

import boto3
import psycopg
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from pydantic import SecretStr
from pyiceberg.catalog.rest import RestCatalog
from typer.testing import CliRunner

from duckicelake.catalog.context.secret_keys import SecretKeys
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.storage_profiles import ProfileKeys, StorageProfileSpec, create_profile
from duckicelake.catalog.warehouse_registry import rotate_secrets
from duckicelake.cli.main import app as commands
from duckicelake.cli.wiring.profile_settings import build_profile_rules, open_profile
from duckicelake.cli.wiring.services import build_warehouse_wiring
from duckicelake.errors import InvalidRequestError, InvalidSettingsError, UnavailableError
from duckicelake.server.app import create_app
from duckicelake.server.telemetry.logs import make_logger
from duckicelake.settings.model import Settings
from duckicelake.storage.registry import find_bucket_store
from duckicelake.storage.s3 import S3Store
from scripts.backends_job.minio import KMS_KEY, Minio, create_bucket
from tests.server.routes.test_idempotency import uuid7
from tests.server.test_warehouses import ROWS, Site
from tests.support.backends import Bucket
from tests.support.minio_users import MinioUser, add_user
from tests.support.servers import Serve

OLD_KEY, NEW_KEY = f"old:{'o' * 32}", f"new:{'n' * 32}"
NAMES = ("east", "west")
Json = dict[str, Any]


def settings_of(services: Services, folder: Path, **more: Any) -> Settings:
    given: Json = {"secret_keys": SecretStr(OLD_KEY), "allowed_addresses": ("127.0.0.1",), **more}
    return Settings(
        database_url=services.database.url,
        warehouse=services.policy.warehouse,
        warehouse_roots=(f"{folder}/warehouses",),
        **given,
    )


@dataclass
class Profiles:
    """A server, its settings, and a bucket with a user for each profile."""

    services: Services
    folder: Path
    serve: Serve
    site: Site
    buckets: dict[str, Bucket]
    users: dict[str, MinioUser]
    log: StringIO

    def body(self, name: str) -> Json:
        bucket, user = self.buckets[name], self.users[name]
        return {
            "name": name,
            "root": f"{bucket.uri}/lakes",
            "endpoint": bucket.minio.endpoint,
            "region": bucket.minio.region,
            "path-style": True,
            "access-key-id": user.access_key,
            "secret-access-key": user.secret_key,
        }

    def open_site(self, **more: Any) -> Site:
        """Open one more server of the lake, with other settings."""
        wiring = build_warehouse_wiring(settings_of(self.services, self.folder, **more))
        app = create_app(self.services, log=make_logger(self.log), wiring=wiring)
        return Site(self.services, wiring, app, self.serve(app))

    def create(self, name: str) -> None:
        made = self.site.http.post("/management/v1/storage-profiles", json=self.body(name))
        assert made.status_code == 200, made.text
        body = {"name": name, "storage-profile": name}
        made = self.site.http.post("/management/v1/warehouses", json=body)
        assert made.status_code == 200, made.text


@pytest.fixture
def profiles(services: Services, tmp_path: Path, serve: Serve, minio: Minio) -> Iterator[Profiles]:
    buckets = {name: Bucket(f"profile-{name}-{uuid7()[-8:]}", minio) for name in NAMES}
    for bucket in buckets.values():
        create_bucket(minio, bucket.name)
    users = {name: add_user(bucket) for name, bucket in buckets.items()}
    made = Profiles(services, tmp_path, serve, None, buckets, users, StringIO())  # type: ignore[arg-type]
    made.site = made.open_site()
    with closing(made.site.app.warehouses):
        yield made


def s3_client(minio: Minio, keys: Json) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=minio.endpoint,
        region_name=minio.region,
        aws_access_key_id=keys["s3.access-key-id"],
        aws_secret_access_key=keys["s3.secret-access-key"],
        aws_session_token=keys["s3.session-token"],
        config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
    )


def test_keys_of_each_warehouse_reach_its_own_bucket_alone(profiles: Profiles, minio: Minio) -> None:
    site = profiles.site
    locations, clients = {}, {}
    for name in NAMES:
        profiles.create(name)
        site.create_table(name)
        headers = {"X-Iceberg-Access-Delegation": "vended-credentials"}
        loaded = site.http.get(f"/v1/{name}/namespaces/ns/tables/t", headers=headers).json()
        locations[name] = loaded["metadata"]["location"]
        assert locations[name].startswith(f"{profiles.buckets[name].uri}/lakes/{name}/")
        assert loaded["config"]["s3.endpoint"] == f"{minio.endpoint}/"
        assert loaded["config"]["s3.access-key-id"] not in {user.access_key for user in profiles.users.values()}
        clients[name] = s3_client(minio, loaded["config"])
    for name, client in clients.items():
        for place in NAMES:
            bucket, _, key = locations[place].removeprefix("s3://").partition("/")
            if place == name:
                client.put_object(Bucket=bucket, Key=f"{key}/data/x", Body=b"x")
                continue
            with pytest.raises(ClientError, match="AccessDenied"):
                client.put_object(Bucket=bucket, Key=f"{key}/data/x", Body=b"x")
            with pytest.raises(ClientError, match="AccessDenied"):
                client.list_objects_v2(Bucket=bucket, Prefix=key)
        client.close()


def test_warehouse_of_a_profile_encrypts_with_its_key_and_clients_learn_of_it(profiles: Profiles, minio: Minio) -> None:
    encryption = {"sse": "kms", "kms-key": KMS_KEY, "bucket-key": True}
    http, body = profiles.site.http, profiles.body("east")
    for wrong in ({"kms-key": "k", "sse": "s3"}, {"bucket-key": True}):
        refused = http.post("/management/v1/storage-profiles", json=body | wrong)
        assert (refused.status_code, "give" in refused.text) == (400, True), refused.text
    made = http.post("/management/v1/storage-profiles", json=body | encryption | {"requester-pays": True})
    assert {**made.json(), **encryption, "requester-pays": True} == made.json()
    http.post("/management/v1/warehouses", json={"name": "east", "storage-profile": "east"}).raise_for_status()
    io = {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"}
    with RestCatalog("east", uri=str(http.base_url), warehouse="east", **io) as catalog:
        catalog.create_namespace("ns")
        catalog.create_table("ns.t", schema=ROWS.schema).append(ROWS)
        assert catalog.load_table("ns.t").scan().to_arrow().num_rows == ROWS.num_rows
    bucket = profiles.buckets["east"].name
    with closing(minio.client()) as client:
        keys = [one["Key"] for one in client.list_objects_v2(Bucket=bucket)["Contents"]]
        heads = {key: client.head_object(Bucket=bucket, Key=key) for key in keys}
    assert {key.rpartition(".")[2] for key in keys} >= {"parquet", "avro", "json"}
    assert {one.get("SSEKMSKeyId", "none").rpartition(":")[2] for one in heads.values()} == {KMS_KEY}, heads


def test_pyiceberg_writes_both_and_rows_are_flushed_there(profiles: Profiles, minio: Minio) -> None:
    uri = str(profiles.site.http.base_url)
    for number, name in enumerate(NAMES, 1):
        profiles.create(name)
        catalog = RestCatalog(name, uri=uri, warehouse=name)
        catalog.create_namespace("ns")
        table = catalog.create_table("ns.t", schema=ROWS.schema)
        for _ in range(number):
            table.append(ROWS)
        assert profiles.site.post_rows(name, {"id": 9, "name": "z"}).status_code == 200
        flushed = profiles.site.http.post(f"/v1/{name}/namespaces/ns/tables/t/rows/flush")
        assert flushed.status_code == 200, flushed.text
        assert catalog.load_table("ns.t").scan().to_arrow().num_rows == 2 * number + 1
    with closing(minio.client()) as client:
        for name, bucket in profiles.buckets.items():
            keys = [one["Key"] for one in client.list_objects_v2(Bucket=bucket.name)["Contents"]]
            assert all(key.startswith(f"lakes/{name}/") for key in keys), keys
    assert not (profiles.folder / "warehouses").exists()


def test_keys_are_never_shown_logged_or_stored_in_the_clear(profiles: Profiles) -> None:
    profiles.create("east")
    http, secret = profiles.site.http, profiles.users["east"].secret_key
    shown = http.get("/management/v1/storage-profiles/east").json()
    assert (shown["credentials"], shown["encrypted-by"]) == ("key", "old")
    listed = http.get("/management/v1/storage-profiles").json()["storage-profiles"]
    assert listed == [shown]
    wrong = http.post("/management/v1/storage-profiles", json={**profiles.body("east"), "path-style": "perhaps"})
    taken = http.post("/management/v1/storage-profiles", json=profiles.body("east"))
    assert (wrong.status_code, taken.status_code) == (400, 409)
    with psycopg.connect(profiles.services.database.url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE 'duckicelake%'").fetchall()
        stored = "".join(str(connection.execute(f"SELECT * FROM {table}").fetchall()) for (table,) in tables)
    for text in (json.dumps(shown), wrong.text, taken.text, profiles.log.getvalue(), stored):
        assert secret not in text
        assert profiles.users["east"].access_key not in text
    assert "create_storage_profile" in stored


def test_wrong_key_of_the_settings_stops_that_warehouse_alone(profiles: Profiles) -> None:
    profiles.create("east")
    for keys, message in (
        (None, "set DUCKICELAKE_SECRET_KEYS"),
        (NEW_KEY, "which DUCKICELAKE_SECRET_KEYS doesn't hold"),
        (f"old:{'x' * 32}", "is another than encrypted it"),
    ):
        other = profiles.open_site(secret_keys=None if keys is None else SecretStr(keys))
        with closing(other.app.warehouses):
            refused = other.http.get("/v1/east/namespaces")
            assert (refused.status_code, message in refused.text) == (503, True), refused.text
            options = "/management/v1/warehouses/east/options"
            assert other.http.get(options).json()["options"] == {"drop-retention-seconds": "604800"}
            for value in ("2", None):
                changed = other.http.post(options, json={"options": {"max-tables": value, "max-requests": value}})
                assert changed.json()["options"].get("max-requests") == value, changed.text
            assert other.http.get("/v1/namespaces").status_code == 200
            assert other.http.post("/management/v1/warehouses", json={"name": "plain"}).status_code == 200
            assert other.http.get("/v1/plain/namespaces").status_code == 200
            assert other.http.delete("/management/v1/warehouses/plain").status_code == 200


@pytest.mark.parametrize("keeps_lake", [False, True])
def test_warehouse_whose_key_is_lost_can_be_dropped(profiles: Profiles, *, keeps_lake: bool) -> None:
    profiles.create("east")
    profiles.site.create_table("east")
    other = profiles.open_site(secret_keys=SecretStr(NEW_KEY))
    with closing(other.app.warehouses):
        path = "/management/v1/warehouses/east"
        assert other.http.delete(path).status_code == 409
        dropped = other.http.delete(path, params={"force": not keeps_lake, "keep-lake": keeps_lake})
        assert (dropped.status_code, dropped.json().get("tables")) == (200, 1), dropped.text
        assert other.http.get(path).status_code == 404
        assert other.http.delete("/management/v1/storage-profiles/east").status_code == 204
    found = boto3.client(
        "s3",
        endpoint_url=profiles.buckets["east"].minio.endpoint,
        aws_access_key_id=profiles.users["east"].access_key,
        aws_secret_access_key=profiles.users["east"].secret_key,
        config=Config(s3={"addressing_style": "path"}),
    ).list_objects_v2(Bucket=profiles.buckets["east"].name, Prefix="lakes/east/")
    assert found["KeyCount"] >= 1  # files stay, and so does the marker


def test_rotated_secrets_need_the_new_key_alone(profiles: Profiles) -> None:
    for name in NAMES:
        profiles.create(name)
        profiles.site.create_table(name)
    assert rotate_secrets(profiles.services, SecretKeys.parse(f"{NEW_KEY},{OLD_KEY}")) == 2
    with pytest.raises(UnavailableError, match="doesn't hold"):
        rotate_secrets(profiles.services, SecretKeys.parse(OLD_KEY))
    other = profiles.open_site(secret_keys=SecretStr(NEW_KEY))
    with closing(other.app.warehouses):
        assert [other.names(name) for name in NAMES] == [["t"], ["t"]]


def test_ciphertext_of_another_row_is_refused(profiles: Profiles) -> None:
    """Whoever may write the table can't give a profile the key of another one."""
    for name in NAMES:
        profiles.create(name)
    with psycopg.connect(profiles.services.database.url) as connection:
        connection.execute(
            "UPDATE duckicelake_storage_profile SET secret = "
            "(SELECT secret FROM duckicelake_storage_profile WHERE name = 'west') WHERE name = 'east'"
        )
    answer = profiles.site.http.get("/v1/east/namespaces")
    assert (answer.status_code, "the row was changed" in answer.text) == (503, True)


def test_bad_profile_is_refused(profiles: Profiles, subtests: pytest.Subtests) -> None:
    for change, status, message in [
        ({"root": "/data"}, 400, "expected s3://"),
        ({"root": "s3://"}, 400, "names no bucket"),
        ({"name": "East"}, 400, "lower-case"),
        ({"secret-access-key": None}, 400, "belong together"),
        ({"access-key-id": "", "secret-access-key": ""}, 400, "secret-access-key"),
        ({"access-key-id": " ", "secret-access-key": " "}, 400, "may not be empty"),
        ({"access-key-id": None, "secret-access-key": None}, 400, "doesn't allow its own"),
        ({"endpoint": "http://10.0.0.1:9000"}, 400, "10.0.0.1"),
        ({"endpoint": "http://169.254.169.254"}, 400, "169.254.169.254"),
        ({"sts-endpoint": "http://10.0.0.2:1"}, 400, "10.0.0.2"),
        ({"endpoint": "file:///etc/passwd"}, 400, "endpoint"),
        ({"endpoint": None, "vending": "sts"}, 400, "role-arn"),
        ({"vending": "static"}, 400, "vending"),
        ({"unknown": 1}, 400, "no such field"),
    ]:
        with subtests.test(f"{change}"):
            answer = profiles.site.http.post(
                "/management/v1/storage-profiles", json={**profiles.body("east"), **change}
            )
            assert (answer.status_code, message in answer.text) == (status, True), answer.text
            assert profiles.site.http.get("/management/v1/storage-profiles").json()["storage-profiles"] == []


def test_endpoint_that_is_no_longer_allowed_stops_its_warehouse(profiles: Profiles) -> None:
    profiles.create("east")
    other = profiles.open_site(allowed_addresses=())
    with closing(other.app.warehouses):
        refused = other.http.get("/v1/east/namespaces")
        assert (refused.status_code, "127.0.0.1" in refused.text) == (503, True), refused.text


def test_ambient_credentials_need_the_setting(profiles: Profiles, minio: Minio) -> None:
    keys = {"s3_access_key_id": minio.access_key, "s3_secret_access_key": SecretStr(minio.secret_key)}
    other = profiles.open_site(ambient_profiles=True, **keys)
    body = {name: value for name, value in profiles.body("east").items() if "key" not in name}
    with closing(other.app.warehouses):
        made = other.http.post("/management/v1/storage-profiles", json=body)
        assert (made.status_code, made.json()["credentials"]) == (200, "ambient")
        made = other.http.post("/management/v1/warehouses", json={"name": "east", "storage-profile": "east"})
        assert made.status_code == 200, made.text
        other.create_table("east")
    refused = profiles.site.http.get("/v1/east/namespaces")
    assert (refused.status_code, "doesn't allow its own credentials" in refused.text) == (503, True)


def test_machine_gives_a_profile_neither_keys_nor_endpoints(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever boto3 and obstore find there: the environment, files, a web identity, the instance's metadata."""
    trap = "http://127.0.0.1:9"
    (tmp_path / "config").write_text(f"[default]\nendpoint_url = {trap}\nrole_arn = arn:aws:iam::1:role/ambient\n")
    (tmp_path / "credentials").write_text("[default]\naws_access_key_id = AMBIENT\naws_secret_access_key = ambient\n")
    (tmp_path / "token").write_text("token")
    for name, text in {
        "AWS_ACCESS_KEY_ID": "AMBIENT", "AWS_SECRET_ACCESS_KEY": "ambient", "AWS_SESSION_TOKEN": "ambient",
        "AWS_ENDPOINT_URL": trap, "AWS_ENDPOINT_URL_S3": trap, "AWS_ENDPOINT_URL_STS": trap,
        "AWS_CONFIG_FILE": f"{tmp_path}/config", "AWS_SHARED_CREDENTIALS_FILE": f"{tmp_path}/credentials",
        "AWS_ROLE_ARN": "arn:aws:iam::1:role/ambient", "AWS_WEB_IDENTITY_TOKEN_FILE": f"{tmp_path}/token",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": trap, "AWS_EC2_METADATA_SERVICE_ENDPOINT": trap,
    }.items():  # fmt: skip
        monkeypatch.setenv(name, text)
    settings = settings_of(services, tmp_path, s3_access_key_id="AMBIENT", s3_secret_access_key=SecretStr("ambient"))
    rules = build_profile_rules(settings)
    spec = StorageProfileSpec("eu", "s3://bucket/lakes", region="eu-west-1", role_arn="arn:aws:iam::2:role/own")
    row = create_profile(services, rules, spec, ProfileKeys("OWN", "own"))
    opened = open_profile(settings, rules, "s3://bucket/lakes/eu", row)
    store = find_bucket_store(opened.store, ("s3://bucket/lakes/eu",), S3Store)
    assert store is not None
    clients = [store.client, opened.access.vendor._client]  # type: ignore[union-attr]
    assert {client.meta.endpoint_url for client in clients} <= {
        "https://s3.eu-west-1.amazonaws.com", "https://sts.eu-west-1.amazonaws.com", "https://sts.amazonaws.com",
    }  # fmt: skip
    for client in clients:
        keys = client._request_signer._credentials
        assert (keys.access_key, keys.secret_key, keys.token) == ("OWN", "own", None)
    assert store.find_address("bucket")[0] == "https://bucket.s3.eu-west-1.amazonaws.com"
    for empty in (ProfileKeys("", ""), ProfileKeys("OWN", ""), ProfileKeys(" ", "own")):
        with pytest.raises(InvalidRequestError, match="may not be empty"):
            create_profile(services, rules, replace(spec, name="other"), empty)
    opened.store.close()


def test_profile_in_use_stays_and_requests_with_a_key_have_one_effect(profiles: Profiles) -> None:
    http = profiles.site.http
    key = {"Idempotency-Key": uuid7()}
    made = [http.post("/management/v1/storage-profiles", json=profiles.body("east"), headers=key) for _ in range(2)]
    assert [one.status_code for one in made] == [200, 200]
    assert made[0].json() == made[1].json()
    body = {"name": "east", "storage-profile": "east", "location": "s3://elsewhere/east"}
    outside = http.post("/management/v1/warehouses", json=body)
    assert (outside.status_code, "expected a folder below" in outside.text) == (400, True)
    assert http.post("/management/v1/warehouses", json={"name": "e", "storage-profile": "no"}).status_code == 404
    created = http.post("/management/v1/warehouses", json={"name": "east", "storage-profile": "east"})
    assert created.json()["storage-profile"] == "east"
    refused = http.delete("/management/v1/storage-profiles/east")
    assert (refused.status_code, "used by east" in refused.text) == (409, True)
    assert http.delete("/management/v1/warehouses/east").status_code == 200
    drop = {"Idempotency-Key": uuid7()}
    gone = [http.delete("/management/v1/storage-profiles/east", headers=drop).status_code for _ in range(2)]
    assert gone == [204, 204]
    assert http.get("/management/v1/storage-profiles/east").status_code == 404


@pytest.mark.commands
def test_commands_make_profiles_and_work_on_their_warehouses(profiles: Profiles) -> None:
    given = settings_of(profiles.services, profiles.folder)
    environment = {name: value for name, value in given.as_environment().items() if value not in {"", "False"}}

    def run(*words: str, stdin: str | None = None, status: int = 0) -> str:
        report = CliRunner().invoke(commands, list(words), env={**environment, "COLUMNS": "200"}, input=stdin)
        assert report.exit_code == status, report.output
        return report.output

    body, user = profiles.body("east"), profiles.users["east"]
    options = ["--endpoint", body["endpoint"], "--region", body["region"], "--path-style"]
    shown = run(
        *("storage-profile", "create", "east", body["root"], *options, "--access-key-id", user.access_key),
        stdin=f"{user.secret_key}\n",
    )
    assert user.secret_key not in shown + run("storage-profile", "list") + run("storage-profile", "show", "east")
    run("warehouse", "create", "east", "--storage-profile", "east")
    profiles.site.create_table("east")
    assert profiles.site.post_rows("east", {"id": 1, "name": "a"}).status_code == 200
    assert "1 row" in run("flush", "ns.t", "--warehouse", "east")
    assert f"{body['root']}/east is this lake's" in run("doctor", "--warehouse", "east")
    assert "nothing to delete" in run("gc", "--warehouse", "east", "--older-than", "2h")
    assert "1 secret encrypted with key old" in run("rotate-secrets")
    assert "used by east" in run("storage-profile", "drop", "east", status=2)


@pytest.mark.parametrize("text", ["", "short:x", "no-secret", f"a:{'x' * 32},a:{'y' * 32}", f"a b:{'x' * 32}"])
def test_bad_keys_are_refused_without_being_shown(text: str) -> None:
    with pytest.raises(InvalidSettingsError) as caught:
        SecretKeys.parse(text)
    assert "x" * 32 not in str(caught.value)
