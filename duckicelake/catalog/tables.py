"""Tables of the REST catalog: list, create, load, commit, drop, rename; multi-table transactions."""

from collections import Counter
from functools import partial
from uuid import uuid4

import orjson

from duckicelake.catalog.authz.commit_rights import check_commit, check_move
from duckicelake.catalog.authz.locations import check_table_places
from duckicelake.catalog.authz.table_folders import find_new_table_folders, find_table_folders
from duckicelake.catalog.clone import CloneRequest
from duckicelake.catalog.clone import clone_table as clone
from duckicelake.catalog.commit import run as commits
from duckicelake.catalog.commit.append import commit_or_append
from duckicelake.catalog.commit.apply import TableCommit
from duckicelake.catalog.commit.guards import lift_quietly, shares_files
from duckicelake.catalog.commit.run import commit_all, retry_on_conflict
from duckicelake.catalog.context.audit_notes import build_touched
from duckicelake.catalog.context.cache import LoadedTable, TableVersion
from duckicelake.catalog.context.caller import Capability, build_refusal
from duckicelake.catalog.context.page import ListPage, PageRequest, cut_page
from duckicelake.catalog.context.privileges import Privilege
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.delegation import (
    NO_ACCESS_REQUEST,
    NO_DELEGATION,
    AccessRequest,
    Delegated,
    DelegationQuery,
    grant_delegation,
    limit_request,
)
from duckicelake.catalog.load_response import ALL, TableLoad, build_response, commit_response, load_response
from duckicelake.catalog.registration import ForeignTableContent
from duckicelake.catalog.registration import check_registration as check_foreign
from duckicelake.catalog.registration import register_table as register
from duckicelake.catalog.registration import unregister_table as unregister
from duckicelake.catalog.table.load import (
    TableCheck,
    load_committed_before,
    load_current_table,
    read_freshness,
    renew_caller,
)
from duckicelake.catalog.views import filter_names
from duckicelake.errors import InvalidRequestError, NoSuchNamespaceError, NoSuchTableError, UnavailableError
from duckicelake.iceberg.identifiers import Namespace, format_full_name, to_schema_name
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.metadata_builder import DEFAULT_FORMAT_VERSION, build_new_table_metadata
from duckicelake.iceberg.rest import (
    CommitTableRequest,
    CommitTransactionRequest,
    CreateTableRequest,
    RegisterTableRequest,
    RenameTableRequest,
    TableIdentifier,
)
from duckicelake.lake.ducklake.schemas import check_name_free
from duckicelake.lake.ducklake.snapshots import retry_transaction
from duckicelake.lake.side_tables import locations
from duckicelake.lake.writer import tables as lake_tables
from duckicelake.properties import check_properties


def commit_transaction(services: Services, request: CommitTransactionRequest) -> None:
    """Commit all changes in one transaction; each table's metadata files are written when it is next loaded.

    Raises NoSuchTableError, CommitFailedError if any requirement doesn't hold, InvalidRequestError, UnsupportedError;
    then nothing changed.
    """
    commits = []
    for number, change in enumerate(request.table_changes):
        if change.identifier is None:
            raise InvalidRequestError(f"table-changes[{number}] has no identifier: say which table it changes")
        commits.append(TableCommit(change.identifier.namespace, change.identifier.name, change))
    for (namespace, name), times in Counter((commit.namespace, commit.name) for commit in commits).items():
        if times > 1:
            raise InvalidRequestError(
                f"{format_full_name(namespace, name)} is changed {times} times: put all its updates in one"
            )
    for commit in commits:
        check_commit(services.caller.principal, commit.namespace, commit.name, commit.request)
    services.run_once(lambda: commit_all(services, commits), lambda _: [])


def list_tables(services: Services, namespace: Namespace, page: PageRequest) -> ListPage[str]:
    """Return the names of a namespace's tables, in code point order; NoSuchNamespaceError."""
    with services.database.reading() as cursor:
        names = lake_tables.read_table_names(cursor, to_schema_name(namespace), page.after, page.fetch)
        if names is None:
            raise NoSuchNamespaceError(f"Namespace does not exist: {to_schema_name(namespace)}")
    return filter_names(services, namespace, cut_page(names, page, lambda name: name))


