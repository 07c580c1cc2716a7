"""What the server answers of a lake's upkeep: the audit trail, findings, files that no table needs, statistics."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from duckicelake.client.models import Json, TableSize, build_name
from duckicelake.rest.names import Namespace


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """Who asked for what, when, from where, with what result: ok, unchanged, or an error's type and status."""

    id: int
    at: datetime
    principal: str
    address: str
    request_id: str
    operation: str
    resource: str
    result: str
    snapshot_id: int | None
    detail: Json
    client: Json


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The outcome of one check. advice: what to do; empty where all is well."""

    name: str
    ok: bool
    detail: str
    advice: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """How far a check is. findings: what it found once it has ended; None while it runs. seconds: since it began.

    done, total: of a check that looks for files, how many it has looked for, and how many there are.
    """

    check: str
    findings: tuple[CheckResult, ...] | None
    seconds: float
    done: int | None
    total: int | None


@dataclass(frozen=True, slots=True)
class OrphanInfo:
    """A file that no table needs."""

    location: str
    bytes: int
    modified: datetime


@dataclass(frozen=True, slots=True)
class OrphanInfos:
    """Files that no table needs. unlisted: how many more there are. doubt: why they may be another lake's."""

    files: tuple[OrphanInfo, ...]
    unlisted: int
    doubt: str | None


@dataclass(frozen=True, slots=True)
class UpkeepInfo:
    """What decides about the upkeep of a table. Sizes are bytes, times milliseconds since the epoch.

    Attributes:
        policies: what properties, options and settings come to.
        records, deleted: rows of data files, and how many of them are deleted.
        by_deleted_tenths: how many files have lost a tenth of their rows or more, two tenths, … nine tenths.
        small_by_partition: in how many partitions there are so many files under 3/4 of the target size.

    """

    namespace: Namespace
    table: str
    format_version: int | None
    location: str | None
    target_size: int
    policies: Mapping[str, str]
    files: int
    bytes: int
    records: int
    deleted: int
    files_with_deletes: int
    delete_files: int
    unsorted_bytes: int
    unfiltered_bytes: int
    sorted_by: str | None
    sortable_columns: tuple[str, ...] | None
    by_deleted_tenths: tuple[int, ...]
    small_by_partition: Mapping[str, int]
    small_files: int
    small_bytes: int
    inlined_rows: int
    inlined_oldest_ms: int | None
    snapshots: int
    oldest_ms: int | None
    refs_end_ms: int | None
    branch_age_ms: int | None
    current_ms: int | None
    described_ms: int | None
    cleaned_ms: int | None
    manifests: int
    small_manifests: int
    plain_deletes: int = 0
    has_single_values: bool = True

    @property
    def size(self) -> TableSize:
        """How large the table is."""
        return TableSize(
            build_name(self.namespace, self.table),
            self.records - self.deleted + self.inlined_rows,
            self.files,
            self.bytes,
            None if self.current_ms is None else datetime.fromtimestamp(self.current_ms / 1000, UTC),
            self.inlined_rows,
        )
