"""Ingest: files, or a database by JDBC, into a table, exactly once for each run id.

    request = IngestRequest(parse_source(["flights.csv"]), build_load_request(Target(("air",), "flights")))
    ingest(spark, client, request, SILENT)

Records that can't be rows go to the quarantine table with the reason. A run that is repeated does nothing; one that was
killed goes on where it was.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import uuid4

from duckicelake.errors import BadInputError
from duckicelake.pipeline.destination import LoadRequest
from duckicelake.pipeline.epoch import SOURCE_KEY, Epoch, build_quarantine_epoch, count_rows, is_finished
from duckicelake.pipeline.job import PipelineJob, run_job
from duckicelake.pipeline.progress import Reporter
from duckicelake.pipeline.sources import TEXT_FORMATS, PipelineSource, SourceFile, compute_fingerprint, mask_secrets
from duckicelake.properties import JOB_KEY
from duckicelake.rest.client import CatalogClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from duckicelake.pipeline.load import LoadResult


_MAX_INPUTS: Final = 10


@dataclass(frozen=True, slots=True)
class IngestRequest:
    """What to read, and how it goes to the table. run_id: this and no other content is ingested under it once."""

    source: PipelineSource
    load: LoadRequest
    run_id: str = field(default_factory=lambda: str(uuid4()))


@dataclass(frozen=True, slots=True)
class IngestResult:
    """What a run came to, by this attempt or an earlier one. result: `done`, or `unchanged` if nothing was left to do.

    rows: in the table; quarantined: in the quarantine, which has a name only if there are any.
    """

    table: str
    run_id: str
    result: Literal["done", "unchanged"]
    rows: int
    quarantined: int
    quarantine: str | None
    files: int
    snapshot_ids: tuple[int, ...]
    seconds: float


def ingest(spark: SparkSession, client: CatalogClient, request: IngestRequest, reporter: Reporter) -> IngestResult:
    """Ingest the source, or what is left to do of the run.

    BadSourceError, BadColumnError and BadInputError before anything is written; JobConflictError if other writers are
    faster every time. In one Spark session merges, and what makes tables, wait for each other: jobs that shall run
    beside each other take one each (`spark.newSession()`).
    """
    from duckicelake.pipeline.reader import list_files

    began = time.monotonic()
    source, target = request.source, request.load.target
    reporter.begin(f"listing {', '.join(source.masked_locations)}")
    files = list_files(spark, source)
    reporter.done()
    parameters: dict[str, Any] = {
        "source": source.masked_locations[:10],
        "format": source.format,
        "mode": request.load.mode,
    }
    parameters |= {"files": len(files), "inputs": list_inputs(source)}
    with run_job(client, "ingest", target.namespace, target.table, run_id=request.run_id, parameters=parameters) as job:
        reporter.begin(f"ingesting into {target} (run id {request.run_id})", len(files) or None, "files")
        loaded, is_new = _ingest_once(spark, client, request, files, job, reporter.say)
        reporter.advance(len(files))
        reporter.done()
        result = _build_result(request, loaded, is_new, len(files), time.monotonic() - began)
        counts = {"rows": result.rows, "quarantined": result.quarantined, "files": result.files}
        job.counts.update(counts)
        job.ends(result.result, snapshot_ids=result.snapshot_ids)
    return result


def list_inputs(source: PipelineSource) -> list[str]:
    """Return the first places that are read, as the catalog's lineage names them; a database has no name there."""
    if source.format == "jdbc":
        return []
    is_url = re.compile(r"[a-z][a-z0-9+.-]*:/", re.IGNORECASE).match
    return [
        mask_secrets(location if is_url(location) else os.path.abspath(location))  # noqa: PTH100 - a pattern is no path
        for location in source.locations[:_MAX_INPUTS]
    ]


def _ingest_once(
    spark: SparkSession,
    client: CatalogClient,
    request: IngestRequest,
    files: list[SourceFile],
    job: PipelineJob,
    say: Callable[[str], None],
) -> tuple[LoadResult, bool]:
    """Return what the run came to, and whether anything was left to do."""
    from duckicelake.pipeline.load import LoadResult

    epoch = Epoch(request.run_id, 0, {SOURCE_KEY: compute_fingerprint(request.source, files), JOB_KEY: job.id})
    run = epoch.done(client, request.load.target)
    if run is not None and is_finished(client, request.load.target, request.run_id):
        aside = build_quarantine_epoch(request.load, epoch).done(client, request.load.quarantine)
        return LoadResult(run, aside), False
    return load_files(spark, client, request.source, request.load, files, epoch, say), True


def load_files(
    spark: SparkSession,
    client: CatalogClient,
    source: PipelineSource,
    how: LoadRequest,
    files: list[SourceFile],
    epoch: Epoch,
    say: Callable[[str], None],
) -> LoadResult:
    """Read the files and load their rows; columns that are found out of text are said before that."""
    from duckicelake.pipeline.load import load_rows, read_columns
    from duckicelake.pipeline.reader import format_found_columns, read_groups

    columns = read_columns(spark, client, how.target)
    given = None if source.schema is None else _parse_schema(spark, source.schema)
    groups = read_groups(spark, source, files, given, columns, apart=how.mode == "merge")
    if given is None and source.format in TEXT_FORMATS:
        for line in format_found_columns((group.schema for group in groups), columns):
            say(line)
    return load_rows(spark, client, how, epoch, groups, columns=columns, given=given)


def _parse_schema(spark: SparkSession, ddl: str) -> Any:
    try:
        return spark.createDataFrame([], ddl).schema
    except Exception as error:
        raise BadInputError(f"--schema {ddl!r} isn't columns with types, as 'id long, name string': {error}") from error


def _build_result(request: IngestRequest, loaded: LoadResult, is_new: bool, files: int, seconds: float) -> IngestResult:
    bad = loaded.quarantined
    return IngestResult(
        table=str(request.load.target),
        run_id=request.run_id,
        result="done" if is_new else "unchanged",
        rows=count_rows(loaded.run),
        quarantined=0 if bad is None else count_rows(bad),
        quarantine=None if bad is None else str(request.load.quarantine),
        files=files,
        snapshot_ids=tuple(run["snapshot-id"] for run in (loaded.run, bad) if run is not None),
        seconds=round(seconds, 3),
    )
