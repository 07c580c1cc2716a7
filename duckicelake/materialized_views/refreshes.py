"""Refresh materialized views: read all sources at one snapshot, write what is new, record both in one transaction."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Final

from duckicelake.catalog.commit.apply import TableCommit
from duckicelake.catalog.commit.run import plan_all, retry_on_conflict
from duckicelake.catalog.context.audit_notes import build_touched
from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.caller import SERVER_CALLER, Caller, Principal, build_grants
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.rows.snapshot_upload import SnapshotUpload
from duckicelake.catalog.table.load import follow, load_current_table
from duckicelake.catalog.table.reclaim import discard_on_error
from duckicelake.catalog.upkeep_tasks import IsWanted, TaskControl, UpkeepSource
from duckicelake.errors import (
    CatalogError,
    ConflictError,
    ForbiddenError,
    InvalidRequestError,
    NoSuchTableError,
    QueryMemoryError,
    TaskStoppedError,
    UnavailableError,
    UnsupportedError,
)
from duckicelake.iceberg.identifiers import Namespace, format_full_name, parse_schema_name, to_schema_name
from duckicelake.iceberg.requirements import AssertRefSnapshotId
from duckicelake.iceberg.rest import CommitTableRequest
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.snapshot import Snapshot
from duckicelake.lake.changes import ChangeSet, WrittenCommit
from duckicelake.lake.ducklake import native
from duckicelake.lake.ducklake.snapshots import retry_transaction
from duckicelake.lake.model import LakeChange
from duckicelake.lake.side_tables import principals
from duckicelake.lake.writer.groups import write_change_set
from duckicelake.lake.writer.tables import allow_write
from duckicelake.maintenance.policy import parse_policy
from duckicelake.maintenance.task import TaskOutcome, UpkeepTask
from duckicelake.materialized_views import view_rows
from duckicelake.materialized_views.increments import (
    RefreshPlan,
    TablePlace,
    plan_refresh,
    read_appended,
    write_merge,
)
from duckicelake.materialized_views.sources import ResolvedQuery, resolve_query
from duckicelake.materialized_views.view_rows import (
    FAILURE_SECONDS,
    KIND,
    Definer,
    MaterializedView,
    RefreshRecord,
    SourceState,
    list_watched,
)
from duckicelake.postgres.queries import Transaction
from duckicelake.properties import REFRESH_STATE
from duckicelake.query.contents import (
    HOLE,
    ContentProcess,
    ContentUpload,
    WrittenFile,
    open_process,
    write_select,
)
from duckicelake.query.processes import QueryLimits
from duckicelake.query.saved_results import SOURCE_SNAPSHOT, find_main_snapshot, list_updates
from duckicelake.query.service import find_limits
from duckicelake.sql_dialects.placeholders import DUCKDB, format_type_name

CHANGE_SECONDS: Final = 5.0
"""For which a change of a source waits for others, so that one refresh takes all in."""
_MAX_SNAPSHOTS: Final = 1000
"""Snapshots that are looked through again and again for changes of a source."""
REFRESH_SECONDS: Final = 3600.0
"""For which one refresh may compute."""
_MEMORY_SETTING: Final = "DUCKICELAKE_QUERY_MEMORY_BYTES"
_NAMINGS: Final = frozenset({"created_table", "altered_table"})
"""Kinds of changes by which a renamed table is recorded; its columns are compared with those of the query."""
_VIEW_VERSION: Final = 1
"""A view's definition never changes: another one is another view."""


