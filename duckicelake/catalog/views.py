"""Views of the REST catalog: load, catch up, list, create, commit, drop, rename, register."""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import uuid4

import orjson

from duckicelake.bridge.labels import build_view_labels
from duckicelake.bridge.views import (
    build_first_view_metadata,
    build_next_view_definition,
    build_view_definition,
    encode_view_metadata,
    get_view_metadata_folder,
    redefine_view,
)
from duckicelake.catalog.authz.commit_rights import check_move
from duckicelake.catalog.authz.definers import LoanChange, StoredView, begin_loan, check_loan, end_loans
from duckicelake.catalog.authz.locations import check_may_read, check_may_settle, check_readable, write
from duckicelake.catalog.commit.run import retry_on_conflict
from duckicelake.catalog.context.audit_notes import build_touched, list_actions
from duckicelake.catalog.context.outside import Place, filter_seen
from duckicelake.catalog.context.page import ListPage, PageRequest, cut_page
from duckicelake.catalog.context.services import Services
from duckicelake.errors import CommitStateUnknownError, NoSuchNamespaceError, NoSuchViewError, UnavailableError
from duckicelake.iceberg.identifiers import Namespace, format_full_name, parse_schema_name, to_schema_name
from duckicelake.iceberg.metadata_file import MAX_METADATA_BYTES
from duckicelake.iceberg.rest import (
    CommitViewRequest,
    CreateViewRequest,
    RegisterViewRequest,
    RenameTableRequest,
    TableIdentifier,
)
from duckicelake.iceberg.updates import SetProperties
from duckicelake.iceberg.view import ViewMetadata, check_view_requirements, parse_view_metadata, read_view_metadata
from duckicelake.iceberg.view_builder import apply_view_updates, build_new_view_metadata
from duckicelake.lake.conflicts import StaleBaseError
from duckicelake.lake.ducklake import views
from duckicelake.lake.ducklake import views as lake_views
from duckicelake.lake.ducklake.schemas import check_name_free
from duckicelake.lake.ducklake.snapshots import retry_transaction
from duckicelake.lake.ducklake.view_columns import find_view_columns
from duckicelake.lake.ducklake.views import ViewTarget
from duckicelake.lake.model import LakeView, ObjectTag, ViewColumns, ViewDefinition
from duckicelake.lake.side_tables.audit import AuditedResource
from duckicelake.lake.state import ViewRow
from duckicelake.postgres.queries import Transaction
from duckicelake.properties import VIEW_SECURITY, check_protection

_MAX_NAMES: Final = 1000
"""Tables and views that a definer view may name, those of the views that it reads included."""
Loaded = tuple[str, Mapping[str, Any]]
"""Where a view's metadata is written, and what it says."""


@dataclass(frozen=True, slots=True)
class CurrentView:
    """A view whose side row says what DuckDB's row says, and whose metadata.json is written."""

    lake: LakeView
    row: ViewRow


def load_current_view(services: Services, namespace: Namespace, name: str) -> CurrentView:
    """Return the view as it is now, DuckDB's changes included; NoSuchViewError."""
    while True:
        with services.database.reading() as cursor:
            view = views.find_view(cursor, to_schema_name(namespace), name)
            if view is None:
                raise build_missing_view_error(namespace, name)
            row = views.read_view_row(cursor, view.view_id)
            if row is not None and row.view_id == view.view_id and row.definition == view.definition:
                return CurrentView(view, row)
            columns = find_view_columns(cursor, view)
        target = write_view(services, _take_over(services, view, row, columns), row, view.definition)
        try:
            with suppress(StaleBaseError):
                retry_transaction(partial(_adopt, services, row, view, target))
        except CommitStateUnknownError as error:  # what was written comes out the same the next time
            raise UnavailableError(f"The view could not be brought up to date; try again: {error}") from error


def _adopt(services: Services, row: ViewRow | None, view: LakeView, target: ViewTarget) -> None:
    with services.database.transaction() as cursor:
        views.adopt_view(cursor, row, view, target)


