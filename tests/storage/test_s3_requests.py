"""What a request would do, as its spelling says; every trick that we know of is refused."""

from collections.abc import Sequence
from hashlib import sha256
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckicelake.errors import ForbiddenError, InvalidRequestError
from duckicelake.storage.s3_requests import (
    UNSIGNED_PAYLOAD,
    CheckedRequest,
    ObjectAccess,
    SignatureRequest,
    check_request,
)

ENDPOINT = "http://store:9000"
OBJECT = f"{ENDPOINT}/b/data/t/a.parquet"
HASH = "0" * 64


def examined(method: str, uri: str, body: str | None = None, **headers: str) -> CheckedRequest:
    named = {name.replace("_", "-"): (value,) for name, value in headers.items()}
    return check_request(SignatureRequest(method, uri, named, body), ENDPOINT)


READ, WRITTEN = ObjectAccess("b", "data/t/a.parquet"), ObjectAccess("b", "data/t/a.parquet", writes=True)


@pytest.mark.parametrize(
    ("method", "query", "touch"),
    [
        ("GET", "", READ),
        ("get", "?x-id=GetObject", READ),
        ("HEAD", "", READ),
        ("GET", "?partNumber=1", READ),
        ("PUT", "?x-id=PutObject", WRITTEN),
        ("PUT", "?partNumber=1&uploadId=u", WRITTEN),
        ("POST", "?uploads", WRITTEN),
        ("POST", "?uploads=", WRITTEN),
        ("POST", "?uploadId=u", WRITTEN),
        ("DELETE", "", WRITTEN),
        ("DELETE", "?uploadId=u", WRITTEN),
        ("GET", "?uploadId=u&max-parts=5", WRITTEN),
    ],
)
def test_request_for_an_object_is_understood(method: str, query: str, touch: ObjectAccess) -> None:
    assert examined(method, OBJECT + query).touches == (touch,)


@pytest.mark.parametrize(
    ("method", "query"),
    [
        *(("GET", f"?{name}") for name in ("acl", "policy", "tagging", "versionId=1", "torrent", "legal-hold")),
        *(("PUT", f"?{name}") for name in ("acl", "tagging", "retention", "legal-hold", "uploadId=u", "partNumber=1")),
        *(("POST", f"?{name}") for name in ("restore", "select&select-type=2", "uploads&acl")),
        ("GET", "?response-content-type=text/html"),
        ("GET", "?X-Amz-Signature=x"),
        ("DELETE", "?versionId=1"),
        ("DELETE", "?tagging"),
        ("POST", ""),
        ("PATCH", ""),
        ("OPTIONS", ""),
    ],
)  # fmt: skip
def test_other_requests_for_objects_are_refused(method: str, query: str) -> None:
    with pytest.raises(ForbiddenError, match="isn't signed"):
        examined(method, OBJECT + query)


@pytest.mark.parametrize("prefix", ["data/t", "data/t/", "data%2Ft%2F", ""])
def test_listing_names_its_prefix(prefix: str) -> None:
    found = examined("GET", f"{ENDPOINT}/b?list-type=2&prefix={prefix}&delimiter=%2F&max-keys=5")
    assert found.touches == (ObjectAccess("b", unquote(prefix), lists=True),)


@pytest.mark.parametrize(
    "path",
    [
        "/b",
        "/b/",
        "/b?list-type=2",
        "/b?prefix=data/../x",
        "/b?prefix=data//x",
        "/b?prefix=/data",
        *(f"/b?prefix=a&{name}" for name in ("policy", "acl", "versions", "uploads", "location", "versioning")),
        "/?prefix=a",
        "/",
        "",
    ],
)
def test_other_requests_for_buckets_are_refused(path: str) -> None:
    for method in ("GET", "PUT", "DELETE", "HEAD"):
        with pytest.raises(ForbiddenError):
            examined(method, ENDPOINT + path)


@pytest.mark.parametrize(
    "uri",
    [
        "http://store:9000/b/data/../secret/a",
        "http://store:9000/b/data/./a",
        "http://store:9000/b/data//a",
        "http://store:9000/b//a",
        "http://store:9000/b/data/%2e%2e/a",
        "http://store:9000/b/data%2Fa",
        "http://store:9000/b/data%5ca",
        "http://store:9000/b/a%00b",
        "http://store:9000/b/a%0Ab",
        "http://store:9000/b/a/",
        "http://user@store:9000/b/a",
        "http://store:9000@evil/b/a",
        "http://evil:9000/b/a",
        "http://store:9001/b/a",
        "http://store/b/a",
        "https://store:9000/b/a",
        "http://store:9000.evil/b/a",
        "http://xstore:9000/b/a",
        "http://store:9000/../b/a",
        "http://store:9000/%62/a",
    ],
)
def test_path_or_host_with_tricks_is_refused(uri: str) -> None:
    with pytest.raises(ForbiddenError):
        examined("GET", uri)


