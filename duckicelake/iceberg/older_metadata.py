"""What metadata files of older writers leave out or spell otherwise, made uniform before they are read."""

import uuid
from collections.abc import Callable
from itertools import count
from typing import Final

from duckicelake.iceberg.model import Json
from duckicelake.iceberg.partition import FIRST_PARTITION_FIELD_ID
from duckicelake.iceberg.snapshot import MAIN

_UNSORTED: Final = {"order-id": 0, "fields": []}
_NO_SNAPSHOT: Final = -1


def uniform(data: dict[str, Json]) -> dict[str, Json]:
    """Give the JSON with all that readers may infer written out; the malformed stays so, for the caller to refuse.

    A version 1 table without a uuid gets one that follows from its location.
    """
    present = {key: value for key, value in data.items() if value is not None}
    return _with_main(_from_version_1(present) if present["format-version"] == 1 else present)


def _from_version_1(data: dict[str, Json]) -> dict[str, Json]:
    defaults: dict[str, Json] = {
        "table-uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, str(data.get("location")))),
        "last-sequence-number": 0,
        "sort-orders": [_UNSORTED],
        "default-sort-order-id": 0,
        "default-spec-id": 0,
    }
    if "schemas" not in data and isinstance(data.get("schema"), dict):
        schema = {"schema-id": 0} | data["schema"]
        defaults |= {"schemas": [schema], "current-schema-id": schema["schema-id"]}
    if "partition-specs" not in data and "partition-spec" in data:
        defaults["partition-specs"] = [{"spec-id": 0, "fields": data["partition-spec"]}]
    merged = defaults | data
    specs = _mapped(_with_field_ids, merged.get("partition-specs"))
    return {"last-partition-id": _last_partition_id(specs)} | merged | {"partition-specs": specs}


def _with_field_ids(spec: Json) -> Json:
    numbers = count(FIRST_PARTITION_FIELD_ID)
    if not isinstance(spec, dict):
        return spec
    return spec | {"fields": _mapped(lambda field: _with_field_id(field, next(numbers)), spec.get("fields"))}


def _with_field_id(field: Json, field_id: int) -> Json:
    return {"field-id": field_id} | field if isinstance(field, dict) else field


def _last_partition_id(specs: Json) -> int:
    ids = (field["field-id"] for spec in _objects(specs) for field in _objects(spec["fields"]))
    return max((each for each in ids if isinstance(each, int)), default=FIRST_PARTITION_FIELD_ID - 1)


def _mapped(change: Callable[[Json], Json], values: Json) -> Json:
    return [change(each) for each in values] if isinstance(values, list) else values


def _objects(values: Json) -> list[dict[str, Json]]:
    return [each for each in values if isinstance(each, dict)] if isinstance(values, list) else []


def _with_main(data: dict[str, Json]) -> dict[str, Json]:
    current, refs = data.get("current-snapshot-id"), data.get("refs", {})
    if current == _NO_SNAPSHOT:
        return {key: value for key, value in data.items() if key != "current-snapshot-id"}
    if current is None or not isinstance(refs, dict) or MAIN in refs:
        return data
    return data | {"refs": refs | {MAIN: {"snapshot-id": current, "type": "branch"}}}
