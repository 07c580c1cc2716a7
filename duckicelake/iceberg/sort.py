"""Sort orders (table spec, "Sorting")."""

from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from duckicelake.iceberg.model import Int, SpecModel, digest
from duckicelake.iceberg.partition import Sourced, check_known, check_source
from duckicelake.iceberg.schema import Schema

FIRST_SORT_ORDER_ID = 1  # 0 is unsorted


def lowered(value: Any) -> Any:
    """Lower a text that a client may have written in capitals; anything else is left as it is."""
    return value.lower() if isinstance(value, str) else value


Direction = Annotated[Literal["asc", "desc"], BeforeValidator(lowered)]
NullOrder = Annotated[Literal["nulls-first", "nulls-last"], BeforeValidator(lowered)]


class SortField(Sourced):
    direction: Direction
    null_order: NullOrder


class SortOrder(SpecModel):
    order_id: Int
    fields: tuple[SortField, ...] = ()

    def same_as(self, other: "SortOrder") -> bool:
        """Tell whether both sort by the same fields; the order ids may differ."""
        return self.meaning == other.meaning

    @cached_property
    def meaning(self) -> bytes:
        """What `same_as` compares."""
        return digest([field.to_json() for field in self.fields])


UNSORTED = SortOrder(order_id=0)


def check_order(order: SortOrder, schema: Schema) -> None:
    """Check that a table with this schema may get the order; InvalidRequest names what doesn't fit."""
    for field in order.fields:
        check_known(field.transform)
    check_order_sources(order, schema)


def check_order_sources(order: SortOrder, schema: Schema) -> None:
    """Check that the schema has what the rows are sorted by; unknown transforms are let be. InvalidRequest."""
    for field in order.fields:
        check_source(schema, field.source_id, field.transform, f"sort field on {field.source_id}")
