"""An append that was computed for one DuckLake snapshot, written as another: what is computed for that one."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import duckdb
import pytest

from duckicelake.catalog.commit.apply import TableCommit, change_over
from duckicelake.catalog.context.cache import TableCache
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import load_current_table
from duckicelake.iceberg.rest import CommitTableRequest
from duckicelake.lake.changes import ChangeSet, shift_snapshot_ids
from tests.support.client import (
    NS,
    Client,
    Draft,
    Json,
    append,
    data_files,
    duckdb_rows,
    new_client,
    pyiceberg_rows,
    set_properties,
)

V3 = {"format-version": "3"}


@pytest.fixture
def client(services: Services) -> Client:
    return new_client(services)


def v3_append(metadata: Json, *rows: Any, times: int = 1) -> Json:
    """An append as version 3 has it, several in one request if asked to."""
    draft = Draft(metadata, format_version=3)
    bodies = [draft.body([draft.manifest([draft.data_file(rows)]), *draft.parent_manifests])]
    for _ in range(times - 1):
        before = bodies[-1]["updates"][0]["snapshot"]
        snapshots = [*metadata.get("snapshots", ()), before]
        rest = {"last-sequence-number": before["sequence-number"], "snapshots": snapshots}
        following = before["first-row-id"] + before["added-rows"]
        refs = {"main": {"snapshot-id": before["snapshot-id"], "type": "branch"}}
        draft = Draft({**metadata, **rest, "refs": refs, "next-row-id": following}, format_version=3)
        bodies.append(draft.body([draft.manifest([draft.data_file(rows)]), *draft.parent_manifests]))
    return {
        "requirements": bodies[0]["requirements"],
        "updates": [update for body in bodies for update in body["updates"]],
    }


def computed(
    services: Services, body: Json, next_ids: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> list[ChangeSet]:
    """The commit to table `t`, computed for each of these as DuckLake's next snapshot id."""
    cached = load_current_table(services, NS, "t")
    request = TableCommit(NS, "t", CommitTableRequest.model_validate(body))
    changes = []
    for next_id in next_ids:
        for ids in ("take_file_ids", "take_manifest_ids"):
            monkeypatch.setattr(f"duckicelake.catalog.commit.increments.{ids}", lambda _: count(1000))
        change = change_over(replace(services, clock=lambda: 2**42), request, cached, next_id)
        assert change is not None
        changes.append(change)
    return changes


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("before", [0, 1, 12], ids=lambda before: f"after {before} commits")
def test_late_append_is_what_is_computed_for_its_later_number(
    client: Client, monkeypatch: pytest.MonkeyPatch, before: int, times: int
) -> None:
    client.create(properties=V3)
    for number in range(before):
        client.commit(v3_append(client.metadata(), (number, None)))
    body = v3_append(client.metadata(), (100, "late"), times=times)
    early, late = computed(client.services, body, [50, 57], monkeypatch)
    assert early != late
    assert shift_snapshot_ids(early, 7) == late


@pytest.mark.parametrize("kind", ["delete", "schema", "mode ducklake"])
def test_commit_that_more_than_numbers_depend_on_is_computed_again(
    client: Client, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    client.create(properties=V3)
    services = client.services
    body = v3_append(client.commit(v3_append(client.metadata(), (1, "one"), (2, "two")))["metadata"], (3, "three"))
    if kind == "delete":
        draft = Draft(client.metadata(), operation="delete", format_version=3)
        deletes = draft.delete_file([(data_files(client.metadata())[0], 0)])
        body = draft.body([draft.manifest([deletes]), *draft.parent_manifests])
    elif kind == "schema":
        fields = [*client.metadata()["schemas"][0]["fields"], {"id": 3, "name": "c", "type": "int", "required": False}]
        schema = {"type": "struct", "schema-id": 1, "fields": fields}
        change = [{"action": "add-schema", "schema": schema}, {"action": "set-current-schema", "schema-id": -1}]
        body["updates"] = [*change, *body["updates"]]
    else:
        services = replace(services, snapshot_ids="ducklake", cache=TableCache())
    (early,) = computed(services, body, [50], monkeypatch)
    assert shift_snapshot_ids(early, 7) is None


def test_append_to_version_3_is_not_computed_again_because_others_commit_to_other_tables(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    """Another commit gets the snapshot id that it was computed for, while it waits for its turn."""
    retried: list[str] = []

    class Ears:
        def count_retry(self, reason: str) -> None:
            retried.append(reason)

        def __getattr__(self, name: str) -> Any:
            return getattr(client.services.meter, name)

    ears: Any = Ears()
    crowd = Client(replace(client.services, meter=ears))
    body = v3_append(client.create(properties=V3)["metadata"], (1, "one"))
    other = append(client.create("other")["metadata"], (2, "two"))
    write = client.services.commits.write

    def superseded(*arguments: Any) -> Any:
        client.services.commits.write = write  # type: ignore[method-assign]
        client.commit(other, "other")
        return write(*arguments)

    client.services.commits.write = superseded  # type: ignore[method-assign]
    answer = crowd.commit(body)
    assert retried == []
    (snapshot,) = answer["metadata"]["snapshots"]
    assert snapshot["sequence-number"] == int(snapshot["summary"]["ducklake.snapshot-id"])
    assert answer["metadata"] == Client(replace(client.services, cache=TableCache())).metadata()
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake) == [(1, "one")]
    assert crowd.commit(set_properties(a="b"))["metadata"]["last-sequence-number"] == snapshot["sequence-number"]
