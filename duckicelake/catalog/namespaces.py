"""Namespaces are DuckLake schemas (design §6.14): [a, b] is the schema "a.b", or in DuckLake 1.1 the schema b within a.

A parent that no schema stands for is virtual: it is listed and loads without properties as long as it has children.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import islice
from typing import Final

from duckicelake.catalog.context.audit_notes import build_touched
from duckicelake.catalog.context.caller import Principal
from duckicelake.catalog.context.outside import filter_seen
from duckicelake.catalog.context.page import ListPage, PageRequest, cut_page
from duckicelake.catalog.context.services import Services
from duckicelake.errors import (
    AlreadyExistsError,
    InvalidRequestError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    UnprocessableError,
    summarize,
)
from duckicelake.iceberg.identifiers import Namespace, check_namespace, parse_readable_namespace, to_schema_name
from duckicelake.lake.ducklake.database import build_nested_refusal
from duckicelake.lake.ducklake.dropped import read_retention
from duckicelake.lake.ducklake.schemas import (
    LiveSchema,
    create_schema,
    drop_schema,
    read_live_schemas,
    read_schema_contents,
    read_schema_properties,
    set_schema_properties,
)
from duckicelake.lake.ducklake.snapshots import begin_snapshot, lock_writers, record_changes, retry_transaction
from duckicelake.lake.side_tables.audit import OK_RESULT, UNCHANGED_RESULT
from duckicelake.postgres.queries import Transaction
from duckicelake.properties import check_protection

_LOCATION: Final = "location"


@dataclass(frozen=True, slots=True)
class UpdatedProperties:
    """Keys that were set, keys that were removed, and keys to remove that were not there."""

    updated: tuple[str, ...]
    removed: tuple[str, ...]
    missing: tuple[str, ...]


def list_namespaces(services: Services, parent: Namespace | None, page: PageRequest) -> ListPage[Namespace]:
    """List the direct children of a namespace, or the top level, that the caller sees, in order of their schema names.

    Raises NoSuchNamespaceError for an unknown parent.
    """
    with services.database.reading() as cursor:
        known = find_known_namespaces(cursor)
    if parent:
        require_namespace(known, parent)
    principal, children = services.caller.principal, find_children(known, parent or ())
    after = sorted((child for child in children if to_schema_name(child) > page.after), key=to_schema_name)
    seen = filter_seen(principal.rights, after, lambda child: (child, ""), principal.sees)
    return cut_page(list(islice(seen, page.fetch)), page, to_schema_name)


def create_namespace(services: Services, namespace: Namespace, properties: Mapping[str, str]) -> dict[str, str]:
    """Create a namespace, its parents need not exist; return its properties.

    Raises AlreadyExistsError, UnsupportedError below a nested schema, and InvalidRequestError for a bad name or one
    that differs from a sibling's only by case: to DuckDB these are one schema.
    """
    check_namespace(namespace)
    check_protection(properties)
    return services.run_once(
        lambda: retry_transaction(lambda: _create(services, namespace, dict(properties))), lambda _: dict(properties)
    )


def load_namespace(services: Services, namespace: Namespace) -> dict[str, str]:
    """Return a namespace's properties; NoSuchNamespaceError."""
    with services.database.reading() as cursor:
        schema_id = require_namespace(find_known_namespaces(cursor), namespace)
        return {} if schema_id is None else read_schema_properties(cursor, schema_id)


def with_location(services: Services, namespace: Namespace, properties: Mapping[str, str]) -> dict[str, str]:
    """Add where the namespace's tables go as `location`, unless it has one.

    Trino lays out tables by it. Where there is none it lets the catalog, and then refuses a place that isn't empty.
    """
    return {_LOCATION: services.policy.namespace_folder(namespace), **properties}


def drop_namespace(services: Services, namespace: Namespace) -> None:
    """Drop an empty namespace; NoSuchNamespaceError, or NamespaceNotEmptyError naming what is inside."""
    services.run_once(lambda: retry_transaction(lambda: _drop(services, namespace)), lambda _: None)


def update_namespace(
    services: Services, namespace: Namespace, removals: Sequence[str], updates: Mapping[str, str]
) -> UpdatedProperties:
    """Set and remove properties in one step; a virtual namespace that gets some becomes a schema.

    Raises NoSuchNamespaceError, UnprocessableError if a key is both removed and updated, and InvalidRequestError.
    """
    check_protection(updates)
    both = sorted(set(removals) & set(updates))
    if both:
        raise UnprocessableError(f"properties both removed and updated: {', '.join(both)}; name each key once")
    return services.run_once(
        lambda: retry_transaction(lambda: _update(services, namespace, removals, updates)),
        lambda keys: UpdatedProperties(*map(tuple, keys)),
    )


def _create(services: Services, namespace: Namespace, properties: dict[str, str]) -> dict[str, str]:
    with services.database.transaction() as cursor:
        snapshot = begin_snapshot(cursor, schema_change=True, catalog_ids=1)
        known = find_known_namespaces(cursor)
        check_namespace_free(known, namespace, services.caller.principal)
        check_parents_flat(known, namespace)
        schema_id = create_schema(cursor, snapshot, to_schema_name(namespace))
        if properties:
            set_schema_properties(cursor, schema_id, properties)
        touched = [build_touched(namespace)]
        services.own_new(cursor, touched)
        services.settle(cursor, touched)
    return properties


