"""OpenLineage events for tests, in few words."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

Json = dict[str, Any]

PRODUCER = "https://example.com/test"
CATALOG = "duckicelake://lake"
START = datetime(2026, 11, 1, tzinfo=UTC)


def at(minutes: float) -> str:
    """A time, so many minutes after the tests' first."""
    return (START + timedelta(minutes=minutes)).isoformat()


def run_id(number: int) -> str:
    return str(UUID(int=number))


def facet(**content: Any) -> Json:
    return {"_producer": PRODUCER, "_schemaURL": f"{PRODUCER}.json", **content}


def table(name: str, place: str | None = None, **facets: Any) -> Json:
    """A table of the lake, as the catalog tells of it."""
    symlinks = facet(identifiers=[{"namespace": CATALOG, "name": name, "type": "TABLE"}])
    return {"namespace": "file", "name": place or f"/lake/{name}", "facets": {"symlinks": symlinks, **facets}}


def foreign(namespace: str, name: str, **facets: Any) -> Json:
    return {"namespace": namespace, "name": name, "facets": facets}


def columns(*report: tuple[str, Json, str] | tuple[str, Json, str, str, str]) -> Json:
    """The facet of column lineage: target field ('': the whole dataset), source, its field, and how it was made."""
    fields: dict[str, Json] = {}
    whole = []
    for target, source, field, *how in report:
        kind, subtype = how or ("DIRECT", "IDENTITY")
        given = {"namespace": source["namespace"], "name": source["name"], "field": field}
        given |= {"transformations": [{"type": kind, "subtype": subtype, "description": "", "masking": False}]}
        if target:
            fields.setdefault(target, {"inputFields": []})["inputFields"].append(given)
        else:
            whole.append(given)
    return facet(fields=fields, dataset=whole)


def event(
    number: int,
    kind: str = "COMPLETE",
    *,
    inputs: tuple[Json, ...] = (),
    outputs: tuple[Json, ...] = (),
    minutes: float | None = None,
    job: str = "job",
    job_namespace: str = "tests",
    **run_facets: Any,
) -> Json:
    """A run event; by default its time is that of its number."""
    return {
        "eventTime": at(number if minutes is None else minutes),
        "eventType": kind,
        "producer": PRODUCER,
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": run_id(number), "facets": run_facets},
        "job": {"namespace": job_namespace, "name": job, "facets": {}},
        "inputs": list(inputs),
        "outputs": list(outputs),
    }


def dataset_event(minutes: float, dataset: Json) -> Json:
    url = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/DatasetEvent"
    return {"eventTime": at(minutes), "producer": PRODUCER, "schemaURL": url, "dataset": dataset}


def job_event(minutes: float, job: str, inputs: tuple[Json, ...] = (), outputs: tuple[Json, ...] = ()) -> Json:
    url = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/JobEvent"
    report = {"namespace": "tests", "name": job, "facets": {}}
    given = {"inputs": list(inputs), "outputs": list(outputs)}
    return {"eventTime": at(minutes), "producer": PRODUCER, "schemaURL": url, "job": report, **given}
