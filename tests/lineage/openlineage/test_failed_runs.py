"""Refused requests as runs that failed: those that tell something of a job, and not each time that they come."""

from datetime import timedelta
from typing import Any

import pytest

from duckicelake.lineage.openlineage.run_kinds import RefusedRequest, build_failed_runs, is_failure
from tests.support.lineage_changes import LAKE, START
from tests.support.openlineage import check_event


def refused(number: int = 1, result: str = "CommitFailedException 409", **more: Any) -> RefusedRequest:
    fields = {"namespace": "ns", "name": "t", "object_id": 3, "operation": "update_table"}
    facts = {"client": {"user-agent": "PyIceberg/0.11.0"}, "location": "file:///lake/ns/t"}
    at = START + timedelta(seconds=number)
    return RefusedRequest(
        id=number, at=at, principal="ann", request_id="r", result=result, facts=facts, **fields | more
    )


@pytest.mark.parametrize(
    ("result", "fails"),
    [
        ("CommitFailedException 409", True),
        ("BadRequestException 400", True),
        ("UnsupportedOperationException 406", True),
        ("InternalServerError 500", True),
        ("ServiceFailureException 500", True),
        ("CommitStateUnknownException 500", False),
        ("ForbiddenException 403", False),
        ("NotAuthorizedException 401", False),
        ("NoSuchTableException 404", False),
        ("AlreadyExistsException 409", False),
        ("AlreadyAppliedException 409", False),
        ("TooManyRequestsException 429", False),
    ],
)
def test_some_refusals_are_failures(result: str, fails: bool) -> None:
    assert is_failure(result) == fails


def test_a_refused_commit_is_a_run_that_failed() -> None:
    begin, end = build_failed_runs([refused()], LAKE)
    check_event(begin)
    check_event(end)
    assert (begin["eventType"], end["eventType"]) == ("START", "FAIL")
    assert begin["run"]["runId"] == end["run"]["runId"]
    assert end["run"]["facets"]["errorMessage"]["message"] == "update_table: CommitFailedException 409"
    assert end["job"]["name"].startswith("pyiceberg.update_table.ns.t.")
    (output,) = end["outputs"]
    assert output["name"] == "/lake/ns/t"
    assert "outputFacets" not in output
    assert "firstSnapshotId" not in end["run"]["facets"]["duckicelake_commit"]


def test_a_job_that_fails_again_and_again_is_one_run() -> None:
    found = build_failed_runs([refused(number) for number in range(50)], LAKE)
    assert len(found) == 2
    assert found[1]["run"]["facets"]["errorMessage"]["message"].endswith(", 50 times")
    assert (found[0]["eventTime"], found[1]["eventTime"]) == (
        "2026-11-22T12:00:00.000000Z",
        "2026-11-22T12:00:49.000000Z",
    )


def test_other_errors_and_tables_are_runs_of_their_own() -> None:
    others = [refused(2, "InternalServerError 500"), refused(3, namespace="other", object_id=4)]
    assert len(build_failed_runs([refused(), *others], LAKE)) == 6


def test_what_is_no_table_is_no_dataset() -> None:
    found = build_failed_runs([refused(namespace="ns.new", name=None, object_id=None)], LAKE)
    for each in found:
        check_event(each)
    assert found[1]["outputs"] == []
