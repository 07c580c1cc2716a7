"""CLONE: a new table over the files of another, by one transaction and no copy of data.

It has a uuid, a location and rows of its own in the catalog, so both tables go on by themselves; which files a table
needs its rows say, and a file goes when no table's rows name it any more. Engines that delete files by what one
table's metadata says can't know that: both tables say `gc.enabled=false` as long as they share any
(`catalog/files/guards`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from uuid import uuid4

from duckicelake.bridge.cloning import Cloned, clone_metadata, cloned
from duckicelake.bridge.diff import change_set
from duckicelake.bridge.former import former
from duckicelake.bridge.increments import Base, Increment, Move, NewList
from duckicelake.bridge.realise import realise
from duckicelake.catalog.access.ownership import PLACES, check_table_places
from duckicelake.catalog.access.principal import Capability, refusal
from duckicelake.catalog.auditing import touched
from duckicelake.catalog.commits.committing import committed
from duckicelake.catalog.commits.ids import file_ids, manifest_ids
from duckicelake.catalog.commits.moves import difference, write_delete_files
from duckicelake.catalog.commits.overtaken import until_written
from duckicelake.catalog.commits.workspace import Listed, Workspace
from duckicelake.catalog.files.former_files import former_files
from duckicelake.catalog.files.guards import guard_change
from duckicelake.catalog.files.name_maps import name_maps
from duckicelake.catalog.files.row_ids import copies_with_row_ids
from duckicelake.catalog.files.sharing import GUARD, is_guarded
from duckicelake.catalog.loads.cache import CachedTable, Materialized
from duckicelake.catalog.loads.loading import committed_before, current_table
from duckicelake.catalog.moments import snapshot_at
from duckicelake.catalog.services import Services
from duckicelake.iceberg.manifest import ManifestContent
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.names import Namespace, full_name, schema_name
from duckicelake.iceberg.snapshot import Snapshot
from duckicelake.lake import clones, native, reader
from duckicelake.lake.changes import ChangeSet, Creation, LakeStep, Written
from duckicelake.lake.names import check_name_is_free
from duckicelake.lake.snapshots import lock, retrying
from duckicelake.lake.writing import writer


@dataclass(frozen=True, slots=True)
class CloneRequest:
    """What to clone, and as what it was at: what `snapshot_at` takes; None: as it is. with_history: all snapshots."""

    source: tuple[Namespace, str]
    at: str | None = None
    with_history: bool = False


@dataclass(frozen=True, slots=True)
class _Plan:
    """A clone as changes: the new table and, where that is needed, its source's guard; checked against the source."""

    source: Materialized
    creation: ChangeSet
    guard: ChangeSet | None
    is_guarded_by_us: bool


def clone_table(services: Services, namespace: Namespace, name: str, request: CloneRequest) -> Materialized:
    """Make the clone; the table that it is.

    Raises NoSuchTable, AlreadyExists, NoSuchNamespace, Forbidden for a source that the caller may not read, and what
    `snapshot_at` does.
    """
    source = full_name(*request.source)
    if not services.caller.principal.may(Capability.READ, request.source[0]):
        raise refusal(request.source[0])

    def attempt(_: bool) -> Written:
        with services.database.reading() as cursor:
            check_name_is_free(cursor, schema_name(namespace), name)
        plan = _plan(services, namespace, name, request)
        return retrying(lambda: _write(services, namespace, name, plan, source))

    return services.run_once(
        lambda: committed(services, until_written(services, source, attempt)),
        lambda table_ids: committed_before(services, table_ids),
    )


def _write(services: Services, namespace: Namespace, name: str, plan: _Plan, source: str) -> Written:
    with services.database.transaction() as cursor:
        lock(cursor)
        written = writer.write(cursor, plan.creation)
        row = plan.source.row
        writer.check_base(cursor, row.table_id, (row.version, row.caught_up_to), written.snapshots[0] - 1)
        if plan.guard is not None:
            writer.write(cursor, plan.guard)
        if plan.is_guarded_by_us:
            clones.share(cursor, row.table_id, written.table_id)
        services.settle(cursor, [touched(namespace, name, {"cloned-from": source})], [written.table_id])
    return written


def _plan(services: Services, namespace: Namespace, name: str, request: CloneRequest) -> _Plan:
    cached = current_table(services, *request.source)
    table = cached.materialized
    head = table.metadata.current_snapshot()
    if request.at is not None:
        head = snapshot_at(services, table, request.at)
    snapshots = table.metadata.snapshots if request.with_history else (() if head is None else (head,))
    origin = f"{full_name(*request.source)}@{head.snapshot_id if head else ''}"
    metadata = clone_metadata(table.metadata, snapshots, head, origin.rstrip("@"), PLACES)
    if head is not None and request.at is not None:
        metadata = _as_then(services, table, metadata, head)
    metadata, is_ours = _guarded(services, table, metadata)
    table_uuid = str(uuid4())
    location = services.policy.table_location(namespace, name, table_uuid)
    now = max(services.clock(), metadata.last_updated_ms)
    metadata = metadata.replaced(table_uuid=table_uuid, location=location, last_updated_ms=now)
    check_table_places(services, location, metadata.properties, None, None)
    creation = Creation(schema_name(namespace), name, table_uuid)
    change = _creation(services, table, metadata, creation, head)
    return _Plan(table, change, _guard(services, request, cached) if is_ours else None, is_ours)


