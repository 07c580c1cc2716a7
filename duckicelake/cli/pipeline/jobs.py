"""`duckicelake pipeline jobs`: list jobs that run, have ended, or were lost."""

from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any

import typer

from duckicelake.cli.console import terminal
from duckicelake.cli.pipeline.app import command
from duckicelake.cli.pipeline.run import PipelineRun, Summary
from duckicelake.rest.names import format_name, parse_name, parse_table


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
    _print(found)
    return None


def _build_scope(table: str | None, namespace: str | None) -> dict[str, str]:
    if table is not None:
        levels, name = parse_table(table)
        return {"namespace": "\x1f".join(levels), "table": name}
    return {} if namespace is None else {"namespace": "\x1f".join(parse_name(namespace))}


def _print(jobs: list[dict[str, Any]]) -> None:
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
