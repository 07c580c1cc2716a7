"""Load a structured stream, or the files of a folder as they come, each row exactly once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from duckicelake.errors import BadInputError, CatalogUnreachableError
from duckicelake.pipeline.destination import LoadRequest
from duckicelake.pipeline.epoch import count_rows
from duckicelake.pipeline.ingest import list_inputs, load_files
from duckicelake.pipeline.job import PipelineJob, run_job
from duckicelake.pipeline.progress import Reporter
from duckicelake.pipeline.sources import PipelineSource, SourceFile, drop_empty_files
from duckicelake.properties import JOB_KEY
from duckicelake.rest.client import CatalogClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from duckicelake.pipeline.epoch import Epoch
    from duckicelake.pipeline.load import LoadResult

MAX_OUTAGE_SECONDS: Final = 600.0
"""How long a stream waits for a catalog that doesn't answer, from the first time that it didn't."""
_PAUSE_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 1
TakeEpoch = Callable[["DataFrame", "Epoch"], "LoadResult | None"]
"""Loads the rows of an epoch; None: there was nothing in it."""
MAX_EPOCH_FILES: Final = 1000
_STREAM_OPTIONS: Final = {
    "maxFilesPerTrigger": str(MAX_EPOCH_FILES),
    "recursiveFileLookup": "true",
    "maxFileAge": "36500d",  # else files that are moved in a week older than the newest one are left out
}
_FILE_NAME_SCHEMA: Final = "path string, modificationTime timestamp, length long, content binary"


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """How rows go to the table. checkpoint: a folder that is this stream's alone, and stays. every: seconds.

    until_idle: stop once there is nothing more to read, instead of waiting for it. inputs: places that lineage names.
    """

    load: LoadRequest
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
    """Write the stream to the table until it is interrupted. Raises as `ingest` does, and CatalogUnreachableError."""
    from duckicelake.pipeline.load import load_rows, read_columns
    from duckicelake.pipeline.reader import build_frame_group

    def take(rows: DataFrame, epoch: Epoch) -> LoadResult:
        session = rows.sparkSession
        columns = read_columns(session, client, request.load.target)
        return load_rows(session, client, request.load, epoch, [build_frame_group(rows)], columns=columns)

    return run_stream(client, stream, request, take, reporter)


def run_stream(
    client: CatalogClient, stream: DataFrame, request: StreamRequest, take: TakeEpoch, reporter: Reporter
) -> StreamResult:
    """Have `take` load each epoch; start again from the checkpoint while the catalog can't be reached."""
    target = request.load.target
    parameters = {"checkpoint": request.checkpoint, "mode": request.load.mode, "inputs": list(request.inputs)}
    with run_job(client, "stream", target.namespace, target.table, parameters=parameters) as job:
        epochs = _EpochLoader(client, job, take, reporter)
        reporter.begin(f"streaming into {target}", unit="rows")
        while epochs.goes_on(_start_query(stream, request, epochs)):
            time.sleep(_PAUSE_SECONDS)
        reporter.done()
        return StreamResult(str(target), job.counts.get("rows", 0), job.counts.get("quarantined", 0))


def _start_query(stream: DataFrame, request: StreamRequest, epochs: _EpochLoader) -> StreamingQuery:
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
        """Return whether there is no more waiting; it begins when this is asked first."""
        self.since = now if self.since is None else self.since
        return now - self.since > MAX_OUTAGE_SECONDS

    def end(self) -> None:
        self.since = None


class _EpochLoader:
    """What becomes of a stream's epochs."""

    def __init__(self, client: CatalogClient, job: PipelineJob, take: TakeEpoch, reporter: Reporter) -> None:
        self._client, self._job, self._take, self._reporter = client, job, take, reporter
        self._outage = Outage()
        self.begin()

    def begin(self) -> None:
        """Begin before the query is started; its id must be set after."""
        self.query_id: Future[str] = Future()
        self._failure: Exception | None = None

    def take(self, rows: DataFrame, number: int) -> None:
        """Load an epoch; called by Spark, in a thread of its own. The query ends if this raises."""
        from duckicelake.pipeline.epoch import Epoch

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
            while not query.awaitTermination(_POLL_SECONDS):
                pass  # so that a Ctrl-C comes through, which waits for calls to Java to end
        except KeyboardInterrupt:
            query.stop()
            raise
        except Exception as error:
            failure = self._explain(self._failure or error)
            if not isinstance(failure, CatalogUnreachableError) or self._outage.is_too_long(time.monotonic()):
                raise failure from error
            self._reporter.say(f"{failure}; the stream goes on when it is back")
            return True
        return False

    def _explain(self, error: Exception) -> Exception:
        from duckicelake.pipeline.failures import explain_failure

        return explain_failure(error) or error

    def _count(self, loaded: LoadResult) -> None:
        runs: dict[str, Any] = {"rows": loaded.run, "quarantined": loaded.quarantined}
        for name, run in runs.items():
            rows = 0 if run is None else count_rows(run)
            self._job.counts[name] = self._job.counts.get(name, 0) + rows
            self._reporter.advance(rows)


@dataclass(frozen=True, slots=True)
class FollowRequest:
    """source: one folder or pattern. checkpoint: a folder that is this stream's alone, and stays. every: seconds."""

    source: PipelineSource
    load: LoadRequest
    checkpoint: str
    every: float = 10.0
    until_idle: bool = False


def follow_files(
    spark: SparkSession, client: CatalogClient, request: FollowRequest, reporter: Reporter
) -> StreamResult:
    """Ingest the folder's files, and those that come, until it is interrupted. Files must come whole, by a rename.

    However old they are; but a path is read once, whatever is written to it later.
    Raises as `ingest` does: a file that is refused stops the stream before it, and is tried again by the next.
    """
    source = request.source
    if source.format == "jdbc" or len(source.locations) > 1:
        raise BadInputError("--follow takes one folder or pattern of files")
    names = spark.readStream.format("binaryFile").schema(_FILE_NAME_SCHEMA).options(**_STREAM_OPTIONS)
    stream = names.load(source.locations[0]).select("path", "length")
    base = None if set("*?[{") & set(source.locations[0]) else source.locations[0]

    def take(rows: DataFrame, epoch: Epoch) -> LoadResult | None:
        files = drop_empty_files(source, (SourceFile(path, size, 0, base) for path, size in rows.collect()))
        if not files:
            return None
        return load_files(rows.sparkSession, client, source, request.load, sorted(files), epoch, reporter.say)

    how = StreamRequest(
        request.load, request.checkpoint, request.every, until_idle=request.until_idle, inputs=list_inputs(source)
    )
    return run_stream(client, stream, how, take, reporter)
