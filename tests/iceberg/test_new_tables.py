import json
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionSpec as OracleSpec
from pyiceberg.schema import Schema as OracleSchema
from pyiceberg.table.metadata import new_table_metadata as oracle_metadata
from pyiceberg.table.sorting import SortOrder as OracleOrder

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.metadata_builder import build_new_table_metadata
from duckicelake.iceberg.model import parse
from duckicelake.iceberg.rest import CreateTableRequest

Json = Any
UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"

FIELDS = [
    {"id": 0, "name": "id", "required": True, "type": "long"},
    {
        "id": 1,
        "name": "place",
        "required": False,
        "type": {"type": "struct", "fields": [{"id": 2, "name": "lat", "required": False, "type": "int"}]},
    },
    {"id": 5, "name": "at", "required": False, "type": "timestamp"},
]
SPEC = {
    "spec-id": 0,
    "fields": [
        {"source-id": 5, "field-id": 1000, "name": "at_day", "transform": "day"},
        {"source-id": 2, "field-id": 1007, "name": "lat_bucket", "transform": "bucket[8]"},
    ],
}
ORDER = {
    "order-id": 4,
    "fields": [{"source-id": 0, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}],
}
BODY = {
    "name": "t",
    "schema": {"type": "struct", "schema-id": 3, "fields": FIELDS, "identifier-field-ids": [0]},
    "partition-spec": SPEC,
    "write-order": ORDER,
    "properties": {"owner": "ada"},
}

NAMED: Json = {"column": "Place.lat", "transform": "bucket[2]", "direction": "DESC", "null-order": "nulls-last"}


def created(format_version: int = 2, **changes: Json) -> TableMetadata:
    body = BODY | {key.replace("_", "-"): value for key, value in changes.items()}
    request = parse(CreateTableRequest, body, "request")
    return build_new_table_metadata(
        table_uuid=UUID,
        location="file:///lake/t",
        schema=request.schema_,
        spec=request.partition_spec,
        sort_order=request.write_order,
        properties=request.properties,
        format_version=format_version,
        now_ms=5,
    )


@pytest.mark.parametrize("version", [1, 2])
def test_new_table_is_what_pyiceberg_makes(version: int) -> None:
    oracle = oracle_metadata(
        schema=OracleSchema.model_validate(BODY["schema"]),
        partition_spec=OracleSpec.model_validate(SPEC),
        sort_order=OracleOrder.model_validate(ORDER),
        location="file:///lake/t",
        properties={"format-version": str(version), "write.parquet.compression-codec": "zstd", "owner": "ada"},
    )
    ours = type(oracle).model_validate(created(version).to_json())
    changing = {"table_uuid", "last_updated_ms"}
    assert ours.model_dump(exclude=changing) == oracle.model_dump(exclude=changing)


def test_new_table_refers_to_fresh_ids_everywhere() -> None:
    table = created()
    assert table.schema().full_names() == {1: "id", 2: "place", 3: "at", 4: "place.lat"}
    assert table.schema().identifier_field_ids == (1,)
    assert [(each.source_id, each.field_id) for each in table.spec().fields] == [(3, 1000), (4, 1001)]
    assert [each.source_id for each in table.sort_order().fields] == [1]
    assert (table.last_column_id, table.last_partition_id, table.default_sort_order_id) == (4, 1001, 1)
    assert (table.current_schema_id, table.default_spec_id, table.last_updated_ms) == (0, 0, 5)


def test_table_created_with_nulls_is_unpartitioned_and_unsorted() -> None:
    table = created(partition_spec=None, write_order=None, location=None, properties=None, stage_create=None)
    assert (table.spec().fields, table.sort_order().fields) == ((), ())
    assert (table.last_partition_id, table.default_sort_order_id) == (999, 0)


def test_order_may_be_a_property_that_names_its_columns_and_is_not_stored() -> None:
    table = created(properties={"duckicelake.sort-order": json.dumps({"fields": [NAMED]})}, write_order=None)
    (field,) = table.sort_order().fields
    assert (field.source_id, str(field.transform), field.direction, field.null_order) == (
        4, "bucket[2]", "desc", "nulls-last",
    )  # fmt: skip
    assert "duckicelake.sort-order" not in table.properties


def test_format_version_property_decides_and_reserved_properties_are_not_stored() -> None:
    table = created(properties={"format-version": "3", "uuid": "x", "a": "b"})
    assert (table.format_version, table.next_row_id) == (3, 0)
    assert table.properties == {"write.parquet.compression-codec": "zstd", "a": "b"}
    assert created(properties={}).next_row_id is None


def test_files_of_a_new_table_are_packed_with_zstd_unless_its_properties_say_otherwise() -> None:
    assert created(properties=None).properties == {"write.parquet.compression-codec": "zstd"}
    assert created(properties={"write.parquet.compression-codec": "gzip"}).properties == {
        "write.parquet.compression-codec": "gzip"
    }


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"properties": {"format-version": "4"}}, "unsupported format version 4"),
        ({"properties": {"duckicelake.sort-order": "[]"}}, "Invalid sort order in property duckicelake.sort-order"),
        (
            {"properties": {"duckicelake.sort-order": json.dumps({"fields": [NAMED | {"column": "x"}]})}},
            "Cannot find column 'x'",
        ),
        ({"properties": {"format-version": "latest"}}, "'latest', expected 1, 2 or 3"),
        ({"partition_spec": {"fields": [{"source-id": 9, "name": "x", "transform": "day"}]}}, "source field 9"),
        ({"partition_spec": {"fields": [{"source-id": 0, "name": "x", "transform": "day"}]}}, "doesn't take 'id'"),
        (
            {"write_order": {"order-id": 1, "fields": [ORDER["fields"][0] | {"source-id": 1}]}},  # type: ignore[index]
            "doesn't take 'place' of type struct",
        ),
        ({"schema": {"type": "struct", "fields": [FIELDS[0], FIELDS[0] | {"name": "b"}]}}, "have the id 0"),
        ({"schema": {"type": "struct", "fields": FIELDS, "identifier-field-ids": [7]}}, "identifier field 7"),
        ({"schema": {"type": "struct", "fields": [FIELDS[0] | {"type": "variant"}]}}, "not supported until v3"),
        ({"name": ""}, "table name is empty"),
    ],
)
def test_create_that_breaks_a_rule_is_refused(changes: Json, said: str) -> None:
    alone = {"partition_spec": None, "write_order": None} if "schema" in changes else {}
    with pytest.raises(InvalidRequestError, match=said):
        created(**alone | changes)
