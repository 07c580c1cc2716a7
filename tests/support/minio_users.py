"""Users of a MinIO that reach one bucket alone, made by its administration API."""

import json
from dataclasses import dataclass, field
from os import urandom
from struct import pack
from typing import Any, Final
from uuid import uuid4

import httpx
from argon2.low_level import Type, hash_secret_raw
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from scripts.backends_job.minio import Minio
from tests.support.backends import Bucket

_ADMIN: Final = "/minio/admin/v3"


@dataclass(frozen=True, slots=True)
class MinioUser:
    """A user with rights on one bucket."""

    access_key: str
    secret_key: str = field(repr=False)


def add_user(bucket: Bucket) -> MinioUser:
    """Make a user that may do everything in the bucket, and nothing elsewhere."""
    user, minio = MinioUser(f"user-{uuid4().hex[:8]}", uuid4().hex), bucket.minio
    resources = [f"arn:aws:s3:::{bucket.name}", f"arn:aws:s3:::{bucket.name}/*"]
    statement = {"Effect": "Allow", "Action": ["s3:*"], "Resource": resources}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]}).encode()
    _put(minio, "add-canned-policy", {"name": user.access_key}, policy)
    account = json.dumps({"secretKey": user.secret_key, "status": "enabled"}).encode()
    _put(minio, "add-user", {"accessKey": user.access_key}, _encrypt(minio.secret_key, account))
    names = {"policyName": user.access_key, "userOrGroup": user.access_key, "isGroup": "false"}
    _put(minio, "set-user-or-group-policy", names, b"")
    return user


def _put(minio: Minio, action: str, query: dict[str, str], body: bytes) -> None:
    request: Any = AWSRequest("PUT", f"{minio.endpoint}{_ADMIN}/{action}", data=body, params=query)
    S3SigV4Auth(Credentials(minio.access_key, minio.secret_key), "s3", minio.region).add_auth(request)
    prepared = request.prepare()
    answer = httpx.put(prepared.url, content=body, headers=dict(prepared.headers))
    assert answer.status_code == 200, answer.text


def _encrypt(password: str, data: bytes) -> bytes:
    """Encrypt as MinIO's madmin does: Argon2id, then one last fragment of a stream of AES-256-GCM."""
    salt, nonce = urandom(32), urandom(8)
    key = hash_secret_raw(
        password.encode(), salt, time_cost=1, memory_cost=65536, parallelism=4, hash_len=32, type=Type.ID
    )
    cipher = AESGCM(key)
    head = cipher.encrypt(nonce + pack("<I", 0), b"", b"")
    return salt + b"\0" + nonce + cipher.encrypt(nonce + pack("<I", 1), data, b"\x80" + head)
