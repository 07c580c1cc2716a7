"""What DuckDB's merge and flush rewrite stays in Iceberg's history for a while and then leaves it (design §6.6)."""

from datetime import timedelta
from pathlib import Path

import orjson
import pytest

from duckicelake.catalog.table.load import load_current_table
from duckicelake.catalog.tables import register_table
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.rest import RegisterTableRequest
from duckicelake.properties import HOLD, get_hold
from tests.support.lakes import Lake, iceberg_rows

FLUSH = "CALL ducklake_flush_inlined_data('lake')"
MERGE = "CALL ducklake_merge_adjacent_files('lake')"
CLEAN = "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)"
ORPHANS = "CALL ducklake_delete_orphaned_files('lake', cleanup_all => true)"


def insert(lake: Lake, first: int, count: int) -> None:
    """Rows in a file of their own, or inlined if there are at most ten; seen by an Iceberg client at once."""
    lake.run(f"INSERT INTO t SELECT range FROM range({first}, {first + count})")
    lake.metadata()


def pass_time(lake: Lake, days: float) -> None:
    """Have everything that is held be held that much longer ago."""
    with lake.services.database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_snapshot SET held_until = held_until - %s", [timedelta(days=days)])


def numbers(count: int) -> set[tuple[int]]:
    return {(number,) for number in range(count)}


def listed(lake: Lake) -> list[int]:
    return [snapshot.snapshot_id for snapshot in lake.static().snapshots()]


def files(lake: Lake, snapshot_id: int) -> set[Path]:
    tasks = lake.static().scan(snapshot_id=snapshot_id).plan_files()
    found = {lake.services.store.local_path(task.file.file_path) for task in tasks}
    return {path for path in found if path is not None}


@pytest.fixture
def merged(lake: Lake) -> list[int]:
    """A table of two files that DuckDB made one of; the snapshots of before and after."""
    lake.run("CREATE TABLE t (id BIGINT)")
    insert(lake, 0, 20)
    insert(lake, 20, 20)
    lake.run(MERGE)
    return listed(lake)


def test_snapshots_of_before_a_merge_leave_history_when_their_time_has_come(lake: Lake, merged: list[int]) -> None:
    first, second, last = merged
    sources = files(lake, second)
    lake.run(CLEAN)
    pass_time(lake, 4.99)
    assert listed(lake) == merged
    assert set(iceberg_rows(lake.static(), first)) == numbers(20)
    pass_time(lake, 0.02)
    assert listed(lake) == [last]
    lake.run(CLEAN)
    assert not any(path.exists() for path in sources)
    assert set(iceberg_rows(lake.static())) == set(lake.duck_rows()) == numbers(40)


def test_virtual_files_leave_with_the_last_snapshot_of_before_the_flush(lake: Lake) -> None:
    lake.run("CREATE TABLE t (id BIGINT)")
    insert(lake, 0, 3)
    (first,) = listed(lake)
    (virtual,) = files(lake, first)
    lake.run(FLUSH, CLEAN)
    assert iceberg_rows(lake.static(), first) == [(0,), (1,), (2,)]
    pass_time(lake, 6)
    assert first not in listed(lake)
    lake.run(CLEAN)
    assert not virtual.exists()
    assert iceberg_rows(lake.static()) == [(0,), (1,), (2,)]


def test_snapshots_that_a_tag_or_branch_names_stay_and_stay_exact(lake: Lake, merged: list[int]) -> None:
    first, second, last = merged
    for name, type_, snapshot_id in (("v1", "tag", first), ("b", "branch", second)):
        lake.commit({"action": "set-snapshot-ref", "ref-name": name, "type": type_, "snapshot-id": snapshot_id})
    pass_time(lake, 6)
    lake.run(CLEAN)
    assert listed(lake) == merged
    assert set(iceberg_rows(lake.static(), first)) == numbers(20)
    lake.commit({"action": "remove-snapshot-ref", "ref-name": "v1"})
    pass_time(lake, 0.05)  # it is looked at again within the hour
    assert listed(lake) == [second, last]
    assert set(iceberg_rows(lake.static(), second)) == numbers(40)


