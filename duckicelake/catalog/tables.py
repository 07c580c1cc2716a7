"""Tables of the REST catalog: list, create, load, commit, drop, rename."""

from functools import partial
from uuid import uuid4

import orjson

from duckicelake.bridge.table_properties import check_properties
from duckicelake.catalog.access.delegation import NO_WISH, NOTHING, Asking, Delegated, Wish, delegated
from duckicelake.catalog.access.ownership import check_table_places
from duckicelake.catalog.access.table_folders import new_table_folders, table_folders
from duckicelake.catalog.auditing import touched
from duckicelake.catalog.clone import CloneRequest
from duckicelake.catalog.clone import clone_table as clone
from duckicelake.catalog.commits import committing as commits
from duckicelake.catalog.commits.appends import commit_or_append
from duckicelake.catalog.commits.attempts import TableCommit
from duckicelake.catalog.commits.overtaken import until_written
from duckicelake.catalog.files.guards import lift_quietly, shares_files
from duckicelake.catalog.loads.answers import ALL, asking_of, etag, keep_told, loaded, metadata_of, named
from duckicelake.catalog.loads.cache import LoadedTable, Materialized
from duckicelake.catalog.loads.loading import committed_before, current_table, freshness
from duckicelake.catalog.paging import Page, PageRequest, cut
from duckicelake.catalog.registration import register_table as register
from duckicelake.catalog.registration import unregister_table as unregister
from duckicelake.catalog.services import Services
from duckicelake.errors import InvalidRequest, NoSuchNamespace, NoSuchTable, Unavailable
from duckicelake.iceberg.apply import DEFAULT_FORMAT_VERSION, new_table_metadata
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.names import Namespace, full_name, schema_name
from duckicelake.iceberg.rest import (
    CommitTableRequest,
    CreateTableRequest,
    RegisterTableRequest,
    RenameTableRequest,
    TableIdentifier,
)
from duckicelake.lake import ownership
from duckicelake.lake import tables as lake_tables
from duckicelake.lake.names import check_name_is_free
from duckicelake.lake.snapshots import retrying


def list_tables(services: Services, namespace: Namespace, page: PageRequest) -> Page[str]:
    """The names of a namespace's tables, in code point order; NoSuchNamespace."""
    with services.database.reading() as cursor:
        names = lake_tables.table_names(cursor, schema_name(namespace), page.after, page.fetch)
        if names is None:
            raise NoSuchNamespace(f"Namespace does not exist: {schema_name(namespace)}")
    return cut(names, page, lambda name: name)


def create_table(
    services: Services, namespace: Namespace, request: CreateTableRequest, wish: Wish = NO_WISH
) -> LoadedTable:
    """Create a table, or with stage-create only say what its metadata will be.

    Raises AlreadyExists, NoSuchNamespace, InvalidRequest, Unsupported.
    """
    if request.stage_create:
        staged = _first_metadata(services, namespace, request)
        access = delegated(services, wish, Asking(namespace, request.name, new_table_folders(staged)))
        answer = {"metadata": staged.to_json(), "config": access.config, **access.members}
        return LoadedTable((orjson.dumps(answer),), None)
    created = services.run_once(
        lambda: commits.create_from(services, namespace, request.name, _first_metadata(services, namespace, request)),
        partial(committed_before, services),
    )
    return _loaded(created, _access_after(services, wish, namespace, request.name, created))


def load_table(
    services: Services, namespace: Namespace, name: str, snapshots: str = ALL, wish: Wish = NO_WISH
) -> LoadedTable:
    """The table with all its snapshots, or only those that refs name; NoSuchTable."""
    table = current_table(services, namespace, name)
    metadata = metadata_of(services, table, snapshots)
    given = _access(services, wish, namespace, name, table.materialized)
    answer = loaded(table.materialized, metadata, snapshots, given)
    who, named_as = services.caller, (schema_name(namespace), name)
    asking = asking_of(services, who.principal, who.address, wish, named_as, snapshots)
    return keep_told(services, table, asking, answer, given)


def commit_table(services: Services, namespace: Namespace, name: str, request: CommitTableRequest) -> LoadedTable:
    """Apply the updates if the requirements hold; the answer is written to the store before it is given.

    Raises NoSuchTable, CommitFailed, InvalidRequest, Unsupported, CommitStateUnknown.
    """
    _check_addressee(request, namespace, name)
    committed = services.run_once(
        lambda: commit_or_append(services, TableCommit(namespace, name, request)), partial(committed_before, services)
    )
    return LoadedTable(named(committed), etag(committed, ALL))


def register_table(
    services: Services, namespace: Namespace, request: RegisterTableRequest, wish: Wish = NO_WISH
) -> LoadedTable:
    """Make a table of another catalog's metadata.json; its files stay where they are.

    Raises AlreadyExists, NoSuchNamespace, FileMissing, InvalidRequest, Unsupported.
    """
    location = request.metadata_location
    registered = services.run_once(
        lambda: register(services, namespace, request.name, location, overwrite=request.overwrite),
        partial(committed_before, services),
    )
    return _loaded(registered, _access_after(services, wish, namespace, request.name, registered))


