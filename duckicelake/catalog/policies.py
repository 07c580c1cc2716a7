"""Policies as use cases: row filters and column masks of tables, and tags of columns, by which masks name them.

What they hide from whom, `context/rights` reads; what is refused for them, `context/caller` says.
"""

import re
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from duckicelake.bridge.scan.explanation import parse_row_condition
from duckicelake.bridge.values.types import to_lake_type
from duckicelake.catalog.context.audit_notes import build_touched
from duckicelake.catalog.context.caller import EVERYTHING, SERVER_CALLER, build_refusal
from duckicelake.catalog.context.privileges import Privilege
from duckicelake.catalog.context.rights import RightsCache
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.grants import parse_object
from duckicelake.catalog.table.load import load_current_table
from duckicelake.errors import AlreadyExistsError, ConflictError, InvalidRequestError, NotFoundError
from duckicelake.iceberg.expressions import ColumnTest, Junction, NotPredicate, Predicate
from duckicelake.iceberg.identifiers import Namespace, format_full_name, parse_schema_name, to_schema_name
from duckicelake.iceberg.primitives import select_names
from duckicelake.iceberg.read_restrictions import Mask, check_mask
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import NestedField, PrimitiveType
from duckicelake.lake.side_tables import policies, reader
from duckicelake.lake.side_tables.audit import AuditedResource
from duckicelake.lake.side_tables.policies import GuardedColumn, NewPolicy, PolicyRow
from duckicelake.postgres.queries import Transaction
from duckicelake.rows.columns import RowColumn
from duckicelake.rows.filters import bind_filter, format_filter
from duckicelake.storage.policy import canonicalize

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_MAX_CONDITION_CHARS: Final = 10_000
_MAX_PRINCIPALS: Final = 1000
_FLOATS: Final = select_names("float")
_ORDERED: Final = frozenset({"lt", "lt-eq", "gt", "gt-eq"})
Table = tuple[Namespace, str]


@dataclass(frozen=True, slots=True)
class PolicyDefinition:
    """A policy: a row filter of a table, or a mask of a column, or of all columns that have a tag.

    Attributes:
        table: The table, if it is for one.
        column: The name of a masked column.
        condition: What holds for rows that are shown, in DuckDB's SQL.
        to: Names of principals, groups and roles that it is for; empty: everyone.
        exempt: Names of those that it isn't for, whatever `to` says.

    """

    name: str
    table: Table | None = None
    column: str | None = None
    tag: str | None = None
    mask: str | None = None
    condition: str | None = None
    to: tuple[str, ...] = ()
    exempt: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyDetails:
    """A policy as it is, with today's names.

    is_live: False once its table was dropped; it counts for a table that takes the name, of which nothing is shown.
    """

    policy_id: UUID
    definition: PolicyDefinition
    is_live: bool
    created_by: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class TaggedColumn:
    """A tag of a column, by today's names. is_live: False once the table was dropped."""

    tag: str
    table: Table
    column: str
    is_live: bool = True


def parse_table(on: str | None) -> Table | None:
    """Parse a table as commands take it, `table:sales.orders`; InvalidRequestError."""
    if on is None:
        return None
    target = parse_object(on)
    if target.kind != "table":
        raise InvalidRequestError(f"Policies are on tables, not on {on}: write table:NAMESPACE.NAME")
    return target.namespace, target.name


