"""Rename a namespace, or move it below another one, with all that is in it and below it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final

from duckicelake.bridge.views import is_naming_schema
from duckicelake.catalog.authz.commit_rights import check_namespace_move
from duckicelake.catalog.context.audit_notes import build_touched
from duckicelake.catalog.context.caller import Capability
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.namespaces import (
    check_namespace_free,
    check_parents_flat,
    find_children,
    find_known_namespaces,
    require_namespace,
)
from duckicelake.errors import AlreadyExistsError, InvalidRequestError
from duckicelake.iceberg.identifiers import Namespace, check_namespace, parse_readable_namespace, to_schema_name
from duckicelake.lake.ducklake.database import build_nested_refusal
from duckicelake.lake.ducklake.moved_schemas import move_schemas, read_naming_views
from duckicelake.lake.ducklake.schemas import LiveSchema
from duckicelake.lake.ducklake.snapshots import begin_snapshot, retry_transaction
from duckicelake.lake.side_tables import grants

MAIN: Final[Namespace] = ("main",)
"""The namespace in which DuckDB's clients begin."""


@dataclass(frozen=True, slots=True)
class RenamedNamespace:
    """What moved in which DuckLake snapshot: schemas, tables, views.

    stale_views: full names (namespace and name, as they are now) of views whose queries name tables by the old name.
    """

    snapshot_id: int
    namespaces: int
    tables: int
    views: int
    stale_views: tuple[tuple[str, str], ...] = ()


def rename_namespace(services: Services, source: Namespace, destination: Namespace) -> RenamedNamespace:
    """Rename a namespace with all below it, in one DuckLake snapshot. Parents of the new name need not exist.

    Tables keep ids, uuids, histories and places; older snapshots show them under the old name. Views keep their text.

    Raises:
        NoSuchNamespaceError. AlreadyExistsError: the new name is taken, by a virtual namespace, too.
        InvalidRequestError: the new name is below the old one, differs only by case from another, or is none; or `main`
        is to move. UnsupportedError: a schema that lies within another one. ForbiddenError: no right to manage there.

    """
    check_namespace(destination)
    check_namespace_move(services.caller.principal, source, destination)
    return services.run_once(
        lambda: retry_transaction(lambda: _rename(services, source, destination)),
        _rebuild,
    )


def _rebuild(kept: Sequence[Any]) -> RenamedNamespace:
    """Rebuild an answer from what the request was settled with."""
    snapshot_id, moved_namespaces, moved_tables, moved_views, stale = kept
    views = tuple((schema, name) for schema, name in stale)
    return RenamedNamespace(snapshot_id, moved_namespaces, moved_tables, moved_views, views)


def _rename(services: Services, source: Namespace, destination: Namespace) -> RenamedNamespace:
    stale = tuple(sorted(_find_stale_views(services, source, destination)))  # before the lock: the queries are parsed
    old, new = to_schema_name(source), to_schema_name(destination)
    with services.database.transaction() as cursor:
        snapshot = begin_snapshot(cursor, schema_change=True)
        known = find_known_namespaces(cursor)
        require_namespace(known, source)
        moving = {namespace: schema for namespace, schema in known.items() if namespace[: len(source)] == source}
        _check_source(source, moving)
        _check_destination(services, {name: known[name] for name in known.keys() - moving}, source, destination)
        names = {
            schema.schema_id: to_schema_name(_replace_beginning(namespace, source, destination))
            for namespace, schema in sorted(moving.items())
        }
        moved = move_schemas(cursor, snapshot, names, old, new)
        if services.rights is not None:
            for old_id, new_id in moved.schema_ids.items():
                grants.move_grants(cursor, services.rights.place, old_id, new_id)
        done = RenamedNamespace(snapshot.id, len(names), moved.tables, moved.views, stale)
        detail = {"to": new, "tables": moved.tables, "views": moved.views}
        services.settle(cursor, [build_touched(source, detail=detail)], list(astuple(done)))
    return done


def _replace_beginning(namespace: Namespace, source: Namespace, destination: Namespace) -> Namespace:
    """Return the new name of what is in the source, or the source itself; InvalidRequestError if it is too long."""
    renamed = (*destination, *namespace[len(source) :])
    check_namespace(renamed)
    return renamed


def _check_source(source: Namespace, moving: Mapping[Namespace, LiveSchema]) -> None:
    if MAIN in moving:
        raise InvalidRequestError("Namespace main can't be renamed: DuckDB's clients begin in it")
    nested = sorted(to_schema_name(namespace) for namespace, schema in moving.items() if schema.is_nested)
    if nested:
        raise build_nested_refusal(f"Namespace {to_schema_name(source)} can't be renamed with {nested[0]} in it")


def _check_destination(
    services: Services, others: Mapping[Namespace, LiveSchema], source: Namespace, destination: Namespace
) -> None:
    """Check that the new name is free beside the namespaces that stay."""
    old, new = to_schema_name(source), to_schema_name(destination)
    if destination[: len(source)] == source:
        problem = "it has this name" if destination == source else "it can't move into itself"
        error = AlreadyExistsError if destination == source else InvalidRequestError
        raise error(f"Cannot rename namespace {old} to {new}: {problem}")
    if find_children(others, destination):
        raise AlreadyExistsError(f"Cannot rename namespace {old} to {new}. Namespace already exists")
    check_namespace_free(others, destination, services.caller.principal)
    check_parents_flat(others, destination)


def _find_stale_views(services: Services, source: Namespace, destination: Namespace) -> Iterator[tuple[str, str]]:
    """Find views that the caller may read whose queries name tables by the old name."""
    with services.database.reading() as cursor:
        found = read_naming_views(cursor, source[-1])
    may_read = services.caller.principal.may
    for view in found:
        namespace = parse_readable_namespace(view.schema_name)
        if (
            namespace
            and may_read(Capability.READ, namespace, view.name)
            and is_naming_schema(view.duckdb_sql, view.version, source)
        ):
            is_moved = namespace[: len(source)] == source
            moved = (*destination, *namespace[len(source) :]) if is_moved else namespace
            yield to_schema_name(moved), view.name
