"""Routes of a lake's upkeep: the audit trail, what `doctor` finds, and files that no table needs."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Query, Response
from pydantic import AwareDatetime, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from duckicelake.catalog import gc, warehouse
from duckicelake.changelog.doctor import examine_folder, examine_lake
from duckicelake.iceberg.model import SpecModel
from duckicelake.lake.doctor.findings import CheckProgress, Finding, ReportProgress, report_nothing
from duckicelake.lake.side_tables.audit import AuditEntry, AuditFilter, check_resource, read_entries
from duckicelake.server.http.errors import RESPONSES, parse_body
from duckicelake.server.http.route import StrictRequest, StrictRoute
from duckicelake.server.http.scope import PREFIX
from duckicelake.server.routes.dependencies import AppContext, AppServices, Body, describe_body

router = APIRouter(prefix=PREFIX, tags=["upkeep"], responses=RESPONSES, route_class=StrictRoute)

MAX_ENTRIES: Final = 10_000
MAX_LISTED_ORPHANS: Final = 100_000
MAX_DELETED_ORPHANS: Final = 10_000
_JSON_LINES: Final = "application/x-ndjson"
_NO_STORE: Final = {"Cache-Control": "no-store"}
_LISTED_AGE: Final = timedelta(days=3)
"""Of files that are listed, where the request names no time."""


class AuditAnswer(SpecModel):
    """An entry of the audit trail. result: ok, unchanged, or an error's type and status."""

    id: int
    at: datetime
    principal: str
    address: str
    request_id: str
    operation: str
    resource: str
    result: str
    snapshot_id: int | None = None
    detail: Any = None
    client: Any = None


class AuditList(SpecModel):
    """Entries of the audit trail, the newest last."""

    entries: tuple[AuditAnswer, ...]


class DoctorFinding(SpecModel):
    """The outcome of one check. advice: what to do; empty where all is well."""

    name: str
    ok: bool
    detail: str
    advice: str


class DoctorReport(SpecModel):
    """What `duckicelake doctor` finds."""

    findings: tuple[DoctorFinding, ...]


class DoctorProgress(SpecModel):
    """A line of the examination as it goes: a check begins, or ends with what it found.

    seconds: since it began. done, total: of a check that looks for files.
    """

    check: str
    seconds: float
    findings: tuple[DoctorFinding, ...] | None = None
    done: int | None = None
    total: int | None = None


class OrphanFile(SpecModel):
    """A file that no table needs."""

    location: str
    bytes: int
    modified: datetime


class OrphanList(SpecModel):
    """Files that no table needs, by location.

    unlisted: how many more there are. doubt: why they may be another lake's; nothing is deleted then.
    """

    files: tuple[OrphanFile, ...]
    unlisted: int
    doubt: str | None = None


class DeleteOrphansRequest(StrictRequest):
    """Files of a list of orphans, to delete those of them that are orphans still."""

    older_than: AwareDatetime
    files: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=2000)], ...],
        Field(min_length=1, max_length=MAX_DELETED_ORPHANS),
    ]


class DeletedOrphans(SpecModel):
    """What was deleted, by location, and its bytes in all."""

    files: tuple[str, ...]
    bytes: int


@router.get("/audit")
def read_audit(
    services: AppServices,
    limit: Annotated[int, Query(ge=1, description=f"most entries, the newest, up to {MAX_ENTRIES}")] = 100,
    after: Annotated[int, Query(ge=0, lt=2**63, description="only entries after the one of this id")] = 0,
    before: Annotated[
        int | None, Query(ge=1, lt=2**63, description="only entries before the one of this id: the page before it")
    ] = None,
    since: Annotated[AwareDatetime | None, Query(description="not before this time")] = None,
    principal: Annotated[str | None, Query(description="by this one")] = None,
    resource: Annotated[str | None, Query(description="of this table or view, or of a namespace and all in it")] = None,
    operation: Annotated[str | None, Query(description="only this, as commit_table")] = None,
    result: Annotated[str | None, Query(description="ok, unchanged, or an error's type")] = None,
) -> AuditList:
    """List who asked for what, when, from where and with what result."""
    wanted = AuditFilter(after, since, principal, resource, operation, result, before)
    with services.database.reading() as cursor:
        found = read_entries(cursor, wanted, min(limit, MAX_ENTRIES))
        if not found and not after and before is None:
            check_resource(cursor, resource)
    return AuditList(entries=tuple(map(_describe_entry, found)))


