"""Datasets as the graph has them, and what may become of them by what is told."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from duckicelake.lake.lineage.told import Dataset, LakeTable

RECEIVED: Final = "received"
"""The origin of what others have sent."""


@dataclass(slots=True, eq=False)
class Entry:
    """A row of `duckicelake_lineage_dataset`; id: 0 until it is written. facet_times: when each facet was told."""

    id: int
    namespace: str
    name: str
    is_located: bool
    schema_name: str | None
    table_name: str | None
    kind: str
    origin: str
    first_seen: datetime
    last_seen: datetime
    lifecycle: str | None
    lifecycle_at: datetime | None
    facets: dict[str, Any]
    facet_times: dict[str, str]


@dataclass(frozen=True, slots=True)
class Held:
    """A name that a dataset has now."""

    entry: Entry
    is_table: bool
    since: datetime


def may_rename(entry: Entry, origin: str) -> bool:
    """Whether the dataset may change its names by what comes from there."""
    return origin != RECEIVED or entry.origin == RECEIVED


def seen(entry: Entry, at: datetime) -> Entry:
    """The same, told of at a time."""
    entry.first_seen, entry.last_seen = min(entry.first_seen, at), max(entry.last_seen, at)
    return entry


def is_over(entry: Entry, at: datetime) -> bool:
    """Whether it was dropped before that."""
    return entry.lifecycle == "DROP" and entry.lifecycle_at is not None and entry.lifecycle_at < at


def table_of(entry: Entry, told: Dataset) -> LakeTable | None:
    """The table that the dataset is said to be; None: as it was."""
    if told.table is not None or not told.tables:
        return told.table
    meant = LakeTable.cut(told.tables[0].name)
    known = LakeTable(entry.schema_name or "", entry.table_name or "")
    return None if meant is None or meant.dotted == known.dotted else meant
