"""`duckicelake ingest-rows`: rows from pipes and files to a table."""

from typing import Annotated, Final

import typer

from duckicelake.cli.console.command import done_by
from duckicelake.cli.pipeline.exit_codes import one_line_errors
from duckicelake.rest.connection import DEFAULT_URI

EXAMPLES: Final = (
    "kafka-console-consumer --topic visits | duckicelake ingest-rows zoo.visits",
    "duckicelake ingest-rows zoo.visits january.csv february.csv --app-id visits-2026",
    "zcat visits.csv.gz | duckicelake ingest-rows zoo.visits --format csv --json",
)


@one_line_errors()
@done_by("duckicelake.cli.rows.ingest.ingest_rows")
def ingest_rows(
    table: Annotated[str, typer.Argument(help="The table, as ns.table. It must be there.")],
    files: Annotated[list[str] | None, typer.Argument(help="Files; none, or -: standard input.")] = None,
    format_: Annotated[
        str, typer.Option("--format", help="ndjson or csv (default: csv if the file is named so, else ndjson).")
    ] = "",
    app_id: Annotated[
        str | None, typer.Option(help="Name of this input: run again from its beginning, it goes on where it was.")
    ] = None,
    ignore_unknown: Annotated[
        bool, typer.Option("--ignore-unknown", help="Leave out columns that the table doesn't have.")
    ] = False,
    max_rows: Annotated[int, typer.Option(min=1, help="Rows of a batch, at most.")] = 10_000,
    max_age: Annotated[float, typer.Option(min=0, help="Seconds that a row waits for others.")] = 1.0,
    uri: Annotated[str, typer.Option(help="The catalog.", envvar="DUCKICELAKE_PIPELINE_URI")] = DEFAULT_URI,
    credential: Annotated[
        str | None,
        typer.Option(help="<id>:<secret> to log in with.", envvar="DUCKICELAKE_PIPELINE_CREDENTIAL"),
    ] = None,
    token: Annotated[str | None, typer.Option(help="A token instead.", envvar="DUCKICELAKE_PIPELINE_TOKEN")] = None,
    oauth2_server_uri: Annotated[
        str | None, typer.Option(help="Where tokens are given out (default: the catalog).")
    ] = None,
    scope: Annotated[str | None, typer.Option(help="What to ask for when logging in (default: all there is).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The summary as one JSON object.")] = False,
) -> None:
    """Append rows to a table: NDJSON, or CSV with a header, as they come, each once and in their order.

    CSV is read by the table's types; an empty field is null. A row that doesn't fit stops it, naming the line: the
    batches before its own are in the table. While the catalog is away or busy it waits, for up to five minutes.
    """
