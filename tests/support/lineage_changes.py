"""Changes of the changelog for tests, in few words, and what they become."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from duckicelake.changelog.entries import ChangeKind, LoggedChange
from duckicelake.lineage.openlineage.changes import CatalogChange, KnownObject, TableSchema
from duckicelake.lineage.openlineage.names import NamedLake
from duckicelake.lineage.openlineage.runs import describe_run, group_runs, whole
from tests.support.openlineage import check_event

Json = dict[str, Any]

LAKE = NamedLake(UUID(int=7), "http://catalog:8181")
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


def change(
    kind: ChangeKind, name: str | None = "t", snapshot: int = 17, seconds: float = 0, **more: Any
) -> LoggedChange:
    """By someone over REST; keys of facts are given as they are, those of the change by their names."""
    fields: dict[str, Any] = {
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
    return LoggedChange(snapshot_id=snapshot, kind=kind, name=name, **fields | more)


def report(
    *changes: LoggedChange, location: str | None = "file:///lake/ns/t", owner: str | None = None
) -> list[CatalogChange]:
    schema = next((each.facts["schema"] for each in changes if "schema" in each.facts), None)
    return [
        CatalogChange(each, KnownObject(location, owner, TableSchema(schema) if schema else None)) for each in changes
    ]


def events(*changes: LoggedChange, **known: Any) -> list[Json]:
    """Checked against the schemas."""
    found = [event for run in group_runs(report(*changes, **known)) for event in whole(describe_run(run, LAKE), run)]
    for each in found:
        check_event(each)
    return found


def completed(*changes: LoggedChange, **known: Any) -> Json:
    """The end of the one run that they are."""
    begin, end = events(*changes, **known)
    assert (begin["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert begin["run"] == end["run"]
    assert begin["job"] == end["job"]
    assert all("outputFacets" not in output for output in begin["outputs"])
    return end
