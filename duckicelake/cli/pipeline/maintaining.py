"""`duckicelake pipeline maintain`: what tables need, and doing it."""

import time
from collections import Counter
from dataclasses import asdict
from typing import Annotated

import typer

from duckicelake.cli.pipeline.app import command
from duckicelake.cli.pipeline.run import Run, Summary
from duckicelake.pipeline.maintain import JobDone, maintain, plan_of, request_of
from duckicelake.pipeline.pairs import pairs
from duckicelake.pipeline.plan import KINDS, Plan
from duckicelake.rest.names import shown

_NOTHING = "nothing to do"


@command(
    "duckicelake pipeline maintain --dry-run",
    "duckicelake pipeline maintain sales --parallel 4",
    "duckicelake pipeline maintain sales.orders --only compact --policy maintenance.compaction.min-files=2 --json",
    name="maintain",
)
def maintaining(
    run: Run,
    what: Annotated[
        str | None, typer.Argument(help="A table, or a namespace with all below it (default: all tables).")
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="<property>=<value> that holds for this run; may be repeated.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help=f"Only this kind of job; may be repeated: {', '.join(KINDS)}.")
    ] = None,
    parallel: Annotated[int, typer.Option(min=1, help="How many tables at the same time.")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done, and why.")] = False,
) -> Summary:
    """Keep tables in shape: flush, sort, compact, pack, describe, expire, clean up, by the tables' own policies.

    What is to be done is decided from the catalog's statistics alone. Others may read and write meanwhile: a job that
    conflicts with them is tried again, and then skipped. Exits with 1 if a job failed or a table has a wrong policy.
    """
    request = request_of(run.client, what, only or (), pairs("--policy", policy, "maintenance.flush.min-rows=1"))
    planned = plan_of(run.client, request, time.time_ns() // 1_000_000)
    for problem in planned.problems:
        run.reporter.say(problem)
    done: tuple[JobDone, ...] = ()
    if dry_run:
        _tell_plan(run, planned)
    else:
        done = _done(run, planned, parallel)
        run.tell({"jobs": list(map(asdict, done)), "problems": planned.problems} if run.as_json else _counted(done))
        if not (done or run.as_json):
            typer.echo(_NOTHING)
    if planned.problems or any(job.result == "failed" for job in done):
        raise typer.Exit(1)
    return None


def _done(run: Run, planned: Plan, parallel: int) -> tuple[JobDone, ...]:
    if not planned.needs_spark:
        return maintain(None, run.client, planned, run.reporter, parallel) if planned.jobs else ()
    with run.spark() as spark:
        return maintain(spark, run.client, planned, run.reporter, parallel)


def _tell_plan(run: Run, planned: Plan) -> None:
    if run.as_json:
        jobs = [{"kind": job.kind, "table": shown(job.namespace, job.table), "why": job.why} for job in planned.jobs]
        run.tell({"jobs": jobs, "problems": planned.problems})
        return
    for job in planned.jobs:
        typer.echo(job)
    typer.echo(f"{len(planned.jobs)} jobs; this was a dry run" if planned.jobs else _NOTHING)


def _counted(done: tuple[JobDone, ...]) -> dict[str, int]:
    return dict(Counter(job.result for job in done))
