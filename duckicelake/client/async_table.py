"""Tables and views of a lake for asyncio: the methods of `Table` and `View` in threads.

`scripts/async_client.py` writes this file from `table.py`.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Final, TypeVar

from duckicelake.client.diff import TableDiff
from duckicelake.client.models import ColumnMetrics, FileInfo, Json, PartitionInfo, TableInfo, ViewInfo
from duckicelake.client.operations import AppendInfo, ExpireInfo, FlushInfo, RestoreInfo
from duckicelake.client.scan_cost import ExplanationInfo
from duckicelake.client.table import Table, View

_CHUNK_ITEMS: Final = 1000
"""Items of an iterator that one call in a thread brings."""
Item = TypeVar("Item")


async def iterate(items: Iterator[Item], chunk_items: int = _CHUNK_ITEMS) -> AsyncIterator[Item]:
    """Iterate in threads: what comes next may be another request."""
    while chunk := await to_thread(lambda: list(islice(items, chunk_items))):
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
        return iterate(self.sync.files(at))

    def column_metrics(self, column: str, at: int | str | None = None) -> AsyncIterator[ColumnMetrics]:
        """Yield what the catalog says of a top-level column in each data file of a snapshot; no file is read."""
        return iterate(self.sync.column_metrics(column, at))

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

    async def append(self, rows: Sequence[Mapping[str, Json]], *, branch: str | None = None) -> AppendInfo:
        """Append rows, all or none, to `main` or to another branch."""
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
        """Expire older snapshots, and branches and tags older than they may be; return how many."""
        return await to_thread(partial(self.sync.expire, older_than, retain_last=retain_last, is_dry_run=is_dry_run))

    async def diff(
        self, since: int | str | None = None, until: int | str | None = None, *, max_files: int = 1000
    ) -> TableDiff:
        """Compare the table at two states: rows and files that came and went, columns, partition spec, sort order."""
        return await to_thread(partial(self.sync.diff, since, until, max_files=max_files))

    async def explain(self, where: str | None = None, at: str | None = None) -> ExplanationInfo:
        """Return what a filter would read. where: a condition in DuckDB's SQL; None: all rows."""
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

    async def unregister(self) -> str:
        """Take the table out of the catalog; return where its metadata.json is. Its files stay."""
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
