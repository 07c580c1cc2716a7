"""What DuckDB did to a table's definition, on metadata that an older server made."""

from duckicelake.bridge.native.schema import build_first_metadata, evolve_metadata
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.sort import SortField, SortOrder
from duckicelake.lake.model import Column, SortKey, TableDefinition

UUID = "01234567-89ab-cdef-0123-456789abcdef"
COLUMNS = (
    Column(1, None, "st", "struct", nulls_allowed=True),
    Column(2, 1, "a", "int32", nulls_allowed=True),
    Column(3, None, "l", "list", nulls_allowed=True),
    Column(4, 3, "element", "int32", nulls_allowed=True),
    Column(5, None, "other", "int32", nulls_allowed=True),
)
CLASHING = {
    "schema-id": 7,
    "fields": [
        {"id": 1, "name": "st", "required": False,
         "type": {"type": "struct", "fields": [{"id": 2, "name": "a", "required": False, "type": "int"}]}},
        {"id": 3, "name": "l", "required": False,
         "type": {"type": "list", "element-id": 4, "element": "int", "element-required": False}},
        {"id": 5, "name": "ST.a", "required": False, "type": "int"},
        {"id": 6, "name": "l.element", "required": False, "type": "int"},
    ],
}  # fmt: skip


def definition(*sort_keys: SortKey) -> TableDefinition:
    return TableDefinition(1, UUID, "main", "t", COLUMNS, None, (), sort_keys, None)


def test_schemas_that_no_client_loads_get_other_names() -> None:
    metadata = build_first_metadata(definition(), "/lake/t", 0)
    served = metadata.replace_fields(
        schemas=(*metadata.schemas, Schema.model_validate(CLASHING)), current_schema_id=7, last_column_id=6
    )

    found = evolve_metadata(served, definition())

    assert found.schema().full_names()[5] == "other"
    assert found.schema(7).full_names() == {
        1: "st", 2: "st.a", 3: "l", 4: "l.element", 5: "ST.a_5", 6: "l.element_6",
    }  # fmt: skip
    assert evolve_metadata(found, definition()) is found


def test_an_order_by_a_list_that_was_served_becomes_none() -> None:
    key = SortKey("l", "ASC", "NULLS_LAST")
    metadata = build_first_metadata(definition(), "/lake/t", 0)
    field = {"source-id": 3, "transform": "identity", "direction": "asc", "null-order": "nulls-last"}
    order = SortOrder(order_id=1, fields=(SortField.model_validate(field),))
    served = metadata.replace_fields(sort_orders=(*metadata.sort_orders, order), default_sort_order_id=1)

    found = evolve_metadata(served, definition(key))

    assert found.default_sort_order_id == 0
    assert not found.sort_order().fields
