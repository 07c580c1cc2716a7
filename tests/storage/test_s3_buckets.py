"""obstore's requests mean what boto3's do: addresses, keys, certificates, regions, and what is tried again."""

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep
from urllib.parse import urlsplit

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders
from botocore.exceptions import CredentialRetrievalError
from obstore.exceptions import InvalidPathError
from urllib3 import HTTPResponse

from duckicelake.errors import CatalogError, FileMissingError, InvalidRequestError, StoreDeniedError, UnavailableError
from duckicelake.storage import s3_buckets
from duckicelake.storage.connections import ConnectionLimits
from duckicelake.storage.policy import parse_folder
from duckicelake.storage.s3 import S3Options, S3Store
from duckicelake.storage.sts_vendor import StsRole, StsVendor, open_sts_client
from tests.storage.s3_proxy import BREAK_OFF, Proxy, Request, proxy_of, witness_of
from tests.support.backends import Bucket
from tests.support.certificates import make_certificate

KEYS = (
    "a/b.avro",
    "with space",
    "a+b",
    "100%",
    "%41",
    "ns=ü/日本",
    "tilde~",
    "q?x=1&y=2",
    "#",
    "'*(!)",
    "a:b@c;d,$",
)
BY_BOTO3 = "amz-sdk-request"  # a header that boto3 alone sends


@pytest.fixture
def proxy(bucket: Bucket) -> Iterator[Proxy]:
    with proxy_of(bucket.minio.endpoint) as running:
        yield running


@pytest.fixture
def asked(proxy: Proxy) -> list[str]:
    """Who asked what: "obstore GET", "boto3 PUT"."""
    seen: list[str] = []

    def note(request: Request) -> None:
        seen.append(f"{'boto3' if BY_BOTO3 in request.headers else 'obstore'} {request.method}")

    proxy.spoil = note
    return seen


@pytest.fixture
def store(bucket: Bucket, proxy: Proxy) -> Iterator[S3Store]:
    with closing(S3Store(bucket.uri, replace(bucket.options(), endpoint=proxy.endpoint))) as opened:
        yield opened


def test_one_request_each(bucket: Bucket, store: S3Store, asked: list[str]) -> None:
    store.write(f"{bucket.uri}/x", b"12345")
    assert store.read(f"{bucket.uri}/x") == b"12345"
    assert store.sizes([f"{bucket.uri}/x", f"{bucket.uri}/missing"]) == [5, None]
    assert sorted(asked) == ["obstore GET", "obstore HEAD", "obstore HEAD", "obstore PUT"]


def test_what_is_there_stays(bucket: Bucket, store: S3Store, asked: list[str]) -> None:
    for data in (b"first", b"other"):
        store.write(f"{bucket.uri}/x", data)
    assert asked == ["obstore PUT", "obstore PUT", "obstore HEAD"]
    assert store.read(f"{bucket.uri}/x") == b"first"


@pytest.mark.parametrize("key", KEYS)
def test_keys_are_spelled_as_boto3_spells_them(bucket: Bucket, key: str) -> None:
    uri = bucket.uri
    with closing(S3Store(uri, bucket.options())) as store:
        opened = store._buckets.store(bucket.name)
        opened.put(f"obstore/{key}", b"1", mode="create", use_multipart=False)
        assert store.client.get_object(Bucket=bucket.name, Key=f"obstore/{key}")["Body"].read() == b"1"
        store.client.put_object(Bucket=bucket.name, Key=f"boto3/{key}", Body=b"22")
        assert opened.get(f"boto3/{key}").bytes().to_bytes() == b"22"
        assert opened.head(f"boto3/{key}")["size"] == 2
        opened.delete(f"boto3/{key}")
        listed = store.client.list_objects_v2(Bucket=bucket.name)["Contents"]
        assert [entry["Key"] for entry in listed] == [f"obstore/{key}"]


