"""One attempt at a commit: the request over the table as it is now, as the ChangeSet that would commit it.

Nothing is written but new files. The ChangeSet holds only for the base that it was computed from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from duckicelake.bridge.commit.change_set import build_change_set
from duckicelake.bridge.commit.increments import Base
from duckicelake.bridge.commit.renumber import (
    BuiltOn,
    GivenNumbers,
    NextNumbers,
    find_aliases,
    find_appends,
    rebase_appends,
    renumber_request,
)
from duckicelake.bridge.snapshots import drop_snapshots_over_limit, set_snapshot_times
from duckicelake.bridge.values.partitions import has_calendar_fields
from duckicelake.bridge.values.types import find_narrow_columns
from duckicelake.catalog.authz.locations import check_table_places
from duckicelake.catalog.commit.deletes import FoundRows
from duckicelake.catalog.commit.increments import CommitContext, build_increments
from duckicelake.catalog.commit.main_update import build_absorber
from duckicelake.catalog.commit.replaced_files import ReplacedFiles
from duckicelake.catalog.commit.rules import (
    check_guard,
    check_removals,
    check_schema_of_files,
    check_txns,
)
from duckicelake.catalog.commit.uploads import ReadAhead, check_statistics
from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.hooks import find_rules
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import damage_context
from duckicelake.catalog.table.row_target import check_not_followed
from duckicelake.features.registry import is_installed
from duckicelake.iceberg.identifiers import Namespace, format_full_name, to_schema_name
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, TableMetadata
from duckicelake.iceberg.metadata_builder import apply_updates, get_format_version_after
from duckicelake.iceberg.requirements import check_requirements
from duckicelake.iceberg.rest import CommitTableRequest
from duckicelake.iceberg.updates import TableUpdate
from duckicelake.lake.changes import ChangeSet, Creation
from duckicelake.lake.ducklake import native
from duckicelake.lake.ducklake.snapshots import read_lake_format
from duckicelake.lake.side_tables import reader
from duckicelake.properties import DUCKLAKE_ID, check_properties, get_absorbed_rows, may_rebase_appends


@dataclass(frozen=True, slots=True)
class TableCommit:
    """A request to change one table, or to create it.

    found: what its one new snapshot deletes from its parent, if the server found it, and all that it does. replaced:
    what that snapshot does to its parent's files, if the server rewrote them. ahead: what was read already of what its
    client uploaded.
    """

    namespace: Namespace
    name: str
    request: CommitTableRequest
    found: FoundRows | None = None
    replaced: ReplacedFiles | None = None
    ahead: ReadAhead = field(default_factory=ReadAhead)


def change_over(services: Services, commit: TableCommit, cached: TableVersion | None, next_id: int) -> ChangeSet | None:
    """Return the request as a change of the table, `cached`, or of nothing; None if it changes nothing.

    `next_id` is the DuckLake snapshot id that the change would get first. Raises CommitFailedError for a requirement
    that doesn't hold, InvalidRequestError, UnsupportedError.
    """
    request, built_on = _rebase(services, commit.request, cached)
    base, table_id = (None, None) if cached is None else (cached.metadata, cached.row.table_id)
    version = get_format_version_after(base, request.updates)
    upgrade = _upgrade(services, cached, version) if cached else _Upgrade()
    numbers = NextNumbers(next_id, services.snapshot_ids == "ducklake", version, upgrade.next_row_id)
    aliases = find_aliases(cached.state.snapshots) if cached and numbers.are_shared else {}
    numbered, given = renumber_request(request, base, aliases, numbers, built_on)
    check_requirements(numbered.requirements, base)
    check_txns(services, table_id, numbered.updates)
    now = services.clock()
    target = apply_updates(base, set_snapshot_times(numbered.updates, base, now), now, given.ends())
    if cached is None or base is None or table_id is None:
        return creation_of(services, commit.namespace, commit.name, target, numbered.updates, given)
    target = _with_row_ids(base, target, upgrade)
    if target is base or _changes_only_ours(base, target):
        return None
    check_properties(target.properties, base.properties)
    absorbs = get_absorbed_rows(target.properties) and find_appends(request)
    rules = find_rules(commit.namespace, commit.name, target, base)
    for rule in rules:
        rule.check_definition(target, base)
    if not is_installed("delta"):  # which else refuses the commit, as it is written
        with services.database.reading() as cursor:
            check_not_followed(cursor, format_full_name(commit.namespace, commit.name), table_id)
    target = drop_snapshots_over_limit(target)
    check_table_places(services, target.location, target.properties, base, table_id)
    check_guard(services, table_id, base, target)
    check_statistics(services, table_id, base, target)
    known = cached.known
    absorb = build_absorber(services, commit.namespace, commit.name, target) if absorbs else None
    brought = CommitContext(absorb=absorb, found=commit.found, replaced=commit.replaced, ahead=commit.ahead)
    target, new = build_increments(
        services, cached.state, target, numbered.updates, given, known=known, brought=brought
    )
    check_removals(services, cached, target, new)
    check_schema_of_files(services, target, new)
    for rule in rules:
        target, new = rule.check_commit(services, cached, target, new)
    lake = base_of(services, cached, target)
    return build_change_set(replace(lake, row_ids=upgrade.given, has_new_values=commit.replaced is None), target, new)


def creation_of(
    services: Services,
    namespace: Namespace,
    name: str,
    target: TableMetadata,
    updates: Sequence[TableUpdate] = (),
    given: GivenNumbers | None = None,
) -> ChangeSet:
    """Return the creation of a table with this metadata; InvalidRequestError, UnsupportedError."""
    check_properties(target.properties)
    rules = find_rules(namespace, name, target, None)
    for rule in rules:
        rule.check_definition(target, None)
    check_table_places(services, target.location, target.properties, None, None)
    check_statistics(services, None, None, target)
    creation = Creation(to_schema_name(namespace), name, target.table_uuid)
    target, new = build_increments(services, None, target, updates, given or GivenNumbers(), creation)
    check_schema_of_files(services, target, new)
    for rule in rules:
        target, new = rule.check_commit(services, None, target, new)
    return build_change_set(new_base(services, target), target, new, creation)


def new_base(services: Services, target: TableMetadata) -> Base:
    """Return DuckLake's side of a table to be created."""
    return Base(has_epoch_keys=_has_epoch_keys(services, target))


