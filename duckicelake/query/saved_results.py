"""Save the result of a query as a table: run as queries are, written as Parquet, put into the lake by one commit."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Any, Final

from anyio import from_thread
from anyio.to_thread import run_sync

from duckicelake.catalog import tables
from duckicelake.catalog.commit.apply import TableCommit
from duckicelake.catalog.commit.run import commit_all, render_version
from duckicelake.catalog.context.audit_notes import build_touched
from duckicelake.catalog.context.caller import SERVER_CALLER
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.rows.snapshot_upload import SnapshotUpload
from duckicelake.catalog.table.reclaim import discard_on_error
from duckicelake.errors import CatalogError
from duckicelake.iceberg.identifiers import Namespace, format_full_name, to_schema_name
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.model import Long, SpecModel
from duckicelake.iceberg.partition import UnboundPartitionSpec
from duckicelake.iceberg.requirements import AssertCreate
from duckicelake.iceberg.rest import CommitTableRequest, CreateTableRequest
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.snapshot import Snapshot
from duckicelake.iceberg.updates import (
    AddSchema,
    AddSnapshot,
    AddSortOrder,
    AddSpec,
    AssignUuid,
    SetCurrentSchema,
    SetDefaultSortOrder,
    SetDefaultSpec,
    SetLocation,
    SetProperties,
    SetSnapshotRef,
    TableUpdate,
    UpgradeFormatVersion,
)
from duckicelake.lake.changes import WrittenCommit
from duckicelake.lake.ducklake.schemas import check_name_free
from duckicelake.postgres.queries import Transaction
from duckicelake.properties import QUERY_SOURCES
from duckicelake.query.contents import HOLE, ContentProcess, ContentUpload, build_content_order, write_select
from duckicelake.query.plan import TableRead
from duckicelake.query.processes import OpenOrder
from duckicelake.query.queries import QueryOrder, TableResolver, check_length, check_query
from duckicelake.query.reach import load_queried_table
from duckicelake.query.registry import run_reported
from duckicelake.query.service import find_limits, find_processes
from duckicelake.query.statement import ResolvedSnapshot
from duckicelake.sql_dialects.placeholders import DUCKDB, format_type_name

SOURCE_SNAPSHOT: Final = "ducklake.source-snapshot"
"""The name of DuckLake's snapshot at which all sources were read."""


@dataclass(frozen=True, slots=True)
class SaveOrder:
    """A table to make of a query's result. properties: of the table. is_dry_run: say what it would be, make nothing."""

    query: QueryOrder
    namespace: Namespace
    name: str
    properties: dict[str, str]
    is_dry_run: bool = False


class SavedColumn(SpecModel):
    """A column of the table. type: in DuckDB's spelling."""

    name: str
    type: str


class SavedResult(SpecModel):
    """The table that was made of a query's result, or with `dry-run` would be.

    Attributes:
        sources: full names of the tables that the query reads, also by views.
        ducklake_snapshot_id: at which they are read, unless `at` named a branch or tag.
        table_uuid, snapshot_id, rows, files, bytes, seconds: left out by a dry run.

    """

    namespace: tuple[str, ...]
    name: str
    columns: tuple[SavedColumn, ...]
    sources: tuple[str, ...]
    ducklake_snapshot_id: Long
    table_uuid: str | None = None
    snapshot_id: Long | None = None
    rows: Long | None = None
    files: int | None = None
    bytes: Long | None = None
    seconds: float | None = None


def save_result(services: Services, order: SaveOrder) -> SavedResult:
    """Make a table of a query's result, in one commit. Called in a thread of the server's event loop.

    Raises:
        AlreadyExistsError, NoSuchNamespaceError.
        NoSuchTableError, ForbiddenError: of a source.
        InvalidRequestError: the statement isn't one SELECT, fails, takes too much, or has columns that no table keeps.
        ConflictError: the query was cancelled.
        TooManyRequestsError, UnavailableError, UnsupportedError.

    """
    check_length(order.query.sql)
    if order.is_dry_run:
        return from_thread.run(_run, replace(services, once=None), order)
    services.database.gate.require_open()
    return services.run_once(lambda: from_thread.run(_run, services, order), SavedResult.model_validate)


async def _run(services: Services, order: SaveOrder) -> SavedResult:
    """Run the query in a process that serves nothing else, whose folder gets the files."""
    await run_sync(_check_free, services, order)
    processes, query = find_processes(find_limits(services)), order.query
    is_restricted = services.caller.principal.has_restrictions
    opening = await run_sync(partial(_build_opening, services, order, is_restricted=is_restricted))
    async with processes.take(opening) as turn, run_reported(services, query.query_id, query.sql, turn):
        try:
            resolver, message = await turn.process.work(partial(check_query, services, query, turn.process))
            if resolver.is_restricted and not is_restricted:
                turn.process.kill()
                await processes.change(
                    turn, await run_sync(partial(_build_opening, services, order, is_restricted=True))
                )
            limits = replace(processes.limits, seconds=query.seconds)
            content = ContentProcess(turn.process, limits, message["secrets"], find_limits(services).disk_bytes)
            saving = _Saving(services, order, resolver, message["tree"], content)
            return await turn.process.work(saving.run)
        finally:
            turn.process.kill()


def _check_free(services: Services, order: SaveOrder) -> None:
    with services.database.reading() as cursor:
        check_name_free(cursor, to_schema_name(order.namespace), order.name)


def _build_opening(services: Services, order: SaveOrder, *, is_restricted: bool) -> OpenOrder:
    opening = build_content_order(services, is_restricted=is_restricted)
    return replace(opening, key=(*opening.key, str(order.query.query_id)))


