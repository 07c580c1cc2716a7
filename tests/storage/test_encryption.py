"""Files are encrypted with the key of the settings, by the server and by clients; requests say who pays for them."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest
from pydantic import ValidationError

from duckicelake.cli.wiring.storage_access import build_storage_access
from duckicelake.cli.wiring.store_options import build_store_options
from duckicelake.errors import ForbiddenError, StoreDeniedError
from duckicelake.settings.model import Settings
from duckicelake.storage.policy import StoreFolder
from duckicelake.storage.s3 import S3Store
from duckicelake.storage.s3_buckets import ServerSideEncryption
from duckicelake.storage.s3_requests import SignatureRequest
from duckicelake.storage.sts_vendor import S3Keys, StsRole, StsVendor, open_sts_client
from scripts.backends_job.minio import KMS_KEY
from tests.conftest import new_duckdb
from tests.storage.s3_proxy import Request, proxy_of
from tests.support.backends import Bucket

PAYER = "x-amz-request-payer"


def head(bucket: Bucket, key: str) -> dict[str, Any]:
    with closing(bucket.minio.client()) as client:
        return dict(client.head_object(Bucket=bucket.name, Key=key))


def open_encrypted(bucket: Bucket, encryption: ServerSideEncryption) -> S3Store:
    return S3Store(bucket.uri, replace(bucket.options(), encryption=encryption))


def make_settings(bucket: Bucket, **others: Any) -> Settings:
    return Settings(
        database_url="postgresql://u@h/d", warehouse=bucket.uri, s3_endpoint=bucket.minio.endpoint,
        s3_access_key_id=bucket.minio.access_key, s3_secret_access_key=bucket.minio.secret_key, s3_path_style=True,
        **others,
    )  # fmt: skip


@pytest.mark.parametrize("act", ["write", "overwrite", "write_derived"])
def test_what_the_server_writes_is_encrypted_with_the_key(bucket: Bucket, act: str) -> None:
    location = f"{bucket.uri}/x"
    with closing(open_encrypted(bucket, ServerSideEncryption("kms", KMS_KEY, has_bucket_key=True))) as store:
        if act == "write_derived":
            store.write_derived([(location, b"12345")])
        else:
            getattr(store, act)(location, b"12345")
        assert store.read(location) == b"12345"
    seen = head(bucket, "x")
    assert (seen["ServerSideEncryption"], seen["SSEKMSKeyId"].rpartition(":")[2]) == ("aws:kms", KMS_KEY)


def test_the_stores_own_keys_encrypt(bucket: Bucket) -> None:
    with closing(open_encrypted(bucket, ServerSideEncryption("s3"))) as store:
        store.write(f"{bucket.uri}/x", b"1")
    assert head(bucket, "x")["ServerSideEncryption"] == "AES256"


def test_a_key_that_the_store_does_not_have_is_named_in_the_error(bucket: Bucket) -> None:
    with (
        closing(open_encrypted(bucket, ServerSideEncryption("kms", "no-such-key"))) as store,
        pytest.raises(StoreDeniedError, match=r"can't encrypt.*DUCKICELAKE_S3_KMS_KEY"),
    ):
        store.check()


def test_clients_get_the_encryption_in_the_words_of_each(bucket: Bucket) -> None:
    settings = make_settings(bucket, s3_sse="kms", s3_kms_key=KMS_KEY, s3_requester_pays=True)
    client = build_storage_access(settings, (bucket.uri,), build_store_options(settings)).client
    assert {name: value for name, value in client.items() if "s3.s" in name or "pays" in name} == {
        "s3.sse.type": "kms", "s3.sse.key": KMS_KEY,
        "s3.server-side-encryption": "aws:kms", "s3.sse-kms-key-id": KMS_KEY, "s3.requester-pays": "true",
    }  # fmt: skip


@pytest.mark.parametrize(
    "wrong", [{"s3_sse": "s3", "s3_kms_key": "k"}, {"s3_bucket_key": True}, {"s3_sse": "s3", "s3_bucket_key": False}]
)
def test_settings_that_contradict_each_other_are_refused(bucket: Bucket, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"s3_kms_key|s3_bucket_key"):
        make_settings(bucket, **wrong)


def test_duckdb_writes_with_the_key_of_its_secret(bucket: Bucket, extensions: None) -> None:
    keys = S3Keys(bucket.minio.access_key, bucket.minio.secret_key)
    client = {
        "s3.endpoint": bucket.minio.endpoint, "s3.region": bucket.minio.region, "s3.path-style-access": "true",
        "s3.sse.type": "kms", "s3.sse.key": KMS_KEY,
    }  # fmt: skip
    options = dict(keys.list_secret_options(client))
    with new_duckdb() as connection:
        create_secret(connection, options)
        connection.execute(f"COPY (SELECT 1 AS id) TO '{bucket.uri}/t/x.parquet'")
        assert connection.execute(f"FROM '{bucket.uri}/t/x.parquet'").fetchall() == [(1,)]
    assert head(bucket, "t/x.parquet")["SSEKMSKeyId"].rpartition(":")[2] == KMS_KEY


def create_secret(connection: duckdb.DuckDBPyConnection, options: dict[str, str]) -> None:
    connection.execute("INSTALL httpfs; LOAD httpfs")
    parts = ", ".join(f"{name} '{value}'" for name, value in options.items())
    connection.execute(f"CREATE SECRET ({parts})")


@pytest.fixture
def payers(bucket: Bucket) -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """A proxy's address, and of each request its method and who pays for it."""
    seen: list[tuple[str, str | None]] = []

    def note(request: Request) -> None:
        seen.append((request.method, request.headers.get(PAYER)))

    with proxy_of(bucket.minio.endpoint) as proxy:
        proxy.spoil = note
        yield proxy.endpoint, seen


