"""`duckicelake explain`: print what a filter would read of a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from duckicelake.cli.console.command import JsonOption, LakeOption, one_line_errors
from duckicelake.cli.console.terminal import print_json

if TYPE_CHECKING:
    from rich.table import Table

    from duckicelake.client.lake import Lake
    from duckicelake.client.scan_cost import ExplanationInfo, FileSums, PartitionReadInfo

EXAMPLES: Final = (
    "duckicelake explain sales.orders --where \"day = DATE '2026-11-01' AND customer_id = 42\"",
    "duckicelake explain sales.orders --where \"name LIKE 'Ann%'\" --at 2026-11-20T09:00",
    "duckicelake explain sales.orders --json",
)
_MAX_PRINTED_PARTITIONS: Final = 20


@one_line_errors()
def explain(
    name: Annotated[str, typer.Argument(help="The table, as sales.orders.")],
    where: Annotated[
        str | None, typer.Option(help="The condition, as after WHERE in DuckDB's SQL (default: all rows).")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            "--snapshot",
            "--ref",
            help="Explain a scan of this state: a snapshot id, DuckLake's number, a time in ISO form, a branch or tag.",
        ),
    ] = None,
    as_json: JsonOption = False,
    lake: LakeOption = None,
) -> None:
    """Print how many files, bytes and rows a filter would read of a table, per partition, and why not fewer.

    It says which statistics prune, which files pass whole, and by which columns the table would be worth sorting. All
    of it comes from the catalog: no data file and no manifest is opened.
    """
    from duckicelake.catalog.context.page import parse_full_name
    from duckicelake.catalog.scan_explanation import ExplainQuery, explain_table_scan
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.client.records import parse_record
    from duckicelake.client.scan_cost import ExplanationInfo
    from duckicelake.settings.sources import read_settings

    with open_lake(read_settings({"lake": lake}), "explain") as services:
        found = explain_table_scan(services, *parse_full_name(name), ExplainQuery(where, at=at))
    _print(parse_record(ExplanationInfo, found.to_json()), as_json=as_json)


def explain_over_rest(lake: Lake, name: str, where: str | None, at: str | None, as_json: bool) -> None:
    """Explain a scan by the server."""
    _print(lake.table(name).explain(where, at), as_json=as_json)


def _print(found: ExplanationInfo, *, as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        _print_tables(found)


def _print_tables(found: ExplanationInfo) -> None:
    from duckicelake.cli.console.terminal import make_printable, print_whole_words

    for part in (_build_totals(found), _build_columns(found), _build_partitions(found)):
        if part.row_count:
            print_whole_words(part)
            typer.echo()
    for line in _build_notes(found):
        print_whole_words(make_printable(line))


def _build_table(*headings: str, left: int = 1) -> Table:
    """Build a table without lines; the first columns are aligned to the left."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < left else "right", overflow="fold")
    return table


def _build_totals(found: ExplanationInfo) -> Table:
    table = _build_table(found.table, "files", "size", "rows")
    pruned = found.pruned
    fields = ", ".join(pruned.partition_fields)
    for what, totals in (("whole table", found.total), ("this scan reads", found.read)):
        table.add_row(what, *_format_totals(totals))
    for what, files in (
        (f"pruned by partition by {fields}" if fields else "pruned, as no row can pass", pruned.by_partition),
        ("pruned by bounds of columns", pruned.by_bounds),
        ("without rows", pruned.empty),
    ):
        if files:
            table.add_row(what, f"{files:,}", "", "")
    if found.whole.files and found.whole != found.total:
        table.add_row("read, and all rows pass", *_format_totals(found.whole))
    if found.delete_files:
        table.add_row("delete files, read besides", f"{found.delete_files:,}", "", "")
    return table


def _build_columns(found: ExplanationInfo) -> Table:
    from duckicelake.cli.console.terminal import make_printable

    table = _build_table(
        "column of the filter", "type", "files pruned", "files without bounds", "files with a value", "of", left=2
    )
    for column in found.columns:
        table.add_row(
            make_printable(column.name),
            column.type,
            f"{column.pruned:,}",
            f"{column.without_bounds:,}",
            f"{column.overlap:,g}",
            f"{column.of_files:,g}",
        )
    return table


def _build_partitions(found: ExplanationInfo) -> Table:
    table = _build_table("partition", "files", "of", "size", "rows")
    if found.partitions_total < 2 and not any(cost.partition for cost in found.partitions):
        return table
    shown = found.partitions[:_MAX_PRINTED_PARTITIONS]
    for cost in shown:
        files, size, rows = _format_totals(cost.read)
        table.add_row(_format_partition(cost), files, f"{cost.total.files:,}", size, rows)
    return table


def _format_partition(cost: PartitionReadInfo) -> str:
    from duckicelake.cli.console.terminal import make_printable

    fields = ", ".join(f"{name}={'null' if value is None else value}" for name, value in cost.partition.items())
    return make_printable(fields or "unpartitioned").plain


def _build_notes(found: ExplanationInfo) -> Iterator[str]:
    if found.snapshot_id is None:
        yield "The table has no snapshot: there is nothing to read."
        return
    if found.partitions_total > 1:
        left = found.partitions_read - min(len(found.partitions), _MAX_PRINTED_PARTITIONS)
        yield f"Partitions read: {found.partitions_read:,} of {found.partitions_total:,}" + (
            f"; {left:,} more are not listed." if left else "."
        )
    for condition in found.ignored:
        yield f"Prunes nothing, as no statistics decide it: {condition}"
    for column in found.columns:
        if column.is_worth_sorting_by:
            yield (
                f"Worth sorting by {column.name}: a value of it is looked for in {column.overlap:,g} of the "
                f"{column.of_files:,g} files of a partition; in sorted files, it is in few."
            )


def _format_totals(totals: FileSums) -> tuple[str, str, str]:
    from rich.filesize import decimal

    return f"{totals.files:,}", decimal(totals.bytes), f"{totals.rows:,}"
