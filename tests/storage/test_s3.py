"""What is particular to S3: who is let in, what fails and how it is told, and stores that know less than Amazon's."""

import logging
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from duckicelake.errors import (
    AlreadyExistsError,
    FileMissingError,
    InvalidRequestError,
    InvalidSettingsError,
    StoreDeniedError,
    UnavailableError,
)
from duckicelake.storage.local import LocalStore
from duckicelake.storage.probe import ProbeResult, try_listing, try_warehouse
from duckicelake.storage.registry import SchemeStore, StoreOptions, open_store
from duckicelake.storage.s3 import S3Options, S3Store, parse_s3_location
from duckicelake.storage.s3_errors import translate_s3_errors
from scripts.backends_job.minio import MinioServer, create_bucket, found
from tests.storage.s3_proxy import BREAK_OFF, Proxy, Request, proxy_of
from tests.support.backends import Bucket

NOWHERE = S3Options("http://127.0.0.1:1", access_key_id="someone", secret_access_key="geheim")


@contextmanager
def opened(bucket: Bucket, **changes: object) -> Iterator[S3Store]:
    with closing(S3Store(bucket.uri, replace(bucket.options(), **changes))) as store:
        yield store


@pytest.fixture
def proxy(bucket: Bucket) -> Iterator[Proxy]:
    with proxy_of(bucket.minio.endpoint) as running:
        yield running


@pytest.fixture(autouse=True)
def no_credentials_but_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))


@pytest.mark.parametrize("location", ["s3://b", "s3://b/", "s3://b/folder/", "/local", "hdfs://b/x", "s3:///x"])
def test_what_is_no_file_in_s3_is_a_bad_request(location: str) -> None:
    with pytest.raises(InvalidRequestError, match=location):
        parse_s3_location(location)


def test_overlong_name_and_bad_bucket_are_bad_requests(bucket: Bucket) -> None:
    with opened(bucket) as store:
        for location in (f"{bucket.uri}/{'x' * 2000}", "s3://B/x", f"{bucket.uri}/\udc00"):
            with pytest.raises(InvalidRequestError):
                store.write(location, b"1")


def test_several_buckets_are_one_store(bucket: Bucket) -> None:
    create_bucket(bucket.minio, f"{bucket.name}-other")
    with opened(bucket) as store:
        store.write(f"{bucket.uri}/x", b"1")
        store.write(f"{bucket.uri}-other/x", b"22")
        assert (store.read(f"{bucket.uri}/x"), store.read(f"{bucket.uri}-other/x")) == (b"1", b"22")


def test_check_leaves_one_small_file_and_fails_where_nothing_can_be_written(bucket: Bucket) -> None:
    with opened(bucket) as store:
        store.check()
        store.check()
        client = bucket.minio.client()
        assert [each["Key"] for each in client.list_objects_v2(Bucket=bucket.name)["Contents"]] == [".duckicelake"]
        client.close()
    with (
        closing(S3Store("s3://missing/wh", bucket.options())) as store,
        pytest.raises(UnavailableError, match="missing"),
    ):
        store.check()


def test_missing_bucket_is_named(bucket: Bucket) -> None:
    with opened(bucket) as store:
        with pytest.raises(UnavailableError, match="the bucket nobucket doesn't exist: make it"):
            store.write("s3://nobucket/x", b"1")
        with pytest.raises(FileMissingError, match="the bucket nobucket doesn't exist"):
            store.read("s3://nobucket/x")
        assert not store.exists("s3://nobucket/x")


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        ({"access_key_id": "stranger"}, "doesn't know the server's access key: correct DUCKICELAKE_S3_ACCESS_KEY_ID"),
        ({"secret_access_key": "geheim"}, "the secret isn't the access key's: correct DUCKICELAKE_S3_SECRET"),
        ({"session_token": "geheim"}, r"DUCKICELAKE_S3_|let the server's key"),
    ],
)
def test_wrong_key_is_denied_with_advice_and_no_secret(bucket: Bucket, change: dict[str, str], advice: str) -> None:
    location = f"{bucket.uri}/x"
    with opened(bucket, **change) as store:
        for act in (store.read, lambda name: store.write(name, b"1"), store.delete):
            with pytest.raises(StoreDeniedError, match=advice) as caught:
                act(location)
            assert f"{location}: access denied" in str(caught.value)
            assert "geheim" not in str(caught.value)
            assert bucket.minio.secret_key not in str(caught.value)
        for look in (store.exists, store.size):
            with pytest.raises(StoreDeniedError, match=location):
                look(location)


