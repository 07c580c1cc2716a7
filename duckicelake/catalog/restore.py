"""RESTORE: main becomes what it was at one of the table's snapshots, by a new snapshot on top of that one.

The new snapshot lists the old one's manifests and is its child: nothing is written but its list, rows come back with
their ids, and no file is ever added a second time, which Iceberg's own expiry wouldn't survive. What main was before
stays listed. Iceberg's rollback moves main itself back and makes no snapshot; schema, partition spec and sort order
stay as they are with it. Here they become those of then, too; properties stay.
"""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from duckicelake.bridge.definitions import FormerDefinition, find_former_definition
from duckicelake.bridge.main_diff import FileSetDifference, list_changed_files
from duckicelake.catalog.authz.commit_rights import check_commit
from duckicelake.catalog.authz.locations import check_readable
from duckicelake.catalog.commit.apply import TableCommit
from duckicelake.catalog.commit.run import OutdatedPlanError, commit_all, retry_on_conflict
from duckicelake.catalog.commit.workspace import Workspace
from duckicelake.catalog.context.audit_notes import build_touched
from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import load_current_table
from duckicelake.catalog.table.time_travel import resolve_snapshot
from duckicelake.errors import CommitFailedError, FileMissingError, InvalidRequestError, summarize
from duckicelake.iceberg.identifiers import Namespace, format_full_name
from duckicelake.iceberg.manifest.entry import ManifestContent
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, TableMetadata
from duckicelake.iceberg.requirements import AssertRefSnapshotId
from duckicelake.iceberg.rest import CommitTableRequest
from duckicelake.iceberg.snapshot import MAIN, Snapshot, SnapshotRef
from duckicelake.iceberg.updates import AddSnapshot, SetSnapshotRef
from duckicelake.lake.changes import WrittenCommit
from duckicelake.lake.ducklake import native
from duckicelake.postgres.queries import Transaction
from duckicelake.storage.threads import run_in_parallel

RESTORED_FROM: Final = "restored-from"
RESTORED_OVER: Final = "restored-over"
"""In the summary of the new snapshot: whose state it is, and what main was before."""
"""So many missing files are named."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restoration does, or would do. snapshot_id, ducklake_id: those that it made; None if there was no need.

    Files are data files. A rewrite in between has rows leave in some files that come back in others.
    """

    restored_from: int
    restored_over: int | None
    files_added: int = 0
    files_removed: int = 0
    rows_added: int = 0
    rows_removed: int = 0
    changes_definition: bool = False
    snapshot_id: int | None = None
    ducklake_id: int | None = None

    @property
    def changes_anything(self) -> bool:
        counts = (self.files_added, self.files_removed, self.rows_added, self.rows_removed)
        return any(counts) or self.changes_definition


def restore_table(
    services: Services, namespace: Namespace, name: str, to: str, *, is_dry_run: bool = False
) -> Restored:
    """Restore main to what `resolve_snapshot` finds; computed again for what others commit meanwhile.

    Raises NoSuchTableError, NotFoundError, ExpiredError, InvalidRequestError, and FileMissingError if a file of then is
    gone.
    """

    def attempt(is_alone: bool) -> Restored:
        plan = _plan(services, namespace, name, to)
        if is_dry_run:
            return plan.restored
        if not plan.restored.changes_anything:
            services.settle_unchanged([build_touched(namespace, name)], asdict(plan.restored))
            return plan.restored
        return _commit(services, namespace, name, plan, is_alone=is_alone)

    called = format_full_name(namespace, name)
    return services.run_once(lambda: retry_on_conflict(services, called, attempt), lambda result: Restored(**result))


@dataclass(frozen=True, slots=True)
class _RestorePlan:
    """What main is to become, and what that changes."""

    metadata: TableMetadata
    target: Snapshot
    former: FormerDefinition
    restored: Restored


def _plan(services: Services, namespace: Namespace, name: str, to: str) -> _RestorePlan:
    table = load_current_table(services, namespace, name)
    metadata, target = table.metadata, resolve_snapshot(services, table, to)
    rows = {row.snapshot_id: row for row in table.state.snapshots}
    current = table.state.current()
    space = Workspace(services, table.row.table_id, table.known)
    before = space.list_manifests(current.manifest_ids if current else ())
    after = space.list_manifests(rows[target.snapshot_id].manifest_ids)
    _check_there(services, table, space, space.find_changed_files(before, after)[1])
    used = {manifest.spec_id for manifest in after if manifest.content == ManifestContent.DATA}
    with services.database.reading() as cursor:
        then = native.read_definition(cursor, table.row.table_id, rows[target.snapshot_id].ducklake_id)
    definition = find_former_definition(metadata, target, used, then)
    counted = _count(space.build_difference(before, after), space)
    restored = Restored(
        target.snapshot_id,
        metadata.current_snapshot_id,
        **counted,
        changes_definition=any(definition.updates(metadata)),
    )
    return _RestorePlan(metadata, target, definition, restored)


