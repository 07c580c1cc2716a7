"""The routes of the record of loaded files: claim a batch, end it, list files."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from duckicelake.catalog.context.privileges import Privilege
from duckicelake.file_import import file_record
from duckicelake.file_import.file_record import FileClaim, RecordedFile, SourceFileKey
from duckicelake.iceberg.model import Long, SpecModel
from duckicelake.server.auth.permissions import READ, WRITE, InPath, Need
from duckicelake.server.hooks import FeatureRoutes
from duckicelake.server.http.errors import RESPONSES, parse_body
from duckicelake.server.http.route import StrictRequest, StrictRoute
from duckicelake.server.routes.dependencies import (
    AppServices,
    Body,
    NamespacePath,
    PageQuery,
    TablePath,
    describe_body,
)

_FILES_PATH: Final = "/pipeline/v1/namespaces/{namespace}/tables/{table}/files"
_BATCHES_PATH: Final = "/pipeline/v1/namespaces/{namespace}/tables/{table}/file-batches"
_BATCH_PATH: Final = f"{_BATCHES_PATH}/{{batch}}"
_MAX_FILES: Final = 5000
State = Literal["claimed", "loaded", "loading", "failed"]
RunId = Annotated[str, Field(min_length=1, max_length=200)]
router = APIRouter(tags=["loaded files"], responses=RESPONSES, route_class=StrictRoute)


class ClaimedFile(StrictRequest):
    """A file to load. version: its ETag, or the time of its last change."""

    name: Annotated[str, Field(min_length=1, max_length=10_000)]
    size: Annotated[int, Field(ge=0, lt=2**63)]
    version: Annotated[str, Field(max_length=1000)]


class ClaimFilesRequest(StrictRequest):
    """Files that a batch would load. run_id: of the load that commits it. again: also those that had errors."""

    run_id: RunId
    files: Annotated[tuple[ClaimedFile, ...], Field(min_length=1, max_length=_MAX_FILES)]
    again: bool = False


class FileClaimAnswer(SpecModel):
    """What became of a file.

    state: claimed by this batch; else loaded, failed with `error`, or loading by another. is_unfinished: a loader was
    killed behind the commit of `run_id`, which is to be run again.
    """

    state: State
    run_id: str
    error: str | None = None
    is_unfinished: bool = False


class FileClaims(SpecModel):
    """What became of each file, in the order of the request."""

    files: tuple[FileClaimAnswer, ...]


class EndBatchRequest(StrictRequest):
    """The end of a batch. error: why its files can't be loaded; none: they are free again unless it is committed."""

    error: Annotated[str, Field(min_length=1, max_length=10_000)] | None = None


class BatchAnswer(SpecModel):
    """A batch that has ended. state: ended if it is committed, else void."""

    run_id: str
    state: str


class LoadedFile(SpecModel):
    """A file of the record. snapshot_id: Iceberg's, that has its rows."""

    name: str
    size: Long
    version: str
    state: State
    run_id: str
    noted: datetime
    error: str | None = None
    snapshot_id: Long | None = None


class LoadedFileList(SpecModel):
    """One page of files, the last ones first."""

    files: tuple[LoadedFile, ...]
    next_page_token: str | None = None


@router.get(_FILES_PATH, response_model_exclude_none=True)
def list_loaded_files(
    services: AppServices,
    namespace: NamespacePath,
    table: TablePath,
    page: PageQuery,
    run_id: Annotated[str | None, Query(alias="run-id", description="of this batch")] = None,
    state: Annotated[Literal["loaded", "loading", "failed"] | None, Query(description="in this state")] = None,
) -> LoadedFileList:
    """List the files that `duckicelake watch` has loaded into a table, or could not load, and why."""
    found = file_record.list_files(services, namespace, table, page, run_id=run_id, state=state)
    return LoadedFileList(files=tuple(map(_describe, found.items)), next_page_token=found.next_token)


@router.post(_BATCHES_PATH, openapi_extra=describe_body(ClaimFilesRequest), response_model_exclude_none=True)
def claim_files(services: AppServices, namespace: NamespacePath, table: TablePath, body: Body) -> FileClaims:
    """Claim files for a batch, so that no other loads them; the commit of its run makes them loaded."""
    request = parse_body(ClaimFilesRequest, body)
    files = [SourceFileKey(file.name, file.size, file.version) for file in request.files]
    found = file_record.claim_files(services, namespace, table, request.run_id, files, again=request.again)
    return FileClaims(files=tuple(map(_answer, found)))


@router.post(_BATCH_PATH, openapi_extra=describe_body(EndBatchRequest))
def end_file_batch(
    services: AppServices, namespace: NamespacePath, table: TablePath, batch: str, body: Body
) -> BatchAnswer:
    """End a batch; one that isn't committed can't be any more."""
    request = parse_body(EndBatchRequest, body)
    state = file_record.end_batch(services, namespace, table, batch, request.error)
    return BatchAnswer(run_id=batch, state=state)


def _answer(claim: FileClaim) -> FileClaimAnswer:
    return FileClaimAnswer(state=claim.state, run_id=claim.run_id, error=claim.error, is_unfinished=claim.is_unfinished)


def _describe(row: RecordedFile) -> LoadedFile:
    return LoadedFile(
        name=row.file.name,
        size=row.file.size,
        version=row.file.version,
        state=row.state,
        run_id=row.run_id,
        noted=row.noted,
        error=row.error,
        snapshot_id=row.snapshot_id,
    )


_WRITER: Final = InPath((WRITE,), Privilege.INSERT)
_NEEDS: Final[Mapping[tuple[str, str], Need]] = {
    ("GET", _FILES_PATH): InPath((READ, WRITE), Privilege.INSERT | Privilege.SELECT),
    ("POST", _BATCHES_PATH): _WRITER,
    ("POST", _BATCH_PATH): _WRITER,
}
ROUTES: Final = FeatureRoutes((router,), _NEEDS, (ClaimFilesRequest, EndBatchRequest))