@pytest.mark.parametrize("bucket_name", ["lake", "lake.example.org"])
@pytest.mark.parametrize("path_style", [True, False])
@pytest.mark.parametrize(
    ("endpoint", "region"),
    [
        (None, "us-east-1"),
        (None, "eu-central-1"),
        (None, "cn-north-1"),
        ("https://s3.example.org", None),
        ("http://store:9000/below", "somewhere"),
        ("https://account.r2.example.org/", "auto"),
    ],
)
def test_addresses_are_boto3s(
    endpoint: str | None,
    region: str | None,
    path_style: bool,
    bucket_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = S3Options(endpoint, region, path_style, access_key_id="someone", secret_access_key="geheim")
    by_boto3: list[AWSPreparedRequest] = []

    def answer(request: AWSPreparedRequest, **_: object) -> AWSResponse:
        by_boto3.append(request)
        return AWSResponse(request.url, 200, HTTPHeaders.from_dict({"Content-Length": "0"}), HTTPResponse(BytesIO()))

    with closing(S3Store(f"s3://{bucket_name}", options)) as store:
        store.client.meta.events.register("before-send.s3.HeadObject", answer)
        store.client.head_object(Bucket=bucket_name, Key="a b/c")
    host = urlsplit(by_boto3[0].url).hostname
    assert host is not None
    certificate, key = make_certificate(tmp_path, hosts=[host], is_ca=False)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
    with witness_of(certificate, key) as (proxy, seen):
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy)
        with closing(S3Store(f"s3://{bucket_name}", options)) as store:
            assert store.sizes([f"s3://{bucket_name}/a b/c"]) == [0]
    (by_us,) = seen
    assert by_us.path == by_boto3[0].url
    assert by_us.headers["user-agent"] == by_boto3[0].headers["User-Agent"].decode().split()[0] == "duckicelake"
    assert BY_BOTO3 not in by_us.headers
    assert scope(by_us.headers["authorization"]) == scope(by_boto3[0].headers["Authorization"].decode())


ENVIRONMENT = {
    "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1",
    "AWS_ENDPOINT": "http://127.0.0.1:1",
    "AWS_REGION": "eu-south-1",
    "AWS_BUCKET": "another",
    "AWS_ACCESS_KEY_ID": "nobody",
    "AWS_SECRET_ACCESS_KEY": "wrong",
    "AWS_SESSION_TOKEN": "wrong",
    "AWS_TOKEN": "wrong",
    "AWS_SKIP_SIGNATURE": "true",
    "AWS_UNSIGNED_PAYLOAD": "true",
    "AWS_REQUEST_PAYER": "true",
    "AWS_S3_EXPRESS": "true",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
    "AWS_ALLOW_HTTP": "false",
    "AWS_ALLOW_INVALID_CERTIFICATES": "true",
    "AWS_TIMEOUT": "1ns",
    "AWS_CONNECT_TIMEOUT": "1ns",
    "AWS_USER_AGENT": "somebody",
    "AWS_PROXY_URL": "http://127.0.0.1:1",
    "AWS_DEFAULT_CONTENT_TYPE": "text/html",
    "AWS_ROLE_ARN": "arn:aws:iam::1:role/none",
    "AWS_CONDITIONAL_PUT": "disabled",
}


