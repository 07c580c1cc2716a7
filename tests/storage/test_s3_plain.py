"""Plain requests mean what boto3's do, and boto3 is asked wherever their answers aren't plain."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from threading import Event
from time import monotonic, sleep
from urllib.parse import urlsplit

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders
from botocore.exceptions import CredentialRetrievalError
from urllib3 import HTTPResponse

from duckicelake.errors import CatalogError, FileMissingError, InvalidRequestError, StoreDeniedError
from duckicelake.storage import s3_obstore
from duckicelake.storage.s3 import S3Options, S3Store
from duckicelake.storage.s3_obstore import NoPlainAnswerError, ObstoreRequests
from duckicelake.storage.session_policy import parse_folder
from duckicelake.storage.vendor import StsRole, StsVendor, open_sts_client
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
    """Who asked what: "plain GET", "boto3 PUT"."""
    seen: list[str] = []

    def note(request: Request) -> None:
        seen.append(f"{'boto3' if BY_BOTO3 in request.headers else 'plain'} {request.method}")

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
    assert sorted(asked) == ["plain GET", "plain HEAD", "plain HEAD", "plain PUT"]


def test_what_is_there_stays(bucket: Bucket, store: S3Store, asked: list[str]) -> None:
    for data in (b"first", b"other"):
        store.write(f"{bucket.uri}/x", data)
    assert asked == ["plain PUT", "plain PUT", "plain HEAD"]
    assert store.read(f"{bucket.uri}/x") == b"first"


@pytest.mark.parametrize("key", KEYS)
def test_keys_are_spelled_as_boto3_spells_them(bucket: Bucket, key: str) -> None:
    with closing(S3Store(bucket.uri, bucket.options())) as store:
        plain = plain_of(store)
        assert plain.create(bucket.name, f"plain/{key}", b"1")
        assert store.client.get_object(Bucket=bucket.name, Key=f"plain/{key}")["Body"].read() == b"1"
        store.client.put_object(Bucket=bucket.name, Key=f"boto3/{key}", Body=b"22")
        assert (plain.read(bucket.name, f"boto3/{key}"), plain.length(bucket.name, f"boto3/{key}")) == (b"22", 2)


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
    assert asked == ["plain PUT", "plain PUT", "plain HEAD", "plain GET"]


@pytest.mark.parametrize("name", ["AWS_SERVER_SIDE_ENCRYPTION", "AWS_CHECKSUM_ALGORITHM"])
def test_environment_that_would_change_requests_leaves_them_to_boto3(
    bucket: Bucket, proxy: Proxy, asked: list[str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "AES256")
    with closing(S3Store(bucket.uri, replace(bucket.options(), endpoint=proxy.endpoint))) as store:
        store.write(f"{bucket.uri}/x", b"1")
        assert store.read(f"{bucket.uri}/x") == b"1"
    assert asked == ["boto3 PUT", "boto3 GET"]


def test_settings_that_obstore_refuses_are_left_to_boto3(
    bucket: Bucket, proxy: Proxy, asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bundle.pem").write_text("no certificate")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "bundle.pem"))
    with closing(S3Store(bucket.uri, replace(bucket.options(), endpoint=proxy.endpoint))) as store:
        store.write(f"{bucket.uri}/x", b"1")
        assert store.read(f"{bucket.uri}/x") == b"1"
    assert asked == ["boto3 PUT", "boto3 GET"]


@pytest.mark.parametrize("key", ["a//b", "/a", "a/./b", "a/../b", "..", "."])
def test_names_of_folders_that_mean_another_to_obstore_are_left_to_boto3(store: S3Store, key: str) -> None:
    with pytest.raises(NoPlainAnswerError):
        plain_of(store).read("lake", key)


def test_another_region_is_found_out_once(bucket: Bucket, proxy: Proxy, asked: list[str]) -> None:
    options = replace(bucket.options(), endpoint=proxy.endpoint, region="eu-south-1")
    with closing(S3Store(bucket.uri, options)) as store:
        store.write(f"{bucket.uri}/x", b"1")
        assert asked[0] == "plain PUT"
        for _ in range(3):
            assert store.read(f"{bucket.uri}/x") == b"1"
    assert {who.split()[0] for who in asked[1:]} == {"boto3"}


def test_store_that_failed_is_boto3s_alone_for_a_while(
    bucket: Bucket, store: S3Store, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def spoil(request: Request) -> int | None:
        asked.append("boto3" if BY_BOTO3 in request.headers else "plain")
        return 503 if len(asked) == 2 else None

    proxy.spoil = spoil
    store.write(f"{bucket.uri}/x", b"1")
    for _ in range(3):
        assert store.read(f"{bucket.uri}/x") == b"1"
    assert asked == ["plain", "plain", "boto3", "boto3", "boto3"]
    now = monotonic()
    monkeypatch.setattr(s3_obstore, "monotonic", lambda: now + 61)
    assert store.read(f"{bucket.uri}/x") == b"1"
    assert asked[5:] == ["plain"]


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
    assert asked == ["plain PUT", "plain GET", "boto3 GET", "plain GET"]


def test_names_that_the_store_refuses_say_nothing_of_others(bucket: Bucket, store: S3Store, asked: list[str]) -> None:
    for key in ("x" * 1100, "y/" + "z" * 1030):
        with pytest.raises(CatalogError):
            store.read(f"{bucket.uri}/{key}")
    asked.clear()
    store.write(f"{bucket.uri}/x", b"1")
    assert asked == ["plain PUT"]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 500, 503])
def test_name_is_not_taken_for_an_answer(bucket: Bucket, store: S3Store, proxy: Proxy, status: int) -> None:
    said = "Server returned non-2xx status code: 501 Not Implemented: "
    proxy.spoil = lambda request: None if BY_BOTO3 in request.headers else status
    store.write(f"{bucket.uri}/{said}/x", b"1")
    assert store.knows_conditions


def test_redirection_is_left_to_boto3(bucket: Bucket, store: S3Store, proxy: Proxy) -> None:
    proxy.spoil = lambda request: 307 if BY_BOTO3 not in request.headers else None
    for _ in range(2):
        store.write(f"{bucket.uri}/x", b"1")
    assert proxy.seen["PUT"] == 3


@pytest.mark.parametrize("status", [400, 403, 404, 429, 500, 501, 503, BREAK_OFF])
def test_other_answers_are_left_to_boto3(bucket: Bucket, store: S3Store, proxy: Proxy, status: int) -> None:
    proxy.spoil = lambda request: status if BY_BOTO3 not in request.headers and request.method != "HEAD" else None
    store.write(f"{bucket.uri}/x", b"12345")
    plain_of(store)._alone_until.clear()
    assert store.read(f"{bucket.uri}/x") == b"12345"
    assert (proxy.seen["PUT"], proxy.seen["GET"]) == (2, 2)


def test_what_takes_long_to_send_is_left_to_boto3(bucket: Bucket, store: S3Store, asked: list[str]) -> None:
    for number, length in enumerate((4 << 20, (4 << 20) + 1)):
        store.write(f"{bucket.uri}/{number}", bytes(length))
        assert store.read(f"{bucket.uri}/{number}") == bytes(length)
    assert asked == ["plain PUT", "plain GET", "boto3 PUT", "plain GET"]


def test_store_that_is_silent_is_waited_for_no_longer_than_boto3_would(bucket: Bucket, proxy: Proxy) -> None:
    store_is_silent = Event()

    def spoil(request: Request) -> None:
        if BY_BOTO3 not in request.headers:
            store_is_silent.wait(30)

    options = replace(bucket.options(), endpoint=proxy.endpoint, read_timeout=0.2)
    with closing(S3Store(bucket.uri, options)) as store:
        store.write(f"{bucket.uri}/x", b"1")
        proxy.spoil = spoil
        began = monotonic()
        assert store.read(f"{bucket.uri}/x") == b"1"
        assert monotonic() - began < 20
    store_is_silent.set()


def test_longer_file_than_wanted_is_not_read(bucket: Bucket, store: S3Store) -> None:
    store.write(f"{bucket.uri}/x", b"12345")
    assert store.read(f"{bucket.uri}/x", 5) == b"12345"
    with pytest.raises(NoPlainAnswerError):
        plain_of(store).read(bucket.name, "x", 4)
    with pytest.raises(InvalidRequestError, match="5 bytes"):
        store.read(f"{bucket.uri}/x", 4)


def test_encoded_objects_are_read_as_they_are(bucket: Bucket, store: S3Store, asked: list[str]) -> None:
    store.client.put_object(Bucket=bucket.name, Key="x", Body=b"not gzip", ContentEncoding="gzip")
    assert store.read(f"{bucket.uri}/x") == b"not gzip"
    assert asked == ["boto3 PUT", "plain GET"]


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
    assert asked == ["plain PUT", "plain GET"]


def test_keys_that_are_renewed_are_taken_from_then_on(
    bucket: Bucket, store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        s3_obstore, "_KEY_LIFETIME", timedelta(minutes=5)
    )  # which obstore takes for: ask ten times a second
    store.write(f"{bucket.uri}/x", b"1")
    credentials = plain_of(store)._credentials
    right, credentials.secret_key = credentials.secret_key, "geheim"
    sleep(0.2)
    with pytest.raises(NoPlainAnswerError):
        plain_of(store).read(bucket.name, "x")
    credentials.secret_key = right
    sleep(0.2)
    assert plain_of(store).read(bucket.name, "x") == b"1"


def test_keys_are_asked_for_once_a_minute(bucket: Bucket, store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, asked = plain_of(store), []
    keys = plain._keys
    monkeypatch.setattr(plain, "_keys", lambda: asked.append(1) or keys())  # type: ignore[func-returns-value]
    for number in range(5):
        store.write(f"{bucket.uri}/{number}", b"1")
    assert asked == [1]


def test_keys_that_there_are_no_more_are_boto3s_to_tell_of(
    bucket: Bucket, store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> None:
        raise CredentialRetrievalError(provider="test", error_msg="gone")

    monkeypatch.setattr(plain_of(store)._credentials, "get_frozen_credentials", none)
    with pytest.raises(StoreDeniedError, match="no credentials"):
        store.read(f"{bucket.uri}/x")


def test_directory_buckets_are_left_to_boto3(store: S3Store) -> None:
    with pytest.raises(NoPlainAnswerError):
        plain_of(store).read("lake--usw2-az1--x-s3", "x")


def test_buckets_that_are_known_are_few(store: S3Store) -> None:
    plain = plain_of(store)
    for number in range(1000):
        plain._store(f"bucket-{number}")
    assert len(plain._stores) <= 256


def plain_of(store: S3Store) -> ObstoreRequests:
    return store._plain


def scope(authorization: str) -> str:
    """What a request is signed for: whose it is, day, region and service."""
    return authorization.partition("Credential=")[2].partition(",")[0]
