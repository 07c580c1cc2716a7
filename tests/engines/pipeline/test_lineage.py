"""OpenLineage's listener in the pipeline's Spark, and the catalog itself, tell of the same tables by the same names."""

import json
import time
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen
from uuid import uuid4

import pytest

from scripts.demo_job.server import RunningLake
from tests.engines.pipeline.test_ingest_command import ingested

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark, pytest.mark.timeout(900)]

Json = dict[str, Any]


def events(lake: RunningLake) -> list[Json]:
    request = Request(f"{lake.uri}/api/v1/events/lineage?limit=1000", headers=lake.login())
    with urlopen(request, timeout=30) as answer:
        found: list[Json] = json.load(answer)["events"]
    return found


def written(found: list[Json], name: str) -> list[tuple[str, Json]]:
    """Who tells of the end of a run that wrote the table, and what it calls it."""
    return [
        (event["producer"], output)
        for event in found
        if event.get("eventType") == "COMPLETE"
        for output in event["outputs"]
        for symlink in output["facets"].get("symlinks", {}).get("identifiers", [])
        if symlink["name"] == name and "version" in output["facets"]
    ]


def parent_of(event: Json) -> Json:
    return dict(event.get("run", {}).get("facets", {}).get("parent", {}))


def test_the_listener_and_the_catalog_agree_on_names(lake: RunningLake, namespace: str, tmp_path: Path) -> None:
    source = tmp_path / "orders.csv"
    source.write_text("id,note\n1,secretive\n2,x\n")
    parent = str(uuid4())
    scheduled = {"OPENLINEAGE_PARENT_ID": f"airflow/dag.task/{parent}"}
    ingested(lake, str(source), "--table", f"{namespace}.orders", "--lineage", "on", **scheduled)
    deadline = time.monotonic() + 60
    told: list[tuple[str, Json]] = []
    while len({producer for producer, _ in told}) < 2:
        assert time.monotonic() < deadline, told
        time.sleep(0.5)
        told = written(events(lake), f"{namespace}.orders")
    assert {output["name"] for _, output in told} == {told[0][1]["name"]}
    for facet, key in (("symlinks", "identifiers"), ("version", "datasetVersion")):
        said = {json.dumps(output["facets"][facet][key]) for _, output in told}
        assert len(said) == 1, f"{facet}: {said}"
    assert {output["namespace"] for _, output in told} == {told[0][1]["namespace"]}
    parts = [event for event in events(lake) if parent_of(event).get("run", {}).get("runId") == parent]
    assert {parent_of(event)["job"]["name"] for event in parts} == {"dag.task"}
    assert {event["producer"] for event in parts} == {producer for producer, _ in told}
    assert "secretive" not in json.dumps(events(lake))
