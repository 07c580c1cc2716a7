"""Run a maintenance plan, several tables at a time, beside other writers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby, takewhile
from queue import SimpleQueue
from threading import Event
from typing import TYPE_CHECKING, Final

from duckicelake.errors import BadInputError, JobConflictError, LeaseLostError, MissingTableError, PipelineError
from duckicelake.maintenance.plan import MaintenanceState, Plan, parse_state, plan_jobs
from duckicelake.maintenance.policy import JOB_KINDS, PIPELINE_KINDS, check_overrides
from duckicelake.maintenance.task import TaskOutcome, UpkeepTask, format_counts
from duckicelake.pipeline.failures import explain_failure, is_conflict
from duckicelake.pipeline.job import PipelineJob, run_job
from duckicelake.pipeline.progress import Reporter
from duckicelake.pipeline.upkeep import attempt_job
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.names import format_name, parse_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAINTENANCE_LEASE: Final = "maintenance"
_PAGE_TABLES: Final = "10000"
_PAUSE_SECONDS: Final = (0.5, 2.0)
"""Seconds before a job that conflicted is tried again."""


@dataclass(frozen=True, slots=True)
class MaintainRequest:
    """What to keep in shape. namespace: and those below it; None: all. kinds: only these jobs; none: all.

    overrides: policies for this run, over those of the tables.
    """

    namespace: tuple[str, ...] | None = None
    table: str | None = None
    kinds: tuple[str, ...] = ()
    overrides: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """What came of one job: done, unchanged, skipped or failed; message: why, of the latter two."""

    kind: str
    table: str
    result: str
    why: str
    message: str | None = None
    snapshot_ids: tuple[int, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        notes = (format_counts(self.counts), self.message)
        return f"{self.kind} {self.table}: {self.result}" + "".join(f"; {note}" for note in notes if note)


def build_request(
    client: CatalogClient, what: str | None, kinds: Sequence[str], overrides: Mapping[str, str]
) -> MaintainRequest:
    """Return the request for a table, or if there is none for a namespace; None: for all tables.

    Raises MissingTableError, BadInputError.
    """
    check_overrides(overrides)
    if what is None:
        return MaintainRequest(None, None, tuple(kinds), overrides)
    *namespace, name = parse_name(what)
    if namespace and client.table_exists(tuple(namespace), name):
        return MaintainRequest(tuple(namespace), name, tuple(kinds), overrides)
    if not client.namespace_exists((*namespace, name)):
        raise MissingTableError(f"there is neither a table nor a namespace {what}")
    return MaintainRequest((*namespace, name), None, tuple(kinds), overrides)


def build_plan(client: CatalogClient, request: MaintainRequest, now_ms: int) -> Plan:
    """Return the jobs that the tables need now, by the catalog's statistics alone.

    Raises MissingTableError, BadInputError.
    """
    for kind in set(request.kinds) & (set(JOB_KINDS) - set(PIPELINE_KINDS)):
        raise BadInputError(f"the pipeline has no job {kind}: run `duckicelake upkeep run --only {kind}`")
    return plan_jobs(read_states(client, request), now_ms, request.kinds or PIPELINE_KINDS)


def read_states(client: CatalogClient, request: MaintainRequest) -> Iterator[MaintenanceState]:
    """Yield the catalog's statistics of the request's tables."""
    query = {"pageSize": _PAGE_TABLES}
    if request.namespace is not None:
        query["namespace"] = "\x1f".join(request.namespace)
    if request.table is not None:
        query["table"] = request.table
    for page in client.pages(client.own("pipeline", "tables"), query):
        for item in page["tables"]:
            yield parse_state({**item, "policies": {**item["policies"], **request.overrides}})


def run_plan(
    spark: SparkSession | None, client: CatalogClient, planned: Plan, reporter: Reporter, parallel: int = 1
) -> tuple[FinishedJob, ...]:
    """Run a plan's jobs: of one table one after the other, of several tables at the same time.

    spark: may be None if the plan `needs_spark` not.
    """
    stopped = Event()
    tables = [tuple(jobs) for _, jobs in groupby(planned.jobs, key=lambda job: (job.namespace, job.table))]
    ended: SimpleQueue[FinishedJob] = SimpleQueue()
    reporter.begin("maintenance", len(planned.jobs), "jobs")
    done = []
    with ThreadPoolExecutor(parallel) as pool:
        for jobs in tables:
            pool.submit(_run_table_jobs, spark, client, jobs, ended, stopped)
        try:
            for _ in planned.jobs:
                done.append(ended.get())
                reporter.say(str(done[-1]))
                reporter.advance()
        except BaseException:
            stopped.set()
            if spark is not None:
                spark.sparkContext.cancelAllJobs()
            raise
    reporter.done()
    return tuple(done)


def _run_table_jobs(
    spark: SparkSession | None,
    client: CatalogClient,
    jobs: Sequence[UpkeepTask],
    ended: SimpleQueue[FinishedJob],
    stopped: Event,
) -> None:
    """Run all jobs of one table until the run is stopped; report each once, whatever its result."""
    for job in takewhile(lambda _: not stopped.is_set(), jobs):
        try:
            ended.put(_run_job(spark, client, job))
        except JobConflictError as error:
            ended.put(_build_unrun_job(job, "skipped", str(error)))
        except PipelineError as error:
            ended.put(_build_unrun_job(job, "failed", str(error)))
        except BaseException as error:  # noqa: BLE001 - the thread that waits for the others must hear of it
            failure = explain_failure(error)
            ended.put(_build_unrun_job(job, "failed", str(failure) if failure else f"{type(error).__name__}: {error}"))


def _build_unrun_job(job: UpkeepTask, result: str, message: str) -> FinishedJob:
    return FinishedJob(
        job.kind, format_name(job.namespace, job.table), result, job.why, " ".join(message.split())[:600]
    )


def _run_job(spark: SparkSession | None, client: CatalogClient, planned: UpkeepTask) -> FinishedJob:
    with run_job(
        client, planned.kind, planned.namespace, planned.table, lease=MAINTENANCE_LEASE, parameters=planned.parameters
    ) as job:
        outcome = _run_attempts(spark, client, planned, job)
        job.ends(outcome.result, outcome.message, snapshot_ids=outcome.snapshot_ids, **outcome.counts)
    name = format_name(planned.namespace, planned.table)
    return FinishedJob(
        planned.kind, name, outcome.result, planned.why, outcome.message, outcome.snapshot_ids, outcome.counts
    )


def _run_attempts(
    spark: SparkSession | None, client: CatalogClient, planned: UpkeepTask, job: PipelineJob
) -> TaskOutcome:
    for pause in (*_PAUSE_SECONDS, None):
        job.check()
        try:
            return attempt_job(spark, client, planned, job)
        except LeaseLostError:
            raise
        except Exception as error:
            if not is_conflict(error):
                raise
        if pause is not None:
            time.sleep(pause)
    return TaskOutcome(
        "skipped", f"others changed the same files each of {len(_PAUSE_SECONDS) + 1} times; the next run tries again"
    )
