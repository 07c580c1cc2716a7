"""Large files are sent in parts, with what each request needs; smaller parts make it a test."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from time import sleep

import pytest

from duckicelake.errors import AlreadyExistsError, CatalogError, StoreDeniedError
from duckicelake.storage.bucket_store import UploadLimits
from duckicelake.storage.s3 import S3Store
from duckicelake.storage.s3_buckets import PAYER_HEADER, ServerSideEncryption
from scripts.backends_job.minio import KMS_KEY
from tests.storage.s3_proxy import Proxy, Request, proxy_of
from tests.support.backends import Bucket

MIB = 1 << 20
DATA = bytes(range(256)) * (12 * MIB // 256) + b"end"


@pytest.fixture
def proxy(bucket: Bucket) -> Iterator[Proxy]:
    with proxy_of(bucket.minio.endpoint) as running:
        yield running


@pytest.fixture
def store(bucket: Bucket, proxy: Proxy) -> Iterator[S3Store]:
    encryption = ServerSideEncryption("kms", KMS_KEY)
    options = replace(bucket.options(), endpoint=proxy.endpoint, encryption=encryption, is_payer=True, max_attempts=3)
    with closing(S3Store(bucket.uri, options)) as opened:
        opened.limits = UploadLimits(whole_bytes=5 * MIB, part_bytes=5 * MIB)
        yield opened


def test_large_file_is_sent_in_parts_which_are_encrypted_and_paid(bucket: Bucket, store: S3Store, proxy: Proxy) -> None:
    seen: list[Request] = []
    proxy.spoil = seen.append  # type: ignore[assignment]
    store.write(f"{bucket.uri}/x", DATA)
    assert [one.method for one in seen].count("PUT") == 3
    assert {one.headers.get(PAYER_HEADER) for one in seen} == {"requester"}
    assert store.read(f"{bucket.uri}/x") == DATA
    with closing(bucket.minio.client()) as client:
        found = client.head_object(Bucket=bucket.name, Key="x")
    assert (found["ETag"].strip('"').rpartition("-")[2], found["SSEKMSKeyId"].rpartition(":")[2]) == ("3", KMS_KEY)


def test_local_file_is_uploaded_in_parts(bucket: Bucket, store: S3Store, proxy: Proxy, tmp_path: Path) -> None:
    for name, data, puts in (("large", DATA, 3), ("small", DATA[:MIB], 1)):
        (tmp_path / name).write_bytes(data)
        before = proxy.seen["PUT"]
        store.upload(f"{bucket.uri}/{name}", tmp_path / name)
        assert proxy.seen["PUT"] == before + puts
        assert store.read(f"{bucket.uri}/{name}") == data
        store.upload(f"{bucket.uri}/{name}", tmp_path / name)
        with pytest.raises(AlreadyExistsError, match="won't be overwritten"):
            store.write(f"{bucket.uri}/{name}", b"other")


def test_large_file_that_is_there_stays(bucket: Bucket, store: S3Store, proxy: Proxy) -> None:
    location = f"{bucket.uri}/x"
    store.write(location, DATA)
    before = proxy.seen["PUT"]
    store.write(location, DATA)
    assert proxy.seen["PUT"] == before
    with pytest.raises(AlreadyExistsError, match="won't be overwritten"):
        store.write(location, DATA + b"more")
    store.write_derived([(location, DATA + b"more")])
    assert store.size(location) == len(DATA) + 4


@pytest.mark.parametrize(("failures", "is_written"), [(1, True), (1000, False)])
def test_part_that_fails_is_sent_again_and_nothing_stays_of_an_upload_that_failed(
    bucket: Bucket, store: S3Store, proxy: Proxy, failures: int, is_written: bool
) -> None:
    left = [failures]

    def fail(request: Request) -> int | None:
        if request.method == "PUT" and "partNumber=2" in request.path and left[0]:
            left[0] -= 1
            return 503
        return None

    proxy.spoil = fail
    if is_written:
        store.write(f"{bucket.uri}/x", DATA)
    else:
        with pytest.raises(CatalogError, match="503"):
            store.write(f"{bucket.uri}/x", DATA)
    assert store.exists(f"{bucket.uri}/x") is is_written
    with closing(bucket.minio.client()) as client:
        assert client.list_multipart_uploads(Bucket=bucket.name, Prefix="x").get("Uploads", []) == []


def test_upload_is_aborted_once_no_part_is_under_way(bucket: Bucket, store: S3Store, proxy: Proxy) -> None:
    """A part that arrives after the abort would stay in the store, where no listing of files shows it."""
    ended: list[str] = []

    def fail_slowly(request: Request) -> int | None:
        is_failing = "partNumber=2" in request.path
        if request.method == "PUT" and not is_failing:
            sleep(0.5)
        ended.append(request.method)
        return 403 if request.method == "PUT" and is_failing else None

    proxy.spoil = fail_slowly
    with pytest.raises(StoreDeniedError):
        store.write(f"{bucket.uri}/x", DATA)
    assert ended.count("PUT") == 3
    assert set(ended[ended.index("DELETE") :]) == {"DELETE"}
    with closing(bucket.minio.client()) as client:
        assert client.list_multipart_uploads(Bucket=bucket.name, Prefix="x").get("Uploads", []) == []


def test_parts_are_never_more_than_a_store_takes() -> None:
    limits = UploadLimits()
    for length in (limits.whole_bytes + 1, 5 * 10**9, 640 << 30, (640 << 30) + 1, 5 << 40):
        size = limits.find_part_bytes(length)
        assert -(-length // size) <= 10_000
        assert 5 * MIB <= size <= 5 << 30
