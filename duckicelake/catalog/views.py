"""Views of the REST catalog: list, create, load, commit, drop, rename, register."""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

import orjson

from duckicelake.bridge.views import definition_after, definition_of, metadata_folder
from duckicelake.catalog.access.confinement import check_readable
from duckicelake.catalog.access.ownership import check_may_read, check_may_settle
from duckicelake.catalog.auditing import actions, touched
from duckicelake.catalog.commits.overtaken import until_written
from duckicelake.catalog.paging import Page, PageRequest, cut
from duckicelake.catalog.services import Services
from duckicelake.catalog.view_loading import CurrentView, current_view, no_such_view, written
from duckicelake.errors import NoSuchNamespace
from duckicelake.iceberg.apply_view import apply, new_view_metadata
from duckicelake.iceberg.metadata_file import MAX_BYTES
from duckicelake.iceberg.names import Namespace, full_name, schema_name
from duckicelake.iceberg.rest import (
    CommitViewRequest,
    CreateViewRequest,
    RegisterViewRequest,
    RenameTableRequest,
    TableIdentifier,
)
from duckicelake.iceberg.view import ViewMetadata, parse_view_metadata, read_view_metadata
from duckicelake.iceberg.view_updates import check
from duckicelake.lake import views as lake_views
from duckicelake.lake.audit import Touched
from duckicelake.lake.names import check_name_is_free
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lake.snapshots import retrying
from duckicelake.lake.views import ViewTarget

Loaded = tuple[str, Mapping[str, Any]]
"""Where a view's metadata is written, and what it says."""


def list_views(services: Services, namespace: Namespace, page: PageRequest) -> Page[str]:
    """The names of a namespace's views, in code point order; NoSuchNamespace."""
    with services.database.reading() as cursor:
        names = lake_views.view_names(cursor, schema_name(namespace), page.after, page.fetch)
        if names is None:
            raise NoSuchNamespace(f"Namespace does not exist: {schema_name(namespace)}")
    return cut(names, page, lambda name: name)


def create_view(services: Services, namespace: Namespace, request: CreateViewRequest) -> bytes:
    """Create a view; the answer to give. AlreadyExists, NoSuchNamespace, InvalidRequest."""
    return _answer(services.run_once(lambda: _create(services, namespace, request), _again))


def register_view(services: Services, namespace: Namespace, request: RegisterViewRequest) -> bytes:
    """Make a view of a metadata.json that exists, which stays its metadata file; the answer to give.

    Raises AlreadyExists, NoSuchNamespace, FileMissing, and InvalidRequest for a file that isn't one or lies elsewhere.
    """
    return _answer(services.run_once(lambda: _register(services, namespace, request), _again))


def load_view(services: Services, namespace: Namespace, name: str) -> bytes:
    """The answer that holds the view as it is now; NoSuchView."""
    row = current_view(services, namespace, name).row
    return _answer((row.metadata_location, row.metadata))


def view_exists(services: Services, namespace: Namespace, name: str) -> None:
    """NoSuchView unless the view exists."""
    with services.database.reading() as cursor:
        if lake_views.find_view(cursor, schema_name(namespace), name) is None:
            raise no_such_view(namespace, name)


def commit_view(services: Services, namespace: Namespace, name: str, request: CommitViewRequest) -> bytes:
    """Apply the updates if the requirements hold, again if others were faster; the answer to give.

    Raises NoSuchView, CommitFailed, InvalidRequest.
    """
    return _answer(services.run_once(lambda: _commit(services, namespace, name, request), _again))


def drop_view(services: Services, namespace: Namespace, name: str) -> None:
    """Drop the view; NoSuchView. Its metadata files stay."""

    def drop(cursor: Transaction) -> None:
        if not lake_views.drop_view(cursor, schema_name(namespace), name):
            raise no_such_view(namespace, name)

    services.run_once(lambda: _write(services, drop, touched(namespace, name)), lambda _: None)


def rename_view(services: Services, request: RenameTableRequest) -> None:
    """Rename a view or move it to another namespace; its files stay where they are.

    Raises NoSuchView, NoSuchNamespace, AlreadyExists.
    """
    source, destination = request.source, request.destination
    renamed = touched(source.namespace, source.name, {"to": full_name(destination.namespace, destination.name)})

    def rename(cursor: Transaction) -> None:
        if not lake_views.rename_view(cursor, _full_name(source), _full_name(destination)):
            raise no_such_view(source.namespace, source.name)

    def leave() -> None:
        view_exists(services, source.namespace, source.name)
        services.settle_unchanged([renamed])

    act = leave if source == destination else lambda: _write(services, rename, renamed)
    services.run_once(act, lambda _: None)