def create_table(
    services: Services, namespace: Namespace, request: CreateTableRequest, wish: AccessRequest = NO_ACCESS_REQUEST
) -> LoadedTable:
    """Create a table, or with stage-create only say what its metadata will be.

    Raises AlreadyExistsError, NoSuchNamespaceError, InvalidRequestError, UnsupportedError.
    """
    if request.stage_create:
        staged = build_first_metadata(services, namespace, request)
        access = grant_delegation(
            services,
            wish,
            DelegationQuery(namespace, request.name, find_new_table_folders(staged), prefix=services.prefix),
        )
        answer = {"metadata": staged.to_json(), "config": access.config, **access.members}
        return LoadedTable((orjson.dumps(answer),), None)
    created = services.run_once(
        lambda: commits.create_from(
            services, namespace, request.name, build_first_metadata(services, namespace, request)
        ),
        partial(load_committed_before, services),
    )
    return _load_response(created, _access_after(services, wish, namespace, request.name, created))


def load_table(
    services: Services,
    namespace: Namespace,
    name: str,
    snapshots: str = ALL,
    wish: AccessRequest = NO_ACCESS_REQUEST,
    check: TableCheck | None = None,
) -> LoadedTable:
    """Load a table with all its snapshots, or only those that refs name.

    `check` is what Postgres answered about this table during this request; None asks Postgres.

    Raises:
        NoSuchTableError, DamagedTableError.

    """
    table = load_current_table(services, namespace, name, check)
    services = renew_caller(services, table.row.table_id)
    caller = services.caller
    wish = limit_request(caller.principal, wish)
    request = TableLoad(caller.principal, caller.address, wish, (to_schema_name(namespace), name), snapshots)
    return load_response(services, table, request, _access(services, wish, namespace, name, table))


def commit_table(services: Services, namespace: Namespace, name: str, request: CommitTableRequest) -> LoadedTable:
    """Apply the updates if the requirements hold; the answer is written to the store before it is given.

    Raises NoSuchTableError, CommitFailedError, InvalidRequestError, UnsupportedError, CommitStateUnknownError.
    """
    _check_addressee(request, namespace, name)
    check_commit(services.caller.principal, namespace, name, request)
    committed = services.run_once(
        lambda: commit_or_append(services, TableCommit(namespace, name, request)),
        partial(load_committed_before, services),
    )
    return commit_response(committed)


def register_table(
    services: Services, namespace: Namespace, request: RegisterTableRequest, wish: AccessRequest = NO_ACCESS_REQUEST
) -> LoadedTable:
    """Make a table of another catalog's metadata.json; its files stay where they are.

    Raises AlreadyExistsError, NoSuchNamespaceError, FileMissingError, InvalidRequestError, UnsupportedError.
    """
    _check_may_overwrite(services, namespace, request)
    location = request.metadata_location
    registered = services.run_once(
        lambda: register(services, namespace, request.name, location, overwrite=request.overwrite),
        partial(load_committed_before, services),
    )
    return _load_response(registered, _access_after(services, wish, namespace, request.name, registered))


def check_registration(services: Services, namespace: Namespace, request: RegisterTableRequest) -> ForeignTableContent:
    """Read all that `register_table` would read, and write nothing; raises what that raises."""
    _check_may_overwrite(services, namespace, request)
    return check_foreign(services, namespace, request.name, request.metadata_location, overwrite=request.overwrite)


def _check_may_overwrite(services: Services, namespace: Namespace, request: RegisterTableRequest) -> None:
    principal = services.caller.principal
    if request.overwrite and not principal.may(Capability.WRITE, namespace, request.name, Privilege.DROP):
        raise build_refusal(namespace, request.name, principal)


def clone_table(
    services: Services, namespace: Namespace, name: str, request: CloneRequest, wish: AccessRequest = NO_ACCESS_REQUEST
) -> LoadedTable:
    """Make a table over another's files; raises as `clone` does."""
    made = clone(services, namespace, name, request)
    return _load_response(made, _access_after(services, wish, namespace, name, made))


def unregister_table(services: Services, namespace: Namespace, name: str) -> bytes:
    """Give the table up to another catalog; where its last metadata.json is, and what that says. NoSuchTableError."""
    given_up = services.run_once(
        lambda: unregister(services, namespace, name), partial(load_committed_before, services)
    )
    return commit_response(given_up).body


