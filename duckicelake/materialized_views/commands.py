"""`duckicelake materialized-view`: create, refresh, list, show, schedule and drop materialized views."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from duckicelake.cli.catalog.connection import add_catalog_command, complete_names
from duckicelake.cli.console.command import DATA, JsonOption, make_group
from duckicelake.cli.console.terminal import parse_age, print_json, print_rows
from duckicelake.errors import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from duckicelake.client.lake import Lake

_SECONDS: Final = 3660.0
"""For which a refresh is waited for; the server ends it after an hour."""
ViewArgument = Annotated[
    str, typer.Argument(help="The materialized view, as sales.by_region.", autocompletion=complete_names)
]
EveryOption = Annotated[
    str | None, typer.Option("--every", help="Refresh it so often, as 15m or 1d (default: not by the clock).")
]
ChangeOption = Annotated[bool, typer.Option("--on-change", help="Refresh it once a source has changed.")]


def create_view(
    lake: Lake,
    name: Annotated[str, typer.Argument(help="The materialized view, as sales.by_region.")],
    query: Annotated[str, typer.Argument(help="A SELECT in DuckDB's SQL; - reads it from standard input.")],
    namespace: Annotated[
        str, typer.Option(help="Namespace of tables that are named without one (default: the view's).")
    ] = "",
    every: EveryOption = None,
    on_change: ChangeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make a materialized view of a query, with its first contents.

    It is a table that all clients read, and refreshes alone write.
    """
    from duckicelake.rest.names import parse_name, parse_table

    levels, own = parse_table(name)
    body = {
        "name": own,
        "query": sys.stdin.read() if query == "-" else query,
        **({"default-namespace": list(parse_name(namespace))} if namespace else {}),
        **_build_schedule(every, on_change),
    }
    made = lake.client.change("POST", _build_path(lake, levels), body, seconds=_SECONDS)
    _report(made, f"created {name}", as_json=as_json)


