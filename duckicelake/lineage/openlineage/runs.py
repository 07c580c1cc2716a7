"""PURE. Jobs and runs of OpenLineage: one run for each transaction, with its beginning and end."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, Literal
from uuid import UUID

import orjson
from openlineage.client.event_v2 import RunEvent
from openlineage.client.facet_v2 import (
    BaseFacet,
    external_query_run,
    job_type_job,
    nominal_time_run,
    parent_run,
    processing_engine_run,
)
from openlineage.client.uuid import generate_static_uuid

from duckicelake.lineage.openlineage.changes import CatalogChange, EngineInfo, Json, find_engine, is_streaming
from duckicelake.lineage.openlineage.facets import (
    KEPT_PROPERTIES,
    build_outputs,
    build_own_facet,
    encode_facet,
    strip_to_names,
)
from duckicelake.lineage.openlineage.names import PRODUCER, NamedLake

_BY_WEIGHT: Final = (
    "create-table",
    "overwrite",
    "append",
    "delete",
    "replace",
    "create-view",
    "alter-view",
    "alter-table",
    "update-table",
)
"""Kinds of changes by weight: of several, the first one names the job."""
_TYPES: Final = {"append": "WRITE", "overwrite": "WRITE", "delete": "WRITE", "replace": "MAINTENANCE"}
_MAX_NAME_CHARS: Final = 100
_SEVERAL: Final = "several-namespaces"
"""Replaces a table's name for readers who may know the job, but not the table."""
COMMIT: Final = "duckicelake_commit"
_NO_PARENT: Final = "unknown"
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
"""Headers about a client's run, and their keys in a snapshot's summary."""
EventType = Literal["START", "RUNNING", "COMPLETE", "FAIL"]
RunChanges = list[CatalogChange]
"""The changes of one transaction, in their order."""
_SCHEMA_URL: Final = RunEvent._get_schema()  # noqa: SLF001 - as the library itself would say it
_TRANSACTION: Final = "commit_transaction"


def format_job_name(catalog_changes: Sequence[CatalogChange], lake: NamedLake, others: Iterable[str] = ()) -> str:
    """Format a job's name, `program.what.table.hash`, which is the same for the same principal and parts.

    others: namespaces of tables that the job reads. A reader of one of them may see the job, but not the table.
    """
    engine = find_engine(catalog_changes[0])
    program, verb, principal = (
        engine.application_name or engine.name,
        name_verb(catalog_changes),
        find_principal(catalog_changes[0]),
    )
    resources = list(dict.fromkeys(catalog_change.change.resource for catalog_change in catalog_changes))
    is_of_one = len({catalog_change.change.namespace for catalog_change in catalog_changes} | set(others)) == 1
    return add_hash(lake, program, verb, resources, principal, subject=None if is_of_one else _SEVERAL)


def build_job(catalog_changes: Sequence[CatalogChange], lake: NamedLake) -> Json:
    """Build the job of a run's changes."""
    first, verb = catalog_changes[0], name_verb(catalog_changes)
    processing = "STREAMING" if is_streaming(first) else "BATCH"
    job_type = _build_job_type(processing, find_engine(first).name.upper(), _TYPES.get(verb, "DDL"))
    return {"namespace": lake.uri, "name": format_job_name(catalog_changes, lake), "facets": {"jobType": job_type}}


@lru_cache(KEPT_PROPERTIES)
def _build_job_type(processing: str, integration: str, job_type: str) -> Json:
    return encode_facet(job_type_job.JobTypeJobFacet(processing, integration, job_type))


def find_job_identity(name: str) -> str:
    """Find the part of a job's name that doesn't depend on whether it names the table."""
    return name.rpartition(".")[2]


def may_name_table(name: str) -> bool:
    """Return whether a job's name may contain a table's name."""
    return f".{_SEVERAL}." not in name


def name_verb(catalog_changes: Sequence[CatalogChange]) -> str:
    """Return the kind of the changes, in the changelog's word."""
    kinds = [str(catalog_change.change.kind) for catalog_change in catalog_changes]
    return next((kind for kind in _BY_WEIGHT if kind in kinds), kinds[0])


def add_hash(
    lake: NamedLake,
    program: str,
    verb: str,
    resources: Sequence[str],
    principal: str | None,
    subject: str | None = None,
) -> str:
    """Build a job's name with the hash of its identity.

    subject: instead of the first resource.
    """
    identity = [str(lake.id), principal, program, verb, sorted(resources)]
    digest = blake2b(orjson.dumps(identity), digest_size=4).hexdigest()
    others = f"+{len(resources) - 1}" if len(resources) > 1 else ""
    return f"{program[:_MAX_NAME_CHARS]}.{verb}.{subject or resources[0][:_MAX_NAME_CHARS] + others}.{digest}"


def find_principal(catalog_change: CatalogChange) -> str | None:
    """Find the catalog's principal, or the author of DuckDB's commit."""
    return catalog_change.change.principal or catalog_change.facts.get("author")


