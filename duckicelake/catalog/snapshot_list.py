"""List a table's snapshots by pages, for those who don't need all of its metadata."""

from pydantic import ConfigDict

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import load_current_table
from duckicelake.errors import NotFoundError
from duckicelake.iceberg.identifiers import Namespace, format_full_name
from duckicelake.iceberg.model import SpecModel


class ListedSnapshot(SpecModel):
    """A snapshot, as Iceberg's JSON has it, without the files that describe it."""

    model_config = ConfigDict(frozen=True)

    snapshot_id: int
    parent_snapshot_id: int | None = None
    sequence_number: int
    timestamp_ms: int
    summary: dict[str, str]
    schema_id: int | None = None


class SnapshotPage(SpecModel):
    """One page of snapshots, newest first. total: how many the table has. next_before: where the next page begins."""

    model_config = ConfigDict(frozen=True)

    snapshots: tuple[ListedSnapshot, ...]
    total: int
    next_before: int | None = None


def list_snapshots(services: Services, namespace: Namespace, name: str, limit: int, before: int | None) -> SnapshotPage:
    """List at most so many snapshots from before another, or the newest ones.

    Raises NoSuchTableError; NotFoundError if the other isn't one of the table's, or has expired.
    """
    snapshots = load_current_table(services, namespace, name).metadata.snapshots
    end = len(snapshots)
    if before is not None:
        places = (place for place, snapshot in enumerate(snapshots) if snapshot.snapshot_id == before)
        end = next(places, -1)
    if end < 0:
        raise NotFoundError(f"{format_full_name(namespace, name)} has no snapshot {before} any more: begin anew")
    begin = max(end - limit, 0)
    listed = tuple(
        ListedSnapshot(
            snapshot_id=snapshot.snapshot_id,
            parent_snapshot_id=snapshot.parent_snapshot_id,
            sequence_number=snapshot.sequence_number,
            timestamp_ms=snapshot.timestamp_ms,
            summary=snapshot.summary,
            schema_id=snapshot.schema_id,
        )
        for snapshot in reversed(snapshots[begin:end])
    )
    return SnapshotPage(
        snapshots=listed, total=len(snapshots), next_before=listed[-1].snapshot_id if begin > 0 else None
    )
