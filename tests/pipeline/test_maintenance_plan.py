"""What Spark's pipeline takes of the plan, and what it leaves to the workers of the lake."""

from collections.abc import Callable

import duckdb
import httpx
import pytest
from fastapi import FastAPI

from duckicelake.errors import BadInputError
from duckicelake.pipeline.maintenance import build_plan, build_request
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.connection import Connection
from duckicelake.server.app import create_app
from tests.support.client import Client


def test_bloom_filters_are_left_to_the_workers(
    client: Client, ducklake: duckdb.DuckDBPyConnection, serve: Callable[[FastAPI], httpx.Client]
) -> None:
    client.create(properties={"write.parquet.bloom-filter-enabled.column.id": "true"})
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    ducklake.execute("INSERT INTO lake.ns.t SELECT range, 'n' FROM range(1000)")
    http = serve(create_app(client.services))
    kinds = [job["kind"] for job in http.get("/pipeline/v1/plan").json()["jobs"]]
    assert "bloom-filters" in kinds
    catalog = CatalogClient(Connection(str(http.base_url)))
    planned = build_plan(catalog, build_request(catalog, None, (), {}), 0)
    assert {job.kind for job in planned.jobs} == set(kinds) - {"bloom-filters", "remove-orphans"}
    with pytest.raises(BadInputError, match="run `duckicelake upkeep run --only bloom-filters`"):
        build_plan(catalog, build_request(catalog, "ns.t", ("bloom-filters",), {}), 0)
