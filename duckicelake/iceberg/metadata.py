"""Table metadata, format versions 1 to 3, and the snapshots to expire (table spec, "Table Metadata Fields")."""

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from operator import attrgetter, methodcaller
from typing import Annotated, Literal, TypeVar

import orjson
from pydantic import AfterValidator, Field

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.metadata_file import normalize_metadata
from duckicelake.iceberg.model import Int, Json, Long, SpecModel, parse
from duckicelake.iceberg.partition import PartitionSpec
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.snapshot import (
    MAIN,
    EncryptedKey,
    MetadataLogEntry,
    PartitionStatisticsFile,
    Snapshot,
    SnapshotLogEntry,
    SnapshotRef,
    StatisticsFile,
)
from duckicelake.iceberg.sort import SortOrder

SUPPORTED_FORMAT_VERSION = 3
ROW_LINEAGE_VERSION = 3
SEQUENCE_NUMBER_VERSION = 2
Item = TypeVar("Item")
HistoryItem = TypeVar("HistoryItem", Snapshot, SnapshotLogEntry)
_INVALID = "invalid table metadata"
_SNAPSHOT_ID = attrgetter("snapshot_id")
_ENCODED = attrgetter("encoded")
_TO_JSON = methodcaller("to_json")
_TO_JSON_ONCE = methodcaller("to_json_once")


def canonicalize_uuid(text: str) -> str:
    """Return a UUID in its canonical form; InvalidRequestError: it is none."""
    try:
        return str(uuid.UUID(text))
    except ValueError as error:
        raise InvalidRequestError(f"{text!r} is not a UUID") from error


TableUuid = Annotated[str, AfterValidator(canonicalize_uuid)]


