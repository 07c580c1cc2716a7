"""PURE. How many snapshots a table lists, where it sets a limit: metadata.json and every answer grow with their number.

They leave as by an Iceberg client's expiry: DuckLake keeps its own, and files that no listed snapshot needs are let go.
"""

from duckicelake.bridge.table_properties import max_listed
from duckicelake.iceberg.apply import apply
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.updates import RemoveSnapshots


def within_limit(metadata: TableMetadata) -> TableMetadata:
    """The metadata without its oldest snapshots if it lists more than it should; what branches and tags name stays.

    A tenth more leave than must, so that most commits take none out.
    """
    most = max_listed(metadata.properties)
    if len(metadata.snapshots) <= most:
        return metadata
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    excess = len(metadata.snapshots) - (most - most // 10)
    gone = [each.snapshot_id for each in metadata.snapshots if each.snapshot_id not in named][:excess]
    if not gone:
        return metadata
    return apply(metadata, [RemoveSnapshots(snapshot_ids=tuple(gone))], metadata.last_updated_ms)
