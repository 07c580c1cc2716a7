"""Rules that a commit must obey: removed definitions, file schemas, shared files."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import duckdb

from duckicelake.bridge.commit.increments import Increment
from duckicelake.bridge.file_schema import (
    StoredColumn,
    check_required_metrics,
    find_schema_problems,
    is_schema_enforced,
)
from duckicelake.catalog.authz.confinement import check_readable
from duckicelake.catalog.context.cache import Materialized
from duckicelake.catalog.context.services import Services
from duckicelake.errors import CommitFailed, FileMissing, InvalidRequest
from duckicelake.iceberg.manifest.entry import FileContent
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.lake.additions import NewFile
from duckicelake.lake.changes import ChangeSet
from duckicelake.lake.ducklake.data_files import StaleBaseError
from duckicelake.lake.side_tables import locations, reader
from duckicelake.parquet.footer import check_footer
from duckicelake.parquet.local_copies import open_local_copies
from duckicelake.parquet.schema import read_fields
from duckicelake.postgres.database import Transaction

GUARD_PROPERTY: Final = "gc.enabled"
GUARD: Final = {GUARD_PROPERTY: "false"}
"""What a table says so that engines delete no file of its."""


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
        listed = reader.read_manifests(cursor, sorted(old | new)).values()
    own = (manifest for increment in increments for manifest in increment.side.manifests)
    return {manifest.spec_id for manifest in listed} | {manifest.spec_id for manifest in own}


def _check(what: str, used: Iterable[int | None]) -> None:
    for id_ in used:
        raise CommitFailed(f"Cannot remove {what} {id_}: a snapshot of the table is read with it", "still-used")


def check_schema_of_files(services: Services, target: TableMetadata, increments: Sequence[Increment]) -> None:
    """InvalidRequest naming file and column for one that doesn't fit the table's schema."""
    strict = is_schema_enforced(target.properties)
    files = [file for each in increments for file in each.side.files if file.content == FileContent.DATA]
    if not files:
        return
    check_required_metrics(files, target.schema())
    for file in files if strict else ():
        _check_footer(services, target, file)


def _check_footer(services: Services, target: TableMetadata, file: NewFile) -> None:
    check_readable(services, file.path, target.location)
    try:
        columns = _columns(services, file.path)
    except FileMissing:
        raise InvalidRequest(f"{file.path} does not exist: upload it before committing") from None
    except duckdb.Error as error:
        raise InvalidRequest(f"{file.path} can't be read as Parquet: {error}") from error
    found = list(find_schema_problems(target.schema(), columns))
    if found:
        raise InvalidRequest(f"{file.path} doesn't fit the table: {'; '.join(found)}. Nothing was written")


def _columns(services: Services, location: str) -> list[StoredColumn]:
    """The columns of a file outside of lists and maps."""
    with open_local_copies(services.store, [location]) as paths:
        if not paths[location].exists():
            raise FileMissing(f"{location} does not exist")
        check_footer(paths[location], location)
        with duckdb.connect(config={"threads": 1}) as connection:
            found = read_fields(connection, paths[location]).fields
    return [StoredColumn(field.names, field.field_id, field.type) for field in found]


def is_guarded(metadata: TableMetadata) -> bool:
    """Whether the table says that its files may not be deleted."""
    return _is_guard(metadata.properties)


def _is_guard(properties: Mapping[str, str]) -> bool:
    return properties.get(GUARD_PROPERTY, "").lower() == "false"


def check_guard(services: Services, table_id: int, base: TableMetadata, target: TableMetadata) -> None:
    """InvalidRequest for a commit that takes away the server's guard of a table while another needs its files."""
    if not is_guarded(base) or is_guarded(target):
        return
    with services.database.reading() as cursor:
        if _is_needed(cursor, table_id):
            raise InvalidRequest(
                f"The table shares files with another, a clone or its source: it keeps {GUARD_PROPERTY}=false until "
                "they share none, so that no engine deletes what the other needs"
            )


def removes_guard(base: TableMetadata, change: ChangeSet) -> bool:
    """Whether the change takes a guard away, so that `check_unguarded` belongs into its transaction."""
    return is_guarded(base) and not _is_guard(change.target.metadata["properties"])


def check_unguarded(cursor: Transaction, table_ids: Sequence[int]) -> None:
    """StaleBase if a table whose guard goes was cloned since that was checked, which changes nothing of the table."""
    for table_id in table_ids:
        if _is_needed(cursor, table_id):
            raise StaleBaseError(f"table {table_id} shares files by now")


def _is_needed(cursor: Transaction, table_id: int) -> bool:
    return locations.is_guarded_by_us(cursor, table_id) and locations.is_sharing(cursor, table_id)
