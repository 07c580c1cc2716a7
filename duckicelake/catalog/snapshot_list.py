"""List a table's snapshots by pages, for those who don't need all of its metadata."""

from pydantic import ConfigDict

from duckicelake.bridge.project import to_snapshot
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import catch_up_by_name
from duckicelake.errors import NotFoundError
from duckicelake.iceberg.identifiers import Namespace, format_full_name
from duckicelake.iceberg.model import SpecModel
from duckicelake.iceberg.snapshot import Snapshot
from duckicelake.lake.side_tables import reader


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
    table_id = catch_up_by_name(services, namespace, name)
    with services.database.reading() as cursor:
        rows, total, is_there = reader.read_snapshot_page(cursor, table_id, before, limit + 1)
    if before is not None and not is_there:
        raise NotFoundError(f"{format_full_name(namespace, name)} has no snapshot {before} any more: begin anew")
    listed = tuple(_list(to_snapshot(row)) for row in rows[:limit])
    return SnapshotPage(
        snapshots=listed, total=total, next_before=listed[-1].snapshot_id if len(rows) > limit else None
    )


def _list(snapshot: Snapshot) -> ListedSnapshot:
    return ListedSnapshot(
        snapshot_id=snapshot.snapshot_id,
        parent_snapshot_id=snapshot.parent_snapshot_id,
        sequence_number=snapshot.sequence_number,
        timestamp_ms=snapshot.timestamp_ms,
        summary=snapshot.summary,
        schema_id=snapshot.schema_id,
    )
