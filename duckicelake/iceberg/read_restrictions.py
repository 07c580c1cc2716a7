"""PURE. What a principal may not see of a table: the rows that a filter leaves out, and the values of masked columns.

Rows are filtered by their own values, then columns are masked (REST specification, `ReadRestrictions`). A mask keeps a
column's type, and null stays null. Servers may only give a mask to a column whose type it fits.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import reduce
from typing import Any, Final

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.expressions import collect_tests, parse_predicate
from duckicelake.iceberg.primitives import select_names
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import IcebergType, NestedField, PrimitiveType, StructType


class Mask(StrEnum):
    """What becomes of a column's values, by the specification's names."""

    ALPHANUM = "mask-alphanum"
    FIXED_VALUE = "mask-to-fixed-value"
    NULL = "replace-with-null"
    FIRST_4 = "show-first-4"
    LAST_4 = "show-last-4"
    YEAR = "truncate-to-year"
    MONTH = "truncate-to-month"
    SHA_256 = "sha-256-global"
    SHA_256_LOCAL = "sha-256-query-local"


_TEXTS: Final = frozenset({"string"})
_TIMES: Final = select_names("date", "timestamp")
_HASHED: Final = frozenset({"string", "int", "long", "binary"})
_FITTING: Final[Mapping[Mask, frozenset[str]]] = {
    Mask.ALPHANUM: _TEXTS,
    Mask.FIRST_4: _TEXTS,
    Mask.LAST_4: _TEXTS,
    Mask.YEAR: _TIMES,
    Mask.MONTH: _TIMES,
    Mask.SHA_256: _HASHED,
    Mask.SHA_256_LOCAL: _HASHED,
}
"""The types of columns that a mask fits; that of the two others depends on more than the name."""
_WITHOUT_FIXED_VALUE: Final = select_names("geo", "variant", "unknown")
NO_ROWS: Final = False
"""Iceberg's expression that no row passes."""
_STRICTEST_FIRST: Final = (
    Mask.NULL,
    Mask.FIXED_VALUE,
    Mask.SHA_256_LOCAL,
    Mask.SHA_256,
    Mask.ALPHANUM,
    Mask.YEAR,
    Mask.MONTH,
    Mask.LAST_4,
    Mask.FIRST_4,
)
"""Of several masks of one column, the first of these counts."""


def check_mask(mask: Mask, column: NestedField) -> None:
    """Raise InvalidRequestError if a column can't have a mask."""
    if mask is Mask.NULL:
        if column.required:
            raise InvalidRequestError(f"{mask} doesn't fit {column.name}: the column is required, so it has no nulls")
    elif mask is Mask.FIXED_VALUE:
        without = next((kind for kind in _list_kinds(column.type) if kind in _WITHOUT_FIXED_VALUE), None)
        if without is not None:
            raise InvalidRequestError(f"{mask} doesn't fit {column.name}: a {without} has no such value")
    elif not isinstance(column.type, PrimitiveType) or column.type.name not in _FITTING[mask]:
        kind = str(column.type) if isinstance(column.type, PrimitiveType) else column.type.type
        fitting = ", ".join(sorted(_FITTING[mask]))
        raise InvalidRequestError(f"{mask} doesn't fit {column.name}, which is a {kind}: it is for {fitting}")


def _list_kinds(kind: IcebergType) -> list[str]:
    """List the names of the types of which a fixed value has a part: a list or map is empty."""
    match kind:
        case StructType():
            return [name for part in kind.fields for name in _list_kinds(part.type)]
        case PrimitiveType():
            return [kind.name]
    return []


@dataclass(frozen=True, slots=True)
class HeldPolicy:
    """A policy that is for a principal, on one table: a row filter, or the mask of a column.

    Attributes:
        table_id: DuckLake's.
        column_name: The column's last name, of a field in one `person.email`; it says which is meant if the id is gone.
        filter: Iceberg's expression as JSON, its columns by field id.

    """

    table_id: int
    column_id: int | None = None
    column_name: str | None = None
    mask: Mask | None = None
    filter: Any = None