def register(lake: Lake, name: str, location: str) -> None:
    register_table(lake.services, ("main",), RegisterTableRequest(name=name, metadata_location=location))


def test_files_stay_for_a_table_registered_from_the_same_metadata(lake: Lake, merged: list[int]) -> None:
    first, second, last = merged
    sources = files(lake, second)
    register(lake, "c", load_current_table(lake.services, ("main",), "t").location)
    lake.run(CLEAN)
    pass_time(lake, 6)
    assert listed(lake) == [last]
    lake.run(CLEAN, ORPHANS)
    assert all(path.exists() for path in sources)
    clone = lake.static("c")
    assert [snapshot.snapshot_id for snapshot in clone.snapshots()][:2] == [first, second]
    assert set(iceberg_rows(clone, first)) == numbers(20)


def test_files_that_were_let_go_stay_for_a_table_that_is_registered_before_they_are_deleted(
    lake: Lake, merged: list[int]
) -> None:
    first, second, last = merged
    location = load_current_table(lake.services, ("main",), "t").location
    sources = files(lake, second)
    lake.run(CLEAN)
    pass_time(lake, 6)
    assert listed(lake) == [last]
    register(lake, "c", location)
    lake.run(CLEAN, ORPHANS)
    assert all(path.exists() for path in sources)
    assert set(iceberg_rows(lake.static("c"), first)) == numbers(20)


def test_snapshots_whose_files_ducklake_still_has_stay(lake: Lake) -> None:
    """Deletes and rewritten deletes end files, but DuckLake keeps them for its own history."""
    lake.run("CREATE TABLE t (id BIGINT)")
    insert(lake, 0, 20)
    insert(lake, 20, 20)
    for statement in ("DELETE FROM t WHERE id < 15", "DELETE FROM t WHERE id < 20", "DELETE FROM t WHERE id > 25"):
        lake.run(statement)
        lake.metadata()
    lake.run("CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0.01)")
    before = listed(lake)
    assert len(before) == 6
    assert lake.sql("SELECT count(held_until) FROM duckicelake_snapshot") == [(0,)]


def test_table_says_how_long(lake: Lake) -> None:
    lake.run("CREATE TABLE t (id BIGINT)")
    insert(lake, 0, 20)
    lake.commit({"action": "set-properties", "updates": {HOLD: "0 seconds"}})
    insert(lake, 20, 20)
    lake.run(MERGE)
    merge = lake.newest()
    lake.metadata()
    assert listed(lake) == [merge]


@pytest.mark.parametrize(
    ("text", "days"), [("5 days", 5), ("1 day", 1), ("36 hours", 1.5), ("90 minutes", 1 / 16), ("0 seconds", 0)]
)
def test_hold_is_a_duration(text: str, days: float) -> None:
    assert get_hold({HOLD: text}) == timedelta(days=days)
    assert get_hold({}) == timedelta(days=5)


@pytest.mark.parametrize("text", ["", "5", "days", "-1 days", "5d", "1.5 days", "5 weeks", "9999999 days", "٣ days"])
def test_anything_else_is_refused_when_it_is_set(lake: Lake, text: str) -> None:
    lake.run("CREATE TABLE t (id BIGINT)")
    with pytest.raises(InvalidRequestError, match=r"ducklake\.history\.hold is .*'36 hours'"):
        lake.commit({"action": "set-properties", "updates": {HOLD: text}})
    assert HOLD not in lake.metadata().properties


def test_table_with_anything_else_is_not_registered(lake: Lake, merged: list[int]) -> None:
    materialized = load_current_table(lake.services, ("main",), "t")
    document = orjson.loads(materialized.body)
    document["properties"][HOLD] = "for ever"
    location = materialized.location.replace(".metadata.json", "-odd.metadata.json")
    lake.services.store.write(location, orjson.dumps(document))
    with pytest.raises(InvalidRequestError, match=r"ducklake\.history\.hold is 'for ever'"):
        register(lake, "c", location)
    assert lake.sql("SELECT count(*) FROM ducklake_table WHERE table_name = 'c'") == [(0,)]