@pytest.mark.parametrize(
    "uri",
    [
        "http://store:9000/b/a#f",
        "http://store:9000/b/a b",
        "http://store:9000/b/\u00e4",
        "http://store:9000/b/a\\b",
        "http://store:9000/b/a\tb",
        "http://store:9000/b/%zz",
        "http://store:9000/b/%",
        "http://store:9000/b/%ff",
        "http://store:9000/b/a?x=1+2",
        "http://store:9000/b/a?partNumber=1&partNumber=2",
        "http://store:9000/b/a?partNumber=1;uploads",
        "ftp://store:9000/b/a",
        "//store:9000/b/a",
        "/b/a",
        "",
    ],
)
def test_what_is_no_encoded_url_is_a_bad_request(uri: str) -> None:
    with pytest.raises(InvalidRequestError):
        examined("GET", uri)


def test_key_is_decoded_once() -> None:
    assert examined("GET", f"{ENDPOINT}/b/a%2520b/%252e%252e/c").touches == (ObjectAccess("b", "a%20b/%2e%2e/c"),)


@given(st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1).filter(lambda key: key.strip("./")))
def test_what_is_signed_is_spelled_anew_and_means_the_same(key: str) -> None:
    raw = "".join(f"%{byte:02x}" if byte != 0x2F else "/" for byte in key.encode())
    try:
        found = examined("GET", f"{ENDPOINT}/b/{raw}")
    except ForbiddenError:
        assert not {"", ".", ".."}.isdisjoint(key.split("/")) or "\\" in key
    else:
        assert found.touches == (ObjectAccess("b", key),)
        assert unquote(urlsplit(found.uri).path, errors="strict") == f"/b/{key}"


@pytest.mark.parametrize(
    ("uri", "endpoint", "bucket"),
    [
        ("https://b.s3.eu-west-1.amazonaws.com/a", None, "b"),
        ("https://s3.eu-west-1.amazonaws.com/b/a", None, "b"),
        ("https://s3.amazonaws.com/b/a", None, "b"),
        ("https://b.c.s3.amazonaws.com/a", None, "b.c"),
        ("https://b.s3.dualstack.us-gov-east-1.amazonaws.com/a", None, "b"),
        ("https://b.s3.cn-north-1.amazonaws.com.cn:443/a", None, "b"),
        ("https://b.store/a", "https://store", "b"),
        ("https://store:443/b/a", "https://store", "b"),
        ("https://STORE/b/a", "https://store", "b"),
    ],
)
def test_bucket_is_in_the_path_or_in_the_host(uri: str, endpoint: str | None, bucket: str) -> None:
    assert check_request(SignatureRequest("GET", uri), endpoint).touches == (ObjectAccess(bucket, "a"),)


@pytest.mark.parametrize(
    "uri",
    [
        "http://b.s3.amazonaws.com/a",
        "https://s3.amazonaws.com.evil.com/b/a",
        "https://evil.com/b.s3.amazonaws.com/a",
        "https://b.s3-website.eu-west-1.amazonaws.com/a",
        "https://b.s3.evil.amazonaws.com/a",
        "https://sts.amazonaws.com/b/a",
        "https://b.s3xamazonaws.com/a",
    ],
)
def test_other_hosts_than_amazons_s3_are_refused(uri: str) -> None:
    with pytest.raises(ForbiddenError, match="isn't where"):
        check_request(SignatureRequest("GET", uri), None)


@pytest.mark.parametrize(
    "name",
    [
        "x-amz-acl",
        "X-Amz-Grant-Read",
        "x-amz-tagging",
        "x-amz-security-token",
        "x-amz-website-redirect-location",
        "x-amz-object-lock-mode",
        "x-amz-bypass-governance-retention",
        "x-amz-meta-snowball-auto-extract",
        "x-amz-server-side-encryption-customer-key",
        "x-amz-mfa",
        "x-minio-force-delete",
        "x-goog-acl",
        "x-amz-what-comes-next",
    ],
)
def test_headers_that_stores_obey_are_refused(name: str) -> None:
    with pytest.raises(ForbiddenError, match="isn't signed"):
        check_request(SignatureRequest("PUT", OBJECT, {name: ("x",)}), ENDPOINT)


