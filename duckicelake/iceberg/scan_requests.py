"""Requests of the scan planning routes (REST specification, "planTableScan")."""

from typing import Any

from pydantic import Field, model_validator

from duckicelake.iceberg.model import Long, SpecModel

MAX_NAMES = 10_000


class PlanTableScanRequest(SpecModel):
    """What a scan reads. The filter is JSON, parsed by `expressions`; without one, everything passes."""

    snapshot_id: Long | None = None
    start_snapshot_id: Long | None = None
    end_snapshot_id: Long | None = None
    select: tuple[str, ...] | None = Field(default=None, max_length=MAX_NAMES)
    filter: Any = True
    case_sensitive: bool = True
    use_snapshot_schema: bool = False
    stats_fields: tuple[str, ...] | None = Field(default=None, max_length=MAX_NAMES)
    min_rows_requested: Long | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _check_kinds(self) -> "PlanTableScanRequest":
        is_incremental = self.start_snapshot_id is not None or self.end_snapshot_id is not None
        if is_incremental and self.snapshot_id is not None:
            raise ValueError(
                "snapshot-id names one snapshot, start-snapshot-id and end-snapshot-id a range: send one kind"
            )
        if self.start_snapshot_id is not None and self.end_snapshot_id is None:
            raise ValueError("start-snapshot-id is given, so end-snapshot-id is needed")
        return self


class FetchScanTasksRequest(SpecModel):
    plan_task: str