def refresh_view(
    lake: Lake,
    name: ViewArgument,
    whole: Annotated[bool, typer.Option("--whole", help="Compute all of it, whatever has changed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Bring a materialized view up to date."""
    path = _find_path(lake, name, "refresh")
    done = lake.client.change("POST", path, {"whole": whole}, seconds=_SECONDS)
    _report(done, f"refreshed {name}", as_json=as_json)


def list_views(
    lake: Lake,
    namespace: Annotated[str, typer.Argument(help="A namespace (default: the whole lake).")] = "",
    as_json: JsonOption = False,
) -> None:
    """List materialized views: how fresh they are, and what their last refresh did."""
    from duckicelake.rest.names import parse_name

    path = _build_path(lake, parse_name(namespace)) if namespace else lake.client.iceberg("materialized-views")
    found = [view for page in lake.client.pages(path) for view in page["materialized-views"]]
    if as_json:
        print_json(*found)
        return
    headings = ("materialized view", "fresh as of", "last refresh", "rows", "seconds", "state")
    print_rows(headings, map(_describe, found), right=(3, 4))


def show_view(lake: Lake, name: ViewArgument, as_json: JsonOption = False) -> None:
    """Show a materialized view: its query, its sources, how fresh it is, and what its last refresh did."""
    view = lake.client.get(_find_path(lake, name))
    if as_json:
        print_json(view)
        return
    facts = {
        "query": view["query"],
        "definer": view["definer"],
        "refreshed": _describe_schedule(view),
        "fresh as of": f"{_format_time(view['fresh-as-of'])}, DuckLake's snapshot {view['ducklake-snapshot-id']}",
        "sources": ", ".join(_describe_source(source) for source in view["sources"]),
        "last refresh": f"{_format_time(view['refreshed'])}, {view['mode']}: {view['reason']}",
        "rows written": f"{view['rows-written']:,} in {view['seconds']:.1f} s",
        "failure": _describe_failure(view),
    }
    for fact, text in facts.items():
        if text:
            typer.echo(f"{fact}: {text}")


def schedule_view(
    lake: Lake,
    name: ViewArgument,
    every: EveryOption = None,
    on_change: ChangeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Set when a materialized view is refreshed by itself; without options: never."""
    view = lake.client.change("POST", _find_path(lake, name), _build_schedule(every, on_change))
    if as_json:
        print_json(view)
        return
    typer.echo(f"{name} is refreshed {_describe_schedule(view)}")


def drop_view(lake: Lake, name: ViewArgument) -> None:
    """Drop a materialized view and its table; `duckicelake undrop` brings both back."""
    lake.client.change("DELETE", _find_path(lake, name))
    typer.echo(f"dropped {name}")


def _build_path(lake: Lake, namespace: Sequence[str], *segments: str) -> str:
    from duckicelake.rest.client import encode_namespace

    return lake.client.iceberg("namespaces", encode_namespace(tuple(namespace)), "materialized-views", *segments)


def _find_path(lake: Lake, name: str, *segments: str) -> str:
    from duckicelake.rest.client import encode_segment
    from duckicelake.rest.names import parse_table

    namespace, own = parse_table(name)
    return _build_path(lake, namespace, encode_segment(own), *segments)


def _build_schedule(every: str | None, on_change: bool) -> dict[str, Any]:
    seconds = None if every is None else int(parse_age(every).total_seconds())
    return {**({} if seconds is None else {"refresh-every": seconds}), "refresh-on-change": on_change}


def _report(view: Any, what: str, *, as_json: bool) -> None:
    if as_json:
        print_json(view)
        return
    rows = f"{format_count(view['rows-written'], 'row')} in {view['seconds']:.1f} s"
    typer.echo(f"{what}: {view['mode']}, {view['reason']}; {rows}, fresh as of {_format_time(view['fresh-as-of'])}")


def _describe(view: Any) -> tuple[str, ...]:
    name = ".".join((*view["namespace"], view["name"]))
    times = _format_time(view["fresh-as-of"]), f"{view['mode']}, {_format_time(view['refreshed'])}"
    return name, *times, f"{view['rows-written']:,}", f"{view['seconds']:.1f}", _describe_failure(view) or "fine"


def _describe_failure(view: Any) -> str:
    error = view.get("error")
    return "" if error is None else f"failed {_format_time(view['failed-at'])}: {error}"


def _describe_source(source: Any) -> str:
    snapshot = source.get("snapshot-id")
    return (
        f"{source['name']} at snapshot {snapshot}" if snapshot is not None else f"{source['name']} ({source['type']})"
    )


def _describe_schedule(view: Any) -> str:
    every = view.get("refresh-every")
    ways = [*([] if every is None else [f"every {every} s"]), *(["on change"] if view["refresh-on-change"] else [])]
    return " and ".join(ways) or "on request"


def _format_time(time: str) -> str:
    return time[:19].replace("T", " ")


app: Final = make_group("materialized-view", "Create, refresh and look at materialized views.", panel=DATA)
_CREATE: Final = (
    "duckicelake materialized-view create sales.by_region 'SELECT region, count(*) AS n FROM orders GROUP BY ALL'",
    "duckicelake materialized-view create sales.large 'FROM orders WHERE amount > 1000' --every 15m --on-change",
)
_REFRESH: Final = (
    "duckicelake materialized-view refresh sales.by_region",
    "duckicelake materialized-view refresh sales.by_region --whole --json",
)
_LIST: Final = ("duckicelake materialized-view list", "duckicelake materialized-view list sales --json")
_SCHEDULE: Final = (
    "duckicelake materialized-view schedule sales.by_region --every 1h",
    "duckicelake materialized-view schedule sales.by_region",
)
add_catalog_command(app, create_view, *_CREATE, name="create")
add_catalog_command(app, refresh_view, *_REFRESH, name="refresh")
add_catalog_command(app, list_views, *_LIST, name="list")
add_catalog_command(app, show_view, "duckicelake materialized-view show sales.by_region", name="show")
add_catalog_command(app, schedule_view, *_SCHEDULE, name="schedule")
add_catalog_command(app, drop_view, "duckicelake materialized-view drop sales.by_region", name="drop")