def test_headers_that_s3_checks_are_signed_and_others_left_to_the_client() -> None:
    found = examined("PUT", OBJECT, x_amz_checksum_crc32="AA==", X_Amz_Date="x", range="bytes=0-1", content_md5="m")
    assert found.headers == {"x-amz-checksum-crc32": "AA==", "content-md5": "m"}
    assert found.payload == UNSIGNED_PAYLOAD


@pytest.mark.parametrize("values", [(), ("a", "b"), ("a\nb",)])
def test_header_without_one_value_is_a_bad_request(values: Sequence[str]) -> None:
    with pytest.raises(InvalidRequestError, match="one value"):
        check_request(SignatureRequest("PUT", OBJECT, {"x-amz-storage-class": values}), ENDPOINT)


def test_header_given_in_two_cases_is_a_bad_request() -> None:
    with pytest.raises(InvalidRequestError, match="one value"):
        check_request(SignatureRequest("PUT", OBJECT, {"x-amz-te": ("a",), "X-Amz-Te": ("b",)}), ENDPOINT)


def test_other_host_in_the_header_is_refused() -> None:
    with pytest.raises(ForbiddenError, match="host"):
        examined("GET", OBJECT, Host="evil")


@pytest.mark.parametrize("payload", [UNSIGNED_PAYLOAD, "STREAMING-UNSIGNED-PAYLOAD-TRAILER", HASH])
def test_digest_of_the_client_is_taken(payload: str) -> None:
    assert examined("PUT", OBJECT, x_amz_content_sha256=payload).payload == payload


@pytest.mark.parametrize("payload", ["STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "x", ""])
def test_digest_that_no_one_can_vouch_for_is_refused(payload: str) -> None:
    with pytest.raises(ForbiddenError, match="can't be signed"):
        examined("PUT", OBJECT, x_amz_content_sha256=payload)


@pytest.mark.parametrize("source", ["/b/x/y", "b/x/y", "b/x%20y", "/b/gr%C3%B6%C3%9Fe"])
def test_copy_reads_its_source(source: str) -> None:
    key = unquote(source.removeprefix("/").removeprefix("b/"))
    assert examined("PUT", OBJECT, x_amz_copy_source=source).touches == (WRITTEN, ObjectAccess("b", key))


@pytest.mark.parametrize(
    "source",
    ["b/x?versionId=1", "b/../c/x", "b//x", "b", "b/", "/", "", "b%2Fx", "b/x%2Fy", "b/%2e%2e/x", "b/x%252Fy", "b/%zz"],
)
def test_copy_source_with_tricks_is_refused(source: str) -> None:
    with pytest.raises(ForbiddenError):
        examined("PUT", OBJECT, x_amz_copy_source=source)


def test_copy_source_goes_with_put_alone() -> None:
    with pytest.raises(ForbiddenError, match="PUT"):
        examined("GET", OBJECT, x_amz_copy_source="b/x")


@pytest.mark.parametrize("uri", [f"{ENDPOINT}/b?delete", f"{ENDPOINT}/b/?delete="])
def test_multi_object_delete_touches_each_key_and_is_tied_to_its_body(uri: str) -> None:
    body = "<Delete><Object><Key>data/t/a</Key></Object><Object><Key>data/u/b</Key></Object></Delete>"
    found = examined("POST", uri, body, x_amz_content_sha256=UNSIGNED_PAYLOAD)
    assert found.touches == (ObjectAccess("b", "data/t/a", writes=True), ObjectAccess("b", "data/u/b", writes=True))
    assert found.payload == sha256(body.encode()).hexdigest()


def test_multi_object_delete_without_body_is_a_bad_request() -> None:
    with pytest.raises(InvalidRequestError, match="body"):
        examined("POST", f"{ENDPOINT}/b?delete")


def test_multi_object_delete_of_keys_with_tricks_is_refused() -> None:
    with pytest.raises(ForbiddenError, match=r"\.\."):
        examined("POST", f"{ENDPOINT}/b?delete", "<Delete><Object><Key>data/../x</Key></Object></Delete>")


def test_host_named_for_a_bucket_is_refused_where_the_store_takes_buckets_from_paths() -> None:
    asked = SignatureRequest("GET", f"http://lake.{ENDPOINT.removeprefix('http://')}/other/secret")
    assert check_request(asked, ENDPOINT).touches == (ObjectAccess("lake", "other/secret"),)
    with pytest.raises(ForbiddenError, match="isn't where this lake's files are"):
        check_request(asked, ENDPOINT, is_path_style=True)
