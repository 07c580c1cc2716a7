"""A commit of rows to a table that happens once, whoever tries it: the catalog refuses a run's epoch a second time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from duckicelake.errors import BadInput, JobConflict
from duckicelake.pipeline.creating import create
from duckicelake.pipeline.destination import Mode, Target
from duckicelake.pipeline.failures import explained
from duckicelake.pipeline.running import RUN_ID_KEY
from duckicelake.pipeline.session import stamped_with
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.names import quoted

RUN_EPOCH_KEY: Final = "duckicelake.run-epoch"
SOURCE_KEY: Final = "duckicelake.source"
"""What an epoch has read, in the summary of its snapshot."""
_ATTEMPTS: Final = 3

Run = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Epoch:
    """What must be committed once to each table. summary: what its snapshots have in their summary besides."""

    run_id: str
    number: int
    summary: Mapping[str, str]

    def done(self, client: CatalogClient, target: Target) -> Run | None:
        """What of the run is in the table, if it is this epoch or a later one.

        BadInput if this epoch is there with other content: an id used again by mistake must leave no rows out.
        """
        found: Run | None = client.run(target.namespace, target.table, self.run_id)
        if found is None or found["epoch"] < self.number:
            return None
        if found["epoch"] == self.number and found["summary"].get(SOURCE_KEY) != self.summary.get(SOURCE_KEY):
            raise BadInput(
                f"Run {self.run_id} has put other content into {target} (snapshot {found['snapshot-id']}): "
                "the files have changed since, or are others; give this run an id of its own"
            )
        return found


def write_once(
    client: CatalogClient,
    target: Target,
    rows: DataFrame,
    epoch: Epoch,
    mode: Mode,
    keys: Sequence[str] = (),
    *,
    made_of: StructType | None = None,
) -> tuple[Run, bool]:
    """Write the rows; the run as the catalog knows it, and whether Spark came to its end with it.

    It didn't if somebody else has committed the run, or if the answer to the commit got lost. JobConflict if other
    writers were faster every time. BadInput as `Epoch.done`. made_of: the columns of a table that isn't there; it is
    made with the rows, unless somebody else is faster.
    """
    summary = {**epoch.summary, RUN_ID_KEY: epoch.run_id, RUN_EPOCH_KEY: str(epoch.number)}
    came_through = False
    for attempt in range(_ATTEMPTS):
        try:
            if made_of is not None and not client.table_exists(target.namespace, target.table):
                create(client, target, made_of, rows, summary)
            else:
                _write(target, rows, summary, mode, keys)
            came_through = True
            break
        except Exception as error:
            if epoch.done(client, target) is not None:
                break
            failure = explained(error)
            if not isinstance(failure, JobConflict):
                raise
            if attempt == _ATTEMPTS - 1:
                raise failure from error
    found = epoch.done(client, target)
    if found is None:  # a merge of nothing makes no snapshot: an empty one says that the run has been
        _write(target, rows.limit(0), summary, "append", ())
        found = epoch.done(client, target)
    assert found is not None
    return found, came_through


def _write(target: Target, rows: DataFrame, summary: Mapping[str, str], mode: Mode, keys: Sequence[str]) -> None:
    if mode == "merge":
        _merge(target, rows, summary, keys)
        return
    writer = rows.writeTo(target.sql)
    for name, value in summary.items():
        writer = writer.option(f"snapshot-property.{name}", value)
    if mode == "append":
        writer.append()
    elif mode == "overwrite":
        writer.overwrite(F.lit(True))
    else:
        writer.overwritePartitions()


def _merge(target: Target, rows: DataFrame, summary: Mapping[str, str], keys: Sequence[str]) -> None:
    spark, view = rows.sparkSession, f"merged_{uuid4().hex}"
    names = [quoted(name) for name in rows.columns]
    same = " AND ".join(f"t.{quoted(key)} = s.{quoted(key)}" for key in keys)
    rows.createOrReplaceTempView(view)
    try:
        with stamped_with(spark, summary):
            spark.sql(
                f"MERGE INTO {target.sql} t USING {view} s ON {same} "
                f"WHEN MATCHED THEN UPDATE SET {', '.join(f't.{name} = s.{name}' for name in names)} "
                f"WHEN NOT MATCHED THEN INSERT ({', '.join(names)}) VALUES ({', '.join(f's.{name}' for name in names)})"
            )
    finally:
        spark.catalog.dropTempView(view)
