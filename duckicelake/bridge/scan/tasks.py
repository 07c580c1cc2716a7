"""PURE. File scan tasks as JSON (REST specification, `ScanTasks`), as released clients read them.

The specification has typed values for bounds, but Java, DuckDB and Go read hex, so bounds are written as hex.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from duckicelake.bridge.data_files import MetricsContract, parse_kept_metrics
from duckicelake.errors import UnsupportedError
from duckicelake.iceberg.manifest.entry import FileContent
from duckicelake.iceberg.partition import PartitionSpec
from duckicelake.lake.state import FileRow

_CONTENTS: Final = {
    FileContent.DATA: "data",
    FileContent.POSITION_DELETES: "position-deletes",
    FileContent.EQUALITY_DELETES: "equality-deletes",
}
_COUNTS: Final = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS: Final = ("lower_bounds", "upper_bounds")
_PLAIN: Final = ("split_offsets", "sort_order_id", "referenced_data_file", "content_offset", "content_size_in_bytes")
_NOT_IN_JSON: Final = frozenset({"NaN", "nan", "inf", "-inf", "Infinity", "-Infinity"})


def encode_content_file(
    file: FileRow,
    spec: PartitionSpec,
    contract: MetricsContract,
    stats_fields: Collection[int] = (),
    *,
    float_ids: Collection[int] = (),
    has_row_ids: bool = True,
) -> bytes:
    """Encode a data or delete file. stats_fields: ids of the fields whose counts and bounds are asked for.

    float_ids: ids of the fields of floats, of which partitions may have values that JSON lacks. has_row_ids: the
    table's format has row ids, as it has from version 3 on; DuckLake numbers rows in any.

    Raises UnsupportedError for a partition value that JSON doesn't have.
    """
    metrics = parse_kept_metrics(file)
    members: dict[str, Any] = {
        "spec-id": file.spec_id,
        "content": _CONTENTS[FileContent(file.content)],
        "file-path": file.path,
        "file-format": file.file_format.lower(),
        "file-size-in-bytes": file.file_size_in_bytes,
        "record-count": file.record_count,
        "partition": _list_partition(file, spec, float_ids),
    }
    members |= {_spell(name): metrics[name] for name in _PLAIN if metrics.get(name) is not None}
    if "key_metadata" in metrics:
        members["key-metadata"] = metrics["key_metadata"].upper()
    if metrics.get("equality_ids"):
        members["equality-ids"] = metrics["equality_ids"]
    if has_row_ids and file.first_row_id is not None and file.content == FileContent.DATA:
        members["first-row-id"] = file.first_row_id
    if stats_fields:
        members |= _list_statistics(contract.publish_bounds(file.content, metrics), set(map(str, stats_fields)))
    return orjson.dumps(members)


def _spell(name: str) -> str:
    return name.replace("_", "-")


def _list_partition(file: FileRow, spec: PartitionSpec, float_ids: Collection[int]) -> list[Any]:
    for field, value in zip(spec.fields, file.partition, strict=True):
        if value in _NOT_IN_JSON and field.source_id in float_ids and field.transform.name == "identity":
            raise UnsupportedError(
                "scan-planning",
                f"{file.path} lies in the partition {field.name} = {value}, which a plan can't say in JSON: read with "
                "scan-planning-mode=client",
            )
    return list(file.partition)


def _list_statistics(metrics: Mapping[str, Any], wanted: set[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in (*_COUNTS, *_BOUNDS):
        values = {key: value for key, value in (metrics.get(name) or {}).items() if key in wanted}
        if values:
            shown = [value.upper() if name in _BOUNDS else value for value in values.values()]
            found[_spell(name)] = {"keys": [int(key) for key in values], "values": shown}
    return found


def encode_task(data_file: bytes, delete_references: Sequence[int], residual: bytes) -> bytes:
    """Encode the task to read a file: what the deletes at these places of the answer leave, of that what passes."""
    deletes = b',"delete-file-references":' + orjson.dumps(list(delete_references)) if delete_references else b""
    return b'{"data-file":' + data_file + deletes + b',"residual-filter":' + residual + b"}"


def encode_scan_tasks(tasks: Iterable[bytes], delete_files: Sequence[bytes], plan_tasks: Sequence[str]) -> bytes:
    """Encode the members of an answer with tasks; an object without its braces."""
    members = [b'"file-scan-tasks":[' + b",".join(tasks) + b"]"]
    if delete_files:
        members.append(b'"delete-files":[' + b",".join(delete_files) + b"]")
    if plan_tasks:
        members.append(b'"plan-tasks":' + orjson.dumps(list(plan_tasks)))
    return b",".join(members)
