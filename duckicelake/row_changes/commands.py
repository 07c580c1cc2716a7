"""`duckicelake changes`: print what happened to a table's rows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

import typer

from duckicelake.cli.catalog.connection import add_catalog_command, complete_names
from duckicelake.cli.console.command import DATA
from duckicelake.cli.console.terminal import follow_until_interrupted
from duckicelake.errors import format_count

if TYPE_CHECKING:
    from duckicelake.client.lake import Lake
    from duckicelake.row_changes.sinks import ChangeSink, SinkOptions

app: Final = typer.Typer()
_PLACE: Final = "DuckLake's number, Iceberg's id, a time in ISO form, a branch or tag"


def print_changes(
    lake: Lake,
    name: Annotated[str, typer.Argument(help="A table, as sales.orders.", autocompletion=complete_names)],
    since: Annotated[
        str | None, typer.Option("--from", help=f"Snapshot behind which changes begin: {_PLACE} (default: the first).")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--to", help=f"The last snapshot: {_PLACE} (default: the newest).")
    ] = None,
    columns: Annotated[str | None, typer.Option(help="Columns to print, joined by commas (default: all).")] = None,
    key: Annotated[
        str | None, typer.Option(help="Columns that identify a row, joined by commas (default: row ids).")
    ] = None,
    where: Annotated[
        str | None, typer.Option(help="Only rows for which this condition holds, as \"region = 'eu'\" (default: all).")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with changes that come, until Ctrl-C.")] = False,
    state: Annotated[
        Path | None, typer.Option(help="File that keeps how far you are; the next run goes on from there.")
    ] = None,
    sink: Annotated[
        str | None,
        typer.Option(help="Deliver to https://<host>/<path>, a webhook, or to kafka://<broker>:<port>/<topic>."),
    ] = None,
    webhook_secret: Annotated[
        str | None,
        typer.Option(
            help="Secret that signs messages of a webhook: whsec_ and base64.",
            envvar="DUCKICELAKE_CLIENT_WEBHOOK_SECRET",
            show_default=False,
        ),
    ] = None,
    allow_address: Annotated[
        list[str] | None,
        typer.Option(help="Address, network or host that a webhook may have though it isn't public; may be repeated."),
    ] = None,
    kafka: Annotated[
        str | None,
        typer.Option(
            help="Settings of Kafka's client, as security.protocol=SASL_SSL,sasl.username=me.",
            envvar="DUCKICELAKE_CLIENT_KAFKA",
            show_default=False,
        ),
    ] = None,
    retry_seconds: Annotated[
        float, typer.Option(min=0, help="How long a sink may take nothing before the command ends.")
    ] = 600.0,
) -> None:
    """Print the rows that a table's snapshots inserted, deleted and updated, as lines of JSON; or deliver them."""
    from duckicelake.errors import BadInputError
    from duckicelake.row_changes.client import ChangesReader
    from duckicelake.row_changes.sinks import SinkOptions, StateFile

    if follow and until is not None:
        raise BadInputError("--follow has no end, and --to names one: give one of them")
    named = {"from": since, "to": until, "columns": columns, "key": key, "where": where}
    query = {option: text for option, text in named.items() if text is not None}
    options = SinkOptions(
        url=sink,
        table=name,
        state=None if state is None else StateFile(state, since),
        secret=webhook_secret,
        kafka=kafka,
        allowed=tuple(allow_address or ()),
        key=tuple(key.split(",")) if key else (),
        retry_seconds=retry_seconds,
    )
    with _open_sink(options) as opened, follow_until_interrupted() if follow else nullcontext():
        reader = ChangesReader(lake, name, query, opened, opened.find_place(), note=partial(typer.echo, err=True))
        reader.read(is_following=follow)
    if sys.stderr.isatty():
        typer.echo(format_count(reader.rows, "change"), err=True)


@contextmanager
def _open_sink(options: SinkOptions) -> Iterator[ChangeSink]:
    """Open a sink for the block. Raises BadInputError for one that can't be, MissingExtraError, DeliveryError."""
    from duckicelake.errors import BadInputError
    from duckicelake.row_changes.kafka import open_kafka_sink
    from duckicelake.row_changes.sinks import FileSink
    from duckicelake.row_changes.webhook import open_webhook

    scheme = "" if options.url is None else urlsplit(options.url).scheme
    if options.url is None:
        yield FileSink(sys.stdout.buffer, options.state)
    elif scheme == "kafka":
        with open_kafka_sink(options) as sink:
            yield sink
    elif scheme in {"http", "https"}:
        yield open_webhook(options)
    else:
        raise BadInputError(f"Invalid sink {options.url!r}: expected https://<host>/<path> or kafka://<broker>/<topic>")


EXAMPLES: Final = (
    "duckicelake changes sales.orders --from 17",
    "duckicelake changes sales.orders --from 2026-11-01 --to 2026-11-02 --columns id,paid",
    "duckicelake changes sales.orders --where \"region = 'eu' AND amount > 100\" --columns id,amount",
    "duckicelake changes sales.orders --follow --state orders.json",
    "duckicelake changes sales.orders --follow --state orders.json --sink https://hooks.example.com/orders",
    "duckicelake changes sales.orders --follow --sink kafka://broker:9092/orders",
)
add_catalog_command(app, print_changes, *EXAMPLES, name="changes", panel=DATA)
