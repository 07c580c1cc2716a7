"""The client of a lake for asyncio: `Lake`, `Table` and `View`, whose methods run in threads.

    async with connect_async("http://localhost:8181") as lake:
        print([one async for one in lake.list("zoo")])

`scripts/async_client.py` writes this file from `lake.py` and `table.py`.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, Final, Self, TypeVar

from duckicelake.client.diff import TableDiff
from duckicelake.client.lake import Lake, connect
from duckicelake.client.models import (
    CatalogObject,
    ColumnMetrics,
    FileInfo,
    FoundName,
    Json,
    ObjectKind,
    PartitionInfo,
    TableInfo,
    TableSize,
    ViewInfo,
)
from duckicelake.client.operations import CallerInfo, DroppedInfo, ExpireInfo, FlushInfo, RestoreInfo, UndropInfo
from duckicelake.client.query_result import PlanInfo, QueryInfo, QueryPage, QueryResult
from duckicelake.client.table import Table, View
from duckicelake.client.upkeep import AuditRecord, CheckResult, OrphanInfos

_CHUNK_ITEMS: Final = 1000
"""Items of an iterator that one call in a thread brings."""
Item = TypeVar("Item")


def connect_async(uri: str | None = None, **options: Any) -> AsyncLake:
    """Connect as `duckicelake.connect` does, with the same options."""
    return AsyncLake(connect(uri, **options))


async def _iterate(items: Iterator[Item]) -> AsyncIterator[Item]:
    """Iterate in threads: what comes next may be another request."""
    while chunk := await to_thread(lambda: list(islice(items, _CHUNK_ITEMS))):
        for item in chunk:
            yield item


class AsyncTable:
    """A table behind its catalog's REST API, for asyncio."""

    def __init__(self, sync: Table) -> None:
        self.sync = sync

    @property
    def name(self) -> str:
        return self.sync.name

    async def load(self) -> TableInfo:
        """Load the table. Raises MissingTableError."""
        return await to_thread(self.sync.load)

    def files(self, at: int | str | None = None) -> AsyncIterator[FileInfo]:
        """Yield the data files of the current snapshot, or of a snapshot id, branch or tag. The catalog plans it."""
        return _iterate(self.sync.files(at))

    def column_metrics(self, column: str, at: int | str | None = None) -> AsyncIterator[ColumnMetrics]:
        """Yield what the catalog says of a top-level column in each data file of a snapshot; no file is read."""
        return _iterate(self.sync.column_metrics(column, at))

    async def partitions(self, at: int | str | None = None) -> tuple[PartitionInfo, ...]:
        """Return what each partition of a snapshot has."""
        return await to_thread(self.sync.partitions, at)

    async def resolve_snapshot(self, at: int | str | None = None) -> int:
        """Return the id of a listed snapshot, or of that which a branch or tag points to (default: main)."""
        return await to_thread(self.sync.resolve_snapshot, at)

    async def update_properties(self, updates: Mapping[str, str] | None = None, removals: Sequence[str] = ()) -> None:
        """Set and remove properties."""
        await to_thread(self.sync.update_properties, updates, removals)

    async def constraints(self) -> Mapping[str, str]:
        """Return the CHECK constraints: conditions by name."""
        return await to_thread(self.sync.constraints)

    async def add_constraint(self, name: str, condition: str) -> None:
        """Add or replace a CHECK constraint. Raises BadInputError if a condition can't be one, or rows violate it."""
        await to_thread(self.sync.add_constraint, name, condition)

    async def drop_constraint(self, name: str) -> None:
        """Drop a CHECK constraint. Raises BadInputError if there is none of this name."""
        await to_thread(self.sync.drop_constraint, name)

    async def set_ref(self, name: str, kind: str, snapshot_id: int, *, replaced: int | None = None) -> None:
        """Create a branch or tag, or move one from the snapshot `replaced`."""
        await to_thread(partial(self.sync.set_ref, name, kind, snapshot_id, replaced=replaced))

    async def retain_ref(
        self,
        name: str,
        *,
        max_age: timedelta | None = None,
        max_snapshot_age: timedelta | None = None,
        min_snapshots: int | None = None,
    ) -> None:
        """Say how long a branch or tag is kept, and of a branch its snapshots; what isn't given is the table's rule."""
        await to_thread(
            partial(
                self.sync.retain_ref,
                name,
                max_age=max_age,
                max_snapshot_age=max_snapshot_age,
                min_snapshots=min_snapshots,
            )
        )

    async def drop_ref(self, name: str) -> None:
        """Drop a branch or tag; its snapshots stay until they expire. BadInputError for `main` and unknown ones."""
        await to_thread(self.sync.drop_ref, name)

    async def fast_forward(self, branch: str, to: str) -> None:
        """Move a branch to the snapshot of another ref that descends from it. Raises BadInputError if it doesn't."""
        await to_thread(self.sync.fast_forward, branch, to)

    async def append(self, rows: Sequence[Mapping[str, Json]], *, branch: str | None = None) -> Json:
        """Append rows, all or none, to `main` or to another branch; return the snapshot and how many, as JSON."""
        return await to_thread(partial(self.sync.append, rows, branch=branch))

    async def set_column_comment(self, column: str, comment: str | None) -> None:
        """Set or remove the comment of a top-level column. Raises BadInputError if there is no such column."""
        await to_thread(self.sync.set_column_comment, column, comment)

    async def alter(self, changes: Sequence[str]) -> None:
        """Change columns, partitions and order by clauses, as `add column note string`, all or none."""
        await to_thread(self.sync.alter, changes)

    async def restore(self, to: str, *, is_dry_run: bool = False) -> RestoreInfo:
        """Make `main` what it was at a snapshot, time, branch or tag; return what that does or would do."""
        return await to_thread(partial(self.sync.restore, to, is_dry_run=is_dry_run))

    async def expire(self, older_than: datetime, *, retain_last: int = 1, is_dry_run: bool = False) -> ExpireInfo:
        """Expire snapshots of `main` that are older; return how many."""
        return await to_thread(partial(self.sync.expire, older_than, retain_last=retain_last, is_dry_run=is_dry_run))

    def history(self, **filters: str) -> AsyncIterator[Json]:
        """Yield what changed in the table, newest first, as JSON. filters: as of `Lake.history`."""
        return _iterate(self.sync.history(**filters))

    async def diff(
        self, since: int | str | None = None, until: int | str | None = None, *, max_files: int = 1000
    ) -> TableDiff:
        """Compare the table at two states: rows and files that came and went, columns, partition spec, sort order."""
        return await to_thread(partial(self.sync.diff, since, until, max_files=max_files))

    async def explain(self, where: str | None = None, at: str | None = None) -> Json:
        """Return what a filter would read, as JSON. where: a condition in DuckDB's SQL."""
        return await to_thread(self.sync.explain, where, at)

    async def clone(self, name: str, *, at: str | None = None, with_history: bool = False) -> AsyncTable:
        """Clone the table, or what it was at a snapshot, time, branch or tag, under another name."""
        return AsyncTable(await to_thread(partial(self.sync.clone, name, at=at, with_history=with_history)))

    async def flush(self) -> FlushInfo:
        """Write the rows in Postgres to files; return how many went to how many files."""
        return await to_thread(self.sync.flush)

    async def drop(self, *, is_purge: bool = False) -> None:
        """Drop the table. is_purge: delete its files, too."""
        await to_thread(partial(self.sync.drop, is_purge=is_purge))

    async def unregister(self) -> Json:
        """Take the table out of the catalog; return where its metadata is. Its files stay."""
        return await to_thread(self.sync.unregister)