def _as_then(services: Services, table: Materialized, metadata: TableMetadata, head: Snapshot) -> TableMetadata:
    """With the schema, spec and order that the source had at the snapshot."""
    row = next(row for row in table.state.snapshots if row.snapshot_id == head.snapshot_id)
    with services.database.reading() as cursor:
        then = native.definition(cursor, table.row.table_id, row.ducklake_id)
        listed = reader.manifests(cursor, row.manifest_ids).values()
    used = {manifest.spec_id for manifest in listed if manifest.content == ManifestContent.DATA}
    was = former(metadata, head, used, then)
    return metadata.replaced(
        current_schema_id=was.schema_id, default_spec_id=was.spec_id, default_sort_order_id=was.order_id
    )


def _guarded(services: Services, table: Materialized, metadata: TableMetadata) -> tuple[TableMetadata, bool]:
    """The metadata with a guard, and whether that is the server's: not where the source itself wants one for ever."""
    if not metadata.snapshots:
        return metadata, False
    with services.database.reading() as cursor:
        if is_guarded(table.metadata) and not clones.is_guarded_by_us(cursor, table.row.table_id):
            return metadata, False
    return metadata.replaced(properties={**metadata.properties, **GUARD}), True


def _guard(services: Services, request: CloneRequest, cached: CachedTable) -> ChangeSet | None:
    return None if is_guarded(cached.materialized.metadata) else guard_change(services, *request.source, cached)


def _creation(
    services: Services, table: Materialized, metadata: TableMetadata, creation: Creation, head: Snapshot | None
) -> ChangeSet:
    ids = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    rows = {row.snapshot_id: row for row in table.state.snapshots if row.snapshot_id in ids}
    wanted = sorted({manifest_id for row in rows.values() for manifest_id in row.manifest_ids})
    with services.database.reading() as cursor:
        manifests, entries = reader.manifests(cursor, wanted), reader.entries(cursor, wanted)
        known = {file.file_id for found in entries.values() for _, file in found}
        deletions = reader.deletions_of(cursor, table.row.table_id, known)
        stats = native.table_stats(cursor, table.row.table_id)
    made = cloned(manifests, entries, deletions, file_ids(services), manifest_ids(services))
    files = (file for found in entries.values() for _, file in found if file.file_id in made.file_ids)
    lake_ids = {made.file_ids[each.file_id]: each.ducklake_id for each in files if each.ducklake_id is not None}
    main = made.manifests_of(rows[head.snapshot_id].manifest_ids) if head else ()
    move = _move(services, table, metadata, creation, made, main, lake_ids) if head else None
    lists = tuple(
        NewList(each, tuple(m.manifest_id for m in made.manifests_of(rows[each.snapshot_id].manifest_ids)))
        for each in metadata.snapshots
    )
    increments = [Increment(lists, made.side, move)] if head else []
    return _with_row_ids(change_set(Base(), metadata, increments, creation), stats[1] if stats else 0)


def _move(
    services: Services,
    table: Materialized,
    metadata: TableMetadata,
    creation: Creation,
    made: Cloned,
    main: Listed,
    lake_ids: Mapping[int, int],
) -> Move:
    """Main's files as DuckLake gets them: as it has them for the source already, where it has them."""
    space = Workspace(services, creation)
    space.learn(made.side.files, made.side.deletions)
    changed = realise(difference(space, (), main))
    files = {file.file_id: file for file in changed.registered}
    known = former_files(services, table.row.table_id, lake_ids, changed.registered)
    at_source, of_source = metadata.replaced(location=table.metadata.location), Workspace(services, table.row.table_id)
    return Move(
        registered=tuple(changed.registered),
        copies=(*known.copies, *copies_with_row_ids(services, space, at_source, known.unknown)),
        name_maps={**known.name_maps, **name_maps(services, of_source, at_source, known.unknown)},
        delete_files=tuple(write_delete_files(services, space, changed.delete_files, files)),
    )


def _with_row_ids(change: ChangeSet, least: int) -> ChangeSet:
    """With no row id to come that a row of the source has: files say their rows' ids themselves where rows moved."""

    def above(step: LakeStep) -> LakeStep:
        stats = step.stats
        return step if stats is None else replace(step, stats=replace(stats, next_row_id=max(stats.next_row_id, least)))

    return replace(change, steps=tuple(map(above, change.steps)))
