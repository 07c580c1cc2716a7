"""Apply updates of snapshots, refs, statistics and encryption keys to a metadata draft."""

from collections.abc import Set as AbstractSet

from duckicelake.errors import CommitFailed, InvalidRequest
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, SEQUENCE_NUMBER_VERSION
from duckicelake.iceberg.metadata_draft import MetadataDraft
from duckicelake.iceberg.snapshot import MAIN, Snapshot, SnapshotLogEntry, SnapshotRef
from duckicelake.iceberg.updates import (
    AddEncryptionKey,
    AddSnapshot,
    RemoveEncryptionKey,
    RemovePartitionStatistics,
    RemoveSnapshotRef,
    RemoveSnapshots,
    RemoveStatistics,
    SetPartitionStatistics,
    SetSnapshotRef,
    SetStatistics,
)

_ENCRYPTION_VERSION = 3
_MAX_SEQUENCE_NUMBER_STEP = 2**32


def add_snapshot(draft: MetadataDraft, update: AddSnapshot) -> None:
    snapshot = _complete_snapshot(draft, update.snapshot)
    _check_addable(draft, snapshot)
    _take_sequence_number(draft, snapshot)
    _take_row_ids(draft, snapshot)
    draft.snapshots[snapshot.snapshot_id] = snapshot
    draft.added_snapshots.add(snapshot.snapshot_id)


def _complete_snapshot(draft: MetadataDraft, snapshot: Snapshot) -> Snapshot:
    changes: dict[str, int] = {}
    if draft.format_version < SEQUENCE_NUMBER_VERSION and snapshot.sequence_number:
        changes["sequence_number"] = 0
    if snapshot.schema_id is None and draft.current_schema_id is not None:
        changes["schema_id"] = draft.current_schema_id
    return snapshot.replace_fields(**changes) if changes else snapshot


def _check_addable(draft: MetadataDraft, snapshot: Snapshot) -> None:
    for what, known in (("schema", draft.schemas), ("partition spec", draft.specs), ("sort order", draft.orders)):
        if not known:
            raise InvalidRequest(f"Attempting to add a snapshot before a {what} is added")
    if snapshot.snapshot_id in draft.snapshots:
        raise InvalidRequest(f"Snapshot already exists for: {snapshot.snapshot_id}")
    if snapshot.snapshot_id < 0:
        raise InvalidRequest(f"invalid snapshot-id {snapshot.snapshot_id}: it is 0 or more")
    if snapshot.timestamp_ms < 0:
        raise InvalidRequest(f"invalid timestamp-ms {snapshot.timestamp_ms} of snapshot {snapshot.snapshot_id}")
    if snapshot.schema_id is not None and snapshot.schema_id not in draft.schemas:
        raise InvalidRequest(f"snapshot {snapshot.snapshot_id} has unknown schema-id {snapshot.schema_id}")
    may_list_manifests = draft.format_version < SEQUENCE_NUMBER_VERSION and snapshot.manifests is not None
    if snapshot.manifest_list is None and not may_list_manifests:
        raise InvalidRequest(f"snapshot {snapshot.snapshot_id} has no manifest-list")


def _take_sequence_number(draft: MetadataDraft, snapshot: Snapshot) -> None:
    number, last = snapshot.sequence_number, draft.last_sequence_number
    has_order = draft.format_version >= SEQUENCE_NUMBER_VERSION and snapshot.parent_snapshot_id is not None
    if has_order and number <= last:
        raise CommitFailed(
            f"Cannot add snapshot with sequence number {number} older than last sequence number {last}",
            "old-sequence-number",
        )
    if number > last + _MAX_SEQUENCE_NUMBER_STEP:
        raise InvalidRequest(f"snapshot {snapshot.snapshot_id} has sequence number {number}: expected {last + 1}")
    draft.last_sequence_number = max(last, number)


def _take_row_ids(draft: MetadataDraft, snapshot: Snapshot) -> None:
    if draft.format_version < ROW_LINEAGE_VERSION:
        return
    first, added, following = snapshot.first_row_id, snapshot.added_rows, draft.next_row_id or 0
    if first is None or added is None:
        missing = "first-row-id" if first is None else "added-rows"
        raise InvalidRequest(f"Cannot add a snapshot: {missing} is null")
    if added < 0:
        raise InvalidRequest(f"Cannot add a snapshot: added-rows is {added}, expected 0 or more")
    if first < following:
        raise CommitFailed(
            f"Cannot add a snapshot, first-row-id is behind table next-row-id: {first} < {following}",
            "old-first-row-id",
        )
    draft.next_row_id = first + added  # where the client left a gap, ids inside it are never given out


