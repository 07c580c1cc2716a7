"""Plain requests mean what boto3's do, and boto3 is asked wherever their answers aren't plain."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from io import BytesIO
from typing import Any

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders
from urllib3 import HTTPResponse

from duckicelake.errors import InvalidRequest
from duckicelake.storage.s3 import S3Options, S3Store
from duckicelake.storage.s3_plain import NotPlain, PlainRequests
from duckicelake.storage.session_policy import folder_at
from duckicelake.storage.vending import Role, StsVendor, sts_client
from tests.backends import Bucket
from tests.storage.s3_proxy import BREAK_OFF, Proxy, Request, proxy_of

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
def test_addresses_are_boto3s(endpoint: str | None, region: str | None, path_style: bool, bucket_name: str) -> None:
    options = S3Options(endpoint, region, path_style, access_key_id="someone", secret_access_key="geheim")
    sent: list[AWSPreparedRequest] = []

    def answer(request: AWSPreparedRequest, **_: object) -> AWSResponse:
        sent.append(request)
        return AWSResponse(request.url, 200, HTTPHeaders.from_dict({"Content-Length": "0"}), HTTPResponse(BytesIO()))

    with closing(S3Store(f"s3://{bucket_name}", options)) as store:
        store.client.meta.events.register("before-send.s3.GetObject", answer)
        store.client.get_object(Bucket=bucket_name, Key="a b/c")
        connections: Any = type("Connections", (), {"send": staticmethod(answer)})
        plain = plain_of(store)
        plain._connections = connections
        plain.length(bucket_name, "a b/c")
    by_boto3, by_us = sent
    assert by_us.url == by_boto3.url
    assert by_us.headers["User-Agent"] == by_boto3.headers["User-Agent"].decode().split()[0] == "duckicelake"
    assert scope(by_us) == scope(by_boto3)


def test_another_region_is_found_out_once(bucket: Bucket, proxy: Proxy, asked: list[str]) -> None:
    options = replace(bucket.options(), endpoint=proxy.endpoint, region="eu-south-1")
    with closing(S3Store(bucket.uri, options)) as store:
        store.write(f"{bucket.uri}/x", b"1")
        assert asked[0] == "plain PUT"
        for _ in range(3):
            assert store.read(f"{bucket.uri}/x") == b"1"
    assert {who.split()[0] for who in asked[1:]} == {"boto3"}


def test_redirection_is_left_to_boto3(bucket: Bucket, store: S3Store, proxy: Proxy) -> None:
    proxy.spoil = lambda request: 307 if BY_BOTO3 not in request.headers else None
    for _ in range(2):
        store.write(f"{bucket.uri}/x", b"1")
    assert proxy.seen["PUT"] == 3


@pytest.mark.parametrize("status", [400, 403, 404, 429, 500, 501, 503, BREAK_OFF])
def test_other_answers_are_left_to_boto3(bucket: Bucket, store: S3Store, proxy: Proxy, status: int) -> None:
    proxy.spoil = lambda request: status if BY_BOTO3 not in request.headers and request.method != "HEAD" else None
    store.write(f"{bucket.uri}/x", b"12345")
    assert store.read(f"{bucket.uri}/x") == b"12345"
    assert (proxy.seen["PUT"], proxy.seen["GET"]) == (2, 2)


def test_longer_file_than_wanted_is_not_read(bucket: Bucket, store: S3Store) -> None:
    store.write(f"{bucket.uri}/x", b"12345")
    assert store.read(f"{bucket.uri}/x", 5) == b"12345"
    with pytest.raises(NotPlain):
        plain_of(store).read(bucket.name, "x", 4)
    with pytest.raises(InvalidRequest, match="5 bytes"):
        store.read(f"{bucket.uri}/x", 4)


def test_encoded_objects_are_read_as_they_are(bucket: Bucket, store: S3Store, asked: list[str]) -> None:
    store.client.put_object(Bucket=bucket.name, Key="x", Body=b"not gzip", ContentEncoding="gzip")
    assert store.read(f"{bucket.uri}/x") == b"not gzip"
    assert asked == ["boto3 PUT", "plain GET"]


def test_keys_of_a_session_are_signed_with_their_token(bucket: Bucket, proxy: Proxy, asked: list[str]) -> None:
    options = bucket.options()
    folder = folder_at(f"{bucket.uri}/data", is_writable=True)
    assert folder is not None
    with closing(sts_client(options.session(), options, options.endpoint)) as client:
        keys = StsVendor(client, Role(seconds=900), lambda: 0).vend("somebody", [folder]).vended[0].keys
    session = S3Options(
        proxy.endpoint, options.region, True, keys.access_key_id, keys.secret_access_key, keys.session_token
    )
    with closing(S3Store(bucket.uri, session)) as store:
        store.write(f"{bucket.uri}/data/x", b"1")
        assert store.read(f"{bucket.uri}/data/x") == b"1"
    assert asked == ["plain PUT", "plain GET"]


def test_keys_that_are_renewed_are_taken_from_then_on(bucket: Bucket, store: S3Store) -> None:
    store.write(f"{bucket.uri}/x", b"1")
    credentials = plain_of(store)._credentials
    right, credentials.secret_key = credentials.secret_key, "geheim"
    with pytest.raises(NotPlain):
        plain_of(store).read(bucket.name, "x")
    credentials.secret_key = right
    assert plain_of(store).read(bucket.name, "x") == b"1"


def test_directory_buckets_are_left_to_boto3(store: S3Store) -> None:
    with pytest.raises(NotPlain):
        plain_of(store).read("lake--usw2-az1--x-s3", "x")


def test_buckets_that_are_known_are_few(store: S3Store) -> None:
    plain = plain_of(store)
    for number in range(1000):
        plain._address(f"bucket-{number}")
    assert len(plain._addresses) <= 256


def plain_of(store: S3Store) -> PlainRequests:
    return store._plain


def scope(request: AWSPreparedRequest) -> str:
    """What a request is signed for: day, region and service."""
    authorization = request.headers["Authorization"]
    text = authorization.decode() if isinstance(authorization, bytes) else authorization
    return text.partition("Credential=")[2].partition(",")[0]
