from typing import Any, get_args

import pytest

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg import metadata_builder as applying
from duckicelake.iceberg.model import parse
from duckicelake.iceberg.rest import CommitTableRequest
from duckicelake.iceberg.updates import TABLE_UPDATES, AddSnapshot, SetProperties, SetSnapshotRef, TableUpdate

Json = Any


def read(*updates: Json) -> tuple[Any, ...]:
    return parse(CommitTableRequest, {"requirements": [], "updates": updates}, "commit").updates


def test_every_update_of_the_specification_is_modelled_and_applied() -> None:
    union = {get_args(member)[0] for member in get_args(get_args(TableUpdate)[0])}
    actions = {model.model_fields["action"].default for model in union}
    assert len(TABLE_UPDATES) == 23
    assert actions == set(TABLE_UPDATES)
    assert union == set(applying._APPLY)


def test_explicit_nulls_of_optional_keys_are_read_as_absent() -> None:
    (ref,) = read(
        {
            "action": "set-snapshot-ref",
            "ref-name": "main",
            "type": "BRANCH",
            "snapshot-id": 2**62,
            "max-ref-age-ms": None,
            "max-snapshot-age-ms": None,
            "min-snapshots-to-keep": None,
        }
    )
    assert ref == SetSnapshotRef(ref_name="main", type="branch", snapshot_id=2**62)


def test_snapshot_without_optional_keys_and_with_unknown_ones_is_read() -> None:
    (update,) = read(
        {
            "action": "add-snapshot",
            "snapshot": {
                "snapshot-id": 1,
                "timestamp-ms": 2,
                "parent-snapshot-id": None,
                "manifests": ["a.avro"],
                "summary": None,
                "moon-phase": "full",
            },
        }
    )
    assert isinstance(update, AddSnapshot)
    assert update.snapshot.manifests == ("a.avro",)
    assert update.snapshot.schema_id is None
    assert update.snapshot.summary == {}


def test_keys_of_old_java_clients_are_read() -> None:
    assert read({"action": "set-properties", "updated": {"a": "b"}}) == (SetProperties(updates={"a": "b"}),)


@pytest.mark.parametrize(
    ("update", "said"),
    [
        ({"action": "paint-table"}, "unknown update 'paint-table'; a table takes assign-uuid, upgrade-format-version"),
        ({"action": "add-view-version"}, "update 'add-view-version' is for views"),
        ({"action": None}, "unknown update None"),
        (3, "unknown update None"),
        ({"action": "assign-uuid", "uuid": "not-one"}, "'not-one' is not a UUID"),
        ({"action": "add-schema"}, "schema: Field required"),
        ({"action": "set-properties", "updates": {"a": 1}}, "updates.a"),
        ({"action": "remove-snapshots", "snapshot-ids": [2**63]}, "snapshot-ids.0"),
        ({"action": "set-snapshot-ref", "ref-name": "x", "type": "twig", "snapshot-id": 1}, "'branch' or 'tag'"),
        ({"action": "upgrade-format-version", "format-version": "3"}, "format-version"),
    ],
)
def test_malformed_update_is_an_invalid_request_that_names_it(update: Json, said: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        read(update)
    assert said in str(refused.value)


@pytest.mark.parametrize("body", [{}, {"requirements": []}, {"requirements": [], "updates": None}])
def test_commit_without_updates_is_an_invalid_request(body: Json) -> None:
    with pytest.raises(InvalidRequestError, match="Field required"):
        parse(CommitTableRequest, body, "commit")
