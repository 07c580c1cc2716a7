import json
from pathlib import Path
from typing import Any

import pytest

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.model import parse
from duckicelake.iceberg.rest import (
    CommitTableRequest,
    CreateNamespaceRequest,
    CreateTableRequest,
    RenameTableRequest,
    TableIdentifier,
    UpdateNamespacePropertiesRequest,
)

Json = Any
SCHEMA = {"type": "struct", "fields": [{"id": 0, "name": "a", "required": False, "type": "int"}]}


def test_create_table_request_of_java_with_nulls_is_read() -> None:
    body = {
        "name": "t",
        "location": None,
        "schema": SCHEMA | {"schema-id": 0},
        "partition-spec": None,
        "write-order": None,
        "stage-create": True,
        "properties": {"format-version": "3"},
    }
    request = parse(CreateTableRequest, body, "request")
    assert (request.location, request.partition_spec, request.write_order) == (None, None, None)
    assert request.stage_create
    assert request.schema_.fields[0].name == "a"


def test_create_table_request_with_only_what_is_required_is_read() -> None:
    request = parse(CreateTableRequest, {"name": "t", "schema": SCHEMA}, "request")
    assert not request.stage_create
    assert request.properties == {}


def test_rename_request_is_read() -> None:
    body = {"source": {"namespace": ["a"], "name": "t"}, "destination": {"namespace": ["b", "c"], "name": "u"}}
    request = parse(RenameTableRequest, body, "request")
    assert request.destination == TableIdentifier(namespace=("b", "c"), name="u")


def test_commit_request_may_name_its_table() -> None:
    body = {"identifier": {"namespace": ["a"], "name": "t"}, "requirements": [{"type": "assert-create"}], "updates": []}
    request = parse(CommitTableRequest, body, "request")
    assert request.identifier == TableIdentifier(namespace=("a",), name="t")
    assert parse(CommitTableRequest, body | {"identifier": None}, "request").identifier is None


def test_namespace_requests_are_read() -> None:
    assert parse(CreateNamespaceRequest, {"namespace": ["a", "b"]}, "request").properties == {}
    update = parse(UpdateNamespacePropertiesRequest, {"removals": None, "updates": {"a": "b"}}, "request")
    assert (update.removals, update.updates) == ((), {"a": "b"})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"namespace": []}, "no levels"),
        ({"namespace": ["a", ""]}, "namespace level is empty"),
        ({"namespace": "a"}, "namespace: Input should be a valid tuple"),
        ({"namespace": ["a\x00"]}, "control characters"),
        ({"namespace": ["a"], "properties": {"k": 1}}, "properties.k"),
        ({}, "namespace: Field required"),
    ],
)
def test_malformed_namespace_request_is_an_invalid_request_that_names_the_key(body: Json, said: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        parse(CreateNamespaceRequest, body, "request")
    assert said in str(refused.value)


@pytest.mark.parametrize("said", [{}, {"requirements": None}, {"requirements": []}])
def test_commit_without_requirements_has_none(said: Json) -> None:
    """iceberg-go sends null."""
    body = {**said, "updates": []}
    assert parse(CommitTableRequest, body, "commit").requirements == ()
    assert CommitTableRequest.model_validate_json(json.dumps(body)).requirements == ()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_commit_request_is_read_alike_from_bytes_and_from_values(version: int) -> None:
    scenarios = json.loads((Path(__file__).parent / "golden" / f"java-v{version}.json").read_bytes())
    requirement = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}
    for scenario in scenarios.values():
        body = {"requirements": [requirement], "updates": scenario["updates"], "identifier": None}
        assert CommitTableRequest.model_validate_json(json.dumps(body)) == parse(CommitTableRequest, body, "commit")
