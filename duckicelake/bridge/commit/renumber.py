"""PURE. A request in the catalog's numbers, on top of what main has become (design D3, D7).

In mode `ducklake` a snapshot's id and sequence number are DuckLake's snapshot id; on tables of format version 3, whose
files say sequence numbers and row ids in columns that DuckLake writes too, the sequence number always is.

Where a table has `ducklake.append-rebase`, appends come on top of main as their clients would put them there after a
conflict. Each keeps its files and its id; what depends on the snapshot before it (parent, sequence number, row ids,
totals) is made anew.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Final, TypeAlias

from duckicelake.bridge.snapshots import find_free_id
from duckicelake.errors import CommitFailedError
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, SEQUENCE_NUMBER_VERSION, TableMetadata
from duckicelake.iceberg.requirements import AssertRefSnapshotId, AssertTableUuid, TableRequirement
from duckicelake.iceberg.rest import CommitTableRequest
from duckicelake.iceberg.snapshot import MAIN, Snapshot, SnapshotRef, walk_ancestry
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
from duckicelake.properties import may_rebase_appends

_ADDED: Final = {"data-files": "added-data-files", "records": "added-records", "files-size": "added-files-size"}
Retention: TypeAlias = tuple[int | None, int | None, int | None]
_NONE: Final[Retention] = (None, None, None)
_TOTALS: Final = (*_ADDED, "delete-files", "position-deletes", "equality-deletes")


@dataclass(frozen=True, slots=True)
class BuiltOn:
    """What an append was written for: the snapshot whose manifests it lists; its row ids are `row_shift` too low."""

    parent_id: int | None
    row_shift: int = 0


_NOTHING: Final[Mapping[int, BuiltOn]] = {}


def find_appends(request: CommitTableRequest) -> list[Snapshot]:
    """Return the snapshots of a request that does nothing but append to main one after the other; else none."""
    pairs = list(zip(request.updates[::2], request.updates[1::2], strict=False))
    appends = [
        added.snapshot for added, moved in pairs if isinstance(added, AddSnapshot) and _is_main_move(moved, added)
    ]
    is_all = len(appends) * 2 == len(request.updates) and all(append.operation == "append" for append in appends)
    parents = {snapshot.parent_snapshot_id for snapshot in appends}
    is_free = all(
        isinstance(requirement, AssertTableUuid) or _is_of_main(requirement, parents)
        for requirement in request.requirements
    )
    return appends if is_all and is_free else []


def join_requests(requests: Sequence[CommitTableRequest]) -> CommitTableRequest:
    """Return one request of several that append, in this order."""
    return CommitTableRequest(
        requirements=tuple(requirement for request in requests for requirement in request.requirements),
        updates=tuple(update for request in requests for update in request.updates),
    )


def rebase_appends(
    request: CommitTableRequest, base: TableMetadata, aliases: Mapping[int, int]
) -> tuple[CommitTableRequest, Mapping[int, BuiltOn]]:
    """Put the appends on top of main as it is; return them with what they were written for, by snapshot id.

    Returns the request itself if there is nothing to do, or nothing that may be done. aliases: the ids of the table's
    snapshots by what their clients called them.
    """
    appends = find_appends(request) if may_rebase_appends(base.properties) else []
    main = base.refs.get(MAIN)
    head = _Head(base, None if main is None else main.snapshot_id)
    built_on: dict[int, BuiltOn] = {}
    moves = {update.snapshot_id: update for update in request.updates if isinstance(update, SetSnapshotRef)}
    if not all(_get_retention(move) in {_NONE, _get_retention(main)} for move in moves.values()):
        return request, {}
    moved = []
    for snapshot in appends:
        parent = snapshot.parent_snapshot_id
        parent_id = None if parent is None else aliases.get(parent, parent)
        is_known = parent_id in built_on or _has_all_since(base, parent_id)
        is_repeated = any(snapshot.snapshot_id in known for known in (base.snapshots_by_id, aliases, built_on))
        if is_repeated or not is_known or not _is_compatible(snapshot, base):
            return request, {}
        built_on[snapshot.snapshot_id] = BuiltOn(parent_id, head.row_shift(snapshot))
        moved.append(head.put(snapshot))
    if all(built_on[item.snapshot_id].parent_id == item.parent_snapshot_id for item in moved):
        return request, {}
    updates = (update for snapshot in moved for update in (AddSnapshot(snapshot=snapshot), moves[snapshot.snapshot_id]))
    uuids = tuple(requirement for requirement in request.requirements if isinstance(requirement, AssertTableUuid))
    return request.replace_fields(requirements=uuids, updates=tuple(updates)), built_on


class _Head:
    """The snapshot that the next one comes on top of, and the numbers that it goes on from."""

    def __init__(self, base: TableMetadata, snapshot_id: int | None) -> None:
        self.snapshot_id = snapshot_id
        snapshot = None if snapshot_id is None else base.snapshots_by_id.get(snapshot_id)
        self._summary = snapshot.summary if snapshot else {f"total-{name}": "0" for name in _TOTALS}
        self._version = base.format_version
        self._last = base.last_sequence_number
        self._next_row_id = base.next_row_id or 0

    def row_shift(self, snapshot: Snapshot) -> int:
        is_numbered = self._version >= ROW_LINEAGE_VERSION and snapshot.first_row_id is not None
        return self._next_row_id - (snapshot.first_row_id or 0) if is_numbered else 0

    def put(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot on top, which is the next one's head."""
        changes: dict[str, object] = {
            "parent_snapshot_id": self.snapshot_id,
            "summary": self._with_totals(snapshot.summary),
        }
        self._last += 1
        if self._version >= SEQUENCE_NUMBER_VERSION:
            changes["sequence_number"] = self._last
        if self._version >= ROW_LINEAGE_VERSION:
            changes["first_row_id"] = self._next_row_id
            self._next_row_id += snapshot.added_rows or 0
        put = snapshot.replace_fields(**changes)
        self.snapshot_id, self._summary = put.snapshot_id, put.summary
        return put

    def _with_totals(self, summary: Mapping[str, str]) -> dict[str, str]:
        """Return totals go on from the head's; one that it doesn't state isn't known."""
        stated = {key: text for key, text in summary.items() if not key.startswith("total-")}
        for name in _TOTALS:
            before, added = self._summary.get(f"total-{name}", ""), summary.get(_ADDED.get(name, ""), "0")
            if before.isdecimal() and added.isdecimal():
                stated[f"total-{name}"] = str(int(before) + int(added))
        return stated


