"""Jobs of the pipeline: begin, renew, end, list. Their rows hold the leases of tables."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, get_args
from uuid import UUID

import orjson
from pydantic import AfterValidator, Field

from duckicelake.catalog.context.page import ListPage, PageRequest, cut_page
from duckicelake.catalog.context.services import Services
from duckicelake.errors import InvalidRequestError, JobEndedError, JobHeldError, NoSuchJobError
from duckicelake.iceberg.identifiers import Namespace, format_full_name, parse_schema_name, to_schema_name
from duckicelake.iceberg.model import Long, SpecModel
from duckicelake.lake.side_tables import jobs
from duckicelake.lake.side_tables.jobs import Job, JobFilter, NewJob

Kind = Literal[
    "ingest",
    "stream",
    "changes",
    "import",
    "bench",
    "flush",
    "compact",
    "sort",
    "bloom-filters",
    "rewrite-deletes",
    "pack-manifests",
    "expire",
    "remove-orphans",
    "statistics",
    "refresh",
    "follow-delta",
]
Result = Literal["done", "unchanged", "skipped", "failed"]
KINDS: Final = frozenset(get_args(Kind))
RESULTS: Final = ("running", *get_args(Result), "lost")
"""A job, as clients see it."""

_FREQUENT_KINDS: Final = frozenset({"refresh", "follow-delta"})
"""Kinds that run as often as other tables change: each second, of thousands of tables."""
_KEPT_JOBS: Final = 10
"""Successful jobs of such a kind that a table keeps. What each of them wrote is among the table's snapshots."""

MAX_JSON_BYTES: Final = 64 * 1024
MOST_SNAPSHOTS: Final = 10_000
"""Of a job that requests and answers list."""


def _small(value: dict[str, Any]) -> dict[str, Any]:
    try:
        size = len(orjson.dumps(value))
    except orjson.JSONEncodeError as error:
        raise ValueError(f"can't be kept: {error}") from error
    if size > MAX_JSON_BYTES:
        raise ValueError(f"is larger than {MAX_JSON_BYTES} bytes")
    return value


Details = Annotated[dict[str, Any], AfterValidator(_small)]
Words = Annotated[str, Field(min_length=1, max_length=200)]
Seconds = Annotated[int, Field(ge=1, le=3600)]


class BeginJob(SpecModel):
    """A job that begins. id: chosen by the client, so that a request may be sent again. lease: what it alone may do.

    It is given up if it isn't renewed within `lease_seconds`. engine: what runs it, and where.
    """

    id: UUID
    kind: Kind
    run_id: Words | None = None
    lease: Words | None = None
    lease_seconds: Seconds = 60
    engine: Words
    parameters: Details = Field(default_factory=dict)


class RenewJob(SpecModel):
    """A job that goes on. counts: how far it is."""

    lease_seconds: Seconds = 60
    counts: Details = Field(default_factory=dict)


class EndJob(SpecModel):
    """A job that is over."""

    result: Result
    message: Annotated[str, Field(max_length=4000)] | None = None
    snapshot_ids: Annotated[tuple[Long, ...], Field(max_length=MOST_SNAPSHOTS)] = ()
    counts: Details = Field(default_factory=dict)


class JobAnswer(SpecModel):
    """A job in an answer of the server. result: also `running`, and `lost`: neither ended nor renewed in time."""

    id: UUID
    kind: str
    namespace: tuple[str, ...]
    table: str
    run_id: str | None = None
    lease: str | None = None
    principal: str
    engine: str
    parameters: dict[str, Any]
    started: datetime
    lease_until: datetime
    ended: datetime | None = None
    result: str
    message: str | None = None
    snapshot_ids: tuple[int, ...]
    counts: dict[str, Any]


def begin_job(services: Services, namespace: Namespace, table: str, request: BeginJob) -> JobAnswer:
    """Note that a job begins.

    Raises JobHeldError if another has its lease. The same job may begin again as long as it runs.
    """
    who = services.caller.principal.name
    new = NewJob(
        id=request.id,
        kind=request.kind,
        schema_name=to_schema_name(namespace),
        table_name=table,
        run_id=request.run_id,
        lease=request.lease,
        principal=who,
        engine=request.engine,
        parameters=request.parameters,
    )
    with services.database.transaction() as cursor:
        is_new = jobs.begin_job(cursor, new, request.lease_seconds)
        found = jobs.find_job(cursor, new.id, new.schema_name, table, who)
        if found is None:
            raise _build_held_error(jobs.find_lease_holder(cursor, new.schema_name, table, new.lease), namespace, table)
        if not is_new and found.ended is not None:
            raise JobEndedError(f"Job {new.id} has ended before ({found.result}): begin one with an id of its own")
    return _answer(found)


