"""`duckicelake pipeline jobs`, `maintain` and `optimize`: list jobs; rewrite and clean up tables."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from duckicelake.cli.console import terminal
from duckicelake.cli.pipeline.app import command
from duckicelake.cli.pipeline.run import PipelineRun, Summary
from duckicelake.errors import format_count
from duckicelake.maintenance.policy import PIPELINE_KINDS
from duckicelake.rest.names import format_name, parse_name, parse_table

if TYPE_CHECKING:
    from duckicelake.maintenance.plan import Plan
    from duckicelake.pipeline.maintenance import FinishedJob


class JobResultOption(StrEnum):
    """The result of a job, or that it still runs."""

    RUNNING = "running"
    DONE = "done"
    UNCHANGED = "unchanged"
    SKIPPED = "skipped"
    FAILED = "failed"
    LOST = "lost"


@command("duckicelake pipeline jobs", "duckicelake pipeline jobs --table ns.t --result failed --json")
def jobs(
    run: PipelineRun,
    table: Annotated[str | None, typer.Option(help="Jobs of this table, as ns.t.")] = None,
    namespace: Annotated[str | None, typer.Option(help="Jobs of tables in this namespace.")] = None,
    kind: Annotated[str | None, typer.Option(help="Jobs of this kind, as ingest or compact.")] = None,
    result: Annotated[
        JobResultOption | None, typer.Option(help="Jobs with this result; lost: the job was probably killed.")
    ] = None,
    run_id: Annotated[str | None, typer.Option(help="Jobs with this run id.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Max jobs to list, the newest.")] = 20,
) -> Summary:
    """List jobs of the pipeline on tables that you may read, the newest first."""
    wanted = {"kind": kind, "result": result, "run_id": run_id} | _build_scope(table, namespace)
    found = list(islice(run.client.jobs(**{name: value for name, value in wanted.items() if value}), limit))
    if run.as_json:
        return {"jobs": found}
    _print_jobs(found)
    return None


def _build_scope(table: str | None, namespace: str | None) -> dict[str, str]:
    if table is not None:
        levels, name = parse_table(table)
        return {"namespace": "\x1f".join(levels), "table": name}
    return {} if namespace is None else {"namespace": "\x1f".join(parse_name(namespace))}


def _print_jobs(jobs: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("began (UTC)", "took", "what", "table", "result", "who", "snapshots", "counts", "message"):
        table.add_column(column, justify="right" if column == "took" else "left", overflow="fold")
    for job in jobs:
        table.add_row(*map(terminal.make_printable, _build_row(job)))
    terminal.print_renderable(table)


def _build_row(job: dict[str, Any]) -> tuple[str, ...]:
    began = datetime.fromisoformat(job["started"])
    ended = datetime.fromisoformat(job["ended"]) if job["ended"] else None
    return (
        f"{began:%Y-%m-%d %H:%M:%S}",
        f"{(ended - began).total_seconds():.1f} s" if ended else "",
        job["kind"],
        format_name(tuple(job["namespace"]), job["table"]),
        job["result"],
        job["principal"],
        " ".join(map(str, job["snapshot-ids"])),
        ", ".join(f"{name} {value}" for name, value in job["counts"].items()),
        job["message"] or "",
    )


_NOTHING_TO_DO = "nothing to do"


@command(
    "duckicelake pipeline maintain --dry-run",
    "duckicelake pipeline maintain sales --parallel 4",
    "duckicelake pipeline maintain sales.orders --only compact --policy maintenance.compaction.min-files=2 --json",
    name="maintain",
)
def maintain_tables(
    run: PipelineRun,
    what: Annotated[
        str | None, typer.Argument(help="A table, or a namespace with all below it (default: all tables).")
    ] = None,
    policy: Annotated[list[str] | None, typer.Option(help="<property>=<value> for this run; may be repeated.")] = None,
    only: Annotated[
        list[str] | None, typer.Option(help=f"Only this job; may be repeated: {', '.join(PIPELINE_KINDS)}.")
    ] = None,
    parallel: Annotated[int, typer.Option(min=1, help="Max tables maintained at the same time.")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be done, and why.")] = False,
) -> Summary:
    """Keep tables in shape: flush, sort, compact, pack, describe, expire, clean up, by the tables' own policies.

    The catalog's statistics alone decide what is to be done. Clients may read and write meanwhile: a job that conflicts
    with a commit is retried, and then skipped. Exits with 1 if a job failed or a table has an invalid policy.
    """
    from duckicelake.pipeline.maintenance import build_plan, build_request
    from duckicelake.pipeline.sources import parse_pairs

    request = build_request(
        run.client, what, only or (), parse_pairs("--policy", policy, "maintenance.flush.min-rows=1")
    )
    planned = build_plan(run.client, request, time.time_ns() // 1_000_000)
    for problem in planned.problems:
        run.reporter.say(problem)
    done: tuple[FinishedJob, ...] = ()
    if dry_run:
        _print_plan(run, planned)
    else:
        done = _run_jobs(run, planned, parallel)
        run.print_summary(
            {"jobs": list(map(asdict, done)), "problems": planned.problems} if run.as_json else _count_results(done)
        )
        if not (done or run.as_json):
            typer.echo(_NOTHING_TO_DO)
    if planned.problems or any(job.result == "failed" for job in done):
        raise typer.Exit(1)
    return None


def _run_jobs(run: PipelineRun, planned: Plan, parallel: int) -> tuple[FinishedJob, ...]:
    from duckicelake.pipeline.maintenance import run_plan

    if not planned.needs_spark:
        return run_plan(None, run.client, planned, run.reporter, parallel) if planned.jobs else ()
    with run.spark() as spark:
        return run_plan(spark, run.client, planned, run.reporter, parallel)


def _print_plan(run: PipelineRun, planned: Plan) -> None:
    from duckicelake.rest.names import format_name

    if run.as_json:
        jobs = [
            {"kind": job.kind, "table": format_name(job.namespace, job.table), "why": job.why} for job in planned.jobs
        ]
        run.print_summary({"jobs": jobs, "problems": planned.problems})
        return
    for job in planned.jobs:
        typer.echo(job)
    typer.echo(f"{format_count(len(planned.jobs), 'job')}; this was a dry run" if planned.jobs else _NOTHING_TO_DO)


def _count_results(done: tuple[FinishedJob, ...]) -> dict[str, int]:
    return dict(Counter(job.result for job in done))


@command(
    "duckicelake pipeline optimize sales.orders",
    "duckicelake pipeline optimize sales.orders --zorder-by day,customer",
    "duckicelake pipeline optimize sales.orders --sort-by 'day DESC, id' --where \"day >= DATE '2026-01-01'\"",
)
def optimize(
    run: PipelineRun,
    table: Annotated[str, typer.Argument(help="The table, as ns.t.")],
    where: Annotated[
        str | None, typer.Option(help="Condition in Spark's SQL: rewrite only files that may hold such rows.")
    ] = None,
    zorder_by: Annotated[
        str | None, typer.Option(help="Columns, as day,customer: cluster rows that are near in all of them.")
    ] = None,
    sort_by: Annotated[str | None, typer.Option(help="Sort order within files instead, as 'day DESC, id'.")] = None,
    target_mb: Annotated[
        int | None, typer.Option(min=1, help="Size of files (default: the table's `write.target-file-size-bytes`).")
    ] = None,
) -> Summary:
    """Rewrite a table's small files, and those with deleted rows, into few large ones; with a sort order, all files.

    Rows, row ids and history stay. Clients may read and write meanwhile: a conflict is retried, then skipped. Exits
    with 1 if it failed.
    """
    from duckicelake.maintenance.plan import parse_order_options, plan_optimization
    from duckicelake.pipeline.maintenance import MaintainRequest, read_states, run_plan
    from duckicelake.rest.names import parse_table

    namespace, name = parse_table(table)
    states = read_states(run.client, MaintainRequest(namespace, name))
    planned = plan_optimization(
        states, table, parse_order_options(sort_by, zorder_by), where, target_mb and target_mb << 20
    )
    with run.spark() as spark:
        (done,) = run_plan(spark, run.client, planned, run.reporter)
    run.print_summary({"job": asdict(done)} if run.as_json else done.counts)
    if done.result == "failed":
        raise typer.Exit(1)
    return None