@dataclass(slots=True)
class _Refresh:
    """One refresh of a view.

    Attributes:
        reader: the services with the definer's rights.
        table: the view's table as it is, which its new contents go on from.
        is_whole: compute all of the contents, whatever has changed.
        began: when it began, by `monotonic`.

    """

    services: Services
    reader: Services
    view: MaterializedView
    table: TableVersion
    is_whole: bool
    began: float

    def run(self, process: ContentProcess) -> None:
        """Read what has changed, compute what is new, and commit it."""
        began_ms = self.services.clock()
        record, resolved, plan = self._plan(process)
        if plan.mode == "unchanged":
            self._note(record)
            return
        own = (self.view.namespace, self.view.name)
        process.reach(self.reader, [*list_places(resolved), own])
        check_columns(process.describe(resolved.tree), self.table.metadata.schema())
        upload = SnapshotUpload(self.services, self.table.metadata)
        with discard_on_error(self.services, upload.paths):
            contents = ContentUpload(upload)
            contents.add_files(self._compute(process, resolved, plan, record.snapshot_id))
            is_append = plan.increment is not None and plan.increment.shape == "rows"
            record = replace(record, rows_written=contents.rows)
            if is_append and not contents.rows:
                self._note(record)
                return
            current = self.table.metadata.current_snapshot()
            facts = describe_state(record, began_ms)
            self._commit(record, current, contents.build_snapshot(current, facts, is_append=is_append))

    def _plan(self, process: ContentProcess) -> tuple[RefreshRecord, ResolvedQuery, RefreshPlan]:
        """Resolve the query at the newest snapshot, and plan by what has happened since the last refresh."""
        view, last = self.view, self.view.last
        with self.services.database.reading() as cursor:
            newest, time = view_rows.read_newest_snapshot(cursor)
            resolved = resolve_query(self.reader, cursor, process.process, view.query, newest, view.table_id)
            reason = self._find_reason(cursor, resolved, newest)
            changes = (
                {}
                if reason
                else {
                    state.object_id: _read_changes(cursor, state.object_id, last.snapshot_id, newest)
                    for state in resolved.tables
                }
            )
        schema = self.table.metadata.schema()
        plan = (
            RefreshPlan("whole", reason)
            if reason
            else plan_refresh(resolved.tree, schema, changes, last.snapshot_id, newest)
        )
        sources = find_source_states(self.services, resolved, newest)
        return RefreshRecord(newest, time, sources, resolved.digest, plan.mode, plan.reason), resolved, plan

    def _find_reason(self, cursor: Transaction, resolved: ResolvedQuery, newest: int) -> str:
        """Find why the contents can't go on from those of the last refresh; empty if they can."""
        view = self.view
        if self.is_whole:
            return "asked for"
        if newest < max(view.last.snapshot_id, view.own_snapshot_id):
            return "the catalog is older than the last refresh"
        own = _read_changes(cursor, view.table_id, view.own_snapshot_id, newest)
        if not all(replace(change, kinds=change.kinds - _NAMINGS).only_moves for change in own):
            return "others have written the view's table"
        return "" if resolved.digest == view.last.digest else "the SQL of a view that it reads has changed"

    def _compute(
        self, process: ContentProcess, resolved: ResolvedQuery, plan: RefreshPlan, snapshot_id: int
    ) -> list[WrittenFile]:
        schema = self.table.metadata.schema()
        around = write_select(schema)
        if plan.increment is None:
            return process.write([resolved.tree], around, HOLE, schema)
        trees = [read_appended(resolved.tree, window) for window in plan.windows]
        if plan.increment.shape == "rows":
            return process.write(trees, around, HOLE, schema)
        place = TablePlace(to_schema_name(self.view.namespace), self.view.name, snapshot_id)
        return process.write(trees, around, write_merge(schema, plan.increment.merges, place), schema)

    def _note(self, record: RefreshRecord) -> None:
        """Record a refresh that writes nothing."""
        touched = build_touched(self.view.namespace, self.view.name, {"mode": record.mode})
        with self.services.database.transaction() as cursor:
            view_rows.note_refresh(cursor, self.view, self._time(record), None)
            self.services.settle(cursor, [touched])

    def _time(self, record: RefreshRecord) -> RefreshRecord:
        return replace(record, seconds=monotonic() - self.began)

    def _commit(self, record: RefreshRecord, current: Snapshot | None, snapshot: Snapshot) -> None:
        """Commit the contents and the record of them in one transaction; CommitFailedError if others were faster."""
        view = self.view
        expected = AssertRefSnapshotId(ref="main", snapshot_id=None if current is None else current.snapshot_id)
        request = CommitTableRequest(requirements=(expected,), updates=list_updates(snapshot))
        planner = replace(self.services, caller=SERVER_CALLER, once=None)
        detail = {"mode": record.mode, "rows": record.rows_written}
        touched = replace(build_touched(view.namespace, view.name, detail), table_id=view.table_id)

        def write(change: ChangeSet) -> WrittenCommit:
            with self.services.database.transaction() as cursor:
                allow_write(cursor, view.table_id)
                written = write_change_set(cursor, change)
                view_rows.note_refresh(cursor, view, self._time(record), written.snapshots[-1])
                self.services.settle(cursor, [touched])
            return written

        def attempt(_: bool) -> None:
            (plan,) = plan_all(planner, [TableCommit(view.namespace, view.name, request)], prepare=False)
            assert plan.change is not None
            assert plan.cached is not None
            written = retry_transaction(partial(write, plan.change))
            with suppress(CatalogError):  # the commit is written; the next load writes files that fail now
                follow(self.services, plan.cached, written)

        retry_on_conflict(self.services, format_full_name(view.namespace, view.name), attempt)