def _check_there(services: Services, table: TableVersion, space: Workspace, come: Iterable[int]) -> None:
    """Raise FileMissingError, naming some, if files that come back are gone.

    Not of those that the server may not read.
    """
    paths = sorted({file.path for file in space.files(come).values()})
    folders = space.folders()

    def is_gone(path: str) -> bool:
        try:
            check_readable(services, path, table.metadata.location, folders)
        except InvalidRequestError:
            return False
        return not services.store.exists(path)

    gone = [path for path, gone in zip(paths, run_in_parallel(is_gone, paths), strict=True) if gone]
    if gone:
        raise FileMissingError(f"Files of the snapshot to restore don't exist any more: {summarize(gone)}")


def _count(changed: FileSetDifference, space: Workspace) -> dict[str, int]:
    """Return files and rows that come and go."""
    files = list(list_changed_files(changed, space.files(changed.left)))
    return {
        "files_added": sum(file.kind == "added" for file in files),
        "files_removed": sum(file.kind == "removed" for file in files),
        "rows_added": sum(file.rows_added for file in files),
        "rows_removed": sum(file.rows_removed for file in files),
    }


def _commit(services: Services, namespace: Namespace, name: str, plan: _RestorePlan, *, is_alone: bool) -> Restored:
    done = plan.restored

    def settle(cursor: Transaction, written: Sequence[WrittenCommit]) -> None:
        (change,) = written
        at = change.snapshots[-1]
        made = replace(done, snapshot_id=change.change.target.current_snapshot_id, ducklake_id=at)
        detail: dict[str, Any] = {RESTORED_FROM: done.restored_from, RESTORED_OVER: done.restored_over}
        entry = replace(build_touched(namespace, name, detail), table_id=change.table_id, snapshot_id=at)
        services.settle(cursor, [entry], asdict(made))

    request = _request(services, plan)
    check_commit(services.caller.principal, namespace, name, request)
    try:
        (outcome,) = commit_all(services, [TableCommit(namespace, name, request)], settle, is_alone=is_alone)
    except CommitFailedError as error:
        raise OutdatedPlanError from error
    assert outcome.written is not None
    change = outcome.written.change
    return replace(done, snapshot_id=change.target.current_snapshot_id, ducklake_id=outcome.written.snapshots[-1])


def _request(services: Services, plan: _RestorePlan) -> CommitTableRequest:
    metadata = plan.metadata
    snapshot = _snapshot(services, plan)
    main = metadata.refs.get(MAIN, SnapshotRef(snapshot_id=snapshot.snapshot_id, type="branch"))
    return CommitTableRequest(
        requirements=(AssertRefSnapshotId(ref=MAIN, snapshot_id=metadata.current_snapshot_id),),
        updates=(
            *plan.former.updates(metadata),
            AddSnapshot(snapshot=snapshot),
            SetSnapshotRef(ref_name=MAIN, **main.replace_fields(snapshot_id=snapshot.snapshot_id).model_dump()),
        ),
    )


def _snapshot(services: Services, plan: _RestorePlan) -> Snapshot:
    metadata, target = plan.metadata, plan.target
    has_lineage = metadata.format_version >= ROW_LINEAGE_VERSION
    return Snapshot(
        snapshot_id=secrets.randbits(62),
        parent_snapshot_id=target.snapshot_id,
        sequence_number=metadata.last_sequence_number + 1,
        timestamp_ms=max(services.clock(), metadata.last_updated_ms),
        manifest_list=target.manifest_list,
        summary=_summary(plan.restored, target),
        schema_id=plan.former.schema_id,
        first_row_id=metadata.next_row_id if has_lineage else None,
        added_rows=0 if has_lineage else None,
    )


def _summary(restored: Restored, target: Snapshot) -> dict[str, str]:
    """Build the summary of an overwrite, with the totals of then."""
    totals = {key: text for key, text in target.summary.items() if key.startswith("total-")}
    over = {} if restored.restored_over is None else {RESTORED_OVER: str(restored.restored_over)}
    return {"operation": "overwrite", **totals, RESTORED_FROM: str(restored.restored_from), **over}