def build_run_facets(catalog_changes: Sequence[CatalogChange], lake: NamedLake) -> Json:
    """Build the facets of the run of these changes, one transaction."""
    first, engine = catalog_changes[0], find_engine(catalog_changes[0])
    said = {**_read_summary(first.summary), **first.client}
    facets = [("parent", _build_parent(said)), ("nominalTime", _build_nominal_time(said))]
    if engine.query is not None:
        facets.append(("externalQuery", external_query_run.ExternalQueryRunFacet(engine.query, engine.name)))
    known = {key: encode_facet(facet) for key, facet in facets if facet is not None}
    return {
        "processing_engine": _build_engine(engine.name, engine.version),
        **known,
        COMMIT: _build_commit(catalog_changes, engine, lake),
    }


def _build_commit(catalog_changes: Sequence[CatalogChange], engine: EngineInfo, lake: NamedLake) -> Json:
    first, last = catalog_changes[0].change, catalog_changes[-1].change
    namespaces = [
        catalog_change.change.namespace for catalog_change in catalog_changes if catalog_change.change.name is None
    ]
    return build_own_facet(
        lake,
        COMMIT,
        principal=find_principal(catalog_changes[0]),
        source=first.source,
        operation=first.operation,
        requestId=first.request_id,
        agent=first.agent,
        application=engine.application,
        applicationName=engine.application_name,
        firstSnapshotId=_find_snapshot(first.snapshot_id),
        lastSnapshotId=_find_snapshot(last.snapshot_id),
        namespaces=namespaces or None,
    )


def _find_snapshot(snapshot_id: int) -> int | None:
    """Return the snapshot's id; None for a refused request, which made none."""
    return None if snapshot_id < 0 else snapshot_id


@lru_cache(KEPT_PROPERTIES)
def _build_engine(name: str, version: str | None) -> Json:
    return encode_facet(processing_engine_run.ProcessingEngineRunFacet(version=version or _NO_PARENT, name=name))


def _read_summary(summary: Mapping[str, str]) -> dict[str, str]:
    return {ours: summary[theirs] for ours, theirs in _KEYS.items() if theirs in summary}


def _build_parent(said: Mapping[str, Any]) -> BaseFacet | None:
    run_id = _parse_uuid(said.get("parent-run-id"))
    if run_id is None:
        return None
    job = parent_run.Job(said.get("parent-job-namespace") or _NO_PARENT, said.get("parent-job-name") or _NO_PARENT)
    root, root_id = None, _parse_uuid(said.get("root-run-id"))
    if root_id is not None:
        named = said.get("root-job-namespace") or _NO_PARENT, said.get("root-job-name") or _NO_PARENT
        root = parent_run.Root(parent_run.RootRun(root_id), parent_run.RootJob(*named))
    return parent_run.ParentRunFacet(parent_run.Run(run_id), job, root)


def _build_nominal_time(said: Mapping[str, Any]) -> BaseFacet | None:
    start, end = _parse_time(said.get("nominal-start-time")), _parse_time(said.get("nominal-end-time"))
    return None if start is None else nominal_time_run.NominalTimeRunFacet(start, end)


def _parse_uuid(text: object) -> str | None:
    try:
        return str(UUID(str(text)))
    except ValueError:
        return None


def _parse_time(text: object) -> str | None:
    """Parse a time to UTC, which is also the zone of times without one."""
    try:
        time = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return format_utc(time if time.tzinfo else time.replace(tzinfo=UTC))


def format_utc(time: datetime) -> str:
    """Format a time as events have it."""
    return time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def find_transaction_key(catalog_change: CatalogChange) -> tuple[Any, ...]:
    """Return a key that all changes of a transaction share. Clients may give several requests one id."""
    change = catalog_change.change
    if change.request_id is None:
        return (change.snapshot_id,)
    at = None if change.operation == _TRANSACTION else change.at
    return change.request_id, change.principal, change.operation, at


def group_runs(catalog_changes: Sequence[CatalogChange]) -> list[RunChanges]:
    """Group changes into runs, in the order of their begins."""
    found: dict[tuple[Any, ...], RunChanges] = {}
    for catalog_change in catalog_changes:
        found.setdefault(find_transaction_key(catalog_change), []).append(catalog_change)
    return list(found.values())


def build_run_id(lake: NamedLake, at: datetime, *identity: object) -> str:
    """Build an id that is the same for the same identity, and greater for a later time."""
    return str(generate_static_uuid(at, ":".join(map(str, (lake.id, *identity))).encode()))


def describe_run(run: RunChanges, lake: NamedLake) -> Json:
    """Build the body of a run's events, without type and time."""
    first = run[0].change
    return {
        "producer": PRODUCER,
        "schemaURL": _SCHEMA_URL,
        "run": {
            "runId": build_run_id(lake, first.at, first.snapshot_id, first.ordinal),
            "facets": build_run_facets(run, lake),
        },
        "job": build_job(run, lake),
        "inputs": [],
        "outputs": build_outputs(run, lake),
    }


def build_run_event(body: Json, kind: EventType, at: datetime) -> Json:
    """Build one of a run's events. START has only names of outputs."""
    outputs = strip_to_names(body["outputs"]) if kind == "START" else body["outputs"]
    return {"eventType": kind, "eventTime": format_utc(at), **body, "outputs": outputs}


def whole(body: Json, run: RunChanges) -> list[Json]:
    """Build begin and end of a finished run."""
    return [build_run_event(body, "START", run[0].change.at), build_run_event(body, "COMPLETE", run[-1].change.at)]
