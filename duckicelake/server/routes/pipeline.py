"""Jobs of the pipeline: begin, renew, end, list. Iceberg knows nothing of these routes, so they aren't advertised."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from duckicelake.catalog import jobs
from duckicelake.catalog.commits import runs
from duckicelake.catalog.commits.runs import RunAnswer
from duckicelake.catalog.jobs import BeginJob, EndJob, JobAnswer, RenewJob
from duckicelake.server.context import AppContext, AppServices
from duckicelake.server.errors import RESPONSES
from duckicelake.server.limits.bodies import Body, takes
from duckicelake.server.own_routes import OwnRoute
from duckicelake.server.paths import NamespacePath, NamespaceQuery, PageQuery, TablePath
from duckicelake.server.validation import parse_body

PREFIX = "/pipeline/v1"
JOBS = "/namespaces/{namespace}/tables/{table}/jobs"

router = APIRouter(prefix=PREFIX, tags=["pipeline"], responses=RESPONSES, route_class=OwnRoute)


class JobList(BaseModel):
    """One page of jobs, newest first."""

    model_config = ConfigDict(frozen=True)

    jobs: tuple[JobAnswer, ...]
    next_page_token: str | None = Field(serialization_alias="next-page-token")


class RunList(BaseModel):
    """What was asked for of the runs of a table."""

    model_config = ConfigDict(frozen=True)

    runs: tuple[RunAnswer, ...]


@router.get("/jobs")
def list_jobs(
    services: AppServices,
    page: PageQuery,
    namespace: NamespaceQuery,
    table: Annotated[str | None, Query(description="of this table; takes a namespace, too")] = None,
    kind: Annotated[str | None, Query(description="of this kind, as ingest")] = None,
    run_id: Annotated[str | None, Query(alias="run-id", description="with this run id")] = None,
    result: Annotated[str | None, Query(description="running, done, unchanged, skipped, failed or lost")] = None,
) -> JobList:
    """List jobs on tables that the caller may read, newest first."""
    found = jobs.list_jobs(services, page, namespace=namespace, table=table, kind=kind, run_id=run_id, result=result)
    return JobList(jobs=found.items, next_page_token=found.next_token)


@router.get("/namespaces/{namespace}/tables/{table}/runs")
def find_runs(
    services: AppServices,
    namespace: NamespacePath,
    table: TablePath,
    run_id: Annotated[str, Query(alias="run-id", description="of this run")],
) -> RunList:
    """Tell what a run committed to a table last: one run, or none."""
    found = runs.find_run(services, namespace, table, run_id)
    return RunList(runs=() if found is None else (found,))


@router.post(JOBS, openapi_extra=takes(BeginJob))
def begin_job(services: AppServices, namespace: NamespacePath, table: TablePath, body: Body) -> JobAnswer:
    """Note that a job on a table begins, and take its lease; 409 names who holds it, and until when."""
    return jobs.begin_job(services, namespace, table, parse_body(BeginJob, body))


@router.post(f"{JOBS}/{{job}}", openapi_extra=takes(RenewJob))
def renew_job(services: AppServices, namespace: NamespacePath, table: TablePath, job: UUID, body: Body) -> JobAnswer:
    """Note that a job goes on and how far it is; 409 if it is over."""
    return jobs.renew_job(services, namespace, table, job, parse_body(RenewJob, body))


@router.post(f"{JOBS}/{{job}}/end", openapi_extra=takes(EndJob))
def end_job(
    context: AppContext, services: AppServices, namespace: NamespacePath, table: TablePath, job: UUID, body: Body
) -> JobAnswer:
    """Note what came of a job; 409 if it was over before."""
    ended = jobs.end_job(services, namespace, table, job, parse_body(EndJob, body))
    context.metrics.job_ended(ended.kind, ended.result)
    return ended
