"""Explain what a filter would read of a table, from the catalog's rows alone; no data file or manifest is opened."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from duckicelake.bridge.scan.explanation import (
    FileTotals,
    PartitionCost,
    ScanCosts,
    explain_scan,
    parse_condition,
)
from duckicelake.bridge.scan.filters import ScanFilter, bind_scan_filter, list_tests
from duckicelake.bridge.scan.manifests import BoundedBlock, find_matches
from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.scan_manifests import ManifestScanner, SnapshotGoneError
from duckicelake.catalog.scan_pages import cut_blocks
from duckicelake.catalog.table.load import load_current_table
from duckicelake.catalog.table.time_travel import resolve_snapshot
from duckicelake.errors import InvalidRequestError, UnavailableError
from duckicelake.iceberg.expressions import Predicate, parse_predicate
from duckicelake.iceberg.identifiers import Namespace, format_full_name
from duckicelake.iceberg.manifest.entry import ManifestContent
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.lake.side_tables import scan
from duckicelake.lake.state import SnapshotRow

__all__ = ["ExplainQuery", "FileTotals", "PartitionCost", "ScanExplanation", "explain_table_scan", "is_decided"]


MAX_EXPLAINED_FILES: Final = 5_000_000
"""Of a snapshot. A million takes 0.4 s of CPU and 150 MB, all of it at once."""


class ScanExplanation(ScanCosts):
    """What a scan would read of a snapshot.

    Attributes:
        snapshot_id: None if the table has no snapshot.
        ignored: Conditions that prune nothing, as no statistics decide them.
        delete_files: Delete files that are read with the data files.

    """

    table: str
    snapshot_id: int | None = None
    ignored: tuple[str, ...] = ()
    delete_files: int = 0


@dataclass(frozen=True, slots=True)
class ExplainQuery:
    """A scan to explain.

    Attributes:
        where: A condition in SQL; None for a filter in JSON.
        filter: An expression of Iceberg's specification.
        at: A snapshot's id, DuckLake's number, a time, a branch or tag; None for main's newest snapshot.

    """

    where: str | None = None
    filter: Any = True
    at: str | None = None


def explain_table_scan(services: Services, namespace: Namespace, name: str, query: ExplainQuery) -> ScanExplanation:
    """Explain what a scan would read.

    Raises:
        NoSuchTableError, NotFoundError, ExpiredError: for a table or snapshot that isn't there.
        InvalidRequestError: for a condition that isn't one of the table's.

    """
    table = load_current_table(services, namespace, name)
    snapshot = _find_snapshot(services, table, query.at)
    schema = _find_schema(table, snapshot if query.at is not None else None)
    predicate, ignored = _parse_filter(query, schema)
    filters = bind_scan_filter(predicate, [schema], is_case_sensitive=query.where is None)
    called = format_full_name(namespace, name)
    if snapshot is None:
        return ScanExplanation(table=called, ignored=ignored)
    try:
        blocks, delete_manifests = _read_blocks(services, table, snapshot, filters)
    except SnapshotGoneError as error:
        raise UnavailableError("The snapshot has expired while the scan was explained; explain again") from error
    costs = explain_scan(blocks, filters, schema.full_names())
    if ignored:
        costs = costs.replace_fields(whole=ScanCosts().whole)  # a condition that isn't decided may leave rows out
    return ScanExplanation(
        table=called,
        snapshot_id=snapshot.snapshot_id,
        ignored=ignored,
        delete_files=_count_delete_files(services, table, blocks, filters, delete_manifests),
        **dict(costs),
    )


def parse_file_condition(condition: str, schema: Schema) -> Predicate:
    """Parse a condition in SQL that statistics of files decide; InvalidRequestError if they don't decide all of it."""
    if not condition.strip():
        raise InvalidRequestError("The condition is empty: leave it out for all files")
    predicate, ignored = parse_condition(condition, schema)
    if ignored:
        raise InvalidRequestError(f"No statistics decide {ignored[0]}: compare columns with constants")
    return predicate