def add_policy(services: Services, definition: PolicyDefinition) -> PolicyDetails:
    """Add a policy; it counts at once here, and within two seconds on other workers.

    Raises:
        InvalidRequestError: it isn't one, the mask doesn't fit, or the warehouse's files aren't in S3.
        ForbiddenError: the caller doesn't manage the table. AlreadyExistsError: the table has one of its name.
        NotFoundError: there is no such principal. NoSuchTableError.

    """
    _check_form(definition)
    _check_manager(services, definition.table)
    _check_store(services)
    new = _build_new(services, definition)
    place = get_rights(services).place

    def add() -> UUID:
        with services.database.transaction() as cursor:
            policy_id = policies.insert_policy(cursor, place, new, services.caller.principal.name)
            if policy_id is None:
                where = "the warehouse" if definition.table is None else format_full_name(*definition.table)
                raise AlreadyExistsError(f"{where} has a policy {definition.name} already")
            for names, is_exempt in ((new.to, False), (new.exempt, True)):
                missing = policies.add_principals(cursor, place, policy_id, names, is_exempt=is_exempt)
                if missing:
                    raise NotFoundError(f"There is no principal {min(missing)}: create it first")
            services.settle(cursor, [_describe(definition, "policy-added")], str(policy_id))
            return policy_id

    policy_id = services.run_once(add, UUID)
    get_rights(services).look()
    return get_policy(services, policy_id)


def list_policies(services: Services, table: Table | None = None) -> list[PolicyDetails]:
    """List the policies of a warehouse that the caller may manage, or those of a table; NoSuchTableError."""
    place = get_rights(services).place
    table_id = None if table is None else _load_schema(services, table)[0]
    with services.database.reading() as cursor:
        rows = policies.list_policies(cursor, place, table_id)
    return [_build_details(row) for row in rows if _may_manage(services, _find_table(row))]


def get_policy(services: Services, policy_id: UUID) -> PolicyDetails:
    """Return a policy that the caller may manage; NotFoundError."""
    found = next((one for one in list_policies(services) if one.policy_id == policy_id), None)
    if found is None:
        raise NotFoundError(f"There is no policy {policy_id}, or it isn't the caller's to manage")
    return found


def find_policy(services: Services, name: str, table: Table | None = None) -> PolicyDetails:
    """Find a policy by its name, and its table where several have one of the name.

    Raises NotFoundError, ConflictError.
    """
    named = [one for one in list_policies(services) if one.definition.name == name]
    found = [one for one in named if table in {None, one.definition.table}]
    if not found:
        raise NotFoundError(f"There is no policy {name}")
    if len(found) > 1:
        where = ", ".join(format_full_name(*one.definition.table) for one in found if one.definition.table)
        raise ConflictError(f"Several tables have a policy {name}, say which one's: {where}")
    return found[0]


def drop_policy(services: Services, policy_id: UUID) -> None:
    """Drop a policy; NotFoundError."""
    place = get_rights(services).place

    def drop() -> None:
        found = get_policy(services, policy_id)
        with services.database.transaction() as cursor:
            if not policies.delete_policy(cursor, place, policy_id):
                raise NotFoundError(f"There is no policy {policy_id}")
            services.settle(cursor, [_describe(found.definition, "policy-dropped")])

    services.run_once(drop, lambda _: None)
    get_rights(services).look()


def change_tag(services: Services, tagged: TaggedColumn, *, is_given: bool) -> bool:
    """Give a column a tag, or take it; return whether that changed anything.

    Raises ForbiddenError, InvalidRequestError, NoSuchTableError.
    """
    _check_name(tagged.tag, "tag")
    _check_manager(services, tagged.table)
    table_id, schema = _load_schema(services, tagged.table)
    column = _find_column(schema, tagged.column)
    on = _build_guarded(tagged.table, table_id, column)
    place = get_rights(services).place
    change = policies.tag_column if is_given else policies.untag_column
    with services.database.transaction() as cursor:
        is_changed = change(cursor, place, tagged.tag, on)
        verb = "tagged" if is_given else "untagged"
        services.settle(cursor, [build_touched(*tagged.table, {verb: {column.name: tagged.tag}})])
    get_rights(services).look()
    return is_changed


def list_tags(services: Services, table: Table | None = None) -> list[TaggedColumn]:
    """List the tagged columns of a warehouse that the caller may manage, or those of a table; NoSuchTableError."""
    place = get_rights(services).place
    table_id = None if table is None else _load_schema(services, table)[0]
    with services.database.reading() as cursor:
        rows = policies.list_tags(cursor, place, table_id)
    found = [
        TaggedColumn(row.tag, (parse_schema_name(row.schema_name), row.table_name), row.column_name, row.is_live)
        for row in rows
    ]
    return [tagged for tagged in found if _may_manage(services, tagged.table)]


