"""Delta tables by hand for what delta-rs doesn't write: deletion vectors, column mapping, logs without statistics."""

import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from duckicelake.delta.log import vectors
from duckicelake.delta.log.vectors import PORTABLE_MAGIC
from tests.delta.logs import Action, HandMade, add, metadata, protocol

VECTORS = ("deletionVectors",)
Column = dict[str, Any]


def column(name: str, type_: Any, field_id: int | None = None, physical: str | None = None, **more: Any) -> Column:
    """A field of a Delta schema; with an id it is mapped."""
    mapped = {} if field_id is None else {
        "delta.columnMapping.id": field_id, "delta.columnMapping.physicalName": physical or name
    }  # fmt: skip
    return {"name": name, "type": type_, "nullable": True, "metadata": {**mapped, **more.pop("metadata", {})}, **more}


def schema(*columns: Column) -> str:
    return orjson.dumps({"type": "struct", "fields": list(columns)}).decode()


def defined(*columns: Column, partition_by: Iterable[str] = (), **configuration: str) -> Action:
    """A `metaData` action."""
    action = metadata(configuration, schema(*columns))
    action["metaData"]["partitionColumns"] = list(partition_by)
    return action


def vector(*positions: int) -> Mapping[str, Any]:
    """An inline deletion vector."""
    data = PORTABLE_MAGIC.to_bytes(4, "little") + bytes(BitMap64(positions).serialize())
    return {"storageType": "i", "pathOrInlineDv": vectors.encode_z85(data), "sizeInBytes": len(data),
            "cardinality": len(positions)}  # fmt: skip


def vector_file(table: HandMade, name: str, *positions: int) -> Mapping[str, Any]:
    """A deletion vector in a file, by its absolute path."""
    data = PORTABLE_MAGIC.to_bytes(4, "little") + bytes(BitMap64(positions).serialize())
    path = table.folder / name
    path.write_bytes(b"\x01" + len(data).to_bytes(4, "big") + data + zlib.crc32(data).to_bytes(4, "big"))
    return {"storageType": "p", "pathOrInlineDv": f"file://{path}", "offset": 1, "sizeInBytes": len(data),
            "cardinality": len(positions)}  # fmt: skip


def written(table: HandMade, name: str, data: pa.Table, stats: Mapping[str, Any] | None = None, **more: Any) -> Action:
    """A data file and its `add`."""
    path = table.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(data, path)
    known = {"numRecords": data.num_rows} if stats is None else stats
    text = {"stats": orjson.dumps(known).decode()} if known else {}
    return add(more.pop("path", name), path.stat().st_size, **text, **more)


def again(action: Action, deletion_vector: Mapping[str, Any] | None, **more: Any) -> Action:
    """The same file's `add` with another deletion vector."""
    plain = {key: value for key, value in action["add"].items() if key != "deletionVector"}
    return {"add": plain | ({} if deletion_vector is None else {"deletionVector": deletion_vector}) | more}


def gone(action: Action, **more: Any) -> Action:
    """The `remove` of a file that was added so."""
    kept = {key: action["add"][key] for key in ("path", "deletionVector") if key in action["add"]}
    return {"remove": {**kept, "dataChange": True, "deletionTimestamp": 1, **more}}


def new_table(folder: Path) -> HandMade:
    folder.mkdir(parents=True)
    return HandMade(folder)


def with_features(*names: str) -> Action:
    return protocol(3, 7, names)
