"""Register tables that another catalog wrote, and give tables up."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from duckicelake.bridge.commit.change_set import build_change_set
from duckicelake.bridge.commit.foreign_tables import Registration
from duckicelake.bridge.commit.increments import Increment, NewList
from duckicelake.bridge.commit.uploads import check_manifests
from duckicelake.bridge.manifest_lists import ListedManifest
from duckicelake.catalog.authz.locations import check_may_read, check_readable, check_table_places
from duckicelake.catalog.commit.apply import TableCommit, change_over, new_base
from duckicelake.catalog.commit.deletes import Targets, find_deletions, read_all_deletions
from duckicelake.catalog.commit.equality_deletes import find_equality_deletes
from duckicelake.catalog.commit.main_update import move_main
from duckicelake.catalog.commit.run import materialize_committed, retry_on_conflict
from duckicelake.catalog.commit.uploads import (
    check_sizes,
    check_statistics,
    check_supported,
    read_list,
    read_manifest_at,
    read_snapshot_files,
)
from duckicelake.catalog.commit.workspace import Workspace
from duckicelake.catalog.context.audit_notes import build_touched
from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.hooks import find_rules
from duckicelake.catalog.context.services import Services, take_file_ids, take_manifest_ids
from duckicelake.catalog.policies import check_unguarded
from duckicelake.catalog.table.load import load_current_table
from duckicelake.errors import (
    CommitStateUnknownError,
    FileMissingError,
    InvalidRequestError,
    NoSuchNamespaceError,
    NoSuchTableError,
)
from duckicelake.iceberg.identifiers import Namespace, format_full_name, parse_schema_name, to_schema_name
from duckicelake.iceberg.manifest.entry import EntryStatus, FileContent, Manifest, ManifestFile
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, TableMetadata, parse_table_metadata
from duckicelake.iceberg.metadata_file import MAX_METADATA_BYTES, read_document
from duckicelake.iceberg.rest import CommitTableRequest
from duckicelake.iceberg.updates import SetProperties
from duckicelake.lake.additions import NewDeletion, SideFiles
from duckicelake.lake.changes import ChangeSet, Creation, WrittenCommit
from duckicelake.lake.conflicts import StaleBaseError
from duckicelake.lake.ducklake.schemas import check_name_free
from duckicelake.lake.ducklake.snapshots import lock_writers, retry_transaction
from duckicelake.lake.side_tables import reader
from duckicelake.lake.side_tables import writer as side_tables
from duckicelake.lake.state import FileRow
from duckicelake.lake.writer import groups
from duckicelake.lake.writer import tables as lake_tables
from duckicelake.parquet.copy import find_row_ids_end
from duckicelake.parquet.local_copies import open_footer_copies
from duckicelake.postgres.queries import Transaction
from duckicelake.properties import DUCKLAKE_ID, GC_DISABLED, check_property_values
from duckicelake.storage.threads import run_in_parallel

_OWN_NAME: Final = re.compile(r"/ducklake-[^/]*\.parquet$|-(inlined|readable|rows)\.parquet$")
"""The names of files that DuckDB, flushes, loads and rewrites make."""


@dataclass(frozen=True, slots=True)
class ForeignTableContent:
    """A table with all its snapshots as one step of a commit that creates it."""

    metadata: TableMetadata
    increment: Increment

    @property
    def paths(self) -> tuple[str, ...]:
        """Every data and delete file."""
        return tuple(file.path for file in self.increment.side.files)


def read_metadata(services: Services, location: str) -> TableMetadata:
    """Return the metadata of a file, gzipped or not.

    Raises FileMissingError, or InvalidRequestError if it isn't any or may not be read.
    """
    check_readable(services, location, services.policy.data_zone)
    check_may_read(services, [location])
    try:
        data = services.store.read(location, MAX_METADATA_BYTES)
    except FileMissingError:
        raise FileMissingError(f"There is no metadata file at {location}") from None
    metadata = parse_table_metadata(read_document(data, location))
    others = {key: value for key, value in metadata.properties.items() if key != DUCKLAKE_ID}
    return metadata.replace_fields(location=metadata.location.rstrip("/"), properties=others)


def read_foreign_table(services: Services, metadata: TableMetadata, creation: Creation) -> ForeignTableContent:
    """Return everything that the metadata leads to; InvalidRequestError, UnsupportedError."""
    zone, snapshots = services.policy.data_zone, metadata.snapshots
    check_may_read(services, (path for snapshot in snapshots for path in read_snapshot_files(snapshot)))
    check_statistics(services, None, None, metadata)
    read = run_in_parallel(partial(read_list, services, zone), snapshots)
    lines = {snapshot.snapshot_id: listed for snapshot, listed in zip(snapshots, read, strict=True)}
    registration = Registration(metadata, take_file_ids(services), take_manifest_ids(services))
    _read_manifests(services, registration, lines)
    metadata = registration.number_rows()
    lists = registration.lists(lines)
    space = Workspace(services, creation)
    space.learn(registration.files, ())
    deletions = _read_deletions(services, registration, space)
    space.learn((), deletions)
    main = lists.get(metadata.current_snapshot_id, ()) if metadata.current_snapshot_id is not None else ()
    side = SideFiles(registration.files, deletions, (), tuple(registration.manifests))
    move = move_main(services, space, metadata, (), main)
    move = replace(move, least_row_id=_find_least_row_id(services, metadata, move.registered))
    increment = Increment(_rows(metadata, lists), side, move)
    return ForeignTableContent(metadata, increment)


def _find_least_row_id(services: Services, metadata: TableMetadata, files: Sequence[FileRow]) -> int:
    """Return a number above the row ids that files of DuckDB and of this server hold for updated and moved rows.

    Version 3 counts them itself; version 2 says nothing of them, and no other writer's file has any.
    """
    if metadata.format_version >= ROW_LINEAGE_VERSION:
        return 0

    def find_end(path: str) -> int:
        with suppress(FileMissingError, InvalidRequestError):
            check_readable(services, path, metadata.location, services.policy.places)
            with open_footer_copies(services.store, [path]) as copies:
                return find_row_ids_end(copies[path])
        return 0

    return max(run_in_parallel(find_end, [file.path for file in files if _OWN_NAME.search(file.path)]), default=0)


def _rows(metadata: TableMetadata, lists: Mapping[int, Sequence[ListedManifest]]) -> tuple[NewList, ...]:
    return tuple(
        NewList(snapshot, tuple(manifest.manifest_id for manifest in lists[snapshot.snapshot_id]))
        for snapshot in metadata.snapshots
    )


def _read_manifests(
    services: Services, registration: Registration, lists: Mapping[int, Sequence[ManifestFile]]
) -> None:
    """Take in each manifest once, with the line that says most of it: lists of before version 3 say no row ids."""
    metadata, zone = registration.metadata, services.policy.data_zone
    specs = {spec.spec_id: spec for spec in metadata.partition_specs}
    lines = {line.manifest_path: line for lines in lists.values() for line in lines}
    lines |= {line.manifest_path: line for lines in lists.values() for line in lines if line.first_row_id is not None}
    check_may_read(services, lines)
    check_sizes(lines.values())
    read = run_in_parallel(partial(read_manifest_at, services, zone, {}), lines.values())
    manifests: dict[str, Manifest] = dict(zip(lines, read, strict=True))
    for manifest in read:
        for entry in manifest.entries:
            if entry.status is not EntryStatus.DELETED:
                check_supported(entry.data_file, metadata.format_version)
    check_may_read(services, {e.data_file.file_path for manifest in manifests.values() for e in manifest.entries})
    for found in lists.values():
        check_manifests(found, manifests, specs)
    for path, line in lines.items():
        registration.add(line, manifests[path])


def _read_deletions(services: Services, registration: Registration, space: Workspace) -> tuple[NewDeletion, ...]:
    """Return what all live delete files of the history delete."""
    zone, live = services.policy.data_zone, registration.live
    targets = Targets(space, tuple(registration.listed.values()), frozenset(), ())
    found = read_all_deletions(services, zone, live, targets)
    equality = [file for file in live if file.content == FileContent.EQUALITY_DELETES]
    return (*found, *_read_equality_deletions(services, registration.metadata, space, live, equality))


def _read_equality_deletions(
    services: Services,
    metadata: TableMetadata,
    space: Workspace,
    live: Sequence[FileRow],
    equality: Sequence[FileRow],
) -> list[NewDeletion]:
    if not equality:
        return []
    data_files = [file for file in live if file.content == FileContent.DATA]
    folders = (space.folder(), services.policy.data_zone)
    return find_deletions(find_equality_deletes(services, metadata, folders, equality, data_files))


@dataclass(frozen=True, slots=True)
class _RegistrationPlan:
    """A registration as changes: the new table, and the guards of live tables, `sharing`, that have files of it."""

    creation: ChangeSet
    guards: Sequence[ChangeSet]
    sharing: frozenset[tuple[str, str]]


def register_table(
    services: Services, namespace: Namespace, name: str, location: str, *, overwrite: bool
) -> TableVersion:
    """Make a table of a metadata.json, with `overwrite` in the place of the one that has its name.

    Raises AlreadyExistsError, NoSuchNamespaceError, FileMissingError, InvalidRequestError for what isn't table metadata
    or may not be read.
    """
    if not overwrite:
        with services.database.reading() as cursor:
            check_name_free(cursor, to_schema_name(namespace), name)
    creation, table = _read_all(services, namespace, name, location)
    metadata = table.metadata

    def attempt(plan: _RegistrationPlan) -> WrittenCommit:
        with services.database.transaction() as cursor:
            lock_writers(cursor)
            if _find_sharing_tables(cursor, table, creation) != plan.sharing:
                raise StaleBaseError(f"other tables share files with {location} now")
            if overwrite:
                check_unguarded(services, cursor, (namespace, name))
                lake_tables.drop_table(cursor, creation.schema_name, name, purge=False, is_final=True)
            written = _write(cursor, plan, metadata, location)
            detail = _detail(plan, location, overwrite=overwrite)
            touched = [build_touched(namespace, name, detail)]
            services.own_new(cursor, touched)
            services.settle(cursor, touched, [written.table_id])
        return written

    def plan_and_attempt(_: bool) -> WrittenCommit:
        plan = _plan(services, table, creation)
        return retry_transaction(lambda: attempt(plan))

    return _render(
        services, namespace, name, retry_on_conflict(services, format_full_name(namespace, name), plan_and_attempt)
    )


def check_registration(
    services: Services, namespace: Namespace, name: str, location: str, *, overwrite: bool
) -> ForeignTableContent:
    """Read all that a registration would read, and write nothing. Raises what `register_table` raises.

    A namespace that isn't there is no fault: it can be made before.
    """
    if not overwrite:
        with services.database.reading() as cursor, suppress(NoSuchNamespaceError):
            check_name_free(cursor, to_schema_name(namespace), name)
    return _read_all(services, namespace, name, location)[1]


def _read_all(
    services: Services, namespace: Namespace, name: str, location: str
) -> tuple[Creation, ForeignTableContent]:
    metadata = read_metadata(services, location)
    check_property_values(metadata.properties)
    for rule in find_rules(namespace, name, metadata, None):
        rule.check_definition(metadata, None)
    check_table_places(services, metadata.location, metadata.properties, None, None)
    creation = Creation(to_schema_name(namespace), name, metadata.table_uuid)
    return creation, read_foreign_table(services, metadata, creation)


def _render(services: Services, namespace: Namespace, name: str, written: WrittenCommit) -> TableVersion:
    """Return the registered table; what has its name by now, if another one was registered over it in the meantime."""
    try:
        return materialize_committed(services, written)
    except CommitStateUnknownError as error:
        if not isinstance(error.__cause__, NoSuchTableError):
            raise
        try:
            return load_current_table(services, namespace, name)
        except NoSuchTableError:
            raise error from error.__cause__


def _write(cursor: Transaction, plan: _RegistrationPlan, metadata: TableMetadata, location: str) -> WrittenCommit:
    written = groups.write_change_set(cursor, plan.creation)
    table_id = written.table_id
    for guard in plan.guards:
        groups.write_change_set(cursor, guard)
    side_tables.forget_dropped(cursor, metadata.table_uuid, table_id)
    log = [(entry.metadata_file, entry.timestamp_ms) for entry in metadata.metadata_log]
    side_tables.record_registered(cursor, table_id, [*log, (location, metadata.last_updated_ms)])
    return written


def _detail(plan: _RegistrationPlan, location: str, *, overwrite: bool) -> dict[str, object]:
    """Return what the audit trail says of it; `guarded` are other tables whose `gc.enabled` it turned off."""
    guarded = [f"{schema}.{name}" for schema, name in sorted(plan.sharing)]
    return {"from": location, "overwrite": overwrite} | ({"guarded": guarded} if guarded else {})


def _plan(services: Services, table: ForeignTableContent, creation: Creation) -> _RegistrationPlan:
    with services.database.reading() as cursor:
        sharing = _find_sharing_tables(cursor, table, creation)
    guards = (_guard(services, *table_id) for table_id in sorted(sharing))
    metadata = table.metadata
    if sharing:
        metadata = metadata.replace_fields(properties={**metadata.properties, **GC_DISABLED})
    return _RegistrationPlan(
        creation=build_change_set(new_base(services, metadata), metadata, [table.increment], creation),
        guards=[guard for guard in guards if guard is not None],
        sharing=sharing,
    )


def _find_sharing_tables(
    cursor: Transaction, table: ForeignTableContent, creation: Creation
) -> frozenset[tuple[str, str]]:
    """Return live tables, by schema and name, that have files of this one, but for the one in whose place it comes."""
    return reader.find_sharing_tables(cursor, table.paths) - {(creation.schema_name, creation.table_name)}


def _guard(services: Services, schema: str, name: str) -> ChangeSet | None:
    """Return the change of a table that keeps its engines from deleting files; None if it is guarded, or gone."""
    update = SetProperties(updates=dict(GC_DISABLED))
    commit = TableCommit(parse_schema_name(schema), name, CommitTableRequest(requirements=(), updates=(update,)))
    try:
        return change_over(services, commit, load_current_table(services, commit.namespace, name), 0)
    except NoSuchTableError:
        return None


def unregister_table(services: Services, namespace: Namespace, name: str) -> TableVersion:
    """Give the table up, all its files written and kept; what it was at last. NoSuchTableError."""

    def attempt(_: bool) -> TableVersion:
        table = load_current_table(services, namespace, name)
        retry_transaction(lambda: _give_up(services, namespace, name, table))
        return table

    return retry_on_conflict(services, format_full_name(namespace, name), attempt)


def _give_up(services: Services, namespace: Namespace, name: str, table: TableVersion) -> None:
    with services.database.transaction() as cursor:
        schema_name = to_schema_name(namespace)
        check_unguarded(services, cursor, (namespace, name))
        if not lake_tables.drop_table(cursor, schema_name, name, purge=False, is_final=True, expected=table.row):
            raise NoSuchTableError(f"Table does not exist: {format_full_name(namespace, name)}")
        touched = build_touched(namespace, name, {"metadata-location": table.location})
        services.settle(cursor, [touched], [table.row.table_id])
