"""PURE. What the catalog tells of a table's upkeep, as values; `lake.maintenance` is where the numbers are from."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class TableState:
    """One table; sizes are bytes, times milliseconds since the epoch.

    small_by_partition: in how many partitions there are so many files under 3/4 of the target size. by_deleted_tenths:
    how many files have lost a tenth of their rows or more, two tenths, … nine tenths.
    """

    namespace: tuple[str, ...]
    table: str
    policies: Mapping[str, str] = field(default_factory=dict)
    format_version: int | None = None
    target_size: int = 512 * 1024 * 1024
    files: int = 0
    bytes: int = 0
    deleted: int = 0
    unsorted_bytes: int = 0
    by_deleted_tenths: tuple[int, ...] = (0,) * 9
    small_by_partition: Mapping[int, int] = field(default_factory=dict)
    inlined_rows: int = 0
    inlined_oldest_ms: int | None = None
    files_with_deletes: int = 0
    delete_files: int = 0
    snapshots: int = 0
    oldest_ms: int | None = None
    current_ms: int | None = None
    described_ms: int | None = None
    cleaned_ms: int | None = None
    manifests: int = 0
    small_manifests: int = 0


_FIELDS: Final = {each.name.replace("_", "-"): each.name for each in fields(TableState)}


def state_of(told: Mapping[str, Any]) -> TableState:
    """The table as the catalog's JSON tells it."""
    values = {_FIELDS[key]: value for key, value in told.items() if key in _FIELDS}
    values["namespace"] = tuple(values["namespace"])
    values["by_deleted_tenths"] = tuple(values["by_deleted_tenths"])
    values["small_by_partition"] = {int(files): parts for files, parts in values["small_by_partition"].items()}
    return TableState(**values)