class AsyncView:
    """A view behind its catalog's REST API, for asyncio."""

    def __init__(self, sync: View) -> None:
        self.sync = sync

    @property
    def name(self) -> str:
        return self.sync.name

    async def load(self) -> ViewInfo:
        """Load the view. Raises MissingTableError."""
        return await to_thread(self.sync.load)

    async def update_properties(self, updates: Mapping[str, str] | None = None, removals: Sequence[str] = ()) -> None:
        """Set and remove properties."""
        await to_thread(self.sync.update_properties, updates, removals)

    async def redefine(self, schema: Json, version: Json) -> None:
        """Give the view another version with this schema, both as Iceberg's JSON; its ids are the catalog's."""
        await to_thread(self.sync.redefine, schema, version)

    async def drop(self) -> None:
        """Drop the view."""
        await to_thread(self.sync.drop)


class AsyncLake:
    """A lake behind its catalog's REST API. Threads may share it, for asyncio."""

    def __init__(self, sync: Lake) -> None:
        self.sync = sync

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await to_thread(self.sync.close)

    def list(self, namespace: str = "", *, is_recursive: bool = False) -> AsyncIterator[CatalogObject]:
        """Yield the namespaces, tables and views directly in a namespace, or at the top level."""
        return _iterate(self.sync.list(namespace, is_recursive=is_recursive))

    def namespaces(self, parent: str = "") -> AsyncIterator[str]:
        """Yield the names of the direct children of a namespace, or of the top level."""
        return _iterate(self.sync.namespaces(parent))

    def tables(self, namespace: str) -> AsyncIterator[str]:
        """Yield the full names of a namespace's tables."""
        return _iterate(self.sync.tables(namespace))

    def views(self, namespace: str) -> AsyncIterator[str]:
        """Yield the full names of a namespace's views."""
        return _iterate(self.sync.views(namespace))

    def sizes(self, namespace: str = "") -> AsyncIterator[TableSize]:
        """Yield how large the tables of a namespace and of those below it are, or of the whole lake."""
        return _iterate(self.sync.sizes(namespace))

    def statistics(self, namespace: str = "", table: str = "") -> AsyncIterator[Json]:
        """Yield what decides about the upkeep of a table, or of the tables of a namespace and of those below it."""
        return _iterate(self.sync.statistics(namespace, table))

    def search(self, text: str, namespace: str = "") -> AsyncIterator[FoundName]:
        """Yield what holds a text, in any case: in its name, its comment, its columns or their comments."""
        return _iterate(self.sync.search(text, namespace))

    async def create_namespace(self, name: str, properties: Mapping[str, str] | None = None) -> None:
        """Create a namespace. Raises JobConflictError if it exists."""
        await to_thread(self.sync.create_namespace, name, properties)

    async def drop_namespace(self, name: str) -> None:
        """Drop an empty namespace. Raises JobConflictError if it isn't empty."""
        await to_thread(self.sync.drop_namespace, name)

    async def namespace_properties(self, name: str) -> Mapping[str, str]:
        """Return the properties of a namespace."""
        return await to_thread(self.sync.namespace_properties, name)

    async def update_namespace(
        self, name: str, updates: Mapping[str, str] | None = None, removals: Sequence[str] = ()
    ) -> None:
        """Set and remove properties of a namespace."""
        await to_thread(self.sync.update_namespace, name, updates, removals)

    def table(self, name: str) -> AsyncTable:
        """Return a table, which is looked up when one of its methods is called."""
        return AsyncTable(self.sync.table(name))

    def view(self, name: str) -> AsyncView:
        """Return a view, which is looked up when one of its methods is called."""
        return AsyncView(self.sync.view(name))

    async def find(self, name: str) -> TableInfo | ViewInfo:
        """Load the table or view of a name. Raises MissingTableError, which names those with like names."""
        return await to_thread(self.sync.find, name)

    async def suggest(self, name: str) -> str:
        """Return "; did you mean …?" with names of tables and views like this one; empty if there are none."""
        return await to_thread(self.sync.suggest, name)

    async def create_table(self, name: str, schema: Json, **options: Any) -> AsyncTable:
        """Create a table. schema: Iceberg's, as JSON. options: others of CreateTableRequest, with `_` for `-`."""
        return AsyncTable(await to_thread(partial(self.sync.create_table, name, schema, **options)))

    async def create_view(self, name: str, sql: str, *, spark: str | None = None) -> AsyncView:
        """Create a view of a query in DuckDB's SQL, whose columns the server finds without reading rows."""
        return AsyncView(await to_thread(partial(self.sync.create_view, name, sql, spark=spark)))

    async def redefine_view(self, name: str, sql: str, *, spark: str | None = None) -> None:
        """Give a view another query, as `create_view` takes it. The view keeps its properties and versions."""
        await to_thread(partial(self.sync.redefine_view, name, sql, spark=spark))

    async def register_table(self, name: str, metadata_location: str) -> AsyncTable:
        """Register a table by its metadata.json."""
        return AsyncTable(await to_thread(self.sync.register_table, name, metadata_location))

    async def rename(self, kind: ObjectKind, source: str, destination: str) -> None:
        """Rename or move a table or view."""
        await to_thread(self.sync.rename, kind, source, destination)

    async def rename_namespace(self, source: str, destination: str) -> Sequence[str]:
        """Rename or move a namespace with all in it; return the views whose queries name tables by the old name."""
        return await to_thread(self.sync.rename_namespace, source, destination)

    def list_dropped(self, namespace: str = "") -> AsyncIterator[DroppedInfo]:
        """Yield what can be brought back, the newest first: of a namespace and those below it, or of the lake."""
        return _iterate(self.sync.list_dropped(namespace))

    async def undrop(
        self, kind: ObjectKind, name: str, *, object_id: int | None = None, new_name: str | None = None
    ) -> UndropInfo:
        """Bring back a dropped table or view, or a namespace with all that was dropped with it."""
        return await to_thread(partial(self.sync.undrop, kind, name, object_id=object_id, new_name=new_name))

    def history(self, name: str = "", **filters: Any) -> AsyncIterator[Json]:
        """Yield what changed in the lake, a namespace or a table, newest first, as JSON of the route."""
        return _iterate(self.sync.history(name, **filters))

    async def whoami(self) -> CallerInfo:
        """Return who the caller is for this server: principal, groups, roles, scopes, what it may do."""
        return await to_thread(self.sync.whoami)

    async def audit(
        self,
        *,
        limit: int = 100,
        after: int = 0,
        since: datetime | None = None,
        principal: str | None = None,
        resource: str | None = None,
        operation: str | None = None,
        result: str | None = None,
    ) -> Sequence[AuditRecord]:
        """Return the newest entries of the audit trail, the newest last. after: only those behind this entry's id."""
        return await to_thread(
            partial(
                self.sync.audit,
                limit=limit,
                after=after,
                since=since,
                principal=principal,
                resource=resource,
                operation=operation,
                result=result,
            )
        )

    async def doctor(self, *, has_files: bool = True) -> Sequence[CheckResult]:
        """Have the server examine the lake; return all findings. has_files: look for each data file in the store."""
        return await to_thread(partial(self.sync.doctor, has_files=has_files))

    async def orphans(self, older_than: datetime) -> OrphanInfos:
        """List files last written before a moment that no table needs. Nothing is deleted."""
        return await to_thread(self.sync.orphans, older_than)

    async def delete_orphans(self, locations: Sequence[str], older_than: datetime) -> Sequence[str]:
        """Delete files that `orphans` listed, at most 10,000; return those that were orphans still, and are gone."""
        return await to_thread(self.sync.delete_orphans, locations, older_than)

    def jobs(self, name: str = "", **filters: str) -> AsyncIterator[Json]:
        """Yield jobs of the pipeline, newest first, as JSON: all, or those on a table. filters: kind, result."""
        return _iterate(self.sync.jobs(name, **filters))

    async def lineage(self, node: str, **options: Any) -> Json:
        """Return what a table, or a column as `sales.orders#amount`, comes from and what comes from it, as JSON."""
        return await to_thread(partial(self.sync.lineage, node, **options))

    async def sql(
        self,
        statement: str,
        *,
        namespace: str = "",
        at: str | None = None,
        limit: int | None = None,
        query_id: str | None = None,
    ) -> QueryResult:
        """Run a SELECT in DuckDB's SQL in the server, over tables that the caller may read, all at one snapshot."""
        return await to_thread(
            partial(self.sync.sql, statement, namespace=namespace, at=at, limit=limit, query_id=query_id)
        )

    async def preview(
        self,
        statement: str,
        *,
        namespace: str = "",
        at: str | None = None,
        limit: int = 100,
        max_bytes: int = 1 << 20,
        seconds: float = 60.0,
    ) -> QueryPage:
        """Run a SELECT as `sql` does, and return its first rows: so many, of so many bytes as JSON, within a time."""
        return await to_thread(
            partial(
                self.sync.preview,
                statement,
                namespace=namespace,
                at=at,
                limit=limit,
                max_bytes=max_bytes,
                seconds=seconds,
            )
        )

    async def explain_sql(self, statement: str, *, namespace: str = "", at: str | None = None) -> PlanInfo:
        """Return DuckDB's plan of a SELECT, and how many files of each table it reads. The query isn't run."""
        return await to_thread(partial(self.sync.explain_sql, statement, namespace=namespace, at=at))

    async def queries(self) -> Sequence[QueryInfo]:
        """Return the caller's queries of the last minutes, or everyone's for an administrator; the newest first."""
        return await to_thread(self.sync.queries)

    async def query(self, query_id: str) -> QueryInfo:
        """Return how far a query is."""
        return await to_thread(self.sync.query, query_id)

    async def cancel_query(self, query_id: str) -> None:
        """Cancel a query; one that has ended stays ended."""
        await to_thread(self.sync.cancel_query, query_id)