def _create(services: Services, namespace: Namespace, request: CreateViewRequest) -> Loaded:
    _check_absent(services, namespace, request.name)
    view_uuid = str(uuid4())
    location = request.location or services.policy.table_location(namespace, request.name, view_uuid)
    metadata = new_view_metadata(
        view_uuid=view_uuid,
        location=location.rstrip("/"),
        schema=request.schema_,
        version=request.view_version,
        properties=request.properties,
        now_ms=services.clock(),
    )
    _check_places(services, metadata)
    return _write_new(services, namespace, request.name, metadata, written(services, metadata, None))


def _register(services: Services, namespace: Namespace, request: RegisterViewRequest) -> Loaded:
    location = request.metadata_location
    check_readable(services, location, services.policy.data_zone)
    check_may_read(services, [location])
    _check_absent(services, namespace, request.name)
    metadata = read_view_metadata(services.store.read(location, MAX_BYTES), location)
    _check_places(services, metadata)
    target = ViewTarget(metadata.to_json(), location, metadata.current_version_id, definition_of(metadata))
    return _write_new(services, namespace, request.name, metadata, target, {"from": location})


def _check_places(services: Services, metadata: ViewMetadata, base: ViewMetadata | None = None) -> None:
    """Check the places that a client gives a view; InvalidRequest, Forbidden."""
    before = set() if base is None else {base.location, metadata_folder(base)}
    for place in {metadata.location, metadata_folder(metadata)} - before:
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
    def create(cursor: Transaction) -> None:
        lake_views.create_view(cursor, schema_name(namespace), name, metadata.view_uuid, target)

    loaded = (target.metadata_location, target.metadata)
    _write(services, create, touched(namespace, name, detail), loaded)
    return loaded


def _commit(services: Services, namespace: Namespace, name: str, request: CommitViewRequest) -> Loaded:
    def attempt(_: bool) -> Loaded:
        current = current_view(services, namespace, name)
        base = parse_view_metadata(current.row.metadata)
        check(request.requirements, base)
        metadata = apply(base, request.updates, services.clock())
        return _commit_over(services, current, base, metadata, touched(namespace, name, actions(request.updates)))

    return until_written(services, full_name(namespace, name), attempt)


def _commit_over(
    services: Services, current: CurrentView, base: ViewMetadata, metadata: ViewMetadata, view: Touched
) -> Loaded:
    """Commit the metadata over that which it was computed from; StaleBase if somebody was faster."""
    if metadata is base:
        loaded = (current.row.metadata_location, current.row.metadata)
        services.settle_unchanged([view], loaded)
        return loaded
    _check_places(services, metadata, base)
    before = current.row.definition
    target = written(services, metadata, current.row, definition_after(before, base, metadata))
    redefined = target.definition != before or metadata.current_version_id != base.current_version_id

    def change(cursor: Transaction) -> None:
        lake_views.change_view(cursor, current.row, current.lake, target, redefined=redefined)

    loaded = (target.metadata_location, target.metadata)
    _write(services, change, view, loaded)
    return loaded


def _write(services: Services, act: Callable[[Transaction], None], view: Touched, result: Loaded | None = None) -> None:
    """Run the act in one transaction, again while it loses to DuckDB; the request is done with it."""

    def attempt() -> None:
        with services.database.transaction() as cursor:
            act(cursor)
            services.settle(cursor, [view], result)

    retrying(attempt)


def _check_absent(services: Services, namespace: Namespace, name: str) -> None:
    with services.database.reading() as cursor:
        check_name_is_free(cursor, schema_name(namespace), name, "View")


def _again(result: list[Any]) -> Loaded:
    """What the request was settled with, as it comes back from JSON."""
    location, metadata = result
    return location, metadata


def _answer(loaded: Loaded) -> bytes:
    location, metadata = loaded
    return orjson.dumps({"metadata-location": location, "metadata": metadata, "config": {}})


def _full_name(identifier: TableIdentifier) -> tuple[str, str]:
    return schema_name(identifier.namespace), identifier.name
