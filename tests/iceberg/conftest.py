"""Small tables to start from, made the way the server makes them."""

from collections.abc import Callable
from typing import Any

import pytest

from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.metadata_builder import apply_updates, build_new_table_metadata
from duckicelake.iceberg.model import parse
from duckicelake.iceberg.partition import UnboundPartitionSpec
from duckicelake.iceberg.rest import CommitTableRequest
from duckicelake.iceberg.schema import Schema

UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
CREATED = 1_700_000_000_000
NOW = CREATED + 60_000

Json = Any
MakeTable = Callable[..., TableMetadata]
Commit = Callable[..., TableMetadata]


@pytest.fixture
def make_table() -> MakeTable:
    """Make table metadata: columns `id` (1, required long), `at` (2, timestamp) and `name` (3, string)."""

    def make(format_version: int = 2, partitioned: bool = False, **changes: Json) -> TableMetadata:
        schema = parse(Schema, {"type": "struct", "fields": [_column(1, "id", "long", True), *_optional()]}, "schema")
        spec = {"fields": [{"source-id": 2, "name": "at_day", "transform": "day"}] if partitioned else []}
        table = build_new_table_metadata(
            table_uuid=UUID,
            location="file:///lake/t",
            schema=schema,
            spec=parse(UnboundPartitionSpec, spec, "spec"),
            sort_order=None,
            properties={},
            format_version=format_version,
            now_ms=CREATED,
        )
        return table.replace_fields(**changes)

    return make


@pytest.fixture
def commit() -> Commit:
    """Apply updates, given as the JSON that clients send, at a fixed time."""

    def apply_json(base: TableMetadata | None, *updates: Json, now_ms: int = NOW) -> TableMetadata:
        body = {"requirements": [], "updates": list(updates)}
        return apply_updates(base, parse(CommitTableRequest, body, "commit").updates, now_ms)

    return apply_json


@pytest.fixture
def add_snapshot() -> Callable[..., Json]:
    """Give the add-snapshot update that a client would send; None leaves a key out."""

    def update(snapshot_id: int, **changes: Json) -> Json:
        snapshot = {
            "snapshot-id": snapshot_id,
            "sequence-number": snapshot_id,
            "timestamp-ms": CREATED + snapshot_id,
            "manifest-list": f"file:///lake/t/metadata/snap-{snapshot_id}.avro",
            "summary": {"operation": "append"},
            "schema-id": 0,
        }
        given = {key.replace("_", "-"): value for key, value in changes.items()}
        merged = {key: value for key, value in (snapshot | given).items() if value is not None}
        return {"action": "add-snapshot", "snapshot": merged}

    return update


@pytest.fixture
def set_ref() -> Callable[..., Json]:
    """Give the set-snapshot-ref update that points a branch to a snapshot."""

    def update(snapshot_id: int, name: str = "main", **changes: Json) -> Json:
        given = {key.replace("_", "-"): value for key, value in changes.items()}
        return {"action": "set-snapshot-ref", "ref-name": name, "type": "branch", "snapshot-id": snapshot_id} | given

    return update


def _column(field_id: int, name: str, kind: str, required: bool) -> Json:
    return {"id": field_id, "name": name, "type": kind, "required": required}


def _optional() -> list[Json]:
    return [_column(2, "at", "timestamp", False), _column(3, "name", "string", False)]