def table_exists(services: Services, namespace: Namespace, name: str) -> None:
    """Raise NoSuchTableError unless the table exists."""
    read_freshness(services, (to_schema_name(namespace), name))


def drop_table(services: Services, namespace: Namespace, name: str, purge: bool) -> None:
    """Drop the table; without purge its files stay for good, with purge they go with DuckDB's next cleanup."""

    def drop() -> None:
        with services.database.transaction() as cursor:
            if not lake_tables.drop_table(cursor, to_schema_name(namespace), name, purge=purge):
                raise NoSuchTableError(f"Table does not exist: {format_full_name(namespace, name)}")
            services.settle(cursor, [build_touched(namespace, name, {"purge": purge})])

    had_shared = shares_files(services, namespace, name)
    called = format_full_name(namespace, name)
    services.run_once(lambda: retry_on_conflict(services, called, lambda _: retry_transaction(drop)), lambda _: None)
    if had_shared:
        lift_quietly(services)


def rename_table(services: Services, request: RenameTableRequest) -> None:
    """Rename a table or move it to another namespace; its files stay where they are.

    Raises NoSuchTableError, NoSuchNamespaceError, AlreadyExistsError.
    """
    source, destination = request.source, request.destination
    places = ((source.namespace, source.name), (destination.namespace, destination.name))
    check_move(services.caller.principal, *places)
    renamed = build_touched(
        source.namespace, source.name, {"to": format_full_name(destination.namespace, destination.name)}
    )

    def rename() -> None:
        with services.database.transaction() as cursor:
            if not lake_tables.rename_table(cursor, _full_name(source), _full_name(destination)):
                raise NoSuchTableError(f"Table does not exist: {format_full_name(source.namespace, source.name)}")
            services.settle(cursor, [renamed])

    services.run_once(lambda: retry_transaction(rename), lambda _: None)


def _check_addressee(request: CommitTableRequest, namespace: Namespace, name: str) -> None:
    named = request.identifier
    if named is not None and (named.namespace, named.name) != (namespace, name):
        raise InvalidRequestError(
            f"The request goes to table {format_full_name(namespace, name)}, but its identifier "
            f"is {format_full_name(named.namespace, named.name)}"
        )


def _check_absent(services: Services, namespace: Namespace, name: str) -> None:
    with services.database.reading() as cursor:
        check_name_free(cursor, to_schema_name(namespace), name)


def build_first_metadata(services: Services, namespace: Namespace, request: CreateTableRequest) -> TableMetadata:
    """Build the metadata of a table that isn't there yet.

    Raises AlreadyExistsError, NoSuchNamespaceError, InvalidRequestError, UnsupportedError.
    """
    _check_absent(services, namespace, request.name)
    table_uuid = uuid4()
    location = request.location or services.policy.table_location(namespace, request.name, table_uuid)
    metadata = build_new_table_metadata(
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


def _access(services: Services, wish: AccessRequest, namespace: Namespace, name: str, table: TableVersion) -> Delegated:
    if not wish or services.access.gives_nothing:
        return NO_DELEGATION
    return grant_delegation(
        services,
        wish,
        DelegationQuery(namespace, name, find_table_folders(services, table), table.row.table_id, services.prefix),
    )


def _access_after(
    services: Services, wish: AccessRequest, namespace: Namespace, name: str, table: TableVersion
) -> Delegated:
    """Check access as `_access` does, but answer an existing table even if its client must load it again for keys.

    There are none for a table that the request made long ago, if it has moved or was dropped since.
    """
    if wish and services.once is not None:
        with services.database.reading() as cursor:
            if locations.read_last_name(cursor, table.row.table_id) != (to_schema_name(namespace), name, True):
                return NO_DELEGATION
    try:
        return _access(services, wish, namespace, name, table)
    except UnavailableError:
        return NO_DELEGATION


def _load_response(table: TableVersion, access: Delegated) -> LoadedTable:
    return build_response(table, table.body, ALL, access)


def _full_name(identifier: TableIdentifier) -> tuple[str, str]:
    return to_schema_name(identifier.namespace), identifier.name
