"""What a command of the pipeline works with: the catalog, a Spark, and a way to tell how far it is."""

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import typer

from duckicelake.cli.pipeline.showing import Display, display
from duckicelake.pipeline.launching import ICEBERG_AWS
from duckicelake.pipeline.lineage import Wanted, listening, parent_conf
from duckicelake.pipeline.pairs import pairs
from duckicelake.pipeline.progress import watching
from duckicelake.pipeline.session import spark_session
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.connection import Connection

Summary = Mapping[str, Any] | None
"""What a command did, as JSON values; None: it has told it already."""
_IDS = frozenset({"upto"})
"""Numbers of a summary that nobody counts."""


@dataclass(frozen=True)
class Run:
    """One command that runs."""

    connection: Connection
    reporter: Display
    as_json: bool
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    lineage: Wanted = "auto"

    @cached_property
    def client(self) -> CatalogClient:
        return CatalogClient(self.connection)

    @contextmanager
    def spark(self, packages: Sequence[str] = ()) -> Iterator[Any]:
        """A session of Spark with the catalog `lake`, for as long as the context lasts."""
        config = self.client.config()  # a wrong address or password shows at once, not after Spark's attempts
        on_s3 = "S3FileIO" in config.get("defaults", {}).get("io-impl", "")
        conf = {**parent_conf(os.environ), **self.conf}
        listener = listening(self.lineage, self.connection, self.client.logged_in(), conf)
        needed = (*packages, *listener.packages, *((ICEBERG_AWS,) if on_s3 else ()))
        self.reporter.begin("starting Spark")
        told = spark_session(self.connection, master=self.master, conf=listener.conf, packages=needed)
        with _unlogged(), told as session:
            self.reporter.done()
            with watching(session, self.reporter.tasks):
                yield session

    def tell(self, summary: Summary) -> None:
        """Print the summary: one JSON object, or lines for people."""
        if summary is None:
            return
        if self.as_json:
            typer.echo(json.dumps(summary, default=str))
            return
        for name, value in summary.items():
            if value not in (None, [], (), {}):
                typer.echo(f"{name.replace('_', ' '):20} {value if name in _IDS else _plain(value)}")


@contextmanager
def _unlogged() -> Iterator[None]:
    """Without the lines that pyspark and py4j log about what they also raise."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


@contextmanager
def run_of(
    *, master: str | None, conf: Sequence[str] | None, lineage: Wanted, as_json: bool, **where: Any
) -> Iterator[Run]:
    """The run of these options; BadInput for a wrong one."""
    settings = pairs("--conf", conf, "spark.driver.memory=4g")
    with display(as_json=as_json) as reporter:
        yield Run(Connection(**where), reporter, as_json, master, settings, lineage)


def _plain(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
