"""Send a file to S3 in parts, and leave nothing of an upload that failed.

obstore aborts an upload while other parts are under way. One that arrives after the abort stays in the store, where no
listing of files shows it. Here an upload is aborted once all its requests have ended, and until the store has forgotten
it: a request that this client gave up may still be under way.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from duckicelake.extras import DeferredModule
from duckicelake.storage.bucket_store import PARALLEL_PARTS, ObjectContent, measure_content
from duckicelake.storage.threads import run_in_parallel

if TYPE_CHECKING:
    from botocore import exceptions as boto_errors
    from types_boto3_s3 import S3Client
    from types_boto3_s3.type_defs import CompletedPartTypeDef
else:
    boto_errors = DeferredModule("botocore.exceptions")

_MAX_ABORTS: Final = 3
_GONE: Final = "NoSuchUpload"


def send_in_parts(
    client: S3Client, place: tuple[str, str], content: ObjectContent, part_bytes: int, options: Mapping[str, Any]
) -> None:
    """Write a file in parts, each of which boto3 sends again if it fails. Raises botocore's errors.

    place: bucket and key. options: of `create_multipart_upload`.
    """
    bucket, key = place
    upload_id = client.create_multipart_upload(Bucket=bucket, Key=key, **options)["UploadId"]

    def send(number: int) -> CompletedPartTypeDef:
        data = _read_part(content, (number - 1) * part_bytes, part_bytes)
        sent = client.upload_part(Bucket=bucket, Key=key, UploadId=upload_id, PartNumber=number, Body=data)
        return {"PartNumber": number, "ETag": sent["ETag"]}

    count = -(-measure_content(content) // part_bytes)
    try:
        parts = run_in_parallel(send, range(1, count + 1), PARALLEL_PARTS)
        client.complete_multipart_upload(Bucket=bucket, Key=key, UploadId=upload_id, MultipartUpload={"Parts": parts})
    except BaseException:
        _abort(client, place, upload_id)
        raise


def _read_part(content: ObjectContent, start: int, length: int) -> bytes:
    if not isinstance(content, Path):
        return content[start : start + length]
    with content.open("rb") as file:
        file.seek(start)
        return file.read(length)


def _abort(client: S3Client, place: tuple[str, str], upload_id: str) -> None:
    """Abort an upload until the store has forgotten it. Errors of the store are passed over: one is raised already."""
    bucket, key = place
    with suppress(boto_errors.BotoCoreError):
        for _ in range(_MAX_ABORTS):
            try:
                client.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload_id)
            except boto_errors.ClientError as error:
                if error.response["Error"]["Code"] == _GONE:
                    return
