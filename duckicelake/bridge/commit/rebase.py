"""PURE. Appends on top of what main has become, as their clients would put them there after a conflict (design D7).

A table says by the property `ducklake.append-rebase` that its appends may be. Each keeps its files and its id; what
depends on the snapshot before it (parent, sequence number, row ids, totals) is made anew.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, TypeAlias

from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, SEQUENCE_NUMBER_VERSION, TableMetadata
from duckicelake.iceberg.requirements import AssertRefSnapshotId, AssertTableUuid
from duckicelake.iceberg.rest import CommitTableRequest
from duckicelake.iceberg.snapshot import MAIN, Snapshot, SnapshotRef, walk_ancestry
from duckicelake.iceberg.updates import AddSnapshot, SetSnapshotRef
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


@dataclass(frozen=True, slots=True)
class Rebased:
    """A request that holds for the newest metadata, and by the ids of its snapshots what they were written for."""

    request: CommitTableRequest
    built_on: Mapping[int, BuiltOn]


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


def rebase_appends(request: CommitTableRequest, base: TableMetadata, aliases: Mapping[int, int]) -> Rebased | None:
    """Return the appends on top of main as it is; None if there is nothing to do, or nothing that may be done.

    `aliases` are the ids of the table's snapshots by what their clients called them.
    """
    appends = find_appends(request) if may_rebase_appends(base.properties) else []
    main = base.refs.get(MAIN)
    head = _Head(base, None if main is None else main.snapshot_id)
    built_on: dict[int, BuiltOn] = {}
    moves = {update.snapshot_id: update for update in request.updates if isinstance(update, SetSnapshotRef)}
    if not all(_get_retention(move) in {_NONE, _get_retention(main)} for move in moves.values()):
        return None
    moved = []
    for snapshot in appends:
        parent = snapshot.parent_snapshot_id
        parent_id = None if parent is None else aliases.get(parent, parent)
        is_known = parent_id in built_on or _has_all_since(base, parent_id)
        is_repeated = any(snapshot.snapshot_id in known for known in (base.snapshots_by_id, aliases, built_on))
        if is_repeated or not is_known or not _is_compatible(snapshot, base):
            return None
        built_on[snapshot.snapshot_id] = BuiltOn(parent_id, head.row_shift(snapshot))
        moved.append(head.put(snapshot))
    if all(built_on[item.snapshot_id].parent_id == item.parent_snapshot_id for item in moved):
        return None
    updates = (update for snapshot in moved for update in (AddSnapshot(snapshot=snapshot), moves[snapshot.snapshot_id]))
    uuids = tuple(requirement for requirement in request.requirements if isinstance(requirement, AssertTableUuid))
    return Rebased(request.replace_fields(requirements=uuids, updates=tuple(updates)), built_on)


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
