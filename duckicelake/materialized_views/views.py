"""Create, list, schedule and drop materialized views."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Final

from duckicelake.catalog import tables
from duckicelake.catalog.commit.apply import TableCommit
from duckicelake.catalog.commit.run import commit_all, render_version
from duckicelake.catalog.context.audit_notes import build_touched
from duckicelake.catalog.context.caller import SERVER_CALLER, Capability, Principal, build_refusal, format_scope
from duckicelake.catalog.context.page import ListPage, PageRequest, cut_page
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.rows.snapshot_upload import SnapshotUpload
from duckicelake.catalog.table.reclaim import discard_on_error
from duckicelake.errors import NoSuchNamespaceError
from duckicelake.iceberg.identifiers import Namespace, to_schema_name
from duckicelake.iceberg.requirements import AssertCreate
from duckicelake.iceberg.rest import CommitTableRequest, CreateTableRequest
from duckicelake.iceberg.updates import TableUpdate
from duckicelake.lake.changes import WrittenCommit
from duckicelake.lake.ducklake.schemas import check_name_free, has_namespace
from duckicelake.materialized_views import view_rows
from duckicelake.materialized_views.refreshes import (
    choose_limits,
    describe_state,
    find_source_states,
    find_view,
    list_places,
)
from duckicelake.materialized_views.sources import ResolvedQuery, resolve_query
from duckicelake.materialized_views.view_rows import (
    Definer,
    MaterializedQuery,
    MaterializedView,
    RefreshRecord,
    Schedule,
)
from duckicelake.postgres.queries import Transaction
from duckicelake.query.contents import HOLE, ContentProcess, ContentUpload, open_process, write_select
from duckicelake.query.processes import QueryLimits
from duckicelake.query.saved_results import list_creation

_SEPARATOR: Final = "\x1f"
"""Between schema and name in the keys of pages."""


@dataclass(frozen=True, slots=True)
class NewView:
    """A materialized view to make.

    Attributes:
        properties: of its table.
        replaces: name of the materialized view that is dropped once this one is there, so that it can be no source.

    """

    namespace: Namespace
    name: str
    query: MaterializedQuery
    schedule: Schedule
    properties: dict[str, str]
    replaces: str | None = None


def create_view(services: Services, new: NewView, limits: QueryLimits | None = None) -> MaterializedView:
    """Create a materialized view with its first contents, in one commit. The caller is its definer.

    Raises:
        AlreadyExistsError, NoSuchNamespaceError.
        NoSuchTableError: a source isn't there, or the view that it replaces.
        ForbiddenError: the caller may not read a source, or policies guard one.
        InvalidRequestError: the query fails, isn't one SELECT, isn't deterministic, has columns that no table keeps, or
            reads the view that it replaces.
        UnavailableError: there is no room, or the process was ended.

    """
    services.database.gate.require_open()

    def act() -> MaterializedView:
        began = monotonic()
        with services.database.reading() as cursor:
            check_name_free(cursor, to_schema_name(new.namespace), new.name)
        replaced_id = _find_replaced_id(services, new)
        with open_process(services, choose_limits(services, limits)) as process:
            return _create(services, new, process, began, replaced_id)

    return services.run_once(act, lambda _: find_view(services, new.namespace, new.name))


def _find_replaced_id(services: Services, new: NewView) -> int | None:
    """Find the table of the view that a new one replaces. Raises NoSuchTableError, ForbiddenError."""
    if new.replaces is None:
        return None
    principal = services.caller.principal
    if not principal.may(Capability.READ, new.namespace, new.replaces):
        raise build_refusal(new.namespace, new.replaces, principal)
    return find_view(services, new.namespace, new.replaces).table_id


def _create(
    services: Services, new: NewView, process: ContentProcess, began: float, replaced_id: int | None
) -> MaterializedView:
    began_ms = services.clock()
    with services.database.reading() as cursor:
        newest, time = view_rows.read_newest_snapshot(cursor)
        resolved = resolve_query(services, cursor, process.process, new.query, newest, replaced_id, is_new=True)
    process.reach(services, list_places(resolved))
    request = CreateTableRequest(name=new.name, schema_=process.describe(resolved.tree), properties=new.properties)
    metadata = tables.build_first_metadata(services, new.namespace, request)
    sources = find_source_states(services, resolved, newest)
    record = RefreshRecord(newest, time, sources, resolved.digest, "whole", "created")
    upload = SnapshotUpload(services, metadata)
    with discard_on_error(services, upload.paths):
        contents = ContentUpload(upload)
        schema = metadata.schema()
        contents.add_files(process.write([resolved.tree], write_select(schema), HOLE, schema))
        snapshot = contents.build_snapshot(None, describe_state(record, began_ms), is_append=True)
        record = replace(record, rows_written=contents.rows, seconds=monotonic() - began)
        _commit(services, new, resolved, record, list_creation(metadata, snapshot))
    return find_view(services, new.namespace, new.name)


def _commit(
    services: Services,
    new: NewView,
    resolved: ResolvedQuery,
    record: RefreshRecord,
    updates: tuple[TableUpdate, ...],
) -> None:
    """Commit table, contents and definition in one transaction."""
    query = replace(new.query, names=resolved.names)
    touched = build_touched(new.namespace, new.name, {"rows": record.rows_written})

    def settle(cursor: Transaction, written: Sequence[WrittenCommit]) -> None:
        (made,) = written
        definer = describe_definer(services.caller.principal)
        view_rows.insert_view(cursor, made.table_id, query, definer, new.schedule, made.snapshots[-1], record)
        services.own_new(cursor, [touched])
        services.settle(cursor, [replace(touched, table_id=made.table_id)], [made.table_id])

    planner = replace(services, caller=SERVER_CALLER, once=None)
    request = CommitTableRequest(requirements=(AssertCreate(),), updates=updates)
    (done,) = commit_all(planner, [TableCommit(new.namespace, new.name, request)], settle)
    render_version(services, done)


def describe_definer(principal: Principal) -> Definer:
    """Describe with whose rights a view of a principal reads."""
    owner = None if principal.rights is None else principal.rights.owner_id
    scopes = tuple(map(format_scope, principal.grants))
    return Definer(principal.name, principal.principal_id or owner, scopes, principal.groups)


def list_views(services: Services, namespace: Namespace | None, page: PageRequest) -> ListPage[MaterializedView]:
    """List the materialized views that the caller may read, of a namespace or of the lake. NoSuchNamespaceError."""
    schema_name = None if namespace is None else to_schema_name(namespace)
    after_schema, _, after_name = page.after.partition(_SEPARATOR)
    with services.database.reading() as cursor:
        if schema_name is not None and not has_namespace(cursor, schema_name):
            raise NoSuchNamespaceError(f"Namespace does not exist: {schema_name}")
        found = view_rows.read_views(cursor, schema_name, after=(after_schema, after_name), limit=page.fetch)
    principal = services.caller.principal
    cut = cut_page(found, page, lambda view: f"{to_schema_name(view.namespace)}{_SEPARATOR}{view.name}")
    seen = (view for view in cut.items if principal.may(Capability.READ, view.namespace, view.name))
    return replace(cut, items=tuple(seen))


def schedule_view(services: Services, namespace: Namespace, name: str, schedule: Schedule) -> MaterializedView:
    """Set when a view is refreshed by itself. NoSuchTableError."""
    view = find_view(services, namespace, name)

    def act() -> None:
        with services.database.transaction() as cursor:
            view_rows.change_schedule(cursor, view.table_id, schedule)
            services.settle(cursor, [build_touched(namespace, name)])

    services.run_once(act, lambda _: None)
    return find_view(services, namespace, name)


def drop_view(services: Services, namespace: Namespace, name: str, *, purge: bool) -> None:
    """Drop a materialized view with its table, which undrop brings back as the view it was. NoSuchTableError."""
    find_view(services, namespace, name)
    tables.drop_table(services, namespace, name, purge)
