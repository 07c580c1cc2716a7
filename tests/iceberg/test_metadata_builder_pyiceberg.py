"""PyIceberg as a second oracle, on the recorded commits where it implements what a server does."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.update import TableUpdate, update_table_metadata

from duckicelake.iceberg.metadata import parse_table_metadata
from duckicelake.iceberg.metadata_builder import apply_updates
from duckicelake.iceberg.model import parse
from duckicelake.iceberg.rest import CommitTableRequest

SCENARIOS: dict[str, Any] = json.loads((Path(__file__).parent / "golden" / "java-v2.json").read_bytes())


@pytest.mark.parametrize(
    "name",
    [
        "appended",
        "appended again",
        "staged without a ref",
        "branched and tagged",
        "appended to a branch",
        "branch removed",
        "main removed",
        "column added and taken back",
        "moved",
    ],
)
def test_commit_gives_the_metadata_that_pyiceberg_gives(name: str) -> None:
    base, updates = SCENARIOS[SCENARIOS[name]["from"]]["result"], SCENARIOS[name]["updates"]
    commit = parse(CommitTableRequest, {"requirements": [], "updates": updates}, "commit")
    ours = apply_updates(parse_table_metadata(base), commit.updates, now_ms=0)
    oracle = update_table_metadata(
        TableMetadataUtil.parse_raw(json.dumps(base)),
        TypeAdapter(tuple[TableUpdate, ...]).validate_python(json.loads(json.dumps(updates))),
    )
    read = TableMetadataUtil.parse_raw(json.dumps(ours.to_json()))
    assert read.model_dump(exclude={"last_updated_ms"}) == oracle.model_dump(exclude={"last_updated_ms"})