def find_matching_files(services: Services, table: TableVersion, condition: str) -> frozenset[int]:
    """Find the live data files of main that may hold rows of a condition in SQL. Raises as `parse_file_condition`."""
    current, schema = table.state.current(), table.metadata.schema()
    filters = bind_scan_filter(parse_file_condition(condition, schema), [schema], is_case_sensitive=False)
    if current is None:
        return frozenset()
    try:
        blocks, _ = _read_blocks(services, table, current, filters)
    except SnapshotGoneError as error:
        raise UnavailableError("The snapshot has expired while its files were looked at; try again") from error
    return frozenset(
        file_id
        for bounded in blocks
        for file_id in bounded.block.files.file_ids[find_matches(bounded, filters).places].tolist()
    )


def is_decided(condition: str, schema: Schema) -> bool:
    """Return whether statistics decide all of a condition in SQL."""
    try:
        return not parse_condition(condition, schema)[1]
    except InvalidRequestError:
        return False


def _find_snapshot(services: Services, table: TableVersion, at: str | None) -> SnapshotRow | None:
    if at is None:
        return table.state.current()
    wanted = resolve_snapshot(services, table, at).snapshot_id
    return next(row for row in table.state.snapshots if row.snapshot_id == wanted)


def _find_schema(table: TableVersion, snapshot: SnapshotRow | None) -> Schema:
    """Return the schema whose names a condition has: the snapshot's if that was asked for, else the table's."""
    wanted = None if snapshot is None else snapshot.schema_id
    found = (schema for schema in table.metadata.schemas if schema.schema_id == wanted)
    return next(found, table.metadata.schema())


def _parse_filter(query: ExplainQuery, schema: Schema) -> tuple[Predicate, tuple[str, ...]]:
    if query.where is None:
        return parse_predicate(query.filter, takes_transforms=True), ()
    if not query.where.strip():
        raise InvalidRequestError("The condition is empty: leave it out to explain a scan of all rows")
    return parse_condition(query.where, schema)


def _read_blocks(
    services: Services, table: TableVersion, snapshot: SnapshotRow, filters: Sequence[ScanFilter]
) -> tuple[list[BoundedBlock], list[int]]:
    """Return the blocks of the snapshot's data manifests, and the ids of its delete manifests."""
    rows = table.known.manifests_of(services.database, snapshot.manifest_ids).values()
    data = [row for row in rows if row.content == ManifestContent.DATA and row.live_files]
    files = sum(row.live_files for row in data)
    if files > MAX_EXPLAINED_FILES:
        raise InvalidRequestError(
            f"Scans of up to {MAX_EXPLAINED_FILES:,} files are explained, and this one is of {files:,}: plan it instead"
        )
    columns = _list_columns(filters)
    scanner = ManifestScanner(services.scans, services.database, table.metadata)
    blocks = [bounded for some in cut_blocks(data) for bounded in scanner.read(some, columns)]
    return blocks, [row.manifest_id for row in rows if row.content != ManifestContent.DATA]


def _list_columns(filters: Sequence[ScanFilter]) -> dict[int, PrimitiveType]:
    tests = [test for scan_filter in filters for test in list_tests(scan_filter)]
    return {test.field_id: test.type for test in tests if test.transform is None}


def _count_delete_files(
    services: Services,
    table: TableVersion,
    blocks: Sequence[BoundedBlock],
    filters: Sequence[ScanFilter],
    delete_manifests: Sequence[int],
) -> int:
    if not delete_manifests:
        return 0
    file_ids = [
        file_id
        for bounded in blocks
        for file_id in bounded.block.files.file_ids[find_matches(bounded, filters).places].tolist()
    ]
    with services.database.statement(only_reads=True) as cursor:
        deletes = scan.read_delete_files(cursor, table.row.table_id, file_ids, delete_manifests)
    return len({id_ for ids in deletes.values() for id_ in ids})
