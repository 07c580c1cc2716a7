"""Tools that say what happened and what should be done: history, diff, lineage, jobs, maintenance_advice, doctor."""

import time
from dataclasses import asdict
from itertools import islice
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from duckicelake.cli.console.terminal import encode_object
from duckicelake.maintenance.plan import parse_state, plan_jobs
from duckicelake.mcp.tools.tool import (
    NameArgument,
    NamespaceArgument,
    Tool,
    ToolArguments,
    ToolContext,
    ToolResult,
)
from duckicelake.rest.names import format_name

_MAX_TABLES: Final = 5000


class HistoryArguments(ToolArguments):
    """Whose history to read."""

    name: Annotated[str, Field(max_length=1000, description="A table, view or namespace. Empty: the whole lake.")] = ""
    kind: Annotated[str | None, Field(max_length=100, description="Only changes of this kind, as append.")] = None
    since: Annotated[str | None, Field(max_length=50, description="A time in ISO form.")] = None
    until: Annotated[str | None, Field(max_length=50, description="A time in ISO form.")] = None
    limit: Annotated[int, Field(ge=1, le=500)] = 50


class ChangeList(ToolResult):
    """Changes, newest first, as the catalog's history has them."""

    changes: list[dict[str, Any]]
    has_more: bool


def read_history(context: ToolContext, arguments: HistoryArguments) -> ChangeList:
    """Read the newest changes."""
    kinds = arguments.kind.split(",") if arguments.kind else ()
    changes = context.lake.history(arguments.name, kinds=kinds, since=arguments.since, until=arguments.until)
    found = list(islice(changes, arguments.limit + 1))
    return ChangeList(changes=encode_object(found[: arguments.limit]), has_more=len(found) > arguments.limit)


class DiffArguments(ToolArguments):
    """Two states of a table."""

    name: NameArgument
    since: Annotated[
        str | None,
        Field(
            max_length=200,
            description="A snapshot id, DuckLake's number, a time, a branch or tag. Null: the parent of the other.",
        ),
    ] = None
    until: Annotated[str | None, Field(max_length=200, description="The same. Null: the table as it is.")] = None
    max_files: Annotated[int, Field(ge=0, le=1000, description="Files to list, at most.")] = 20


class DiffResult(ToolResult):
    """What came and went between two states: rows, files, bytes; columns, partitions, order."""

    table: str
    rows_added: int
    rows_removed: int
    files_added: int
    files_removed: int
    bytes_added: int
    bytes_removed: int
    columns: list[dict[str, Any]]
    partition_fields: Annotated[list[list[str]] | None, Field(description="Before and after. Null: alike.")]
    sort_fields: Annotated[list[list[str]] | None, Field(description="Before and after. Null: alike.")]
    files: list[dict[str, Any]]
    unlisted_files: int


def compare_states(context: ToolContext, arguments: DiffArguments) -> DiffResult:
    """Compare two states of a table."""
    found = context.lake.table(arguments.name).diff(arguments.since, arguments.until, max_files=arguments.max_files)
    members = asdict(found)
    return DiffResult(**{name: members[name] for name in DiffResult.model_fields})


class LineageArguments(ToolArguments):
    """Whose lineage to read."""

    name: NameArgument
    column: Annotated[str | None, Field(max_length=1000, description="Only what is about this column.")] = None
    direction: Literal["upstream", "downstream", "both"] = "both"
    depth: Annotated[int, Field(ge=1, le=20, description="Steps away from the table, at most.")] = 5
    with_columns: Annotated[bool, Field(description="Also return which columns come from which.")] = False
    limit: Annotated[int, Field(ge=1, le=500, description="Tables, at most.")] = 100


class LineageResult(ToolResult):
    """What a table comes from and what comes from it: nodes are datasets, edges the jobs between them."""

    nodes: list[dict[str, Any]]
    edges: list[dict[str, Any]]
    is_cut: bool


def read_lineage(context: ToolContext, arguments: LineageArguments) -> LineageResult:
    """Read the graph around a table or column."""
    node = arguments.name if arguments.column is None else f"{arguments.name}#{arguments.column}"
    found = context.lake.lineage(
        node,
        direction=arguments.direction,
        depth=arguments.depth,
        has_columns=arguments.with_columns,
        limit=arguments.limit,
    )
    nodes, edges = encode_object(found.nodes), encode_object(found.edges)
    return LineageResult(nodes=nodes, edges=edges, is_cut=found.is_truncated)


