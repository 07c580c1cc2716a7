"""`duckicelake ls`, `search`, `show`, `snapshots`, `files`, `partitions`, `diff`: look at a lake."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from duckicelake.cli.catalog.connection import complete_names, format_partition, format_time
from duckicelake.cli.console.command import JsonOption
from duckicelake.cli.console.terminal import encode_object, print_json, print_rows
from duckicelake.errors import format_count

if TYPE_CHECKING:
    from duckicelake.client.diff import DiffSide, TableDiff
    from duckicelake.client.lake import Lake
    from duckicelake.client.models import (
        CatalogObject,
        ColumnInfo,
        LakeReader,
        SnapshotInfo,
        TableInfo,
        TableSize,
        ViewInfo,
    )
    from duckicelake.client.operations import DroppedInfo

LS_EXAMPLES: Final = (
    "duckicelake ls",
    "duckicelake ls sales --long",
    "duckicelake ls --recursive --json",
    "duckicelake ls sales --dropped",
)
SEARCH_EXAMPLES: Final = ("duckicelake search customer", "duckicelake search e-mail --namespace sales --json")
SHOW_EXAMPLES: Final = (
    "duckicelake show sales.orders",
    "duckicelake show sales.orders --uri https://lake.example.com --json",
)
SNAPSHOTS_EXAMPLES: Final = (
    "duckicelake snapshots sales.orders",
    "duckicelake snapshots sales.orders --limit 5 --json",
)
FILES_EXAMPLES: Final = ("duckicelake files sales.orders", "duckicelake files sales.orders --at audit --json")
PARTITIONS_EXAMPLES: Final = ("duckicelake partitions sales.orders", "duckicelake partitions sales.orders --json")
DIFF_EXAMPLES: Final = (
    "duckicelake diff sales.orders",
    "duckicelake diff sales.orders --from 2026-11-20T09:00",
    "duckicelake diff sales.orders --from main --to audit --files",
)
_SUMMARY_KEYS: Final = ("added-records", "deleted-records", "added-data-files", "deleted-data-files", "total-records")

TableArgument = Annotated[str, typer.Argument(help="The table, as sales.orders.", autocompletion=complete_names)]
AtOption = Annotated[str | None, typer.Option("--at", help="A snapshot id, branch or tag (default: main).")]


def list_objects(
    lake: Lake,
    namespace: Annotated[
        str, typer.Argument(help="The namespace (default: the top level).", autocompletion=complete_names)
    ] = "",
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="List what is below, too.")] = False,
    long: Annotated[bool, typer.Option("--long", "-l", help="Print rows, sizes and times of tables.")] = False,
    is_dropped: Annotated[
        bool, typer.Option("--dropped", help="List what was dropped here and below, and can be brought back.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List namespaces, tables and views."""
    if is_dropped:
        print_dropped(list(lake.list_dropped(namespace)), as_json=as_json)
        return
    found = list(lake.list(namespace, is_recursive=recursive))
    if not found and not as_json:
        typer.echo(f"{namespace or 'the lake'} is empty", err=True)
        return
    print_objects(found, list(lake.sizes(namespace)) if long else None, as_json=as_json)