@dataclass(slots=True)
class _Saving:
    """A checked query, and the process that computes its result."""

    services: Services
    order: SaveOrder
    resolver: TableResolver
    tree: Any
    content: ContentProcess

    def run(self) -> SavedResult:
        """Describe the result, write it, and commit the table."""
        began = monotonic()
        with self.resolver.explain_errors():
            schema = self.content.describe(self.tree)
        described = self._describe(schema)
        request = CreateTableRequest(name=self.order.name, schema_=schema, properties=self.order.properties)
        metadata = tables.build_first_metadata(self.services, self.order.namespace, request)
        if self.order.is_dry_run:
            return described
        upload = SnapshotUpload(self.services, metadata)
        with discard_on_error(self.services, upload.paths):
            contents = ContentUpload(upload)
            with self.resolver.explain_errors():
                schema = metadata.schema()  # with the ids that the table gives its columns
                contents.add_files(self.content.write([self.tree], write_select(schema), HOLE, schema))
            snapshot = contents.build_snapshot(None, self._describe_sources(), is_append=True)
            saved = described.replace_fields(
                table_uuid=metadata.table_uuid,
                snapshot_id=snapshot.snapshot_id,
                rows=contents.rows,
                files=contents.files,
                bytes=contents.bytes,
                seconds=round(monotonic() - began, 3),
            )
            self._commit(metadata, snapshot, saved)
        return saved

    def _describe(self, schema: Schema) -> SavedResult:
        columns = (SavedColumn(name=one.name, type=format_type_name(DUCKDB, one.type)) for one in schema.fields)
        return SavedResult(
            namespace=self.order.namespace,
            name=self.order.name,
            columns=tuple(columns),
            sources=tuple(sorted(format_full_name(*place) for place in self.resolver.tables.values())),
            ducklake_snapshot_id=self.resolver.snapshot_id,
        )

    def _describe_sources(self) -> Mapping[str, str]:
        """Describe for the summary what was read, in the form of a materialized view's refresh."""
        states = (_describe_read(self.services, read) for read in self.resolver.reads)
        by_text = {json.dumps(state): state for state in states if state is not None}
        sources = {"source-states": [*by_text.values()]}
        return {QUERY_SOURCES: json.dumps(sources), SOURCE_SNAPSHOT: str(self.resolver.snapshot_id)}

    def _commit(self, metadata: TableMetadata, snapshot: Snapshot, saved: SavedResult) -> None:
        services, order = self.services, self.order
        touched = build_touched(order.namespace, order.name, {"rows": saved.rows, "sources": list(saved.sources)})

        def settle(cursor: Transaction, written: Sequence[WrittenCommit]) -> None:
            (made,) = written
            services.own_new(cursor, [touched])
            services.settle(cursor, [replace(touched, table_id=made.table_id)], saved.to_json())

        planner = replace(services, caller=SERVER_CALLER, once=None)
        request = CommitTableRequest(requirements=(AssertCreate(),), updates=list_creation(metadata, snapshot))
        (done,) = commit_all(planner, [TableCommit(order.namespace, order.name, request)], settle)
        render_version(services, done)


def _describe_read(services: Services, read: TableRead) -> Mapping[str, Any] | None:
    """Describe a table that was read, and Iceberg's snapshot of it; None of one that Iceberg's clients can't read."""
    try:
        uuid = load_queried_table(services, read.namespace, read.name).metadata.table_uuid
    except CatalogError:
        return None
    found = read.resolved
    if isinstance(found, ResolvedSnapshot):
        snapshot_id: int | None = found.snapshot_id
    else:
        snapshot_id = find_main_snapshot(services, read.namespace, read.name, int(found.version))
    return {"type": "table", "uuid": uuid, "snapshot-id": snapshot_id}


def list_creation(metadata: TableMetadata, snapshot: Snapshot) -> tuple[TableUpdate, ...]:
    """List the updates that make a table of its first metadata and snapshot."""
    last = -1  # what was added last
    return (
        AssignUuid(uuid=metadata.table_uuid),
        UpgradeFormatVersion(format_version=metadata.format_version),
        AddSchema(schema_=metadata.schema()),
        SetCurrentSchema(schema_id=last),
        AddSpec(spec=UnboundPartitionSpec()),
        SetDefaultSpec(spec_id=last),
        AddSortOrder(sort_order=metadata.sort_order()),
        SetDefaultSortOrder(sort_order_id=last),
        SetLocation(location=metadata.location),
        SetProperties(updates=dict(metadata.properties)),
        *list_updates(snapshot),
    )


def list_updates(snapshot: Snapshot) -> tuple[AddSnapshot, SetSnapshotRef]:
    """List the updates that make a snapshot main."""
    return AddSnapshot(snapshot=snapshot), SetSnapshotRef(
        ref_name="main", snapshot_id=snapshot.snapshot_id, type="branch"
    )


def find_main_snapshot(services: Services, namespace: Namespace, name: str, upto: int) -> int | None:
    """Find Iceberg's snapshot that was main of a table at a snapshot of DuckLake; None where that isn't known."""
    try:
        table = load_queried_table(services, namespace, name)
    except CatalogError:  # Iceberg's clients can't read it, or it has been dropped since
        return None
    numbers = {row.snapshot_id: row.ducklake_id for row in table.state.snapshots}
    entries = (entry.snapshot_id for entry in reversed(table.metadata.snapshot_log))
    return next((found for found in entries if numbers.get(found, upto + 1) <= upto), None)
