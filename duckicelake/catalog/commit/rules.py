"""Check the rules of a commit: removed definitions, schemas of files, shared files, txns."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Final

from duckicelake.bridge.commit.increments import Increment
from duckicelake.bridge.file_schema import (
    StoredColumn,
    check_required_metrics,
    find_schema_problems,
)
from duckicelake.catalog.authz.locations import check_readable
from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.services import Services
from duckicelake.errors import (
    CommitFailedError,
    FileMissingError,
    InvalidRequestError,
    TxnAlreadyCommittedError,
)
from duckicelake.iceberg.identifiers import Namespace, to_schema_name
from duckicelake.iceberg.manifest.entry import FileContent
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.model import SpecModel
from duckicelake.iceberg.rest import CommitTableRequest
from duckicelake.iceberg.updates import AddSnapshot, TableUpdate
from duckicelake.lake.changes import ChangeSet
from duckicelake.lake.conflicts import StaleBaseError
from duckicelake.lake.side_tables import locations, reader
from duckicelake.lake.side_tables.idempotency import query_applied_txns, read_newest_txn
from duckicelake.lake.state import FileRow
from duckicelake.lake.txn import TxnApp, find_txns, parse_txns
from duckicelake.parquet.local_copies import open_local_copies
from duckicelake.parquet.schema import read_file_fields
from duckicelake.postgres.queries import Transaction
from duckicelake.properties import GC_ENABLED, is_gc_disabled, is_schema_enforced

_NEW_TABLE_ID: Final = -1
"""In place of the id of a table that the request creates."""


def check_removals(
    services: Services, base: TableVersion, target: TableMetadata, increments: Sequence[Increment]
) -> None:
    """Raise CommitFailedError if a schema or partition spec goes that a snapshot of `target` is read with."""
    schemas = {schema.schema_id for schema in base.metadata.schemas} - {schema.schema_id for schema in target.schemas}
    if schemas:
        _check("schema", schemas & {snapshot.schema_id for snapshot in target.snapshots})
    specs = {spec.spec_id for spec in base.metadata.partition_specs} - {spec.spec_id for spec in target.partition_specs}
    if specs:
        _check("partition spec", specs & _find_used_specs(services, base, target, increments))


def _find_used_specs(
    services: Services, base: TableVersion, target: TableMetadata, increments: Sequence[Increment]
) -> set[int]:
    old = {id_ for row in base.state.snapshots if target.snapshot(row.snapshot_id) for id_ in row.manifest_ids}
    new = {id_ for increment in increments for made in increment.snapshots for id_ in made.manifest_ids}
    with services.database.reading() as cursor:
        listed = reader.read_manifests(cursor, sorted(old | new)).values()
    own = (manifest for increment in increments for manifest in increment.side.manifests)
    return {manifest.spec_id for manifest in listed} | {manifest.spec_id for manifest in own}


def _check(what: str, used: Iterable[int | None]) -> None:
    for id_ in used:
        raise CommitFailedError(f"Cannot remove {what} {id_}: a snapshot of the table is read with it", "still-used")


def check_schema_of_files(services: Services, target: TableMetadata, increments: Sequence[Increment]) -> None:
    """Raise InvalidRequestError naming file and column for one that doesn't fit the table's schema."""
    strict = is_schema_enforced(target.properties)
    files = [file for increment in increments for file in increment.side.files if file.content == FileContent.DATA]
    if not files:
        return
    check_required_metrics(files, target.current_schema)
    for file in files if strict else ():
        _check_footer(services, target, file)


def _check_footer(services: Services, target: TableMetadata, file: FileRow) -> None:
    check_readable(services, file.path, target.location)
    try:
        columns = _read_columns(services, file.path)
    except FileMissingError:
        raise InvalidRequestError(f"{file.path} does not exist: upload it before committing") from None
    found = list(find_schema_problems(target.schema(), columns))
    if found:
        raise InvalidRequestError(f"{file.path} doesn't fit the table: {'; '.join(found)}. Nothing was written")


def _read_columns(services: Services, location: str) -> list[StoredColumn]:
    """Return the columns of a file outside of lists and maps."""
    with open_local_copies(services.store, [location]) as paths:
        if not paths[location].exists():
            raise FileMissingError(f"{location} does not exist")
        found = read_file_fields(paths[location], location)
    return [StoredColumn(field.names, field.field_id, field.type) for field in found]


def check_guard(services: Services, table_id: int, base: TableMetadata, target: TableMetadata) -> None:
    """Raise InvalidRequestError for a commit that removes the server's guard while another table needs the files."""
    if not is_gc_disabled(base.properties) or is_gc_disabled(target.properties):
        return
    with services.database.reading() as cursor:
        if _is_needed(cursor, table_id):
            raise InvalidRequestError(
                f"The table shares files with another, a clone or its source: it keeps {GC_ENABLED}=false until "
                "they share none, so that no engine deletes what the other needs"
            )


