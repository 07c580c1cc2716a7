"""Check the rules of a commit: removed definitions, schemas of files, shared files, versions of batches and runs."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby

import duckdb

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
    UnprocessableError,
)
from duckicelake.iceberg.identifiers import Namespace, to_schema_name
from duckicelake.iceberg.manifest.entry import FileContent
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.model import SpecModel
from duckicelake.iceberg.rest import CommitTableRequest
from duckicelake.iceberg.updates import AddSnapshot, TableUpdate
from duckicelake.lake.changes import ChangeSet
from duckicelake.lake.conflicts import StaleBaseError
from duckicelake.lake.side_tables import idempotency, locations, reader
from duckicelake.lake.side_tables.idempotency import (
    MAX_APP_ID_CHARS,
    RUN_EPOCH_KEY,
    RUN_ID_KEY,
    TXN_APP_ID_KEY,
    TXN_VERSION_KEY,
    TxnApp,
    parse_epoch,
    parse_txn_version,
)
from duckicelake.lake.state import FileRow
from duckicelake.parquet.footer import check_footer
from duckicelake.parquet.local_copies import open_local_copies
from duckicelake.parquet.schema import read_fields
from duckicelake.postgres.queries import Transaction
from duckicelake.properties import GC_ENABLED, is_gc_disabled, is_schema_enforced


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
    check_required_metrics(files, target.schema())
    for file in files if strict else ():
        _check_footer(services, target, file)


def _check_footer(services: Services, target: TableMetadata, file: FileRow) -> None:
    check_readable(services, file.path, target.location)
    try:
        columns = _read_columns(services, file.path)
    except FileMissingError:
        raise InvalidRequestError(f"{file.path} does not exist: upload it before committing") from None
    except duckdb.Error as error:
        raise InvalidRequestError(f"{file.path} can't be read as Parquet: {error}") from error
    found = list(find_schema_problems(target.schema(), columns))
    if found:
        raise InvalidRequestError(f"{file.path} doesn't fit the table: {'; '.join(found)}. Nothing was written")


def _read_columns(services: Services, location: str) -> list[StoredColumn]:
    """Return the columns of a file outside of lists and maps."""
    with open_local_copies(services.store, [location]) as paths:
        if not paths[location].exists():
            raise FileMissingError(f"{location} does not exist")
        check_footer(paths[location], location)
        with duckdb.connect(config={"threads": 1}) as connection:
            found = read_fields(connection, paths[location]).fields
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


ProducerBatch = tuple[str, int]
"""An app id with the version of one of its batches."""


def check_batches(services: Services, table_id: int | None, updates: Sequence[TableUpdate]) -> None:
    """Raise TxnAlreadyCommittedError if the table has one of these batches, or a later one of the same app id.

    table_id: None of a table that is created. A batch may be several snapshots of the request, as an overwrite of
    PyIceberg is.
    """
    batches = [batch for batch, _ in groupby(_iterate_batches(updates))]
    if not batches:
        return
    last: dict[str, int] = {} if table_id is None else _read_last_versions(services, table_id, batches)
    for app_id, version in batches:
        known = last.get(app_id)
        if known is not None and version <= known:
            raise TxnAlreadyCommittedError(
                f"Already applied: the last batch of {app_id} in this table is version {known}, so version {version} "
                "is there, too. Nothing was written, and nothing is left to do for it"
            )
        last[app_id] = version


def share_apps(requests: Sequence[CommitTableRequest]) -> bool:
    """Return whether several of the requests have batches of one app id, so that one may be another's repetition."""
    app_ids = [{app_id for app_id, _ in _iterate_batches(request.updates)} for request in requests]
    return len(set().union(*app_ids)) < sum(map(len, app_ids))


def _read_last_versions(services: Services, table_id: int, batches: Sequence[ProducerBatch]) -> dict[str, int]:
    asked = [TxnApp(table_id, app_id) for app_id in dict.fromkeys(app_id for app_id, _ in batches)]
    with services.database.reading() as cursor:
        found = idempotency.query_applied_txns(cursor, asked)()
    return {producer.app_id: version for producer, version in found.items()}


def _iterate_batches(updates: Sequence[TableUpdate]) -> Iterator[ProducerBatch]:
    for update in updates:
        if isinstance(update, AddSnapshot) and not update.snapshot.summary.keys().isdisjoint(
            (TXN_APP_ID_KEY, TXN_VERSION_KEY)
        ):
            yield _parse_batch(update.snapshot.summary)


def _parse_batch(summary: dict[str, str]) -> ProducerBatch:
    app_id, version = summary.get(TXN_APP_ID_KEY, ""), parse_txn_version(summary.get(TXN_VERSION_KEY, ""))
    if not app_id or len(app_id) > MAX_APP_ID_CHARS or "\0" in app_id:
        raise InvalidRequestError(
            f"{TXN_APP_ID_KEY}, beside {TXN_VERSION_KEY}, takes 1 to {MAX_APP_ID_CHARS} letters, none of them NUL"
        )
    if version is None:
        raise InvalidRequestError(
            f"{TXN_VERSION_KEY} is a whole number beside {TXN_APP_ID_KEY}, not {summary.get(TXN_VERSION_KEY)!r}"
        )
    return app_id, version


class RunResult(SpecModel):
    """What a run committed to a table last."""

    run_id: str
    epoch: int
    snapshot_id: int
    committed: datetime
    summary: dict[str, str]


def check_runs(services: Services, table_id: int | None, updates: Sequence[TableUpdate]) -> None:
    """Raise UnprocessableError if the table has one of these runs already; table_id: None of one that is created."""
    summaries = [update.snapshot.summary for update in updates if isinstance(update, AddSnapshot)]
    stamped = [_parse_run(summary) for summary in summaries if RUN_EPOCH_KEY in summary]
    if not stamped:
        return
    if len({run_id for run_id, _ in stamped}) < len(stamped):
        raise UnprocessableError("Two snapshots of one request are of the same run")
    if table_id is None:
        return
    with services.database.reading() as cursor:
        for run_id, epoch in stamped:
            found = idempotency.read_newest_run(cursor, table_id, run_id)
            if found is not None and found.epoch >= epoch:
                raise UnprocessableError(
                    f"Epoch {epoch} of run {run_id} was committed before: epoch {found.epoch} is snapshot "
                    f"{found.snapshot_id}. Nothing is left to do for it"
                )


def find_run(services: Services, namespace: Namespace, table: str, run_id: str) -> RunResult | None:
    """Return what the run committed last to the table, None if nothing, or if there is no such table."""
    with services.database.reading() as cursor:
        found = idempotency.read_newest_run_by_name(cursor, to_schema_name(namespace), table, run_id)
    if found is None:
        return None
    summary = dict(found.summary)
    return RunResult(
        run_id=run_id, epoch=found.epoch, snapshot_id=found.snapshot_id, committed=found.committed, summary=summary
    )


def _parse_run(summary: dict[str, str]) -> tuple[str, int]:
    run_id, epoch = summary.get(RUN_ID_KEY), parse_epoch(summary)
    if not run_id or epoch is None:
        raise InvalidRequestError(
            f"{RUN_EPOCH_KEY} is a whole number beside {RUN_ID_KEY}, not {summary[RUN_EPOCH_KEY]!r}"
        )
    return run_id, epoch