def copy_policies(services: Services, cursor: Transaction, from_id: int, to_id: int, table: Table) -> None:
    """Give a clone the policies of its source, in the transaction that makes it."""
    if services.rights is not None:
        to = GuardedColumn(to_id, to_schema_name(table[0]), table[1])
        policies.copy_policies(cursor, services.rights.place, from_id, to)


def check_unguarded(services: Services, cursor: Transaction, table: Table) -> None:
    """Raise ConflictError if a table has policies: once it is given up, its files would be no table's."""
    table_id = reader.find_table_id(cursor, to_schema_name(table[0]), table[1])
    if services.rights is None or table_id is None:
        return
    if policies.has_policies(cursor, services.rights.place, table_id):
        raise ConflictError(f"{format_full_name(*table)} has policies, which would be lost with it: drop them first")


def get_rights(services: Services) -> RightsCache:
    """Return where the warehouse's policies are; InvalidRequestError."""
    if services.rights is None:
        raise InvalidRequestError("This process has no policies")
    return services.rights


def _check_form(definition: PolicyDefinition) -> None:
    """Raise InvalidRequestError unless it is a filter of a table, or a mask of a column or tag."""
    _check_name(definition.name, "policy")
    is_mask, is_filter = definition.mask is not None, definition.condition is not None
    if is_mask == is_filter:
        raise InvalidRequestError("A policy is a row filter, by a condition, or a mask of a column or tag: give one")
    if (definition.table is None) == (definition.tag is None):
        raise InvalidRequestError("A policy is on a table, or on the columns that have a tag: give one")
    if (definition.column is not None) != (is_mask and definition.tag is None):
        raise InvalidRequestError("A column is given for a mask of one table: a row filter and a tag take none")
    if definition.tag is not None:
        _check_name(definition.tag, "tag")
        if is_filter:
            raise InvalidRequestError("A row filter is on a table: columns of a tag have masks")
    if definition.mask is not None and definition.mask not in set(Mask):
        raise InvalidRequestError(f"Invalid mask {definition.mask!r}: expected one of {', '.join(Mask)}")
    if len(definition.condition or "") > _MAX_CONDITION_CHARS:
        raise InvalidRequestError(f"A condition has up to {_MAX_CONDITION_CHARS} characters")
    if len(definition.to) + len(definition.exempt) > _MAX_PRINCIPALS:
        raise InvalidRequestError(f"A policy names up to {_MAX_PRINCIPALS} principals: put them into a group")