@dataclass(frozen=True, slots=True)
class Restriction:
    """What a principal sees of one table: rows that pass all filters, and of masked columns what masks leave.

    Attributes:
        filters: Iceberg's expressions as JSON, their columns by field id.
        masks: By field id; also of fields in structs, lists and the values of maps.
        names: The last full names of masked columns and fields, by field id.

    """

    filters: tuple[Any, ...] = ()
    masks: Mapping[int, Mask] = field(default_factory=dict)
    names: Mapping[int, str] = field(default_factory=dict)

    def fit(self, schema: Schema, former: Iterable[Schema] = ()) -> "Restriction":
        """Return the restriction for a schema of the table, never a weaker one.

        A column that took the name of a masked one, as by a drop and an addition, shows nothing. So does one whose
        type the mask doesn't fit any more, and one that is no struct where a masked field was in a struct of its name.
        A filter on a column that the schema lacks leaves no rows.

        former: More schemas, whose columns are masked, too, if this one lacks them.
        """
        current = schema.map_fields_by_id()
        known = {id_: column for other in former for id_, column in other.map_fields_by_id().items()} | current
        gone = [name for id_, name in self.names.items() if id_ in self.masks and id_ not in current]
        wanted = {id_: mask for id_, mask in self.masks.items() if id_ in known}
        wanted |= dict.fromkeys(_find_successors(schema, gone), Mask.NULL)
        chosen = {id_: _choose_fitting(mask, known[id_]) for id_, mask in wanted.items()}
        masks = {id_: mask for id_, mask in chosen.items() if mask is not None}
        columns = {column.id for column in schema.fields}
        is_whole = len(masks) == len(chosen) and all(_is_within(filter_, columns) for filter_ in self.filters)
        return Restriction(self.filters if is_whole else (NO_ROWS,), _leave_out_covered(schema, masks))

    def to_json(self) -> dict[str, Any]:
        """Return the member `read-restrictions` of the answer to a load."""
        projections = [{"action": str(mask), "field-id": field_id} for field_id, mask in sorted(self.masks.items())]
        found: dict[str, Any] = {"required-column-projections": projections} if projections else {}
        if self.filters:
            found["required-row-filter"] = reduce(_join, self.filters)
        return found


def build_restrictions(held: Iterable[HeldPolicy]) -> dict[int, Restriction]:
    """Add up the policies of each table, by its id; of several masks of one column, the strictest counts."""
    tables: dict[int, list[HeldPolicy]] = {}
    for policy in held:
        tables.setdefault(policy.table_id, []).append(policy)
    return {table_id: _add_up(policies) for table_id, policies in tables.items()}


def _add_up(policies: Iterable[HeldPolicy]) -> Restriction:
    filters: list[Any] = []
    masks: dict[int, Mask] = {}
    names: dict[int, str] = {}
    for policy in policies:
        if policy.mask is None:
            filters.append(policy.filter)
        elif policy.column_id is not None:
            known = masks.get(policy.column_id, policy.mask)
            masks[policy.column_id] = min(known, policy.mask, key=_STRICTEST_FIRST.index)
            if policy.column_name is not None:
                names[policy.column_id] = policy.column_name
    return Restriction(tuple(filters), masks, names)


def _choose_fitting(mask: Mask, column: NestedField) -> Mask | None:
    """Return the mask, or the first stricter one that the column can have; None: no mask hides the column."""
    for choice in (mask, Mask.NULL, Mask.FIXED_VALUE):
        try:
            check_mask(choice, column)
        except InvalidRequestError:
            continue
        return choice
    return None


def _find_successors(schema: Schema, gone: Iterable[str]) -> Iterator[int]:
    """Find what may have the values of masked fields that are gone: what has their names, or holds what it likes."""
    ids = {name.lower(): id_ for id_, name in schema.full_names().items()}
    fields = schema.map_fields_by_id()
    for name in gone:
        levels = name.lower().split(".")
        places = ((length, ids.get(".".join(levels[:length]))) for length in range(len(levels), 0, -1))
        length, found = next(((length, id_) for length, id_ in places if id_ is not None), (0, None))
        if found is not None and (length == len(levels) or not isinstance(fields[found].type, StructType)):
            yield found


def _leave_out_covered(schema: Schema, masks: Mapping[int, Mask]) -> dict[int, Mask]:
    """Leave out masks of fields in what is masked as a whole."""
    parents = schema.parents()

    def is_covered(field_id: int) -> bool:
        parent = parents.get(field_id)
        return parent is not None and (parent in masks or is_covered(parent))

    return {id_: mask for id_, mask in masks.items() if not is_covered(id_)}


def _is_within(expression: Any, known: Iterable[int]) -> bool:
    """Return whether a filter is on these columns alone."""
    return {test.column for test in collect_tests(parse_predicate(expression))} <= set(known)


def _join(left: Any, right: Any) -> dict[str, Any]:
    return {"type": "and", "left": left, "right": right}