class TableMetadata(SpecModel):
    """The content of metadata.json. `next_row_id` is None below version 3."""

    format_version: Literal[1, 2, 3]
    table_uuid: TableUuid
    location: str
    last_sequence_number: Long
    last_updated_ms: Long
    last_column_id: Int
    schemas: tuple[Schema, ...]
    current_schema_id: Int
    partition_specs: tuple[PartitionSpec, ...]
    default_spec_id: Int
    last_partition_id: Int
    sort_orders: tuple[SortOrder, ...]
    default_sort_order_id: Int
    properties: dict[str, str] = Field(default_factory=dict)
    current_snapshot_id: Long | None = None
    refs: dict[str, SnapshotRef] = Field(default_factory=dict)
    snapshots: tuple[Snapshot, ...] = ()
    statistics: tuple[StatisticsFile, ...] = ()
    partition_statistics: tuple[PartitionStatisticsFile, ...] = ()
    snapshot_log: tuple[SnapshotLogEntry, ...] = ()
    metadata_log: tuple[MetadataLogEntry, ...] = ()
    next_row_id: Long | None = None
    encryption_keys: tuple[EncryptedKey, ...] = ()

    @cached_property
    def snapshots_by_id(self) -> dict[int, Snapshot]:
        """The snapshots by their id."""
        return dict(zip(map(_SNAPSHOT_ID, self.snapshots), self.snapshots, strict=True))

    def schema(self, schema_id: int | None = None) -> Schema:  # type: ignore[override]  # pydantic v1's name
        """Return the schema of an id, by default the current one. InvalidRequestError: there is none."""
        wanted = self.current_schema_id if schema_id is None else schema_id
        return _require_single(
            (known_schema for known_schema in self.schemas if known_schema.schema_id == wanted), f"schema {wanted}"
        )

    def spec(self, spec_id: int | None = None) -> PartitionSpec:
        """Return the partition spec of an id, by default the default one. InvalidRequestError: there is none."""
        wanted = self.default_spec_id if spec_id is None else spec_id
        return _require_single(
            (known_spec for known_spec in self.partition_specs if known_spec.spec_id == wanted),
            f"partition spec {wanted}",
        )

    @cached_property
    def current_schema(self) -> Schema:
        """The current schema; InvalidRequestError if there is none."""
        return self.schema()

    @cached_property
    def specs_to_try(self) -> tuple[PartitionSpec, ...]:
        """The default spec, then the other partitioned specs, the newest first."""
        default = self.spec()
        others = [spec for spec in self.partition_specs if spec is not default and spec.fields]
        return (default, *reversed(others))

    def sort_order(self, order_id: int | None = None) -> SortOrder:
        """Return the sort order of an id, by default the default one. InvalidRequestError: there is none."""
        wanted = self.default_sort_order_id if order_id is None else order_id
        return _require_single(
            (order for order in self.sort_orders if order.order_id == wanted), f"sort order {wanted}"
        )

    def snapshot(self, snapshot_id: int) -> Snapshot | None:
        """Return the snapshot of an id, None if it isn't listed."""
        return self.snapshots_by_id.get(snapshot_id)

    def current_snapshot(self) -> Snapshot | None:
        """Return the snapshot that `main` points to, None if there is none."""
        return None if self.current_snapshot_id is None else self.snapshot(self.current_snapshot_id)

    def to_json(self) -> dict[str, Json]:
        """Return the JSON of this format version. Optional keys that are None are left out."""
        return self._serialize_scalars() | self._serialize_versioned() | _serialize_lists(self, _TO_JSON)

    def drop_history(self) -> dict[str, Json]:
        """Return the JSON without snapshots and logs. It is cached; callers must not change it."""
        return self._with_schemas(self.schemas)

    def encode(self, snapshots: Iterable[Snapshot] | None = None) -> bytes:
        """Encode the JSON, with all snapshots or only these. Snapshots and logs are encoded once."""
        values = self._with_schemas(())
        values["schemas"] = orjson.Fragment(_join_json(self.schemas))
        values["snapshots"] = self._encode_snapshots(snapshots)
        values["snapshot-log"] = orjson.Fragment(self.encoded_log)
        values["metadata-log"] = orjson.Fragment(_join_json(self.metadata_log))
        return orjson.dumps(values)

    def _encode_snapshots(self, chosen: Iterable[Snapshot] | None) -> Json:
        if self.format_version < SEQUENCE_NUMBER_VERSION:
            return [snapshot.to_json(1) for snapshot in (self.snapshots if chosen is None else chosen)]
        return orjson.Fragment(self.encoded_snapshots if chosen is None else _join_json(chosen))

    @cached_property
    def encoded_snapshots(self) -> bytes:
        """The JSON of the snapshots, from version 2 on."""
        return _join_json(self.snapshots)

    @cached_property
    def encoded_log(self) -> bytes:
        """The JSON of the snapshot log."""
        return _join_json(self.snapshot_log)

    def reuse_history(self, before: "TableMetadata") -> None:
        """Take over what an older version computed of the snapshots and the log that both have.

        Of 2,000 snapshots this takes 0.1 ms; to encode and to index them all takes 10 ms.
        """
        known = self.__dict__
        if (change := _compare_history(before.snapshots, self.snapshots)) is not None:
            gone, added = change
            if not gone:
                known["snapshots_by_id"] = before.snapshots_by_id | {item.snapshot_id: item for item in added}
            if self.format_version >= SEQUENCE_NUMBER_VERSION:
                known["encoded_snapshots"] = _move_json(before.encoded_snapshots, gone, added)
        if (logged := _compare_history(before.snapshot_log, self.snapshot_log)) is not None:
            known["encoded_log"] = _move_json(before.encoded_log, *logged)

    def _with_schemas(self, schemas: tuple[Schema, ...]) -> dict[str, Json]:
        """Return the JSON without history, with these schemas only. Schemas as values take many times their JSON."""
        short = self.replace_fields(schemas=schemas, snapshots=(), snapshot_log=(), metadata_log=())
        return self._serialize_scalars() | self._serialize_versioned() | _serialize_lists(short, _TO_JSON_ONCE)

    def _serialize_scalars(self) -> dict[str, Json]:
        current = {} if self.current_snapshot_id is None else {"current-snapshot-id": self.current_snapshot_id}
        return {
            "format-version": self.format_version,
            "table-uuid": self.table_uuid,
            "location": self.location,
            "last-updated-ms": self.last_updated_ms,
            "last-column-id": self.last_column_id,
            "current-schema-id": self.current_schema_id,
            "default-spec-id": self.default_spec_id,
            "last-partition-id": self.last_partition_id,
            "default-sort-order-id": self.default_sort_order_id,
            **current,
            "properties": dict(self.properties),
        }

    def _serialize_versioned(self) -> dict[str, Json]:
        if self.format_version == 1:
            return {"schema": self.schema().to_json(), "partition-spec": self.spec().to_json()["fields"]}
        values: dict[str, Json] = {"last-sequence-number": self.last_sequence_number}
        if self.format_version >= ROW_LINEAGE_VERSION:
            values["next-row-id"] = self.next_row_id or 0
        if self.encryption_keys:
            values["encryption-keys"] = list(map(_TO_JSON, self.encryption_keys))
        return values


def _require_single(found: Iterable[Item], what: str) -> Item:
    for item in found:
        return item
    raise InvalidRequestError(f"the table has no {what}")


