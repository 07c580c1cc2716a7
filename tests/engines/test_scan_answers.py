"""Iceberg's own parsers read our answers to plan requests, and write the same of what they read."""

import json
import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from duckicelake.bridge.data_files import MetricsContract
from duckicelake.bridge.scan.tasks import encode_content_file, encode_scan_tasks, encode_task
from duckicelake.iceberg.partition import PartitionField, PartitionSpec, Transform
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.transforms import apply_transform
from duckicelake.iceberg.types import NestedField, PrimitiveType
from duckicelake.iceberg.values import to_bytes, to_json
from duckicelake.lake.state import FileRow

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark]

MICROS = 1_709_211_599_999_999
VALUES: Mapping[str, tuple[Any, ...]] = {
    "boolean": (True, False),
    "int": (-(2**31), 2**31 - 1),
    "long": (-(2**63), 2**63 - 1),
    "float": (0.0, -0.0, 1.0, -1.5, 16777216.0),
    "double": (0.0, -0.0, 1.0, 0.1, 5e-324, 1e300),
    "decimal(9,2)": (Decimal("0.00"), Decimal("-1234567.89")),
    "decimal(38,0)": (Decimal(10**38 - 1), Decimal(-1)),
    "decimal(38,37)": (Decimal(f"9.{'9' * 37}"), Decimal(f"-0.{'0' * 36}1")),
    "date": (-719_162, -1, 0, 19_782),
    "time": (0, 86_399_999_999),
    "timestamp": (-1, 0, MICROS),
    "timestamptz": (-1, 0, MICROS),
    "timestamp_ns": (-1, MICROS * 1000 + 1),
    "timestamptz_ns": (-1, MICROS * 1000 + 1),
    "string": ("", 'a"\\\n', "ä\ufffd\U0001f600"),
    "binary": (b"", b"\x00\xff"),
    "fixed[3]": (b"\x00\x7f\xff",),
    "uuid": (uuid.UUID(int=0), uuid.UUID(int=2**128 - 1)),
}
TRANSFORMS = ("identity", "void", "truncate[2]", "year", "month", "day", "hour", "bucket[16]")
HUGE = 2**62
METRICS: dict[str, Any] = {
    "column_sizes": {"1": HUGE, "2": 1},
    "value_counts": {"1": 9, "2": 9},
    "null_value_counts": {"1": 0, "2": 9},
    "split_offsets": [4, HUGE - 1],
    "sort_order_id": 0,
    "key_metadata": "00ff7e",
}


def jvm(session: SparkSession) -> Any:
    assert session._jvm is not None
    return session._jvm


def make_file(partition: list[Any], **changes: Any) -> FileRow:
    row = FileRow(1, 0, "s3://b/a b%20ä.parquet", "PARQUET", 0, partition, 9, HUGE, METRICS, 5, 1, 1)
    return row._replace(**changes)


def partition_value(transform: Transform, source: PrimitiveType, value: Any) -> Any:
    if value is None or transform.name == "void":
        return None
    made = 7 if transform.name == "bucket" else apply_transform(transform, source, value)
    return to_json(transform.result_type(source), made)


def parse(session: SparkSession, answer: bytes, schema: Schema, spec: PartitionSpec) -> tuple[Any, Any]:
    """Return what Java's parser makes of an answer, and the spec as Java has it."""
    iceberg = jvm(session).org.apache.iceberg
    java_schema = iceberg.SchemaParser.fromJson(json.dumps(schema.to_json()))
    java_spec = iceberg.PartitionSpecParser.fromJson(java_schema, json.dumps(spec.to_json()))
    specs = jvm(session).java.util.HashMap()
    specs.put(spec.spec_id, java_spec)
    tree = iceberg.util.JsonUtil.mapper().readTree(answer.decode())
    return iceberg.rest.responses.PlanTableScanResponseParser.fromJson(tree, specs, True), java_spec


def write(session: SparkSession, file: Any, spec: Any) -> Any:
    return json.loads(jvm(session).org.apache.iceberg.ContentFileParser.toJson(file, spec))


