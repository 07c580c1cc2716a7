"""PURE. Runs: what was changed in one transaction, with its beginning and its end as OpenLineage's events."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Literal

from openlineage.client.event_v2 import RunEvent
from openlineage.client.uuid import generate_static_uuid

from duckicelake.lineage.jobs import job_of
from duckicelake.lineage.naming import Lake
from duckicelake.lineage.outputs import announced, outputs_of
from duckicelake.lineage.producer import PRODUCER
from duckicelake.lineage.run_facets import run_facets, utc
from duckicelake.lineage.told import Json, Told

EventType = Literal["START", "RUNNING", "COMPLETE", "FAIL"]
Run = list[Told]
"""The changes of one transaction, in their order."""

_SCHEMA_URL: Final = RunEvent._get_schema()  # noqa: SLF001 - as the library itself would say it
_TRANSACTION: Final = "commit_transaction"


def key_of(told: Told) -> tuple[Any, ...]:
    """The same for all changes of a transaction. Clients may give several requests one id."""
    change = told.change
    if change.request_id is None:
        return (change.snapshot_id,)
    at = None if change.operation == _TRANSACTION else change.at
    return change.request_id, change.principal, change.operation, at


def runs_of(tolds: Sequence[Told]) -> list[Run]:
    """The runs of these changes, in the order of their beginnings."""
    found: dict[tuple[Any, ...], Run] = {}
    for told in tolds:
        found.setdefault(key_of(told), []).append(told)
    return list(found.values())


def run_id(lake: Lake, at: datetime, *identity: object) -> str:
    """An id that is the same for the same identity, and greater for a later time."""
    return str(generate_static_uuid(at, ":".join(map(str, (lake.id, *identity))).encode()))


def described(run: Run, lake: Lake) -> Json:
    """The body of a run's events, without their type and time."""
    first = run[0].change
    return {
        "producer": PRODUCER,
        "schemaURL": _SCHEMA_URL,
        "run": {
            "runId": run_id(lake, first.at, first.snapshot_id, first.ordinal),
            "facets": run_facets(run, lake),
        },
        "job": job_of(run, lake),
        "inputs": [],
        "outputs": outputs_of(run, lake),
    }


def event(body: Json, kind: EventType, at: datetime) -> Json:
    """One of the run's events. Its beginning tells of outputs by name alone."""
    outputs = announced(body["outputs"]) if kind == "START" else body["outputs"]
    return {"eventType": kind, "eventTime": utc(at), **body, "outputs": outputs}


def whole(body: Json, run: Run) -> list[Json]:
    """The beginning and the end of a run that made its changes and was done."""
    return [event(body, "START", run[0].change.at), event(body, "COMPLETE", run[-1].change.at)]
