"""What the server answers of a lake's upkeep: the audit trail, findings of `doctor`, files that no table needs."""

from dataclasses import dataclass
from datetime import datetime

from duckicelake.client.models import Json


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


def parse_audit(entry: Json) -> AuditRecord:
    """Parse an entry of the route `/v1/audit`."""
    return AuditRecord(
        entry["id"],
        datetime.fromisoformat(entry["at"]),
        entry["principal"],
        entry["address"],
        entry["request-id"],
        entry["operation"],
        entry["resource"],
        entry["result"],
        entry.get("snapshot-id"),
        entry.get("detail"),
        entry.get("client"),
    )


def parse_check(found: Json) -> CheckResult:
    """Parse a finding of the route `/v1/doctor`."""
    return CheckResult(found["name"], found["ok"], found["detail"], found["advice"])


def parse_orphans(answer: Json) -> OrphanInfos:
    """Parse the answer of the route `/v1/orphans`."""
    files = (OrphanInfo(f["location"], f["bytes"], datetime.fromisoformat(f["modified"])) for f in answer["files"])
    return OrphanInfos(tuple(files), answer["unlisted"], answer.get("doubt"))
