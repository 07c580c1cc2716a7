"""Requests that the server signs are sent to MinIO, by a client that has no keys at all."""

import hashlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from duckicelake.errors import ForbiddenError, UnavailableError
from duckicelake.storage.policy import StoreFolder, parse_folder
from duckicelake.storage.probe import obeys_unsigned_headers
from duckicelake.storage.s3 import S3Store
from duckicelake.storage.s3_requests import SignatureRequest
from duckicelake.storage.signer import ServerKeys, SignedRequest, Signer, read_server_keys
from duckicelake.storage.sts_vendor import StsRole, StsVendor, open_sts_client
from tests.support.backends import Bucket

OWN, SIBLING, LAKE, OTHER = "data/ns/orders-1", "data/ns/orders-12", "ducklake/main/orders", "ducklake/main/orders2"


@pytest.fixture
def filled(bucket: Bucket) -> Bucket:
    with closing(bucket.minio.client()) as admin:
        for place in (OWN, SIBLING, LAKE, OTHER):
            admin.put_object(Bucket=bucket.name, Key=f"{place}/a", Body=b"1")
    return bucket


@pytest.fixture(params=["the server's own keys", "keys of STS"])
def signer(request: pytest.FixtureRequest, filled: Bucket) -> Iterator[Signer]:
    options = filled.options()
    session = options.session()
    with closing(open_sts_client(session, options, options.endpoint)) as client:
        sts = StsVendor(client, StsRole(seconds=900), lambda: 0)
        vendor = read_server_keys(session) if request.param == "the server's own keys" else sts
        yield Signer(vendor, filled.minio.region, filled.minio.endpoint)


def folders(bucket: Bucket) -> list[StoreFolder]:
    own, lake = parse_folder(f"{bucket.uri}/{OWN}", is_writable=True), parse_folder(f"{bucket.uri}/{LAKE}")
    assert own is not None
    assert lake is not None
    return [own, lake]


def md5(body: str) -> dict[str, str]:
    return {"Content-MD5": b64encode(hashlib.md5(body.encode()).digest()).decode()}


class Client:
    """Sends what it got signed."""

    def __init__(self, signer: Signer, bucket: Bucket, reach: list[StoreFolder]) -> None:
        self.signer, self.bucket, self.reach = signer, bucket, reach
        self.base = f"{bucket.minio.endpoint}/{bucket.name}"

    def signed(
        self, method: str, path: str, body: str | None = None, headers: dict[str, str] | None = None
    ) -> SignedRequest:
        listed = {name: (value,) for name, value in (headers or {}).items()}
        return self.signer.sign(SignatureRequest(method, self.base + path, listed, body), "Ann", self.reach)

    def send(self, method: str, path: str, content: Any = None, **more: Any) -> httpx.Response:
        signed = self.signed(method, path, content if path.startswith("?delete") else None, more.get("headers"))
        headers = {**more.get("headers", {}), **signed.headers}
        return httpx.request(method, signed.uri, content=content, headers=headers, timeout=60)


@pytest.fixture
def client(signer: Signer, filled: Bucket) -> Client:
    return Client(signer, filled, folders(filled))


def test_signed_requests_do_what_they_say(client: Client) -> None:
    key = f"/{OWN}/day%3D1/gr%C3%B6%C3%9Fe%20%25%2B.parquet"
    assert client.send("PUT", key, content=b"12345", headers={"Content-Type": "application/x"}).status_code == 200
    assert client.send("GET", key, headers={"Range": "bytes=1-2"}).content == b"23"
    assert client.send("HEAD", key).headers["content-length"] == "5"
    listed = client.send("GET", f"?list-type=2&prefix={quote(OWN + '/', safe='')}")
    assert "größe %+.parquet" in listed.text
    assert client.send("DELETE", key).status_code == 204
    assert client.send("GET", key).status_code == 404
    assert client.send("GET", f"/{LAKE}/a").content == b"1"


def test_signed_multipart_upload_is_put_together(client: Client) -> None:
    started = client.send("POST", f"/{OWN}/big?uploads")
    upload = started.text.partition("<UploadId>")[2].partition("</UploadId>")[0]
    part = client.send("PUT", f"/{OWN}/big?partNumber=1&uploadId={upload}", content=b"x")
    done = (
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber>"
        f"<ETag>{part.headers['etag']}</ETag></Part></CompleteMultipartUpload>"
    )
    assert client.send("POST", f"/{OWN}/big?uploadId={upload}", content=done).status_code == 200
    assert client.send("GET", f"/{OWN}/big").content == b"x"


def deletion(*places: str) -> str:
    keys = "".join(f"<Object><Key>{place}/a</Key></Object>" for place in places)
    return f"<Delete>{keys}</Delete>"


def test_signed_delete_of_several_keys_deletes_them(client: Client) -> None:
    own = deletion(OWN)
    assert client.send("POST", "?delete", content=own, headers=md5(own)).status_code == 200
    assert client.send("GET", f"/{OWN}/a").status_code == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *((method, f"/{place}/a") for method in ("GET", "HEAD", "PUT", "DELETE") for place in (SIBLING, OTHER)),
        *((method, f"/{LAKE}/a{query}") for method, query in (("PUT", ""), ("DELETE", ""), ("POST", "?uploads"))),
        ("GET", f"?prefix={SIBLING}"),
        ("GET", f"?prefix={OWN}"),
        ("GET", "?prefix=data/"),
        ("GET", "?prefix="),
        ("PUT", f"/{OWN}"),
        ("GET", f"/{OWN}.json"),
    ],
)
def test_what_the_table_does_not_hold_is_not_signed(client: Client, method: str, path: str) -> None:
    with pytest.raises(ForbiddenError, match="in this table's name"):
        client.signed(method, path)