def _drop(services: Services, namespace: Namespace) -> None:
    with services.database.transaction() as cursor:
        snapshot = begin_snapshot(cursor, schema_change=True)
        known = find_known_namespaces(cursor)
        schema_id = require_namespace(known, namespace)
        inside = [f"namespace {to_schema_name(child)}" for child in sorted(find_children(known, namespace))]
        if schema_id is not None:
            inside = list(dict.fromkeys([*inside, *read_schema_contents(cursor, schema_id)]))
        if inside or schema_id is None:
            raise NamespaceNotEmptyError(
                f"Namespace {to_schema_name(namespace)} is not empty. It holds {summarize(inside)}"
            )
        drop_schema(cursor, snapshot, schema_id, is_kept=read_retention(cursor) > 0)
        services.settle(cursor, [build_touched(namespace)])


def _update(
    services: Services, namespace: Namespace, removals: Sequence[str], updates: Mapping[str, str]
) -> UpdatedProperties:
    gone = frozenset(removals)
    with services.database.transaction() as cursor:
        lock_writers(cursor)
        schema_id = require_namespace(find_known_namespaces(cursor), namespace)
        before = {} if schema_id is None else read_schema_properties(cursor, schema_id)
        after = {key: value for key, value in before.items() if key not in gone} | dict(updates)
        if after != before:
            _store_properties(cursor, namespace, schema_id, after)
        updated = _build_update(before, removals, updates)
        outcome = UNCHANGED_RESULT if after == before else OK_RESULT
        keys = {"updated": sorted(updates), "removed": sorted(updated.removed)}
        services.settle(cursor, [build_touched(namespace, detail=keys)], astuple(updated), outcome)
    return updated


def _build_update(before: Mapping[str, str], removals: Sequence[str], updates: Mapping[str, str]) -> UpdatedProperties:
    wanted = dict.fromkeys(removals)
    return UpdatedProperties(
        updated=tuple(updates),
        removed=tuple(key for key in wanted if key in before),
        missing=tuple(key for key in wanted if key not in before),
    )


def _store_properties(
    cursor: Transaction, namespace: Namespace, schema_id: int | None, properties: dict[str, str]
) -> None:
    if schema_id is None:
        snapshot = begin_snapshot(cursor, schema_change=True, catalog_ids=1)
        known = find_known_namespaces(cursor)
        schema_id = _find_id(known, namespace)
        if schema_id is None:
            check_parents_flat(known, namespace)
            schema_id = create_schema(cursor, snapshot, to_schema_name(namespace))
        else:  # by DuckDB, which was faster
            record_changes(cursor, snapshot.id, [])
    set_schema_properties(cursor, schema_id, properties)


def find_known_namespaces(cursor: Transaction) -> dict[Namespace, LiveSchema]:
    """Return schemas by namespace; neither virtual ones are in it nor schemas that no request can name."""
    schemas = read_live_schemas(cursor).items()
    return {known: schema for name, schema in schemas if (known := parse_readable_namespace(name))}


def _find_id(known: Mapping[Namespace, LiveSchema], namespace: Namespace) -> int | None:
    return known[namespace].schema_id if namespace in known else None


def require_namespace(known: Mapping[Namespace, LiveSchema], namespace: Namespace) -> int | None:
    """Return the schema's id, None if the namespace is virtual; NoSuchNamespaceError if it is neither."""
    if namespace not in known and not find_children(known, namespace):
        raise NoSuchNamespaceError(f"Namespace does not exist: {to_schema_name(namespace)}")
    return _find_id(known, namespace)


def find_children(known: Iterable[Namespace], parent: Namespace) -> set[Namespace]:
    """Find direct children, virtual ones too."""
    depth = len(parent)
    return {other[: depth + 1] for other in known if len(other) > depth and other[:depth] == parent}


def check_parents_flat(known: Mapping[Namespace, LiveSchema], namespace: Namespace) -> None:
    """Raise UnsupportedError for a new namespace below a nested schema: it would have to be nested, too."""
    for depth in range(1, len(namespace)):
        if namespace[:depth] in known and known[namespace[:depth]].is_nested:
            raise build_nested_refusal(
                f"Namespace {to_schema_name(namespace)} can't be created below {to_schema_name(namespace[:depth])}, a "
                "schema that lies within another one"
            )


def check_namespace_free(known: Mapping[Namespace, LiveSchema], namespace: Namespace, principal: Principal) -> None:
    """Raise AlreadyExistsError for a namespace that exists, InvalidRequestError if only case differs from another."""
    if namespace in known:
        raise AlreadyExistsError(f"Namespace already exists: {to_schema_name(namespace)}")
    for depth in range(len(namespace)):
        for sibling in sorted(find_children(known, namespace[:depth])):
            if sibling != namespace[: depth + 1] and sibling[-1].lower() == namespace[depth].lower():
                other = f"{to_schema_name(sibling)}, which exists" if principal.sees(sibling) else "another"
                raise InvalidRequestError(
                    f"Namespace {to_schema_name(namespace)} differs only by case from {other}; "
                    "to DuckDB both are one name"
                )
