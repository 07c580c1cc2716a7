"""Tries out what clients are given on S3: keys that reach what they should and no more, and signatures that hold."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Final
from urllib.parse import quote, urlsplit
from uuid import uuid4

from botocore.awsrequest import AWSRequest
from botocore.httpsession import URLLib3Session

from duckicelake.errors import CatalogError, StoreDenied
from duckicelake.storage.s3 import S3Store, s3_address
from duckicelake.storage.s3_errors import translated
from duckicelake.storage.s3_examination import Tried
from duckicelake.storage.s3_requests import Asked
from duckicelake.storage.session_policy import folder_at
from duckicelake.storage.signing import Signer
from duckicelake.storage.vending import Keys, Vendor

_REFUSED: Final = (
    "let the server's key assume the role (sts:AssumeRole; DUCKICELAKE_S3_ROLE_ARN, _EXTERNAL_ID) for as long as "
    "DUCKICELAKE_S3_VENDING_SECONDS, correct DUCKICELAKE_S3_STS_ENDPOINT, or set DUCKICELAKE_S3_VENDING to none"
)
_USELESS: Final = "let the role get, put, delete and list objects in the warehouse; a session policy only takes away"
_TOO_WIDE: Final = (
    "this store ignores session policies, so that clients' keys would open every table: "
    "set DUCKICELAKE_S3_VENDING to none"
)


def try_vending(store: S3Store, vendor: Vendor) -> Tried:
    """Get keys for a folder of the warehouse, and use them inside and outside of it."""
    root = f"{store.root}/.duckicelake-doctor-{uuid4()}"
    folder = folder_at(f"{root}/in", is_writable=True)
    if folder is None:
        return Tried(f"{store.root} can't be named in a policy", "choose a warehouse without *, ? and $ in its name")
    try:
        vending = vendor.vend("duckicelake-doctor", [folder])
    except CatalogError as error:
        cause = error.__cause__
        return Tried(str(error) if cause is None else f"{error} ({cause})", _REFUSED)
    outside = f"{root}/in2/file"
    try:
        store.write(outside, b"1")
        with _opened(store, vending.vended[0].keys) as client:
            return _tried(client, f"{root}/in/file", outside)
    finally:
        store.delete(outside)


def _tried(client: S3Store, inside: str, outside: str) -> Tried:
    try:
        client.write(inside, b"1")
        client.read(inside)
        client.delete(inside)
    except CatalogError as error:
        return Tried(f"clients' keys don't work: {error}", _USELESS)
    bucket, key = s3_address(outside)
    acts: dict[str, Callable[[], object]] = {
        "read": lambda: client.read(outside),
        "overwrite": lambda: client.client.put_object(Bucket=bucket, Key=key, Body=b"2"),
        "delete": lambda: client.delete(outside),
    }
    for name, act in acts.items():
        if not _is_denied(act, outside):
            return Tried(f"keys for {inside} also {name} {outside}", _TOO_WIDE)
    return Tried("STS gives keys for clients that reach one table and nothing else")


def _is_denied(act: Callable[[], object], location: str) -> bool:
    try:
        with translated(location):
            act()
    except StoreDenied:
        return True
    return False


@contextmanager
def _opened(store: S3Store, keys: Keys) -> Iterator[S3Store]:
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
    """Whether a client could turn a signed upload into a copy of what it may not read, by a header that isn't signed.

    Amazon's S3 refuses such requests. Tried on small files of the warehouse, with the vendor's keys. Raises
    Unavailable.
    """
    store.check()
    source, probe = f"{store.root}/.duckicelake", f"{store.root}/.duckicelake-signing-{uuid4()}"
    folder = folder_at(store.root, is_writable=True)
    if folder is None:
        return False
    bucket, key = s3_address(probe)
    with translated(probe, store.options.endpoint), closing(URLLib3Session()) as session:
        presigned = urlsplit(store.client.generate_presigned_url("put_object", {"Bucket": bucket, "Key": key}))
        asked = Asked("PUT", f"{presigned.scheme}://{presigned.netloc}{presigned.path}")
        region = store.options.region_of(store.options.session())
        signed = Signer(vendor, region, store.options.endpoint).sign(asked, "duckicelake", [folder])
        headers = {**signed.headers, "x-amz-copy-source": quote(f"/{bucket}/{s3_address(source)[1]}")}
        answer = session.send(AWSRequest("PUT", signed.uri, headers, b"").prepare())
        if answer.status_code != 200:
            return False
        is_copy = store.size(probe) > 0
        store.delete(probe)
    return is_copy
