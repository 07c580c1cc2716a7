"""`ducklake.max-listed-snapshots`: the oldest snapshots leave by themselves, and their files with them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from duckicelake.catalog.commit import run
from duckicelake.catalog.commit.run import SELDOM
from duckicelake.catalog.context.commit_queue import CommitQueue
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.reclaim import release_all
from duckicelake.errors import InvalidRequestError
from duckicelake.lake.inlined.last_commit import STABLE_AFTER_COMMITS
from duckicelake.properties import MAX_LISTED
from tests.support import engine
from tests.support.client import (
    Client,
    Draft,
    Json,
    assert_files,
    data_files,
    duckdb_rows,
    local,
    pyiceberg_rows,
    remove,
    set_properties,
    set_ref,
)
from tests.support.seams import fresh

CLEAN = "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)"


def listed(client: Client) -> list[int]:
    return [each["snapshot-id"] for each in client.metadata()["snapshots"]]


def test_the_oldest_snapshots_leave_a_tenth_at_a_time(client: Client) -> None:
    client.create(properties={MAX_LISTED: "20"})
    ids: list[int] = []
    lengths = []
    for number in range(30):
        ids.append(client.append((number, "x"))["metadata"]["current-snapshot-id"])
        lengths.append(len(listed(client)))
        assert listed(client) == ids[-lengths[-1] :]
    assert lengths == [*range(1, 21), 18, 19, 20, 18, 19, 20, 18, 19, 20, 18]
    answer = Client(fresh(client.services)).load()
    assert [entry["snapshot-id"] for entry in answer["metadata"]["snapshot-log"]] == ids[-18:]
    assert pyiceberg_rows(answer) == [(number, "x") for number in range(30)]


def test_what_branches_and_tags_name_stays(client: Client) -> None:
    client.create()
    ids = [client.append((number, "x"))["metadata"]["current-snapshot-id"] for number in range(6)]
    client.commit({"requirements": [], "updates": [set_ref("kept", ids[1], "tag"), set_ref("side", ids[3])]})
    client.commit(set_properties(**{MAX_LISTED: "3"}))
    assert listed(client) == [ids[1], ids[3], ids[5]]
    client.commit(set_properties(**{MAX_LISTED: "1"}))
    assert listed(client) == [ids[1], ids[3], ids[5]]


def test_files_that_only_snapshots_which_left_had_go_with_the_next_cleanup(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create(properties={MAX_LISTED: "2"})
    client.append((1, "x"))
    (first,) = data_files(client.metadata())
    client.commit(remove(client.metadata(), first))
    ducklake.execute("CALL ducklake_expire_snapshots('lake', older_than => now() + INTERVAL 1 HOUR)")
    ducklake.execute(CLEAN)
    assert local(first).exists()
    client.append((2, "y"))
    ducklake.execute("CALL ducklake_expire_snapshots('lake', older_than => now() + INTERVAL 1 HOUR)")
    ducklake.execute(CLEAN)
    assert not local(first).exists()
    assert pyiceberg_rows(client.load()) == [(2, "y")]


def let_go_of(services: Services) -> tuple[int, int]:
    """(files that are scheduled for deletion, manifest lists of snapshots that have left and that aren't)"""
    with services.database.reading() as cursor:
        ((scheduled, left),) = cursor.execute(
            "SELECT (SELECT count(*) FROM ducklake_files_scheduled_for_deletion), count(*) FROM duckicelake_artifact "
            "WHERE kind = 'manifest-list' AND object_id NOT IN (SELECT snapshot_id FROM duckicelake_snapshot)"
        ).fetchall()
    return scheduled, left


def test_metadata_files_of_appends_that_leave_are_let_go_of_together(client: Client, services: Services) -> None:
    client.create(properties={MAX_LISTED: "2"})
    found = []
    for number in range(25):
        client.append((number, "x"))
        found.append(let_go_of(services))
    assert len({scheduled for scheduled, _ in found}) == 3
    assert max(left for _, left in found) < SELDOM
    assert found[-1][1] > 0
    release_all(services)
    scheduled, left = let_go_of(services)
    assert (scheduled > found[-1][0], left) == (True, 0)
    assert pyiceberg_rows(client.load()) == [(number, "x") for number in range(25)]


@contextmanager
def nothing_can_be_scheduled(services: Services) -> Iterator[None]:
    """What lets go of files fails for a reason that no one expects."""
    with services.database.transaction() as cursor:
        cursor.execute("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''no''; END'")
        cursor.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON ducklake_files_scheduled_for_deletion "
            "FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
    yield
    with services.database.transaction() as cursor:
        cursor.execute("DROP FUNCTION refuse CASCADE")


def test_commit_after_which_old_files_cannot_be_let_go_of_is_no_failure_and_the_next_one_lets_go(
    client: Client, services: Services, ducklake: duckdb.DuckDBPyConnection
) -> None:
    location = local(client.create()["metadata"]["location"])
    kept = client.append((1, "x"))["metadata"]["current-snapshot-id"]

    def branch_off() -> tuple[Json, Path]:
        """(The commit that gives up a new branch, the file that only the branch has)"""
        before = set(location.glob("data/*"))
        made = client.commit(engine.append((9, "side"), branch="b")(client.metadata()))["metadata"]
        (file,) = set(location.glob("data/*")) - before
        gone = [each["snapshot-id"] for each in made["snapshots"] if each["snapshot-id"] != kept]
        updates = [
            {"action": "remove-snapshot-ref", "ref-name": "b"},
            {"action": "remove-snapshots", "snapshot-ids": gone},
        ]
        return {"requirements": [], "updates": updates}, file

    give_up, first = branch_off()
    with nothing_can_be_scheduled(services):
        client.commit(give_up)
    assert listed(client) == [kept]
    ducklake.execute(CLEAN)
    assert first.exists()
    give_up, second = branch_off()
    client.commit(give_up)
    ducklake.execute(CLEAN)
    assert not first.exists()
    assert not second.exists()
    assert pyiceberg_rows(client.load()) == [(1, "x")]


def test_load_after_which_old_files_cannot_be_let_go_of_is_no_failure(
    client: Client, services: Services, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create(properties={MAX_LISTED: "2"})
    client.append((1, "x"))
    (first,) = data_files(client.metadata())
    client.commit(remove(client.metadata(), first))
    ducklake.execute("CALL ducklake_expire_snapshots('lake', older_than => now() + INTERVAL 1 HOUR)")
    with nothing_can_be_scheduled(services):
        assert pyiceberg_rows(client.load()) == []


def test_what_duckdb_writes_counts_too(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    client.create(properties={MAX_LISTED: "3"})
    for number in range(7):
        ducklake.execute(f"INSERT INTO lake.ns.t SELECT range, 'x' FROM range({number * 20}, {number * 20 + 20})")
    assert len(listed(client)) == 3
    assert len(pyiceberg_rows(client.load())) == 140


@pytest.mark.parametrize("text", ["0", "-1", "many", "", "1e3", "10000000000"])
def test_a_limit_that_is_no_number_is_refused(client: Client, text: str) -> None:
    client.create()
    with pytest.raises(InvalidRequestError, match=f"{MAX_LISTED} is {text!r}: write a number from 1 on"):
        client.commit(set_properties(**{MAX_LISTED: text}))
    with pytest.raises(InvalidRequestError, match=MAX_LISTED):
        client.create("other", properties={MAX_LISTED: text})


@pytest.mark.parametrize("is_prewritten", [True, False])
def test_id_of_a_snapshot_that_left_may_come_again(
    client: Client, ducklake: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, *, is_prewritten: bool
) -> None:
    """Its old list is recorded until the files are let go of, which may come later."""
    commits = CommitQueue(STABLE_AFTER_COMMITS if is_prewritten else 0)
    client = Client(replace(client.services, commits=commits))
    client.create()
    client.append((1, "a"))
    client.append((2, "b"))
    left = listed(client)[0]
    with monkeypatch.context() as patch:
        patch.setattr(run, "release_files", lambda *_: None)
        client.commit({"requirements": [], "updates": [{"action": "remove-snapshots", "snapshot-ids": [left]}]})
    draft = Draft(client.metadata(), snapshot_id=left)
    client.commit(draft.body([draft.manifest([draft.data_file([(3, "c")])]), *draft.parent_manifests]))
    server = Client(fresh(client.services))
    server.commit(set_properties(a="1"))
    assert pyiceberg_rows(server.load()) == duckdb_rows(ducklake) == [(1, "a"), (2, "b"), (3, "c")]
    assert_files(server.load())