def _check_name(name: str, what: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise InvalidRequestError(f"Invalid {what} {name!r}: expected letters, digits, and _ . - after the first")


def _check_store(services: Services) -> None:
    """Raise InvalidRequestError unless nothing but keys of the server leads to the warehouse's files."""
    for location in (services.policy.warehouse, services.policy.data_path, *services.policy.allowed):
        if not canonicalize(location).startswith("s3://"):
            raise InvalidRequestError(
                f"Policies take a warehouse whose files are all in S3: nothing keeps readers from those in {location}"
            )


def _check_manager(services: Services, table: Table | None) -> None:
    if not _may_manage(services, table):
        raise build_refusal(*(table or ((), "")), services.caller.principal)


def _may_manage(services: Services, table: Table | None) -> bool:
    """Return whether the caller may change the policies of a table, or with none named those of tags."""
    principal, (namespace, name) = services.caller.principal, table or ((), "")
    if principal.may_administer():
        return True
    if principal.rights is None or not principal.rights.are_granted:
        return False
    return Privilege.MANAGE_GRANTS in principal.rights.find(namespace, name) and principal.is_in_scope(
        EVERYTHING, namespace
    )


def _build_new(services: Services, definition: PolicyDefinition) -> NewPolicy:
    """Bind a definition to the table as it is; InvalidRequestError, NoSuchTableError."""
    whom = definition.to, definition.exempt
    if definition.table is None:
        return NewPolicy(definition.name, None, definition.tag, definition.mask, None, None, *whom)
    table_id, schema = _load_schema(services, definition.table)
    if definition.condition is not None:
        on = _build_guarded(definition.table, table_id)
        filter_ = _parse_filter(definition.condition, schema)
        return NewPolicy(definition.name, on, None, None, filter_, definition.condition, *whom)
    assert definition.column is not None
    assert definition.mask is not None
    column = _find_column(schema, definition.column)
    check_mask(Mask(definition.mask), column)
    on = _build_guarded(definition.table, table_id, column)
    return NewPolicy(definition.name, on, None, definition.mask, None, None, *whom)


def _load_schema(services: Services, table: Table) -> tuple[int, Schema]:
    """Return a table's id and its schema, whatever the caller sees of it."""
    found = load_current_table(replace(services, caller=SERVER_CALLER), *table)
    return found.row.table_id, found.metadata.schema()


def _build_guarded(table: Table, table_id: int, column: NestedField | None = None) -> GuardedColumn:
    id_, name = (None, None) if column is None else (column.id, column.name)
    return GuardedColumn(table_id, to_schema_name(table[0]), table[1], id_, name)


def _find_column(schema: Schema, name: str) -> NestedField:
    found = next((column for column in schema.fields if column.name.lower() == name.lower()), None)
    if found is None:
        known = ", ".join(column.name for column in schema.fields)
        raise InvalidRequestError(f"Cannot find column {name!r}: expected one of {known}")
    return found


def _parse_filter(condition: str, schema: Schema) -> Any:
    """Parse a condition in SQL as Iceberg's expression, which is true of the same rows; InvalidRequestError."""
    kinds = {column.id: column.type for column in schema.fields if isinstance(column.type, PrimitiveType)}
    columns = [
        RowColumn(column.id, column.name, column.type, column.required, to_lake_type(kinds[column.id]))
        for column in schema.fields
        if column.id in kinds
    ]
    return format_filter(_exclude_unordered(bind_filter(parse_row_condition(condition, schema), columns), kinds), kinds)


def _exclude_unordered(predicate: Predicate, kinds: dict[int, PrimitiveType]) -> Predicate:
    """Exclude null and NaN from comparisons by order: engines don't agree whether they are less or greater."""
    match predicate:
        case NotPredicate():
            return NotPredicate(_exclude_unordered(predicate.child, kinds))
        case Junction():
            left, right = (_exclude_unordered(part, kinds) for part in (predicate.left, predicate.right))
            return Junction(predicate.operator, left, right)
        case ColumnTest(column=int(column)) if predicate.operator in _ORDERED:
            excluded = ["not-null", "not-nan"] if kinds[column].name in _FLOATS else ["not-null"]
            found: Predicate = predicate
            for operator in reversed(excluded):
                found = Junction("and", ColumnTest(operator, column), found)
            return found
    return predicate


def _find_table(row: PolicyRow) -> Table | None:
    if row.schema_name is None or row.table_name is None:
        return None
    return parse_schema_name(row.schema_name), row.table_name


def _build_details(row: PolicyRow) -> PolicyDetails:
    definition = PolicyDefinition(
        row.name, _find_table(row), row.column_name, row.tag, row.mask, row.condition, row.to, row.exempt
    )
    return PolicyDetails(row.policy_id, definition, row.is_live or row.tag is not None, row.created_by, row.created_at)


def _describe(definition: PolicyDefinition, verb: str) -> AuditedResource:
    """Describe a change for the audit trail."""
    what = definition.condition or " ".join(filter(None, (definition.mask, definition.column, definition.tag)))
    detail: dict[str, Any] = {verb: definition.name, "policy": what}
    detail |= {"to": list(definition.to)} if definition.to else {}
    detail |= {"exempt": list(definition.exempt)} if definition.exempt else {}
    if definition.table is None:
        return AuditedResource("warehouse", detail=detail)
    return build_touched(*definition.table, detail)
