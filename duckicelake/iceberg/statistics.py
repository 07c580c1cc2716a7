"""Statistics files that table metadata names (table spec, "Table Statistics" and "Partition Statistics")."""

from duckicelake.iceberg.model import Int, Long, SpecModel


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