def renew_job(services: Services, namespace: Namespace, table: str, job_id: UUID, request: RenewJob) -> JobAnswer:
    """Note how far a job is; JobEndedError if it has ended or another has taken over, NoSuchJobError."""
    with services.database.transaction() as cursor:
        renewed = jobs.renew_lease(cursor, job_id, request.lease_seconds, request.counts)
        job = jobs.find_job(cursor, job_id, to_schema_name(namespace), table, services.caller.principal.name)
        if job is None:
            raise NoSuchJobError(f"No such job of yours on {format_full_name(namespace, table)}: {job_id}")
        if not renewed:
            raise JobEndedError(f"Job {job_id} is over ({job.result}): {job.message or 'it has ended'}")
    return _answer(job)


def end_job(
    services: Services,
    namespace: Namespace,
    table: str,
    job_id: UUID,
    request: EndJob,
    earlier_snapshots: Sequence[int] = (),
    parameters: Mapping[str, Any] = MappingProxyType({}),
) -> JobAnswer:
    """Note what came of a job, once or again; JobEndedError if something else did, NoSuchJobError.

    Kinds that run very often keep their last jobs alone, and follow-delta one of those that did nothing.

    earlier_snapshots: of a job of the server's own that made more than a request lists. Answers leave them out.
    parameters: what such a job turned out to be about, added to those with which it began.
    """
    snapshot_ids = (*earlier_snapshots, *request.snapshot_ids)
    with services.database.transaction() as cursor:
        ended = jobs.end_job(cursor, job_id, request.result, request.message, snapshot_ids, request.counts, parameters)
        job = jobs.find_job(cursor, job_id, to_schema_name(namespace), table, services.caller.principal.name)
        if job is None:
            raise NoSuchJobError(f"No such job of yours on {format_full_name(namespace, table)}: {job_id}")
        if not ended and (job.result, tuple(job.snapshot_ids)) != (request.result, snapshot_ids):
            raise JobEndedError(f"Job {job_id} is over ({job.result}): {job.message or 'it has ended'}")
        if job.kind in _FREQUENT_KINDS and request.result in {"done", "unchanged"}:
            jobs.thin_jobs(cursor, job, _KEPT_JOBS, keeps_unchanged=job.kind != "follow-delta")
    return _answer(job)


def list_jobs(
    services: Services,
    page: PageRequest,
    *,
    namespace: Namespace | None = None,
    table: str | None = None,
    kind: str | None = None,
    run_id: str | None = None,
    result: str | None = None,
) -> ListPage[JobAnswer]:
    """Return jobs on tables that the caller may read, newest first. InvalidRequestError."""
    _check("kind", kind, get_args(Kind))
    _check("result", result, RESULTS)
    if table is not None and namespace is None:
        raise InvalidRequestError("table is the name of one in a namespace: give that, too")
    reader = services.caller.principal
    at_most = reader.without_outside()
    wanted = JobFilter(
        before=page.after_number,
        schema_name=None if namespace is None else to_schema_name(namespace),
        table_name=table,
        kind=kind,
        run_id=run_id,
        result=result,
        visible=at_most.readable_schemas(),
        visible_tables=at_most.readable_objects(),
    )
    with services.database.reading() as cursor:
        found = jobs.list_jobs(cursor, wanted, page.fetch)
    shown = cut_page(found, page, lambda job: str(job.number))
    answers = [_answer(job) for job in shown.items]
    return ListPage(reader.filter_readable(answers, lambda job: (job.namespace, job.table)), shown.next_token)


def _check(name: str, value: str | None, known: Sequence[str]) -> None:
    if value is not None and value not in known:
        raise InvalidRequestError(f"{value!r} is no {name} of a job: there are {', '.join(known)}")


def _build_held_error(holder: jobs.LeaseHolder | None, namespace: Namespace, table: str) -> JobHeldError:
    name = format_full_name(namespace, table)
    if holder is None:
        return JobHeldError(f"The id of the new job on {name} is another job's: choose a random one")
    until = holder.lease_until.astimezone(UTC)
    return JobHeldError(
        f"{name} is held by job {holder.id} ({holder.kind} of {holder.principal}, {holder.engine}) "
        f"until {until:%Y-%m-%d %H:%M:%S} UTC, or longer if it goes on"
    )


def _answer(job: Job) -> JobAnswer:
    return JobAnswer(
        id=job.id,
        kind=job.kind,
        namespace=parse_schema_name(job.schema_name),
        table=job.table_name,
        run_id=job.run_id,
        lease=job.lease,
        principal=job.principal,
        engine=job.engine,
        parameters=dict(job.parameters),
        started=job.started,
        lease_until=job.lease_until,
        ended=job.ended,
        result=job.result,
        message=job.message,
        snapshot_ids=tuple(job.snapshot_ids[-MOST_SNAPSHOTS:]),
        counts=dict(job.counts),
    )