def search(
    lake: Lake,
    text: Annotated[str, typer.Argument(help="A part of a word, in any case.")],
    namespace: Annotated[
        str, typer.Option(help="Search in it and below (default: the lake).", autocompletion=complete_names)
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Find what holds a text in its name, its comment, its columns or their comments."""
    found = list(lake.search(text, namespace))
    if as_json:
        print_json(*found)
    elif found:
        rows = ((one.kind, one.name, ", ".join(one.columns), " ".join((one.comment or "").split())) for one in found)
        print_rows(("kind", "name", "columns", "comment"), rows)
    else:
        typer.echo(f"nothing holds {text!r}, of what you may see", err=True)


def print_dropped(found: Sequence[DroppedInfo], *, as_json: bool) -> None:
    """Print what was dropped and can be brought back."""
    if as_json:
        print_json(*found)
    elif found:
        rows = (
            (
                item.kind,
                item.name,
                str(item.id),
                f"{item.dropped_at:%Y-%m-%d %H:%M}",
                f"{item.kept_until:%Y-%m-%d %H:%M}",
                "its files go" if item.is_purge_requested else "",
            )
            for item in found
        )
        print_rows(("kind", "name", "id", "dropped (UTC)", "kept until (UTC)", "then"), rows)
    else:
        typer.echo("nothing can be brought back", err=True)


def print_objects(found: Sequence[CatalogObject], sizes: Sequence[TableSize] | None, *, as_json: bool) -> None:
    """Print namespaces, tables and views. sizes: those of tables, which have columns then."""
    if sizes is not None:
        _print_sizes(found, {size.name: size for size in sizes}, as_json=as_json)
    elif as_json:
        print_json(*found)
    else:
        print_rows(("kind", "name"), ((one.kind, one.name) for one in found))


def show(
    lake: LakeReader,
    name: Annotated[str, typer.Argument(help="A table or view, as sales.orders.", autocompletion=complete_names)],
    as_json: JsonOption = False,
) -> None:
    """Show a table or view: columns, partitions, order, properties, current snapshot; of a view, its SQL."""
    from duckicelake.client.models import TableInfo

    found = lake.find(name)
    if as_json:
        print_json({"name": found.name, "kind": "table" if isinstance(found, TableInfo) else "view"} | found.metadata)  # type: ignore[operator]
        return
    facts = _list_table_facts(found) if isinstance(found, TableInfo) else _list_view_facts(found)
    print_rows(("name", found.name), [fact for fact in facts if fact[1]])
    typer.echo()
    print_columns(found.columns)
    if found.properties:
        typer.echo()
        print_rows(("property", "value"), sorted(found.properties.items()))


def list_snapshots(
    lake: LakeReader,
    name: TableArgument,
    limit: Annotated[int, typer.Option(min=1, help="Max snapshots to list, the newest.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List a table's snapshots, the newest last: branches and tags, operation, what each changed."""
    snapshots = lake.table(name).load().snapshots
    shown = snapshots[-limit:]
    if as_json:
        print_json(*shown)
        return
    headings = (
        "snapshot",
        "when (UTC)",
        "operation",
        "refs",
        "rows added",
        "rows deleted",
        "files added",
        "files deleted",
        "rows",
    )
    print_rows(headings, map(_build_snapshot_row, shown), right=(0, 4, 5, 6, 7, 8))
    if len(shown) < len(snapshots):
        typer.echo(f"{len(snapshots) - len(shown):,} older ones are not listed: --limit {len(snapshots)}", err=True)


def list_files(lake: LakeReader, name: TableArgument, at: AtOption = None, as_json: JsonOption = False) -> None:
    """List the data files of a table's snapshot, with partition, rows, size and how many delete files apply."""
    from rich.filesize import decimal

    files = lake.table(name).files(at)
    if as_json:
        for file in files:
            print_json(file)
        return
    print_rows(
        ("file", "partition", "rows", "size", "delete files"),
        (
            (
                file.path,
                format_partition(file.partition),
                f"{file.rows:,}",
                decimal(file.bytes),
                f"{file.delete_files:,}",
            )
            for file in files
        ),
        right=(2, 3, 4),
    )


def list_partitions(lake: LakeReader, name: TableArgument, at: AtOption = None, as_json: JsonOption = False) -> None:
    """List the partitions of a table's snapshot, with files, rows and size."""
    from rich.filesize import decimal

    partitions = lake.table(name).partitions(at)
    if as_json:
        print_json(*partitions)
        return
    print_rows(
        ("partition", "files", "rows", "size", "delete files"),
        (
            (
                format_partition(one.partition) or "unpartitioned",
                f"{one.files:,}",
                f"{one.rows:,}",
                decimal(one.bytes),
                f"{one.delete_files:,}",
            )
            for one in partitions
        ),
        right=(1, 2, 3, 4),
    )


def diff(
    lake: Lake,
    name: TableArgument,
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="A snapshot id, DuckLake's number, a time in ISO form, a branch or tag (default: the parent of --to).",
        ),
    ] = None,
    until: Annotated[str | None, typer.Option("--to", help="The other state (default: the table as it is).")] = None,
    files: Annotated[bool, typer.Option("--files", help="List the data files that differ.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Max files to list.")] = 1000,
    as_json: JsonOption = False,
) -> None:
    """Print what changed in a table between two snapshots: rows, files, columns, partitions, sort order.

    The catalog compares its own rows, and opens no file. Rows that a rewrite moved to other files count as removed and
    added. Properties have no snapshots, so they aren't compared.
    """
    found = lake.table(name).diff(since, until, max_files=limit if files else 0)
    if as_json:
        print_json(found)
    else:
        _print_diff(found)


