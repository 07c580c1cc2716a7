"""PURE. How many snapshots a table lists, where it sets a limit: metadata.json and every answer grow with their number.

They leave as by an Iceberg client's expiry: DuckLake keeps its own, and files that no listed snapshot needs are let go.
"""

import re
from collections.abc import Mapping
from typing import Final

from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.apply import apply
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.updates import RemoveSnapshots

MAX_LISTED: Final = "ducklake.max-listed-snapshots"
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)


def max_listed(properties: Mapping[str, str]) -> int | None:
    """What the table says of how many snapshots it lists at most; InvalidRequest if it isn't a number."""
    text = properties.get(MAX_LISTED)
    if text is not None and not _NUMBER.fullmatch(text):
        raise InvalidRequest(f"The table property {MAX_LISTED} is {text!r}: write a number from 1 on")
    return None if text is None else int(text)


def within_limit(metadata: TableMetadata) -> TableMetadata:
    """The metadata without its oldest snapshots if it lists more than it should; what branches and tags name stays.

    A tenth more leave than must, so that most commits take none out.
    """
    most = max_listed(metadata.properties)
    if most is None or len(metadata.snapshots) <= most:
        return metadata
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    excess = len(metadata.snapshots) - (most - most // 10)
    gone = [each.snapshot_id for each in metadata.snapshots if each.snapshot_id not in named][:excess]
    if not gone:
        return metadata
    return apply(metadata, [RemoveSnapshots(snapshot_ids=tuple(gone))], metadata.last_updated_ms)