def removes_guard(base: TableMetadata, change: ChangeSet) -> bool:
    """Return whether the change takes a guard away, so that `check_unguarded` belongs into its transaction."""
    return is_gc_disabled(base.properties) and not is_gc_disabled(change.target.metadata["properties"])


def check_unguarded(cursor: Transaction, table_ids: Sequence[int]) -> None:
    """Raise StaleBaseError if a table whose guard goes was cloned since the check, which changes nothing of it."""
    for table_id in table_ids:
        if _is_needed(cursor, table_id):
            raise StaleBaseError(f"table {table_id} shares files by now")


def _is_needed(cursor: Transaction, table_id: int) -> bool:
    return locations.is_guarded_by_us(cursor, table_id) and locations.is_sharing(cursor, table_id)


def check_txns(services: Services, table_id: int | None, updates: Sequence[TableUpdate]) -> None:
    """Raise TxnAlreadyCommittedError if the table has a txn of the new snapshots; InvalidRequestError for half a txn.

    Several snapshots of the request may be one txn, as those of an overwrite by PyIceberg are. table_id: None of a
    table that the request creates.
    """
    txns = [txn for update in updates if isinstance(update, AddSnapshot) for txn in parse_txns(update.snapshot.summary)]
    if not txns:
        return
    apps = [txn.get_app(_NEW_TABLE_ID if table_id is None else table_id) for txn in txns]
    applied = {} if table_id is None else _read_applied_txns(services, set(apps))
    brought: dict[TxnApp, int] = {}
    for app, txn in zip(apps, txns, strict=True):
        if brought.get(app) == txn.version:
            continue
        latest = brought.get(app, applied.get(app))
        if latest is not None and txn.version <= latest:
            raise TxnAlreadyCommittedError(txn.describe_applied(latest))
        brought[app] = txn.version


def _read_applied_txns(services: Services, apps: Collection[TxnApp]) -> dict[TxnApp, int]:
    with services.database.reading() as cursor:
        return query_applied_txns(cursor, apps)()


def share_apps(requests: Sequence[CommitTableRequest]) -> bool:
    """Return whether several of the requests have txns of one app, so that one may repeat another."""
    apps = [
        {
            (txn.app_id, txn.is_run)
            for update in request.updates
            if isinstance(update, AddSnapshot)
            for txn in find_txns(update.snapshot.summary)
        }
        for request in requests
    ]
    return len(set().union(*apps)) < sum(map(len, apps))


class RunResult(SpecModel):
    """The last commit of a run to a table."""

    run_id: str
    epoch: int
    snapshot_id: int
    committed: datetime
    summary: dict[str, str]


def find_run(services: Services, namespace: Namespace, table: str, run_id: str) -> RunResult | None:
    """Find the last commit of a run to a table; None without any, or without such a table."""
    with services.database.reading() as cursor:
        _, found = read_newest_txn(cursor, to_schema_name(namespace), table, run_id, is_run=True)
    if found is None or found.iceberg_snapshot_id is None:
        return None
    return RunResult(
        run_id=run_id,
        epoch=found.version,
        snapshot_id=found.iceberg_snapshot_id,
        committed=found.applied,
        summary=dict(found.summary or {}),
    )
