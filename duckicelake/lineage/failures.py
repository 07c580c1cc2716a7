"""PURE. Requests that would have changed the lake and were refused, as runs that failed.

It tells something of a job that its commits conflict, are wrong, or meet a server in trouble. It tells nothing that
somebody may not do what they ask for, names what isn't there, or creates what is there already.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from openlineage.client.facet_v2 import error_message_run

from duckicelake.lineage.facets import as_json
from duckicelake.lineage.jobs import job_name
from duckicelake.lineage.naming import Lake
from duckicelake.lineage.outputs import announced
from duckicelake.lineage.runs import described, event
from duckicelake.lineage.told import Json, Known, Told

_TELLING: Final = frozenset(
    {
        "CommitFailedException",
        "ConflictException",
        "BadRequestException",
        "IllegalArgumentException",
        "UnprocessableEntityException",
        "UnsupportedOperationException",
        "DamagedTableException",
    }
)
_UNKNOWN: Final = "CommitStateUnknownException"
"""If it was written after all, it is in the chronicle."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that was refused, as the change that it would have been. result: an error's type and status.

    object_id and location are None where there is no such table; a resource that is no table's has no name.
    """

    id: int
    at: datetime
    principal: str | None
    request_id: str | None
    operation: str
    namespace: str
    name: str | None
    result: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    object_id: int | None = None
    source: str = "rest"
    snapshot_id: int = -1
    previous: None = None
    uuid: None = None
    iceberg_snapshot_id: None = None

    @property
    def ordinal(self) -> int:
        return self.id

    @property
    def kind(self) -> str:
        return self.operation

    @property
    def agent(self) -> str | None:
        return (self.facts.get("client") or {}).get("user-agent")

    @property
    def resource(self) -> str:
        return self.namespace if self.name is None else f"{self.namespace}.{self.name}"


def is_failure(result: str) -> bool:
    """Whether it tells something of a job that a request came to this."""
    error, _, status = result.rpartition(" ")
    return error != _UNKNOWN and (error in _TELLING or status.startswith("5"))


def failed_runs(refused: Sequence[Refused], lake: Lake) -> list[Json]:
    """The beginnings and ends of what failed; what one job met several times is one run."""
    found: dict[tuple[str, str], list[Refused]] = {}
    for each in refused:
        found.setdefault((job_name([_told(each)], lake), each.result), []).append(each)
    return [told for group in found.values() for told in _failed(group, lake)]


def _failed(group: Sequence[Refused], lake: Lake) -> list[Json]:
    first, last = group[0], group[-1]
    times = f", {len(group)} times" if len(group) > 1 else ""
    error = as_json(error_message_run.ErrorMessageRunFacet(f"{first.operation}: {first.result}{times}", "PYTHON"))
    body = described([_told(first)], lake)
    run = {**body["run"], "facets": {**body["run"]["facets"], "errorMessage": error}}
    outputs = announced(body["outputs"]) if first.object_id is not None else []
    body = {**body, "run": run, "outputs": outputs}
    return [event(body, "START", first.at), event(body, "FAIL", last.at)]


def _told(refused: Refused) -> Told:
    return Told(refused, Known(refused.facts.get("location")))
