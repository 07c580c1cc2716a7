"""`duckicelake ingest-rows`: append rows of files and pipes to a table."""

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final, cast, get_args

import typer

from duckicelake.cli.pipeline.exit_codes import INTERRUPTED_EXIT_CODE
from duckicelake.cli.rows.files import STANDARD_INPUT, RowsFormat, RowSource, SourceLines
from duckicelake.cli.rows.progress import describe_progress, show_progress
from duckicelake.client.batch import Batching
from duckicelake.client.stream import Progress
from duckicelake.client.writer import Writer
from duckicelake.errors import BadInput, RowsNotWritten
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.connection import Connection
from duckicelake.rest.names import parse_table

_BAD_ROW_PATTERN: Final = re.compile(r"(?<=[:;] )(?:row|line) (\d+)(?=[,:]| isn't)")
"""How the catalog names rows of a batch, from 0 on."""


def ingest_rows(
    *,
    table: str,
    files: list[str] | None,
    format_: str,
    app_id: str | None,
    ignore_unknown: bool,
    max_rows: int,
    max_age: float,
    uri: str,
    credential: str | None,
    token: str | None,
    oauth2_server_uri: str | None,
    scope: str | None,
    as_json: bool,
) -> None:
    """Append them and tell how many. Raises PipelineError; Exit if it was interrupted."""
    source = RowSource(files or [STANDARD_INPUT], _parse_format(format_))
    connection = Connection(uri, credential, token, oauth2_server_uri, scope)
    began, places = time.monotonic(), SourceLines()
    try:
        with Writer(
            table,
            connection,
            Batching(max_rows=max_rows, max_age=max_age),
            app_id=app_id,
            on_unknown="ignore" if ignore_unknown else "reject",
        ) as writer:
            is_whole = copy_rows(source.read(places, lambda: load_column_types(connection, table)), writer, source.size)
    except RowsNotWritten as stopped:
        raise type(stopped.reason)(locate_error(stopped, places)) from stopped
    if writer.progress.appended == 0:
        load_column_types(connection, table)  # nobody has said yet whether there is such a table
    print_summary(writer.progress, time.monotonic() - began, as_json=as_json)
    if not is_whole:
        raise typer.Exit(INTERRUPTED_EXIT_CODE)


def copy_rows(rows: Iterator[tuple[Any, int]], writer: Writer, size: int | None) -> bool:
    """Append all there is, of so many bytes, and wait until it is in the table; False: only what came before Ctrl-C."""
    is_whole = True
    with show_progress(writer, "writing rows", size) as read:
        try:
            for some, bytes_ in rows:
                writer.append(some)
                read(bytes_)
        except KeyboardInterrupt:
            is_whole = False
        writer.flush()
    return is_whole


def locate_error(stopped: RowsNotWritten, places: SourceLines) -> str:
    """The reason, with files and lines in place of numbers of rows."""
    text = _BAD_ROW_PATTERN.sub(lambda match: places.of(stopped.first + int(match[1])), str(stopped))
    return f"{text}; {stopped.first:,} rows before that are in the table"


def load_column_types(connection: Connection, table: str) -> Mapping[str, Any]:
    """Iceberg's types of a table's columns, in its JSON."""
    metadata = CatalogClient(connection).load_table(*parse_table(table), snapshots="refs")["metadata"]
    schema = next(each for each in metadata["schemas"] if each["schema-id"] == metadata["current-schema-id"])
    return {field["name"]: field["type"] for field in schema["fields"]}


def print_summary(progress: Progress, seconds: float, *, as_json: bool) -> None:
    """Print the summary."""
    if as_json:
        summary = {name.replace("_", "-"): value for name, value in asdict(progress).items() if name != "trouble"}
        typer.echo(json.dumps({**summary, "seconds": round(seconds, 3)}))
    else:
        snapshot = "no snapshot" if progress.snapshot_id is None else f"snapshot {progress.snapshot_id}"
        typer.echo(f"{describe_progress(progress, seconds)}; {snapshot}")


def _parse_format(text: str) -> RowsFormat | None:
    if text and text not in get_args(RowsFormat):
        raise BadInput(f"--format {text}: write ndjson or csv")
    return cast("RowsFormat", text) if text else None