def set_snapshot_ref(draft: MetadataDraft, update: SetSnapshotRef) -> None:
    ref = SnapshotRef(
        snapshot_id=update.snapshot_id,
        type=update.type,
        max_ref_age_ms=update.max_ref_age_ms,
        max_snapshot_age_ms=update.max_snapshot_age_ms,
        min_snapshots_to_keep=update.min_snapshots_to_keep,
    )
    _check_ref(draft, update.ref_name, ref)
    draft.refs[update.ref_name] = ref
    if update.ref_name == MAIN and draft.current_snapshot_id != ref.snapshot_id:
        _move_main(draft, ref.snapshot_id)


def _check_ref(draft: MetadataDraft, name: str, ref: SnapshotRef) -> None:
    if not name:
        raise InvalidRequest("ref-name is empty")
    if ref.snapshot_id not in draft.snapshots:
        raise InvalidRequest(f"Cannot set {name} to unknown snapshot: {ref.snapshot_id}")
    if name == MAIN and ref.type != "branch":
        raise InvalidRequest("main must be a branch")
    existing = draft.refs.get(name)
    if existing is not None and existing.type != ref.type:
        raise InvalidRequest(f"Cannot update {ref.type}: {name} is a {existing.type}")
    _check_retention(name, ref)


def _check_retention(name: str, ref: SnapshotRef) -> None:
    if ref.type == "tag" and (ref.min_snapshots_to_keep is not None or ref.max_snapshot_age_ms is not None):
        raise InvalidRequest(f"{name}: tags do not support min-snapshots-to-keep and max-snapshot-age-ms")
    for limit in (ref.max_ref_age_ms, ref.max_snapshot_age_ms, ref.min_snapshots_to_keep):
        if limit is not None and limit <= 0:
            raise InvalidRequest(f"{name}: retention limit {limit} must be greater than 0")


def _move_main(draft: MetadataDraft, snapshot_id: int) -> None:
    added = snapshot_id in draft.added_snapshots
    moment = draft.snapshots[snapshot_id].timestamp_ms if added else draft.now_ms
    previous = draft.snapshot_log[-1].timestamp_ms if draft.snapshot_log else moment
    draft.snapshot_log.append(SnapshotLogEntry(snapshot_id=snapshot_id, timestamp_ms=max(moment, previous)))
    draft.current_snapshot_id = snapshot_id
    if added:
        draft.snapshots_once_main.add(snapshot_id)


def remove_snapshot_ref(draft: MetadataDraft, update: RemoveSnapshotRef) -> None:
    draft.refs.pop(update.ref_name, None)
    if update.ref_name == MAIN:
        draft.current_snapshot_id = None


def remove_snapshots(draft: MetadataDraft, update: RemoveSnapshots) -> None:
    for snapshot_id in update.snapshot_ids:
        if draft.snapshots.pop(snapshot_id, None) is not None:
            draft.snapshots_were_removed = True
            draft.statistics.pop(snapshot_id, None)
            draft.partition_statistics.pop(snapshot_id, None)
    for name in [name for name, ref in draft.refs.items() if ref.snapshot_id not in draft.snapshots]:
        remove_snapshot_ref(draft, RemoveSnapshotRef(ref_name=name))


def settle_snapshot_log(draft: MetadataDraft, ends: AbstractSet[int] = frozenset()) -> None:
    """Take out what no reader saw, snapshots that main had only within a request, and all before a removed snapshot.

    ends: those with which a request ended, besides the last.
    """
    unseen = draft.snapshots_once_main - {draft.current_snapshot_id} - ends
    if not unseen and not draft.snapshots_were_removed:
        return
    settled: list[SnapshotLogEntry] = []
    for entry in draft.snapshot_log:
        if entry.snapshot_id not in draft.snapshots:
            settled = [] if draft.snapshots_were_removed else settled
        elif entry.snapshot_id not in unseen:
            settled.append(entry)
    draft.snapshot_log = settled


def set_statistics(draft: MetadataDraft, update: SetStatistics) -> None:
    draft.statistics[update.statistics.snapshot_id] = update.statistics


def remove_statistics(draft: MetadataDraft, update: RemoveStatistics) -> None:
    draft.statistics.pop(update.snapshot_id, None)


def set_partition_statistics(draft: MetadataDraft, update: SetPartitionStatistics) -> None:
    draft.partition_statistics[update.partition_statistics.snapshot_id] = update.partition_statistics


def remove_partition_statistics(draft: MetadataDraft, update: RemovePartitionStatistics) -> None:
    draft.partition_statistics.pop(update.snapshot_id, None)


def add_encryption_key(draft: MetadataDraft, update: AddEncryptionKey) -> None:
    if draft.format_version < _ENCRYPTION_VERSION:
        raise InvalidRequest(f"encryption keys need format version {_ENCRYPTION_VERSION}, not {draft.format_version}")
    draft.encryption_keys.setdefault(update.encryption_key.key_id, update.encryption_key)


def remove_encryption_key(draft: MetadataDraft, update: RemoveEncryptionKey) -> None:
    draft.encryption_keys.pop(update.key_id, None)
