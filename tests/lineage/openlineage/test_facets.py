"""What was inferred, as facets: candidates by name, filters as INDIRECT, and how sure each edge is."""

import json
from importlib.resources import files
from typing import Any
from uuid import UUID

import pytest
from jsonschema_rs import Draft202012Validator

from duckicelake.lineage.events.inference import (
    FACET,
    MAX_INFERRED_EDGES,
    InferenceMethod,
    InferredInput,
    Input,
    build_input_facets,
    build_output_facets,
)
from duckicelake.lineage.openlineage.names import DatasetName, NamedLake

SCHEMA = json.loads(files("duckicelake.lineage").joinpath("schemas", f"{FACET}.json").read_text())
OURS = SCHEMA["allOf"][1]
LAKE = NamedLake(UUID(int=1), "http://catalog")


def made(table: str, projected: tuple[str, ...] = (), filtered: tuple[str, ...] = ()) -> Input:
    found = InferredInput(1, f"ns.{table}", 17, 0.9, InferenceMethod.SCAN_OF_APPLICATION, (4, 5), projected, filtered)
    return found, DatasetName("file", f"/{table}")


def edges(facets: dict[str, Any]) -> set[tuple[str | None, str, str, str, float]]:
    columns = facets[FACET]["columns"]
    return {
        (each["output"], each["input"]["name"], each["input"]["field"], each["type"], each["confidence"])
        for each in columns
    }


def test_an_input_says_how_sure_it_is_and_why() -> None:
    facet = build_input_facets(LAKE, made("a", ("id",), ("x",))[0])[FACET]
    Draft202012Validator(OURS).validate(facet)
    assert (facet["confidence"], facet["reason"], facet["evidence"]) == (0.9, "scan-report of the application", [4, 5])
    assert (facet["projected"], facet["filtered"]) == (["id"], ["x"])


def test_columns_of_one_name_rank_higher_and_filters_are_indirect() -> None:
    facets = build_output_facets(
        LAKE, ["id", "name", "total"], [made("a", ("ID", "x"), ("x",)), made("b", ("id", "name", "x"))]
    )
    assert edges(facets) == {
        ("id", "/a", "ID", "DIRECT", 0.36),
        ("id", "/b", "id", "DIRECT", 0.36),
        ("name", "/b", "name", "DIRECT", 0.72),
        ("total", "/a", "x", "DIRECT", 0.09),
        ("total", "/b", "x", "DIRECT", 0.09),
        (None, "/a", "x", "INDIRECT", 0.81),
    }
    Draft202012Validator(OURS).validate(facets[FACET])


def test_the_column_lineage_says_the_same() -> None:
    lineage = build_output_facets(LAKE, ["id"], [made("a", ("id",), ("x",))])["columnLineage"]
    direct = {"type": "DIRECT", "description": "inferred, confidence 0.72"}
    indirect = {"type": "INDIRECT", "subtype": "FILTER", "description": "inferred, confidence 0.81"}
    where = {"namespace": "file", "name": "/a"}
    assert lineage["fields"] == {"id": {"inputFields": [{**where, "field": "id", "transformations": [direct]}]}}
    assert lineage["dataset"] == [{**where, "field": "x", "transformations": [indirect]}]


@pytest.mark.parametrize("inputs", [[], [made("a")]])
def test_nothing_is_said_of_columns_that_no_one_has_named(inputs: list[Input]) -> None:
    assert build_output_facets(LAKE, ["id"], inputs) == {}


def test_too_many_columns_of_other_names_are_no_candidates() -> None:
    many = made("a", tuple(f"x{number}" for number in range(9)))
    assert build_output_facets(LAKE, ["id"], [many]) == {}


def test_edges_are_bounded() -> None:
    names = tuple(f"c{number}" for number in range(3 * MAX_INFERRED_EDGES))
    assert len(build_output_facets(LAKE, names, [made("a", names)])[FACET]["columns"]) == MAX_INFERRED_EDGES
