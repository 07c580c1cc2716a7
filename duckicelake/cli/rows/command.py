"""`duckicelake ingest-rows`: append rows of files and pipes to a table."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final, cast, get_args

import typer

from duckicelake.cli.catalog.connection import suggest_names
from duckicelake.cli.console.terminal import print_json
from duckicelake.cli.pipeline.app import INTERRUPTED_EXIT_CODE
from duckicelake.errors import format_count

if TYPE_CHECKING:
    from duckicelake.cli.rows.files import RowsFormat, SourceLines
    from duckicelake.client.stream import Progress
    from duckicelake.client.writer import Writer
    from duckicelake.errors import RowsNotWrittenError
    from duckicelake.rest.connection import Connection

_BAD_ROW_PATTERN: Final = re.compile(r"(?<=[:;] )(?:row|line) (\d+)(?=[,:]| isn't)")
"""Matches the number of a row in an error of the catalog, from 0 on."""
EXAMPLES: Final = (
    "kafka-console-consumer --topic visits | duckicelake ingest-rows zoo.visits",
    "duckicelake ingest-rows zoo.visits january.csv february.csv --app-id visits-2026 --profile work",
    "zcat visits.csv.gz | duckicelake ingest-rows zoo.visits --format csv --json",
)


def ingest_rows(
    options: Mapping[str, str | None],
    table: Annotated[str, typer.Argument(help="The table, as ns.table. It must exist.")],
    files: Annotated[
        list[str] | None, typer.Argument(help="Files to read; - is standard input (default: standard input).")
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", help="ndjson or csv (default: csv if the file is named so, else ndjson).")
    ] = "",
    app_id: Annotated[
        str | None,
        typer.Option(
            help="Name of this input: a repeated run with the same name continues where the last one stopped."
        ),
    ] = None,
    ignore_unknown: Annotated[
        bool, typer.Option("--ignore-unknown", help="Leave out columns that the table doesn't have.")
    ] = False,
    max_rows: Annotated[int, typer.Option(min=1, help="Max rows of a batch.")] = 10_000,
    max_age: Annotated[float, typer.Option(min=0, help="Max seconds that a row waits for its batch to fill.")] = 1.0,
    oauth2_server_uri: Annotated[
        str | None, typer.Option(help="URI that hands out tokens (default: the catalog's).")
    ] = None,
    scope: Annotated[str | None, typer.Option(help="Scope to request when logging in (default: all scopes).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as one JSON object.")] = False,
) -> None:
    """Append rows to a table: NDJSON, or CSV with a header, as they arrive, each exactly once and in order.

    CSV fields are read as the types of the table's columns; an empty field is null. The command stops at a row that
    doesn't fit and names its line; the batches before it are in the table. While the catalog is unreachable or busy,
    the command waits for up to five minutes.
    """
    from duckicelake.cli.rows.files import STANDARD_INPUT
    from duckicelake.client.batch import Batching
    from duckicelake.client.lake import Lake
    from duckicelake.errors import NotAllowedError
    from duckicelake.rest.profiles import read_connection

    connection = read_connection(**options, oauth2_server_uri=oauth2_server_uri, scope=scope)
    if connection.read_only_by is not None:
        raise NotAllowedError(f"{connection.read_only_by} is read-only: rows for {table} are refused")
    began = time.monotonic()
    with suggest_names(Lake(connection), table):
        progress, is_whole = append_files(
            table,
            connection,
            files or [STANDARD_INPUT],
            _parse_format(format_),
            batching=Batching(max_rows=max_rows, max_age=max_age),
            app_id=app_id,
            on_unknown="ignore" if ignore_unknown else "reject",
        )
    print_summary(progress, time.monotonic() - began, as_json=as_json)
    if not is_whole:
        raise typer.Exit(INTERRUPTED_EXIT_CODE)


def append_files(
    table: str, connection: Connection, files: Sequence[str], format_: RowsFormat | None = None, **options: Any
) -> tuple[Progress, bool]:
    """Append the rows of files; return how far it came, and False if Ctrl-C ended the input early.

    format_: None infers it from each file's name. options: of the Writer. Raises PipelineError.
    """
    from duckicelake.cli.rows.files import RowSource, SourceLines
    from duckicelake.client.writer import Writer
    from duckicelake.errors import RowsNotWrittenError

    source, places = RowSource(files, format_), SourceLines()
    try:
        with Writer(table, connection, **options) as writer:
            is_whole = copy_rows(source.read(places, lambda: load_column_types(connection, table)), writer, source.size)
    except RowsNotWrittenError as stopped:
        raise type(stopped.reason)(locate_error(stopped, places)) from stopped
    if writer.progress.appended == 0:
        load_column_types(
            connection, table
        )  # no row was sent, so the catalog has not checked yet that the table exists
    return writer.progress, is_whole


def copy_rows(rows: Iterator[tuple[Any, int]], writer: Writer, size: int | None) -> bool:
    """Append all rows and wait until they are in the table. Return False if Ctrl-C ended the input early.

    size: bytes of the input, None if unknown.
    """
    from duckicelake.cli.rows.files import show_progress

    is_whole = True
    with show_progress(writer, "writing rows", size) as read:
        try:
            for row, bytes_ in rows:
                writer.append(row)
                read(bytes_)
        except KeyboardInterrupt:
            is_whole = False
        writer.flush()
    return is_whole


def locate_error(stopped: RowsNotWrittenError, places: SourceLines) -> str:
    """Describe the error with files and lines in place of row numbers."""
    text = _BAD_ROW_PATTERN.sub(lambda match: places.of(stopped.first + int(match[1])), str(stopped))
    return f"{text}; written before it: {format_count(stopped.first, 'row')}"


def load_column_types(connection: Connection, table: str) -> Mapping[str, Any]:
    """Load the Iceberg types of a table's columns, as JSON values."""
    from duckicelake.rest.client import CatalogClient
    from duckicelake.rest.login import LoginKeeper
    from duckicelake.rest.names import parse_table

    client = CatalogClient(connection, LoginKeeper(connection.uri))
    metadata = client.load_table(*parse_table(table), snapshots="refs")["metadata"]
    schemas = {schema["schema-id"]: schema for schema in metadata["schemas"]}
    fields = schemas[metadata["current-schema-id"]]["fields"]
    return {field["name"]: field["type"] for field in fields}


def print_summary(progress: Progress, seconds: float, *, as_json: bool) -> None:
    """Print the summary."""
    from duckicelake.cli.rows.files import describe_progress

    if as_json:
        summary = {name.replace("_", "-"): value for name, value in asdict(progress).items() if name != "trouble"}
        print_json({**summary, "seconds": round(seconds, 3)})
    else:
        snapshot = "no snapshot" if progress.snapshot_id is None else f"snapshot {progress.snapshot_id}"
        typer.echo(f"{describe_progress(progress, seconds)}; {snapshot}")


def _parse_format(text: str) -> RowsFormat | None:
    from duckicelake.cli.rows.files import RowsFormat
    from duckicelake.errors import BadInputError

    if text and text not in get_args(RowsFormat):
        raise BadInputError(f"Invalid --format {text!r}: expected ndjson or csv")
    return cast("RowsFormat", text) if text else None
