"""Tries out what the server needs of S3: to list, write, read and delete, and to write only where nothing is."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from duckicelake.errors import AlreadyExists, CatalogError, StoreDenied, Unavailable
from duckicelake.storage.s3 import S3Store, s3_address
from duckicelake.storage.s3_errors import translated

_LISTING: Final = "allow s3:ListBucket on the bucket: without it, a missing file looks like one that is forbidden"
_DENIED: Final = "allow s3:GetObject, s3:PutObject and s3:DeleteObject on everything there, or correct the server's key"
_SILENT: Final = "start the store, make the bucket, or correct DUCKICELAKE_S3_ENDPOINT, _REGION and _PATH_STYLE"


@dataclass(frozen=True, slots=True)
class Tried:
    """What was found out; `advice` is empty where all works."""

    detail: str
    advice: str = ""


def try_warehouse(store: S3Store) -> Tried:
    """Do at the store's root all that a server does."""
    listed = try_listing(store, store.root)
    if listed.advice:
        return listed
    try:
        conditions = _written_and_deleted(store, f"{store.root}/.duckicelake-doctor-{uuid4()}")
    except CatalogError as error:
        return _failed(error, _DENIED)
    return Tried(f"{store.root} is readable and writable, lists its files and {conditions}")


def try_listing(store: S3Store, root: str) -> Tried:
    """Whether files can be looked for below a location."""
    bucket, prefix = s3_address(f"{root}/x")
    try:
        with translated(root, store.options.endpoint):
            store.client.list_objects_v2(Bucket=bucket, Prefix=prefix.removesuffix("x"), MaxKeys=1)
    except CatalogError as error:
        return _failed(error, _LISTING)
    return Tried(f"{root} lists its files")


def _written_and_deleted(store: S3Store, location: str) -> str:
    """What becomes of a write where a file is: any way is fine, as a name never means two contents."""
    try:
        store.write(location, b"12345")
        if store.read(location) != b"12345":
            raise Unavailable(f"{location} isn't read as it was written")
        with suppress(AlreadyExists):
            store.write(location, b"123456")
            return "ignores the condition of a write (If-None-Match)"
    finally:
        store.delete(location)
    return (
        "takes conditional writes" if store.knows_conditions else "refuses conditional writes, so is looked at before"
    )


def _failed(error: CatalogError, advice: str) -> Tried:
    return Tried(str(error), advice if isinstance(error, StoreDenied) else _SILENT)
