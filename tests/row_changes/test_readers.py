"""Several readers of a table at once: each gets its own changes, whatever processes have left of others' answers."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.row_changes.conftest import LIMITS, Change, Changes


@pytest.fixture
def history(changes: Changes) -> Changes:
    """Snapshots: a creation, 200 rows, 200 rows in another file, an update of 200 of them, 40 rows."""
    for statement in (
        "CREATE TABLE t (id BIGINT, name VARCHAR)",
        "INSERT INTO t SELECT i, 'n' FROM range(200) r(i)",
        "INSERT INTO t SELECT i, 'n' FROM range(200, 400) r(i)",
        "UPDATE t SET name = 'x' WHERE id % 2 = 0",
        "INSERT INTO t SELECT i, 'n' FROM range(500, 540) r(i)",
    ):
        changes.duck.execute(statement).fetchall()
    return changes


UPDATED_AT = 4


def read_in_parts(changes: Changes, since: str, **query: Any) -> list[Change]:
    rows: list[Change] = []
    found = {"_position": since, "_is_complete": False}
    while not found["_is_complete"]:
        part, found = changes.read(since=found["_position"], **query)
        rows += part
    return rows


def test_what_a_reader_left_before_a_merge_is_not_given_to_one_that_came_after_it(history: Changes) -> None:
    """Both are at the same row of the snapshot, whose changes have another order since."""
    since = f"{UPDATED_AT - 1}.0.0"
    before, _ = history.read(since=since)
    _, early = history.read(since=since, limit=60)
    _, early = history.read(since=early["_position"], limit=60)  # its process keeps the rest
    history.duck.execute("CALL ducklake_merge_adjacent_files('lake')").fetchall()
    after, _ = history.read(since=since)
    assert after[120:180] != before[120:180]
    _, late = history.read(since=since, limit=120)
    assert late["_position"].rpartition(".")[0] == early["_position"].rpartition(".")[0]
    assert history.read(since=late["_position"], limit=60)[0] == after[120:180]
    assert history.ask(since=early["_position"]).status_code == 409


def test_what_a_reader_left_before_a_merge_is_not_newer_after_an_answer_without_rows(history: Changes) -> None:
    """Followers that find no change come to the processes that have a rest, as there are no more of them."""
    since = f"{UPDATED_AT - 1}.0.0"
    for limit in (50, 60):
        _, end = history.read(since=since, limit=limit)
        _, end = history.read(since=end["_position"], limit=limit)  # each process keeps a rest
    history.duck.execute("CALL ducklake_merge_adjacent_files('lake')").fetchall()
    ((newest,),) = history.duck.execute("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')").fetchall()
    for _ in range(LIMITS.processes):
        assert history.read(since=f"{newest}.0.0")[0] == []
    _, late = history.read(since=since, limit=120)
    assert late["_position"].rpartition(".")[0] == end["_position"].rpartition(".")[0]
    rows, _ = history.read(since=late["_position"], limit=60)
    assert rows == history.read(since=since)[0][120:180]


def test_readers_of_other_ranges_at_once_get_their_own_changes(history: Changes) -> None:
    """They meet at the same rows of the update, with other ends, columns, keys, conditions and lengths of answers."""
    since = f"{UPDATED_AT - 1}.0.0"
    asked: list[dict[str, Any]] = [
        {"limit": 50},
        {"limit": 50},
        {"limit": 50, "until": UPDATED_AT},
        {"limit": 50, "columns": "name"},
        {"limit": 100, "key": "id"},
        {"limit": 25, "where": "id < 300"},
    ]
    whole = [history.read(since=since, **{**query, "limit": 100_000})[0] for query in asked]
    with ThreadPoolExecutor(len(asked)) as threads:
        found = [*threads.map(lambda query: read_in_parts(history, since, **query), asked)]
    assert found == whole
