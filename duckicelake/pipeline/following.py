"""Files as they come into a folder: a structured stream of their names, each epoch ingested as any files are.

So what holds for ingest holds here: formats, schemas that change, quarantine, and no file twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from duckicelake.errors import BadInput
from duckicelake.pipeline.destination import Load
from duckicelake.pipeline.ingest import inputs_of, load_files
from duckicelake.pipeline.reporting import Reporter
from duckicelake.pipeline.sources import Source, SourceFile, with_content
from duckicelake.pipeline.streaming import StreamRequest, StreamResult, run_stream
from duckicelake.rest.client import CatalogClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from duckicelake.pipeline.loading import Loaded
    from duckicelake.pipeline.writing import Epoch

FILES_AT_ONCE: Final = 1000
_OPTIONS: Final = {
    "maxFilesPerTrigger": str(FILES_AT_ONCE),
    "recursiveFileLookup": "true",
    "maxFileAge": "36500d",  # else files that are moved in a week older than the newest one are left out
}
_NAMES: Final = "path string, modificationTime timestamp, length long, content binary"


@dataclass(frozen=True, slots=True)
class FollowRequest:
    """source: one folder or pattern. checkpoint: a folder that is this stream's alone, and stays. every: seconds."""

    source: Source
    load: Load
    checkpoint: str
    every: float = 10.0
    until_idle: bool = False


def follow(spark: SparkSession, client: CatalogClient, request: FollowRequest, reporter: Reporter) -> StreamResult:
    """Ingest the folder's files, and those that come, until it is interrupted. Files must come whole, by a rename.

    However old they are; but a path is read once, whatever is written to it later.
    Raises as `ingest` does: a file that is refused stops the stream before it, and is tried again by the next.
    """
    source = request.source
    if source.format == "jdbc" or len(source.locations) > 1:
        raise BadInput("--follow takes one folder or pattern of files")
    names = spark.readStream.format("binaryFile").schema(_NAMES).options(**_OPTIONS)
    stream = names.load(source.locations[0]).select("path", "length")
    base = None if set("*?[{") & set(source.locations[0]) else source.locations[0]

    def take(rows: DataFrame, epoch: Epoch) -> Loaded | None:
        files = with_content(source, (SourceFile(path, size, 0, base) for path, size in rows.collect()))
        if not files:
            return None
        return load_files(rows.sparkSession, client, source, request.load, sorted(files), epoch, reporter.say)

    how = StreamRequest(
        request.load, request.checkpoint, request.every, until_idle=request.until_idle, inputs=inputs_of(source)
    )
    return run_stream(client, stream, how, take, reporter)
