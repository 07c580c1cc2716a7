"""The client of a lake for asyncio: the methods of `Lake` in threads.

    async with connect_async("http://localhost:8181") as lake:
        print([one async for one in lake.list("zoo")])

`scripts/async_client.py` writes this file from `lake.py` and `activity.py`.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Self

from duckicelake.client.activity import Time
from duckicelake.client.async_table import AsyncTable, AsyncView, iterate
from duckicelake.client.changes import ChangeInfo, EventInfo, EventPage, JobInfo
from duckicelake.client.lake import Lake, connect
from duckicelake.client.lineage import LineageDirection, LineageInfo
from duckicelake.client.models import CatalogObject, FoundName, Json, ObjectKind, TableInfo, TableSize, ViewInfo
from duckicelake.client.operations import CallerInfo, DroppedInfo, UndropInfo
from duckicelake.client.query_result import PlanInfo, QueryInfo, QueryPage, QueryResult, SavedResultInfo
from duckicelake.client.upkeep import AuditRecord, CheckReport, CheckResult, OrphanInfos, UpkeepInfo


def connect_async(uri: str | None = None, **options: Any) -> AsyncLake:
    """Connect as `duckicelake.connect` does, with the same options."""
    return AsyncLake(connect(uri, **options))


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
        return iterate(self.sync.list(namespace, is_recursive=is_recursive))

    def namespaces(self, parent: str = "") -> AsyncIterator[str]:
        """Yield the names of the direct children of a namespace, or of the top level."""
        return iterate(self.sync.namespaces(parent))

    def tables(self, namespace: str) -> AsyncIterator[str]:
        """Yield the full names of a namespace's tables."""
        return iterate(self.sync.tables(namespace))

    def views(self, namespace: str) -> AsyncIterator[str]:
        """Yield the full names of a namespace's views."""
        return iterate(self.sync.views(namespace))

    def search(self, text: str, namespace: str = "") -> AsyncIterator[FoundName]:
        """Yield what holds a text, in any case: in its name, its comment, its columns or their comments."""
        return iterate(self.sync.search(text, namespace))

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
        """Return "; did you mean …?" with names like this one where it would be; empty if there are none."""
        return await to_thread(self.sync.suggest, name)

    async def create_table(
        self,
        name: str,
        schema: str | Json,
        *,
        partition_by: str = "",
        order_by: str = "",
        location: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> AsyncTable:
        """Create an empty table."""
        return AsyncTable(
            await to_thread(
                partial(
                    self.sync.create_table,
                    name,
                    schema,
                    partition_by=partition_by,
                    order_by=order_by,
                    location=location,
                    properties=properties,
                )
            )
        )

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
        return iterate(self.sync.list_dropped(namespace))

    async def undrop(
        self, kind: ObjectKind, name: str, *, object_id: int | None = None, new_name: str | None = None
    ) -> UndropInfo:
        """Bring back a dropped table or view, or a namespace with all that was dropped with it."""
        return await to_thread(partial(self.sync.undrop, kind, name, object_id=object_id, new_name=new_name))

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

    async def save_sql(
        self,
        statement: str,
        name: str,
        *,
        namespace: str = "",
        at: str | None = None,
        query_id: str | None = None,
        is_dry_run: bool = False,
    ) -> SavedResultInfo:
        """Make a table of the result of a SELECT, in one commit; a dry run says only what it would be."""
        return await to_thread(
            partial(
                self.sync.save_sql,
                statement,
                name,
                namespace=namespace,
                at=at,
                query_id=query_id,
                is_dry_run=is_dry_run,
            )
        )

    async def queries(self) -> Sequence[QueryInfo]:
        """Return the caller's queries of the last minutes, or everyone's for an administrator; the newest first."""
        return await to_thread(self.sync.queries)

    async def query(self, query_id: str) -> QueryInfo:
        """Return how far a query is."""
        return await to_thread(self.sync.query, query_id)

    async def cancel_query(self, query_id: str) -> None:
        """Cancel a query; one that has ended stays ended."""
        await to_thread(self.sync.cancel_query, query_id)

    def history(
        self,
        name: str = "",
        *,
        kinds: Sequence[str] = (),
        since: Time | None = None,
        until: Time | None = None,
        principal: str | None = None,
        engine: str | None = None,
        source: str | None = None,
        page_size: int = 100,
    ) -> AsyncIterator[ChangeInfo]:
        """Yield what changed in the lake, a namespace or a table, newest first."""
        return iterate(
            self.sync.history(
                name,
                kinds=kinds,
                since=since,
                until=until,
                principal=principal,
                engine=engine,
                source=source,
                page_size=page_size,
            )
        )

    def events(
        self, name: str = "", *, after: str | None = None, kinds: Sequence[str] = (), is_following: bool = False
    ) -> AsyncIterator[EventInfo]:
        """Yield events of the change feed in their order: of the lake, or of a namespace, table or view."""
        return iterate(self.sync.events(name, after=after, kinds=kinds, is_following=is_following), 1)

    async def read_events(
        self,
        name: str = "",
        *,
        after: str | None = None,
        kinds: Sequence[str] = (),
        wait: float = 0.0,
        limit: int = 1000,
        has_retries: bool = True,
    ) -> EventPage:
        """Return the next events behind a position, at most so many. wait: seconds for one, if there is none."""
        return await to_thread(
            partial(
                self.sync.read_events, name, after=after, kinds=kinds, wait=wait, limit=limit, has_retries=has_retries
            )
        )

    async def lineage(
        self,
        node: str,
        *,
        direction: LineageDirection = "both",
        depth: int = 5,
        at: Time | None = None,
        has_columns: bool = False,
        limit: int = 200,
    ) -> LineageInfo:
        """Return what a table, or a column as `sales.orders#amount`, comes from and what comes from it."""
        return await to_thread(
            partial(
                self.sync.lineage, node, direction=direction, depth=depth, at=at, has_columns=has_columns, limit=limit
            )
        )

    def jobs(
        self, name: str = "", *, kind: str | None = None, run_id: str | None = None, result: str | None = None
    ) -> AsyncIterator[JobInfo]:
        """Yield jobs of the pipeline, newest first: all, or those on a table."""
        return iterate(self.sync.jobs(name, kind=kind, run_id=run_id, result=result))

    def statistics(self, namespace: str = "", table: str = "") -> AsyncIterator[UpkeepInfo]:
        """Yield what decides about the upkeep of a table, or of the tables of a namespace and of those below it."""
        return iterate(self.sync.statistics(namespace, table))

    def sizes(self, namespace: str = "") -> AsyncIterator[TableSize]:
        """Yield how large the tables of a namespace and of those below it are, or of the whole lake."""
        return iterate(self.sync.sizes(namespace))

    async def whoami(self) -> CallerInfo:
        """Return who the caller is for this server: principal, groups, roles, scopes, what it may do."""
        return await to_thread(self.sync.whoami)

    async def audit(
        self,
        *,
        limit: int = 100,
        after: int = 0,
        before: int | None = None,
        since: datetime | None = None,
        principal: str | None = None,
        resource: str | None = None,
        operation: str | None = None,
        result: str | None = None,
    ) -> Sequence[AuditRecord]:
        """Return the newest entries of the audit trail, the newest last, of those after an id and before another."""
        return await to_thread(
            partial(
                self.sync.audit,
                limit=limit,
                after=after,
                before=before,
                since=since,
                principal=principal,
                resource=resource,
                operation=operation,
                result=result,
            )
        )

    async def doctor(
        self, *, has_files: bool = True, report: Callable[[CheckReport], None] = lambda _: None
    ) -> Sequence[CheckResult]:
        """Have the server examine the lake; return all findings."""
        return await to_thread(partial(self.sync.doctor, has_files=has_files, report=report))

    async def orphans(self, older_than: datetime) -> OrphanInfos:
        """List files last written before a moment that no table needs. Nothing is deleted."""
        return await to_thread(self.sync.orphans, older_than)

    async def delete_orphans(self, locations: Sequence[str], older_than: datetime) -> Sequence[str]:
        """Delete files that `orphans` listed, at most 10,000; return those that were orphans still, and are gone."""
        return await to_thread(self.sync.delete_orphans, locations, older_than)