def _serialize_lists(metadata: TableMetadata, as_json: Callable[[SpecModel], Json]) -> dict[str, Json]:
    return {
        "schemas": list(map(as_json, metadata.schemas)),
        "partition-specs": list(map(as_json, metadata.partition_specs)),
        "sort-orders": list(map(as_json, metadata.sort_orders)),
        "refs": {name: as_json(ref) for name, ref in metadata.refs.items()},
        "snapshots": [snapshot.to_json(metadata.format_version) for snapshot in metadata.snapshots],
        "statistics": list(map(as_json, metadata.statistics)),
        "partition-statistics": list(map(as_json, metadata.partition_statistics)),
        "snapshot-log": [
            {"snapshot-id": entry.snapshot_id, "timestamp-ms": entry.timestamp_ms} for entry in metadata.snapshot_log
        ],
        "metadata-log": [
            {"metadata-file": entry.metadata_file, "timestamp-ms": entry.timestamp_ms}
            for entry in metadata.metadata_log
        ],
    }


def _join_json(models: Iterable[Schema | Snapshot | SnapshotLogEntry | MetadataLogEntry]) -> bytes:
    return b"[" + b",".join(map(_ENCODED, models)) + b"]"


def _move_json(array: bytes, gone: Sequence[HistoryItem], added: Sequence[HistoryItem]) -> bytes:
    """Return the JSON array without the first items, some of which stay, and with others at its end.

    What stays is copied once and not encoded again.
    """
    start = sum(len(item.encoded) + len(b",") for item in gone)
    kept = b"[" + array[1 + start :] if gone else array
    if not added:
        return kept
    return b",".join((memoryview(kept)[:-1], *map(_ENCODED, added[:-1]), added[-1].encoded + b"]"))


def _compare_history(
    before: tuple[HistoryItem, ...], after: tuple[HistoryItem, ...]
) -> tuple[tuple[HistoryItem, ...], tuple[HistoryItem, ...]] | None:
    """Return (the oldest items, which are gone; the newest, which came); None where none stays or another changed."""
    start = next((number for number, item in enumerate(before) if after and item is after[0]), None)
    if start is None:
        return None
    kept = before[start:]
    return (before[:start], after[len(kept) :]) if after[: len(kept)] == kept else None


def parse_table_metadata(data: Json) -> TableMetadata:
    """Read the JSON of table metadata, version 1, 2 or 3, by any writer.

    Raises:
        InvalidRequestError: a required key is missing or malformed, or ids contradict each other.

    """
    version = data.get("format-version") if isinstance(data, dict) else None
    if version not in range(1, SUPPORTED_FORMAT_VERSION + 1):
        raise InvalidRequestError(f"{_INVALID}: format-version {version!r}, expected 1, 2 or 3")
    metadata = parse(TableMetadata, normalize_metadata(data), "table metadata")
    _check_ids(metadata)
    _check_refs(metadata)
    for snapshot in metadata.snapshots:
        _check_snapshot(metadata, snapshot)
    return metadata


def _check_ids(metadata: TableMetadata) -> None:
    _check_unique("schema-id", (schema.schema_id for schema in metadata.schemas))
    _check_unique("spec-id", (spec.spec_id for spec in metadata.partition_specs))
    _check_unique("order-id", (order.order_id for order in metadata.sort_orders))
    _check_unique("snapshot-id", (snapshot.snapshot_id for snapshot in metadata.snapshots))
    metadata.schema()
    metadata.spec()
    metadata.sort_order()
    if (metadata.next_row_id is None) == (metadata.format_version >= ROW_LINEAGE_VERSION):
        raise InvalidRequestError(
            f"{_INVALID}: next-row-id belongs to format version {ROW_LINEAGE_VERSION} and is required there"
        )


def _check_unique(what: str, ids: Iterable[int]) -> None:
    for id_, times in Counter(ids).items():
        if times > 1:
            raise InvalidRequestError(f"{_INVALID}: {what} {id_} is listed {times} times")


def _check_refs(metadata: TableMetadata) -> None:
    for name, ref in metadata.refs.items():
        if metadata.snapshot(ref.snapshot_id) is None:
            raise InvalidRequestError(f"{_INVALID}: {name} points to unknown snapshot {ref.snapshot_id}")
    main = metadata.refs.get(MAIN)
    if (main.snapshot_id if main else None) != metadata.current_snapshot_id:
        raise InvalidRequestError(f"{_INVALID}: main isn't the current snapshot, {metadata.current_snapshot_id}")


def _check_snapshot(metadata: TableMetadata, snapshot: Snapshot) -> None:
    number, last = snapshot.sequence_number, metadata.last_sequence_number
    if number > last:
        raise InvalidRequestError(
            f"{_INVALID}: sequence number {number} of {snapshot.snapshot_id} is beyond the last, {last}"
        )
    if snapshot.manifest_list is None and snapshot.manifests is None:
        raise InvalidRequestError(f"{_INVALID}: snapshot {snapshot.snapshot_id} has no manifest-list")
