"""A sort order by names of columns, as a property of a create: Spark's CREATE TABLE … AS SELECT has no word for one."""

from typing import Final

from pydantic import ValidationError

from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.model import SpecModel, explain
from duckicelake.iceberg.partition import Transform
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.sort import Direction, NullOrder, SortField, SortOrder

SORT_ORDER_PROPERTY: Final = "duckicelake.sort-order"
"""`{"fields": [{"column": "place.lat", "transform": "identity", "direction": "asc", "null-order": "nulls-first"}]}`."""


class _NamedField(SpecModel):
    column: str
    transform: Transform
    direction: Direction
    null_order: NullOrder


class _NamedOrder(SpecModel):
    fields: tuple[_NamedField, ...]


def named_order(text: str, schema: Schema) -> SortOrder:
    """The order by the schema's field ids, columns found regardless of case; InvalidRequest."""
    ids = {name.lower(): field_id for field_id, name in schema.full_names().items()}
    try:
        named = _NamedOrder.model_validate_json(text)
        fields = [
            SortField(
                source_id=ids[each.column.lower()],
                transform=each.transform,
                direction=each.direction,
                null_order=each.null_order,
            )
            for each in named.fields
        ]
    except ValidationError as error:
        raise InvalidRequest(f"property {SORT_ORDER_PROPERTY} is no sort order: {explain(error)}") from error
    except KeyError as error:
        raise InvalidRequest(f"property {SORT_ORDER_PROPERTY}: Cannot find column {error}") from error
    return SortOrder(order_id=1, fields=tuple(fields))
