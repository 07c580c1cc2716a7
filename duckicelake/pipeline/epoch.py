"""What must be committed once to each table, and what the catalog says of it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from duckicelake.errors import BadInputError
from duckicelake.pipeline.destination import LoadRequest, Target
from duckicelake.rest.client import CatalogClient

SOURCE_KEY: Final = "duckicelake.source"
"""What an epoch has read, in the summary of its snapshot."""
INSERTED_KEY: Final = "duckicelake.merge.inserted-rows"
UPDATED_KEY: Final = "duckicelake.merge.updated-rows"
"""Rows of a merge that `duckicelake load` made, in the summary of its snapshot."""
_MERGE_KEYS: Final = (
    INSERTED_KEY,
    UPDATED_KEY,
    "spark.merge-into.num-target-rows-inserted",
    "spark.merge-into.num-target-rows-matched-updated",
)
CommittedRun = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Epoch:
    """What must be committed once to each table. summary: what its snapshots have in their summary besides."""

    run_id: str
    number: int
    summary: Mapping[str, str]

    def done(self, client: CatalogClient, target: Target) -> CommittedRun | None:
        """Return what of the run is in the table, if it is this epoch or a later one.

        BadInputError if this epoch is there with other content: an id used again by mistake must leave no rows out.
        """
        found: CommittedRun | None = client.run(target.namespace, target.table, self.run_id)
        if found is None or found["epoch"] < self.number:
            return None
        if found["epoch"] == self.number and found["summary"].get(SOURCE_KEY) != self.summary.get(SOURCE_KEY):
            raise BadInputError(
                f"Run {self.run_id} has put other content into {target} (snapshot {found['snapshot-id']}): "
                "the files have changed since, or are others; give this run an id of its own"
            )
        return found


def build_quarantine_epoch(how: LoadRequest, epoch: Epoch) -> Epoch:
    """Return the same in the quarantine, which tables may share.

    Their runs there have ids of their own even if they share one here.
    """
    return replace(epoch, run_id=f"{epoch.run_id} of {how.target}")


def count_rows(run: Mapping[str, Any]) -> int:
    """Return rows that came with a run's newest snapshot; of a merge those that were inserted or updated."""
    summary = run["summary"]
    merged = [summary.get(key) for key in _MERGE_KEYS]
    if any(count is not None for count in merged):
        return sum(int(count or 0) for count in merged)
    return int(summary.get("added-records", 0))


def is_finished(client: CatalogClient, target: Target, run_id: str) -> bool:
    """Return whether an attempt has come to its end, so that nothing is left for the quarantine either."""
    found = client.jobs(namespace="\x1f".join(target.namespace), table=target.table, kind="ingest", run_id=run_id)
    return any(job["result"] in {"done", "unchanged"} for job in found)
