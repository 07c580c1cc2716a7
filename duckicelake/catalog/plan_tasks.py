"""Plan tasks: tokens that name a part of a plan. Any server answers them, as they say all that there is to know.

A token grants nothing, so it has no secret: who sends it needs the same rights as for the plan. A long request is kept
in the catalog for a day, and the token has its hash.
"""

import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

import orjson
from pydantic import ValidationError

from duckicelake.errors import InvalidRequestError, NoSuchPlanTaskError, TooManyRequestsError
from duckicelake.iceberg.rest import PlanTableScanRequest
from duckicelake.lake.side_tables import scan
from duckicelake.postgres.database import Database

MAX_REQUEST_BYTES: Final = 8 << 20
"""Of a request to plan; a hundred thousand texts of 40 characters take five million."""
MAX_INLINE_BYTES: Final = 1_500
"""Of a packed request that is in each token."""
_MAX_TOKEN_BYTES: Final = 8_192
_VERSION: Final = 2
_CHECKSUM_BYTES: Final = 8
_BROKEN: Final = "No such plan task: it is cut, or none that this catalog gave; plan again"
_FORGOTTEN: Final = "No such plan task: its plan was made more than a day ago; plan again"


@dataclass(frozen=True, slots=True)
class PlanPart:
    """Files of a manifest: from one place to another, both included, of those that the filter may match.

    last: None stands for the last file. Such a part may have no file, as nothing of the manifest was read for the plan.
    """

    manifest_id: int
    first: int = 0
    last: int | None = None


@dataclass(frozen=True, slots=True)
class PlanTask:
    """A part of a plan.

    Attributes:
        table_uuid: The table whose snapshot is read.
        schema_id: The table's newest schema when it was planned: a column may be renamed before the task is fetched.
        body: The request to plan, as it was sent.

    """

    table_uuid: str
    snapshot_id: int
    schema_id: int
    part: PlanPart
    request: PlanTableScanRequest
    body: bytes


def encode_tasks(
    database: Database,
    table_uuid: str,
    snapshot_id: int,
    schema_id: int,
    parts: Collection[PlanPart],
    request: bytes,
) -> list[str]:
    """Encode parts of a plan as tokens, all different. request: the request to plan, as it was sent.

    Raises TooManyRequestsError if the catalog has no place for a long request.
    """
    if not parts:
        return []
    packed, hash_ = zlib.compress(request, 1), ""
    if len(packed) > MAX_INLINE_BYTES:
        packed, hash_ = b"", _keep(database, request, packed)
    tokens = []
    for part in parts:
        members = [_VERSION, table_uuid, snapshot_id, schema_id, part.manifest_id, part.first, part.last, hash_]
        data = orjson.dumps(members) + b"\n" + packed
        tokens.append(urlsafe_b64encode(sha256(data).digest()[:_CHECKSUM_BYTES] + data).decode())
    return tokens


def _keep(database: Database, request: bytes, packed: bytes) -> str:
    digest = sha256(request).digest()
    with database.statement() as cursor:
        if not scan.keep_request(cursor, digest, packed):
            raise TooManyRequestsError(
                "Too many long filters were sent today to plan scans of many files: shorten the filter, plan without "
                "the server (scan-planning-mode=client), or try again later"
            )
    return digest.hex()


def parse_task(database: Database, token: str) -> PlanTask:
    """Parse a token. Raises NoSuchPlanTaskError for one that this catalog didn't give, that was cut or is too old."""
    try:
        (uuid, snapshot_id, schema_id, part, digest), packed = _split(token)
    except (ValueError, TypeError) as error:
        raise NoSuchPlanTaskError(_BROKEN) from error
    body = _unpack(_find(database, digest) if digest else packed)
    try:
        request = PlanTableScanRequest.model_validate_json(body)
    except ValidationError as error:
        raise NoSuchPlanTaskError(_BROKEN) from error
    return PlanTask(uuid, snapshot_id, schema_id, part, request, body)


def _split(token: str) -> tuple[tuple[str, int, int, PlanPart, bytes], bytes]:
    """Return the members of a token, and its packed request; ValueError or TypeError for a broken one."""
    if len(token) > _MAX_TOKEN_BYTES:
        raise ValueError(len(token))
    data = urlsafe_b64decode(token.encode())
    if urlsafe_b64encode(data).decode() != token:
        raise ValueError(token)
    digest, data = data[:_CHECKSUM_BYTES], data[_CHECKSUM_BYTES:]
    if sha256(data).digest()[:_CHECKSUM_BYTES] != digest:
        raise ValueError(digest)
    line, _, packed = data.partition(b"\n")
    version, uuid, snapshot_id, schema_id, manifest_id, first, last, hash_ = orjson.loads(line)
    numbers = (version, snapshot_id, schema_id, manifest_id, first, 0 if last is None else last)
    if version != _VERSION or any(type(number) is not int for number in numbers):
        raise ValueError(line)
    return (str(uuid), snapshot_id, schema_id, PlanPart(manifest_id, first, last), bytes.fromhex(hash_)), packed


def _find(database: Database, digest: bytes) -> bytes:
    with database.statement(only_reads=True) as cursor:
        packed = scan.find_request(cursor, digest)
    if packed is None:
        raise NoSuchPlanTaskError(_FORGOTTEN)
    return packed


def _unpack(packed: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        body = unpacker.decompress(packed, MAX_REQUEST_BYTES)
    except zlib.error as error:
        raise NoSuchPlanTaskError(_BROKEN) from error
    if not unpacker.eof:
        raise NoSuchPlanTaskError(_BROKEN)
    return body


def check_size(request: bytes) -> None:
    """Check that a request to plan isn't too long. Raises InvalidRequestError."""
    if len(request) > MAX_REQUEST_BYTES:
        raise InvalidRequestError(
            f"A request to plan has up to {MAX_REQUEST_BYTES} bytes, not {len(request)}: shorten filter or select"
        )