def clone_table(
    services: Services, namespace: Namespace, name: str, request: CloneRequest, wish: Wish = NO_WISH
) -> LoadedTable:
    """Make a table over another's files; raises as `clone` does."""
    made = clone(services, namespace, name, request)
    return _loaded(made, _access_after(services, wish, namespace, name, made))


def unregister_table(services: Services, namespace: Namespace, name: str) -> bytes:
    """Give the table up to another catalog; where its last metadata.json is, and what that says. NoSuchTable."""
    given_up = services.run_once(lambda: unregister(services, namespace, name), partial(committed_before, services))
    return b"".join(named(given_up))


def table_exists(services: Services, namespace: Namespace, name: str) -> None:
    """NoSuchTable unless the table exists."""
    freshness(services, namespace, name)


def drop_table(services: Services, namespace: Namespace, name: str, purge: bool) -> None:
    """Drop the table; without purge its files stay for good, with purge they go with DuckDB's next cleanup."""

    def drop() -> None:
        with services.database.transaction() as cursor:
            if not lake_tables.drop_table(cursor, schema_name(namespace), name, purge=purge):
                raise NoSuchTable(f"Table does not exist: {full_name(namespace, name)}")
            services.settle(cursor, [touched(namespace, name, {"purge": purge})])

    had_shared = shares_files(services, namespace, name)
    called = full_name(namespace, name)
    services.run_once(lambda: until_written(services, called, lambda _: retrying(drop)), lambda _: None)
    if had_shared:
        lift_quietly(services)


def rename_table(services: Services, request: RenameTableRequest) -> None:
    """Rename a table or move it to another namespace; its files stay where they are.

    Raises NoSuchTable, NoSuchNamespace, AlreadyExists.
    """
    source, destination = request.source, request.destination
    renamed = touched(source.namespace, source.name, {"to": full_name(destination.namespace, destination.name)})

    def rename() -> None:
        with services.database.transaction() as cursor:
            if not lake_tables.rename_table(cursor, _full_name(source), _full_name(destination)):
                raise NoSuchTable(f"Table does not exist: {full_name(source.namespace, source.name)}")
            services.settle(cursor, [renamed])

    services.run_once(lambda: retrying(rename), lambda _: None)


def _check_addressee(request: CommitTableRequest, namespace: Namespace, name: str) -> None:
    named = request.identifier
    if named is not None and (named.namespace, named.name) != (namespace, name):
        raise InvalidRequest(
            f"The request goes to table {full_name(namespace, name)}, but its identifier "
            f"is {full_name(named.namespace, named.name)}"
        )


def _check_absent(services: Services, namespace: Namespace, name: str) -> None:
    with services.database.reading() as cursor:
        check_name_is_free(cursor, schema_name(namespace), name)


def _first_metadata(services: Services, namespace: Namespace, request: CreateTableRequest) -> TableMetadata:
    """The metadata of a table that isn't there yet; AlreadyExists, NoSuchNamespace, InvalidRequest, Unsupported."""
    _check_absent(services, namespace, request.name)
    table_uuid = uuid4()
    location = request.location or services.policy.table_location(namespace, request.name, table_uuid)
    metadata = new_table_metadata(
        table_uuid=str(table_uuid),
        location=location.rstrip("/"),
        schema=request.schema_,
        spec=request.partition_spec,
        sort_order=request.write_order,
        properties=request.properties,
        format_version=DEFAULT_FORMAT_VERSION,
        now_ms=services.clock(),
    )
    check_properties(metadata.properties)
    check_table_places(services, metadata.location, metadata.properties, None, None)
    return metadata


def _access(services: Services, wish: Wish, namespace: Namespace, name: str, table: Materialized) -> Delegated:
    if not wish or services.access.gives_nothing:
        return NOTHING
    return delegated(services, wish, Asking(namespace, name, table_folders(services, table), table.row.table_id))


def _access_after(services: Services, wish: Wish, namespace: Namespace, name: str, table: Materialized) -> Delegated:
    """As `_access`, but a table that is there is told of, even if its client must load it again for the keys.

    There are none for a table that the request made long ago, if it has moved or was dropped since.
    """
    if wish and services.once is not None:
        with services.database.reading() as cursor:
            if ownership.name_of(cursor, table.row.table_id) != (schema_name(namespace), name, True):
                return NOTHING
    try:
        return _access(services, wish, namespace, name, table)
    except Unavailable:
        return NOTHING


def _loaded(table: Materialized, access: Delegated) -> LoadedTable:
    return loaded(table, table.body, ALL, access)


def _full_name(identifier: TableIdentifier) -> tuple[str, str]:
    return schema_name(identifier.namespace), identifier.name
