"""What deletes for ever goes by the policies of when it begins, not of when it came into the queue."""

import pytest

from duckicelake.maintenance.policy import AUTOMATIC
from duckicelake.upkeep.planner import request_tasks
from duckicelake.upkeep.worker import Worker
from tests.support.client import NS, Client, set_properties
from tests.upkeep.test_queue import LIMITS, only, plan, set_policies

AGE = "history.expire.max-snapshot-age-ms"
WITHDRAWN = ("done", "no policy asks for it any more")


@pytest.fixture
def lake(client: Client) -> Client:
    """A lake with a table of three snapshots."""
    client.create()
    for number in range(3):
        client.append((number, "n"))
    return client


@pytest.mark.parametrize(
    "taken_back",
    [
        {"maintenance.expire.enabled": "false"},
        {"maintenance.enabled": "false"},
        {"gc.enabled": "false"},
        {AGE: str(10**10)},
    ],
    ids=lambda policies: next(iter(policies)),
)
@pytest.mark.parametrize("is_asked", [True, False])
def test_expiry_that_waits_goes_by_the_policies_of_its_beginning(
    lake: Client, taken_back: dict[str, str], is_asked: bool
) -> None:
    set_policies(lake.services, {AUTOMATIC: "expire", AGE: "1"})
    count = len(lake.metadata()["snapshots"])
    if is_asked:
        request_tasks(lake.services, NS, "t", ("expire",))
    else:
        assert plan(lake.services) == 1
    lake.commit(set_properties(**taken_back))
    assert Worker(LIMITS).work(lake.services)
    assert len(lake.metadata()["snapshots"]) == count
    if AGE not in taken_back:
        assert (only(lake.services).state, only(lake.services).message) == WITHDRAWN


def test_orphans_are_removed_by_itself_only_as_long_as_the_lake_says_so(lake: Client) -> None:
    set_policies(lake.services, {AUTOMATIC: "remove-orphans"})
    assert plan(lake.services) == 1
    set_policies(lake.services, {})
    assert Worker(LIMITS).work(lake.services)
    assert (only(lake.services).state, only(lake.services).message) == WITHDRAWN
    request_tasks(lake.services, NS, "t", ("remove-orphans",))
    assert Worker(LIMITS).work(lake.services)
    assert only(lake.services).message != WITHDRAWN[1], "a request by its name needs no policy"


def test_expiry_still_happens(lake: Client) -> None:
    set_policies(lake.services, {AUTOMATIC: "expire", AGE: "1"})
    assert plan(lake.services) == 1
    assert Worker(LIMITS).work(lake.services)
    assert len(lake.metadata()["snapshots"]) == 1