def refresh_view(
    services: Services,
    namespace: Namespace,
    name: str,
    *,
    is_whole: bool = False,
    limits: QueryLimits | None = None,
    check: Callable[[], None] | None = None,
) -> MaterializedView:
    """Bring a view up to date; return it as it is then.

    services: for who asks. limits: None: those of queries. check: raises once the refresh is to stop.

    The contents stay as they are, and the view says why, if anything fails.

    Raises:
        NoSuchTableError: there is no such view, or a source is gone.
        ConflictError: another refresh of it runs, or was faster.
        ForbiddenError: the definer may no longer read a source, or policies guard one.
        InvalidRequestError: the query fails, or its columns are other ones by now.
        UnavailableError: there is no room, or the process was ended.

    """
    services.database.gate.require_open()
    began, view = monotonic(), find_view(services, namespace, name)
    with services.database.statement() as cursor, view_rows.hold_lease(cursor, view.table_id) as is_ours:
        if not is_ours:
            raise ConflictError(f"Another refresh of {format_full_name(namespace, name)} runs: wait for its end")
        view = find_view(services, namespace, name)
        with _note_failure(services, view):
            reader = act_as_definer(services, view.definer)
            table = load_current_table(replace(services, caller=SERVER_CALLER), view.namespace, view.name)
            named = nullcontext() if limits else _name_memory()
            with named, open_process(reader, choose_limits(services, limits), check) as process:
                _Refresh(services, reader, view, table, is_whole, began).run(process)
    return find_view(services, namespace, name)


def find_view(services: Services, namespace: Namespace, name: str) -> MaterializedView:
    """Find a view. Raises NoSuchTableError."""
    with services.database.statement(only_reads=True) as cursor:
        found = view_rows.read_views(cursor, to_schema_name(namespace), name)
    if not found:
        raise NoSuchTableError(f"Materialized view does not exist: {format_full_name(namespace, name)}")
    return found[0]


@contextmanager
def _note_failure(services: Services, view: MaterializedView) -> Iterator[None]:
    """Record why a refresh fails, for who looks at the view."""
    try:
        yield
    except TaskStoppedError:
        raise  # it goes on later
    except Exception as error:
        text = str(error) if isinstance(error, CatalogError) else f"Internal error: {type(error).__name__}"
        with suppress(CatalogError), services.database.transaction() as cursor:
            view_rows.note_failure(cursor, view.table_id, text)
        raise


@contextmanager
def _name_memory() -> Iterator[None]:
    """Name the setting of a query's memory where a query takes too much."""
    try:
        yield
    except QueryMemoryError as error:
        raise QueryMemoryError(f"{error}. Raise {_MEMORY_SETTING}, and refresh the view again") from error


def choose_limits(services: Services, limits: QueryLimits | None = None) -> QueryLimits:
    """Return what a refresh may take. Raises UnsupportedError for a server that runs no queries."""
    if limits is None:
        limits = replace(find_limits(services), seconds=REFRESH_SECONDS)
    if limits.processes == 0:
        raise UnsupportedError("queries", "This server runs no queries: DUCKICELAKE_QUERY_PROCESSES is 0")
    return limits


def act_as_definer(services: Services, definer: Definer) -> Services:
    """Return the services with the definer's rights of now. Raises ForbiddenError for one that is gone or disabled."""
    principal = Principal(definer.name, build_grants(definer.scopes), definer.groups)
    if definer.principal_id is not None:
        if services.rights is None:
            raise UnavailableError("This process doesn't know the rights of principals: refresh the view by the server")
        with services.rights.registry.statement(only_reads=True) as cursor:
            row = principals.find_principal_by_id(cursor, definer.principal_id)
        if row is None or row.is_disabled:
            raise ForbiddenError(
                f"The view reads with the rights of {definer.name}, who is deleted or disabled: create it again"
            )
        principal = Principal(row.name, build_grants(row.scopes), definer.groups, row.principal_id)
        principal = principal.in_warehouse(services.warehouse)
    bound = principal if services.rights is None else services.rights.bind(principal)
    return replace(services, caller=Caller(bound, operation="refresh_materialized_view"), once=None)


