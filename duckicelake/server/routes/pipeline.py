"""Routes of the pipeline: jobs, runs, statistics, orphans."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from duckicelake.catalog import jobs, maintenance
from duckicelake.catalog.commit import rules
from duckicelake.catalog.commit.rules import RunResult
from duckicelake.catalog.jobs import BeginJob, EndJob, JobAnswer, RenewJob
from duckicelake.catalog.maintenance import FindOrphans, TableStatistics
from duckicelake.catalog.upkeep_tasks import WatchedTable
from duckicelake.iceberg.model import SpecModel
from duckicelake.maintenance.plan import parse_state, plan_jobs
from duckicelake.maintenance.task import TaskEstimate, UpkeepTask
from duckicelake.server.http.errors import RESPONSES, parse_body
from duckicelake.server.http.route import StrictRoute
from duckicelake.server.routes.dependencies import (
    AppContext,
    AppServices,
    Body,
    NamespacePath,
    NamespaceQuery,
    PageQuery,
    TablePath,
    describe_body,
)

PREFIX = "/pipeline/v1"
JOBS = "/namespaces/{namespace}/tables/{table}/jobs"
job_router = APIRouter(prefix=PREFIX, tags=["pipeline"], responses=RESPONSES, route_class=StrictRoute)
maintenance_router = APIRouter(prefix="/pipeline/v1", tags=["pipeline"], responses=RESPONSES, route_class=StrictRoute)


class JobList(BaseModel):
    """One page of jobs, newest first."""

    model_config = ConfigDict(frozen=True)

    jobs: tuple[JobAnswer, ...]
    next_page_token: str | None = Field(serialization_alias="next-page-token")


class RunList(BaseModel):
    """What was asked for of the runs of a table."""

    model_config = ConfigDict(frozen=True)

    runs: tuple[RunResult, ...]


@job_router.get("/jobs")
def list_jobs(
    services: AppServices,
    page: PageQuery,
    namespace: NamespaceQuery,
    table: Annotated[str | None, Query(description="of this table; needs a namespace, too")] = None,
    kind: Annotated[str | None, Query(description="of this kind, as ingest")] = None,
    run_id: Annotated[str | None, Query(alias="run-id", description="with this run id")] = None,
    result: Annotated[str | None, Query(description="running, done, unchanged, skipped, failed or lost")] = None,
) -> JobList:
    """List jobs on tables that the caller may read, newest first."""
    found = jobs.list_jobs(services, page, namespace=namespace, table=table, kind=kind, run_id=run_id, result=result)
    return JobList(jobs=found.items, next_page_token=found.next_token)


@job_router.get("/namespaces/{namespace}/tables/{table}/runs")
def find_runs(
    services: AppServices,
    namespace: NamespacePath,
    table: TablePath,
    run_id: Annotated[str, Query(alias="run-id", description="of this run")],
) -> RunList:
    """Find what a run committed to a table last: one run, or none."""
    found = rules.find_run(services, namespace, table, run_id)
    return RunList(runs=() if found is None else (found,))


@job_router.post(JOBS, openapi_extra=describe_body(BeginJob))
def begin_job(services: AppServices, namespace: NamespacePath, table: TablePath, body: Body) -> JobAnswer:
    """Note that a job on a table begins, and take its lease; 409 names who holds it, and until when."""
    return jobs.begin_job(services, namespace, table, parse_body(BeginJob, body))


@job_router.post(f"{JOBS}/{{job}}", openapi_extra=describe_body(RenewJob))
def renew_job(services: AppServices, namespace: NamespacePath, table: TablePath, job: UUID, body: Body) -> JobAnswer:
    """Note that a job goes on and how far it is; 409 if it is over."""
    return jobs.renew_job(services, namespace, table, job, parse_body(RenewJob, body))


@job_router.post(f"{JOBS}/{{job}}/end", openapi_extra=describe_body(EndJob))
def end_job(
    context: AppContext, services: AppServices, namespace: NamespacePath, table: TablePath, job: UUID, body: Body
) -> JobAnswer:
    """Note what came of a job; 409 if it was over before."""
    ended = jobs.end_job(services, namespace, table, job, parse_body(EndJob, body))
    context.metrics.job_ended(ended.kind, ended.result)
    return ended


class StatisticsList(BaseModel):
    """One page of tables."""

    model_config = ConfigDict(frozen=True)

    tables: tuple[TableStatistics, ...]
    next_page_token: str | None = Field(serialization_alias="next-page-token")


class Orphans(BaseModel):
    """Locations of files that no table needs, as the request spells them."""

    model_config = ConfigDict(frozen=True)

    files: tuple[str, ...]


@maintenance_router.get("/tables")
def list_statistics(
    services: AppServices,
    page: PageQuery,
    namespace: NamespaceQuery,
    table: Annotated[str | None, Query(description="this one of the namespace")] = None,
) -> StatisticsList:
    """List tables that the caller may read, of a namespace and those below it, with what decides about their upkeep."""
    found = maintenance.table_statistics(services, page, namespace, table)
    return StatisticsList(tables=found.items, next_page_token=found.next_token)


class EstimateAnswer(SpecModel):
    """What a job costs, files and bytes that it reads, and gains: files saved, how much faster plans and scans are."""

    files_read: int
    bytes_read: int
    files_saved: int
    planning_speedup: float
    scan_speedup: float


class PlannedJobAnswer(SpecModel):
    """A job that a table needs now. kind: as `duckicelake pipeline maintain --only` has it. why: what makes it due.

    is_automatic: whether the lake does it by itself, by its policy `maintenance.automatic`. is_chosen: whether a
    request for all that is due has it done; expiry and the removal of orphans need a policy that was set, or their
    name, follow-delta and refresh their name. is_due: False of follow-delta and refresh alone, until something is to be
    done. source: what these two read. next: when such a job is due, tried again or looked for; none: now if it is due,
    else after a change. behind_seconds: for how long it has been due.
    """

    namespace: tuple[str, ...]
    table: str
    kind: str
    why: str
    estimate: EstimateAnswer
    is_automatic: bool
    is_chosen: bool
    is_due: bool = True
    source: str | None = None
    next: datetime | None = None
    behind_seconds: float | None = None


class PlanAnswer(SpecModel):
    """What maintenance would do now to one page of tables, and which of them are followed or refreshed.

    problems: why some tables get no jobs. tables: how many were examined.
    """

    jobs: tuple[PlannedJobAnswer, ...]
    problems: tuple[str, ...]
    tables: int
    next_page_token: str | None = None


@maintenance_router.get("/plan")
def plan_maintenance(
    services: AppServices,
    page: PageQuery,
    namespace: NamespaceQuery,
    table: Annotated[str | None, Query(description="this one of the namespace")] = None,
) -> PlanAnswer:
    """Plan what upkeep would do now to tables that the caller may read, and why; say which features look at them."""
    found = maintenance.table_statistics(services, page, namespace, table)
    plan = plan_jobs([parse_state(state.to_json()) for state in found.items], maintenance.read_now_ms(services))
    watched = maintenance.list_watched(services, [(state.namespace, state.table) for state in found.items])
    jobs = (*map(_answer_job, plan.jobs), *map(_answer_watched, watched))
    return PlanAnswer(jobs=jobs, problems=plan.problems, tables=len(found.items), next_page_token=found.next_token)


def _answer_job(job: UpkeepTask) -> PlannedJobAnswer:
    return PlannedJobAnswer(
        namespace=job.namespace,
        table=job.table,
        kind=job.kind,
        why=job.why,
        estimate=_answer_estimate(job.estimate),
        is_automatic=job.kind in job.policy.automatic,
        is_chosen=job.is_chosen,
    )


def _answer_watched(table: WatchedTable) -> PlannedJobAnswer:
    return PlannedJobAnswer(
        namespace=table.namespace,
        table=table.table,
        kind=table.kind,
        why=table.why,
        estimate=_answer_estimate(TaskEstimate()),
        is_automatic=True,
        is_chosen=False,
        is_due=table.is_due,
        source=table.source,
        next=table.next_at,
        behind_seconds=table.behind_seconds,
    )


def _answer_estimate(estimate: TaskEstimate) -> EstimateAnswer:
    return EstimateAnswer.model_validate(estimate.to_json())


@maintenance_router.post("/namespaces/{namespace}/tables/{table}/orphans", openapi_extra=describe_body(FindOrphans))
def find_orphans(services: AppServices, namespace: NamespacePath, table: TablePath, body: Body) -> Orphans:
    """Find which of these files below a table's location no table needs."""
    request = parse_body(FindOrphans, body)
    return Orphans(files=maintenance.find_orphans(services, namespace, table, request.files))