def build_missing_view_error(namespace: Namespace, name: str) -> NoSuchViewError:
    """Return the error, in Iceberg's words."""
    return NoSuchViewError(f"View does not exist: {format_full_name(namespace, name)}")


def write_view(
    services: Services, metadata: ViewMetadata, base: ViewRow | None, definition: ViewDefinition | None = None
) -> ViewTarget:
    """Return the view's next state, its metadata.json in the store: the file must exist before a client gets its name.

    InvalidRequestError if the view may not live where the metadata says.
    """
    services.policy.check_table_location(metadata.location)
    services.policy.check_table_location(get_view_metadata_folder(metadata))
    location, data = encode_view_metadata(metadata, 0 if base is None else base.version + 1)
    write(services, location, data)
    return ViewTarget(
        metadata.to_json(), location, metadata.current_version_id, definition or build_view_definition(metadata)
    )


def _take_over(services: Services, view: LakeView, row: ViewRow | None, known: ViewColumns) -> ViewMetadata:
    if row is not None:
        return redefine_view(parse_view_metadata(row.metadata), row.definition, view, known, services.trino_catalog)
    location = services.policy.table_location(parse_schema_name(view.schema_name), view.view_name, view.view_uuid)
    return build_first_view_metadata(view, known, location, services.trino_catalog)


def list_views(services: Services, namespace: Namespace, page: PageRequest) -> ListPage[str]:
    """Return the names of a namespace's views, in code point order; NoSuchNamespaceError."""
    with services.database.reading() as cursor:
        names = lake_views.read_view_names(cursor, to_schema_name(namespace), page.after, page.fetch)
        if names is None:
            raise NoSuchNamespaceError(f"Namespace does not exist: {to_schema_name(namespace)}")
    return filter_names(services, namespace, cut_page(names, page, lambda name: name))


def filter_names(services: Services, namespace: Namespace, found: ListPage[str]) -> ListPage[str]:
    """Leave out tables or views of a namespace that the caller may not see."""
    principal = services.caller.principal
    sees = partial(principal.sees_object, namespace)
    seen = filter_seen(principal.rights, found.items, lambda name: (namespace, name), sees)
    return ListPage(tuple(seen), found.next_token)


def create_view(services: Services, namespace: Namespace, request: CreateViewRequest) -> bytes:
    """Create a view; the answer to give. AlreadyExistsError, NoSuchNamespaceError, InvalidRequestError."""
    return _answer(services.run_once(lambda: _create(services, namespace, request), _parse_settled))


def register_view(services: Services, namespace: Namespace, request: RegisterViewRequest) -> bytes:
    """Make a view of a metadata.json that exists, which stays its metadata file; the answer to give.

    Raises AlreadyExistsError, NoSuchNamespaceError, FileMissingError, and InvalidRequestError for a file that isn't one
    or lies elsewhere.
    """
    return _answer(services.run_once(lambda: _register(services, namespace, request), _parse_settled))


def load_view(services: Services, namespace: Namespace, name: str) -> bytes:
    """Return the answer that holds the view as it is now; NoSuchViewError."""
    current = load_current_view(services, namespace, name)
    return _answer((current.row.metadata_location, current.row.metadata), current.lake.tags)


def view_exists(services: Services, namespace: Namespace, name: str) -> None:
    """Raise NoSuchViewError unless the view exists."""
    with services.database.reading() as cursor:
        if lake_views.find_view(cursor, to_schema_name(namespace), name) is None:
            raise build_missing_view_error(namespace, name)


def commit_view(services: Services, namespace: Namespace, name: str, request: CommitViewRequest) -> bytes:
    """Apply the updates if the requirements hold, again if others were faster; the answer to give.

    Raises NoSuchViewError, CommitFailedError, InvalidRequestError.
    """
    return _answer(services.run_once(lambda: _commit(services, namespace, name, request), _parse_settled))