def find_source_states(services: Services, resolved: ResolvedQuery, snapshot_id: int) -> tuple[SourceState, ...]:
    """Find Iceberg's snapshots that were main of the sources at a snapshot of DuckLake."""
    return tuple(
        replace(
            state,
            snapshot_id=find_main_snapshot(services, parse_schema_name(state.schema_name), state.name, snapshot_id),
        )
        if state.kind == "table"
        else state
        for state in resolved.states
    )


def describe_state(record: RefreshRecord, began_ms: int) -> dict[str, str]:
    """Describe a refresh for a snapshot's summary, as Iceberg's draft of materialized views does."""
    states = [
        {"type": "table", "uuid": source.uuid, "snapshot-id": source.snapshot_id, "ref": "main"}
        if source.kind == "table"
        else {"type": "view", "uuid": source.uuid, "version-id": source.version_id}
        for source in record.sources
        if source.snapshot_id is not None or source.version_id is not None
    ]
    state = {
        "view-version-id": _VIEW_VERSION,
        "source-states": states,
        "refresh-start-timestamp-ms": began_ms,
    }
    return {REFRESH_STATE: json.dumps(state), SOURCE_SNAPSHOT: str(record.snapshot_id)}


def list_places(resolved: ResolvedQuery) -> list[tuple[Namespace, str]]:
    """List the tables that a query reads."""
    return [(parse_schema_name(state.schema_name), state.name) for state in resolved.tables]


def check_columns(found: Schema, schema: Schema) -> None:
    """Check that the query still has the view's columns. Raises InvalidRequestError."""
    now, was = (
        ", ".join(f"{column.name} {format_type_name(DUCKDB, column.type)}" for column in one.fields)
        for one in (found, schema)
    )
    if now != was:
        raise InvalidRequestError(
            f"The query's columns are {now} by now, and the view has {was}: create another view, or change the sources"
        )


def _read_changes(cursor: Transaction, table_id: int, after: int, upto: int) -> tuple[LakeChange, ...]:
    return native.read_changes(cursor, table_id, after, upto) if upto > after else ()


def find_due(services: Services) -> Sequence[UpkeepTask]:
    """Find the views that are to be refreshed now, and say why."""
    with services.database.statement() as cursor:
        due = view_rows.read_due(cursor, CHANGE_SECONDS, FAILURE_SECONDS)
        view_rows.skip_unchanged(cursor, _MAX_SNAPSHOTS)
    return _build_tasks(due)


def find_asked(services: Services, is_wanted: IsWanted) -> Sequence[UpkeepTask]:
    """Find the views that are asked for and due, also by a change of just now, or although the last refresh failed."""
    with services.database.statement(only_reads=True) as cursor:
        due = view_rows.read_due(cursor, 0, 0)
    return _build_tasks([(namespace, name, why) for namespace, name, why in due if is_wanted(namespace, name)])


def _build_tasks(due: Sequence[tuple[Namespace, str, str]]) -> list[UpkeepTask]:
    policy = parse_policy({})
    return [UpkeepTask(KIND, namespace, name, why, policy, 0) for namespace, name, why in due]


def run_refresh(services: Services, task: UpkeepTask, control: TaskControl) -> TaskOutcome:
    """Run the refresh of a task; raises what `refresh_view` does, and TaskStoppedError."""
    control.check()
    limits = QueryLimits(1, control.memory_bytes, control.scratch_bytes, REFRESH_SECONDS, 0)
    view = refresh_view(services, task.namespace, task.table, limits=limits, check=control.check)
    last = view.last
    counts = {"rows written": last.rows_written}
    return TaskOutcome("unchanged" if last.mode == "unchanged" else "done", f"{last.mode}: {last.reason}", (), counts)


UPKEEP_SOURCE: Final = UpkeepSource(
    {KIND: "duckicelake.materialized_views.refreshes:run_refresh"},
    find_due,
    find_asked,
    is_used=view_rows.is_any_scheduled,
    list_watched=list_watched,
)
