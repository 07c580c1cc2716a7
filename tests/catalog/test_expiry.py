"""Expiry by the server: branches, tags and snapshots by their ages, while others commit."""

from functools import partial

import duckdb
import pytest

from duckicelake.catalog.context.page import PageRequest
from duckicelake.catalog.expiry import expire_snapshots
from duckicelake.catalog.maintenance import table_statistics
from duckicelake.catalog.table.load import load_current_table
from duckicelake.errors import BadInputError, InvalidRequestError
from duckicelake.iceberg.retention import get_ref_age
from duckicelake.lake.ducklake.snapshots import read_clock
from duckicelake.maintenance.policy import DAY_MS, parse_policy
from duckicelake.maintenance.task import UpkeepTask
from duckicelake.upkeep.actions import expire
from duckicelake.upkeep.planner import find_due
from tests.support.client import NS, Client, duckdb_rows, pyiceberg_rows, set_properties, set_ref
from tests.support.killed_process import FreeControl
from tests.support.seams import superseded

ALL = 1 << 60


@pytest.mark.parametrize(("ref", "kind", "stays"), [("keep", "tag", (0, 2)), ("main", "branch", (0,))])
def test_what_is_named_meanwhile_stays(
    client: Client, ducklake: duckdb.DuckDBPyConnection, ref: str, kind: str, stays: tuple[int, ...]
) -> None:
    client.create()
    for number in range(3):
        client.append((number, "x"))
    before = [each["snapshot-id"] for each in client.metadata()["snapshots"]]
    oldest = before[0]
    name = {"requirements": [], "updates": [set_ref(ref, oldest, kind)]}
    expire_snapshots(superseded(client.services, lambda: client.commit(name)), NS, "t", ALL)
    answer = client.load()
    assert answer["metadata"]["refs"][ref]["snapshot-id"] == oldest
    assert [each["snapshot-id"] for each in answer["metadata"]["snapshots"]] == [before[place] for place in stays]
    assert pyiceberg_rows(answer, oldest) == [(0, "x")]
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake)


def name_refs(client: Client, *updates: object) -> None:
    client.commit({"requirements": [], "updates": list(updates)})


def list_refs(client: Client) -> set[str]:
    return set(client.metadata()["refs"])


def list_ids(client: Client) -> list[int]:
    return [snapshot["snapshot-id"] for snapshot in client.metadata()["snapshots"]]


def make_table(client: Client, snapshots: int) -> list[int]:
    """Make a table of so many snapshots; return their ids."""
    client.create()
    for number in range(snapshots):
        client.append((number, "x"))
    return list_ids(client)


