"""The Java library (1.12) as oracle: golden/record.py recorded what it makes of the commits in golden/scenarios.py."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from duckicelake.iceberg.metadata import TableMetadata, parse_table_metadata
from duckicelake.iceberg.metadata_builder import apply_updates
from duckicelake.iceberg.model import parse
from duckicelake.iceberg.rest import CommitTableRequest

Json = Any

GOLDEN = Path(__file__).parent / "golden"
NOW = 1_700_000_001_000
RECORDED: dict[int, dict[str, Json]] = {
    version: json.loads((GOLDEN / f"java-v{version}.json").read_bytes()) for version in (1, 2, 3)
}
CASES = [(version, name) for version, scenarios in RECORDED.items() for name in scenarios]


@cache
def ours(version: int, name: str) -> TableMetadata:
    scenario = RECORDED[version][name]
    base = None if scenario["from"] is None else ours(version, scenario["from"])
    request = parse(CommitTableRequest, {"requirements": [], "updates": scenario["updates"]}, "commit")
    return apply_updates(base, request.updates, NOW)


def comparable(metadata: Json) -> Json:
    """Leave out the clock and Java's -1 for no current snapshot; write out the sequence number 0 as we do."""
    kept = {key: value for key, value in metadata.items() if key not in {"last-updated-ms", "metadata-log"}}
    if kept.get("current-snapshot-id") in (-1, None):
        kept.pop("current-snapshot-id", None)
    snapshots = [{"sequence-number": 0} | snapshot for snapshot in metadata["snapshots"]]
    return kept | {"snapshot-log": [each["snapshot-id"] for each in metadata["snapshot-log"]], "snapshots": snapshots}


@pytest.mark.parametrize(("version", "name"), CASES)
def test_commit_gives_the_metadata_that_java_gives(version: int, name: str) -> None:
    assert comparable(ours(version, name).to_json()) == comparable(RECORDED[version][name]["result"])


@pytest.mark.parametrize(("version", "name"), CASES)
def test_metadata_written_by_java_is_read_and_written_exactly(version: int, name: str) -> None:
    java = RECORDED[version][name]["result"]
    read = parse_table_metadata(java)
    assert comparable(read.to_json()) == comparable(java)
    assert read.to_json()["last-updated-ms"] == java["last-updated-ms"]
    assert read.to_json()["snapshot-log"] == java["snapshot-log"]
    assert parse_table_metadata(read.to_json()) == read
