"""Registering a table from a metadata.json that another catalog wrote, and giving one up to another catalog.

Registration writes the whole history in one transaction; the files stay where they are. Main is realised in DuckLake;
older snapshots are Iceberg's alone. Where two tables then share files, both are guarded: no engine may delete any.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from duckicelake.bridge.constraints.properties import constraints_of
from duckicelake.bridge.delta.out_definition import check_sayable
from duckicelake.bridge.diff import change_set
from duckicelake.bridge.increments import Base
from duckicelake.bridge.table_properties import check_values
from duckicelake.catalog.access.ownership import check_table_places
from duckicelake.catalog.auditing import touched
from duckicelake.catalog.commits.attempts import TableCommit, change_over
from duckicelake.catalog.commits.committing import committed
from duckicelake.catalog.commits.overtaken import until_written
from duckicelake.catalog.foreign_tables import ForeignTable, read_foreign_table, read_metadata
from duckicelake.catalog.loads.cache import Materialized
from duckicelake.catalog.loads.loading import current_table
from duckicelake.catalog.services import Services
from duckicelake.errors import CommitStateUnknown, NoSuchTable
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.names import Namespace, full_name, namespace_of, schema_name
from duckicelake.iceberg.rest import CommitTableRequest
from duckicelake.iceberg.updates import SetProperties
from duckicelake.lake import reader
from duckicelake.lake import tables as lake_tables
from duckicelake.lake.changes import ChangeSet, Creation, Written
from duckicelake.lake.names import check_name_is_free
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lake.snapshots import lock, retrying
from duckicelake.lake.writing import side_tables, writer
from duckicelake.lake.writing.files import StaleBase

GUARD = {"gc.enabled": "false"}
"""What keeps engines from deleting files; purges then fail, too."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """A registration as changes: the new table, and the guards of live tables, `sharing`, that have files of it."""

    creation: ChangeSet
    guards: Sequence[ChangeSet]
    sharing: frozenset[tuple[str, str]]


def register_table(
    services: Services, namespace: Namespace, name: str, location: str, *, overwrite: bool
) -> Materialized:
    """Make a table of a metadata.json, with `overwrite` in the place of the one that has its name.

    Raises AlreadyExists, NoSuchNamespace, FileMissing, InvalidRequest for what isn't table metadata or may not be read.
    """
    if not overwrite:
        with services.database.reading() as cursor:
            check_name_is_free(cursor, schema_name(namespace), name)
    metadata = read_metadata(services, location)
    check_values(metadata.properties)
    check_sayable(metadata)
    constraints_of(metadata.properties, metadata.schema())
    check_table_places(services, metadata.location, metadata.properties, None, None)
    creation = Creation(schema_name(namespace), name, metadata.table_uuid)
    table = read_foreign_table(services, metadata, creation)

    def attempt(plan: _Plan) -> Written:
        with services.database.transaction() as cursor:
            lock(cursor)
            if _sharing(cursor, table, creation) != plan.sharing:
                raise StaleBase(f"other tables share files with {location} now")
            if overwrite:
                lake_tables.drop_table(cursor, creation.schema_name, name, purge=False)
            written = _write(cursor, plan, metadata, location)
            detail = _detail(plan, location, overwrite=overwrite)
            services.settle(cursor, [touched(namespace, name, detail)], [written.table_id])
        return written

    def planned(_: bool) -> Written:
        plan = _plan(services, table, creation)
        return retrying(lambda: attempt(plan))

    return _shown(services, namespace, name, until_written(services, full_name(namespace, name), planned))


def _shown(services: Services, namespace: Namespace, name: str, written: Written) -> Materialized:
    """The registered table; what has its name by now, if another one was registered over it in the meantime."""
    try:
        return committed(services, written)
    except CommitStateUnknown as error:
        if not isinstance(error.__cause__, NoSuchTable):
            raise
        try:
            return current_table(services, namespace, name).materialized
        except NoSuchTable:
            raise error from error.__cause__


def _write(cursor: Transaction, plan: _Plan, metadata: TableMetadata, location: str) -> Written:
    written = writer.write(cursor, plan.creation)
    table_id = written.table_id
    for guard in plan.guards:
        writer.write(cursor, guard)
    side_tables.forget_dropped(cursor, metadata.table_uuid, table_id)
    log = [(entry.metadata_file, entry.timestamp_ms) for entry in metadata.metadata_log]
    side_tables.record_registered(cursor, table_id, [*log, (location, metadata.last_updated_ms)])
    return written


def _detail(plan: _Plan, location: str, *, overwrite: bool) -> dict[str, object]:
    """What the audit trail says of it; `guarded` are other tables whose `gc.enabled` it turned off."""
    guarded = [f"{schema}.{name}" for schema, name in sorted(plan.sharing)]
    return {"from": location, "overwrite": overwrite} | ({"guarded": guarded} if guarded else {})


def _plan(services: Services, table: ForeignTable, creation: Creation) -> _Plan:
    with services.database.reading() as cursor:
        sharing = _sharing(cursor, table, creation)
    guards = (_guard(services, *each) for each in sorted(sharing))
    metadata = table.metadata
    if sharing:
        metadata = metadata.replaced(properties={**metadata.properties, **GUARD})
    return _Plan(
        creation=change_set(Base(), metadata, [table.increment], creation),
        guards=[guard for guard in guards if guard is not None],
        sharing=sharing,
    )


def _sharing(cursor: Transaction, table: ForeignTable, creation: Creation) -> frozenset[tuple[str, str]]:
    """Live tables, by schema and name, that have files of this one, but for the one in whose place it comes."""
    return reader.sharing(cursor, table.paths) - {(creation.schema_name, creation.table_name)}


def _guard(services: Services, schema: str, name: str) -> ChangeSet | None:
    """The change of a table that keeps its engines from deleting files; None if it is guarded, or gone."""
    update = SetProperties(updates=GUARD)
    commit = TableCommit(namespace_of(schema), name, CommitTableRequest(requirements=(), updates=(update,)))
    try:
        return change_over(services, commit, current_table(services, commit.namespace, name), 0)
    except NoSuchTable:
        return None


def unregister_table(services: Services, namespace: Namespace, name: str) -> Materialized:
    """Give the table up, all its files written and kept; what it was at last. NoSuchTable."""

    def attempt(_: bool) -> Materialized:
        table = current_table(services, namespace, name).materialized
        retrying(lambda: _give_up(services, namespace, name, table))
        return table

    return until_written(services, full_name(namespace, name), attempt)


def _give_up(services: Services, namespace: Namespace, name: str, table: Materialized) -> None:
    with services.database.transaction() as cursor:
        if not lake_tables.drop_table(cursor, schema_name(namespace), name, purge=False, expected=table.row):
            raise NoSuchTable(f"Table does not exist: {full_name(namespace, name)}")
        services.settle(cursor, [touched(namespace, name)], [table.row.table_id])