@pytest.mark.parametrize("name", ENVIRONMENT)
def test_environment_decides_nothing_that_is_set(
    bucket: Bucket, proxy: Proxy, asked: list[str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, ENVIRONMENT[name])
    with closing(S3Store(bucket.uri, replace(bucket.options(), endpoint=proxy.endpoint))) as store:
        store.write(f"{bucket.uri}/x", b"1")
        store.write(f"{bucket.uri}/x", b"2")
        assert store.read(f"{bucket.uri}/x") == b"1"
    assert asked == ["obstore PUT", "obstore PUT", "obstore HEAD", "obstore GET"]


@pytest.mark.parametrize(
    ("name", "value", "header"),
    [
        ("AWS_SERVER_SIDE_ENCRYPTION", "AES256", "x-amz-server-side-encryption"),
        ("AWS_CHECKSUM_ALGORITHM", "sha256", "x-amz-checksum-sha256"),
    ],
)
def test_environment_asks_for_encryption_and_checksums(
    bucket: Bucket, proxy: Proxy, name: str, value: str, header: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[bool] = []
    proxy.spoil = lambda request: sent.append(header in request.headers) or 200  # type: ignore[func-returns-value]
    monkeypatch.setenv(name, value)
    with closing(S3Store(bucket.uri, replace(bucket.options(), endpoint=proxy.endpoint))) as store:
        store.write(f"{bucket.uri}/x", b"1")
    assert sent == [True]


def test_certificates_are_read_for_https_alone(
    bucket: Bucket, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bundle.pem").write_text("no certificate")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "bundle.pem"))
    with closing(S3Store(bucket.uri, replace(bucket.options(), endpoint=proxy.endpoint))) as store:
        store.write(f"{bucket.uri}/x", b"1")
        assert store.read(f"{bucket.uri}/x") == b"1"
    secure = replace(bucket.options(), endpoint="https://127.0.0.1:1", max_attempts=1)
    for named in (tmp_path / "bundle.pem", tmp_path / "missing.pem"):
        monkeypatch.setenv("AWS_CA_BUNDLE", str(named))
        with closing(S3Store(bucket.uri, secure)) as store, pytest.raises(UnavailableError, match="settings for S3"):
            store.read(f"{bucket.uri}/x")


@pytest.mark.parametrize("form", ["file", "folder", "profile"])
def test_certificate_authority_is_found_where_boto3_finds_it(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "authorities").mkdir()
    certificate, key = make_certificate(tmp_path / "authorities", hosts=["s3.example.org"], is_ca=False)
    key = key.rename(tmp_path / "key.pem")
    (tmp_path / "config").write_text(f"[profile lake]\nca_bundle = {certificate}\n")
    (tmp_path / "credentials").write_text("[lake]\naws_access_key_id = me\naws_secret_access_key = geheim\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    if form != "profile":
        monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate if form == "file" else tmp_path / "authorities"))
    options = S3Options("https://s3.example.org", path_style=True, profile="lake", max_attempts=1)
    with witness_of(certificate, key) as (proxy, _):
        monkeypatch.setenv("https_proxy", proxy)
        with closing(S3Store("s3://lake", options)) as store:
            assert store.sizes(["s3://lake/x"]) == [0]


def test_certificate_that_is_not_trusted_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = make_certificate(tmp_path, hosts=["s3.example.org"], is_ca=False)
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    options = S3Options("https://s3.example.org", None, True, "someone", "geheim", max_attempts=1)
    with witness_of(certificate, key) as (proxy, _):
        monkeypatch.setenv("https_proxy", proxy)
        with (
            closing(S3Store("s3://lake", options)) as store,
            pytest.raises(UnavailableError, match="no TLS certificate"),
        ):
            store.sizes(["s3://lake/x"])


@pytest.mark.parametrize("key", ["a//b", "a/./b", "a/../b", "..", "."])
def test_names_of_folders_that_mean_another_to_obstore_are_refused(store: S3Store, key: str) -> None:
    with pytest.raises(InvalidRequestError):
        store.read(f"s3://lake/{key}")


def test_listing_has_keys_that_obstore_does_not_list(bucket: Bucket, store: S3Store) -> None:
    """Why boto3 lists: obstore aborts at a control character or an empty segment, and cuts the slash of a marker."""
    keys = ["l/a", "l/b\x01c", "l/marker/"]
    for key in keys:
        store.client.put_object(Bucket=bucket.name, Key=key, Body=b"")
    assert [file.location for file in store.files_below(f"{bucket.uri}/l")] == [f"{bucket.uri}/{key}" for key in keys]
    opened = store._buckets.store(bucket.name)
    with pytest.raises(InvalidPathError):
        list(opened.list("l"))
    store.client.delete_object(Bucket=bucket.name, Key=keys[1])
    assert [entry["path"] for page in opened.list("l") for entry in page] == ["l/a", "l/marker"]


def test_another_region_is_found_out_once(bucket: Bucket, proxy: Proxy, asked: list[str]) -> None:
    options = replace(bucket.options(), endpoint=proxy.endpoint, region="eu-south-1", max_attempts=1)
    with closing(S3Store(bucket.uri, options)) as store:
        store.write(f"{bucket.uri}/x", b"1")
        for _ in range(3):
            assert store.read(f"{bucket.uri}/x") == b"1"
    assert asked == ["obstore PUT"] * 2 + ["obstore GET"] * 3


@pytest.mark.parametrize("status", [200, 403])
def test_region_of_a_bucket_is_asked_for_where_amazon_redirects(status: int) -> None:
    """Amazon redirects without an address; HeadBucket names the region, even to who may not list."""
    regions: list[str] = []

    class Amazon(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            regions.append(scope(self.headers["Authorization"]).split("/")[2])
            self.answer(200 if regions[-1] == "eu-west-9" else 301)

        def do_HEAD(self) -> None:
            self.answer(status)

        def answer(self, status: int) -> None:
            self.send_response_only(status)
            for name, value in {"Content-Length": "0", "ETag": "x", "x-amz-bucket-region": "eu-west-9"}.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return None

    with ThreadingHTTPServer(("127.0.0.1", 0), Amazon) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        options = S3Options(f"http://127.0.0.1:{server.server_port}", "us-east-1", True, "id", "geheim", max_attempts=1)
        with closing(S3Store("s3://lake", options)) as store:
            for number in range(2):
                store.write(f"s3://lake/{number}", b"1")
        server.shutdown()
    assert regions == ["us-east-1", "eu-west-9", "eu-west-9"]


def test_failed_request_is_sent_again(bucket: Bucket, store: S3Store, proxy: Proxy) -> None:
    proxy.spoil = lambda request: 503 if request.method == "GET" and request.number < 2 else None
    store.write(f"{bucket.uri}/x", b"1")
    assert store.read(f"{bucket.uri}/x") == b"1"
    assert proxy.seen == {"PUT": 1, "GET": 3}


@pytest.mark.parametrize("status", [401, 403, 404])
def test_answer_about_one_object_says_nothing_of_others(
    bucket: Bucket, store: S3Store, proxy: Proxy, asked: list[str], status: int
) -> None:
    note = proxy.spoil
    store.write(f"{bucket.uri}/x", b"1")
    proxy.spoil = lambda request: note(request) or (status if request.path.endswith("/refused") else None)
    with pytest.raises((FileMissingError, StoreDeniedError)):
        store.read(f"{bucket.uri}/refused")
    assert store.read(f"{bucket.uri}/x") == b"1"
    assert asked == ["obstore PUT", "obstore GET", "obstore GET"]


def test_names_that_the_store_refuses_say_nothing_of_others(bucket: Bucket, store: S3Store, asked: list[str]) -> None:
    for key in ("x" * 1100, "y/" + "z" * 1030):
        with pytest.raises(CatalogError):
            store.read(f"{bucket.uri}/{key}")
    asked.clear()
    store.write(f"{bucket.uri}/x", b"1")
    assert asked == ["obstore PUT"]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 500, 503])
def test_name_is_not_taken_for_an_answer(bucket: Bucket, store: S3Store, proxy: Proxy, status: int) -> None:
    said = "Error performing PUT x in 1s - Server returned non-2xx status code: 501 Not Implemented: "
    proxy.spoil = lambda request: status if request.number == 0 and request.method == "PUT" else None
    with suppress(InvalidRequestError, FileMissingError, StoreDeniedError, UnavailableError):
        store.write(f"{bucket.uri}/{said}/x", b"1")
    assert store.knows_conditions
    store.write(f"{bucket.uri}/{said}/x", b"1")
    assert store.read(f"{bucket.uri}/{said}/x") == b"1"


def test_redirection_is_another_region(bucket: Bucket, store: S3Store, proxy: Proxy) -> None:
    proxy.spoil = lambda request: 307 if BY_BOTO3 not in request.headers else None
    with pytest.raises(UnavailableError, match="in another region"):
        store.write(f"{bucket.uri}/x", b"1")
    assert proxy.seen == {"PUT": 1, "HEAD": 1}  # boto3 has asked for the region


@pytest.mark.parametrize("status", [429, 500, 503, BREAK_OFF])
def test_passing_failure_is_waited_out(bucket: Bucket, store: S3Store, proxy: Proxy, status: int) -> None:
    proxy.spoil = lambda request: status if request.number == 0 and request.method != "HEAD" else None
    store.write(f"{bucket.uri}/x", b"12345")
    assert store.read(f"{bucket.uri}/x") == b"12345"
    assert (proxy.seen["PUT"], proxy.seen["GET"]) == (2, 2)


@pytest.mark.parametrize(
    ("status", "error"), [(400, UnavailableError), (403, StoreDeniedError), (404, FileMissingError)]
)
def test_lasting_failure_is_reported_at_once(
    bucket: Bucket, store: S3Store, proxy: Proxy, status: int, error: type[CatalogError]
) -> None:
    proxy.spoil = lambda _: status
    for act in (store.read, lambda location: store.write(location, b"1"), store.delete):
        with pytest.raises(error):
            act(f"{bucket.uri}/x")
    assert proxy.seen == {"GET": 1, "PUT": 1, "DELETE": 1}


def test_store_may_be_silent_for_as_long_as_a_file_takes_to_send() -> None:
    limits = ConnectionLimits(5, 30, 64)
    lengths = (0, 1 << 20, 4 << 20, 64 << 20, 1 << 30)
    assert [limits.upload_seconds(length) for length in lengths] == [30, 30, 120, 1920, 30720]


def test_silent_store_is_asked_again_after_the_timeout(bucket: Bucket, proxy: Proxy) -> None:
    is_over = Event()

    def spoil(request: Request) -> None:
        if request.method == "GET" and request.number == 0:
            is_over.wait(30)

    options = replace(bucket.options(), endpoint=proxy.endpoint, read_timeout=0.2)
    with closing(S3Store(bucket.uri, options)) as store:
        store.write(f"{bucket.uri}/x", b"1")
        proxy.spoil = spoil
        began = monotonic()
        assert store.read(f"{bucket.uri}/x") == b"1"
        assert monotonic() - began < 20
    is_over.set()


def test_longer_file_than_wanted_is_not_read(bucket: Bucket, store: S3Store) -> None:
    store.write(f"{bucket.uri}/x", b"12345")
    assert store.read(f"{bucket.uri}/x", 5) == b"12345"
    with pytest.raises(InvalidRequestError, match="5 bytes"):
        store.read(f"{bucket.uri}/x", 4)


def test_encoded_objects_are_read_as_they_are(bucket: Bucket, store: S3Store, asked: list[str]) -> None:
    store.client.put_object(Bucket=bucket.name, Key="x", Body=b"not gzip", ContentEncoding="gzip")
    assert store.read(f"{bucket.uri}/x") == b"not gzip"
    assert asked == ["boto3 PUT", "obstore GET"]


def test_keys_of_a_session_are_signed_with_their_token(bucket: Bucket, proxy: Proxy, asked: list[str]) -> None:
    options = bucket.options()
    folder = parse_folder(f"{bucket.uri}/data", is_writable=True)
    assert folder is not None
    with closing(open_sts_client(options.session(), options, options.endpoint)) as client:
        keys = StsVendor(client, StsRole(seconds=900), lambda: 0).vend("somebody", [folder]).vended[0].keys
    session = S3Options(
        proxy.endpoint, options.region, True, keys.access_key_id, keys.secret_access_key, keys.session_token
    )
    with closing(S3Store(bucket.uri, session)) as store:
        store.write(f"{bucket.uri}/data/x", b"1")
        assert store.read(f"{bucket.uri}/data/x") == b"1"
    assert asked == ["obstore PUT", "obstore GET"]


def test_keys_that_are_renewed_are_taken_from_then_on(
    bucket: Bucket, store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        s3_buckets, "_KEY_LIFETIME", timedelta(minutes=5)
    )  # which obstore takes for: ask ten times a second
    store.write(f"{bucket.uri}/x", b"1")
    credentials = store._buckets._credentials
    right, credentials.secret_key = credentials.secret_key, "geheim"
    sleep(0.2)
    with pytest.raises(StoreDeniedError):
        store.read(f"{bucket.uri}/x")
    credentials.secret_key = right
    sleep(0.2)
    assert store.read(f"{bucket.uri}/x") == b"1"


def test_keys_are_asked_for_once_a_minute(bucket: Bucket, store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    buckets, asked = store._buckets, []
    keys = buckets._keys
    monkeypatch.setattr(buckets, "_keys", lambda: asked.append(1) or keys())  # type: ignore[func-returns-value]
    for number in range(5):
        store.write(f"{bucket.uri}/{number}", b"1")
    assert asked == [1]


def test_keys_that_there_are_no_more_are_reported(
    bucket: Bucket, store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> None:
        raise CredentialRetrievalError(provider="test", error_msg="gone")

    monkeypatch.setattr(store._buckets._credentials, "get_frozen_credentials", none)
    with pytest.raises(StoreDeniedError, match="no credentials"):
        store.read(f"{bucket.uri}/x")


def test_buckets_that_are_known_are_few(store: S3Store) -> None:
    for number in range(300):
        store._buckets.store(f"bucket-{number}")
    assert len(store._buckets._stores._stores) <= 256


def scope(authorization: str) -> str:
    """What a request is signed for: whose it is, day, region and service."""
    return authorization.partition("Credential=")[2].partition(",")[0]
