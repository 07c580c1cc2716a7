"""`duckicelake upkeep`: plan, run, look at the queue, the history and the policies; `duckicelake work`: a worker."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from duckicelake.cli.catalog.connection import add_catalog_command, complete_names
from duckicelake.cli.console.command import (
    SERVE,
    JsonOption,
    LakeOption,
    add_command,
    add_group,
    make_group,
    one_line_errors,
)
from duckicelake.cli.console.terminal import print_json, print_rows

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from duckicelake.client.lake import Lake
    from duckicelake.settings.model import Settings

_LOOK_SECONDS: Final = 0.5
_NO_WORKER_SECONDS: Final = 60.0
"""After which `run` says that no worker takes its tasks."""
_OPEN_STATES: Final = frozenset({"queued", "running"})
TargetArgument = Annotated[
    str | None,
    typer.Argument(help="A table, or a namespace with all below it (default: all).", autocompletion=complete_names),
]
KindOption = Annotated[list[str] | None, typer.Option("--only", help="Only tasks of this kind; may be repeated.")]


def plan(lake: Lake, what: TargetArgument = None, as_json: JsonOption = False) -> None:
    """Print what tables need now, what it costs and gains, and whether the lake does it by itself.

    Scans and plans of scans are so many times as fast afterwards. Tables that follow a Delta table and views that are
    refreshed are listed until they are due, too.
    """
    from duckicelake.upkeep.printed_rows import PLAN_HEADINGS, describe_planned

    query = _build_query(lake, what)
    found: list[Any] = []
    problems: list[str] = []
    for page in lake.client.pages(lake.client.own("pipeline", "plan"), query):
        found += page["jobs"]
        problems += page["problems"]
    if as_json:
        print_json({"jobs": found, "problems": problems})
    else:
        print_rows(PLAN_HEADINGS, map(describe_planned, found), right=(2, 3, 4, 5, 6))
        for problem in problems:
            sys.stderr.write(f"{problem}\n")
    if problems:
        raise typer.Exit(1)


def run(
    lake: Lake,
    what: TargetArgument = None,
    only: KindOption = None,
    where: Annotated[
        str | None, typer.Option(help="Of a table, compact (or --only sort) only files that may hold such rows.")
    ] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Only put the tasks into the queue.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Let the lake's workers do what tables need now, whatever it does by itself, and wait for them.

    Snapshots expire and orphans are removed only where a policy says so; orphans also by --only. Exits with 1 if a task
    is blocked or has failed, a table has a wrong policy, or a task of the same kind runs already; with 6 if nothing
    could be queued therefore. Ctrl-C ends the wait, not the tasks.
    """
    from duckicelake.errors import BadInputError

    query = _build_query(lake, what)
    body: dict[str, Any] = {"kinds": list(only or ())}
    if where is not None:
        if "table" not in query:
            raise BadInputError("--where is a condition on the columns of one table: name that")
        body["where"] = where
    if "table" in query:
        path = lake.client.pipeline(tuple(query["namespace"].split("\x1f")), query["table"], "upkeep")
    else:
        path = lake.client.own("pipeline", "upkeep")
        body |= {"namespace": query["namespace"].split("\x1f")} if query else {}
    answer = lake.client.change("POST", path, body)
    asked, problems, notes = answer["tasks"], answer.get("problems", []), answer.get("notes", [])
    ended = [] if no_wait else _wait(lake, query, asked)
    for line in (*problems, *notes):
        sys.stderr.write(f"{line}\n")
    if as_json:
        print_json({"tasks": asked if no_wait else ended, "problems": problems, "notes": notes})
    elif not asked and not problems:
        typer.echo("nothing to do")
    elif no_wait:
        typer.echo(f"{len(asked)} in the queue")
    elif asked:
        _print_tasks(ended)
    if problems or any(task["state"] in {"blocked", "failed"} for task in ended):
        raise typer.Exit(1)


