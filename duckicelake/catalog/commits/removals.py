"""What a commit takes out of a table's definition, against what the table's history still needs of it.

Clients find out by themselves which schemas and partition specs nobody uses any more, and send only the result. A
snapshot that joined meanwhile, perhaps DuckDB's, may need one again: then the client must look again.
"""

from collections.abc import Iterable, Sequence

from duckicelake.bridge.increments import Increment
from duckicelake.catalog.loads.cache import Materialized
from duckicelake.catalog.services import Services
from duckicelake.errors import CommitFailed
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.lake import reader


def check_removals(
    services: Services, base: Materialized, target: TableMetadata, increments: Sequence[Increment]
) -> None:
    """CommitFailed if a schema or partition spec goes that a snapshot of `target` is read with."""
    schemas = {each.schema_id for each in base.metadata.schemas} - {each.schema_id for each in target.schemas}
    if schemas:
        _check("schema", schemas & {snapshot.schema_id for snapshot in target.snapshots})
    specs = {each.spec_id for each in base.metadata.partition_specs} - {each.spec_id for each in target.partition_specs}
    if specs:
        _check("partition spec", specs & _used_specs(services, base, target, increments))


def _used_specs(
    services: Services, base: Materialized, target: TableMetadata, increments: Sequence[Increment]
) -> set[int]:
    old = {id_ for row in base.state.snapshots if target.snapshot(row.snapshot_id) for id_ in row.manifest_ids}
    new = {id_ for increment in increments for made in increment.snapshots for id_ in made.manifest_ids}
    with services.database.reading() as cursor:
        listed = reader.manifests(cursor, sorted(old | new)).values()
    own = (manifest for increment in increments for manifest in increment.side.manifests)
    return {manifest.spec_id for manifest in listed} | {manifest.spec_id for manifest in own}


def _check(what: str, used: Iterable[int | None]) -> None:
    for id_ in used:
        raise CommitFailed(f"Cannot remove {what} {id_}: a snapshot of the table is read with it", "still-used")
