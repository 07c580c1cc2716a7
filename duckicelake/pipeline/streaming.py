"""A structured stream into a table, each row exactly once, whatever is killed and whenever.

    write_stream(client, stream, StreamRequest(load_into(Target(("web",), "events")), "./checkpoint"), SILENT)

Spark's checkpoint says which rows are which epoch; the catalog commits each epoch of a query once. An epoch that was
under way when something died is tried again, and does nothing if it had been committed. While the catalog is away the
stream waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from duckicelake.errors import CatalogUnreachable
from duckicelake.pipeline.destination import Load
from duckicelake.pipeline.ingest import rows_of
from duckicelake.pipeline.reporting import Reporter
from duckicelake.pipeline.running import JOB_KEY, Job, running
from duckicelake.rest.client import CatalogClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from duckicelake.pipeline.loading import Loaded
    from duckicelake.pipeline.writing import Epoch

PATIENCE_SECONDS: Final = 600.0
"""How long a stream waits for a catalog that doesn't answer, from the first time that it didn't."""
_PAUSE_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 1

Take = Callable[["DataFrame", "Epoch"], "Loaded | None"]
"""Loads the rows of an epoch; None: there was nothing in it."""


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """How rows go to the table. checkpoint: a folder that is this stream's alone, and stays. every: seconds.

    until_idle: stop once there is nothing more to read, instead of waiting for it. inputs: places that lineage names.
    """

    load: Load
    checkpoint: str
    every: float = 10.0
    until_idle: bool = False
    inputs: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class StreamResult:
    """What a stream did until it was idle: rows that are in the table, and in its quarantine."""

    table: str
    rows: int
    quarantined: int


def write_stream(client: CatalogClient, stream: DataFrame, request: StreamRequest, reporter: Reporter) -> StreamResult:
    """Write the stream to the table until it is interrupted. Raises as `ingest` does, and CatalogUnreachable."""
    from duckicelake.pipeline.loading import load
    from duckicelake.pipeline.reading import frame_group
    from duckicelake.pipeline.targets import columns_of

    def take(rows: DataFrame, epoch: Epoch) -> Loaded:
        session = rows.sparkSession
        columns = columns_of(session, client, request.load.target)
        return load(session, client, request.load, epoch, [frame_group(rows)], columns=columns)

    return run_stream(client, stream, request, take, reporter)


def run_stream(
    client: CatalogClient, stream: DataFrame, request: StreamRequest, take: Take, reporter: Reporter
) -> StreamResult:
    """Have `take` load each epoch; start again from the checkpoint while the catalog can't be reached."""
    target = request.load.target
    parameters = {"checkpoint": request.checkpoint, "mode": request.load.mode, "inputs": list(request.inputs)}
    with running(client, "stream", target.namespace, target.table, parameters=parameters) as job:
        epochs = _Epochs(client, job, take, reporter)
        reporter.begin(f"streaming into {target}", unit="rows")
        while epochs.goes_on(_start(stream, request, epochs)):
            time.sleep(_PAUSE_SECONDS)
        reporter.done()
        return StreamResult(str(target), job.counts.get("rows", 0), job.counts.get("quarantined", 0))


def _start(stream: DataFrame, request: StreamRequest, epochs: _Epochs) -> StreamingQuery:
    writer = stream.writeStream.option("checkpointLocation", request.checkpoint).foreachBatch(epochs.take)
    epochs.begin()
    if request.until_idle:
        query = writer.trigger(availableNow=True).start()
    else:
        query = writer.trigger(processingTime=f"{request.every} seconds").start()
    epochs.query_id.set_result(query.id)
    return query


@dataclass(slots=True)
class Outage:
    """The time in which the catalog hasn't answered. since: seconds; None while it answers."""

    since: float | None = None

    def is_too_long(self, now: float) -> bool:
        """Whether there is no more waiting; it begins when this is asked first."""
        self.since = now if self.since is None else self.since
        return now - self.since > PATIENCE_SECONDS

    def end(self) -> None:
        self.since = None


class _Epochs:
    """What becomes of a stream's epochs."""

    def __init__(self, client: CatalogClient, job: Job, take: Take, reporter: Reporter) -> None:
        self._client, self._job, self._take, self._reporter = client, job, take, reporter
        self._outage = Outage()
        self.begin()

    def begin(self) -> None:
        """To be called before the query is started; its id must be set after."""
        self.query_id: Future[str] = Future()
        self._failure: Exception | None = None

    def take(self, rows: DataFrame, number: int) -> None:
        """Load an epoch; called by Spark, in a thread of its own. The query ends if this raises."""
        from duckicelake.pipeline.writing import Epoch

        epoch = Epoch(self.query_id.result(), number, {JOB_KEY: self._job.id})
        try:
            loaded = self._take(rows, epoch)
        except Exception as error:
            self._failure = error
            raise
        self._outage.end()
        if loaded is not None:
            self._count(loaded)

    def goes_on(self, query: StreamingQuery) -> bool:
        """Wait for the query's end; whether it is to be started again. Raises what it failed with."""
        try:
            while not query.awaitTermination(_LOOK_SECONDS):
                pass  # so that a Ctrl-C comes through, which waits for calls to Java to end
        except KeyboardInterrupt:
            query.stop()
            raise
        except Exception as error:
            failure = self._explained(self._failure or error)
            if not isinstance(failure, CatalogUnreachable) or self._outage.is_too_long(time.monotonic()):
                raise failure from error
            self._reporter.say(f"{failure}; the stream goes on when it is back")
            return True
        return False

    def _explained(self, error: Exception) -> Exception:
        from duckicelake.pipeline.failures import explained

        return explained(error) or error

    def _count(self, loaded: Loaded) -> None:
        runs: dict[str, Any] = {"rows": loaded.run, "quarantined": loaded.quarantined}
        for name, run in runs.items():
            rows = 0 if run is None else rows_of(run)
            self._job.counts[name] = self._job.counts.get(name, 0) + rows
            self._reporter.advance(rows)
