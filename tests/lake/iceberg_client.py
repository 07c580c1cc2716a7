"""Commits of an Iceberg client that knows all types, evolutions and defaults; PyIceberg lacks some."""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from duckicelake.catalog.tables import commit_table, create_table
from duckicelake.iceberg.manifest.entry import DataFile, FileContent
from duckicelake.iceberg.rest import CommitTableRequest, CreateTableRequest
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.iceberg.values import to_bytes
from tests.support.client import Draft, local
from tests.support.lakes import Lake

Json = Any


def field(field_id: int, name: str, kind: Json, **more: Json) -> Json:
    """An optional field; `initial_default` and the like say more of it, None nothing."""
    given = {key.replace("_", "-"): value for key, value in more.items() if value is not None}
    return {"id": field_id, "name": name, "required": False, "type": kind, **given}


def struct(*fields: Json) -> Json:
    return {"type": "struct", "fields": list(fields)}


def new_table(lake: Lake, *fields: Json, version: int = 3) -> None:
    """Create `t`: a column `id` and the given ones, which keep their ids."""
    body = {"name": "t", "schema": struct(field(1, "id", "long")), "properties": {"format-version": str(version)}}
    create_table(lake.services, ("main",), CreateTableRequest.model_validate(body))
    if fields:
        add(lake, *fields)


def commit(lake: Lake, *updates: Json) -> None:
    request = CommitTableRequest.model_validate({"requirements": [], "updates": updates})
    commit_table(lake.services, ("main",), "t", request)


def evolve(lake: Lake, change: Callable[[list[Json]], list[Json]]) -> None:
    """Commit the schema that `change` makes of the current one's fields."""
    schema = lake.metadata().schema().to_json()
    evolved = {**schema, "fields": change(schema["fields"])}
    commit(lake, {"action": "add-schema", "schema": evolved}, {"action": "set-current-schema", "schema-id": -1})


def add(lake: Lake, *fields: Json) -> None:
    evolve(lake, lambda known: [*known, *fields])


def retype(lake: Lake, name: str, kind: Json) -> None:
    """Give a column another type."""
    evolve(lake, lambda known: [{**each, "type": kind} if each["name"] == name else each for each in known])


def fields_of(lake: Lake) -> dict[str, Json]:
    """The columns but `id`, by name, in their order."""
    return {each["name"]: each for each in lake.metadata().schema().to_json()["fields"] if each["name"] != "id"}


def append(lake: Lake, columns: Mapping[str, pa.Array], **metrics: Json) -> None:
    """Append a file of these columns; `metrics` are more of the manifest entry's."""
    metadata = lake.metadata()
    ids = {each.name: each.id for each in metadata.schema().fields}
    fields = [pa.field(name, a.type, metadata={"PARQUET:field_id": str(ids[name])}) for name, a in columns.items()]
    table = pa.table(list(columns.values()), schema=pa.schema(fields))
    draft = Draft(metadata.to_json(), format_version=metadata.format_version)
    path = f"{metadata.location}/data/{uuid4()}.parquet"
    local(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, local(path), store_schema=False)
    file = DataFile(
        content=FileContent.DATA,
        file_path=path,
        file_format="PARQUET",
        partition=metrics.pop("partition", ()),
        record_count=len(table),
        file_size_in_bytes=local(path).stat().st_size,
        value_counts={ids[name]: len(table) for name in columns},
        null_value_counts={ids[name]: array.null_count for name, array in columns.items()},
        **metrics,
    )
    body = draft.body([draft.manifest([file], metadata.spec()), *draft.parent_manifests])
    commit(lake, *body["updates"])


def bound(kind: str, value: Any) -> bytes:
    return to_bytes(PrimitiveType.parse(kind), value)