def drop_view(services: Services, namespace: Namespace, name: str) -> None:
    """Drop the view; NoSuchViewError. Its metadata files stay."""

    def drop(cursor: Transaction) -> None:
        if not lake_views.drop_view(cursor, to_schema_name(namespace), name):
            raise build_missing_view_error(namespace, name)

    services.run_once(lambda: _write(services, drop, build_touched(namespace, name)), lambda _: None)


def rename_view(services: Services, request: RenameTableRequest) -> None:
    """Rename a view or move it to another namespace; its files stay where they are.

    Raises NoSuchViewError, NoSuchNamespaceError, AlreadyExistsError.
    """
    source, destination = request.source, request.destination
    check_move(services.caller.principal, _parse_place(source), _parse_place(destination))
    renamed = build_touched(
        source.namespace, source.name, {"to": format_full_name(destination.namespace, destination.name)}
    )

    def rename(cursor: Transaction) -> None:
        if not lake_views.rename_view(cursor, _full_name(source), _full_name(destination)):
            raise build_missing_view_error(source.namespace, source.name)

    def leave() -> None:
        view_exists(services, source.namespace, source.name)
        services.settle_unchanged([renamed])

    act = leave if source == destination else lambda: _write(services, rename, renamed)
    services.run_once(act, lambda _: None)


def _create(services: Services, namespace: Namespace, request: CreateViewRequest) -> Loaded:
    check_protection(request.properties)
    _check_absent(services, namespace, request.name)
    view_uuid = str(uuid4())
    location = request.location or services.policy.table_location(namespace, request.name, view_uuid)
    metadata = build_new_view_metadata(
        view_uuid=view_uuid,
        location=location.rstrip("/"),
        schema=request.schema_,
        version=request.view_version,
        properties=request.properties,
        now_ms=services.clock(),
    )
    _check_places(services, metadata)
    target = write_view(services, metadata, None)
    return _write_new(services, namespace, request.name, metadata, target)


def _register(services: Services, namespace: Namespace, request: RegisterViewRequest) -> Loaded:
    location = request.metadata_location
    check_readable(services, location, services.policy.data_zone)
    check_may_read(services, [location])
    _check_absent(services, namespace, request.name)
    metadata = read_view_metadata(services.store.read(location, MAX_METADATA_BYTES), location)
    _check_places(services, metadata)
    target = ViewTarget(metadata.to_json(), location, metadata.current_version_id, build_view_definition(metadata))
    return _write_new(services, namespace, request.name, metadata, target, {"from": location})


def _check_places(services: Services, metadata: ViewMetadata, base: ViewMetadata | None = None) -> None:
    """Check the places that a client gives a view; InvalidRequestError, ForbiddenError."""
    before = set() if base is None else {base.location, get_view_metadata_folder(base)}
    for place in {metadata.location, get_view_metadata_folder(metadata)} - before:
        services.policy.check_table_location(place)
        check_may_settle(services, place)


def _write_new(
    services: Services,
    namespace: Namespace,
    name: str,
    metadata: ViewMetadata,
    target: ViewTarget,
    detail: dict[str, str] | None = None,
) -> Loaded:
    loan = check_loan(services, (namespace, name), None, metadata, sets_mode=True)
    if loan is LoanChange.BEGINS:
        _load_nested_views(services, namespace, name, target)

    def create(cursor: Transaction) -> None:
        lake_views.create_view(cursor, to_schema_name(namespace), name, metadata.view_uuid, target)
        if loan is LoanChange.BEGINS:
            begin_loan(services, cursor, (namespace, name))
        services.own_new(cursor, [build_touched(namespace, name)])

    loaded = (target.metadata_location, target.metadata)
    _write(services, create, build_touched(namespace, name, detail), loaded)
    return loaded