def test_secrets_are_in_no_repr_and_no_log(bucket: Bucket, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    options = replace(bucket.options(), session_token="geheim")
    assert bucket.minio.secret_key not in repr(options)
    assert "geheim" not in repr(options)
    with opened(bucket) as store:
        store.check()
        assert bucket.minio.secret_key not in repr(store)
    with opened(bucket, secret_access_key="geheim") as store, pytest.raises(StoreDeniedError):
        store.check()
    assert bucket.minio.secret_key not in caplog.text
    assert "geheim" not in caplog.text


def test_refused_connection_is_reported_quickly() -> None:
    start = time.monotonic()
    with closing(S3Store("s3://b/wh", replace(NOWHERE, max_attempts=2))) as store:
        for act in (store.read, store.exists, store.size, store.delete, lambda name: store.write(name, b"1")):
            with pytest.raises(UnavailableError, match=r"s3://b/x: the store at http://127\.0\.0\.1:1 doesn't answer"):
                act("s3://b/x")
    assert time.monotonic() - start < 20


def test_server_that_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        options = replace(NOWHERE, endpoint=endpoint, read_timeout=0.2, max_attempts=1)
        with (
            closing(S3Store("s3://b", options)) as store,
            pytest.raises(UnavailableError, match=r"doesn't answer \(timeout\)"),
        ):
            store.read("s3://b/x")


def test_store_that_stops_is_unavailable_and_serves_again_when_it_is_back() -> None:
    with TemporaryDirectory(prefix="duckicelake-minio-") as folder:
        server = MinioServer(Path(folder))
        try:
            minio = found(server.up())
            create_bucket(minio, "b-1")
            with opened(Bucket("b-1", minio), max_attempts=1) as store:
                store.write("s3://b-1/x", b"1")
                server.down()
                with pytest.raises(UnavailableError, match="doesn't answer"):
                    store.read("s3://b-1/x")
                server.up()
                assert store.read("s3://b-1/x") == b"1"
        finally:
            server.down()


def test_wrong_region_is_mended_where_the_store_shows_the_right_one(bucket: Bucket, proxy: Proxy) -> None:
    with opened(bucket, region="eu-south-1") as store:
        store.write(f"{bucket.uri}/x", b"1")
        assert store.read(f"{bucket.uri}/x") == b"1"


def test_endpoint_that_only_redirects_is_reported() -> None:
    """boto3 follows it until Python's stack is full, which takes ten seconds."""
    with (
        pytest.raises(UnavailableError, match="http://x only redirects: correct DUCKICELAKE_S3_"),
        translate_s3_errors("s3://b/x", "http://x"),
    ):
        raise RecursionError


def test_no_credentials_are_reported_with_the_settings_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidSettingsError, match="DUCKICELAKE_S3_ACCESS_KEY_ID"):
        S3Store("s3://b", S3Options("http://127.0.0.1:1"))
    with pytest.raises(InvalidSettingsError, match="nobody"):
        S3Store("s3://b", S3Options(profile="nobody"))