def _print_diff(found: TableDiff) -> None:
    from rich.filesize import decimal

    typer.echo(f"{found.table}: from {_describe_side(found.from_)} to {_describe_side(found.to)}")
    if found.is_empty:
        typer.echo("nothing has changed")
        return
    rows = (
        ("rows", f"{found.rows_added:,}", f"{found.rows_removed:,}"),
        ("files", f"{found.files_added:,}", f"{found.files_removed:,}"),
        ("size", decimal(found.bytes_added), decimal(found.bytes_removed)),
    )
    print_rows(("", "added", "removed"), rows, right=(1, 2))
    definition = list(_list_definition_changes(found))
    if definition:
        typer.echo()
        print_rows(("definition", "before", "after"), definition)
    if found.files:
        typer.echo()
        print_rows(
            ("file", "change", "rows added", "rows removed", "size"),
            (
                (file.path, file.change, f"{file.rows_added:,}", f"{file.rows_removed:,}", decimal(file.bytes))
                for file in found.files
            ),
            right=(2, 3, 4),
        )
        if found.unlisted_files:
            typer.echo(f"not listed: {format_count(found.unlisted_files, 'more file')}: --limit", err=True)


def _list_definition_changes(found: TableDiff) -> Iterator[tuple[str, str, str]]:
    for column in found.columns:
        yield f"column {column.name}", _describe_column(column.before), _describe_column(column.after)
    for what, fields in (("partitioned by", found.partition_fields), ("sorted by", found.sort_fields)):
        if fields is not None:
            before, after = map(", ".join, fields)
            yield what, before, after


def _describe_side(side: DiffSide) -> str:
    if side.snapshot_id is None:
        return "before the first snapshot"
    return f"{side.snapshot_id} ({format_time(side.timestamp)} UTC)"


def _describe_column(column: ColumnInfo | None) -> str:
    if column is None:
        return ""
    default = "" if column.default is None else f" default {column.default}"
    comment = f" comment '{column.comment}'" if column.comment else ""
    return f"{column.name} {column.type}{' not null' if column.is_required else ''}{default}{comment}"


def _print_sizes(found: Sequence[CatalogObject], sizes: Mapping[str, TableSize], *, as_json: bool) -> None:
    from rich.filesize import decimal

    rows = []
    for one in found:
        size = sizes.get(one.name)
        if as_json:
            print_json(one if size is None else {"kind": one.kind} | encode_object(size))
        elif size is None:
            rows.append((one.kind, one.name, "", "", "", ""))
        else:
            changed = format_time(size.changed)
            rows.append((one.kind, one.name, f"{size.rows:,}", f"{size.files:,}", decimal(size.bytes), changed))
    if not as_json:
        print_rows(("kind", "name", "rows", "files", "size", "changed (UTC)"), rows, right=(2, 3, 4))


def _list_table_facts(table: TableInfo) -> Iterator[tuple[str, str]]:
    snapshot = table.snapshot
    yield "kind", f"table, format version {table.metadata['format-version']}"
    yield "comment", table.comment or ""
    yield "location", table.metadata["location"]
    yield "partitioned by", ", ".join(table.partition_fields)
    yield "sorted by", ", ".join(table.sort_fields)
    yield "snapshot", _describe_snapshot(snapshot) if snapshot else "none: the table has never had rows"
    yield "rows", f"{int(snapshot.summary.get('total-records', 0)):,}" if snapshot else "0"
    yield "refs", ", ".join(f"{ref.name} ({ref.kind})" for ref in table.refs)


def _list_view_facts(view: ViewInfo) -> Iterator[tuple[str, str]]:
    yield "kind", "view"
    yield "comment", view.comment or ""
    for dialect, sql in view.sql.items():
        yield f"SQL ({dialect})", sql


def _describe_snapshot(snapshot: SnapshotInfo) -> str:
    return f"{snapshot.snapshot_id} ({snapshot.operation}, {format_time(snapshot.timestamp)} UTC)"


def print_columns(columns: Sequence[ColumnInfo]) -> None:
    """Print columns."""
    print_rows(
        ("column", "type", "null", "comment"),
        ((one.name, one.type, "no" if one.is_required else "yes", one.comment or "") for one in columns),
    )


def _build_snapshot_row(snapshot: SnapshotInfo) -> Sequence[str]:
    numbers = (snapshot.summary.get(key) for key in _SUMMARY_KEYS)
    return (
        str(snapshot.snapshot_id),
        format_time(snapshot.timestamp),
        snapshot.operation,
        ", ".join(snapshot.refs),
        *("" if number is None else f"{int(number):,}" for number in numbers),
    )