def _commit(services: Services, namespace: Namespace, name: str, request: CommitViewRequest) -> Loaded:
    def attempt(_: bool) -> Loaded:
        current = load_current_view(services, namespace, name)
        base = parse_view_metadata(current.row.metadata)
        check_view_requirements(request.requirements, base)
        metadata = apply_view_updates(base, request.updates, services.clock())
        if metadata.properties != base.properties:
            check_protection(metadata.properties)
        sets_mode = any(isinstance(one, SetProperties) and VIEW_SECURITY in one.updates for one in request.updates)
        loan = check_loan(services, (namespace, name), base, metadata, sets_mode=sets_mode)
        touched = build_touched(namespace, name, list_actions(request.updates))
        return _commit_over(services, current, base, metadata, touched, (namespace, name), loan)

    return retry_on_conflict(services, format_full_name(namespace, name), attempt)


def _commit_over(
    services: Services,
    current: CurrentView,
    base: ViewMetadata,
    metadata: ViewMetadata,
    view: AuditedResource,
    place: Place,
    loan: LoanChange,
) -> Loaded:
    """Commit the metadata over that which it was computed from; StaleBaseError after a concurrent commit."""
    if metadata is base:
        loaded = (current.row.metadata_location, current.row.metadata)
        if loan is LoanChange.NONE:
            services.settle_unchanged([view], loaded)
        else:
            _write(services, partial(_change_loan, services, place, current.lake.view_id, loan), view, loaded)
        return loaded
    _check_places(services, metadata, base)
    before = current.row.definition
    target = write_view(services, metadata, current.row, build_next_view_definition(before, base, metadata))
    redefined = target.definition != before or metadata.current_version_id != base.current_version_id

    def change(cursor: Transaction) -> None:
        lake_views.change_view(cursor, current.row, current.lake, target, redefined=redefined)
        _change_loan(services, place, current.lake.view_id, loan, cursor)

    if loan is LoanChange.BEGINS:
        _load_nested_views(services, *place, target)
    loaded = (target.metadata_location, target.metadata)
    _write(services, change, view, loaded)
    return loaded


def _change_loan(services: Services, place: Place, view_id: int, loan: LoanChange, cursor: Transaction) -> None:
    if loan is LoanChange.BEGINS:
        begin_loan(services, cursor, place)
    elif loan is LoanChange.ENDS:
        end_loans(services, cursor, [view_id])


def _load_nested_views(services: Services, namespace: Namespace, name: str, target: ViewTarget) -> None:
    """Bring all views up to date that a definer view reads: what is written of them later would be a change."""
    own = LakeView(0, "", to_schema_name(namespace), name, 0, target.definition)
    waiting, seen = [*StoredView(own, target.metadata).find_sources()], {(namespace, name)}
    while waiting and len(seen) <= _MAX_NAMES:
        place = waiting.pop()
        if place not in seen:
            seen.add(place)
            with suppress(NoSuchViewError):
                current = load_current_view(services, *place)
                waiting.extend(StoredView(current.lake, current.row.metadata).find_sources())


def _write(
    services: Services, act: Callable[[Transaction], None], view: AuditedResource, result: Loaded | None = None
) -> None:
    """Run the act in one transaction, again while it loses to DuckDB; the request is done with it."""

    def attempt() -> None:
        with services.database.transaction() as cursor:
            act(cursor)
            services.settle(cursor, [view], result)

    retry_transaction(attempt)


def _check_absent(services: Services, namespace: Namespace, name: str) -> None:
    with services.database.reading() as cursor:
        check_name_free(cursor, to_schema_name(namespace), name, "View")


def _parse_settled(result: list[Any]) -> Loaded:
    """Return what the request was settled with, as it comes back from JSON."""
    location, metadata = result
    return location, metadata


def _answer(loaded: Loaded, tags: Collection[ObjectTag] = ()) -> bytes:
    location, metadata = loaded
    labels = build_view_labels(metadata, tags)
    members = {"metadata-location": location, "metadata": metadata, "config": {}}
    return orjson.dumps(members | {"labels": labels} if labels else members)


def _parse_place(identifier: TableIdentifier) -> tuple[Namespace, str]:
    return identifier.namespace, identifier.name


def _full_name(identifier: TableIdentifier) -> tuple[str, str]:
    return to_schema_name(identifier.namespace), identifier.name