def test_one_key_of_another_table_spoils_a_delete(client: Client) -> None:
    with pytest.raises(ForbiddenError, match=SIBLING):
        client.signed("POST", "?delete", deletion(OWN, SIBLING))


def test_copy_takes_from_the_table_alone(client: Client, filled: Bucket) -> None:
    for place in (OWN, LAKE):
        headers = {"x-amz-copy-source": f"/{filled.name}/{place}/a"}
        assert client.send("PUT", f"/{OWN}/copy", headers=headers).status_code == 200
    for source in (f"/{filled.name}/{SIBLING}/a", f"/elsewhere/{OWN}/a"):
        with pytest.raises(ForbiddenError, match="may not be read"):
            client.signed("PUT", f"/{OWN}/copy", headers={"x-amz-copy-source": source})


def test_other_bucket_is_not_signed(client: Client) -> None:
    client.base = client.base + "2"
    with pytest.raises(ForbiddenError, match="in this table's name"):
        client.signed("GET", f"/{OWN}/a")


FORGERIES: dict[str, Callable[[SignedRequest, Bucket], httpx.Response]] = {
    "key": lambda signed, _: httpx.get(signed.uri.replace(OWN, SIBLING), headers=signed.headers),
    "method": lambda signed, _: httpx.delete(signed.uri, headers=signed.headers),
    "subresource": lambda signed, _: httpx.get(signed.uri + "?acl", headers=signed.headers),
    "host": lambda signed, _: httpx.get(signed.uri, headers={**signed.headers, "Host": "other"}),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_signature_holds_for_nothing_else(client: Client, filled: Bucket, forgery: str) -> None:
    assert FORGERIES[forgery](client.signed("GET", f"/{OWN}/a"), filled).status_code == 403


@pytest.fixture
def narrow(filled: Bucket) -> Iterator[Client]:
    """A client whose requests are signed by keys of STS."""
    options = filled.options()
    session = options.session()
    with closing(open_sts_client(session, options, options.endpoint)) as sts:
        vendor = StsVendor(sts, StsRole(seconds=900), lambda: 0)
        yield Client(Signer(vendor, filled.minio.region, filled.minio.endpoint), filled, folders(filled))


def test_keys_of_sts_keep_a_client_from_adding_a_copy_source_to_what_was_signed(narrow: Client, filled: Bucket) -> None:
    """Amazon refuses headers of its own that aren't signed; MinIO obeys them, so only the key's own limits help."""
    signed = narrow.signed("PUT", f"/{OWN}/stolen")
    headers = {**signed.headers, "x-amz-copy-source": f"/{filled.name}/{SIBLING}/a"}
    assert httpx.put(signed.uri, headers=headers).status_code == 403


def test_keys_of_sts_keep_a_client_from_deleting_by_another_body_than_was_signed(
    narrow: Client, filled: Bucket
) -> None:
    """Amazon compares the body with its digest; MinIO stops reading before it would."""
    other = deletion(SIBLING)
    signed = narrow.signed("POST", "?delete", deletion(OWN))
    forged = httpx.post(signed.uri, content=other, headers={**signed.headers, **md5(other)})
    assert "AccessDenied" in forged.text or forged.status_code == 400
    with closing(filled.minio.client()) as admin:
        assert admin.list_objects_v2(Bucket=filled.name, Prefix=SIBLING)["KeyCount"] == 1


def test_store_that_obeys_what_no_one_signed_is_noticed(filled: Bucket) -> None:
    with closing(S3Store(filled.uri, filled.options())) as store:
        store.check()
        assert obeys_unsigned_headers(store, read_server_keys(store.options.session()))


def test_signatures_for_reading_may_be_used_again_and_others_not(client: Client) -> None:
    assert client.signed("GET", f"/{OWN}/a").is_reusable
    assert client.signed("GET", f"?prefix={OWN}/").is_reusable
    assert not client.signed("PUT", f"/{OWN}/a").is_reusable


def test_only_what_is_new_is_added_to_the_headers(client: Client) -> None:
    headers = {"x-amz-checksum-crc32": "AAAAAA==", "Content-Type": "x", "amz-sdk-request": "attempt=1"}
    added = {name.lower() for name in client.signed("PUT", f"/{OWN}/a", headers=headers).headers}
    assert added <= {"authorization", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token"}


def test_server_without_keys_is_not_ready() -> None:
    with pytest.raises(UnavailableError, match="no keys"):
        ServerKeys(lambda: None).vend("Ann", [])


def test_secret_and_token_of_own_keys_leave_no_trace_but_what_signatures_hold(filled: Bucket) -> None:
    options = filled.options()
    signer = Signer(read_server_keys(options.session()), filled.minio.region, filled.minio.endpoint)
    signed = Client(signer, filled, folders(filled)).signed("GET", f"/{OWN}/a")
    assert options.secret_access_key is not None
    assert options.secret_access_key not in f"{signed} {signer}"
    assert options.access_key_id is not None
    assert f"Credential={options.access_key_id}/" in signed.headers["Authorization"]
    temporary = replace(options, session_token="token").session()
    again = Signer(read_server_keys(temporary), filled.minio.region, filled.minio.endpoint)
    assert "token" in Client(again, filled, folders(filled)).signed("GET", f"/{OWN}/a").headers["X-Amz-Security-Token"]