def _is_of_main(requirement: object, parents: AbstractSet[int | None]) -> bool:
    """Return whether the requirement is that main is what one of the appends builds on."""
    if not isinstance(requirement, AssertRefSnapshotId):
        return False
    return requirement.ref == MAIN and requirement.snapshot_id in parents


def _is_main_move(update: object, added: AddSnapshot) -> bool:
    """Return whether the update points main to the snapshot; with it come main's limits, as engines know them."""
    return (
        isinstance(update, SetSnapshotRef)
        and (update.ref_name, update.type) == (MAIN, "branch")
        and update.snapshot_id == added.snapshot.snapshot_id
    )


def _get_retention(ref: SetSnapshotRef | SnapshotRef | None) -> Retention:
    return _NONE if ref is None else (ref.max_ref_age_ms, ref.max_snapshot_age_ms, ref.min_snapshots_to_keep)


def _has_all_since(base: TableMetadata, parent_id: int | None) -> bool:
    """Return whether that snapshot is listed with all that main was since.

    An append that isn't among those isn't on main.
    """
    listed, main = base.snapshots_by_id, base.refs.get(MAIN)
    since = takewhile(lambda id_: id_ != parent_id, walk_ancestry(listed, None if main is None else main.snapshot_id))
    parents = (listed[snapshot_id].parent_snapshot_id for snapshot_id in since)
    return all(parent is None or parent in listed for parent in (parent_id, *parents))


def _is_compatible(snapshot: Snapshot, base: TableMetadata) -> bool:
    """Return whether files of the snapshot's schema have every column that the table's rows must have by now."""
    if snapshot.schema_id in {None, base.current_schema_id}:
        return True
    written = next((schema for schema in base.schemas if schema.schema_id == snapshot.schema_id), None)
    if written is None:
        return False
    known = {field.id for field in written.fields}
    return all(not field.required or field.id in known for field in base.schema().fields)


@dataclass(frozen=True, slots=True)
class NextNumbers:
    """What the catalog gives out next: DuckLake's next snapshot id, and its next row id where the table becomes v3.

    `shared_ids` says whether Iceberg's snapshot ids are DuckLake's, `format_version` what the table has afterwards.
    """

    next_id: int
    shared_ids: bool
    format_version: int
    row_shift: int = 0

    @property
    def are_shared(self) -> bool:
        """Whether the sequence numbers of new snapshots are DuckLake's snapshot ids."""
        return self.shared_ids or self.format_version >= ROW_LINEAGE_VERSION


@dataclass(frozen=True, slots=True)
class GivenNumbers:
    """The numbers that the catalog gave to what a request adds.

    By new snapshot id: what the client called it, where that differs, and the DuckLake snapshot it must become, where
    its numbers say so; what an append that was put on top of others was written for. `row_shift` was added to the
    client's row ids.
    """

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
    request: CommitTableRequest,
    base: TableMetadata | None,
    aliases: Mapping[int, int],
    numbers: NextNumbers,
    built_on: Mapping[int, BuiltOn] = _NOTHING,
) -> tuple[CommitTableRequest, GivenNumbers]:
    """Return the request with every new snapshot in the catalog's numbers, and these numbers.

    built_on: what its appends were written for, by what the client called them.

    CommitFailedError if one is proposed under an id that the table has, or had once proposed, as of a commit that comes
    twice; and if its sequence number is behind the table's.
    """
    if not numbers.are_shared:
        return request, GivenNumbers(built_on=built_on)
    added = [update.snapshot for update in request.updates if isinstance(update, AddSnapshot)]
    _check_proposed(added, base, aliases)
    following = {snapshot.snapshot_id: numbers.next_id + index for index, snapshot in enumerate(added)}
    taken = base.snapshots_by_id if base else {}
    given = {proposed: find_free_id(ducklake_id, taken) for proposed, ducklake_id in following.items()}
    ids = {**aliases, **given} if numbers.shared_ids else {}
    last = base.last_sequence_number if base else 0
    renumbered = request.replace_fields(
        requirements=tuple([_translate_requirement(requirement, ids) for requirement in request.requirements]),
        updates=tuple(_translate_updates(request.updates, ids, following, last, numbers.row_shift)),
    )
    proposed_ids = {ids[proposed]: proposed for proposed in following if proposed in ids}
    expected = {ids.get(proposed, proposed): ducklake_id for proposed, ducklake_id in following.items()}
    return renumbered, GivenNumbers(proposed_ids, expected, numbers.row_shift, _translate_bases(built_on, proposed_ids))


def _translate_bases(built_on: Mapping[int, BuiltOn], proposed_ids: Mapping[int, int]) -> Mapping[int, BuiltOn]:
    """Return what appends were written for in the catalog's snapshot ids."""
    ids = {proposed: snapshot_id for snapshot_id, proposed in proposed_ids.items()}
    return {
        ids.get(proposed, proposed): BuiltOn(ids.get(on.parent_id or 0, on.parent_id), on.row_shift)
        for proposed, on in built_on.items()
    }


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