def test_keys_come_from_the_environment_or_a_profile(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keyless = {"access_key_id": None, "secret_access_key": None}
    key, secret = bucket.minio.access_key, bucket.minio.secret_key
    (tmp_path / "credentials").write_text(f"[lake]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n")
    with opened(bucket, **keyless, profile="lake") as store:
        store.check()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    with opened(bucket, **keyless) as store:
        store.check()


def test_store_without_conditional_writes_is_looked_at_first(bucket: Bucket, proxy: Proxy) -> None:
    proxy.spoil = lambda request: 501 if "if-none-match" in request.headers else None
    with opened(bucket, endpoint=proxy.endpoint) as store:
        store.write(f"{bucket.uri}/x", b"first")
        store.write(f"{bucket.uri}/x", b"other")
        with pytest.raises(AlreadyExistsError):
            store.write(f"{bucket.uri}/x", b"longer")
        assert store.read(f"{bucket.uri}/x") == b"first"
        assert not store.knows_conditions
    assert proxy.seen["PUT"] == 2  # the refused one, and the first


def test_files_are_sent_without_asking_whether_they_are_welcome(bucket: Bucket, proxy: Proxy) -> None:
    proxy.spoil = lambda request: 417 if "expect" in request.headers else None
    with opened(bucket, endpoint=proxy.endpoint) as store:
        store.write(f"{bucket.uri}/unasked", b"1")
        assert store.read(f"{bucket.uri}/unasked") == b"1"


def test_busy_store_is_asked_again(bucket: Bucket, proxy: Proxy) -> None:
    proxy.spoil = lambda request: 503 if request.number == 0 else None
    with opened(bucket, endpoint=proxy.endpoint) as store:
        store.write(f"{bucket.uri}/x", b"1")
        assert store.read(f"{bucket.uri}/x") == b"1"
        proxy.spoil = lambda _: 503
    with opened(bucket, endpoint=proxy.endpoint, max_attempts=1) as store, pytest.raises(UnavailableError, match="503"):
        store.read(f"{bucket.uri}/x")


def test_broken_download_starts_over(bucket: Bucket, proxy: Proxy, tmp_path: Path) -> None:
    data = bytes(range(256)) * 1000

    def spoil(request: Request) -> int | None:
        return BREAK_OFF if request.method == "GET" and request.number % 2 == 0 else None

    proxy.spoil = spoil
    with opened(bucket, endpoint=proxy.endpoint) as store:
        store.write(f"{bucket.uri}/x", data)
        assert store.read(f"{bucket.uri}/x") == data
        store.download(f"{bucket.uri}/x", tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == data
        proxy.spoil = lambda request: BREAK_OFF if request.method == "GET" else None
        with pytest.raises(UnavailableError, match=f"{bucket.uri}/x"):
            store.read(f"{bucket.uri}/x")


def test_write_whose_answer_was_lost_is_found_written(bucket: Bucket, proxy: Proxy) -> None:
    """boto3 sends it again, and is told that a file is there: its own."""
    proxy.spoil = lambda request: BREAK_OFF if request.method == "PUT" and request.number == 0 else None
    with opened(bucket, endpoint=proxy.endpoint) as store:
        store.write(f"{bucket.uri}/x", b"12345")
        assert store.read(f"{bucket.uri}/x") == b"12345"


def test_threads_share_a_store_without_waiting_for_each_other(bucket: Bucket) -> None:
    names = [f"{bucket.uri}/{number}" for number in range(64)]
    others = threading.active_count()
    with opened(bucket) as store, ThreadPoolExecutor(32) as pool:
        list(pool.map(lambda name: store.write(name, name.encode()), names))
        assert list(pool.map(store.read, names)) == [name.encode() for name in names]
    assert threading.active_count() < others + 32


@pytest.mark.parametrize(("warehouse", "scheme"), [("{local}", "file"), ("file:{local}", "file"), ("s3a://b/wh", "s3")])
def test_warehouse_decides_which_store_it_is(tmp_path: Path, warehouse: str, scheme: str) -> None:
    with closing(open_store(warehouse.format(local=tmp_path), options=StoreOptions(s3=NOWHERE))) as store:
        assert isinstance(store, S3Store if scheme == "s3" else LocalStore)
        wrong = "s3://b/x" if scheme == "file" else str(tmp_path / "x")
        for act in (store.read, store.exists, store.delete, store.local_path, lambda name: store.write(name, b"1")):
            with pytest.raises(InvalidRequestError, match=wrong):
                act(wrong)
    assert not (tmp_path / "x").exists()


def test_allowed_location_of_another_scheme_is_served_too(bucket: Bucket, tmp_path: Path) -> None:
    for roots in ((bucket.uri, str(tmp_path)), (str(tmp_path), bucket.uri)):
        with closing(open_store(*roots, options=StoreOptions(s3=bucket.options()))) as store:
            assert isinstance(store, SchemeStore)
            store.check()
            for number, root in enumerate((f"file://{tmp_path}", bucket.uri)):
                store.write(f"{root}/x", b"1" * number)
                assert store.read(f"{root}/x") == b"1" * number
                assert store.size(f"{root}/x") == number
                store.download(f"{root}/x", tmp_path / f"copy-{number}-{roots[0] == bucket.uri}")
            assert store.local_path(f"{tmp_path}/x") == tmp_path / "x"
            assert store.local_path(f"{bucket.uri}/x") is None
            with pytest.raises(
                InvalidRequestError, match=r"gs://b/x: this server's warehouse and allowed locations are"
            ):
                store.read("gs://b/x")
            for root in (f"file://{tmp_path}", bucket.uri):
                store.delete(f"{root}/x")
                assert not store.exists(f"{root}/x")


@pytest.mark.parametrize(
    "warehouse", ["gs://BUCKET/wh", "abfss://x/y", "hdfs://x/y", "relative", "", "s3://", "s3://u:p@host/x"]
)
def test_other_warehouses_are_refused_naming_what_is_supported(warehouse: str) -> None:
    with pytest.raises(InvalidSettingsError, match=r"file:///<path> or s3://<bucket>/<path>") as caught:
        open_store(warehouse, options=StoreOptions(s3=NOWHERE))
    assert repr(warehouse) in str(caught.value)
    with pytest.raises(InvalidSettingsError, match="allowed location"):
        open_store("/local", warehouse, options=StoreOptions(s3=NOWHERE))


def test_examination_of_a_fine_bucket_leaves_nothing(bucket: Bucket) -> None:
    with opened(bucket) as store:
        assert try_warehouse(store) == ProbeResult(
            f"{bucket.uri} is readable and writable, lists its files and takes conditional writes"
        )
        assert try_listing(store, f"{bucket.uri}/some/where").advice == ""
        client = bucket.minio.client()
        assert "Contents" not in client.list_objects_v2(Bucket=bucket.name)
        client.close()


@pytest.mark.parametrize(
    ("change", "detail", "advice"),
    [
        ({"secret_access_key": "geheim"}, "DUCKICELAKE_S3_SECRET_ACCESS_KEY", "allow s3:ListBucket"),
        ({"endpoint": "http://127.0.0.1:1", "max_attempts": 1}, "doesn't answer", "correct DUCKICELAKE_S3_ENDPOINT"),
    ],
)
def test_examination_says_what_to_do(bucket: Bucket, change: dict[str, object], detail: str, advice: str) -> None:
    with opened(bucket, **change) as store:
        tried = try_warehouse(store)
    assert detail in tried.detail
    assert advice in tried.advice
    assert "geheim" not in repr(tried)


def test_examination_of_stores_that_know_less(bucket: Bucket, proxy: Proxy) -> None:
    proxy.spoil = lambda request: 501 if "if-none-match" in request.headers else None
    with opened(bucket, endpoint=proxy.endpoint) as store:
        assert "refuses conditional writes" in try_warehouse(store).detail
    proxy.seen.clear()
    proxy.spoil = lambda request: 200 if request.method == "PUT" and request.number == 1 else None
    with opened(bucket, endpoint=proxy.endpoint) as store:
        assert "ignores the condition of a write" in try_warehouse(store).detail
    proxy.spoil = lambda request: 403 if request.method == "PUT" else None
    with opened(bucket, endpoint=proxy.endpoint) as store:
        tried = try_warehouse(store)
    assert "access denied" in tried.detail
    assert "s3:PutObject" in tried.advice
