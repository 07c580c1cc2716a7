"""CLONE: a new table over the files of another, by one transaction and no copy of data.

It has a uuid, a location and rows of its own in the catalog, so both tables go on by themselves; which files a table
needs its rows say, and a file goes when no table's rows name it any more. Engines that delete files by what one
table's metadata says can't know that: both tables say `gc.enabled=false` as long as they share any
(`catalog/files/guards`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from uuid import uuid4

from duckicelake.bridge.commit.change_set import build_change_set
from duckicelake.bridge.commit.foreign_tables import CloneRows, build_clone, build_clone_metadata
from duckicelake.bridge.commit.increments import Increment, MainUpdate, NewList
from duckicelake.bridge.definitions import find_former_definition
from duckicelake.bridge.main_diff import diff_main
from duckicelake.catalog.authz.locations import check_table_places
from duckicelake.catalog.commit.apply import new_base
from duckicelake.catalog.commit.guards import guard_change
from duckicelake.catalog.commit.main_update import (
    build_name_maps,
    find_former_files,
    write_delete_files,
    write_row_id_copies,
)
from duckicelake.catalog.commit.run import materialize_committed, retry_on_conflict
from duckicelake.catalog.commit.workspace import Listed, Workspace
from duckicelake.catalog.context.audit_notes import build_touched
from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.caller import Capability, build_refusal
from duckicelake.catalog.context.services import Services, take_file_ids, take_manifest_ids
from duckicelake.catalog.policies import copy_policies
from duckicelake.catalog.table.load import load_committed_before, load_current_table
from duckicelake.catalog.table.time_travel import resolve_snapshot
from duckicelake.iceberg.identifiers import Namespace, format_full_name, to_schema_name
from duckicelake.iceberg.manifest.entry import ManifestContent
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.snapshot import Snapshot
from duckicelake.lake.changes import ChangeSet, Creation, LakeStep, WrittenCommit
from duckicelake.lake.ducklake import native
from duckicelake.lake.ducklake.schemas import check_name_free
from duckicelake.lake.ducklake.snapshots import lock_writers, retry_transaction
from duckicelake.lake.side_tables import locations, reader
from duckicelake.lake.writer import change_sets, groups
from duckicelake.properties import GC_DISABLED, WRITE_FOLDERS, is_gc_disabled


@dataclass(frozen=True, slots=True)
class CloneRequest:
    """What to clone, and at which point (see `resolve_snapshot`; None: now). with_history: with all snapshots."""

    source: tuple[Namespace, str]
    at: str | None = None
    with_history: bool = False


@dataclass(frozen=True, slots=True)
class _ClonePlan:
    """A clone as changes: the new table and, where that is needed, its source's guard; checked against the source."""

    source: TableVersion
    creation: ChangeSet
    guard: ChangeSet | None
    is_guarded_by_us: bool


def clone_table(services: Services, namespace: Namespace, name: str, request: CloneRequest) -> TableVersion:
    """Make the clone; the table that it is.

    Raises NoSuchTableError, AlreadyExistsError, NoSuchNamespaceError, ForbiddenError for a source that the caller may
    not read, and what `resolve_snapshot` does.
    """
    source = format_full_name(*request.source)
    principal = services.caller.principal
    if not principal.may(Capability.READ, *request.source):
        raise build_refusal(*request.source, principal)

    def attempt(_: bool) -> WrittenCommit:
        with services.database.reading() as cursor:
            check_name_free(cursor, to_schema_name(namespace), name)
        plan = _plan(services, namespace, name, request)
        return retry_transaction(lambda: _write(services, namespace, name, plan, source))

    return services.run_once(
        lambda: materialize_committed(services, retry_on_conflict(services, source, attempt)),
        lambda table_ids: load_committed_before(services, table_ids),
    )


def _write(services: Services, namespace: Namespace, name: str, plan: _ClonePlan, source: str) -> WrittenCommit:
    with services.database.transaction() as cursor:
        lock_writers(cursor)
        written = groups.write_change_set(cursor, plan.creation)
        row = plan.source.row
        change_sets.check_base(cursor, row.table_id, (row.version, row.caught_up_to), written.snapshots[0] - 1)
        if plan.guard is not None:
            groups.write_change_set(cursor, plan.guard)
        if plan.is_guarded_by_us:
            locations.record_sharing(cursor, row.table_id, written.table_id)
        touched = [build_touched(namespace, name, {"cloned-from": source})]
        services.own_new(cursor, touched)
        copy_policies(services, cursor, row.table_id, written.table_id, (namespace, name))
        services.settle(cursor, touched, [written.table_id])
    return written


def _plan(services: Services, namespace: Namespace, name: str, request: CloneRequest) -> _ClonePlan:
    table = load_current_table(services, *request.source)
    head = table.metadata.current_snapshot()
    if request.at is not None:
        head = resolve_snapshot(services, table, request.at)
    snapshots = table.metadata.snapshots if request.with_history else (() if head is None else (head,))
    origin = f"{format_full_name(*request.source)}@{head.snapshot_id if head else ''}"
    metadata = build_clone_metadata(table.metadata, snapshots, head, origin.rstrip("@"), WRITE_FOLDERS)
    if head is not None and request.at is not None:
        metadata = _as_then(services, table, metadata, head)
    metadata, is_ours = _build_guarded(services, table, metadata)
    table_uuid = str(uuid4())
    location = services.policy.table_location(namespace, name, table_uuid)
    now = max(services.clock(), metadata.last_updated_ms)
    metadata = metadata.replace_fields(table_uuid=table_uuid, location=location, last_updated_ms=now)
    check_table_places(services, location, metadata.properties, None, None)
    creation = Creation(to_schema_name(namespace), name, table_uuid)
    change = _creation(services, table, metadata, creation, head)
    return _ClonePlan(table, change, _guard(services, request, table) if is_ours else None, is_ours)