@router.get(
    "/doctor",
    responses={
        200: {
            "model": DoctorReport,
            "content": {
                "application/x-ndjson": {
                    "schema": {"type": "string", "description": "a DoctorProgress on each line, then the DoctorReport"}
                }
            },
        }
    },
)
async def examine(
    context: AppContext,
    services: AppServices,
    files: Annotated[bool, Query(description="look for every data file in the store, too")] = True,
    accept: Annotated[str, Header()] = "*/*",
) -> Response:
    """Examine database, lake, tables and files, as `duckicelake doctor` does; the settings of S3 are left out.

    With `Accept: application/x-ndjson`, each check is a line when it begins and when it ends, and the last line is the
    report. The examination ends with the check that runs when the client goes away.
    """

    def examine_store() -> Iterator[Finding]:
        yield examine_folder(services)

    def run(report: ReportProgress) -> DoctorReport:
        found = examine_lake(
            services, examine_store, with_files=files, with_lineage=context.makes_lineage, report=report
        )
        return DoctorReport(findings=tuple(map(_describe_finding, found)))

    if _JSON_LINES in accept:
        return StreamingResponse(_stream_examination(run), headers=_NO_STORE, media_type=_JSON_LINES)
    made = await run_in_threadpool(run, report_nothing)
    return Response(made.model_dump_json(by_alias=True), media_type="application/json")


@router.get("/orphans")
def list_orphans(
    services: AppServices,
    older_than: Annotated[
        AwareDatetime | None,
        Query(alias="older-than", description="last written before this time; by default three days ago"),
    ] = None,
) -> OrphanList:
    """List files that no table needs: left by commits that failed and by processes that were killed."""
    before_ms = gc.check_age(older_than or datetime.now(UTC) - _LISTED_AGE)
    standing = warehouse.look(services)
    found = sorted(gc.find_orphans(services, before_ms), key=lambda file: file.location)
    return OrphanList(
        files=tuple(
            OrphanFile(
                location=file.location,
                bytes=file.size,
                modified=datetime.fromtimestamp(file.modified_ms / 1000, UTC),
            )
            for file in found[:MAX_LISTED_ORPHANS]
        ),
        unlisted=max(0, len(found) - MAX_LISTED_ORPHANS),
        doubt=standing.refusal or standing.doubt,
    )


@router.delete("/orphans", openapi_extra=describe_body(DeleteOrphansRequest))
def delete_orphans(services: AppServices, body: Body) -> DeletedOrphans:
    """Delete files of a list of orphans, as far as no table needs them now. All others stay."""
    request = parse_body(DeleteOrphansRequest, body)
    gone = gc.delete_listed_orphans(services, request.files, gc.check_age(request.older_than))
    return DeletedOrphans(files=tuple(file.location for file in gone), bytes=sum(file.size for file in gone))


def _describe_entry(entry: AuditEntry) -> AuditAnswer:
    assert entry.id is not None
    return AuditAnswer(
        id=entry.id,
        at=entry.at,
        principal=entry.principal,
        address=entry.address,
        request_id=entry.request_id,
        operation=entry.operation,
        resource=entry.resource,
        result=entry.result,
        snapshot_id=entry.snapshot_id,
        detail=entry.detail,
        client=entry.client,
    )


def _describe_finding(found: Finding) -> DoctorFinding:
    return DoctorFinding(name=found.name, ok=found.ok, detail=found.detail, advice=found.advice)


async def _stream_examination(run: Callable[[ReportProgress], DoctorReport]) -> AsyncIterator[bytes]:
    """Yield a line of JSON for each report of an examination in a thread, and at last what it returns.

    A client that reads slowly doesn't hold up the examination, and with it a transaction.
    """
    loop, lines, is_gone = asyncio.get_running_loop(), asyncio.Queue[SpecModel | None](), threading.Event()

    def put(line: SpecModel | None) -> None:
        loop.call_soon_threadsafe(lines.put_nowait, line)

    def report(progress: CheckProgress) -> None:
        if is_gone.is_set():
            raise _ClientGoneError
        put(_describe_progress(progress))

    def examine_all() -> None:
        try:
            put(run(report))
        except _ClientGoneError:
            return
        finally:
            put(None)

    examination = asyncio.ensure_future(run_in_threadpool(examine_all))
    try:
        while (line := await lines.get()) is not None:
            yield line.model_dump_json(by_alias=True, exclude_none=True).encode() + b"\n"
        await examination
    finally:
        is_gone.set()


class _ClientGoneError(Exception):
    """The client of an examination has gone away."""


def _describe_progress(progress: CheckProgress) -> DoctorProgress:
    found = None if progress.findings is None else tuple(map(_describe_finding, progress.findings))
    return DoctorProgress(
        check=progress.check,
        seconds=round(progress.seconds, 3),
        findings=found,
        done=progress.done,
        total=progress.total,
    )