class JobsArguments(ToolArguments):
    """Which jobs to list."""

    name: Annotated[str, Field(max_length=1000, description="A table. Empty: all tables.")] = ""
    kind: Annotated[str | None, Field(max_length=100, description="Only jobs of this kind, as ingest.")] = None
    result: Literal["running", "done", "unchanged", "skipped", "failed", "lost"] | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 20


class JobsResult(ToolResult):
    """Jobs of the pipeline, newest first."""

    jobs: list[dict[str, Any]]
    has_more: bool


def list_jobs(context: ToolContext, arguments: JobsArguments) -> JobsResult:
    """List the newest jobs."""
    jobs = context.lake.jobs(arguments.name, kind=arguments.kind, result=arguments.result)
    found = list(islice(jobs, arguments.limit + 1))
    return JobsResult(jobs=encode_object(found[: arguments.limit]), has_more=len(found) > arguments.limit)


class AdviceArguments(ToolArguments):
    """Which tables to advise on."""

    namespace: NamespaceArgument = ""
    limit: Annotated[int, Field(ge=1, le=500)] = 100

    @property
    def object_name(self) -> str:
        return self.namespace


class AdvisedJob(ToolResult):
    """A job that a table needs now."""

    table: str
    kind: str
    why: str


class AdviceResult(ToolResult):
    """The jobs that `duckicelake pipeline maintain` would run now."""

    jobs: list[AdvisedJob]
    problems: Annotated[list[str], Field(description="Tables whose properties say nothing that can be planned by.")]
    tables_examined: int
    is_complete: bool


def advise_on_maintenance(context: ToolContext, arguments: AdviceArguments) -> AdviceResult:
    """Plan the maintenance of tables by the catalog's statistics; nothing is run."""
    found = list(islice(context.lake.statistics(arguments.namespace), _MAX_TABLES + 1))
    states = [parse_state(encode_object(statistics)) for statistics in found[:_MAX_TABLES]]
    plan = plan_jobs(states, int(time.time() * 1000))
    jobs = [
        AdvisedJob(table=format_name(job.namespace, job.table), kind=job.kind, why=job.why)
        for job in plan.jobs[: arguments.limit]
    ]
    is_complete = len(found) <= _MAX_TABLES and len(plan.jobs) <= arguments.limit
    return AdviceResult(jobs=jobs, problems=list(plan.problems), tables_examined=len(states), is_complete=is_complete)


class DoctorArguments(ToolArguments):
    """Nothing: the whole lake is examined."""


class DoctorFindingResult(ToolResult):
    """The outcome of one check. advice: what a person should do; empty where all is well."""

    name: str
    ok: bool
    detail: str
    advice: str


class DoctorResult(ToolResult):
    """What the checks of the database and of the tables found."""

    is_healthy: bool
    findings: list[DoctorFindingResult]


def examine_lake(context: ToolContext, arguments: DoctorArguments) -> DoctorResult:  # noqa: ARG001
    """Examine the lake, in the catalog."""
    findings = [
        DoctorFindingResult(name=found.name, ok=found.ok, detail=found.detail, advice=found.advice)
        for found in context.lake.doctor(has_files=False)
    ]
    return DoctorResult(is_healthy=all(finding.ok for finding in findings), findings=findings)


OPERATION_TOOLS: Final = (
    Tool(
        "history",
        "Show what changed",
        "Return what changed in a table, a namespace or the lake, newest first, with who did it and by what.",
        HistoryArguments,
        ChangeList,
        read_history,
    ),
    Tool(
        "diff",
        "Compare two states",
        "Return what came and went in a table between two snapshots, times, branches or tags: rows, files, columns.",
        DiffArguments,
        DiffResult,
        compare_states,
    ),
    Tool(
        "lineage",
        "Show lineage",
        "Return what a table or a column comes from and what comes from it, with the jobs between them.",
        LineageArguments,
        LineageResult,
        read_lineage,
    ),
    Tool(
        "jobs",
        "List jobs",
        "List jobs of the pipeline on tables, newest first, with their results.",
        JobsArguments,
        JobsResult,
        list_jobs,
    ),
    Tool(
        "maintenance_advice",
        "Advise on maintenance",
        "Return the maintenance that tables need now, and why, by the catalog's statistics. Nothing is run.",
        AdviceArguments,
        AdviceResult,
        advise_on_maintenance,
    ),
    Tool(
        "doctor",
        "Examine the lake",
        "Check the database and the tables for damage, but not the files. It takes the right to read everything.",
        DoctorArguments,
        DoctorResult,
        examine_lake,
        seconds=300.0,
    ),
)
