"""The Java library (1.12) as oracle: golden/record_views.py recorded what it makes of golden/view_scenarios.py."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from duckicelake.errors import InvalidViewError
from duckicelake.iceberg.model import parse
from duckicelake.iceberg.rest import CommitViewRequest
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.view import ViewMetadata, ViewVersion, parse_view_metadata
from duckicelake.iceberg.view_builder import apply_view_updates, build_new_view_metadata

Json = Any

NOW = 1_700_000_001_000
RECORDED: dict[str, Json] = json.loads((Path(__file__).parent / "golden" / "java-views.json").read_bytes())
MADE = [name for name, scenario in RECORDED.items() if isinstance(scenario["result"], dict)]
REFUSED = [name for name in RECORDED if name not in MADE]


@cache
def ours(name: str) -> ViewMetadata:
    scenario = RECORDED[name]
    return created(scenario["updates"]) if scenario["from"] is None else commit(ours(scenario["from"]), scenario)


def commit(base: ViewMetadata, scenario: Json) -> ViewMetadata:
    return apply_view_updates(base, parse(CommitViewRequest, {"updates": scenario["updates"]}, "commit").updates, NOW)


def created(updates: list[Json]) -> ViewMetadata:
    uuid, location, properties, schema, version, _ = updates
    return build_new_view_metadata(
        view_uuid=uuid["uuid"],
        location=location["location"],
        schema=parse(Schema, schema["schema"], "schema"),
        version=parse(ViewVersion, version["view-version"], "version"),
        properties=properties["updates"],
        now_ms=version["view-version"]["timestamp-ms"],
    )


def comparable(metadata: Json) -> Json:
    """Leave out the clock, and Java's order of versions, which after an expiry begins with the current one."""
    log = [entry["version-id"] for entry in metadata["version-log"]]
    versions = sorted(metadata["versions"], key=lambda version: version["version-id"])
    return metadata | {"version-log": log, "versions": versions}


@pytest.mark.parametrize("name", MADE)
def test_commit_gives_the_metadata_that_java_gives(name: str) -> None:
    assert comparable(ours(name).to_json()) == comparable(RECORDED[name]["result"])


@pytest.mark.parametrize("name", MADE)
def test_metadata_written_by_java_is_read_and_written_exactly(name: str) -> None:
    java = RECORDED[name]["result"]
    assert parse_view_metadata(java).to_json() == java


@pytest.mark.parametrize("name", REFUSED)
def test_commit_that_java_refuses_is_refused_in_its_words(name: str) -> None:
    scenario = RECORDED[name]
    with pytest.raises(InvalidViewError) as refused:
        commit(ours(scenario["from"]), scenario)
    assert str(refused.value).startswith(scenario["result"].splitlines()[0])