def test_branches_and_tags_leave_once_they_are_as_old_as_they_may_be(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    ids = make_table(client, 4)
    name_refs(
        client,
        set_ref("old", ids[0], "tag", max_ref_age_ms=1),
        set_ref("young", ids[1], "tag", max_ref_age_ms=DAY_MS),
        set_ref("kept", ids[0], "branch"),
        set_ref("work", ids[2], "branch", max_ref_age_ms=1),
        set_ref("main", ids[3], max_ref_age_ms=1),
    )
    planned = expire_snapshots(client.services, NS, "t", 0, is_dry_run=True)
    assert (planned.refs, planned.snapshots, planned.left) == (("old", "work"), 0, 4)
    assert list_refs(client) == {"old", "young", "kept", "work", "main"}
    done = expire_snapshots(client.services, NS, "t", 0)
    assert (done.refs, done.snapshots) == (("old", "work"), 0)
    assert list_refs(client) == {"young", "kept", "main"}
    assert expire_snapshots(client.services, NS, "t", ALL).snapshots == 1, "what only the old ones kept goes"
    assert list_ids(client) == [ids[0], ids[1], ids[3]]
    assert pyiceberg_rows(client.load()) == duckdb_rows(ducklake)


def test_property_of_the_table_is_the_age_of_those_that_say_none(client: Client) -> None:
    ids = make_table(client, 2)
    name_refs(client, set_ref("old", ids[0], "tag"), set_ref("young", ids[0], "tag", max_ref_age_ms=DAY_MS))
    client.commit(set_properties(**{"history.expire.max-ref-age-ms": "1"}))
    assert expire_snapshots(client.services, NS, "t", 0).refs == ("old",)
    client.commit(set_properties(**{"history.expire.max-ref-age-ms": "1 day"}))
    with pytest.raises(InvalidRequestError, match="max-ref-age-ms is '1 day': it should be milliseconds"):
        expire_snapshots(client.services, NS, "t", 0)


REF_AGES = {
    "7": 7,
    "0007": 7,
    " 7 ": 7,
    "9223372036854775807": 2**63 - 1,
    f"0{10**18}": 10**18,
    "0": None,
    "000": None,
    "-7": None,
    "7.0": None,
    "1 day": None,
    "": None,
    str(10**19): None,
}


def test_age_of_branches_and_tags_is_the_same_to_expiry_policies_and_sql(client: Client) -> None:
    ids = make_table(client, 2)
    name_refs(client, set_ref("old", ids[0], "tag"))
    made_ms = client.metadata()["snapshots"][0]["timestamp-ms"]
    for text, age in REF_AGES.items():
        client.commit(set_properties(**{"history.expire.max-ref-age-ms": text}))
        (table,) = table_statistics(client.services, PageRequest(), NS, "t").items
        assert table.refs_end_ms == (None if age is None else min(made_ms + age, 9 * 10**18)), text
        metadata = load_current_table(client.services, NS, "t").metadata
        if age is None:
            for read in (partial(get_ref_age, metadata), partial(parse_policy, metadata.properties)):
                with pytest.raises((InvalidRequestError, BadInputError), match="should be milliseconds, from 1 on"):
                    read()
        else:
            assert (get_ref_age(metadata), parse_policy(metadata.properties).ref_age) == (age, age), text


def test_branch_keeps_its_snapshots_as_long_as_it_says(client: Client) -> None:
    """A branch's own age counts in place of the given one, whether it is longer or shorter."""
    ids = make_table(client, 4)
    name_refs(client, set_ref("main", ids[3], max_snapshot_age_ms=DAY_MS))
    assert expire_snapshots(client.services, NS, "t", ALL).snapshots == 0
    name_refs(client, set_ref("main", ids[3], max_snapshot_age_ms=1, min_snapshots_to_keep=2))
    assert expire_snapshots(client.services, NS, "t", 0, protected_ms=0).snapshots == 0
    assert expire_snapshots(client.services, NS, "t", 0).snapshots == 2
    assert list_ids(client) == ids[2:]


def test_worker_expires_by_the_ages_of_branches_and_tags(client: Client) -> None:
    policies = {"maintenance.expire.enabled": "true"}
    ids = make_table(client, 3)
    services = client.services
    assert find_due(services, now_ms(client), NS, "t", ("expire",)) == []
    client.commit(set_properties(**policies))
    name_refs(client, set_ref("old", ids[0], "tag", max_ref_age_ms=1), set_ref("main", ids[2], max_snapshot_age_ms=1))
    (table,) = table_statistics(services, PageRequest(), NS, "t").items
    assert (table.refs_end_ms, table.branch_age_ms) == (client.metadata()["snapshots"][0]["timestamp-ms"] + 1, 1)
    (due,) = find_due(services, now_ms(client), NS, "t", ("expire",))
    assert due.task.why == "a branch or tag is older than it may be"
    task = UpkeepTask("expire", NS, "t", due.task.why, parse_policy(policies), 1)
    outcome = expire(services, task, FreeControl())
    assert outcome.counts == {"expired snapshots": 2, "removed branches and tags": 1}
    assert (list_ids(client), list_refs(client)) == ([ids[2]], {"main"})
    assert find_due(services, now_ms(client), NS, "t", ("expire",)) == []


def now_ms(client: Client) -> int:
    with client.services.database.reading() as cursor:
        return read_clock(cursor)
