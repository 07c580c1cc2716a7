"""Probe stores: what the server needs of one, the keys that it vends, and signatures of unsigned headers on S3."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit
from uuid import uuid4

from duckicelake.errors import AlreadyExistsError, CatalogError, StoreDeniedError, UnavailableError
from duckicelake.extras import DeferredModule
from duckicelake.storage.bucket_store import BucketStore
from duckicelake.storage.policy import parse_folder
from duckicelake.storage.s3 import S3Store, parse_s3_location
from duckicelake.storage.s3_errors import translate_s3_errors
from duckicelake.storage.s3_requests import SignatureRequest
from duckicelake.storage.signer import Signer
from duckicelake.storage.sts_vendor import S3Keys
from duckicelake.storage.vendor import Vendor

if TYPE_CHECKING:
    from botocore import awsrequest as boto_requests
    from botocore import httpsession as boto_http
else:
    boto_requests, boto_http = DeferredModule("botocore.awsrequest"), DeferredModule("botocore.httpsession")

_LISTING_ADVICE: Final = (
    "allow s3:ListBucket on the bucket: without it, a missing file looks like one that is forbidden"
)
_DENIED_ADVICE: Final = (
    "allow s3:GetObject, s3:PutObject and s3:DeleteObject on everything there, or correct the server's key"
)
_SILENT_ADVICE: Final = "start the store, make the bucket, or correct DUCKICELAKE_S3_ENDPOINT, _REGION and _PATH_STYLE"
_REFUSED_ADVICE: Final = (
    "let the server's key assume the role (sts:AssumeRole; DUCKICELAKE_S3_ROLE_ARN, _EXTERNAL_ID) for as long as "
    "DUCKICELAKE_S3_VENDING_SECONDS, correct DUCKICELAKE_S3_STS_ENDPOINT, or set DUCKICELAKE_S3_VENDING to none"
)
_USELESS_ADVICE: Final = (
    "let the role get, put, delete and list objects in the warehouse; a session policy only takes away"
)
_TOO_WIDE_ADVICE: Final = (
    "this store ignores session policies, so that clients' keys would open every table: "
    "set DUCKICELAKE_S3_VENDING to none"
)


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of a probe. advice: empty if all works."""

    detail: str
    advice: str = ""


def try_warehouse(store: BucketStore) -> ProbeResult:
    """Probe list, write, read and delete at the store's root."""
    listed = try_listing(store, store.root)
    if listed.advice:
        return listed
    try:
        conditions = _write_and_delete(store, f"{store.root}/.duckicelake-doctor-{uuid4()}")
    except CatalogError as error:
        return _build_failure(error, _DENIED_ADVICE)
    return ProbeResult(f"{store.root} is readable and writable, lists its files and {conditions}")


def try_listing(store: BucketStore, root: str) -> ProbeResult:
    """Probe listing below a location."""
    try:
        store.try_list(root)
    except CatalogError as error:
        return _build_failure(error, _LISTING_ADVICE)
    return ProbeResult(f"{root} lists its files")


def _write_and_delete(store: BucketStore, location: str) -> str:
    """Probe writes, reads and deletes; describe what the store does with a conditional write.

    Every result is fine: two files of one name have the same content.
    """
    try:
        store.write(location, b"12345")
        if store.read(location) != b"12345":
            raise UnavailableError(f"{location}: the store returns other bytes than were written")
        with suppress(AlreadyExistsError):
            store.write(location, b"123456")
            return "ignores the condition of a write (If-None-Match)"
    finally:
        store.delete(location)
    return (
        "takes conditional writes" if store.knows_conditions else "refuses conditional writes, so is looked at before"
    )


def _build_failure(error: CatalogError, advice: str) -> ProbeResult:
    return ProbeResult(str(error), advice if isinstance(error, StoreDeniedError) else _SILENT_ADVICE)


def try_vending(store: S3Store, vendor: Vendor) -> ProbeResult:
    """Get keys for a folder of the warehouse; probe them inside and outside of it."""
    root = f"{store.root}/.duckicelake-doctor-{uuid4()}"
    folder = parse_folder(f"{root}/in", is_writable=True)
    if folder is None:
        return ProbeResult(
            f"{store.root} can't be named in a policy", "choose a warehouse without *, ? and $ in its name"
        )
    try:
        vending = vendor.vend("duckicelake-doctor", [folder])
    except CatalogError as error:
        cause = error.__cause__
        return ProbeResult(str(error) if cause is None else f"{error} ({cause})", _REFUSED_ADVICE)
    outside = f"{root}/in2/file"
    try:
        store.write(outside, b"1")
        keys = vending.vended[0].keys
        assert isinstance(keys, S3Keys)
        with _open_client(store, keys) as client:
            return _probe_keys(client, f"{root}/in/file", outside)
    finally:
        store.delete(outside)


def _probe_keys(client: S3Store, inside: str, outside: str) -> ProbeResult:
    try:
        client.write(inside, b"1")
        client.read(inside)
        client.delete(inside)
    except CatalogError as error:
        return ProbeResult(f"clients' keys don't work: {error}", _USELESS_ADVICE)
    acts: dict[str, Callable[[], object]] = {
        "read": lambda: client.read(outside),
        "overwrite": lambda: client.overwrite(outside, b"2"),
        "delete": lambda: client.delete(outside),
    }
    for name, act in acts.items():
        if not _is_denied(act, outside):
            return ProbeResult(f"keys for {inside} also {name} {outside}", _TOO_WIDE_ADVICE)
    return ProbeResult("STS gives keys for clients that reach one table and nothing else")


def _is_denied(act: Callable[[], object], location: str) -> bool:
    try:
        with translate_s3_errors(location):
            act()
    except StoreDeniedError:
        return True
    return False


@contextmanager
def _open_client(store: S3Store, keys: S3Keys) -> Iterator[S3Store]:
    options = replace(
        store.options,
        access_key_id=keys.access_key_id,
        secret_access_key=keys.secret_access_key,
        session_token=keys.session_token,
        profile=None,
    )
    with closing(S3Store(store.root, options)) as opened:
        yield opened


def obeys_unsigned_headers(store: S3Store, vendor: Vendor) -> bool:
    """Return whether the store obeys headers that aren't signed.

    A client could then turn a signed upload into a copy of a file that it may not read. Amazon's S3 refuses such
    requests. The probe uses small files of the warehouse and the vendor's keys.

    Raises:
        UnavailableError: the store doesn't answer.

    """
    store.check()
    source, probe = f"{store.root}/.duckicelake", f"{store.root}/.duckicelake-signing-{uuid4()}"
    folder = parse_folder(store.root, is_writable=True)
    if folder is None:
        return False
    bucket, key = parse_s3_location(probe)
    with translate_s3_errors(probe, store.options.endpoint), closing(boto_http.URLLib3Session()) as session:
        presigned = urlsplit(store.client.generate_presigned_url("put_object", {"Bucket": bucket, "Key": key}))
        asked = SignatureRequest("PUT", f"{presigned.scheme}://{presigned.netloc}{presigned.path}")
        region = store.options.region_of(store.options.session())
        signed = Signer(vendor, region, store.options.endpoint).sign(asked, "duckicelake", [folder])
        headers = {**signed.headers, "x-amz-copy-source": quote(f"/{bucket}/{parse_s3_location(source)[1]}")}
        answer = session.send(boto_requests.AWSRequest("PUT", signed.uri, headers, b"").prepare())
        if answer.status_code != 200:
            return False
        is_copy = store.size(probe) > 0
        store.delete(probe)
    return is_copy
