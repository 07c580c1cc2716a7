"""One run of a pipeline command: catalog, Spark session and summary."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import typer

from duckicelake.cli.console.terminal import print_json

if TYPE_CHECKING:
    from duckicelake.cli.pipeline.display import Display
    from duckicelake.pipeline.session import ListenerMode
    from duckicelake.rest.client import CatalogClient
    from duckicelake.rest.connection import Connection

Summary = Mapping[str, Any] | None
"""The result of a command, as JSON values; None: the command has printed it."""
_ID_FIELDS: Final = frozenset({"upto"})
"""Fields of a summary that are ids: printed without separators of thousands."""


@dataclass(frozen=True)
class PipelineRun:
    """One run of a command: the catalog, where progress goes, and settings of Spark."""

    connection: Connection
    reporter: Display
    as_json: bool
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    lineage: ListenerMode = "auto"

    @cached_property
    def client(self) -> CatalogClient:
        from duckicelake.rest.client import CatalogClient

        return CatalogClient(self.connection)

    @contextmanager
    def spark(self, packages: Sequence[str] = ()) -> Iterator[Any]:
        """Open a Spark session with the catalog `lake`, for as long as the context lasts."""
        from duckicelake.pipeline.launcher import ICEBERG_AWS_PACKAGE
        from duckicelake.pipeline.progress import watch_tasks
        from duckicelake.pipeline.session import build_listener_settings, build_parent_conf, open_spark_session

        config = self.client.config()  # a wrong address or password fails now, before Spark has started
        on_s3 = "S3FileIO" in config.get("defaults", {}).get("io-impl", "")
        conf = {**build_parent_conf(os.environ), **self.conf}
        listener = build_listener_settings(self.lineage, self.connection, self.client.get_token(), conf)
        needed = (*packages, *listener.packages, *((ICEBERG_AWS_PACKAGE,) if on_s3 else ()))
        self.reporter.begin("starting Spark")
        opened = open_spark_session(self.connection, master=self.master, conf=listener.conf, packages=needed)
        with _disable_logging(), opened as session:
            self.reporter.done()
            with watch_tasks(session, self.reporter.tasks):
                yield session

    def print_summary(self, summary: Summary) -> None:
        """Print the summary: one JSON object, or lines for people."""
        if summary is None:
            return
        if self.as_json:
            print_json(summary)
            return
        for name, value in summary.items():
            if value not in (None, [], (), {}):
                typer.echo(f"{name.replace('_', ' '):20} {value if name in _ID_FIELDS else _format_value(value)}")


@contextmanager
def _disable_logging() -> Iterator[None]:
    """Disable the log lines of pyspark and py4j about errors that they also raise."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


@contextmanager
def open_run(
    *, master: str | None, conf: Sequence[str] | None, lineage: ListenerMode, as_json: bool, **where: Any
) -> Iterator[PipelineRun]:
    """Open the run of these options. Raises BadInputError for a wrong option."""
    from duckicelake.cli.pipeline.display import open_display
    from duckicelake.pipeline.sources import parse_pairs
    from duckicelake.rest.connection import Connection
    from duckicelake.rest.http import PIPELINE_AGENT

    settings = parse_pairs("--conf", conf, "spark.driver.memory=4g")
    with open_display(as_json=as_json) as reporter:
        connection = Connection(**where, headers={"User-Agent": PIPELINE_AGENT})
        yield PipelineRun(connection, reporter, as_json, master, settings, lineage)


def _format_value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
