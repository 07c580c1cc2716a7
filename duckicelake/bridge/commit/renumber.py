"""PURE. A request's snapshots in the catalog's numbers instead of those that the client proposed (design D3).

In mode `ducklake` a snapshot's id and sequence number are DuckLake's snapshot id; on tables of format version 3, whose
files say sequence numbers and row ids in columns that DuckLake writes too, the sequence number always is.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from duckicelake.bridge.commit.rebase import BuiltOn
from duckicelake.bridge.snapshots import find_free_id
from duckicelake.errors import CommitFailedError
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, SEQUENCE_NUMBER_VERSION, TableMetadata
from duckicelake.iceberg.requirements import AssertRefSnapshotId, TableRequirement
from duckicelake.iceberg.snapshot import Snapshot
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
class NextNumbers:
    """What the catalog gives out next: DuckLake's next snapshot id, and its next row id where the table becomes v3.

    `shared_ids` says whether Iceberg's snapshot ids are DuckLake's, `format_version` what the table has afterwards.
    """

    next_id: int
    shared_ids: bool
    format_version: int
    row_shift: int = 0


@dataclass(frozen=True, slots=True)
class Renumbered:
    """A request in the catalog's numbers.

    By new snapshot id: what the client called it, where that differs, and the DuckLake snapshot it must become, where
    its numbers say so; what an append that was put on top of others was written for. `row_shift` was added to the
    client's row ids.
    """

    requirements: tuple[TableRequirement, ...] = ()
    updates: tuple[TableUpdate, ...] = ()
    proposed: Mapping[int, int] = field(default_factory=dict)
    expected: Mapping[int, int] = field(default_factory=dict)
    row_shift: int = 0
    built_on: Mapping[int, BuiltOn] = field(default_factory=dict)

    def ends(self) -> frozenset[int]:
        """Return the last append of each client's request, where those of several are in this one."""
        return frozenset(self.built_on) - {on.parent_id for on in self.built_on.values()}


def find_aliases(snapshots: Iterable[SnapshotRow]) -> dict[int, int]:
    """Return the ids that clients proposed for snapshots which got another."""
    return {row.proposed_id: row.snapshot_id for row in snapshots if row.proposed_id is not None}


def renumber_request(
    requirements: Sequence[TableRequirement],
    updates: Sequence[TableUpdate],
    base: TableMetadata | None,
    aliases: Mapping[int, int],
    numbers: NextNumbers,
) -> Renumbered:
    """Return the request with every new snapshot in the catalog's numbers.

    CommitFailedError if one is proposed under an id that the table has, or had once proposed, as of a commit that comes
    twice; and if its sequence number is behind the table's.
    """
    shared_numbers = numbers.shared_ids or numbers.format_version >= ROW_LINEAGE_VERSION
    if not shared_numbers:
        return Renumbered(tuple(requirements), tuple(updates))
    added = [update.snapshot for update in updates if isinstance(update, AddSnapshot)]
    _check_proposed(added, base, aliases)
    following = {snapshot.snapshot_id: numbers.next_id + index for index, snapshot in enumerate(added)}
    taken = base.snapshots_by_id if base else {}
    given = {proposed: find_free_id(ducklake_id, taken) for proposed, ducklake_id in following.items()}
    ids = {**aliases, **given} if numbers.shared_ids else {}
    translated = _translate_updates(
        updates, ids, following, base.last_sequence_number if base else 0, numbers.row_shift
    )
    return Renumbered(
        tuple(_translate_requirement(requirement, ids) for requirement in requirements),
        tuple(translated),
        {ids[proposed]: proposed for proposed in following if proposed in ids},
        {ids.get(proposed, proposed): ducklake_id for proposed, ducklake_id in following.items()},
        numbers.row_shift,
    )


def set_built_on(renumbered: Renumbered, built_on: Mapping[int, BuiltOn]) -> Renumbered:
    """Return the request with what its appends were written for, given by what the client called them."""
    ids = {proposed: snapshot_id for snapshot_id, proposed in renumbered.proposed.items()}
    known = {
        ids.get(proposed, proposed): BuiltOn(ids.get(on.parent_id or 0, on.parent_id), on.row_shift)
        for proposed, on in built_on.items()
    }
    return replace(renumbered, built_on=known)


def _check_proposed(added: Sequence[Snapshot], base: TableMetadata | None, aliases: Mapping[int, int]) -> None:
    has_order = base is not None and base.format_version >= SEQUENCE_NUMBER_VERSION
    for snapshot in added:
        if snapshot.snapshot_id in aliases or (base and snapshot.snapshot_id in base.snapshots_by_id):
            raise CommitFailedError(f"Snapshot already exists for: {snapshot.snapshot_id}", "snapshot-exists")
        number, last = snapshot.sequence_number, base.last_sequence_number if base else 0
        if has_order and snapshot.parent_snapshot_id is not None and number <= last:
            raise CommitFailedError(
                f"Cannot add snapshot with sequence number {number} older than last sequence number {last}",
                "old-sequence-number",
            )


def _translate_updates(
    updates: Sequence[TableUpdate], ids: Mapping[int, int], following: Mapping[int, int], last: int, row_shift: int
) -> Iterable[TableUpdate]:
    for update in updates:
        if isinstance(update, AddSnapshot):
            last = max(following[update.snapshot.snapshot_id], last + 1)
        yield _translate_update(update, ids, last, row_shift)


def _translate_requirement(requirement: TableRequirement, ids: Mapping[int, int]) -> TableRequirement:
    if isinstance(requirement, AssertRefSnapshotId) and requirement.snapshot_id is not None:
        return requirement.replace_fields(snapshot_id=ids.get(requirement.snapshot_id, requirement.snapshot_id))
    return requirement


def _translate_update(update: TableUpdate, ids: Mapping[int, int], sequence_number: int, row_shift: int) -> TableUpdate:
    def translate_id(snapshot_id: Any) -> Any:
        return ids.get(snapshot_id, snapshot_id)

    match update:
        case AddSnapshot(snapshot=snapshot):
            first = snapshot.first_row_id
            return update.replace_fields(
                snapshot=snapshot.replace_fields(
                    snapshot_id=translate_id(snapshot.snapshot_id),
                    parent_snapshot_id=translate_id(snapshot.parent_snapshot_id),
                    sequence_number=sequence_number,
                    first_row_id=None if first is None else first + row_shift,
                )
            )
        case SetSnapshotRef() | RemoveStatistics() | RemovePartitionStatistics():
            return update.replace_fields(snapshot_id=translate_id(update.snapshot_id))
        case RemoveSnapshots():
            return update.replace_fields(snapshot_ids=tuple(map(translate_id, update.snapshot_ids)))
        case SetStatistics(statistics=file):
            return update.replace_fields(statistics=file.replace_fields(snapshot_id=translate_id(file.snapshot_id)))
        case SetPartitionStatistics(partition_statistics=partition_file):
            renumbered = partition_file.replace_fields(snapshot_id=translate_id(partition_file.snapshot_id))
            return update.replace_fields(partition_statistics=renumbered)
        case _:
            return update
