"""What `/metrics` tells after real requests."""

from collections.abc import Callable
from dataclasses import replace

import duckdb
import httpx
import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families

from duckicelake.catalog.context.services import Services
from duckicelake.server.app import create_app
from duckicelake.storage.s3 import S3Options, S3Store
from tests.support.client import Client, append, new_client

NAMESPACE = "/v1/namespaces/ns"
TABLE = f"{NAMESPACE}/tables/t"


@pytest.fixture
def client(services: Services) -> Client:
    client = new_client(services)
    client.create()
    return client


@pytest.fixture
def http(services: Services, client: Client, serve: Callable[[FastAPI], httpx.Client]) -> httpx.Client:
    return serve(create_app(services))


def counts(http: httpx.Client, name: str) -> dict[str, float]:
    """What a series counts by its labels, where that isn't 0."""
    return {
        ",".join(f"{label}={value}" for label, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(http.get("/metrics").text)
        for sample in family.samples
        if sample.name == f"duckicelake_{name}" and sample.value
    }


def test_commit_shows_how_long_its_phases_took(http: httpx.Client, client: Client) -> None:
    assert http.post(TABLE, json=append(client.metadata(), (1, "a"))).status_code == 200
    phases = counts(http, "phase_seconds_count")
    assert {f"phase={name}" for name in ("plan", "upload_read", "lock_wait", "critical_section", "materialize")} <= set(
        phases
    )
    seconds = counts(http, "phase_seconds_sum")
    assert seconds["phase=upload_read"] < seconds["phase=plan"]
    assert counts(http, "commits_together_sum") == {"": 1.0}
    assert counts(http, "store_call_seconds_count")["call=read,outcome=answered"] == 2


def test_conflicts_are_counted_by_the_requirement_that_did_not_hold(http: httpx.Client, client: Client) -> None:
    request = append(client.metadata(), (1, "a"))
    assert http.post(TABLE, json=request).status_code == 200
    stale = {**request, "updates": append(client.metadata(), (2, "b"))["updates"]}
    assert http.post(TABLE, json=stale).status_code == 409
    other = {"requirements": [{"type": "assert-current-schema-id", "current-schema-id": 7}], "updates": []}
    assert http.post(TABLE, json=other).status_code == 409
    assert http.post("/v1/namespaces", json={"namespace": ["ns"]}).status_code == 409
    assert http.delete(NAMESPACE).status_code == 409
    assert counts(http, "conflicts_total") == {
        "kind=assert-ref-snapshot-id": 1,
        "kind=assert-current-schema-id": 1,
        "kind=already-exists": 1,
        "kind=namespace-not-empty": 1,
    }


def test_load_shows_how_far_behind_duckdb_it_was(http: httpx.Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    http.get(TABLE).raise_for_status()
    for number in range(3):
        ducklake.execute("INSERT INTO ns.t VALUES (?, 'duck')", [number])
    http.get(TABLE).raise_for_status()
    assert counts(http, "catch_up_snapshots_count") == {"": 1.0}
    assert counts(http, "catch_up_snapshots_sum") == {"": 3.0}


def test_loads_count_as_hits_or_misses_and_show_in_the_cache(http: httpx.Client) -> None:
    for _ in range(4):
        http.get(TABLE).raise_for_status()
    assert counts(http, "table_loads_total") == {"cache=hit": 3.0, "cache=miss": 1.0}
    assert counts(http, "cached_tables") == {"": 1.0}
    assert counts(http, "cached_bytes")[""] > len(http.get(TABLE).content)


def test_calls_that_the_store_does_not_answer_are_counted_apart(
    services: Services, serve: Callable[[FastAPI], httpx.Client]
) -> None:
    options = S3Options("http://127.0.0.1:1", access_key_id="id", secret_access_key="secret", max_attempts=1)
    http = serve(create_app(replace(services, store=S3Store("s3://nowhere/lake", options))))
    assert http.get("/readyz").status_code == 503
    assert set(counts(http, "store_call_seconds_count")) == {"call=check,outcome=failed"}