def differ(written: Mapping[str, Any], encoded: bytes) -> dict[str, tuple[Any, Any]]:
    """Return the members in which what Java writes differs from what we wrote, hex in either case."""
    ours, written = json.loads(encoded.lower()), json.loads(json.dumps(written).lower())
    pairs = {name: (written.get(name), ours.get(name)) for name in written.keys() | ours.keys()}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def answer(tasks: list[bytes], deletes: list[bytes]) -> bytes:
    return b'{"status":"completed",' + encode_scan_tasks(tasks, deletes, ["a-task"]) + b"}"


@pytest.mark.parametrize("kind", VALUES)
def test_java_reads_partitions_and_statistics_of_every_type(spark: SparkSession, kind: str) -> None:
    source = PrimitiveType.parse(kind)
    schema = Schema(
        fields=(
            NestedField(id=1, name="c", required=False, type=source),
            NestedField(id=2, name="other", required=False, type=PrimitiveType.parse("int")),
        )
    )
    transforms = [transform for transform in map(Transform.parse, TRANSFORMS) if transform.accepts(source)]
    fields = [
        PartitionField(source_id=1, field_id=1000 + number, name=f"p{number}", transform=transform)
        for number, transform in enumerate(transforms)
    ]
    spec = PartitionSpec(spec_id=0, fields=tuple(fields))
    files = []
    for value in (*VALUES[kind], None):
        bounds = {} if value is None else {"1": to_bytes(source, value).hex()}
        metrics = METRICS | {"lower_bounds": bounds, "upper_bounds": bounds}
        files.append(make_file([partition_value(t, source, value) for t in transforms], metrics=metrics))
    contract = MetricsContract([schema])
    encoded = [encode_content_file(file, spec, contract, (1, 2)) for file in files]
    deletes = [
        encode_content_file(
            make_file(file.partition, content=1, metrics={"referenced_data_file": file.path}), spec, contract
        )
        for file in files
    ]
    tasks = [encode_task(data, [place], b"true") for place, data in enumerate(encoded)]
    parsed, java_spec = parse(spark, answer(tasks, deletes), schema, spec)
    found = list(parsed.fileScanTasks())
    assert list(parsed.planTasks()) == ["a-task"]
    for task, data, delete in zip(found, encoded, deletes, strict=True):
        assert differ(write(spark, task.file(), java_spec), data) == {}
        assert differ(write(spark, task.deletes()[0], java_spec), delete) == {}


def test_java_reads_deletion_vectors_and_row_ids(spark: SparkSession) -> None:
    schema = Schema(fields=(NestedField(id=1, name="c", required=False, type=PrimitiveType.parse("int")),))
    spec = PartitionSpec(spec_id=0, fields=())
    contract = MetricsContract([schema])
    vector = {"referenced_data_file": "s3://b/a b%20ä.parquet", "content_offset": 4, "content_size_in_bytes": HUGE}
    data = encode_content_file(make_file([], first_row_id=HUGE, metrics={}), spec, contract)
    deletes = [
        encode_content_file(make_file([], content=1, file_format="PUFFIN", metrics=vector), spec, contract),
        encode_content_file(make_file([], content=2, metrics={"equality_ids": [1]}), spec, contract),
    ]
    residual = {"type": "eq", "term": "c", "value": 5}
    task = encode_task(data, [1, 0], json.dumps(residual).encode())
    parsed, java_spec = parse(spark, answer([task], deletes), schema, spec)
    (found,) = parsed.fileScanTasks()
    assert found.file().firstRowId() == HUGE
    assert differ(write(spark, found.file(), java_spec), data) == {}
    for delete, encoded in zip(found.deletes(), deletes[::-1], strict=True):
        assert differ(write(spark, delete, java_spec), encoded) == {}
    written = jvm(spark).org.apache.iceberg.expressions.ExpressionParser.toJson(found.residual())
    assert json.loads(written) == residual