@pytest.mark.parametrize("is_payer", [True, False])
def test_each_request_of_the_server_says_whether_it_pays(
    bucket: Bucket, payers: tuple[str, list[tuple[str, str | None]]], tmp_path: Path, is_payer: bool
) -> None:
    endpoint, seen = payers
    location = f"{bucket.uri}/t/x"
    options = replace(bucket.options(), endpoint=endpoint, is_payer=is_payer)
    with closing(S3Store(bucket.uri, options)) as store:
        store.check()
        store.write(location, b"12345")
        store.overwrite(location, b"12345")
        store.read(location)
        store.read_end(location, 2)
        store.download(location, tmp_path / "x")
        store.sizes([location, f"{location}y"])
        store.try_list(bucket.uri)
        list(store.files_below(f"{bucket.uri}/t"))
        store.delete(location)
        store._buckets.move(bucket.name, None)
    assert {method for method, _ in seen} == {"PUT", "GET", "HEAD", "DELETE"}
    assert {payer for _, payer in seen} == {"requester" if is_payer else None}, seen


def test_duckdb_pays_by_its_secret(
    bucket: Bucket, payers: tuple[str, list[tuple[str, str | None]]], extensions: None
) -> None:
    endpoint, seen = payers
    client = {"s3.endpoint": endpoint, "s3.path-style-access": "true", "s3.requester-pays": "true"}
    options = dict(S3Keys(bucket.minio.access_key, bucket.minio.secret_key).list_secret_options(client))
    with new_duckdb() as connection:
        create_secret(connection, options)
        connection.execute(f"COPY (SELECT 1 AS id) TO '{bucket.uri}/t/x.parquet'")
        assert connection.execute(f"FROM '{bucket.uri}/t/x.parquet'").fetchall() == [(1,)]
    assert {payer for _, payer in seen} == {"requester"}, seen


def test_signed_requests_pay_and_name_no_other_key(
    bucket: Bucket, payers: tuple[str, list[tuple[str, str | None]]]
) -> None:
    endpoint, seen = payers
    settings = make_settings(
        bucket, s3_public_endpoint=endpoint, s3_vending="remote-signing", s3_sse="kms", s3_kms_key=KMS_KEY,
        s3_requester_pays=True, s3_sts_endpoint=bucket.minio.endpoint,
    )  # fmt: skip
    signer = build_storage_access(settings, (bucket.uri,), build_store_options(settings)).signer
    assert signer is not None
    folder = StoreFolder(f"{bucket.uri}/t/", is_writable=True)
    headers = {
        "x-amz-server-side-encryption": ["aws:kms"],
        "x-amz-server-side-encryption-aws-kms-key-id": [KMS_KEY],
    }
    uri = f"{endpoint}/{bucket.name}/t/x"
    signed = signer.sign(SignatureRequest("PUT", uri, headers), "someone", [folder])
    sent = {name: values[0] for name, values in headers.items()} | dict(signed.headers)
    answer = httpx.put(signed.uri, headers=sent, content=b"12345")
    assert answer.status_code == 200, answer.text
    assert seen == [("PUT", "requester")]
    assert head(bucket, "t/x")["SSEKMSKeyId"].rpartition(":")[2] == KMS_KEY
    headers["x-amz-server-side-encryption-aws-kms-key-id"] = ["other"]
    with pytest.raises(ForbiddenError, match="names another key"):
        signer.sign(SignatureRequest("PUT", uri, headers), "someone", [folder])


def test_vended_keys_write_and_read_what_is_encrypted(bucket: Bucket) -> None:
    options = bucket.options()
    role = StsRole(kms_key=KMS_KEY)
    vendor = StsVendor(open_sts_client(options.session(), options, options.endpoint), role, lambda: 0)
    vending = vendor.vend("someone", [StoreFolder(f"{bucket.uri}/t/", is_writable=True)])
    (vended,) = vending.vended
    assert isinstance(vended.keys, S3Keys)
    narrowed = replace(
        options, access_key_id=vended.keys.access_key_id, secret_access_key=vended.keys.secret_access_key,
        session_token=vended.keys.session_token, encryption=ServerSideEncryption("kms", KMS_KEY),
    )  # fmt: skip
    with closing(S3Store(bucket.uri, narrowed)) as store:
        store.write(f"{bucket.uri}/t/x", b"12345")
        assert store.read(f"{bucket.uri}/t/x") == b"12345"
        with pytest.raises(StoreDeniedError):
            store.write(f"{bucket.uri}/u/x", b"12345")
    assert json.dumps(head(bucket, "t/x")["SSEKMSKeyId"]).count(KMS_KEY) == 1
