"""Sort orders, by field id and by column name (table spec, "Sorting")."""

from functools import cached_property
from typing import Annotated, Literal

from pydantic import BeforeValidator, ValidationError

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.model import Int, SpecModel, compute_digest, explain_errors, lower_text
from duckicelake.iceberg.partition import Sourced, Transform, check_known_transform, check_source
from duckicelake.iceberg.schema import Schema
from duckicelake.properties import SORT_ORDER

FIRST_SORT_ORDER_ID = 1  # 0 is unsorted


Direction = Annotated[Literal["asc", "desc"], BeforeValidator(lower_text)]

NullOrder = Annotated[Literal["nulls-first", "nulls-last"], BeforeValidator(lower_text)]


class SortField(Sourced):
    direction: Direction
    null_order: NullOrder


class SortOrder(SpecModel):
    order_id: Int
    fields: tuple[SortField, ...] = ()

    def same_as(self, other: "SortOrder") -> bool:
        """Return whether both sort by the same fields; the order ids may differ."""
        return self.meaning == other.meaning

    @cached_property
    def meaning(self) -> bytes:
        """A digest of what `same_as` compares."""
        return compute_digest([field.to_json() for field in self.fields])


UNSORTED = SortOrder(order_id=0)


def check_order(order: SortOrder, schema: Schema) -> None:
    """Check that a table with this schema may have the order; InvalidRequestError names what doesn't fit."""
    for field in order.fields:
        check_known_transform(field.transform)
    check_order_sources(order, schema)


def check_order_sources(order: SortOrder, schema: Schema) -> None:
    """Check that the schema has the order's sources; InvalidRequestError otherwise. Skip unknown transforms."""
    for field in order.fields:
        check_source(schema, field.source_id, field.transform, f"sort field on {field.source_id}")


class _NamedField(SpecModel):
    column: str
    transform: Transform
    direction: Direction
    null_order: NullOrder


class _NamedOrder(SpecModel):
    fields: tuple[_NamedField, ...]


def parse_named_order(text: str, schema: Schema) -> SortOrder:
    """Parse an order of column names, found regardless of case, to field ids; InvalidRequestError."""
    ids = {name.lower(): field_id for field_id, name in schema.full_names().items()}
    try:
        named = _NamedOrder.model_validate_json(text)
        fields = [
            SortField(
                source_id=ids[field.column.lower()],
                transform=field.transform,
                direction=field.direction,
                null_order=field.null_order,
            )
            for field in named.fields
        ]
    except ValidationError as error:
        raise InvalidRequestError(f"Invalid sort order in property {SORT_ORDER}: {explain_errors(error)}") from error
    except KeyError as error:
        raise InvalidRequestError(f"property {SORT_ORDER}: Cannot find column {error}") from error
    return SortOrder(order_id=1, fields=tuple(fields))
