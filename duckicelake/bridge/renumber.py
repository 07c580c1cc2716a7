"""PURE. Mode `ducklake`: the snapshot ids that clients propose, translated into DuckLake's (design D3)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.requirements import AssertRefSnapshotId, TableRequirement
from duckicelake.iceberg.updates import (
    AddSnapshot,
    RemovePartitionStatistics,
    RemoveSnapshots,
    RemoveStatistics,
    SetPartitionStatistics,
    SetSnapshotRef,
    SetStatistics,
    TableUpdate,
)
from duckicelake.lake.state import SnapshotRow


@dataclass(frozen=True, slots=True)
class Renumbered:
    """A request in the catalog's ids; `proposed` is what the client called each new snapshot."""

    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]
    proposed: Mapping[int, int]


def aliases_of(snapshots: Iterable[SnapshotRow]) -> dict[int, int]:
    """The ids that clients proposed for snapshots which got another."""
    return {row.proposed_id: row.snapshot_id for row in snapshots if row.proposed_id is not None}


def renumber(
    requirements: Sequence[TableRequirement],
    updates: Sequence[TableUpdate],
    base: TableMetadata | None,
    aliases: Mapping[int, int],
    next_id: int,
) -> Renumbered:
    """The request with every new snapshot numbered from `next_id`, as id and as sequence number.

    InvalidRequest if one is proposed under an id that the table has, or once proposed.
    """
    added = [update.snapshot.snapshot_id for update in updates if isinstance(update, AddSnapshot)]
    taken = [each for each in added if each in aliases or (base and each in base.snapshots_by_id)]
    if taken:
        raise InvalidRequest(f"Snapshot already exists for: {taken[0]}")
    ids = {**aliases, **{proposed: next_id + index for index, proposed in enumerate(added)}}
    last = base.last_sequence_number if base else 0
    translated: list[TableUpdate] = []
    for update in updates:
        if isinstance(update, AddSnapshot):
            last = max(ids[update.snapshot.snapshot_id], last + 1)
        translated.append(_update(update, ids, last))
    return Renumbered(
        tuple(_requirement(requirement, ids) for requirement in requirements),
        tuple(translated),
        {ids[proposed]: proposed for proposed in added},
    )


def _requirement(requirement: TableRequirement, ids: Mapping[int, int]) -> TableRequirement:
    if isinstance(requirement, AssertRefSnapshotId) and requirement.snapshot_id is not None:
        return requirement.replaced(snapshot_id=ids.get(requirement.snapshot_id, requirement.snapshot_id))
    return requirement


def _update(update: TableUpdate, ids: Mapping[int, int], sequence_number: int) -> TableUpdate:
    def renamed(snapshot_id: Any) -> Any:
        return ids.get(snapshot_id, snapshot_id)

    match update:
        case AddSnapshot(snapshot=snapshot):
            return update.replaced(
                snapshot=snapshot.replaced(
                    snapshot_id=renamed(snapshot.snapshot_id),
                    parent_snapshot_id=renamed(snapshot.parent_snapshot_id),
                    sequence_number=sequence_number,
                )
            )
        case SetSnapshotRef() | RemoveStatistics() | RemovePartitionStatistics():
            return update.replaced(snapshot_id=renamed(update.snapshot_id))
        case RemoveSnapshots():
            return update.replaced(snapshot_ids=tuple(map(renamed, update.snapshot_ids)))
        case SetStatistics(statistics=file):
            return update.replaced(statistics=file.replaced(snapshot_id=renamed(file.snapshot_id)))
        case SetPartitionStatistics(partition_statistics=partition_file):
            renumbered = partition_file.replaced(snapshot_id=renamed(partition_file.snapshot_id))
            return update.replaced(partition_statistics=renumbered)
        case _:
            return update
