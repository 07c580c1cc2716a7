"""PURE. What is known of a run besides what it did: its program, and the run that it is part of."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from openlineage.client.facet_v2 import (
    BaseFacet,
    external_query_run,
    nominal_time_run,
    parent_run,
    processing_engine_run,
)

from duckicelake.lineage.engines import Engine, engine_of
from duckicelake.lineage.facets import KEPT, as_json, own
from duckicelake.lineage.jobs import principal_of
from duckicelake.lineage.naming import Lake
from duckicelake.lineage.told import Json, Told

COMMIT: Final = "duckicelake_commit"
_NOBODY: Final = "unknown"
_KEYS: Final[Mapping[str, str]] = {
    "parent-run-id": "openlineage.parentRunId",
    "parent-job-name": "openlineage.parentJobName",
    "parent-job-namespace": "openlineage.parentJobNamespace",
    "root-run-id": "openlineage.rootParentRunId",
    "root-job-name": "openlineage.rootParentJobName",
    "root-job-namespace": "openlineage.rootParentJobNamespace",
    "nominal-start-time": "openlineage.nominalStartTime",
    "nominal-end-time": "openlineage.nominalEndTime",
}
"""What a client may say of its run in headers, and in the summary of its snapshot."""


def run_facets(tolds: Sequence[Told], lake: Lake) -> Json:
    """The facets of the run that made these changes in one transaction."""
    first, engine = tolds[0], engine_of(tolds[0])
    said = {**_said_in_summary(first.summary), **first.client}
    facets = [("parent", _parent(said)), ("nominalTime", _nominal(said))]
    if engine.query is not None:
        facets.append(("externalQuery", external_query_run.ExternalQueryRunFacet(engine.query, engine.name)))
    known = {key: as_json(facet) for key, facet in facets if facet is not None}
    return {"processing_engine": _engine(engine.name, engine.version), **known, COMMIT: _commit(tolds, engine, lake)}


def _commit(tolds: Sequence[Told], engine: Engine, lake: Lake) -> Json:
    first, last = tolds[0].change, tolds[-1].change
    namespaces = [told.change.namespace for told in tolds if told.change.name is None]
    return own(
        lake,
        COMMIT,
        principal=principal_of(tolds[0]),
        source=first.source,
        operation=first.operation,
        requestId=first.request_id,
        agent=first.agent,
        application=engine.application,
        applicationName=engine.application_name,
        firstSnapshotId=_made(first.snapshot_id),
        lastSnapshotId=_made(last.snapshot_id),
        namespaces=namespaces or None,
    )


def _made(snapshot_id: int) -> int | None:
    """What was refused has made none."""
    return None if snapshot_id < 0 else snapshot_id


@lru_cache(KEPT)
def _engine(name: str, version: str | None) -> Json:
    return as_json(processing_engine_run.ProcessingEngineRunFacet(version=version or _NOBODY, name=name))


def _said_in_summary(summary: Mapping[str, str]) -> dict[str, str]:
    return {ours: summary[theirs] for ours, theirs in _KEYS.items() if theirs in summary}


def _parent(said: Mapping[str, Any]) -> BaseFacet | None:
    run_id = _uuid(said.get("parent-run-id"))
    if run_id is None:
        return None
    job = parent_run.Job(said.get("parent-job-namespace") or _NOBODY, said.get("parent-job-name") or _NOBODY)
    root, root_id = None, _uuid(said.get("root-run-id"))
    if root_id is not None:
        named = said.get("root-job-namespace") or _NOBODY, said.get("root-job-name") or _NOBODY
        root = parent_run.Root(parent_run.RootRun(root_id), parent_run.RootJob(*named))
    return parent_run.ParentRunFacet(parent_run.Run(run_id), job, root)


def _nominal(said: Mapping[str, Any]) -> BaseFacet | None:
    start, end = _time(said.get("nominal-start-time")), _time(said.get("nominal-end-time"))
    return None if start is None else nominal_time_run.NominalTimeRunFacet(start, end)


def _uuid(text: object) -> str | None:
    try:
        return str(UUID(str(text)))
    except ValueError:
        return None


def _time(text: object) -> str | None:
    """In UTC, in which a time without a zone is meant to be."""
    try:
        time = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return utc(time if time.tzinfo else time.replace(tzinfo=UTC))


def utc(time: datetime) -> str:
    """As events spell times."""
    return time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
