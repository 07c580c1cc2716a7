from collections.abc import Callable
from typing import Any

import pytest

from duckicelake.errors import CommitFailedError, InvalidRequestError
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.model import parse
from duckicelake.iceberg.requirements import TABLE_REQUIREMENTS, check_requirements
from duckicelake.iceberg.rest import CommitTableRequest

Json = Any
UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"


@pytest.fixture
def table(
    make_table: Callable[..., TableMetadata],
    commit: Callable[..., TableMetadata],
    add_snapshot: Callable[..., Json],
    set_ref: Callable[..., Json],
) -> TableMetadata:
    return commit(make_table(), add_snapshot(7), set_ref(7), set_ref(7, "v1", type="tag"))


def checked(base: TableMetadata | None, *requirements: Json) -> None:
    check_requirements(
        parse(CommitTableRequest, {"requirements": requirements, "updates": []}, "commit").requirements, base
    )


HOLDING = [
    {"type": "assert-table-uuid", "uuid": UUID.upper()},
    {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 7},
    {"type": "assert-ref-snapshot-id", "ref": "other", "snapshot-id": None},
    {"type": "assert-ref-snapshot-id", "ref": "other"},
    {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 3},
    {"type": "assert-current-schema-id", "current-schema-id": 0},
    {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 999},
    {"type": "assert-default-spec-id", "default-spec-id": 0},
    {"type": "assert-default-sort-order-id", "default-sort-order-id": 0},
]


def test_all_requirements_that_hold_pass_together(table: TableMetadata) -> None:
    checked(table, *HOLDING)
    checked(None, {"type": "assert-create"})
    assert {each["type"] for each in HOLDING} | {"assert-create"} == set(TABLE_REQUIREMENTS)


@pytest.mark.parametrize(
    ("requirement", "message"),
    [
        ({"type": "assert-create"}, "table already exists"),
        (
            {"type": "assert-table-uuid", "uuid": "00000000-0000-0000-0000-000000000000"},
            f"UUID does not match: expected {UUID} != 00000000-0000-0000-0000-000000000000",
        ),
        (
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None},
            "branch main was created concurrently",
        ),
        ({"type": "assert-ref-snapshot-id", "ref": "v1", "snapshot-id": None}, "tag v1 was created concurrently"),
        ({"type": "assert-ref-snapshot-id", "ref": "main"}, "branch main was created concurrently"),
        (
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 6},
            "branch main has changed: expected id 6 != 7",
        ),
        (
            {"type": "assert-ref-snapshot-id", "ref": "gone", "snapshot-id": 6},
            "branch or tag gone is missing, expected 6",
        ),
        (
            {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 2},
            "last assigned field id changed: expected id 2 != 3",
        ),
        ({"type": "assert-current-schema-id", "current-schema-id": 1}, "current schema changed: expected id 1 != 0"),
        (
            {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 1000},
            "last assigned partition id changed: expected id 1000 != 999",
        ),
        (
            {"type": "assert-default-spec-id", "default-spec-id": 1},
            "default partition spec changed: expected id 1 != 0",
        ),
        (
            {"type": "assert-default-sort-order-id", "default-sort-order-id": 1},
            "default sort order changed: expected id 1 != 0",
        ),
    ],
)
def test_requirement_that_does_not_hold_fails_the_commit(table: TableMetadata, requirement: Json, message: str) -> None:
    with pytest.raises(CommitFailedError) as failed:
        checked(table, *HOLDING, requirement) if requirement["type"] != "assert-create" else checked(table, requirement)
    assert str(failed.value) == f"Requirement failed: {message}"


def test_last_assigned_ids_hold_for_a_table_that_does_not_exist_and_others_do_not() -> None:
    passing = [each for each in HOLDING if each["type"].startswith("assert-last-assigned")]
    checked(None, *passing)
    for requirement in HOLDING:
        if requirement not in passing:
            with pytest.raises(CommitFailedError, match="does not exist"):
                checked(None, requirement)


def test_assert_create_beside_another_requirement_is_an_invalid_request(table: TableMetadata) -> None:
    with pytest.raises(InvalidRequestError, match="Invalid create requirements: assert-table-uuid"):
        checked(None, {"type": "assert-create"}, HOLDING[0])


@pytest.mark.parametrize(
    ("requirement", "said"),
    [
        ({"type": "assert-moon-phase"}, "unknown requirement 'assert-moon-phase'; a table takes assert-create, "),
        ({"type": "assert-view-uuid", "uuid": UUID}, "requirement 'assert-view-uuid' is for views"),
        ({}, "unknown requirement None"),
        ("assert-create", "unknown requirement None"),
        ({"type": "assert-ref-snapshot-id", "snapshot-id": 7}, "ref: Field required"),
        ({"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 2**63}, "snapshot-id"),
        ({"type": "assert-table-uuid"}, "uuid: Field required"),
    ],
)
def test_malformed_requirement_is_an_invalid_request_that_names_it(requirement: Json, said: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        checked(None, requirement)
    assert said in str(refused.value)
