"""Read the changes of a table and write them to an outlet, one snapshot after another."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO

from duckicelake.errors import BadInputError, CatalogUnreachableError
from duckicelake.pipeline.destination import Target, build_load_request
from duckicelake.pipeline.failures import explain_failure
from duckicelake.pipeline.job import PipelineJob, run_job
from duckicelake.pipeline.main_history import SnapshotStep, list_steps
from duckicelake.pipeline.progress import Reporter
from duckicelake.pipeline.stream import Outage
from duckicelake.properties import JOB_KEY
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.names import Namespace, format_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHANGES_UPTO_KEY: Final = "duckicelake.changes-upto"
"""In the summary of a snapshot of changes: the snapshot that made them."""


@dataclass(frozen=True, slots=True)
class ChangePosition:
    """The snapshot up to which changes are taken, and the ordinal of the next one that has any."""

    snapshot_id: int
    ordinal: int

    @staticmethod
    def from_step(step: SnapshotStep, before: ChangePosition | None) -> ChangePosition:
        """Return the position behind a step."""
        taken = 0 if before is None else before.ordinal
        return ChangePosition(step.snapshot_id, taken if step.only_moves else taken + 1)


class ChangeOutlet(Protocol):
    """What takes changes. reached: None if it has none; counts: what it has taken itself."""

    reached: ChangePosition | None
    counts: Counter[str]

    def take(self, step: SnapshotStep, rows: DataFrame) -> None:
        """Keep what the next snapshot changed, which is nothing where it only moves rows."""


class Bookmark:
    """A file that keeps how far the changes of a table were read.

    after: the snapshot behind which the command is asked to begin, which only a file that isn't there yet leaves open.
    """

    def __init__(self, path: Path, table_uuid: str, after: int | None = None) -> None:
        self._path, self._uuid, self._after = path, table_uuid, after

    def read(self) -> ChangePosition | None:
        """Read the position; None if there is no file yet.

        Raises BadInputError for one that is another table's, or none of these, or at another place than `after`.
        """
        try:
            position_fields = json.loads(self._path.read_text())
            uuid, reached = (
                position_fields["table-uuid"],
                ChangePosition(int(position_fields["snapshot-id"]), int(position_fields["next-ordinal"])),
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadInputError(
                f"--state {self._path} can't be read: {error}; name a file of its own for it"
            ) from error
        if uuid != self._uuid:
            raise BadInputError(f"--state {self._path} is of another table ({uuid}): give each table a file of its own")
        if self._after not in {None, reached.snapshot_id}:
            raise BadInputError(
                f"--state {self._path} goes on behind {reached.snapshot_id}; --from {self._after} is another place: "
                f"leave out --from, or remove {self._path}"
            )
        return reached

    def write(self, reached: ChangePosition) -> None:
        """Write the position; after a crash the old one or the new one is there."""
        new = self._path.with_name(f"{self._path.name}.new")
        position_fields = {
            "table-uuid": self._uuid,
            "snapshot-id": reached.snapshot_id,
            "next-ordinal": reached.ordinal,
        }
        with new.open("w") as file:
            json.dump(position_fields, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)


class JsonLinesOutlet:
    """A line of JSON for each change; the bookmark moves when a snapshot's lines are all written.

    Who dies in between writes that snapshot's lines again.
    """

    def __init__(self, out: TextIO, bookmark: Bookmark | None = None) -> None:
        self._out, self._bookmark = out, bookmark
        self.reached = None if bookmark is None else bookmark.read()
        self.counts: Counter[str] = Counter()

    def take(self, step: SnapshotStep, rows: DataFrame) -> None:
        """Write them."""
        if not step.only_moves:
            self._write(rows)
        self.reached = ChangePosition.from_step(step, self.reached)
        if self._bookmark is not None:
            self._bookmark.write(self.reached)

    def _write(self, rows: DataFrame) -> None:
        from pyspark.sql import functions as F  # noqa: N812

        from duckicelake.pipeline.row_changes import JSON_OPTIONS

        for (line,) in rows.select(F.to_json(F.struct("*"), JSON_OPTIONS)).toLocalIterator(prefetchPartitions=True):
            self._out.write(f"{line}\n")
            self.counts["changes"] += 1
        self._out.flush()
        self.counts["snapshots"] += 1


class TotalsOutlet:
    """Counts them, by kind."""

    def __init__(self) -> None:
        self.reached: ChangePosition | None = None
        self.counts: Counter[str] = Counter()

    def take(self, step: SnapshotStep, rows: DataFrame) -> None:
        """Count them."""
        if not step.only_moves:
            self.counts.update(dict(rows.groupBy(rows[0]).count().collect()))
            self.counts["snapshots"] += 1
        self.reached = ChangePosition.from_step(step, self.reached)


class ChangeTableOutlet:
    """A table of changes, made if it isn't there; each snapshot's are committed once, whoever tries and however often.

    It remembers itself what it has, by the snapshots in its history.
    """

    def __init__(
        self, spark: SparkSession, client: CatalogClient, target: Target, source_uuid: str, job: PipelineJob
    ) -> None:
        self._spark, self._client, self._job = spark, client, job
        self._load = build_load_request(target)
        self._run_id = f"changes of {source_uuid}"
        run: Any = client.run(target.namespace, target.table, self._run_id)
        self.reached = None if run is None else ChangePosition(int(run["summary"][CHANGES_UPTO_KEY]), run["epoch"] + 1)
        self.counts: Counter[str] = Counter()

    def take(self, step: SnapshotStep, rows: DataFrame) -> None:
        """Append them."""
        if not step.only_moves:
            self._append(step, rows)
        self.reached = ChangePosition.from_step(step, self.reached)

    def _append(self, step: SnapshotStep, rows: DataFrame) -> None:
        from duckicelake.pipeline.epoch import SOURCE_KEY, Epoch, count_rows
        from duckicelake.pipeline.load import load_rows, read_columns
        from duckicelake.pipeline.reader import build_frame_group

        upto = str(step.snapshot_id)
        number = 0 if self.reached is None else self.reached.ordinal
        epoch = Epoch(self._run_id, number, {CHANGES_UPTO_KEY: upto, SOURCE_KEY: upto, JOB_KEY: self._job.id})
        columns = read_columns(self._spark, self._client, self._load.target)
        loaded = load_rows(self._spark, self._client, self._load, epoch, [build_frame_group(rows)], columns=columns)
        self.counts.update(changes=count_rows(loaded.run), snapshots=1)
        self._job.counts.update(self.counts)
        self._job.ends("done", snapshot_ids=[loaded.run["snapshot-id"]])


@contextmanager
def open_change_table(
    spark: SparkSession, client: CatalogClient, source: str, source_uuid: str, target: Target
) -> Iterator[ChangeTableOutlet]:
    """Yield the target, with a job's row while it takes the source's changes."""
    with run_job(client, "changes", target.namespace, target.table, parameters={"source": source}) as job:
        job.ends("unchanged")
        yield ChangeTableOutlet(spark, client, target, source_uuid, job)


@dataclass(frozen=True, slots=True)
class ChangesRequest:
    """after, upto: snapshots of main, by Iceberg's ids or DuckLake's; None: from the beginning, to where main is.

    keys: columns that identify rows; none: row ids, in format version 3, else the table's identifier fields.
    ordinal: of the first snapshot that changes any.
    """

    namespace: Namespace
    table: str
    after: int | None = None
    upto: int | None = None
    keys: Sequence[str] = ()
    ordinal: int = 0

    def __str__(self) -> str:
        return format_name(self.namespace, self.table)


def read_changes(
    spark: SparkSession, client: CatalogClient, request: ChangesRequest
) -> Iterator[tuple[SnapshotStep, DataFrame]]:
    """Yield each snapshot that the request asks for, with its changes, to be read before the next one is asked for.

    They have the columns that the table has now; one that only moved rows has none. BadInputError, BadColumnError,
    MissingTableError.
    """
    from duckicelake.pipeline.row_changes import RowChanges

    metadata = client.load_table(request.namespace, request.table)["metadata"]
    steps = list_steps(metadata, request.after, request.upto)
    if not steps:
        return
    table = RowChanges(spark, request.namespace, request.table, request.keys)
    ordinal = request.ordinal
    for step in steps:
        with table.read_step(step, ordinal) as rows:
            yield step, rows
        ordinal += not step.only_moves


def send_changes(
    spark: SparkSession, client: CatalogClient, request: ChangesRequest, outlet: ChangeOutlet, reporter: Reporter
) -> None:
    """Send the outlet all that it doesn't have yet; where it has something, that counts, and not `after`."""
    wanted, reached = request, outlet.reached
    if reached is not None:
        wanted = replace(request, after=reached.snapshot_id, ordinal=reached.ordinal)
    for step, rows in read_changes(spark, client, wanted):
        outlet.take(step, rows)
        reporter.advance()


def follow_changes(
    spark: SparkSession,
    client: CatalogClient,
    request: ChangesRequest,
    outlet: ChangeOutlet,
    reporter: Reporter,
    wait: Callable[[], object],
) -> None:
    """Send all that there is and all that comes, until it is interrupted; waits between looks, and for the catalog."""
    outage = Outage()
    seen = None
    while True:
        try:
            head = client.load_table(request.namespace, request.table, "refs")["metadata"].get("current-snapshot-id")
            if head != seen:
                send_changes(spark, client, request, outlet, reporter)
            seen = head
            outage.end()
        except Exception as error:
            failure = explain_failure(error)
            if not isinstance(failure, CatalogUnreachableError) or outage.is_too_long(time.monotonic()):
                raise
            reporter.say(f"{failure}; it goes on when it is back")
        wait()
