"""Where a table's changes go, one snapshot after the other."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO

from duckicelake.errors import BadInput
from duckicelake.pipeline.destination import Target, load_into
from duckicelake.pipeline.history import Step
from duckicelake.pipeline.running import JOB_KEY, Job, running
from duckicelake.rest.client import CatalogClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UPTO_KEY: Final = "duckicelake.changes-upto"
"""In the summary of a snapshot of changes: the snapshot that made them."""


@dataclass(frozen=True, slots=True)
class Reached:
    """The snapshot up to which changes are taken, and the ordinal of the next one that has any."""

    snapshot_id: int
    ordinal: int

    @staticmethod
    def by(step: Step, before: Reached | None) -> Reached:
        """What a step reaches."""
        taken = 0 if before is None else before.ordinal
        return Reached(step.snapshot_id, taken if step.only_moves else taken + 1)


class Outlet(Protocol):
    """What takes changes. reached: None if it has none; counts: what it has taken itself."""

    reached: Reached | None
    counts: Counter[str]

    def take(self, step: Step, rows: DataFrame) -> None:
        """Keep what the next snapshot changed, which is nothing where it only moves rows."""


class Bookmark:
    """A file that keeps how far the changes of a table were told."""

    def __init__(self, path: Path, table_uuid: str) -> None:
        self._path, self._uuid = path, table_uuid

    def read(self) -> Reached | None:
        """None: there is no file yet. BadInput for one that is another table's, or none of these."""
        try:
            told = json.loads(self._path.read_text())
            uuid, reached = told["table-uuid"], Reached(int(told["snapshot-id"]), int(told["next-ordinal"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadInput(f"--state {self._path} can't be read: {error}; name a file of its own for it") from error
        if uuid != self._uuid:
            raise BadInput(f"--state {self._path} is of another table ({uuid}): give each table a file of its own")
        return reached

    def write(self, reached: Reached) -> None:
        """The old one or the new one is there, whatever happens."""
        new = self._path.with_name(f"{self._path.name}.new")
        told = {"table-uuid": self._uuid, "snapshot-id": reached.snapshot_id, "next-ordinal": reached.ordinal}
        with new.open("w") as file:
            json.dump(told, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)


class JsonLines:
    """A line of JSON for each change; the bookmark moves when a snapshot's lines are all written.

    Who dies in between writes that snapshot's lines again.
    """

    def __init__(self, out: TextIO, bookmark: Bookmark | None = None) -> None:
        self._out, self._bookmark = out, bookmark
        self.reached = None if bookmark is None else bookmark.read()
        self.counts: Counter[str] = Counter()

    def take(self, step: Step, rows: DataFrame) -> None:
        """Write them."""
        if not step.only_moves:
            self._write(rows)
        self.reached = Reached.by(step, self.reached)
        if self._bookmark is not None:
            self._bookmark.write(self.reached)

    def _write(self, rows: DataFrame) -> None:
        from pyspark.sql import functions as F  # noqa: N812

        from duckicelake.pipeline.row_changes import AS_JSON

        for (line,) in rows.select(F.to_json(F.struct("*"), AS_JSON)).toLocalIterator(prefetchPartitions=True):
            self._out.write(f"{line}\n")
            self.counts["changes"] += 1
        self._out.flush()
        self.counts["snapshots"] += 1


class Totals:
    """Counts them, by kind."""

    def __init__(self) -> None:
        self.reached: Reached | None = None
        self.counts: Counter[str] = Counter()

    def take(self, step: Step, rows: DataFrame) -> None:
        """Count them."""
        if not step.only_moves:
            self.counts.update(dict(rows.groupBy(rows[0]).count().collect()))
            self.counts["snapshots"] += 1
        self.reached = Reached.by(step, self.reached)


class ChangeTable:
    """A table of changes, made if it isn't there; each snapshot's are committed once, whoever tries and however often.

    It remembers itself what it has, by the snapshots in its history.
    """

    def __init__(self, spark: SparkSession, client: CatalogClient, target: Target, source_uuid: str, job: Job) -> None:
        self._spark, self._client, self._job = spark, client, job
        self._load = load_into(target)
        self._run_id = f"changes of {source_uuid}"
        run: Any = client.run(target.namespace, target.table, self._run_id)
        self.reached = None if run is None else Reached(int(run["summary"][UPTO_KEY]), run["epoch"] + 1)
        self.counts: Counter[str] = Counter()

    def take(self, step: Step, rows: DataFrame) -> None:
        """Append them."""
        if not step.only_moves:
            self._append(step, rows)
        self.reached = Reached.by(step, self.reached)

    def _append(self, step: Step, rows: DataFrame) -> None:
        from duckicelake.pipeline.ingest import rows_of
        from duckicelake.pipeline.loading import load
        from duckicelake.pipeline.reading import frame_group
        from duckicelake.pipeline.targets import columns_of
        from duckicelake.pipeline.writing import SOURCE_KEY, Epoch

        upto = str(step.snapshot_id)
        number = 0 if self.reached is None else self.reached.ordinal
        epoch = Epoch(self._run_id, number, {UPTO_KEY: upto, SOURCE_KEY: upto, JOB_KEY: self._job.id})
        columns = columns_of(self._spark, self._client, self._load.target)
        loaded = load(self._spark, self._client, self._load, epoch, [frame_group(rows)], columns=columns)
        self.counts.update(changes=rows_of(loaded.run), snapshots=1)
        self._job.counts.update(self.counts)
        self._job.ends("done", snapshot_ids=[loaded.run["snapshot-id"]])


@contextmanager
def change_table(
    spark: SparkSession, client: CatalogClient, source: str, source_uuid: str, target: Target
) -> Iterator[ChangeTable]:
    """The target, with a job's row while it takes the source's changes."""
    with running(client, "changes", target.namespace, target.table, parameters={"source": source}) as job:
        job.ends("unchanged")
        yield ChangeTable(spark, client, target, source_uuid, job)