def _as_then(services: Services, table: TableVersion, metadata: TableMetadata, head: Snapshot) -> TableMetadata:
    """Return the metadata with the schema, spec and order that the source had at the snapshot."""
    row = next(row for row in table.state.snapshots if row.snapshot_id == head.snapshot_id)
    with services.database.reading() as cursor:
        then = native.read_definition(cursor, table.row.table_id, row.ducklake_id)
        listed = reader.read_manifests(cursor, row.manifest_ids).values()
    used = {manifest.spec_id for manifest in listed if manifest.content == ManifestContent.DATA}
    was = find_former_definition(metadata, head, used, then)
    return metadata.replace_fields(
        current_schema_id=was.schema_id, default_spec_id=was.spec_id, default_sort_order_id=was.order_id
    )


def _build_guarded(services: Services, table: TableVersion, metadata: TableMetadata) -> tuple[TableMetadata, bool]:
    """Return the metadata with a guard, and whether that is the server's.

    Not where the source itself wants one for ever.
    """
    if not metadata.snapshots:
        return metadata, False
    with services.database.reading() as cursor:
        if is_gc_disabled(table.metadata.properties) and not locations.is_guarded_by_us(cursor, table.row.table_id):
            return metadata, False
    return metadata.replace_fields(properties={**metadata.properties, **GC_DISABLED}), True


def _guard(services: Services, request: CloneRequest, cached: TableVersion) -> ChangeSet | None:
    if is_gc_disabled(cached.metadata.properties):
        return None
    return guard_change(services, *request.source, cached)


def _creation(
    services: Services, table: TableVersion, metadata: TableMetadata, creation: Creation, head: Snapshot | None
) -> ChangeSet:
    ids = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    rows = {row.snapshot_id: row for row in table.state.snapshots if row.snapshot_id in ids}
    wanted = sorted({manifest_id for row in rows.values() for manifest_id in row.manifest_ids})
    with services.database.reading() as cursor:
        manifests, entries = reader.read_manifests(cursor, wanted), reader.read_manifest_entries(cursor, wanted)
        known = {file.file_id for found in entries.values() for _, file in found}
        deletions = reader.read_data_file_deletions(cursor, table.row.table_id, known)
        stats = native.read_table_stats(cursor, table.row.table_id)
    made = build_clone(manifests, entries, deletions, take_file_ids(services), take_manifest_ids(services))
    files = (file for found in entries.values() for _, file in found if file.file_id in made.file_ids)
    lake_ids = {made.file_ids[file.file_id]: file.ducklake_id for file in files if file.ducklake_id is not None}
    main = made.manifests_of(rows[head.snapshot_id].manifest_ids) if head else ()
    move = _move(services, table, metadata, creation, made, main, lake_ids) if head else None
    lists = tuple(
        NewList(snapshot, tuple(m.manifest_id for m in made.manifests_of(rows[snapshot.snapshot_id].manifest_ids)))
        for snapshot in metadata.snapshots
    )
    increments = [Increment(lists, made.side, move)] if head else []
    change = build_change_set(new_base(services, metadata), metadata, increments, creation)
    return _with_row_ids(change, stats[1] if stats else 0)


def _move(
    services: Services,
    table: TableVersion,
    metadata: TableMetadata,
    creation: Creation,
    made: CloneRows,
    main: Listed,
    lake_ids: Mapping[int, int],
) -> MainUpdate:
    """Return Main's files as DuckLake gets them: as it has them for the source already, where it has them."""
    space = Workspace(services, creation)
    space.learn(made.side.files, made.side.deletions)
    changed = diff_main(space.build_difference((), main))
    files = {file.file_id: file for file in changed.registered}
    known = find_former_files(services, table.row.table_id, lake_ids, changed.registered)
    at_source, of_source = (
        metadata.replace_fields(location=table.metadata.location),
        Workspace(services, table.row.table_id),
    )
    return MainUpdate(
        registered=tuple(changed.registered),
        copies=(*known.copies, *write_row_id_copies(services, space, at_source, known.unknown)),
        name_maps={**known.name_maps, **build_name_maps(services, of_source, at_source, known.unknown)},
        delete_files=tuple(write_delete_files(services, space, changed.delete_files, files)),
    )


def _with_row_ids(change: ChangeSet, least: int) -> ChangeSet:
    """Raise the next row id above those of the source, since files hold the ids of rows that moved."""

    def above(step: LakeStep) -> LakeStep:
        stats = step.stats
        return step if stats is None else replace(step, stats=replace(stats, next_row_id=max(stats.next_row_id, least)))

    return replace(change, steps=tuple(map(above, change.steps)))
