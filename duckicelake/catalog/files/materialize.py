"""Makes the files exist that a table's metadata names: manifests, manifest lists and metadata.json (design D4).

Lazy and incremental: what is recorded as written is not encoded again. Where this comes after COMMIT a crash in between
loses nothing: the next load writes the same bytes. What comes before and isn't committed then is an orphan.
"""

from duckicelake.bridge.artifacts import metadata_artifact
from duckicelake.bridge.project import project
from duckicelake.bridge.succession import lake_after
from duckicelake.catalog.access.confinement import write_derived
from duckicelake.catalog.files.encoding import Prepared, encoded
from duckicelake.catalog.files.mending import forget_lost
from duckicelake.catalog.files.outdated import delete_outdated
from duckicelake.catalog.files.unwritten import next_unwritten, read_unwritten
from duckicelake.catalog.loads.cache import Materialized
from duckicelake.catalog.services import Services
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.lake.artifacts import WrittenVersion
from duckicelake.lake.changes import ChangeSet, Written
from duckicelake.lake.state import TableState


def materialize(services: Services, table_id: int) -> Materialized:
    """The newest version of the table, every file of it written; NoSuchTable if it has gone.

    Lost files are looked for if none of its versions is known: a process outlives no power loss.
    """
    cached = services.cache.get(table_id)
    table = _materialized(services, table_id, services.cache.version(table_id))
    if cached is not None:
        table.known.inherit(cached.materialized.known)
    return table


def _materialized(services: Services, table_id: int, before: tuple[TableState, TableMetadata] | None) -> Materialized:
    while True:
        unwritten = read_unwritten(services, table_id, before[0] if before else None)
        state = unwritten.state
        location = None if unwritten.snapshots else state.metadata_location
        if before is None and forget_lost(services, state):
            continue
        if location is not None:
            metadata = project(state, before)
            body = metadata_artifact(metadata, state.row.version).data
            return Materialized(state.row, state, metadata, location, body)
        prepared = encoded(unwritten, before)
        if write(services, prepared):
            return prepared.table


def materialize_next(
    services: Services, before: Materialized, change: ChangeSet, written: Written
) -> Materialized | None:
    """What `materialize` gives once this change of the version before is committed, but without reading all of it.

    None if somebody has changed the table since, or as for `prepare_next`.
    """
    prepared = prepare_next(services, before, change, written)
    return prepared.table if prepared is not None and write(services, prepared) else None


def prepare_next(services: Services, before: Materialized, change: ChangeSet, written: Written) -> Prepared | None:
    """The version that this change would make of the one before, if it were written so; its files are yet to be.

    None as for `next_unwritten`.
    """
    unwritten = next_unwritten(services, before.state, before.known, change, written)
    if unwritten is None:
        return None
    prepared = encoded(unwritten, (before.state, before.metadata))
    after = prepared.table
    after.known.inherit(before.known)
    if before.known.lake is not None:
        after.known.lake = lake_after(before.known.lake, change, after.metadata, after.row)
    return prepared


def write(services: Services, prepared: Prepared) -> bool:
    """Write the files and record them; whether the version is still the newest, so that its metadata.json counts."""
    write_derived(services, prepared.files)
    return record(services, prepared)


def record(services: Services, prepared: Prepared) -> bool:
    """Record the files, which are written; as `write` tells."""
    row = prepared.table.row
    is_newest = services.recorder.record(services.database, WrittenVersion(row, prepared.rows))
    if is_newest:
        delete_outdated(services, row)
    return is_newest
