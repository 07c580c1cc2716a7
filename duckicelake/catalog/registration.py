"""Registering a table from a metadata.json that another catalog wrote, and giving one up to another catalog.

Registration reads every manifest of every listed snapshot once and writes all of it in one transaction; the data files
stay where they are. Main is realised in DuckLake; older snapshots are Iceberg's alone.
"""

import gzip
import zlib
from collections.abc import Mapping, Sequence

import orjson

from duckicelake.bridge.diff import Base, Increment, NewList, change_set
from duckicelake.bridge.manifests import ListedManifest
from duckicelake.bridge.project import DUCKLAKE_ID
from duckicelake.bridge.registration import Registration
from duckicelake.bridge.uploads import check_manifests
from duckicelake.catalog.cache import Materialized
from duckicelake.catalog.commits import committed
from duckicelake.catalog.deletes import Targets, read_all_deletions
from duckicelake.catalog.ids import file_ids, manifest_ids
from duckicelake.catalog.loading import current_table
from duckicelake.catalog.moves import move_main
from duckicelake.catalog.services import Services
from duckicelake.catalog.uploads import read_list, read_manifest_at
from duckicelake.catalog.workspace import Workspace
from duckicelake.errors import FileMissing, InvalidRequest, NoSuchTable
from duckicelake.iceberg.manifest import ManifestFile
from duckicelake.iceberg.metadata import TableMetadata, parse_table_metadata
from duckicelake.iceberg.names import Namespace, schema_name
from duckicelake.lake import reader, side_tables, writer
from duckicelake.lake import tables as lake_tables
from duckicelake.lake.changes import ChangeSet, Creation, SideFiles
from duckicelake.lake.files import StaleBase
from duckicelake.lake.snapshots import retrying

GC_ENABLED = "gc.enabled"


def register_table(
    services: Services, namespace: Namespace, name: str, location: str, *, overwrite: bool
) -> Materialized:
    """Make a table of a metadata.json, with `overwrite` in the place of the one that has its name.

    Raises AlreadyExists, NoSuchNamespace, FileMissing, InvalidRequest for what isn't table metadata or may not be read.
    """
    if not overwrite:
        with services.database.reading() as cursor:
            lake_tables.check_name_is_free(cursor, schema_name(namespace), name)
    metadata = _read_metadata(services, location)
    services.policy.check_table_location(metadata.location)
    change = _change(services, metadata, Creation(schema_name(namespace), name, metadata.table_uuid))

    def attempt() -> int:
        with services.database.transaction() as cursor:
            if overwrite:
                lake_tables.drop_table(cursor, schema_name(namespace), name, purge=False)
            side_tables.forget_dropped(cursor, metadata.table_uuid)
            table_id = writer.write(cursor, change)
            side_tables.record_registered(cursor, table_id, location, metadata.last_updated_ms)
        return table_id

    return committed(services, retrying(attempt))


def unregister_table(services: Services, namespace: Namespace, name: str) -> Materialized:
    """Give the table up, all its files written and kept; what it was at last. NoSuchTable."""
    while True:
        table = current_table(services, namespace, name)
        try:
            retrying(lambda table=table: _give_up(services, namespace, name, table.materialized))  # type: ignore[misc]
        except StaleBase:
            continue
        return table.materialized


def _give_up(services: Services, namespace: Namespace, name: str, table: Materialized) -> None:
    with services.database.transaction() as cursor:
        if not lake_tables.drop_table(cursor, schema_name(namespace), name, purge=False, expected=table.row):
            raise NoSuchTable(f"Table does not exist: {'.'.join((*namespace, name))}")


def _read_metadata(services: Services, location: str) -> TableMetadata:
    services.policy.check_readable(location, services.policy.data_zone)
    try:
        data = services.store.read(location)
    except FileMissing:
        raise FileMissing(f"There is no metadata file at {location}") from None
    try:
        document = orjson.loads(gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data)
    except (orjson.JSONDecodeError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise InvalidRequest(f"{location} isn't a metadata.json: {error}") from error
    metadata = parse_table_metadata(document)
    others = {key: value for key, value in metadata.properties.items() if key != DUCKLAKE_ID}
    return metadata.replaced(location=metadata.location.rstrip("/"), properties=others)


def _change(services: Services, metadata: TableMetadata, creation: Creation) -> ChangeSet:
    """The creation of the table with all its snapshots, in one DuckLake snapshot."""
    registration = Registration(metadata, file_ids(services), manifest_ids(services))
    lines = {each.snapshot_id: read_list(services, metadata.location, each) for each in metadata.snapshots}
    _read_manifests(services, registration, lines)
    lists = registration.lists(lines)
    space = Workspace(services, creation)
    space.learn(registration.files, ())
    everything = tuple(registration.listed.values())
    targets = Targets(space, everything, frozenset(), registration.files)
    deletions = read_all_deletions(services, metadata, registration.files, targets)
    space.learn((), deletions)
    main = lists.get(metadata.current_snapshot_id, ()) if metadata.current_snapshot_id is not None else ()
    side = SideFiles(registration.files, tuple(deletions), (), tuple(registration.manifests))
    increment = Increment(_rows(metadata, lists), side, move_main(services, space, (), main))
    return change_set(Base(), _guarded(services, metadata, registration), [increment], creation)


def _rows(metadata: TableMetadata, lists: Mapping[int, Sequence[ListedManifest]]) -> tuple[NewList, ...]:
    return tuple(
        NewList(each, tuple(manifest.manifest_id for manifest in lists[each.snapshot_id]))
        for each in metadata.snapshots
    )


def _read_manifests(
    services: Services, registration: Registration, lines: Mapping[int, Sequence[ManifestFile]]
) -> None:
    metadata = registration.metadata
    specs = {spec.spec_id: spec for spec in metadata.partition_specs}
    for found in lines.values():
        new = {
            line.manifest_path: read_manifest_at(services, metadata.location, line)
            for line in found
            if line.manifest_path not in registration.listed
        }
        check_manifests(found, new, specs)
        for line in found:
            if line.manifest_path in new:
                registration.add(line, new[line.manifest_path])


def _guarded(services: Services, metadata: TableMetadata, registration: Registration) -> TableMetadata:
    """The metadata, its engines told not to delete files if another table here has some of them."""
    with services.database.reading() as cursor:
        shared = reader.shares_files(cursor, [file.path for file in registration.files])
    return metadata.replaced(properties={**metadata.properties, GC_ENABLED: "false"}) if shared else metadata
