"""Snapshots, refs, logs, statistics files and encryption keys (table spec, "Snapshots")."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Annotated, Literal

import orjson
from pydantic import AliasChoices, BeforeValidator, Field

from duckicelake.iceberg.model import Int, Json, Long, SpecModel, lower_text

MAIN = "main"
RefType = Annotated[Literal["branch", "tag"], BeforeValidator(lower_text)]


class BlobMetadata(SpecModel):
    type: str
    snapshot_id: Long
    sequence_number: Long
    fields: tuple[Int, ...]
    properties: dict[str, str] | None = None


class StatisticsFile(SpecModel):
    snapshot_id: Long
    statistics_path: str
    file_size_in_bytes: Long
    file_footer_size_in_bytes: Long
    key_metadata: str | None = None
    blob_metadata: tuple[BlobMetadata, ...] = ()


class PartitionStatisticsFile(SpecModel):
    snapshot_id: Long
    statistics_path: str
    file_size_in_bytes: Long


class EncryptedKey(SpecModel):
    """Also reads `key-metadata`, the spelling of the spec's appendix."""

    key_id: str
    encrypted_key_metadata: str = Field(
        validation_alias=AliasChoices("encrypted-key-metadata", "key-metadata", "encrypted_key_metadata")
    )
    encrypted_by_id: str | None = None
    properties: dict[str, str] | None = None


class Snapshot(SpecModel):
    """One state of a table.

    In version 1 the sequence number is 0 and `manifests` may stand instead of `manifest_list`.
    """

    snapshot_id: Long
    parent_snapshot_id: Long | None = None
    sequence_number: Long = 0
    timestamp_ms: Long
    manifest_list: str | None = None
    manifests: tuple[str, ...] | None = None
    summary: dict[str, str] = Field(default_factory=dict)
    schema_id: Int | None = None
    first_row_id: Long | None = None
    added_rows: Long | None = None
    key_id: str | None = None

    @property
    def operation(self) -> str | None:
        """The operation of the snapshot: append, replace, overwrite or delete; None in old version 1 snapshots."""
        return self.summary.get("operation")

    def to_json(self, format_version: int = 2) -> dict[str, Json]:
        """Return the spec's JSON. Written by hand for speed: a table can list thousands."""
        values: dict[str, Json] = {
            "snapshot-id": self.snapshot_id,
            "parent-snapshot-id": self.parent_snapshot_id,
            "sequence-number": self.sequence_number if format_version > 1 else None,
            "timestamp-ms": self.timestamp_ms,
            "manifest-list": self.manifest_list,
            "manifests": None if self.manifests is None else list(self.manifests),
            "summary": self.summary or None,
            "schema-id": self.schema_id,
            "first-row-id": self.first_row_id,
            "added-rows": self.added_rows,
            "key-id": self.key_id,
        }
        return {key: value for key, value in values.items() if value is not None}

    @property
    def encoded(self) -> bytes:
        """The JSON from version 2 on."""
        return orjson.dumps(self.to_json())


def walk_ancestry(snapshots: Mapping[int, Snapshot], newest: int | None) -> Iterator[int]:
    """Yield a snapshot's id and those of its known ancestors; a circle of parents ends, too."""
    seen: set[int] = set()
    while newest is not None and newest in snapshots and newest not in seen:
        seen.add(newest)
        yield newest
        newest = snapshots[newest].parent_snapshot_id


class SnapshotRef(SpecModel):
    """A branch or tag. A tag keeps only its own age; the other two limits are a branch's."""

    snapshot_id: Long
    type: RefType
    max_ref_age_ms: Long | None = None
    max_snapshot_age_ms: Long | None = None
    min_snapshots_to_keep: Int | None = None


class SnapshotLogEntry(SpecModel):
    snapshot_id: Long
    timestamp_ms: Long

    @property
    def encoded(self) -> bytes:
        """The JSON."""
        return b'{"snapshot-id":%d,"timestamp-ms":%d}' % (self.snapshot_id, self.timestamp_ms)


class MetadataLogEntry(SpecModel):
    metadata_file: str
    timestamp_ms: Long

    @cached_property
    def encoded(self) -> bytes:
        """The JSON, encoded once."""
        return orjson.dumps({"metadata-file": self.metadata_file, "timestamp-ms": self.timestamp_ms})
