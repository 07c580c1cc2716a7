"""Definitions of policies, as users write them, and what they come to for a table as it is."""

import re
from dataclasses import dataclass, replace
from typing import Any, Final

from duckicelake.bridge.scan.explanation import parse_row_condition
from duckicelake.bridge.values.types import to_lake_type
from duckicelake.catalog.context.caller import SERVER_CALLER
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.grants import parse_object
from duckicelake.catalog.table.load import load_current_table
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.expressions import ColumnTest, Junction, NotPredicate, Predicate, collect_tests
from duckicelake.iceberg.identifiers import Namespace, to_schema_name
from duckicelake.iceberg.primitives import select_names
from duckicelake.iceberg.read_restrictions import Mask, check_mask
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import MapType, NestedField, PrimitiveType
from duckicelake.lake.side_tables.policies import GuardedColumn, NewPolicy
from duckicelake.rows.columns import RowColumn
from duckicelake.rows.filters import bind_filter, format_filter

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
        column: The name of a masked column, or of a field in one as `person.email`.
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
class TaggedColumn:
    """A tag of a column, by today's names. is_live: False once the table was dropped."""

    tag: str
    table: Table
    column: str
    is_live: bool = True


def parse_table(text: str) -> Table:
    """Parse a table as commands take it, `table:sales.orders`; InvalidRequestError."""
    target = parse_object(text)
    if target.kind != "table":
        raise InvalidRequestError(f"Policies are on tables, not on {text}: write table:NAMESPACE.NAME")
    return target.namespace, target.name


def check_form(definition: PolicyDefinition) -> None:
    """Raise InvalidRequestError unless it is a filter of a table, or a mask of a column or tag."""
    check_name(definition.name, "policy")
    is_mask, is_filter = definition.mask is not None, definition.condition is not None
    if is_mask == is_filter:
        raise InvalidRequestError("A policy is a row filter, by a condition, or a mask of a column or tag: give one")
    if (definition.table is None) == (definition.tag is None):
        raise InvalidRequestError("A policy is on a table, or on the columns that have a tag: give one")
    if (definition.column is not None) != (is_mask and definition.tag is None):
        raise InvalidRequestError("A column is given for a mask of one table: a row filter and a tag take none")
    if definition.tag is not None:
        check_name(definition.tag, "tag")
        if is_filter:
            raise InvalidRequestError("A row filter is on a table: columns of a tag have masks")
    if definition.mask is not None and definition.mask not in set(Mask):
        raise InvalidRequestError(f"Invalid mask {definition.mask!r}: expected one of {', '.join(Mask)}")
    if len(definition.condition or "") > _MAX_CONDITION_CHARS:
        raise InvalidRequestError(f"A condition has up to {_MAX_CONDITION_CHARS} characters")
    if len(definition.to) + len(definition.exempt) > _MAX_PRINCIPALS:
        raise InvalidRequestError(f"A policy names up to {_MAX_PRINCIPALS} principals: put them into a group")
    both = set(definition.to) & set(definition.exempt)
    if both:
        raise InvalidRequestError(f"A policy is for {min(both)} or it isn't: name it in `to` or in `exempt`")


def check_name(name: str, what: str) -> None:
    """Raise InvalidRequestError for what can't be the name of a policy or a tag."""
    if _NAME.fullmatch(name) is None:
        raise InvalidRequestError(f"Invalid {what} {name!r}: expected letters, digits, and _ . - after the first")


def bind_definition(services: Services, definition: PolicyDefinition) -> NewPolicy:
    """Bind a definition to the table as it is; InvalidRequestError, NoSuchTableError."""
    whom = definition.to, definition.exempt
    if definition.table is None:
        return NewPolicy(definition.name, None, definition.tag, definition.mask, None, None, *whom)
    table_id, schema = load_schema(services, definition.table)
    if definition.condition is not None:
        on = build_guarded(definition.table, table_id)
        predicate = parse_row_condition(definition.condition, schema)
        ids = {name.lower(): field_id for name, field_id in schema.names().items()}
        named = {name.lower(): ids[name.lower()] for name in _list_names(predicate)}
        filter_ = _build_filter(predicate, schema)
        return NewPolicy(definition.name, on, None, None, filter_, definition.condition, *whom, named)
    assert definition.column is not None
    assert definition.mask is not None
    column = find_column(schema, definition.column)
    check_mask(Mask(definition.mask), column)
    on = build_guarded(definition.table, table_id, column)
    return NewPolicy(definition.name, on, None, definition.mask, None, None, *whom)


def load_schema(services: Services, table: Table) -> tuple[int, Schema]:
    """Return a table's id and its schema, whatever the caller sees of it."""
    found = load_current_table(replace(services, caller=SERVER_CALLER), *table)
    return found.row.table_id, found.metadata.schema()


def build_guarded(table: Table, table_id: int, column: NestedField | None = None) -> GuardedColumn:
    """Name a table, or a column of it, by DuckLake's ids and by names."""
    id_, name = (None, None) if column is None else (column.id, column.name)
    return GuardedColumn(table_id, to_schema_name(table[0]), table[1], id_, name)


def find_column(schema: Schema, name: str) -> NestedField:
    """Find a column, or a field in one as `person.email`, by its full name in any case; return it with that name.

    Raises InvalidRequestError.
    """
    names, parents = schema.full_names(), schema.parents()
    found = next((field_id for field_id, full in names.items() if full.lower() == name.lower()), None)
    if found is None:
        known = ", ".join(column.name for column in schema.fields)
        raise InvalidRequestError(f"Cannot find column {name!r}: expected one of {known}, or a field in one as `a.b`")
    fields = schema.map_fields_by_id()
    above: int | None = found
    while above is not None:
        around = parents[above]
        kind = None if around is None else fields[around].type
        if isinstance(kind, MapType) and above == kind.key_id:
            raise InvalidRequestError(f"{names[found]} is in the keys of a map, which must stay distinct: mask the map")
        above = around
    return fields[found].replace_fields(name=names[found])


def _list_names(predicate: Predicate) -> set[str]:
    return {test.column for test in collect_tests(predicate) if isinstance(test.column, str)}


def _build_filter(predicate: Predicate, schema: Schema) -> Any:
    """Build a filter as JSON, its columns by field id; InvalidRequestError."""
    kinds = {column.id: column.type for column in schema.fields if isinstance(column.type, PrimitiveType)}
    columns = [
        RowColumn(column.id, column.name, column.type, column.required, to_lake_type(kinds[column.id]))
        for column in schema.fields
        if column.id in kinds
    ]
    return format_filter(_exclude_unordered(bind_filter(predicate, columns), kinds), kinds)


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