def status(
    lake: Lake,
    what: TargetArgument = None,
    state: Annotated[
        str | None, typer.Option(help="Only tasks that are queued, running, waiting, blocked, failed or done.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the queue: what runs, what waits for what, what is blocked or failed, and why."""
    query = _build_query(lake, what) | ({"state": state} if state else {})
    found: list[Any] = []
    warnings: list[str] = []
    for page in lake.client.pages(lake.client.own("pipeline", "upkeep"), query):
        found += page["tasks"]
        warnings += page["warnings"]
    for warning in warnings:
        sys.stderr.write(f"{warning}\n")
    if as_json:
        print_json({"tasks": found, "warnings": warnings})
        return
    _print_tasks(found)
    counts = Counter(task["state"] for task in found)
    typer.echo(", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "the queue is empty")


def history(
    lake: Lake,
    what: TargetArgument = None,
    only: KindOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Max jobs to list, the newest.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Print what workers and Spark's pipeline did to tables, the newest first.

    Versions of followed Delta tables that came are listed for one table, or by --only follow-delta: they may be many.
    """
    from duckicelake.maintenance.policy import JOB_KINDS
    from duckicelake.upkeep.printed_rows import describe_job

    query = _build_query(lake, what)
    kinds = set(only or (*JOB_KINDS, "refresh", "follow-delta"))
    filters = query | ({"kind": only[0]} if only and len(only) == 1 else {})
    hidden = set() if only or "table" in query else {("follow-delta", "done"), ("follow-delta", "unchanged")}
    jobs = (
        job
        for job in lake.client.jobs(**filters)
        if job["kind"] in kinds and (job["kind"], job["result"]) not in hidden
    )
    found = list(islice(jobs, limit))
    if as_json:
        print_json({"jobs": found})
        return
    headings = ("began (UTC)", "took", "task", "table", "result", "who", "counts", "message")
    print_rows(headings, map(describe_job, found), right=(1,))


def policies(
    lake: Lake,
    what: Annotated[
        str | None,
        typer.Argument(help="A table or a namespace (default: the whole lake).", autocompletion=complete_names),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="<policy>=<value> to set there; may be repeated.")
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", help="A policy to remove there; may be repeated.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the policies of a table, a namespace or the lake, and who says each; change those that it sets itself."""
    query = _build_query(lake, what)
    updates = _parse_pairs(set_ or ())
    removals = [name for name in unset or () if name not in updates]
    if updates or removals:
        _change_policies(lake, what, updates, removals, is_table="table" in query)
    if query:
        answer = lake.client.get(_build_policies_path(lake, query))
        rows = [(policy["name"], policy["value"], policy["source"]) for policy in answer["policies"]]
    else:
        answer = lake.client.get(lake.client.own("pipeline", "policies"))
        said = {name: (value, "settings") for name, value in answer["settings"].items()}
        said |= {name: (value, "lake") for name, value in answer["policies"].items()}
        rows = [(name, *said[name]) for name in sorted(said)]
    if as_json:
        print_json(answer)
    else:
        print_rows(("policy", "value", "from"), rows)
    if answer.get("problem"):
        sys.stderr.write(f"{answer['problem']}\n")


def _change_policies(
    lake: Lake, what: str | None, updates: Mapping[str, str], removals: Sequence[str], *, is_table: bool
) -> None:
    """Set and remove policies of a table or namespace, as its properties, or of the lake. Raises BadInputError."""
    from duckicelake.maintenance.policy import parse_policy

    _check_names(updates, removals)
    parse_policy(updates)
    if what is not None and is_table:
        lake.table(what).update_properties(updates, removals)
    elif what is not None:
        lake.update_namespace(what, updates, removals)
    else:
        path = lake.client.own("pipeline", "policies")
        present = lake.client.get(path)["policies"]
        kept = {name: value for name, value in present.items() if name not in removals}
        lake.client.change("PUT", path, {"policies": {**kept, **updates}})


def _check_names(updates: Iterable[str], removals: Iterable[str]) -> None:
    """Raise BadInputError for what is no policy; a misspelt one of another client may be removed."""
    from duckicelake.errors import BadInputError
    from duckicelake.properties import is_like_policy, is_policy, suggest_policy

    wrong = [name for name in updates if not is_policy(name)]
    wrong += [name for name in removals if not is_like_policy(name)]
    if wrong:
        raise BadInputError(f"{wrong[0]!r} is no policy: {suggest_policy(wrong[0])}")


def _build_policies_path(lake: Lake, query: Mapping[str, str]) -> str:
    from duckicelake.rest.client import encode_namespace

    namespace = tuple(query["namespace"].split("\x1f"))
    if "table" in query:
        return lake.client.pipeline(namespace, query["table"], "policies")
    return lake.client.own("pipeline", "namespaces", encode_namespace(namespace), "policies")


@one_line_errors()
def work(
    lake: LakeOption = None,
    processes: Annotated[int, typer.Option(min=1, max=64, help="Processes, each with a task at a time.")] = 1,
    once: Annotated[bool, typer.Option("--once", help="End when there is nothing more to do.")] = False,
) -> None:
    """Do tasks of upkeep of all warehouses of a server, beside its own workers, until Ctrl-C or SIGTERM.

    It takes the settings of the server, and may run on any number of machines. A task that it is stopped at goes back
    to the queue.
    """
    from duckicelake.cli.serve.process import end_on_signals

    end_on_signals()  # until the worker has a task to give back
    from duckicelake.cli.console.command import choose_warehouse
    from duckicelake.cli.wiring.chosen_lake import reach_lake
    from duckicelake.settings.sources import read_settings
    from duckicelake.upkeep import process

    with choose_warehouse(None), reach_lake(read_settings({"lake": lake})) as reached:
        idle_seconds = 0.0 if once else None
        children = _start_children(reached.settings, processes - 1, idle_seconds)
        try:
            process.work(reached.settings, _log, idle_seconds)
        finally:
            for child in children:
                child.terminate()
            for child in children:
                child.join()


def _start_children(settings: Settings, count: int, idle_seconds: float | None) -> list[BaseProcess]:
    from multiprocessing import get_context

    from duckicelake.upkeep.process import run_child

    context = get_context("spawn")
    children: list[BaseProcess] = [
        context.Process(target=run_child, args=(settings, idle_seconds), name="upkeep") for _ in range(count)
    ]
    for child in children:
        child.start()
    return children


def _log(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _build_query(lake: Lake, what: str | None) -> dict[str, str]:
    """Build the filter for a table, or if there is none for a namespace. MissingTableError."""
    from duckicelake.errors import MissingTableError
    from duckicelake.rest.names import parse_name

    if what is None:
        return {}
    levels = parse_name(what)
    *namespace, name = levels
    if namespace and lake.client.table_exists(tuple(namespace), name):
        return {"namespace": "\x1f".join(namespace), "table": name}
    if not lake.client.namespace_exists(levels):
        raise MissingTableError(f"there is neither a table nor a namespace {what}")
    return {"namespace": "\x1f".join(levels)}


def _list_tasks(lake: Lake, query: Mapping[str, str]) -> list[Any]:
    pages = lake.client.pages(lake.client.own("pipeline", "upkeep"), query)
    return [task for page in pages for task in page["tasks"]]


def _wait(lake: Lake, query: Mapping[str, str], asked: Sequence[Any]) -> list[Any]:
    """Wait until the tasks that were asked for have ended or wait for something; show how many have."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    from duckicelake.cli.console.terminal import open_progress

    wanted = {_identify(task) for task in asked}
    began = time.monotonic()
    has_started = False
    columns = (TextColumn("Upkeep"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with open_progress(*columns) as progress:
        bar = progress.add_task("upkeep", total=len(wanted))
        while True:
            found = [task for task in _list_tasks(lake, query) if _identify(task) in wanted]
            is_open = [task for task in found if task["state"] in _OPEN_STATES]
            progress.update(bar, completed=len(wanted) - len(is_open))
            has_started |= len(is_open) < len(found) or any(task["state"] == "running" for task in found)
            if not is_open:
                return found
            if not has_started and time.monotonic() - began > _NO_WORKER_SECONDS:
                sys.stderr.write("no worker takes the tasks: start one by `duckicelake work`\n")
                has_started = True
            time.sleep(_LOOK_SECONDS)


def _identify(task: Mapping[str, Any]) -> tuple[Any, ...]:
    return *task["namespace"], task["table"], task["kind"]


def _print_tasks(tasks: Sequence[Mapping[str, Any]]) -> None:
    from duckicelake.upkeep.printed_rows import describe_task

    headings = ("task", "table", "state", "attempts", "until", "why", "message")
    if tasks:
        print_rows(headings, map(describe_task, tasks), right=(3,))


def _parse_pairs(texts: Sequence[str]) -> dict[str, str]:
    from duckicelake.errors import BadInputError

    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise BadInputError(f"Invalid --set {text!r}: expected <policy>=<value>, as maintenance.automatic=flush")
        pairs[name] = value
    return pairs


app: Final = typer.Typer()
_group: Final = make_group(
    "upkeep", "Keep tables in shape: plan, run, look at queue, history and policies.", panel=SERVE
)
add_catalog_command(_group, plan, "duckicelake upkeep plan", "duckicelake upkeep plan sales --json", name="plan")
add_catalog_command(
    _group,
    run,
    "duckicelake upkeep run",
    "duckicelake upkeep run sales.orders --only flush --json",
    "duckicelake upkeep run sales.orders --where \"day >= '2026-11-01'\"",
    "duckicelake upkeep run sales --no-wait",
    name="run",
)
add_catalog_command(
    _group, status, "duckicelake upkeep status", "duckicelake upkeep status sales --state blocked --json", name="status"
)
add_catalog_command(
    _group,
    history,
    "duckicelake upkeep history",
    "duckicelake upkeep history sales.orders --limit 5 --json",
    name="history",
)
add_catalog_command(
    _group,
    policies,
    "duckicelake upkeep policies",
    "duckicelake upkeep policies sales.orders",
    "duckicelake upkeep policies --set maintenance.automatic=flush,compact,expire",
    "duckicelake upkeep policies sales --set history.expire.max-snapshot-age-ms=604800000",
    "duckicelake upkeep policies sales.orders --unset maintenance.sort.order",
    name="policies",
)
add_group(app, _group)
add_command(
    app,
    work,
    "duckicelake work --lake /data/lake",
    "DUCKICELAKE_DATABASE_URL=postgresql://me@db/lake DUCKICELAKE_WAREHOUSE=s3://lake duckicelake work --processes 4",
    name="work",
    panel=SERVE,
    has_warehouse_option=False,
)