def _has_epoch_keys(services: Services, target: TableMetadata) -> bool:
    """Return whether the lake takes `epoch_*` keys, if the table needs any; its format may change while we serve."""
    if not has_calendar_fields(target.spec()):
        return False
    with services.database.reading() as cursor:
        return read_lake_format(cursor).has_epoch_keys


def _rebase(
    services: Services, request: CommitTableRequest, cached: TableVersion | None
) -> tuple[CommitTableRequest, Mapping[int, BuiltOn]]:
    """Put a request on top of what main has become, where the table wants that.

    Returns it with what its appends were written for, by snapshot id.
    """
    if cached is None or not may_rebase_appends(cached.metadata.properties):
        return request, {}
    aliases = find_aliases(cached.state.snapshots)
    rebased, built_on = rebase_appends(request, cached.metadata, aliases)
    if built_on:
        services.meter.count_retry("append_rebase")
    return rebased, built_on


@dataclass(frozen=True, slots=True)
class _Upgrade:
    """What becoming version 3 means for row ids: the next one, and (file id, first row id) of files that have none."""

    next_row_id: int = 0
    given: tuple[tuple[int, int], ...] = ()


def _upgrade(services: Services, cached: TableVersion, version: int) -> _Upgrade:
    """Return what the commit's upgrade to version 3 means, if it is one. version: the table's format version then."""
    if not cached.metadata.format_version < ROW_LINEAGE_VERSION <= version:
        return _Upgrade()
    table_id = cached.row.table_id
    with damage_context(services, table_id), services.database.reading() as cursor:
        stats = native.read_table_stats(cursor, table_id)
        unnumbered = reader.read_files_without_row_ids(cursor, table_id)
    next_row_id, given = stats[1] if stats else 0, []
    for file_id, record_count in unnumbered:
        given.append((file_id, next_row_id))
        next_row_id += record_count
    return _Upgrade(next_row_id, tuple(given))


def _with_row_ids(base: TableMetadata, target: TableMetadata, upgrade: _Upgrade) -> TableMetadata:
    """Let a table that becomes version 3 go on with DuckLake's row ids, which its rows have already."""
    if target.next_row_id is None or base.next_row_id is not None:
        return target
    return target.replace_fields(next_row_id=max(target.next_row_id, upgrade.next_row_id))


def _changes_only_ours(base: TableMetadata, target: TableMetadata) -> bool:
    """Return whether the request changes nothing but the property that the server says itself."""
    ours = {**target.properties, DUCKLAKE_ID: base.properties[DUCKLAKE_ID]}
    return (
        ours == base.properties
        and target.snapshots == base.snapshots
        and target.replace_fields(properties=base.properties, last_updated_ms=base.last_updated_ms)
        == base.replace_fields()
    )


def base_of(services: Services, cached: TableVersion, target: TableMetadata) -> Base:
    """Return DuckLake's side of the table, which is to become `target`; it is read unless known.

    It changes with `caught_up_to`, if not with the version.
    """
    known, current = cached.known, cached.state.current()
    lake = known.lake
    if lake is None or lake.caught_up_to != cached.row.caught_up_to:
        lake = known.lake = _read_base(services, cached)
    listed = known.manifests_of(services.database, current.manifest_ids if current else ()).values()
    holds_files = any(m.content == 0 and m.live_files for m in listed)
    return replace(lake, holds_files=holds_files, has_epoch_keys=_has_epoch_keys(services, target))


def _read_base(services: Services, cached: TableVersion) -> Base:
    row = cached.row
    with damage_context(services, row.table_id), services.database.reading() as cursor:
        definition = native.read_definition(cursor, row.table_id, cached.lake_snapshot)
        stats, column_stats = native.read_all_stats(cursor, row.table_id)
        return Base(
            table_id=row.table_id,
            version=row.version,
            caught_up_to=row.caught_up_to,
            metadata=cached.metadata,
            declared=definition.partition_keys if definition else (),
            narrow=find_narrow_columns(definition.columns, cached.metadata.schema()) if definition else {},
            stats=stats,
            column_stats=column_stats,
        )
