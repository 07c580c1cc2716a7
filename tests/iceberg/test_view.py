"""View metadata of other writers, and what the requests about views may hold."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.view.metadata import ViewMetadata as TheirMetadata

from duckicelake.errors import CommitFailedError, InvalidRequestError
from duckicelake.iceberg.model import parse
from duckicelake.iceberg.rest import CommitViewRequest, CreateViewRequest
from duckicelake.iceberg.view import (
    VIEW_UPDATES,
    ViewMetadata,
    check_view_requirements,
    parse_view_metadata,
    read_view_metadata,
)
from duckicelake.iceberg.view_builder import _APPLY, apply_view_updates

Json = Any

RECORDED: dict[str, Json] = json.loads((Path(__file__).parent / "golden" / "java-views.json").read_bytes())
NOW = 1_700_000_001_000
VALID = RECORDED["second dialect"]["result"]
UUID = VALID["view-uuid"]


@pytest.fixture
def view() -> ViewMetadata:
    return parse_view_metadata(VALID)


def commit(view: ViewMetadata, *updates: Json) -> ViewMetadata:
    return apply_view_updates(view, parse(CommitViewRequest, {"updates": updates}, "commit").updates, NOW)


def changed(*path: Any, to: Json) -> Json:
    """The valid metadata with one value changed; None removes the key."""
    data = json.loads(json.dumps(VALID))
    *way, last = path
    inner = data
    for step in way:
        inner = inner[step]
    if to is None:
        del inner[last]
    else:
        inner[last] = to
    return data


def test_pyiceberg_reads_what_is_written(view: ViewMetadata) -> None:
    theirs = TheirMetadata.model_validate(view.to_json())
    assert str(theirs.view_uuid) == UUID
    assert [version.version_id for version in theirs.versions] == [1, 2]
    assert theirs.current_version_id == 2
    assert [r.root.dialect for r in theirs.versions[1].representations] == ["spark", "trino"]


@pytest.mark.parametrize("encode", [bytes, gzip.compress])
def test_file_is_read_plain_and_gzipped(view: ViewMetadata, encode: Any) -> None:
    assert read_view_metadata(encode(json.dumps(VALID).encode()), "file:/v.json") == view


@pytest.mark.parametrize("data", [b"", b"{", b"\x1f\x8bnot gzip", gzip.compress(b"{}", mtime=0)[:-4], b"[]", b"PAR1"])
def test_file_that_is_no_metadata_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        read_view_metadata(data, "file:/v.json")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (changed("current-version-id", to=9), r"Cannot find current version 9, only \[1, 2\]"),
        (changed("versions", 0, "schema-id", to=4), r"Cannot find schema 4, only \[0\]"),
        (changed("versions", 1, "version-id", to=1), "version-id 1 is listed 2 times"),
        (changed("schemas", to=VALID["schemas"] * 2), "schema-id 0 is listed 2 times"),
        (changed("versions", 1, "representations", 1, "dialect", to="Spark"), "multiple queries for dialect spark"),
        (changed("versions", 1, "representations", 1, "type", to="plan"), "type"),
        (changed("format-version", to=2), "format-version"),
        (changed("location", to=None), "location"),
        (changed("view-uuid", to="me"), "not a UUID"),
    ],
)
def test_metadata_that_contradicts_itself_is_refused(data: Json, problem: str) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        parse_view_metadata(data)


def test_storage_table_of_a_materialized_view_is_kept() -> None:
    data = changed("versions", 1, "storage-table", to={"namespace": ["ns"], "name": "t"})
    assert parse_view_metadata(data).to_json() == data


def test_every_update_of_the_specification_is_modelled_and_applied() -> None:
    actions = {model.model_fields["action"].default for model in _APPLY}
    assert len(VIEW_UPDATES) == 8
    assert actions == set(VIEW_UPDATES)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"updates": [{"action": "add-snapshot"}]}, r"'add-snapshot' is for tables; a view takes assign-uuid, "),
        ({"updates": [{"action": "paint"}]}, "unknown update 'paint'"),
        ({"requirements": [{"type": "assert-create"}], "updates": []}, "'assert-create' is for tables"),
        ({"requirements": [{"type": "assert-luck"}], "updates": []}, "unknown requirement 'assert-luck'"),
        ({"requirements": []}, "updates"),
    ],
)
def test_what_no_view_takes_is_refused(body: Json, problem: str) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        parse(CommitViewRequest, body, "commit")


def test_requirement_holds_for_the_uuid_in_any_case_only(view: ViewMetadata) -> None:
    def checked(uuid: str) -> None:
        requirement = {"type": "assert-view-uuid", "uuid": uuid}
        check_view_requirements(
            parse(CommitViewRequest, {"requirements": [requirement], "updates": []}, "commit").requirements, view
        )

    checked(UUID.upper())
    with pytest.raises(
        CommitFailedError, match=rf"^Requirement failed: view UUID does not match: expected {UUID} != other$"
    ):
        checked("other")


def test_commit_without_a_change_gives_the_base_itself(view: ViewMetadata) -> None:
    version = {**VALID["versions"][0], "version-id": 77, "timestamp-ms": 5}
    updates = [
        {"action": "set-properties", "updates": VALID["properties"]},
        {"action": "remove-properties", "removals": ["not there"]},
        {"action": "add-schema", "schema": VALID["schemas"][0]},
        {"action": "add-view-version", "view-version": version},
        {"action": "set-current-view-version", "view-version-id": 2},
    ]
    assert commit(view, *updates) is view


def test_equal_version_with_the_last_added_schema_is_made_current_by_the_last_added_id(view: ViewMetadata) -> None:
    """Java's own server refuses this -1; a commit that is applied again over another's can bring it."""
    version = {**VALID["versions"][0], "schema-id": -1}
    after = commit(
        view,
        {"action": "set-properties", "updates": {"replace.drop-dialect.allowed": "true"}},
        {"action": "add-schema", "schema": VALID["schemas"][0]},
        {"action": "add-view-version", "view-version": version},
        {"action": "set-current-view-version", "view-version-id": -1},
    )
    assert (after.current_version_id, len(after.versions)) == (1, 2)


def test_version_of_the_future_is_dated_now(view: ViewMetadata) -> None:
    version = {**VALID["versions"][1], "default-catalog": "c", "timestamp-ms": NOW + 1_000_000}
    after = commit(
        view,
        {"action": "add-view-version", "view-version": version},
        {"action": "set-current-view-version", "view-version-id": -1},
    )
    assert after.current_version().timestamp_ms == NOW
    assert after.version_log[-1].timestamp_ms == NOW


@pytest.mark.parametrize("text", ["-1", "ten", ""])
def test_history_of_no_versions_is_refused(view: ViewMetadata, text: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"^version\.history\.num-entries"):
        commit(view, {"action": "set-properties", "updates": {"version.history.num-entries": text}})


def test_schema_with_columns_that_differ_by_case_is_refused(view: ViewMetadata) -> None:
    fields = [{"id": n, "name": name, "type": "int", "required": False} for n, name in ((1, "a"), (2, "A"))]
    with pytest.raises(InvalidRequestError, match="differ only by case"):
        commit(view, {"action": "add-schema", "schema": {"type": "struct", "fields": fields}})


def test_view_to_create_needs_a_schema_and_a_version() -> None:
    version = VALID["versions"][0]
    body = {"name": "v", "schema": VALID["schemas"][0], "view-version": version, "properties": None}
    assert parse(CreateViewRequest, body, "view").properties == {}
    for key in ("name", "schema", "view-version"):
        with pytest.raises(InvalidRequestError, match=key):
            parse(CreateViewRequest, {**body, key: None}, "view")
