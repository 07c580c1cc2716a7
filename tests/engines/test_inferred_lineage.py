"""What the catalog infers of engines as they are: where tables come from, though nobody has told it."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from pyiceberg.catalog.rest import RestCatalog

from scripts.demo_job.server import RunningLake
from tests.engines.engines import Engines

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark]

Edge = tuple[str, str]
"""(source, target)"""


@pytest.fixture
def http(lake: RunningLake) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=lake.uri, headers=lake.login(), timeout=60) as client:
        yield client


def graph(http: httpx.Client, node: str) -> dict[Edge, dict[str, Any]]:
    """The edges into a table, from what it was made of at once: other tests' tables are in the lake, too."""
    query = {"node": node, "direction": "upstream", "columns": "true", "depth": "1"}
    answer = http.get("/lineage/v1/graph", params=query)
    if answer.status_code == 404:
        return {}
    found = answer.raise_for_status().json()
    names = {each["id"]: str(each["name"]).rpartition(".")[2] for each in found["nodes"]}
    return {(names[edge["source"]], names[edge["target"]]): edge for edge in found["edges"]}


def wait_for(http: httpx.Client, node: str, is_there: Callable[[dict[Edge, Any]], bool]) -> dict[Edge, dict[str, Any]]:
    """The edges into a table, once events have been made of its changes."""
    deadline = time.monotonic() + 30
    while not is_there(found := graph(http, node)):
        assert time.monotonic() < deadline, found
        time.sleep(0.2)
    return found


def columns(edge: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {(each["source-field"], each["target-field"], each["type"]) for each in edge["columns"]}


def test_what_engines_read_becomes_the_inputs_of_what_they_write(
    engines: Engines, http: httpx.Client, namespace: str
) -> None:
    spark = engines.spark
    for name in "abcde":
        spark.sql(f"CREATE TABLE {namespace}.{name} (id BIGINT, name STRING, x DOUBLE)")
    for name in "ab":
        spark.sql(f"INSERT INTO {namespace}.{name} VALUES (1, 'one', 1.0), (2, 'two', 2.0)")
    spark.sql(f"""
        INSERT INTO {namespace}.c SELECT a.id, b.name, a.x * b.x FROM {namespace}.a JOIN {namespace}.b ON a.id = b.id
        WHERE a.x > 0.5 AND b.name <> 'three'
    """)
    spark.sql(f"UPDATE {namespace}.c SET name = 'two!' WHERE id = 2")
    application = RestCatalog("own", **engines.catalog.properties | {"header.X-Application-Id": namespace})
    rows = application.load_table(f"{namespace}.c").scan().to_arrow()
    application.load_table(f"{namespace}.d").append(rows)
    engines.duck.execute(f"INSERT INTO lake.{namespace}.e FROM lake.{namespace}.d")

    made = wait_for(http, f"{namespace}.d", lambda edges: ("c", "d") in edges) | graph(http, f"{namespace}.c")
    assert set(made) == {("a", "c"), ("b", "c"), ("c", "d")}, "no table is made of itself, or of what others read"
    assert all(edge["inferred"] for edge in made.values())
    of_a, of_b, of_c = made["a", "c"], made["b", "c"], made["c", "d"]
    assert of_a["confidence"] == of_b["confidence"] == 0.9 > of_c["confidence"]
    assert {("id", "id", "DIRECT"), ("x", "", "INDIRECT")} <= columns(of_a)
    assert {("name", "name", "DIRECT"), ("name", "", "INDIRECT")} <= columns(of_b)
    assert ("name", "name", "DIRECT") not in columns(of_a)
    assert columns(of_c) == set(), "PyIceberg says of no column that it was read"
    assert {run["application"] for run in of_a["runs"]} != {None}
    assert graph(http, f"{namespace}.e") == {}, "what DuckDB did itself came without a request"
