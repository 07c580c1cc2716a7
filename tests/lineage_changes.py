"""Changes of the chronicle for tests, in few words, and what they become."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from duckicelake.lake.chronicle.entries import Change, Kind
from duckicelake.lineage.naming import Lake
from duckicelake.lineage.runs import described, runs_of, whole
from duckicelake.lineage.told import Known, Schema, Told
from tests.openlineage import check_event

Json = dict[str, Any]

LAKE = Lake(UUID(int=7), "http://catalog:8181")
START = datetime(2026, 11, 22, 12, tzinfo=UTC)
SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long", "doc": "of the order", "initial-default": 4711},
        {"id": 2, "name": "tags", "required": False, "type": {"type": "list", "element-id": 3, "element": "string"}},
        {
            "id": 4,
            "name": "at",
            "required": False,
            "type": {
                "type": "map",
                "key-id": 5,
                "key": "string",
                "value-id": 6,
                "value": {"type": "struct", "fields": [{"id": 7, "name": "x", "required": False, "type": "double"}]},
            },
        },
    ],
}
SPARK = {"engine-name": "spark", "engine-version": "4.1.4", "app-id": "local-17", "app-name": "nightly"}


def change(kind: Kind, name: str | None = "t", snapshot: int = 17, seconds: float = 0, **more: Any) -> Change:
    """By somebody over REST; keys of facts are given as they are, those of the change by their names."""
    fields = {
        "namespace": "ns",
        "object_id": None if name is None else 3,
        "source": "rest",
        "principal": "ann",
        "request_id": f"request-{snapshot}",
        "operation": "update_table",
        "ordinal": 0,
        "at": START + timedelta(seconds=seconds),
        "facts": {},
    }
    return Change(snapshot_id=snapshot, kind=kind, name=name, **fields | more)  # type: ignore[arg-type]


def told(*changes: Change, location: str | None = "file:///lake/ns/t", owner: str | None = None) -> list[Told]:
    schema = next((each.facts["schema"] for each in changes if "schema" in each.facts), None)
    return [Told(each, Known(location, owner, Schema(schema) if schema else None)) for each in changes]


def events(*changes: Change, **known: Any) -> list[Json]:
    """Checked against the schemas."""
    found = [event for run in runs_of(told(*changes, **known)) for event in whole(described(run, LAKE), run)]
    for each in found:
        check_event(each)
    return found


def completed(*changes: Change, **known: Any) -> Json:
    """The end of the one run that they are."""
    begin, end = events(*changes, **known)
    assert (begin["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert begin["run"] == end["run"]
    assert begin["job"] == end["job"]
    assert all("outputFacets" not in output for output in begin["outputs"])
    return end
